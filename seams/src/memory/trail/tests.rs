//! What several threads keep is one row, found by number and by id.

use std::thread;

use operators_kernel::{
    AttemptMark, ConnectorName, EntityKey, IdempotencyKey, Packed, Proposal, ReceiptAction,
    Timestamp, ToolName, TrustDecision,
};
use serde_json::Map;

use super::*;

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).expect("a tenant")
}

fn slip(tenant_id: &str, receipt_id: &str) -> Slip {
    let action = ReceiptAction {
        args: Packed::from(Map::new()),
        connector: ConnectorName::parse("shop").expect("a connector"),
        tool: ToolName::parse("orders.hold").expect("a tool"),
    };
    let proposal = Proposal {
        receipt_id: receipt_id.into(),
        tenant_id: tenant(tenant_id),
        reseller_id: None,
        operator: None,
        run_id: "run_1".into(),
        plan_id: "plan_1".into(),
        event_id: None,
        correlation_id: "cor_1".into(),
        action: action.into(),
        value: None,
        entity_key: EntityKey::parse("order:1").expect("an entity"),
        idempotency_key: IdempotencyKey::parse("hold:1").expect("a key"),
        revision: None,
        source_id: None,
        index_hash: None,
        decision: TrustDecision::Allow,
        rule: None,
        policy: None,
        note: None,
        approver: None,
        limits: Vec::new(),
        proposed_at: Timestamp::from_micros(1),
    };
    Slip::Duplicate {
        proposal: proposal.into(),
        mark: AttemptMark::none(),
        original_receipt_id: "rc_0".into(),
        at: Timestamp::from_micros(2),
    }
}

fn ids(page: Result<Vec<LedgerEntry>, Torn>) -> Vec<(u64, String)> {
    let page = page.expect("readable").into_iter();
    page.map(|entry| (entry.sequence, entry.receipt.receipt_id.into()))
        .collect()
}

#[test]
fn what_threads_keep_at_once_is_one_row_that_pages_walk_both_ways() {
    let trail = Trail::default();
    thread::scope(|scope| {
        for writer in 0..2 * SHEETS {
            let trail = &trail;
            scope.spawn(move || {
                for number in 0..50 {
                    trail.keep_slip(slip("acme", &format!("rc_{writer}_{number}")));
                    trail.keep_slip(slip("umbrella", &format!("um_{writer}_{number}")));
                }
            });
        }
    });
    let (acme, filter) = (tenant("acme"), ReceiptFilter::default());
    let mut forth = Vec::new();
    while let page = ids(trail.page(
        &acme,
        &filter,
        Cursor::After(forth.last().map_or(0, |(last, _)| *last)),
        7,
    )) && !page.is_empty()
    {
        forth.extend(page);
    }
    assert_eq!(forth.len(), 2 * SHEETS * 50);
    assert!(forth.is_sorted_by(|a, b| a.0 < b.0), "{forth:?}");
    // Each writer's own are in the order in which it kept them.
    for writer in 0..2 * SHEETS {
        let start = format!("rc_{writer}_");
        let own = forth.iter().filter_map(|(_, id)| id.strip_prefix(&start));
        let own: Vec<u32> = own
            .map(|number| number.parse().expect("a number"))
            .collect();
        assert_eq!(own, (0..50).collect::<Vec<_>>());
    }
    let mut back = ids(trail.page(&acme, &filter, Cursor::Before(u64::MAX), PAGE_MAX));
    back.reverse();
    assert_eq!(back, forth);
    let after: Vec<u64> = trail
        .after(&acme, 0)
        .iter()
        .map(|entry| entry.sequence)
        .collect();
    assert_eq!(
        after,
        forth.iter().map(|(number, _)| *number).collect::<Vec<_>>()
    );
}

#[test]
fn a_receipt_of_an_id_that_was_asked_again_is_kept_once_and_found_even_when_dropped() {
    let trail = Trail::default();
    let acme = tenant("acme");
    trail.keep_slip(slip("acme", "rc_1"));
    trail.ask_again(&"rc_1".into());
    thread::scope(|scope| {
        scope.spawn(|| trail.keep_slip(slip("acme", "rc_1")));
    });
    trail.keep_slip(slip("acme", "rc_2"));
    // Written out, it is looked for in any case.
    trail.keep_slip(slip("acme", "rc_2").into_receipt().into());
    trail.keep_slip(slip("acme", "rc_3").into_receipt().into());
    let filter = ReceiptFilter::default();
    let all = ids(trail.page(&acme, &filter, Cursor::After(0), 10));
    assert_eq!(
        all,
        [
            (1, "rc_1".to_owned()),
            (2, "rc_2".to_owned()),
            (3, "rc_3".to_owned())
        ]
    );
    trail.drop_those(&acme, |id| id == "rc_2");
    trail.keep_slip(slip("acme", "rc_4"));
    let left = ids(trail.page(&acme, &filter, Cursor::After(0), 10));
    assert_eq!(
        left.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
        [1, 3, 4]
    );
    for id in ["rc_1", "rc_2", "rc_3", "rc_4"] {
        let found = trail.find(id).expect("readable").expect("kept");
        assert_eq!(found.receipt_id, id);
    }
    assert_eq!(trail.find("rc_5").expect("nothing torn"), None);
}
