//! A process frozen past its lease: the others go on without it, and it does no harm when it wakes.

use std::time::Duration;

use nix::sys::signal::Signal;
use operators_kernel::life::Phase;
use operators_kernel::{ActionResult, Disposition, Reason, ReceiptKind, ReceiptOutcome};
use operators_tests::fixtures;
use operators_tests::history::{History, Line};

use crate::arena::{Arena, Plan};
use crate::ground::{Store, on_every_store};
use crate::process::{Ended, Victim};

const LEASE_MS: u64 = 1_000;

/// A bit more than a lease.
const PAST_THE_LEASE: Duration = Duration::from_millis(LEASE_MS + 300);

const ONE: Plan = Plan {
    actions: 1,
    entities: 1,
    repeats: 1,
};

on_every_store!(
    frozen_between_claim_and_send_it_sends_nothing,
    frozen_in_an_opaque_call_its_late_answer_settles,
    frozen_in_a_keyed_call_another_sends_it_again_once,
    frozen_in_a_probeable_call_another_finds_its_effect,
    frozen_in_the_queue_it_is_passed_and_comes_again,
);

/// The one result of a victim with one action.
fn only(ended: &Ended) -> ActionResult {
    let results = ended.results();
    assert_eq!(results.len(), 1, "{ended:#?}");
    results[0].clone()
}

/// Lets another process propose the same key and another one on the same entity.
fn propose_elsewhere(arena: &Arena) -> (ActionResult, ActionResult) {
    let orders = arena
        .orders_without_plan()
        .with("--generate", "2:1:1:key")
        .with("--lease-ms", LEASE_MS);
    let ended = arena.run_whole(&orders);
    let results = ended.results();
    assert_eq!(results.len(), 2, "{ended:#?}");
    (results[0].clone(), results[1].clone())
}

fn phase(history: &History, key: &str) -> Phase {
    history.keys[&fixtures::key(key)].phase
}

/// How many corrections cite the receipt of a proposal that was taken for a doubt.
fn corrections(history: &History) -> usize {
    let was_in_doubt = |cited: &str| {
        let mut receipts = history.receipts.iter();
        receipts.any(|r| r.receipt_id == cited && r.outcome == Some(ReceiptOutcome::InDoubt))
    };
    history
        .receipts
        .iter()
        .filter(|receipt| receipt.kind == ReceiptKind::Correction)
        .filter(|receipt| {
            receipt
                .original_receipt_id
                .as_deref()
                .is_some_and(was_in_doubt)
        })
        .count()
}

fn assert_no_double(history: &History) {
    for receipt in &history.receipts {
        let note = receipt.note.as_deref().unwrap_or_default();
        assert!(!note.contains("double_applied"), "{receipt:#?}");
    }
}

/// By rules 2.9, 4.2, 4.3, 4.9, 4.12: frozen between claim and send, its claim is a doubt; when it
/// wakes it sends nothing, says so, and the key is free again.
fn frozen_between_claim_and_send_it_sends_nothing(store: Store) {
    let arena = Arena::new(store, "opaque", ONE);
    let orders = arena
        .orders()
        .with("--lease-ms", LEASE_MS)
        .with("--freeze", "after-claim:1");
    let mut frozen = Victim::start(&orders);
    frozen.wait_until_frozen();
    std::thread::sleep(PAST_THE_LEASE);

    let (same, other) = propose_elsewhere(&arena);
    assert_eq!(same.reason, Some(Reason::InDoubt), "{same:?}");
    assert_eq!(other.reason, Some(Reason::EntityInDoubt), "{other:?}");
    assert_eq!(arena.sink.hits(), [], "nothing was sent by anybody");

    frozen.signal(Signal::SIGCONT);
    let woken = only(&arena.keep(frozen.finish()));
    assert_eq!(woken.reason, Some(Reason::Failed), "{woken:?}");
    let error = woken.error.as_deref().unwrap_or_default();
    assert!(error.starts_with("nothing was sent: the lease"), "{error}");
    let history = arena.history();
    history.assert_sound("woken before the send");
    assert_eq!(history.hits, []);
    assert_eq!(phase(&history, "key-0"), Phase::Failed);
    assert_eq!(corrections(&history), 1);
    arena.mend("woken before the send");
}

/// Freezes a process in the middle of its call, past its lease; by then the sink has applied it.
fn frozen_in_the_middle_of_a_call(arena: &Arena) -> Victim {
    let orders = arena
        .orders()
        .with("--lease-ms", LEASE_MS)
        .with("--timeout-ms", 30_000)
        .with("--behave", "before=400");
    let frozen = Victim::start(&orders);
    arena.sink.wait_for("the call", |hits| !hits.is_empty());
    loop {
        frozen.signal(Signal::SIGSTOP);
        std::thread::sleep(Duration::from_millis(5));
        if !arena.is_locked() {
            break;
        }
        // It stopped inside a heartbeat and would hold up everybody for another reason.
        frozen.signal(Signal::SIGCONT);
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(PAST_THE_LEASE);
    let hits = arena.sink.wait_until_idle();
    assert_eq!(hits.iter().filter(|hit| hit.is_effect()).count(), 1);
    frozen
}

/// By rules 4.2, 4.4, 4.9, 5.7: frozen in its call, an opaque action is a doubt; its late answer burns
/// the key with a correction.
fn frozen_in_an_opaque_call_its_late_answer_settles(store: Store) {
    let arena = Arena::new(store, "opaque", ONE);
    let frozen = frozen_in_the_middle_of_a_call(&arena);
    let (same, other) = propose_elsewhere(&arena);
    assert_eq!(same.reason, Some(Reason::InDoubt), "{same:?}");
    assert_eq!(other.reason, Some(Reason::EntityInDoubt), "{other:?}");

    frozen.signal(Signal::SIGCONT);
    let woken = only(&arena.keep(frozen.finish()));
    assert!(
        woken.ok && woken.decision == Disposition::Allow,
        "{woken:?}"
    );
    let history = arena.history();
    history.assert_sound("woken in an opaque call");
    assert_eq!(phase(&history, "key-0"), Phase::Applied);
    assert_eq!(corrections(&history), 1);
    assert_no_double(&history);
    let (same, other) = propose_elsewhere(&arena);
    assert_eq!(same.decision, Disposition::Dedup);
    assert!(other.ok, "the entity is free again: {other:?}");
    arena.mend("woken in an opaque call");
}

/// By rules 3.7, 4.5, 4.10: frozen in its call, a keyed action is sent again by another process with
/// the same downstream key; the late answer is no double.
fn frozen_in_a_keyed_call_another_sends_it_again_once(store: Store) {
    let arena = Arena::new(store, "keyed", ONE);
    let frozen = frozen_in_the_middle_of_a_call(&arena);
    let (same, other) = propose_elsewhere(&arena);
    assert!(same.ok && same.attempt == 2, "{same:?}");
    assert!(other.ok, "{other:?}");

    frozen.signal(Signal::SIGCONT);
    let woken = only(&arena.keep(frozen.finish()));
    assert!(woken.ok, "{woken:?}");
    let history = arena.history();
    history.assert_sound("woken in a keyed call");
    let sent: Vec<_> = history.hits.iter().filter(|h| h.key == "key-0").collect();
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0].downstream_key, sent[1].downstream_key);
    assert_no_double(&history);
    arena.mend("woken in a keyed call");
}

/// By rules 4.10, 4.13: frozen in its call, a probeable action is found by another process's probe;
/// the late answer of that very attempt confirms it and is no double.
fn frozen_in_a_probeable_call_another_finds_its_effect(store: Store) {
    let arena = Arena::new(store, "probeable", ONE);
    let frozen = frozen_in_the_middle_of_a_call(&arena);
    let (same, other) = propose_elsewhere(&arena);
    assert_eq!(same.decision, Disposition::Dedup, "{same:?}");
    assert!(other.ok, "{other:?}");

    frozen.signal(Signal::SIGCONT);
    let woken = only(&arena.keep(frozen.finish()));
    assert!(woken.ok, "{woken:?}");
    let history = arena.history();
    history.assert_sound("woken in a probeable call");
    assert_eq!(history.effects("key-0").count(), 1);
    assert_no_double(&history);
    arena.mend("woken in a probeable call");
}

/// By rule 2.9: frozen in the queue, it loses its place once its lease is over; when it wakes its
/// action still runs, once.
fn frozen_in_the_queue_it_is_passed_and_comes_again(store: Store) {
    let plan = Plan { actions: 3, ..ONE };
    let arena = Arena::new(store, "opaque", plan);
    let orders = |prefix: &str| {
        arena
            .orders_without_plan()
            .with("--generate", format!("1:1:1:{prefix}"))
            .with("--lease-ms", LEASE_MS)
    };
    let has_ticket = |lines: &[Line]| lines.iter().any(|l| matches!(l, Line::Ticket(_)));
    let first = Victim::start(&orders("first").with("--behave", "before=900"));
    arena
        .sink
        .wait_for("the first call", |hits| hits.len() == 1);
    let mut frozen = Victim::start(&orders("frozen"));
    frozen.wait_until("its place", has_ticket);
    loop {
        frozen.signal(Signal::SIGSTOP);
        std::thread::sleep(Duration::from_millis(5));
        if !arena.is_locked() {
            break;
        }
        frozen.signal(Signal::SIGCONT);
        std::thread::sleep(Duration::from_millis(5));
    }
    let third = arena.run_whole(&orders("third"));
    assert!(only(&third).ok, "{third:#?}");
    assert!(
        third
            .lines
            .iter()
            .any(|line| matches!(line, Line::Ticket(_)))
    );
    assert!(only(&arena.keep(first.finish())).ok);
    assert!(frozen.is_frozen());
    frozen.signal(Signal::SIGCONT);
    assert!(only(&arena.keep(frozen.finish())).ok);
    let history = arena.history();
    let sent: Vec<&str> = history.hits.iter().map(|hit| hit.key.as_str()).collect();
    assert_eq!(sent, ["first-0", "third-0", "frozen-0"]);
    assert_no_double(&history);
}
