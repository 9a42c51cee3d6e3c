//! What several threads keep is one row, found by number and by id.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

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
        known_by: None,
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
    trail.keep_slip(slip("acme", "rc_4"));
    // Nobody has asked for the last one by its id yet.
    trail.drop_those(&acme, |id| ["rc_2", "rc_4"].contains(&id));
    trail.keep_slip(slip("acme", "rc_5"));
    let left = ids(trail.page(&acme, &filter, Cursor::After(0), 10));
    assert_eq!(
        left.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
        [1, 3, 5]
    );
    for id in ["rc_1", "rc_2", "rc_3", "rc_4", "rc_5"] {
        let found = trail.find(id).expect("readable").expect("kept");
        assert_eq!(found.receipt_id, id);
    }
    assert_eq!(trail.find("rc_6").expect("nothing torn"), None);
}

/// By rules 5.8, 11.1: a number is given, and seen, only when all before it are there.
#[test]
fn who_reads_on_while_others_write_misses_none_and_meets_none_twice() {
    const EACH: usize = 2_000;
    let (trail, acme) = (Trail::default(), tenant("acme"));
    let writing = AtomicUsize::new(SHEETS);
    let filter = ReceiptFilter::default();
    let numbers = |page| ids(page).into_iter().map(|(number, _)| number);
    let page = |cursor| numbers(trail.page(&acme, &filter, cursor, 40)).collect::<Vec<u64>>();
    let after = |last| {
        let rest = trail.after(&acme, last);
        rest.iter()
            .map(|entry| entry.sequence)
            .collect::<Vec<u64>>()
    };
    // Until a look that began when all was written finds nothing more.
    let read_on = |read: &dyn Fn(u64) -> Vec<u64>| {
        let mut seen = Vec::new();
        loop {
            let is_over = writing.load(Ordering::Acquire) == 0;
            let more = read(seen.last().copied().unwrap_or_default());
            if is_over && more.is_empty() {
                return seen;
            }
            seen.extend(more);
        }
    };
    thread::scope(|scope| {
        for writer in 0..SHEETS {
            let (trail, writing) = (&trail, &writing);
            scope.spawn(move || {
                for number in 0..EACH {
                    trail.keep_slip(slip("acme", &format!("rc_{writer}_{number}")));
                }
                writing.fetch_sub(1, Ordering::Release);
            });
        }
        let pages = scope.spawn(|| read_on(&|last| page(Cursor::After(last))));
        let log = scope.spawn(|| read_on(&after));
        // Back from wherever the row ends by then, as often as there is time for it.
        while writing.load(Ordering::Acquire) > 0 {
            let mut back = page(Cursor::Before(u64::MAX));
            while let Some(first) = back.last().copied().filter(|first| *first > 1) {
                back.extend(page(Cursor::Before(first)));
            }
            let newest = back.first().copied().unwrap_or_default();
            assert_eq!(back, (1..=newest).rev().collect::<Vec<_>>());
        }
        let all: Vec<u64> = (1..).take(SHEETS * EACH).collect();
        assert_eq!(pages.join().expect("read"), all);
        assert_eq!(log.join().expect("read"), all);
    });
}

/// By rules 5.8, 11.1: what is read of one sheet and then of another would lack what was kept on the
/// first meanwhile, and show what came after it.
#[test]
fn who_looks_has_every_sheet_in_hand() {
    let (trail, acme) = (Trail::default(), tenant("acme"));
    let filter = ReceiptFilter::default();
    let [others @ .., last] = &*trail.sheets else {
        panic!("no sheets")
    };
    let looks: [&(dyn Fn() + Sync); 3] = [
        &|| drop(trail.page(&acme, &filter, Cursor::After(0), 1)),
        &|| drop(trail.page(&acme, &filter, Cursor::Before(u64::MAX), 1)),
        &|| drop(trail.after(&acme, 0)),
    ];
    for (number, look) in looks.iter().enumerate() {
        let somebody_keeps_one = last.hold();
        thread::scope(|scope| {
            scope.spawn(look);
            let has_all_others = || others.iter().all(|sheet| sheet.0.try_lock().is_err());
            let mut tries = 0..5_000;
            let is_seen = tries.any(|_| {
                thread::sleep(Duration::from_millis(1));
                has_all_others()
            });
            drop(somebody_keeps_one);
            assert!(is_seen, "look {number} lets go of what it has seen");
        });
    }
}

/// By rules 5.1, 8.3.
#[test]
fn of_what_several_keep_at_once_under_one_id_one_is_kept() {
    const IDS: usize = 300;
    let (trail, acme) = (Trail::default(), tenant("acme"));
    let (asked, written) = (|n| format!("rc_{n}"), |n| format!("wr_{n}"));
    for number in 0..IDS {
        trail.ask_again(&asked(number).into());
    }
    let together = Barrier::new(SHEETS);
    thread::scope(|scope| {
        for _ in 0..SHEETS {
            scope.spawn(|| {
                for number in 0..IDS {
                    together.wait();
                    trail.keep_slip(slip("acme", &asked(number)));
                    trail.keep_slip(slip("acme", &written(number)).into_receipt().into());
                }
            });
        }
    });
    let kept = trail.after(&acme, 0);
    let ids: BTreeSet<&str> = kept.iter().map(|entry| entry.paper.receipt_id()).collect();
    assert_eq!((kept.len(), ids.len()), (2 * IDS, 2 * IDS));
}

/// By rule 8.3: what is kept on one sheet while another is entered in the list is entered later.
#[test]
fn what_is_kept_while_others_are_looked_for_is_found() {
    const EACH: usize = 1_000;
    let trail = Trail::default();
    let writing = AtomicUsize::new(SHEETS);
    thread::scope(|scope| {
        for writer in 0..SHEETS {
            let (trail, writing) = (&trail, &writing);
            scope.spawn(move || {
                for number in 0..EACH {
                    trail.keep_slip(slip("acme", &format!("rc_{writer}_{number}")));
                }
                writing.fetch_sub(1, Ordering::Release);
            });
        }
        while writing.load(Ordering::Acquire) > 0 {
            assert_eq!(trail.find("rc_none").expect("nothing torn"), None);
        }
    });
    for writer in 0..SHEETS {
        for number in 0..EACH {
            let id = format!("rc_{writer}_{number}");
            let found = trail.find(&id).expect("readable");
            assert_eq!(found.map(|receipt| receipt.receipt_id), Some(id.into()));
        }
    }
}
