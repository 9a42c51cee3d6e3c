//! Rules 2.6–2.8: every public async function, dropped at every poll.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use operators_kernel::life::Phase;
use operators_kernel::{DeterministicExecutor, Disposition, OnFailure, PlannedAction, forecast};
use operators_tests::fakes::{Act, Fault, FaultyExec, Op};
use operators_tests::fixtures::{World, action, hold, key, plan, tenant};
use serde_json::json;

use crate::support::{
    Home, at_rest, begin, each_store, effects, faulty, held_inside, memory, one, proposals, until,
};

/// Polls a future at most `times`, waiting for its wake-ups in between, then drops it.
async fn polled<T>(future: impl Future<Output = T>, times: usize) -> Option<T> {
    let mut future = Box::pin(future);
    let mut left = times;
    std::future::poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match Pin::new(&mut future).poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Every call of the store gives way several times, so that there are many places to be dropped at.
fn yielding(world: &mut World) -> Arc<FaultyExec> {
    let store = faulty(world);
    store.by_chance(|_| Fault::Yield(2));
    store
}

/// Runs `sweep` for 0, 1, 2, … polls until it says that the future completed.
async fn swept<F: Future<Output = bool>>(what: &str, mut sweep: impl FnMut(usize) -> F) {
    for times in 0..10_000 {
        if sweep(times).await {
            println!("{what}: complete after {times} polls");
            return;
        }
    }
    panic!("{what} never completed");
}

/// After a cut: nothing is held, the effect happened at most once, and each key's next proposal is
/// run or deduplicated, as its receipts say.
async fn is_sound(executor: &DeterministicExecutor, world: &World, keys: &[&str], what: &str) {
    at_rest(executor).await;
    let receipts = proposals(world).await;
    for name in keys {
        let of_key = receipts
            .iter()
            .filter(|receipt| receipt.idempotency_key == key(name));
        let begun = of_key
            .filter(|r| r.decision == Some(Disposition::Allow))
            .count();
        let applied = effects(world).iter().filter(|key| key == name).count();
        assert_eq!(begun, applied, "{what}: {name}: one receipt per effect");
        assert!(applied <= 1, "{what}: {name} was applied {applied} times");
        let record = world
            .store
            .key(&tenant(), &key(name))
            .await
            .expect("a look");
        let is_burned = record.is_some_and(|record| record.phase == Phase::Applied);
        assert_eq!(is_burned, applied == 1, "{what}: {name}");
    }
    for name in keys {
        let result = one(executor, world, hold("e", name)).await;
        assert!(result.ok, "{what}: {name}: {result:?}");
        assert_eq!(
            effects(world).iter().filter(|key| key == name).count(),
            1,
            "{what}"
        );
    }
    assert_eq!(executor.entities_in_flight(), 0, "{what}");
}

#[tokio::test]
async fn run_action_dropped_at_every_poll_leaves_no_held_turn() {
    for store in 0..2 {
        swept("run_action", |times| async move {
            let home = each_store().into_iter().nth(store).expect("two");
            let (mut world, name) = (home.world.clone(), home.name);
            yielding(&mut world);
            let executor = world.start().await;
            let run = world.run();
            let done = polled(executor.run_action(&run, hold("e", "k")), times).await;
            is_sound(&executor, &world, &["k"], &format!("{name} {times}")).await;
            done.is_some()
        })
        .await;
    }
}

#[tokio::test]
async fn run_and_run_watched_dropped_at_every_poll_leave_no_held_turn() {
    let keys = ["k1", "k2", "k3"];
    for watched in [false, true] {
        swept("run", |times| async move {
            let Home { mut world, .. } = memory();
            yielding(&mut world);
            let executor = world.start().await;
            let run = world.run();
            let whole = plan(keys.iter().map(|key| hold("e", key)).collect());
            let done = if watched {
                let mut watch = |_: operators_kernel::Progress<'_>| {};
                let call = executor.run_watched(&run, &whole, OnFailure::Stop, &mut watch);
                polled(call, times).await.is_some()
            } else {
                polled(executor.run(&run, &whole), times).await.is_some()
            };
            is_sound(&executor, &world, &keys, &format!("{watched} {times}")).await;
            // A plan cut short has begun its actions in order.
            assert_eq!(effects(&world), keys);
            done
        })
        .await;
    }
}

/// The first action fails, panics or is lost: wherever its caller leaves, the entity is free or
/// honestly refused.
#[tokio::test]
async fn a_call_that_ends_badly_dropped_at_every_poll_leaves_no_held_turn() {
    for act in [Act::Refuse, Act::Unknown, Act::ApplyThenPanic] {
        swept("run_action", |times| {
            let act = act.clone();
            async move {
                let Home { mut world, .. } = memory();
                yielding(&mut world);
                let executor = world.start().await;
                world.connector.then([act.clone()]);
                let run = world.run();
                let done = polled(executor.run_action(&run, hold("e", "k")), times).await;
                at_rest(&executor).await;
                let begun = proposals(&world).await.len();
                assert!(begun <= 1);
                let next = one(&executor, &world, hold("e", "next")).await;
                let is_held = begun == 1 && !matches!(act, Act::Refuse);
                // If the first never began, the script's act was played to `next`.
                let reason = next.reason.map(operators_kernel::Reason::as_str);
                match (begun, is_held) {
                    (1, true) => assert_eq!(reason, Some("entity_in_doubt"), "{times}"),
                    (1, false) => assert_eq!(reason, None, "{times}"),
                    _ => assert!(matches!(reason, Some("failed" | "in_doubt")), "{times}"),
                }
                assert_eq!(proposals(&world).await.len(), begun + 1, "{times}");
                assert_eq!(executor.entities_in_flight(), 0, "{times}");
                done.is_some()
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_read_dropped_at_every_poll_leaves_at_most_its_receipt() {
    swept("a read", |times| async move {
        let Home { mut world, .. } = memory();
        yielding(&mut world);
        let executor = world.start().await;
        let run = world.run();
        let read = action("orders.get", "e", "r", json!({}));
        let done = polled(executor.run_action(&run, read), times).await;
        until("quiet", || executor.entities_in_flight() == 0).await;
        assert!(one(&executor, &world, hold("e", "k")).await.ok);
        // The read itself may still be on its way to its receipt: it holds nobody up.
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        let reads = world.connector.calls().len() - 1;
        assert!(reads <= 1);
        assert_eq!(proposals(&world).await.len(), reads + 1, "{times}");
        done.is_some()
    })
    .await;
}

/// Dropped at every poll while others are before and behind it: those keep their order.
#[tokio::test]
async fn a_waiter_dropped_at_every_poll_lets_nobody_past() {
    for read in [false, true] {
        // It waits for ever, so there is no completion to reach: as many polls as it ever gets.
        for times in 0..8 {
            let Home { mut world, .. } = memory();
            let store = yielding(&mut world);
            let executor = Arc::new(world.start().await);
            let first = held_inside(&executor, &world, hold("e", "first")).await;
            let waiter: PlannedAction = if read {
                action("orders.get", "e", "waiter", json!({}))
            } else {
                hold("e", "waiter")
            };
            let waiting = {
                let (executor, run) = (Arc::clone(&executor), world.run());
                tokio::spawn(async move {
                    polled(executor.run_action(&run, waiter), times)
                        .await
                        .is_some()
                })
            };
            tokio::task::yield_now().await;
            let last = begin(&executor, &world, hold("e", "last")).await;
            let claims = store.count(Op::Claim);
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            assert_eq!(
                store.count(Op::Claim),
                claims,
                "{times}: somebody was let past"
            );
            world.connector.gate.add_permits(1);
            assert!(first.await.expect("joins").expect("a result").ok);
            assert!(last.await.expect("joins").expect("a result").ok);
            waiting.await.expect("joins");
            at_rest(&executor).await;
            let order: Vec<_> = effects(&world)
                .into_iter()
                .filter(|key| key != "waiter")
                .collect();
            assert_eq!(order, ["first", "last"], "{times}");
            assert_eq!(
                world.connector.most_at_once(),
                1 + usize::from(read && world.connector.most_at_once() == 2)
            );
        }
    }
}

#[tokio::test]
async fn start_and_stop_dropped_at_every_poll_leave_the_store_usable() {
    swept("start", |times| async move {
        let Home { mut world, .. } = memory();
        yielding(&mut world);
        let starting = DeterministicExecutor::start(world.seams(), world.settings.clone());
        let done = polled(starting, times).await.is_some();
        let executor = world.start().await;
        is_sound(&executor, &world, &["k"], "start").await;
        done
    })
    .await;
    swept("stop", |times| async move {
        let Home { mut world, .. } = memory();
        yielding(&mut world);
        let executor = world.start().await;
        assert!(one(&executor, &world, hold("e", "k")).await.ok);
        let done = polled(executor.stop(), times).await.is_some();
        let next = world.start().await;
        is_sound(&next, &world, &["k", "k2"], "stop").await;
        done
    })
    .await;
}

#[tokio::test]
async fn a_forecast_dropped_at_every_poll_leaves_nothing() {
    swept("forecast", |times| async move {
        let Home { mut world, .. } = memory();
        yielding(&mut world);
        let whole = plan(vec![hold("e", "k"), hold("e", "k"), hold("e", "k2")]);
        let (seams, run) = (world.seams(), world.run());
        let done = polled(forecast(&seams, &run, &whole), times)
            .await
            .is_some();
        assert!(world.connector.calls().is_empty());
        assert!(proposals(&world).await.is_empty());
        let executor = world.start().await;
        is_sound(&executor, &world, &["k", "k2"], "forecast").await;
        done
    })
    .await;
}

/// Rules 4.3 and 4.12: what an executor that stopped had only claimed is a doubt already, so it is not
/// sent any more; that nothing was sent is told late, and frees the key.
#[tokio::test]
async fn what_was_only_claimed_when_the_executor_stopped_is_not_sent() {
    let Home { mut world, .. } = memory();
    world.settings.stop_grace = std::time::Duration::ZERO;
    let bare = world.clone();
    let store = crate::support::faulty(&mut world);
    let executor = Arc::new(world.start().await);
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    store.next(Op::Claim, [Fault::Hold(Arc::clone(&gate))]);
    let caller = crate::support::begin(&executor, &world, hold("e", "k")).await;
    crate::support::let_others_run().await;
    caller.abort();
    assert!(caller.await.expect_err("left").is_cancelled());
    let executor = Arc::try_unwrap(executor).expect("the last handle");
    executor.stop().await.expect("stops");
    let phase = crate::support::phase;
    assert_eq!(phase(&bare, "k").await, Some(Phase::InDoubt));
    gate.add_permits(1);
    crate::support::let_others_run().await;
    assert!(world.connector.calls().is_empty(), "not sent");
    assert_eq!(phase(&bare, "k").await, Some(Phase::Failed));
}

/// Rule 4.12: the same for a call that its connector was still making ready: asked right before it
/// is sent, the permit refuses.
#[tokio::test]
async fn what_a_connector_made_ready_while_the_executor_stopped_is_not_sent() {
    let Home { mut world, .. } = memory();
    world.settings.stop_grace = std::time::Duration::ZERO;
    let executor = Arc::new(world.start().await);
    world.connector.then([Act::WaitThenAsk]);
    let caller = crate::support::begin(&executor, &world, hold("e", "k")).await;
    until("the call was made", || !world.connector.calls().is_empty()).await;
    caller.abort();
    assert!(caller.await.expect_err("left").is_cancelled());
    let executor = Arc::try_unwrap(executor).expect("the last handle");
    executor.stop().await.expect("stops");
    let phase = crate::support::phase;
    assert_eq!(phase(&world, "k").await, Some(Phase::InDoubt));
    let permit = world.connector.calls()[0].permit.clone();
    let refused = permit.check().expect_err("refused").message;
    assert_eq!(
        refused,
        "nothing was sent: the executor was stopped before the call was sent"
    );
    world.connector.gate.add_permits(1);
    crate::support::let_others_run().await;
    assert!(effects(&world).is_empty(), "not sent");
    assert_eq!(phase(&world, "k").await, Some(Phase::Failed));
}

/// Rule 2.6: what comes to the store after its executor has stopped ends there; it does not ask for
/// ever under a session that is over.
#[tokio::test]
async fn what_asks_after_the_executor_stopped_ends() {
    for action in [hold("e", "k"), action("orders.get", "e", "r", json!({}))] {
        let Home { mut world, .. } = memory();
        world.settings.stop_grace = std::time::Duration::ZERO;
        let store = crate::support::faulty(&mut world);
        let executor = Arc::new(world.start().await);
        let asked = || store.count(Op::Claim) + store.count(Op::Pass);
        // Asked again after a pause, in which the executor stops.
        store.next(Op::Claim, [Fault::Before]);
        store.next(Op::Pass, [Fault::Before]);
        let caller = crate::support::begin(&executor, &world, action).await;
        until("it asked", || asked() == 1).await;
        caller.abort();
        assert!(caller.await.expect_err("left").is_cancelled());
        let executor = Arc::try_unwrap(executor).expect("the last handle");
        executor.stop().await.expect("stops");
        until("it asked again", || asked() > 1).await;
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        assert!(asked() <= 3, "asked {} times", asked());
        assert!(effects(&world).is_empty(), "not sent");
    }
}

/// An executor that stops while a call is out leaves a doubt, never a free key (rule 4.3); the
/// call's own end is still accepted (rule 4.9).
#[tokio::test]
async fn stopping_while_a_call_is_out_leaves_a_doubt_that_its_end_corrects() {
    let Home { mut world, .. } = memory();
    world.settings.stop_grace = std::time::Duration::ZERO;
    let executor = Arc::new(world.start().await);
    let caller = held_inside(&executor, &world, hold("e", "k")).await;
    caller.abort();
    assert!(caller.await.expect_err("left").is_cancelled());
    let executor = Arc::try_unwrap(executor).expect("the last handle");
    executor.stop().await.expect("stops");
    let record = world.store.key(&tenant(), &key("k")).await.expect("a look");
    assert_eq!(record.expect("a key").phase, Phase::InDoubt);
    world.connector.gate.add_permits(1);
    until("applied", || effects(&world).len() == 1).await;
    let next = world.start().await;
    for _ in 0..1_000 {
        let record = world.store.key(&tenant(), &key("k")).await.expect("a look");
        if record.expect("a key").phase == Phase::Applied {
            break;
        }
        tokio::task::yield_now().await;
    }
    let again = one(&next, &world, hold("e", "k")).await;
    assert_eq!(again.decision, Disposition::Dedup);
}
