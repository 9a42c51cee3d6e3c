//! The judge is judged: a sound history passes, and each way of spoiling it is found by name.

use operators_kernel::life::Phase;
use operators_kernel::{ReceiptOutcome, SessionId};
use operators_tests::fixtures;
use operators_tests::history::{History, Invariant, Line, QueuedAt};
use serde_json::json;

use crate::arena::{Arena, Plan};
use crate::ground::Store;

/// Three revisions of one entity, each proposed twice, and one action that trust blocks.
fn sound() -> History {
    let plan = Plan {
        actions: 3,
        entities: 1,
        repeats: 1,
    };
    let arena = Arena::new(Store::Sqlite, "opaque", plan);
    let mut actions: Vec<_> = (0..3)
        .map(|n| {
            let mut action = arena.action(n);
            action.revision = Some(u64::try_from(n).expect("small"));
            action
        })
        .collect();
    actions.extend(actions.clone());
    actions.push(fixtures::action(
        "orders.hold",
        "order-0",
        "blocked",
        json!({}),
    ));
    let path = arena.path("plan.json");
    std::fs::write(&path, serde_json::to_string(&actions).expect("JSON")).expect("a file");
    let orders = arena
        .orders_without_plan()
        .with("--plan", path.display())
        .with("--behave", "before=1,after=1");
    arena.run_whole(&orders);
    let mut history = arena.history();
    // The three as if they had queued: a ticket each, in order.
    for n in 0..3 {
        let line = ticket(&history, n, u64::from(n));
        history.lines.push(line);
    }
    // A proposal each, so that the sink's log can be told apart by key.
    history.receipts.retain(|r| {
        r.outcome != Some(ReceiptOutcome::Deduplicated) || r.idempotency_key.as_str() == "key-2"
    });
    let kept: Vec<String> = history
        .receipts
        .iter()
        .map(|r| r.receipt_id.to_string())
        .collect();
    history.lines.retain(|line| match line {
        Line::Answered(id) | Line::Proposed(id) => kept.contains(id),
        Line::Result(result) => kept.iter().any(|id| result.receipt_id == *id),
        _ => true,
    });
    history
}

/// A place in the queue of the proposal that was sent for a key.
fn ticket(history: &History, n: u32, ticket: u64) -> Line {
    let key = format!("key-{n}");
    let mut sent = history.receipts.iter();
    let sent = sent.find(|r| r.idempotency_key.as_str() == key && r.session.is_some());
    Line::Ticket(QueuedAt {
        receipt_id: sent.expect("it was sent").receipt_id.to_string(),
        key,
        entity: "order-0".to_owned(),
        ticket,
    })
}

/// What spoils a history, and how.
type Spoiling = (&'static str, Invariant, fn(&mut History));

const SPOILINGS: &[Spoiling] = &[
    ("an effect twice", Invariant::I1, |h| {
        let mut again = h.hits[0].clone();
        let later = h.hits[2].left_ns.expect("left") + 10;
        (again.arrived_ns, again.applied_ns) = (later, Some(later));
        again.left_ns = Some(later + 1);
        h.hits.push(again);
    }),
    ("two at once", Invariant::I2, |h| {
        h.hits[1].arrived_ns = h.hits[0].arrived_ns + 1;
    }),
    ("one that never left", Invariant::I2, |h| {
        h.hits[0].left_ns = None;
    }),
    ("one that overtook", Invariant::I3, |h| {
        h.lines.retain(|line| !matches!(line, Line::Ticket(_)));
        let overtaken = [ticket(h, 0, 7), ticket(h, 1, 6)];
        h.lines.extend(overtaken);
    }),
    ("a blocked action seen", Invariant::I4, |h| {
        let mut hit = h.hits[2].clone();
        (hit.key, hit.entity) = ("blocked".to_owned(), "elsewhere".to_owned());
        h.hits.push(hit);
    }),
    ("a request more than attempts", Invariant::I4, |h| {
        let mut hit = h.hits[0].clone();
        (hit.is_replay, hit.entity) = (true, "elsewhere".to_owned());
        h.hits.push(hit);
    }),
    ("a receipt twice", Invariant::I5, |h| {
        let again = h.receipts[0].clone();
        h.receipts.push(again);
    }),
    ("a proposal without receipt", Invariant::I5, |h| {
        h.receipts
            .retain(|r| r.idempotency_key.as_str() != "blocked");
    }),
    ("a receipt nobody proposed", Invariant::I5, |h| {
        let mut receipt = h.receipts[0].clone();
        receipt.receipt_id = format!("{}-invented", receipt.receipt_id).into();
        h.receipts.push(receipt);
    }),
    ("a result without receipt", Invariant::I5, |h| {
        for line in &mut h.lines {
            if let Line::Result(result) = line {
                result.receipt_id = format!("{}-gone", result.receipt_id).into();
            }
        }
    }),
    ("a receipt that cites nothing", Invariant::I5, |h| {
        h.receipts[0].original_receipt_id = Some("rc_gone".into());
    }),
    ("burned without effect", Invariant::I6, |h| {
        h.hits[1].applied_ns = None;
    }),
    ("a doubt that is not listed", Invariant::I10, |h| {
        key(h, "key-1").phase = Phase::InDoubt;
    }),
    ("a doubt that is none", Invariant::I10, |h| {
        h.doubts.insert(fixtures::key("key-1"));
    }),
    ("an effect whose key is free", Invariant::I10, |h| {
        key(h, "key-1").phase = Phase::Failed;
    }),
    ("an effect whose key is gone", Invariant::I10, |h| {
        h.keys.remove(&fixtures::key("key-1"));
    }),
    ("a failure that was guessed", Invariant::I10, |h| {
        key(h, "key-1").phase = Phase::Failed;
        (h.hits[1].applied_ns, h.hits[1].status) = (None, None);
    }),
    ("an older revision after a newer", Invariant::I12, |h| {
        for receipt in &mut h.receipts {
            receipt.revision = receipt.revision.map(|revision| 9 - revision);
        }
    }),
    ("an intent at rest", Invariant::L2, |h| {
        key(h, "key-1").phase = Phase::Intent;
    }),
    ("a turn held at rest", Invariant::L2, |h| {
        for entity in h.entities.values_mut() {
            entity.holder = Some(SessionId(1));
        }
    }),
    ("an entity held by no doubt", Invariant::L2, |h| {
        for entity in h.entities.values_mut() {
            entity.doubt = Some(fixtures::key("key-1"));
        }
    }),
];

fn key<'a>(history: &'a mut History, name: &str) -> &'a mut operators_kernel::life::KeyRecord {
    let name = fixtures::key(name);
    history.keys.get_mut(&name).expect("a key of the plan")
}

#[test]
fn a_sound_history_passes_and_every_spoiled_one_is_flagged() {
    let sound = sound();
    assert_eq!(sound.violations(), [], "{sound:#?}");
    assert_eq!(sound.hits.len(), 3);
    for (what, invariant, spoil) in SPOILINGS {
        let mut spoiled = sound.clone();
        spoil(&mut spoiled);
        let found = spoiled.violations();
        let is_found = found.iter().any(|found| found.invariant == *invariant);
        assert!(is_found, "{what} is {invariant:?}, found {found:#?}");
    }
}

/// A request of a key in doubt counts up to its effect, so a resolved doubt is no overlap; one that
/// takes effect inside another's time still is.
#[test]
fn a_resolved_doubt_is_no_overlap_but_its_effect_may_be() {
    let mut history = sound();
    history.receipts[0].outcome = Some(ReceiptOutcome::InDoubt);
    history.hits[0].left_ns = history.hits[2].left_ns;
    assert_eq!(history.violations(), []);
    history.hits[0].applied_ns = Some(history.hits[1].arrived_ns + 1);
    let found = history.violations();
    assert!(found.iter().all(|found| found.invariant == Invariant::I2));
    assert_eq!(found.len(), 1, "{found:#?}");
}
