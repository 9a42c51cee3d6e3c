//! A changed policy over past receipts: what flips, and what a receipt cannot answer.

use operators_kernel::Receipt;
use operators_kernel::TrustDecision::{Alert, Allow, Block};
use serde_json::{Value, json};

use super::{rule, set};
use crate::Replayed;

fn receipt(decision: &str, reason: Option<&str>, args: &Value) -> Receipt {
    let cites = decision != "DEDUP";
    serde_json::from_value(json!({
        "receipt_id": "rc_1", "kind": "proposal", "tenant_id": "acme", "reseller_id": null,
        "operator": "ship-risk", "run_id": "run_1", "plan_id": "pl_1", "event_id": "ev_1",
        "correlation_id": "co_1",
        "action": {"connector": "shop", "tool": "orders.hold", "args": args},
        "value": 100, "entity_key": "order:1", "idempotency_key": "order:1:hold",
        "generation": 1, "attempt": 1, "revision": null, "source_id": null, "index_hash": null,
        "decision": decision, "rule": cites.then_some("r"),
        "policy": cites.then_some(json!({"name": "p", "version": 1, "digest": "sha256:0"})),
        "ok": reason.is_none(), "outcome": if reason.is_none() {"applied"} else {"refused"},
        "reason": reason, "error": null, "note": null, "result_digest": null, "effect_id": null,
        "original_receipt_id": null, "approver": null, "session": null, "fence": null,
        "proposed_at": "2026-01-31T12:00:00Z", "settled_at": "2026-01-31T12:00:00Z",
    }))
    .expect("a receipt")
}

fn replay(rules: &str, receipt: &Receipt) -> Option<Replayed> {
    set(&[("p", rules)]).replay(receipt)
}

#[test]
fn it_tells_what_flips_and_what_stays() {
    let args = json!({"reason": "review"});
    let allow = rule(
        "r",
        "decision = \"ALLOW\"\nrequire = 'args.reason == \"review\"'",
    );
    let alert = rule("r", "decision = \"ALERT\"\nif = 'value > 50'");
    let none = rule("r", "connector = \"mail\"\ndecision = \"ALLOW\"");
    for (rules, was, reason, now, flips) in [
        (&allow, "ALLOW", None, Allow, false),
        (&allow, "BLOCK", Some("policy"), Allow, true),
        (&alert, "ALLOW", None, Alert, true),
        (&none, "ALLOW", None, Block, true),
        (&none, "BLOCK", Some("policy"), Block, false),
        (&alert, "ALLOW", Some("failed"), Alert, true),
    ] {
        let replayed = replay(rules, &receipt(was, reason, &args)).expect("trust decided it");
        assert_eq!(replayed.now.as_ref().expect("known").decision, now);
        assert_eq!(replayed.flips(), flips, "{rules} {was}");
    }
}

#[test]
fn what_trust_did_not_decide_is_passed_over() {
    let args = json!({});
    let allow = rule("r", "decision = \"ALLOW\"");
    assert_eq!(replay(&allow, &receipt("DEDUP", None, &args)), None);
    for reason in [
        "conflict",
        "stale_revision",
        "unknown_tool",
        "entity_in_doubt",
    ] {
        assert_eq!(replay(&allow, &receipt("BLOCK", Some(reason), &args)), None);
    }
    let mut read = receipt("ALLOW", None, &args);
    read.policy = None;
    assert_eq!(replay(&allow, &read), None);
}

#[test]
fn what_a_receipt_does_not_keep_is_not_guessed() {
    let hidden = json!({
        "reason": "review", "token": "hmac-sha256:00ff", "card": {"pin": "hmac-sha256:00ff"},
        "list": [{"pin": "hmac-sha256:00ff"}],
    });
    let receipt = receipt("ALLOW", None, &hidden);
    for (expression, why) in [
        (
            "event.payload.hour < 8",
            "rule `asks` reads `event.payload.hour`, which receipts do not keep",
        ),
        (
            "event == null",
            "rule `asks` reads `event`, which receipts do not keep",
        ),
        (
            "args.token == \"x\"",
            "rule `asks` reads `args.token`, kept only as a hash",
        ),
        (
            "args.token.size() > 3",
            "rule `asks` reads `args.token`, kept only as a hash",
        ),
        (
            "args.card.pin == \"1\"",
            "rule `asks` reads `args.card.pin`, kept only as a hash",
        ),
        (
            "args.card == args.other",
            "rule `asks` reads `args.card`, kept only as a hash",
        ),
        (
            "args.token.inner == 1",
            "rule `asks` reads `args.token.inner`, kept only as a hash",
        ),
        (
            "args.list.exists(x, x.pin == \"1\")",
            "rule `asks` reads `args.list`, kept only as a hash",
        ),
        (
            "args[\"token\"] == \"x\"",
            "rule `asks` reads `args`, kept only as a hash",
        ),
    ] {
        for word in ["if", "require"] {
            let asks = rule(
                "asks",
                &format!("decision = \"BLOCK\"\n{word} = '''{expression}'''"),
            );
            let rules = rule("open", "decision = \"ALLOW\"") + &asks;
            let replayed = replay(&rules, &receipt).expect("trust decided it");
            assert_eq!(replayed.now, Err(why.to_owned()), "{expression}");
            assert!(!replayed.flips());
        }
    }
    let open = rule(
        "open",
        "decision = \"ALLOW\"\nrequire = 'args.reason == \"review\"'",
    );
    assert!(replay(&open, &receipt).expect("decided").now.is_ok());
}
