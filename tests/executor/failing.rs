//! Section 8: a store that fails, before the work or after it, for a while or for good.

use std::sync::Arc;
use std::time::Duration;

use operators_kernel::life::Phase;
use operators_kernel::{DeterministicExecutor, ExecError, ReceiptOutcome, StoreError};
use operators_tests::fakes::{Act, Fault, FaultyExec, Op};
use operators_tests::fixtures::{World, action, hold, key};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::support::{
    at_rest, begin, effects, faulty, held_inside, let_others_run, memory, neighbour, one, phase,
    proposals, until, words,
};

pub async fn started() -> (World, Arc<FaultyExec>, Arc<DeterministicExecutor>) {
    let mut world = memory().world;
    world.settings.store_patience = Duration::from_secs(1);
    let store = faulty(&mut world);
    let executor = Arc::new(world.start().await);
    (world, store, executor)
}

/// Rules 8.2 and 8.3: however claim and settle fail for a while, there is one effect and one
/// receipt, and the key is burned under its first attempt.
#[tokio::test(start_paused = true)]
async fn a_store_that_recovers_costs_time_and_nothing_else() {
    let faults = [Fault::Before, Fault::After];
    for op in [Op::Claim, Op::Settle] {
        for first in &faults {
            for second in &faults {
                let (world, store, executor) = started().await;
                store.next(op, [first.clone(), second.clone()]);
                let result = one(&executor, &world, hold("e", "k")).await;
                let case = format!("{op:?} {first:?} {second:?}");
                assert_eq!(words(&result), "ALLOW true -", "{case}");
                assert_eq!(result.attempt, 1, "{case}: a second intent");
                assert_eq!(store.count(op), 3, "{case}");
                assert_eq!(effects(&world), ["k"], "{case}");
                assert_eq!(proposals(&world).await.len(), 1, "{case}");
                assert_eq!(
                    words(&one(&executor, &world, hold("e", "k")).await),
                    "DEDUP true -"
                );
                assert_eq!(executor.entities_in_flight(), 0, "{case}");
            }
        }
    }
}

/// Rule 8.3: the receipt of what ends at the store's door is written once, whether or not its
/// answer is lost.
#[tokio::test(start_paused = true)]
async fn a_duplicate_or_a_read_whose_answer_was_lost_has_one_receipt() {
    let (world, store, executor) = started().await;
    assert!(one(&executor, &world, hold("e", "k")).await.ok);
    store.next(Op::Claim, [Fault::After, Fault::After]);
    assert_eq!(
        words(&one(&executor, &world, hold("e", "k")).await),
        "DEDUP true -"
    );
    assert_eq!(proposals(&world).await.len(), 2);
    store.next(Op::Record, [Fault::After, Fault::Before]);
    assert!(
        one(&executor, &world, action("orders.get", "e", "r", json!({})))
            .await
            .ok
    );
    assert_eq!(proposals(&world).await.len(), 3);
}

/// Rule 8.2: no answer within the patience: the caller is told that nothing was sent, which is so;
/// then it is found out what became of the claim, and the entity is free.
#[tokio::test(start_paused = true)]
async fn a_claim_that_stays_lost_is_reconciled_to_a_failed_receipt() {
    for fault in [Fault::Before, Fault::After] {
        let (world, store, executor) = started().await;
        let always = fault.clone();
        store.by_chance(move |op| {
            if op == Op::Claim {
                always.clone()
            } else {
                Fault::None
            }
        });
        let error = executor.run_action(&world.run(), hold("e", "k")).await;
        let error = error.expect_err("told");
        assert!(
            matches!(error, ExecError::Store(StoreError::Unavailable { .. })),
            "{error}"
        );
        assert!(error.to_string().starts_with("nothing was sent"), "{error}");
        assert_eq!(
            executor.entities_in_flight(),
            0,
            "{fault:?}: the process's turn is free"
        );
        let behind = begin(&executor, &world, hold("e", "k2")).await;
        store.heal();
        let behind = behind.await.expect("joins").expect("a result");
        assert_eq!(
            words(&behind),
            "ALLOW true -",
            "{fault:?}: the entity is free"
        );
        until("reconciled", || store.count(Op::Settle) == 2).await;
        let_others_run().await;
        assert!(
            world
                .connector
                .calls()
                .iter()
                .all(|call| call.idempotency_key != key("k"))
        );
        assert_eq!(phase(&world, "k").await, Some(Phase::Failed), "{fault:?}");
        let receipts = proposals(&world).await;
        assert_eq!(receipts.len(), 2, "{fault:?}: one each");
        let lost = receipts
            .iter()
            .find(|receipt| receipt.idempotency_key == key("k"));
        assert_eq!(
            lost.expect("reconciled").outcome,
            Some(ReceiptOutcome::Failed)
        );
        assert!(
            one(&executor, &world, hold("e", "k")).await.ok,
            "{fault:?}: the key is free"
        );
    }
}

/// Rules 8.2 and 4.9: the claim is lost and the session dies before anybody found out. Nothing was
/// sent, and that ends the doubt which the death left.
#[tokio::test(start_paused = true)]
async fn a_lost_claim_of_a_session_that_died_is_reconciled_too() {
    let (world, store, executor) = started().await;
    store.by_chance(|op| {
        if op == Op::Claim {
            Fault::After
        } else {
            Fault::None
        }
    });
    let lost = executor.run_action(&world.run(), hold("e", "k")).await;
    lost.expect_err("told");
    world.clock.advance(world.settings.lease * 2);
    crate::support::bury_the_lifeless(&world).await;
    assert_eq!(phase(&world, "k").await, Some(Phase::InDoubt));
    store.heal();
    until("reconciled", || store.count(Op::Settle) == 1).await;
    assert_eq!(phase(&world, "k").await, Some(Phase::Failed));
    assert_eq!(proposals(&world).await.len(), 1);
    assert!(one(&executor, &world, hold("e", "k")).await.ok);
    assert_eq!(effects(&world), ["k"]);
}

/// Rule 5.1: the session dies between a claim whose answer was lost and its next try. The key has
/// one receipt that says in doubt by then; an effect under that same receipt would be told wrongly.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_session_died_meanwhile_sends_nothing_under_its_old_receipt() {
    for tool in ["orders.hold", "orders.refund"] {
        let (world, store, executor) = started().await;
        let bare = world.clone();
        let died = move || {
            bare.clock.advance(bare.settings.lease * 2);
            let mut opening = bare.store.open_session("other", Duration::from_secs(30));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(opening.as_mut().poll(&mut context).is_ready());
        };
        store.next(Op::Claim, [Fault::After, Fault::Before]);
        store.next(Op::Heartbeat, []);
        let act = action(tool, "e", "k", json!({}));
        let caller = begin(&executor, &world, act.clone()).await;
        until("asked once", || store.count(Op::Claim) == 1).await;
        died();
        let told = caller.await.expect("joins");
        at_rest(&executor).await;
        let result = one(&executor, &world, act.clone()).await;
        assert_eq!(words(&result), "ALLOW true -", "{tool}: {told:?}");
        assert_eq!(effects(&world), ["k"], "{tool}");
        // Every result is told by its receipt.
        let receipts = crate::support::receipts(&world).await;
        for result in told.into_iter().chain([result]) {
            let receipt = receipts.iter().find(|r| r.receipt_id == result.receipt_id);
            assert_eq!(receipt.expect("a receipt").ok, result.ok, "{tool}");
        }
    }
}

/// Rule 8.2: the call ended and its end cannot be recorded: the caller is told so, not that it
/// failed, and it is recorded as soon as the store is back.
#[tokio::test(start_paused = true)]
async fn a_settle_is_retried_until_it_is_recorded() {
    let (world, store, executor) = started().await;
    store.by_chance(|op| {
        if op == Op::Settle {
            Fault::Before
        } else {
            Fault::None
        }
    });
    let error = executor.run_action(&world.run(), hold("e", "k")).await;
    let error = error.expect_err("told");
    assert!(
        matches!(
            &error,
            ExecError::NotRecorded {
                outcome: "applied",
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(phase(&world, "k").await, Some(Phase::Intent));
    let behind = begin(&executor, &world, hold("e", "k")).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(
        !behind.is_finished(),
        "the turn is held until it is recorded"
    );
    store.heal();
    let behind = behind.await.expect("joins").expect("a result");
    assert_eq!(words(&behind), "DEDUP true -");
    assert_eq!(effects(&world), ["k"]);
    assert_eq!(proposals(&world).await.len(), 2);
    assert_eq!(executor.entities_in_flight(), 0);
}

/// Rule 8.2: a store that takes a call and says nothing keeps nobody waiting beyond the patience,
/// and what it grants after that is not used.
#[tokio::test(start_paused = true)]
async fn a_store_that_says_nothing_keeps_nobody_waiting() {
    let (world, store, executor) = started().await;
    let gate = Arc::new(Semaphore::new(0));
    store.next(Op::Claim, [Fault::Hold(Arc::clone(&gate))]);
    let run = world.run();
    let call = executor.run_action(&run, hold("e", "k"));
    let told = tokio::time::timeout(Duration::from_mins(1), call).await;
    let error = told.expect("within a minute").expect_err("told");
    assert!(
        matches!(error, ExecError::Store(StoreError::Unavailable { .. })),
        "{error}"
    );
    gate.add_permits(1);
    until("reconciled", || store.count(Op::Settle) == 1).await;
    at_rest(&executor).await;
    assert!(
        world.connector.calls().is_empty(),
        "sent after it was said that nothing was"
    );
    assert_eq!(phase(&world, "k").await, Some(Phase::Failed));

    store.next(Op::Settle, [Fault::Hold(Arc::clone(&gate))]);
    let call = executor.run_action(&run, hold("e", "k"));
    let told = tokio::time::timeout(Duration::from_mins(1), call).await;
    let error = told.expect("within a minute").expect_err("told");
    assert!(
        matches!(
            error,
            ExecError::NotRecorded {
                outcome: "applied",
                ..
            }
        ),
        "{error}"
    );
    gate.add_permits(1);
    at_rest(&executor).await;
    assert_eq!(
        words(&one(&executor, &world, hold("e", "k")).await),
        "DEDUP true -"
    );
    assert_eq!(proposals(&world).await.len(), 3);
}

/// Rule 8.2: a read rides out a store that fails while it waits, and leaves no place behind.
#[tokio::test(start_paused = true)]
async fn a_read_rides_out_a_store_that_fails_while_it_waits() {
    let (world, store, executor) = started().await;
    let other = Arc::new(neighbour(&world).start().await);
    let first = held_inside(&other, &world, hold("e", "k1")).await;
    store.next(Op::Pass, [Fault::None, Fault::Before, Fault::Before]);
    let read = begin(&executor, &world, action("orders.get", "e", "r", json!({}))).await;
    until("asked often", || {
        store.count(Op::Pass) >= 4 || read.is_finished()
    })
    .await;
    world.connector.gate.add_permits(1);
    assert!(first.await.expect("joins").expect("a result").ok);
    assert!(read.await.expect("joins").expect("a result").ok);
    let next = tokio::time::timeout(Duration::from_mins(1), one(&other, &world, hold("e", "k3")));
    assert!(next.await.expect("not held up").ok);
}

/// Rules 8.2 and 4.13: the store fails while a probe's finding is recorded; the claim that follows
/// sees the state as it is.
#[tokio::test(start_paused = true)]
async fn a_probe_whose_finding_could_not_be_recorded_still_ends_with_a_receipt() {
    for (fault, wanted) in [
        (Fault::Before, "BLOCK false in_doubt"),
        (Fault::After, "DEDUP true -"),
    ] {
        let (world, store, executor) = started().await;
        let note = action("orders.note", "e", "k", json!({}));
        world.connector.then([Act::ApplyThenUnknown]);
        assert!(!one(&executor, &world, note.clone()).await.ok);
        let effect = operators_kernel::Effect::of(json!({}));
        let found = operators_kernel::ProbeOutcome::Applied(effect);
        world.connector.probes_find([found.clone(), found]);
        store.next(Op::Resolve, [fault]);
        assert_eq!(words(&one(&executor, &world, note.clone()).await), wanted);
        assert_eq!(proposals(&world).await.len(), 2);
        assert_eq!(words(&one(&executor, &world, note).await), "DEDUP true -");
        assert_eq!(effects(&world), ["k"]);
    }
}
