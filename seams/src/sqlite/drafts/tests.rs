//! A draft is taken for what it is of, and for nothing else.

use operators_kernel::{AttemptMark, ContentDigest, Fence, SessionId, Timestamp};
use serde_json::json;

use super::*;

fn proposal() -> Shared<Proposal> {
    let said = json!({
        "receipt_id": "rc_1", "tenant_id": "acme", "reseller_id": null, "operator": null,
        "run_id": "run_1", "plan_id": "plan_1", "event_id": null, "correlation_id": "c_1",
        "action": {"args": {}, "connector": "shop", "tool": "orders.hold"}, "value": null,
        "entity_key": "order:1", "idempotency_key": "k1", "revision": null, "source_id": null,
        "index_hash": null, "decision": "ALLOW", "rule": null, "policy": null, "note": null,
        "proposed_at": "2026-01-01T00:00:00.000000Z",
    });
    serde_json::from_value(said).expect("a proposal")
}

fn drafted(slip: &Slip) -> Draft {
    Draft {
        proposal: None,
        receipt: Some((slip.clone(), Sheet::of(slip.clone()).expect("a receipt"))),
    }
}

fn applied(proposal: &Shared<Proposal>, attempt: u32, effect_id: Option<&str>, at: i64) -> Slip {
    Slip::Applied {
        proposal: proposal.clone(),
        mark: AttemptMark {
            generation: 1,
            attempt,
            session: Some(SessionId(1)),
            fence: Some(Fence(1)),
            approver: None,
        },
        result_digest: None,
        effect_id: effect_id.map(str::to_owned),
        at: Timestamp::from_micros(at),
    }
}

#[test]
fn a_row_is_taken_for_its_own_receipt_once() {
    let slip = applied(&proposal(), 1, None, 0);
    let mut draft = drafted(&slip);
    let sheet = draft.take_sheet(&slip).expect("drafted");
    let written = Sheet::of(slip.clone()).expect("a receipt");
    assert_eq!((sheet.body, sheet.leaf), (written.body, written.leaf));
    assert!(draft.take_sheet(&slip).is_none());
}

#[test]
fn a_row_of_another_receipt_is_not_taken() {
    let proposal = proposal();
    let slip = applied(&proposal, 1, None, 0);
    let mut hashed = slip.clone();
    if let Slip::Applied { result_digest, .. } = &mut hashed {
        *result_digest = Some(ContentDigest::of(b"x"));
    }
    let mut changed = proposal.clone();
    changed.approver = Some("ada".to_owned());
    for other in [
        applied(&proposal, 2, None, 0),
        applied(&proposal, 1, Some("effect"), 0),
        applied(&proposal, 1, None, 1),
        applied(&changed, 1, None, 0),
        hashed,
        slip.receipt().into(),
    ] {
        assert!(drafted(&slip).take_sheet(&other).is_none(), "{other:?}");
    }
}

/// Whoever approved it is added inside the transaction, and must be in the row.
#[test]
fn the_text_of_a_proposal_that_was_changed_is_not_taken() {
    let proposal = proposal();
    let mut changed = proposal.clone();
    changed.approver = Some("ada".to_owned());
    let mut draft = Draft {
        proposal: Some((proposal.clone(), "its text".to_owned())),
        receipt: None,
    };
    assert_eq!(draft.take_text(&changed), None);
    assert_eq!(draft.take_text(&proposal).as_deref(), Some("its text"));
    assert_eq!(draft.take_text(&proposal), None);
}
