//! An executor that outlives the runtime it was started on, as one in a `static` does that several
//! `#[tokio::test]`s use.

use std::sync::Arc;
use std::time::Duration;

use operators_kernel::{
    DeterministicExecutor, DurableExec, PlannedAction, Reason, Seams, ToolContract,
};
use operators_seams::SystemClock;
use tokio::runtime::{Builder, Runtime};

use crate::fakes::{Act, TestClock};
use crate::fixtures::{World, hold, registry_with};

/// The lease of every executor here.
const LEASE: Duration = Duration::from_secs(3);

/// No caller here waits for longer: a few leases, on a machine that is busy.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);

fn runtime() -> Runtime {
    let built = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    built.expect("a runtime")
}

async fn started(world: &World) -> Arc<DeterministicExecutor> {
    let seams = Seams {
        clock: Arc::new(SystemClock::new()),
        ..world.seams()
    };
    let mut settings = world.settings.clone();
    settings.lease = LEASE;
    let started = DeterministicExecutor::start(seams, settings).await;
    Arc::new(started.expect("starts"))
}

/// A caller in a task of its own, and its reason for not being ok; panics if it has no answer in time.
fn asks(
    executor: &Arc<DeterministicExecutor>,
    world: &World,
    action: PlannedAction,
) -> impl Future<Output = Option<Reason>> + Send + use<> {
    let (executor, run) = (Arc::clone(executor), world.run());
    async move {
        let asked = executor.run_action(&run, action);
        let answer = tokio::time::timeout(ANSWERED_WITHIN, asked).await;
        answer.expect("an answer in time").expect("a result").reason
    }
}

async fn calls_out(world: &World, many: usize) {
    for _ in 0..10_000 {
        if world.connector.calls().len() == many {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{} calls are out", world.connector.calls().len());
}

/// The first runtime ends with two calls out, and one caller of the second runtime waiting behind one
/// of them. All that is asked of the executor from the second runtime is answered: what the lost calls
/// were on is in doubt, everything else goes on.
pub fn an_executor_outlives_its_runtime(store: impl Future<Output = Arc<dyn DurableExec>>) {
    let (first, second) = (runtime(), runtime());
    let mut world = World::on(first.block_on(store), Arc::new(TestClock::default()));
    world.registry = Arc::new(registry_with(&world.connector, |_, contract| {
        ToolContract {
            timeout: ANSWERED_WITHIN,
            ..contract
        }
    }));
    let executor = first.block_on(started(&world));
    world.connector.then([Act::Wait, Act::Wait]);
    for name in ["a", "b"] {
        let (executor, run) = (Arc::clone(&executor), world.run());
        first.spawn(async move { executor.run_action(&run, hold(name, name)).await });
    }
    first.block_on(calls_out(&world, 2));
    let waits = second.spawn(asks(&executor, &world, hold("a", "behind")));
    second.block_on(async { tokio::time::sleep(Duration::from_millis(50)).await });
    drop(first);
    let behind = second.block_on(waits).expect("joins");
    assert_eq!(behind, Some(Reason::EntityInDoubt));
    for (entity, key, expected) in [
        ("a", "a", Some(Reason::InDoubt)),
        ("b", "b", Some(Reason::InDoubt)),
        ("b", "other", Some(Reason::EntityInDoubt)),
        ("elsewhere", "free", None),
    ] {
        let found = second.block_on(asks(&executor, &world, hold(entity, key)));
        assert_eq!(found, expected, "`{key}` on `{entity}`");
    }
    // Its signs of life go on: past a lease, what it is asked is still its own session's.
    world.connector.then([Act::Wait]);
    let held = second.spawn(asks(&executor, &world, hold("c", "c")));
    second.block_on(calls_out(&world, 4));
    second.block_on(async { tokio::time::sleep(LEASE + LEASE / 2).await });
    world.connector.gate.add_permits(1);
    assert_eq!(second.block_on(held).expect("joins"), None);
    let found = second.block_on(asks(&executor, &world, hold("c", "next")));
    assert_eq!(found, None);
}

/// The first runtime ends while its caller waits in the store's queue behind another executor. The
/// place goes as soon as the executor is used again, and holds up nothing that comes after it.
pub fn a_place_in_the_queue_ends_with_its_runtime(
    store: impl Future<Output = Arc<dyn DurableExec>>,
) {
    let (first, second) = (runtime(), runtime());
    let world = World::on(second.block_on(store), Arc::new(TestClock::default()));
    let (other, executor) = (
        second.block_on(started(&world)),
        first.block_on(started(&world)),
    );
    world.connector.then([Act::Wait]);
    let held = second.spawn(asks(&other, &world, hold("a", "held")));
    second.block_on(calls_out(&world, 1));
    first.spawn(asks(&executor, &world, hold("a", "lost")));
    first.block_on(async { tokio::time::sleep(Duration::from_millis(300)).await });
    drop(first);
    let elsewhere = second.block_on(asks(&executor, &world, hold("b", "b")));
    assert_eq!(elsewhere, None);
    world.connector.gate.add_permits(1);
    assert_eq!(second.block_on(held).expect("joins"), None);
    for (executor, key) in [(&other, "theirs"), (&executor, "ours")] {
        let found = second.block_on(asks(executor, &world, hold("a", key)));
        assert_eq!(found, None, "{key}");
    }
}
