//! Section 2, first half: one at a time per entity, in arrival order, whoever is in the queue.

use std::sync::Arc;

use operators_kernel::{DeterministicExecutor, Disposition, PlannedAction};
use operators_tests::fakes::Act;
use operators_tests::fixtures::{World, action, hold};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::{
    Home, at_rest, begin, each_store, effects, held_inside, let_others_run, memory, neighbour, one,
    proposals, until, words,
};

async fn results_of<E: std::fmt::Debug>(
    callers: Vec<JoinHandle<Result<operators_kernel::ActionResult, E>>>,
) -> Vec<operators_kernel::ActionResult> {
    let mut results = Vec::with_capacity(callers.len());
    for caller in callers {
        results.push(caller.await.expect("joins").expect("a result"));
    }
    results
}

fn counted(results: &[operators_kernel::ActionResult], wanted: &str) -> usize {
    results
        .iter()
        .filter(|result| words(result) == wanted)
        .count()
}

async fn executors(world: &World, count: usize) -> Vec<Arc<DeterministicExecutor>> {
    let mut started = Vec::new();
    for _ in 0..count {
        started.push(Arc::new(neighbour(world).start().await));
    }
    started
}

/// Rule 3.8: the incident this kernel is named after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_657_sends_once() {
    for Home { world, name, .. } in &each_store() {
        let executor = Arc::new(world.start().await);
        let mut callers = Vec::new();
        for _ in 0..657 {
            let (executor, run) = (Arc::clone(&executor), world.run());
            callers.push(tokio::spawn(async move {
                executor
                    .run_action(&run, hold("customer", "customer:message"))
                    .await
            }));
        }
        let results = results_of(callers).await;
        assert_eq!(counted(&results, "ALLOW true -"), 1, "{name}");
        assert_eq!(counted(&results, "DEDUP true -"), 656, "{name}");
        assert_eq!(effects(world), ["customer:message"], "{name}");
        assert_eq!(world.connector.calls().len(), 1, "{name}");
        assert_eq!(executor.entities_in_flight(), 0, "{name}");
        let receipts = proposals(world).await;
        assert_eq!(receipts.len(), 657, "{name}");
        let applied = receipts
            .iter()
            .find(|receipt| receipt.original_receipt_id.is_none());
        let original = &applied.expect("the one").receipt_id;
        let citing = receipts
            .iter()
            .filter(|receipt| receipt.original_receipt_id.as_ref() == Some(original));
        assert_eq!(citing.count(), 656, "{name}");
    }
}

/// Rule 3.8, from several executors on one store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_from_three_executors_sends_once() {
    for Home { world, name, .. } in &each_store() {
        let three = executors(world, 3).await;
        let mut callers = Vec::new();
        for n in 0..90 {
            let (executor, run) = (Arc::clone(&three[n % 3]), world.run());
            callers.push(tokio::spawn(async move {
                executor
                    .run_action(&run, hold("customer", "customer:message"))
                    .await
            }));
        }
        let results = results_of(callers).await;
        assert_eq!(counted(&results, "ALLOW true -"), 1, "{name}");
        assert_eq!(counted(&results, "DEDUP true -"), 89, "{name}");
        assert_eq!(effects(world), ["customer:message"], "{name}");
        assert_eq!(proposals(world).await.len(), 90, "{name}");
    }
}

/// Rules 2.1 and 3.3: "await the one before, then proceed" lets nine through at once here; each
/// arrival waits on the tail, so it cannot.
#[tokio::test]
async fn ten_callers_whose_first_fails_apply_once_and_never_two_at_once() {
    for count in [1, 2] {
        for Home { world, name, .. } in &each_store() {
            let executors = executors(world, count).await;
            world.connector.then([Act::Refuse]);
            let mut callers = Vec::new();
            for n in 0..10 {
                callers.push(begin(&executors[n % count], world, hold("e", "k")).await);
            }
            let results = results_of(callers).await;
            assert_eq!(counted(&results, "ALLOW false failed"), 1, "{name}");
            assert_eq!(counted(&results, "ALLOW true -"), 1, "{name}");
            assert_eq!(counted(&results, "DEDUP true -"), 8, "{name}");
            assert_eq!(world.connector.most_at_once(), 1, "{name}");
            assert_eq!(world.connector.calls().len(), 2, "{name}");
            if count == 1 {
                assert_eq!(words(&results[0]), "ALLOW false failed", "{name}");
                assert_eq!(words(&results[1]), "ALLOW true -", "{name}");
            }
            for executor in &executors {
                assert_eq!(executor.entities_in_flight(), 0, "{name}");
            }
        }
    }
}

/// Rules 2.1 and 2.2: effects come in the order of the calls.
#[tokio::test]
async fn ten_keys_on_one_entity_run_one_at_a_time_in_arrival_order() {
    for Home { world, name, .. } in &each_store() {
        let executor = Arc::new(world.start().await);
        let mut callers = Vec::new();
        for n in 0..10 {
            callers.push(begin(&executor, world, hold("e", &format!("k{n}"))).await);
        }
        assert!(executor.entities_in_flight() <= 1);
        let results = results_of(callers).await;
        assert_eq!(counted(&results, "ALLOW true -"), 10, "{name}");
        let wanted: Vec<_> = (0..10).map(|n| format!("k{n}")).collect();
        assert_eq!(effects(world), wanted, "{name}");
        assert_eq!(world.connector.most_at_once(), 1, "{name}");
    }
}

/// Rule 2.2: between executors, in the order in which they reached the store.
#[tokio::test]
async fn executors_on_one_store_take_turns_in_the_order_they_reached_it() {
    let world = memory().world;
    let five = executors(&world, 5).await;
    let first = held_inside(&five[0], &world, hold("e", "k0")).await;
    let mut callers = vec![first];
    for (n, executor) in five.iter().enumerate().skip(1) {
        callers.push(begin(executor, &world, hold("e", &format!("k{n}"))).await);
        // Its claim is at the store before the next one calls.
        let_others_run().await;
    }
    world.connector.gate.add_permits(1);
    let results = results_of(callers).await;
    assert_eq!(counted(&results, "ALLOW true -"), 5);
    assert_eq!(effects(&world), ["k0", "k1", "k2", "k3", "k4"]);
    assert_eq!(world.connector.most_at_once(), 1);
}

/// Rules 2.1 and 3.1: a hold and its release share the entity and not the key.
#[tokio::test]
async fn hold_and_release_never_overlap_and_both_apply() {
    for Home { world, name, .. } in &each_store() {
        let two = executors(world, 2).await;
        let release = |n: usize| action("orders.release", "e", &format!("release{n}"), json!({}));
        let mut callers = Vec::new();
        for n in 0..5 {
            callers.push(begin(&two[n % 2], world, hold("e", &format!("hold{n}"))).await);
            callers.push(begin(&two[(n + 1) % 2], world, release(n)).await);
        }
        let results = results_of(callers).await;
        assert_eq!(counted(&results, "ALLOW true -"), 10, "{name}");
        assert_eq!(world.connector.most_at_once(), 1, "{name}");
        assert_eq!(effects(world).len(), 10, "{name}");
    }
}

/// Rule 2.3: two calls on two entities are inside at the same moment.
#[tokio::test]
async fn different_entities_do_not_wait_for_each_other() {
    for Home { world, .. } in &each_store() {
        let executor = Arc::new(world.start().await);
        let mut callers = Vec::new();
        for n in 0..8 {
            callers.push(
                held_inside(&executor, world, hold(&format!("e{n}"), &format!("k{n}"))).await,
            );
        }
        assert_eq!(world.connector.most_at_once(), 8);
        assert_eq!(executor.entities_in_flight(), 8);
        world.connector.gate.add_permits(8);
        assert_eq!(counted(&results_of(callers).await, "ALLOW true -"), 8);
        assert_eq!(executor.entities_in_flight(), 0);
    }
}

/// Rule 2.1: the same entity of two tenants is two entities.
#[tokio::test]
async fn two_tenants_do_not_wait_for_each_other() {
    let world = memory().world;
    let executor = Arc::new(world.start().await);
    let ours = held_inside(&executor, &world, hold("e", "k")).await;
    let mut run = world.run();
    run.tenant = operators_tests::fixtures::tenant_named("other");
    let theirs = executor
        .run_action(&run, hold("e", "k"))
        .await
        .expect("a result");
    assert_eq!(words(&theirs), "ALLOW true -");
    world.connector.gate.add_permits(1);
    assert!(ours.await.expect("joins").expect("a result").ok);
}

fn read(entity: &str) -> PlannedAction {
    action("orders.get", entity, "read", json!({}))
}

/// Rule 2.4: a read waits for what came before it, and what comes after it does not wait.
#[tokio::test]
async fn a_read_waits_for_those_before_and_holds_up_nobody() {
    for Home { world, name, .. } in &each_store() {
        let executor = Arc::new(world.start().await);
        let before = held_inside(&executor, world, hold("e", "before")).await;
        world.connector.then([Act::Wait]);
        let reader = begin(&executor, world, read("e")).await;
        let_others_run().await;
        assert_eq!(
            world.connector.calls().len(),
            1,
            "{name}: the read did not wait"
        );
        world.connector.gate.add_permits(1);
        assert!(before.await.expect("joins").expect("a result").ok);
        until("the read is inside", || world.connector.calls().len() == 2).await;
        // The read is still being answered.
        let after = one(&executor, world, hold("e", "after")).await;
        assert_eq!(words(&after), "ALLOW true -", "{name}");
        assert!(!reader.is_finished(), "{name}");
        world.connector.gate.add_permits(1);
        let result = reader.await.expect("joins").expect("a result");
        assert_eq!(result.decision, Disposition::Allow);
        at_rest(&executor).await;
    }
}

/// Rule 2.4, between executors: a read waits for another process's effect too.
#[tokio::test]
async fn a_read_waits_for_another_executors_effect() {
    for Home { world, name, .. } in &each_store() {
        let two = executors(world, 2).await;
        let before = held_inside(&two[0], world, hold("e", "before")).await;
        let reader = begin(&two[1], world, read("e")).await;
        for _ in 0..30 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        assert_eq!(
            world.connector.calls().len(),
            1,
            "{name}: the read did not wait"
        );
        world.connector.gate.add_permits(1);
        assert!(before.await.expect("joins").expect("a result").ok);
        assert!(reader.await.expect("joins").expect("a result").ok);
        assert!(one(&two[0], world, hold("e", "after")).await.ok);
    }
}

/// Rule 2.5: reads behind another process wait in the store's queue, and are counted there too.
#[tokio::test]
async fn one_read_too_many_behind_another_process_is_refused_as_overloaded() {
    let mut world = memory().world;
    world.settings.waiters_max = 2;
    let other = Arc::new(neighbour(&world).start().await);
    let executor = Arc::new(world.start().await);
    let read = |name: &str| action("orders.get", "e", name, json!({}));
    let held = held_inside(&other, &world, hold("e", "k")).await;
    let first = begin(&executor, &world, read("r1")).await;
    let second = begin(&executor, &world, read("r2")).await;
    let_others_run().await;
    for name in ["r3", "r4"] {
        let refused = one(&executor, &world, read(name)).await;
        assert_eq!(words(&refused), "BLOCK false overloaded");
    }
    world.connector.gate.add_permits(3);
    held.await.expect("joins").expect("a result");
    for waited in [first, second] {
        let waited = waited.await.expect("joins").expect("a result");
        assert_eq!(words(&waited), "ALLOW true -");
    }
    assert_eq!(
        words(&one(&executor, &world, read("r5")).await),
        "ALLOW true -"
    );
}

/// Rule 2.5: the bound is exact, the refusal has a receipt, and those admitted keep their order.
#[tokio::test]
async fn one_waiter_too_many_is_refused_as_overloaded() {
    let mut world = memory().world;
    world.settings.waiters_max = 3;
    let executor = Arc::new(world.start().await);
    let mut callers = vec![held_inside(&executor, &world, hold("e", "k0")).await];
    for n in 1..=2 {
        callers.push(begin(&executor, &world, hold("e", &format!("k{n}"))).await);
    }
    callers.push(begin(&executor, &world, read("e")).await);
    for refused in [hold("e", "k4"), read("e")] {
        let result = one(&executor, &world, refused).await;
        assert_eq!(words(&result), "BLOCK false overloaded");
        assert_eq!(result.attempt, 0);
        let receipt = proposals(&world).await.pop().expect("a receipt");
        assert_eq!(receipt.receipt_id, result.receipt_id);
        assert_eq!(receipt.reason, Some(operators_kernel::Reason::Overloaded));
        assert_eq!(receipt.decision, Some(Disposition::Block));
        assert_eq!(receipt.rule, None);
    }
    assert!(one(&executor, &world, hold("other", "k5")).await.ok);
    world.connector.gate.add_permits(1);
    assert_eq!(counted(&results_of(callers).await, "ALLOW true -"), 4);
    assert!(
        one(&executor, &world, hold("e", "k4")).await.ok,
        "free again"
    );
    let acted: Vec<_> = effects(&world)
        .into_iter()
        .filter(|key| key != "read")
        .collect();
    assert_eq!(acted, ["k5", "k0", "k1", "k2", "k4"]);
    assert_eq!(executor.entities_in_flight(), 0);
}

/// Rule 2.6: a thousand entities come and go, and the map is empty.
#[tokio::test]
async fn the_map_is_empty_at_rest_whatever_the_connector_did() {
    let world = memory().world;
    let executor = Arc::new(world.start().await);
    let acts = [Act::Apply, Act::Refuse, Act::Unknown, Act::ApplyThenPanic];
    world.connector.then(acts.into_iter().cycle().take(1_000));
    let mut callers = Vec::new();
    for n in 0..1_000 {
        callers.push(begin(&executor, &world, hold(&format!("e{n}"), &format!("k{n}"))).await);
    }
    let results = results_of(callers).await;
    assert_eq!(counted(&results, "ALLOW true -"), 250);
    assert_eq!(counted(&results, "ALLOW false failed"), 250);
    assert_eq!(counted(&results, "ALLOW false in_doubt"), 500);
    assert_eq!(executor.entities_in_flight(), 0);
    assert_eq!(proposals(&world).await.len(), 1_000);
}
