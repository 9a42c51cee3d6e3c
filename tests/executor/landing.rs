//! Section 4, second half: requests that may still land, and attempts that tell late.

use std::sync::Arc;
use std::time::Duration;

use operators_kernel::life::Phase;
use operators_kernel::{
    OnUnknown, ReceiptKind, Resolution, ResolveAnswer, Resolver, ToolContract, Verdict,
};
use operators_tests::fakes::{Act, Fault, Op};
use operators_tests::fixtures::{World, action, hold, key, registry_with, tenant};
use serde_json::json;

use crate::support::{
    begin, bury_the_lifeless, effects, faulty, held_inside, let_others_run, memory, neighbour, now,
    one, phase, proposals, receipts, words,
};

fn tag(key: &str) -> operators_kernel::PlannedAction {
    action("orders.tag", "e", key, json!({"tag": key}))
}

fn refund(key: &str) -> operators_kernel::PlannedAction {
    action("orders.refund", "e", key, json!({"amount": 5}))
}

/// Rule 4.7: the resend definitely failed, which says nothing about the first attempt.
#[tokio::test]
async fn a_definite_failure_of_a_resend_does_not_clear_the_doubt() {
    let world = memory().world;
    let executor = world.start().await;
    world.connector.then([Act::ApplyThenUnknown, Act::Refuse]);
    assert_eq!(
        words(&one(&executor, &world, refund("k")).await),
        "ALLOW false in_doubt"
    );
    let resent = one(&executor, &world, refund("k")).await;
    assert_eq!(words(&resent), "ALLOW false failed");
    assert!(resent.error.expect("why").contains("the doubt stays"));
    assert_eq!(phase(&world, "k").await, Some(Phase::InDoubt));
    let other = one(&executor, &world, refund("k2")).await;
    assert_eq!(words(&other), "BLOCK false entity_in_doubt");
    assert!(one(&executor, &world, refund("k")).await.ok);
    assert!(one(&executor, &world, refund("k2")).await.ok);
}

/// Rule 4.8: the abandoned first request would overwrite what comes next, so nothing comes next
/// until it can no longer land.
#[tokio::test]
async fn after_an_idempotent_resend_others_wait_until_the_first_can_no_longer_land() {
    let world = memory().world;
    let executor = world.start().await;
    world.connector.then([Act::Unknown]);
    assert_eq!(
        words(&one(&executor, &world, tag("k")).await),
        "ALLOW false in_doubt"
    );
    world.clock.advance(Duration::from_millis(500));
    assert_eq!(
        words(&one(&executor, &world, tag("k")).await),
        "ALLOW true -"
    );
    let early = one(&executor, &world, tag("k2")).await;
    assert_eq!(words(&early), "BLOCK false entity_in_doubt");
    assert!(
        early
            .error
            .expect("why")
            .contains("may still land for 1.5 s")
    );
    assert_eq!(
        words(&one(&executor, &world, tag("k")).await),
        "DEDUP true -"
    );
    world.clock.advance(Duration::from_millis(1_500));
    assert!(one(&executor, &world, tag("k2")).await.ok);
}

/// Rule 4.8: so it is where a tool is sent again at its owner's word (`on_unknown = "retry"`).
#[tokio::test]
async fn after_a_retried_opaque_call_others_wait_until_the_first_can_no_longer_land() {
    let mut world = memory().world;
    world.registry = Arc::new(registry_with(&world.connector, |_, contract| {
        ToolContract {
            on_unknown: OnUnknown::Retry,
            ..contract
        }
    }));
    let executor = world.start().await;
    world.connector.then([Act::Unknown]);
    let first = one(&executor, &world, hold("e", "k")).await;
    assert_eq!(words(&first), "ALLOW false in_doubt");
    assert_eq!(
        words(&one(&executor, &world, hold("e", "k")).await),
        "ALLOW true -"
    );
    let early = one(&executor, &world, hold("e", "k2")).await;
    assert_eq!(words(&early), "BLOCK false entity_in_doubt");
    world.clock.advance(Duration::from_secs(2));
    assert!(one(&executor, &world, hold("e", "k2")).await.ok);
}

/// Rule 4.6: the deadline runs from the intent, for that is what quiescence is counted from. A
/// claim whose answer came late leaves the call the rest of its time, or none at all.
#[tokio::test]
async fn the_calls_deadline_runs_from_the_intent() {
    let mut world = memory().world;
    let store = faulty(&mut world);
    let executor = world.start().await;
    let slow = |span: u64| {
        let clock = Arc::clone(&world.clock);
        Fault::Then(Arc::new(move || clock.advance(Duration::from_millis(span))))
    };
    store.next(Op::Claim, [slow(1_500), slow(2_000)]);
    assert!(one(&executor, &world, hold("e", "k1")).await.ok);
    assert_eq!(
        world.connector.calls()[0].deadline,
        Duration::from_millis(500)
    );
    let late = one(&executor, &world, hold("e", "k2")).await;
    assert_eq!(words(&late), "ALLOW false failed");
    assert!(late.error.expect("why").starts_with("nothing was sent"));
    assert_eq!(effects(&world), ["k1"]);
    assert_eq!(phase(&world, "k2").await, Some(Phase::Failed));
    assert!(
        one(&executor, &world, hold("e", "k2")).await.ok,
        "the key was left free"
    );
    assert_eq!(world.connector.calls()[1].deadline, Duration::from_secs(2));
}

/// Rules 4.6 and 4.12: what a connector does before it sends takes time. Asked right before that,
/// the permit refuses once the deadline or the lease has passed, or the executor was stopped; then
/// nothing is sent and the key is free.
#[tokio::test]
async fn a_connector_that_was_slow_to_get_ready_may_not_send() {
    let lease_over = "nothing was sent: the lease ran out before the call was sent";
    let too_late = "nothing was sent: the call's deadline passed before it was sent";
    for (passes, refusal) in [
        (Duration::from_millis(1_999), None),
        (Duration::from_secs(2), Some(too_late)),
        // A tenth of the lease of 30 s has to be left.
        (Duration::from_secs(27), Some(lease_over)),
    ] {
        let world = memory().world;
        let executor = Arc::new(world.start().await);
        world.connector.then([Act::WaitThenAsk]);
        let slow = begin(&executor, &world, hold("e", "k")).await;
        crate::support::until("the call was made", || !world.connector.calls().is_empty()).await;
        world.clock.advance(passes);
        world.connector.gate.add_permits(1);
        let result = slow.await.expect("joins").expect("a result");
        assert_eq!(result.error.as_deref(), refusal, "after {passes:?}");
        assert_eq!(effects(&world).len(), usize::from(refusal.is_none()));
        let wanted = refusal.map_or(Phase::Applied, |_| Phase::Failed);
        assert_eq!(phase(&world, "k").await, Some(wanted), "after {passes:?}");
    }
}

async fn says_not_applied(world: &World, name: &str) -> ResolveAnswer {
    let resolution = Resolution {
        key: key(name),
        generation: 1,
        attempt: 1,
        verdict: Verdict::NotApplied,
        by: Resolver::Person("jenny".into()),
        note: None,
        receipt_id: "rc_wrong".into(),
        result_digest: None,
        at: now(world),
    };
    world
        .store
        .resolve(&tenant(), resolution)
        .await
        .expect("an answer")
}

/// Rule 4.10: a person was wrong about an attempt that was still out; both took effect, and that is
/// recorded and raised.
#[tokio::test]
async fn two_applied_attempts_of_one_key_are_raised() {
    for (tool, is_raised) in [("orders.hold", true), ("orders.refund", false)] {
        let world = memory().world;
        let frozen = Arc::new(world.start().await);
        let act = action(tool, "e", "k", json!({}));
        let first = held_inside(&frozen, &world, act.clone()).await;
        world.clock.advance(Duration::from_secs(31));
        bury_the_lifeless(&world).await;
        let answer = says_not_applied(&world, "k").await;
        assert_eq!(answer, ResolveAnswer::Resolved(Phase::Failed));
        let other = neighbour(&world).start().await;
        assert!(one(&other, &world, act.clone()).await.ok);
        world.connector.gate.add_permits(1);
        let late = first.await.expect("joins").expect("a result");
        assert!(late.ok, "it did happen");
        assert_eq!(effects(&world), ["k", "k"]);
        let left = receipts(&world).await;
        let raised = left.iter().filter(|receipt| {
            let note = receipt.note.as_deref().unwrap_or("");
            note.starts_with("double_applied")
        });
        assert_eq!(raised.count() == 1, is_raised, "{tool}");
        assert_eq!(words(&one(&other, &world, act).await), "DEDUP true -");
    }
}

/// Rules 4.9 and 5.1: the resend's own outcome is unknown while a late answer tells that the first
/// attempt took effect: the key is burned, and result and receipt say the same.
#[tokio::test]
async fn a_late_answer_during_a_resend_burns_the_key_whatever_becomes_of_the_resend() {
    for act in [Act::Unknown, Act::Refuse] {
        let world = memory().world;
        let frozen = Arc::new(world.start().await);
        let first = held_inside(&frozen, &world, tag("k")).await;
        world.clock.advance(Duration::from_secs(31));
        let mut there = neighbour(&world);
        let store = faulty(&mut there);
        let other = Arc::new(there.start().await);
        // The resend is claimed, and sent only after the first attempt has told its end.
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        store.next(Op::Claim, [Fault::Hold(Arc::clone(&gate))]);
        world.connector.then([act]);
        let resend = begin(&other, &there, tag("k")).await;
        let_others_run().await;
        world.connector.gate.add_permits(1);
        let told = first.await.expect("joins").expect("a result");
        assert!(told.ok);
        gate.add_permits(1);
        let second = resend.await.expect("joins").expect("a result");
        assert_eq!(second.attempt, 2);
        assert!(!second.ok);
        assert_eq!(phase(&world, "k").await, Some(Phase::Applied));
        let receipts = proposals(&world).await;
        let receipt = receipts
            .iter()
            .find(|receipt| receipt.receipt_id == second.receipt_id)
            .expect("its receipt");
        assert_eq!(receipt.reason, second.reason, "result and receipt differ");
        assert_eq!(words(&one(&other, &world, tag("k")).await), "DEDUP true -");
        let mut corrections = self::receipts(&world).await;
        corrections.retain(|receipt| receipt.kind == ReceiptKind::Correction);
        assert_eq!(corrections.len(), 1);
    }
}
