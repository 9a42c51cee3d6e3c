//! Receipts: one per proposal, append-only, and found again (section 5).

use std::collections::BTreeSet;

use operators_kernel::{
    AttemptMark, ContentDigest, Cursor, Disposition, Ending, LedgerEntry, OperatorName, PAGE_MAX,
    Reason, Receipt, ReceiptFilter, ReceiptOutcome, ToolName, TrustDecision,
};

use super::desk::{Desk, again, applied, ask, failed, fresh_id, moment, unknown};
use crate::fixtures::{entity, key};
use crate::stores::Bench;

const START: Cursor = Cursor::After(0);
const END: Cursor = Cursor::Before(u64::MAX);

async fn page(
    desk: &Desk,
    filter: &ReceiptFilter,
    cursor: Cursor,
    limit: usize,
) -> Vec<LedgerEntry> {
    let page = desk
        .store
        .receipts(&desk.tenant, filter, cursor, limit)
        .await;
    page.expect("the store shows")
}

fn ids(entries: &[LedgerEntry]) -> Vec<&str> {
    entries
        .iter()
        .map(|entry| entry.receipt.receipt_id.as_str())
        .collect()
}

/// Some receipt of what touches no key.
fn read_receipt(desk: &Desk) -> Receipt {
    let ending = Ending::Applied {
        result_digest: Some(ContentDigest::of(b"")),
        effect_id: None,
    };
    let claim = desk.filled(&ask("order:1", "read"));
    claim
        .proposal
        .receipt(&AttemptMark::none(), &ending, moment())
}

/// By rules 5.1, 5.3: what was written is what is shown, to the last field.
pub async fn a_receipt_is_shown_as_it_was_written(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let mut claim = ask("order:1", "k1");
    claim.proposal.reseller_id = Some("wholesale".to_owned());
    claim.proposal.operator = Some(OperatorName::parse("ship-risk").expect("a name"));
    claim.proposal.event_id = Some("ev_1".to_owned());
    claim.proposal.value = Some(serde_json::Number::from_f64(19.25).expect("finite"));
    claim.proposal.revision = Some(u64::from(u32::MAX));
    claim.proposal.source_id = Some("crm/17 – \"quoted\"".to_owned());
    claim.proposal.index_hash = Some("ab".to_owned());
    claim.proposal.decision = TrustDecision::Alert;
    claim.proposal.note = Some("seen by the rule".to_owned());
    let attempt = desk.run(&claim, applied()).await;
    let ending = Ending::Applied {
        result_digest: Some(ContentDigest::of(b"")),
        effect_id: Some("vendor-7".to_owned()),
    };
    let expected = attempt.proposal.receipt(&attempt.mark, &ending, attempt.at);
    let written = serde_json::to_value(&expected).expect("JSON");
    assert_eq!(desk.trail().await, [expected]);
    let written = written.as_object().expect("an object");
    assert!(written.contains_key("approver") && written["approver"].is_null());
}

/// By rules 5.1, 8.3.
pub async fn what_touches_no_key_is_recorded_once(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let receipts = vec![read_receipt(&desk), read_receipt(&desk)];
    for _ in 0..2 {
        let recorded = desk.store.record(&desk.tenant, receipts.clone()).await;
        recorded.expect("records");
    }
    assert_eq!(desk.trail().await, receipts);
    let mut changed = receipts[0].clone();
    changed.error = Some("something else".to_owned());
    let recorded = desk.store.record(&desk.tenant, vec![changed]).await;
    recorded.expect("records");
    assert_eq!(desk.trail().await, receipts, "append-only");
    assert!(desk.find("read").await.is_none());
}

/// By rules 5.1, 5.4: both ways, without gaps or repeats, also while others write.
pub async fn pages_meet_without_gap_or_repeat(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    for number in 0..25 {
        let receipt = read_receipt(&desk);
        let theirs = desk.of("globex");
        let record = |desk: Desk, receipt| async move {
            let recorded = desk.store.record(&desk.tenant, vec![receipt]).await;
            recorded.expect("records");
        };
        record(desk.clone(), receipt).await;
        if number % 3 == 0 {
            let mut other = read_receipt(&theirs);
            other.tenant_id = theirs.tenant.clone();
            record(theirs, other).await;
        }
    }
    let all = desk.entries().await;
    assert_eq!(all.len(), 25);
    assert!(all.is_sorted_by(|a, b| a.sequence < b.sequence));
    let filter = ReceiptFilter::default();
    let (mut forward, mut cursor) = (Vec::new(), START);
    let (mut backward, mut end) = (Vec::new(), END);
    loop {
        let found = page(&desk, &filter, cursor, 7).await;
        let Some(last) = found.last() else { break };
        cursor = Cursor::After(last.sequence);
        forward.extend(found);
        if forward.len() == 14 {
            let later = vec![read_receipt(&desk)];
            desk.store
                .record(&desk.tenant, later)
                .await
                .expect("records");
        }
    }
    loop {
        let found = page(&desk, &filter, end, 7).await;
        let Some(last) = found.last() else { break };
        end = Cursor::Before(last.sequence);
        backward.extend(found);
    }
    assert_eq!(forward.len(), 26, "what came meanwhile is on the last page");
    assert_eq!(forward[..25], all[..]);
    backward.reverse();
    assert_eq!(backward, forward);
    assert!(page(&desk, &filter, START, 0).await.is_empty());
    assert!(
        page(&desk, &filter, Cursor::After(u64::MAX), 7)
            .await
            .is_empty()
    );
    assert!(page(&desk, &filter, Cursor::Before(0), 7).await.is_empty());
}

/// By rule 5.1: a page is bounded, whatever is asked for.
pub async fn a_page_is_never_longer_than_its_bound(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let receipts = (0..=PAGE_MAX).map(|_| read_receipt(&desk)).collect();
    let recorded = desk.store.record(&desk.tenant, receipts).await;
    recorded.expect("records");
    let filter = ReceiptFilter::default();
    for cursor in [START, END] {
        assert_eq!(
            page(&desk, &filter, cursor, usize::MAX).await.len(),
            PAGE_MAX
        );
    }
}

/// By rule 5.1: every filter alone finds just what it says, and so do two together.
pub async fn every_filter_finds_its_receipts(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let mut special = ask("order:2", "special");
    special.proposal.operator = Some(OperatorName::parse("ship-risk").expect("a name"));
    special.proposal.action.tool = ToolName::parse("orders.release").expect("a tool");
    special.proposal.correlation_id = "co_2".into();
    special.proposal.run_id = "run_2".into();
    special.proposal.decision = TrustDecision::Alert;
    desk.run(&ask("order:1", "plain"), applied()).await;
    desk.run(&special, failed()).await;
    desk.run(&ask("order:3", "doubt"), unknown()).await;
    desk.duplicate(&again(&ask("order:1", "plain"))).await;
    desk.refused_as(Reason::EntityInDoubt, &ask("order:3", "other"))
        .await;
    let middle = desk.receipt(&special.proposal.receipt_id).await.settled_at;
    let any = ReceiptFilter::default;
    #[rustfmt::skip]
    let filters = [
        ReceiptFilter { receipt_id: Some(special.proposal.receipt_id.clone()), ..any() },
        ReceiptFilter { operator: special.proposal.operator.clone(), ..any() },
        ReceiptFilter { decision: Some(Disposition::Alert), ..any() },
        ReceiptFilter { decision: Some(Disposition::Dedup), ..any() },
        ReceiptFilter { outcome: Some(ReceiptOutcome::InDoubt), ..any() },
        ReceiptFilter { outcome: Some(ReceiptOutcome::Refused), ..any() },
        ReceiptFilter { reason: Some(Reason::EntityInDoubt), ..any() },
        ReceiptFilter { reason: Some(Reason::Failed), ..any() },
        ReceiptFilter { tool: Some(special.proposal.action.tool.clone()), ..any() },
        ReceiptFilter { entity_key: Some(entity("order:3")), ..any() },
        ReceiptFilter { idempotency_key: Some(key("plain")), ..any() },
        ReceiptFilter { correlation_id: Some("co_2".to_owned()), ..any() },
        ReceiptFilter { run_id: Some("run_2".to_owned()), ..any() },
        ReceiptFilter { since: Some(middle), ..any() },
        ReceiptFilter { until: Some(middle), ..any() },
        ReceiptFilter { since: Some(middle), outcome: Some(ReceiptOutcome::Failed), ..any() },
    ];
    let all = desk.entries().await;
    assert_eq!(all.len(), 5);
    for filter in filters {
        let admitted: Vec<_> = all
            .iter()
            .filter(|entry| filter.admits(&entry.receipt))
            .cloned()
            .collect();
        assert!(
            (1..5).contains(&admitted.len()),
            "{filter:?} tells nothing apart"
        );
        assert_eq!(page(&desk, &filter, START, 9).await, admitted, "{filter:?}");
        let mut backward = page(&desk, &filter, END, 9).await;
        backward.reverse();
        assert_eq!(backward, admitted, "{filter:?}");
        let other = desk.of("globex");
        assert!(page(&other, &filter, START, 9).await.is_empty());
    }
    let none = ReceiptFilter {
        receipt_id: Some(fresh_id()),
        ..any()
    };
    assert!(page(&desk, &none, START, 9).await.is_empty());
}

/// By rule 5.1: nothing that ended lacks its receipt, and none is there twice.
pub async fn every_proposal_leaves_one_receipt(bench: &dyn Bench) {
    let (desk, gone) = (Desk::open(bench).await, Desk::open(bench).await);
    let claims = [
        ask("a", "applied"),
        ask("b", "failed"),
        ask("c", "doubt"),
        ask("a", "applied"),
        ask("z", "applied"),
        ask("c", "held"),
        ask("d", "left"),
    ];
    desk.run(&claims[0], applied()).await;
    desk.run(&claims[1], failed()).await;
    desk.run(&claims[2], unknown()).await;
    desk.duplicate(&claims[3]).await;
    desk.refused_as(Reason::Conflict, &claims[4]).await;
    desk.refused_as(Reason::EntityInDoubt, &claims[5]).await;
    gone.take(&claims[6]).await;
    gone.close().await;
    let entries = desk.entries().await;
    let proposed: Vec<_> = claims
        .iter()
        .map(|claim| claim.proposal.receipt_id.as_str())
        .collect();
    assert_eq!(ids(&entries), proposed);
    let unique: BTreeSet<_> = ids(&entries).into_iter().collect();
    assert_eq!(unique.len(), claims.len());
}
