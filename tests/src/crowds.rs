//! Callers that wait at a store by the hundred and leave all at once, on any store.

use std::sync::Arc;
use std::time::Duration;

use operators_kernel::{DeterministicExecutor, DurableExec, PlannedAction, Settings};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::fakes::{Act, FaultyExec, TestClock};
use crate::fixtures::{World, action, hold};

/// No place in a queue outlasts its caller for longer.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(30);

/// Waits until something is so. The bound is for a test that would hang otherwise.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..30_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("never so: {what}");
}

fn begin(
    executor: &Arc<DeterministicExecutor>,
    world: &World,
    action: PlannedAction,
) -> JoinHandle<()> {
    let (executor, run) = (Arc::clone(executor), world.run());
    tokio::spawn(async move { drop(executor.run_action(&run, action).await) })
}

/// One executor holds `entities` of them; as many callers of another wait behind it at the store, one
/// in ten of them with a read, and leave right before their turns come. Panics if any of them is sent,
/// leaves a receipt of a call, or keeps its place.
pub async fn leave_while_waiting(
    one: Arc<dyn DurableExec>,
    other: Arc<dyn DurableExec>,
    entities: usize,
) {
    let holder = World::on(one, Arc::new(TestClock::default()));
    let counted = Arc::new(FaultyExec::new(other));
    let mut waiter = World {
        store: Arc::clone(&counted) as Arc<dyn DurableExec>,
        ..holder.clone()
    };
    waiter.settings = Settings {
        node: "neighbour".to_owned(),
        ..holder.settings.clone()
    };
    let (held_by, executor) = (Arc::new(holder.start().await), waiter.start().await);
    let executor = Arc::new(executor);
    holder.connector.then(vec![Act::Wait; entities]);
    let first: Vec<_> = (0..entities)
        .map(|n| begin(&held_by, &holder, hold(&format!("e{n}"), &format!("k{n}"))))
        .collect();
    let inside = || holder.connector.calls().len() == entities;
    until("every entity is held", inside).await;
    let leavers: Vec<_> = (0..entities)
        .map(|n| {
            let (entity, key) = (format!("e{n}"), format!("left{n}"));
            let waiting = match n % 10 {
                0 => action("orders.get", &entity, &key, json!({})),
                _ => hold(&entity, &key),
            };
            begin(&executor, &waiter, waiting)
        })
        .collect();
    let waiting = || counted.waited_on() == entities;
    until("all of them wait at the store", waiting).await;
    for leaver in &leavers {
        leaver.abort();
    }
    for leaver in leavers {
        assert!(leaver.await.expect_err("left").is_cancelled());
    }
    holder.connector.gate.add_permits(entities);
    for held in first {
        held.await.expect("joins");
    }
    let sent = || {
        let calls = holder.connector.calls();
        let left = |key: &str| key.starts_with("left");
        calls
            .iter()
            .filter(|call| left(call.idempotency_key.as_str()))
            .count()
    };
    until("at rest", || executor.entities_in_flight() == 0).await;
    assert_eq!(sent(), 0, "of {entities} that had left");
    // Their places are gone: what comes behind them on each entity has its turn.
    for n in 0..entities {
        let run = holder.run();
        let next = held_by.run_action(&run, hold(&format!("e{n}"), &format!("next{n}")));
        let next = tokio::time::timeout(GIVEN_BACK_WITHIN, next).await;
        let next = next.expect("the place is given back").expect("a result");
        assert!(next.ok, "{next:?}");
    }
    assert_eq!(sent(), 0, "of {entities} that had left");
    assert_eq!(holder.connector.calls().len(), 2 * entities);
}
