//! Section 2, second half: callers who leave, before their turn and after it.

use std::sync::Arc;
use std::time::Duration;

use operators_kernel::life::Phase;
use operators_tests::crowds::leave_while_waiting;
use operators_tests::fakes::{Act, Fault, Op};
use operators_tests::fixtures::{action, hold};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::support::{
    Home, at_rest, begin, each_store, effects, faulty, held_inside, let_others_run, memory,
    neighbour, one, phase, proposals, receipts, until, words,
};

/// Rule 2.7: leavers at every place of the queue; nobody is let past those before, nothing of
/// theirs is sent, and they leave no receipt, for nothing was begun.
#[tokio::test]
async fn who_leaves_the_queue_of_the_process_sends_nothing_and_lets_nobody_past() {
    for leavers in [
        vec![1],
        vec![3],
        vec![1, 2],
        vec![2, 3],
        vec![1, 3],
        vec![1, 2, 3],
    ] {
        let world = memory().world;
        let executor = Arc::new(world.start().await);
        let first = held_inside(&executor, &world, hold("e", "k0")).await;
        let mut callers = Vec::new();
        for n in 1..=3 {
            callers.push((
                n,
                begin(&executor, &world, hold("e", &format!("k{n}"))).await,
            ));
        }
        let_others_run().await;
        for (n, caller) in &callers {
            if leavers.contains(n) {
                caller.abort();
            }
        }
        let_others_run().await;
        // One more arrives after they left: it must still wait for the first.
        callers.push((4, begin(&executor, &world, hold("e", "k4")).await));
        let_others_run().await;
        assert_eq!(
            world.connector.calls().len(),
            1,
            "{leavers:?}: somebody was let past"
        );
        world.connector.gate.add_permits(1);
        assert!(first.await.expect("joins").expect("a result").ok);
        let mut wanted = vec!["k0".to_owned()];
        for (n, caller) in callers {
            if leavers.contains(&n) {
                assert!(caller.await.expect_err("left").is_cancelled());
                continue;
            }
            assert!(caller.await.expect("joins").expect("a result").ok, "{n}");
            wanted.push(format!("k{n}"));
        }
        assert_eq!(effects(&world), wanted, "{leavers:?}");
        assert_eq!(world.connector.most_at_once(), 1);
        assert_eq!(proposals(&world).await.len(), wanted.len());
        assert_eq!(executor.entities_in_flight(), 0, "{leavers:?}");
    }
}

/// Rule 2.7: everybody leaves; the map is empty all the same.
#[tokio::test]
async fn when_all_who_wait_leave_nothing_is_left() {
    let world = memory().world;
    let executor = Arc::new(world.start().await);
    let first = held_inside(&executor, &world, hold("e", "k0")).await;
    let mut callers = Vec::new();
    for n in 1..=20 {
        callers.push(begin(&executor, &world, hold("e", &format!("k{n}"))).await);
        callers.push(begin(&executor, &world, action("orders.get", "e", "r", json!({}))).await);
    }
    let_others_run().await;
    for caller in callers.iter().rev() {
        caller.abort();
    }
    let_others_run().await;
    world.connector.gate.add_permits(1);
    assert!(first.await.expect("joins").expect("a result").ok);
    assert_eq!(executor.entities_in_flight(), 0);
    assert_eq!(effects(&world), ["k0"]);
    assert!(one(&executor, &world, hold("e", "k1")).await.ok);
}

/// Rule 2.7: the entity is held by another executor, so the leaver waits at the store. Its place
/// is given back, nothing is sent, and those behind go on in order.
#[tokio::test]
async fn who_leaves_the_queue_of_the_store_gives_its_place_back() {
    for Home { world, name, .. } in &each_store() {
        let other = Arc::new(neighbour(world).start().await);
        let first = held_inside(&other, world, hold("e", "k0")).await;
        let mut here = neighbour(world);
        let store = faulty(&mut here);
        let executor = Arc::new(here.start().await);
        for (n, waiting) in [
            hold("e", "left"),
            action("orders.get", "e", "left", json!({})),
        ]
        .into_iter()
        .enumerate()
        {
            let leaver = begin(&executor, &here, waiting).await;
            let asked = || store.count(Op::Claim) + store.count(Op::Pass);
            let before = asked();
            until("it waits at the store", || asked() > before + 1).await;
            leaver.abort();
            until("the place is given back", || {
                store.count(Op::Leave) == n + 1
            })
            .await;
            at_rest(&executor).await;
        }
        // Behind the leaver, one here and one there.
        let second = begin(&executor, &here, hold("e", "k1")).await;
        let before = store.count(Op::Claim);
        until("it waits at the store", || store.count(Op::Claim) > before).await;
        let third = begin(&other, world, hold("e", "k2")).await;
        assert_eq!(
            world.connector.calls().len(),
            1,
            "{name}: somebody was let past"
        );
        world.connector.gate.add_permits(1);
        for caller in [first, second, third] {
            assert!(caller.await.expect("joins").expect("a result").ok, "{name}");
        }
        assert_eq!(effects(world), ["k0", "k1", "k2"], "{name}");
        assert_eq!(phase(world, "left").await, None, "{name}");
        assert_eq!(proposals(world).await.len(), 3, "{name}");
    }
}

/// Rule 2.7: hundreds of callers wait at the store behind another executor, and leave just before
/// their turns come, all at once. None of them is sent, no read either, and all of their places are
/// given back.
#[tokio::test]
async fn callers_that_leave_while_they_wait_at_the_store_send_nothing() {
    for Home { world, .. } in each_store() {
        let store = || Arc::clone(&world.store);
        leave_while_waiting(store(), store(), 200).await;
    }
}

/// Rule 2.7: the caller leaves while the claim that follows its wait is at the store, which grants it.
/// The grant is given back, with a receipt that says so (rule 5.1), and its key is free.
#[tokio::test]
async fn a_grant_that_finds_its_waiting_caller_gone_is_given_back() {
    for Home { world, name, .. } in &each_store() {
        let other = Arc::new(neighbour(world).start().await);
        let first = held_inside(&other, world, hold("e", "k0")).await;
        let mut here = neighbour(world);
        let store = faulty(&mut here);
        let executor = Arc::new(here.start().await);
        let leaver = begin(&executor, &here, hold("e", "left")).await;
        until("it waits at the store", || store.count(Op::Claim) > 1).await;
        let hold_claims = |gate: &Arc<Semaphore>| {
            let gate = Arc::clone(gate);
            store.by_chance(move |op| match op {
                Op::Claim => Fault::Hold(Arc::clone(&gate)),
                _ => Fault::None,
            });
        };
        // The answer that it has to wait is held back, so that it asks again when its turn has come.
        let (told_to_wait, granted) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        hold_claims(&told_to_wait);
        let before = store.count(Op::Claim);
        until("its claim is held", || store.count(Op::Claim) > before).await;
        hold_claims(&granted);
        world.connector.gate.add_permits(1);
        assert!(first.await.expect("joins").expect("a result").ok);
        told_to_wait.add_permits(1);
        for _ in 0..2_000 {
            if phase(world, "left").await == Some(Phase::Intent) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(phase(world, "left").await, Some(Phase::Intent), "{name}");
        leaver.abort();
        assert!(leaver.await.expect_err("left").is_cancelled());
        granted.add_permits(1_000);
        at_rest(&executor).await;
        assert_eq!(effects(world), ["k0"], "{name}");
        assert_eq!(phase(world, "left").await, Some(Phase::Failed), "{name}");
        let left = proposals(world).await.pop().expect("a receipt");
        assert_eq!(
            left.error.as_deref(),
            Some("nothing was sent: its caller left before its turn came"),
            "{name}"
        );
        assert!(one(&executor, &here, hold("e", "left")).await.ok, "{name}");
    }
}

/// Rules 2.7 and 8.2: the store fails while the place is given back; a place left there would hold
/// up everybody behind it for as long as its owner lives.
#[tokio::test(start_paused = true)]
async fn a_place_is_given_back_even_if_the_store_fails_meanwhile() {
    let world = memory().world;
    let other = Arc::new(neighbour(&world).start().await);
    let first = held_inside(&other, &world, hold("e", "k0")).await;
    let mut here = neighbour(&world);
    let store = faulty(&mut here);
    let executor = Arc::new(here.start().await);
    let leaver = begin(&executor, &here, hold("e", "left")).await;
    until("it waits at the store", || store.count(Op::Claim) > 1).await;
    store.next(Op::Leave, [Fault::Before, Fault::Before]);
    leaver.abort();
    until("the place is given back", || store.count(Op::Leave) == 3).await;
    world.connector.gate.add_permits(1);
    assert!(first.await.expect("joins").expect("a result").ok);
    let next = tokio::time::timeout(Duration::from_mins(1), one(&other, &world, hold("e", "k1")));
    assert!(next.await.expect("not held up").ok);
    assert_eq!(effects(&world), ["k0", "k1"]);
}

/// Rule 2.8: a caller who leaves mid-invoke stops nothing.
#[tokio::test]
async fn who_leaves_mid_invoke_leaves_the_work_going_on_to_its_receipt() {
    for Home { world, name, .. } in &each_store() {
        let executor = Arc::new(world.start().await);
        let caller = held_inside(&executor, world, hold("e", "k")).await;
        caller.abort();
        assert!(caller.await.expect_err("left").is_cancelled());
        assert_eq!(phase(world, "k").await, Some(Phase::Intent), "{name}");
        let behind = begin(&executor, world, hold("e", "k")).await;
        let_others_run().await;
        assert!(
            !behind.is_finished(),
            "{name}: the turn was given up with the caller"
        );
        world.connector.gate.add_permits(1);
        let behind = behind.await.expect("joins").expect("a result");
        assert_eq!(words(&behind), "DEDUP true -", "{name}");
        assert_eq!(effects(world), ["k"], "{name}");
        let receipts = receipts(world).await;
        assert_eq!(receipts.len(), 2, "{name}");
        assert!(receipts[0].ok && receipts[0].original_receipt_id.is_none());
        assert_eq!(executor.entities_in_flight(), 0);
    }
}

/// Rule 2.8: every caller leaves, and nobody polls anything: the effect still ends.
#[tokio::test]
async fn an_effect_whose_callers_all_left_still_completes() {
    let world = memory().world;
    let executor = Arc::new(world.start().await);
    let first = held_inside(&executor, &world, hold("e", "k")).await;
    let second = begin(&executor, &world, hold("e", "k")).await;
    first.abort();
    second.abort();
    world.connector.gate.add_permits(1);
    at_rest(&executor).await;
    assert_eq!(phase(&world, "k").await, Some(Phase::Applied));
    assert_eq!(proposals(&world).await.len(), 1);
}

/// Rule 2.8: the executor itself is dropped mid-invoke; the work it owns goes on, and so do its
/// signs of life until then, so that nobody takes it for dead.
#[tokio::test(start_paused = true)]
async fn dropping_the_executor_mid_invoke_leaves_the_work_alive() {
    let mut world = memory().world;
    world.settings.lease = Duration::from_millis(1_500);
    let store = faulty(&mut world);
    let executor = Arc::new(world.start().await);
    let caller = held_inside(&executor, &world, hold("e", "k")).await;
    caller.abort();
    assert!(caller.await.expect_err("left").is_cancelled());
    drop(Arc::try_unwrap(executor).expect("the last handle"));
    let beats = store.count(Op::Heartbeat);
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert!(
        store.count(Op::Heartbeat) > beats,
        "no sign of life while a call is out"
    );
    world.connector.gate.add_permits(1);
    until("settled", || store.count(Op::Settle) == 1).await;
    assert_eq!(phase(&world, "k").await, Some(Phase::Applied));
    let beats = store.count(Op::Heartbeat);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(
        store.count(Op::Heartbeat) <= beats + 1,
        "signs of life of nobody"
    );
}

/// Rules 2.6 and 4.1: a connector that panics frees the turn, and those behind go on.
#[tokio::test]
async fn a_panic_in_the_connector_frees_the_turn() {
    let world = memory().world;
    let executor = Arc::new(world.start().await);
    world.connector.then([Act::ApplyThenPanic]);
    let first = begin(&executor, &world, hold("e", "k")).await;
    let second = begin(&executor, &world, hold("e", "k")).await;
    let third = begin(&executor, &world, hold("e", "other")).await;
    let first = first.await.expect("joins").expect("a result");
    assert_eq!(words(&first), "ALLOW false in_doubt");
    assert_eq!(first.error.as_deref(), Some("the connector panicked"));
    let second = second.await.expect("joins").expect("a result");
    assert_eq!(words(&second), "BLOCK false in_doubt");
    let third = third.await.expect("joins").expect("a result");
    assert_eq!(words(&third), "BLOCK false entity_in_doubt");
    assert_eq!(effects(&world), ["k"]);
    assert_eq!(executor.entities_in_flight(), 0);
    assert!(
        one(&executor, &world, hold("elsewhere", "k2")).await.ok,
        "the process lives"
    );
}
