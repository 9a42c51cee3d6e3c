//! What the modules share: worlds on each store, callers in order, and looks at what is left.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use operators_kernel::life::Phase;
use operators_kernel::{
    ActionResult, Clock, Cursor, DeterministicExecutor, DurableExec, ExecError, PAGE_MAX,
    PlannedAction, Receipt, ReceiptFilter, ReceiptKind, RunContext, TenantId,
};
use operators_seams::SqliteStore;
use operators_tests::fakes::{Act, FaultyExec, TestClock};
use operators_tests::fixtures::{World, key, tenant};
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// A world and the folder its store may live in.
pub struct Home {
    pub world: World,
    pub name: &'static str,
    _folder: Option<TempDir>,
}

pub fn memory() -> Home {
    Home {
        world: World::in_memory(),
        name: "memory",
        _folder: None,
    }
}

pub fn sqlite() -> Home {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(&folder.path().join("store.db")).expect("opens");
    Home {
        world: World::on(Arc::new(store), Arc::new(TestClock::default())),
        name: "sqlite",
        _folder: Some(folder),
    }
}

pub fn each_store() -> [Home; 2] {
    [memory(), sqlite()]
}

/// Puts a wrapper that fails on cue around the world's store.
pub fn faulty(world: &mut World) -> Arc<FaultyExec> {
    let store = Arc::new(FaultyExec::new(Arc::clone(&world.store)));
    world.store = Arc::clone(&store) as Arc<dyn DurableExec>;
    store
}

/// A caller in a task of its own, who has taken its place in the queue when this returns.
pub async fn begin(
    executor: &Arc<DeterministicExecutor>,
    world: &World,
    action: PlannedAction,
) -> JoinHandle<Result<ActionResult, ExecError>> {
    begin_for(executor, world.run(), action).await
}

pub async fn begin_for(
    executor: &Arc<DeterministicExecutor>,
    run: RunContext,
    action: PlannedAction,
) -> JoinHandle<Result<ActionResult, ExecError>> {
    let executor = Arc::clone(executor);
    let mut caller: Pin<Box<dyn Future<Output = _> + Send>> =
        Box::pin(async move { executor.run_action(&run, action).await });
    let first = std::future::poll_fn(|context| Poll::Ready(caller.as_mut().poll(context))).await;
    tokio::spawn(async move {
        match first {
            Poll::Ready(answer) => answer,
            Poll::Pending => caller.await,
        }
    })
}

/// One action, run to its result.
pub async fn one(
    executor: &DeterministicExecutor,
    world: &World,
    action: PlannedAction,
) -> ActionResult {
    executor
        .run_action(&world.run(), action)
        .await
        .expect("a result")
}

/// Waits until something is so. The bound is for a test that would hang otherwise.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("never so: {what}");
}

pub async fn at_rest(executor: &DeterministicExecutor) {
    until("at rest", || executor.entities_in_flight() == 0).await;
}

/// Lets everything else run until it has nothing left to do but wait.
pub async fn let_others_run() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// An action that is inside the connector and stays there until the gate is opened.
pub async fn held_inside(
    executor: &Arc<DeterministicExecutor>,
    world: &World,
    action: PlannedAction,
) -> JoinHandle<Result<ActionResult, ExecError>> {
    let before = world.connector.calls().len();
    world.connector.then([Act::Wait]);
    let caller = begin(executor, world, action).await;
    until("the call is inside", || {
        world.connector.calls().len() > before
    })
    .await;
    caller
}

pub async fn receipts_of(store: &dyn DurableExec, tenant: &TenantId) -> Vec<Receipt> {
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        let page = store
            .receipts(
                tenant,
                &ReceiptFilter::default(),
                Cursor::After(after),
                PAGE_MAX,
            )
            .await
            .expect("receipts");
        let Some(last) = page.last() else {
            return found;
        };
        after = last.sequence;
        found.extend(page.into_iter().map(|entry| entry.receipt));
    }
}

pub async fn receipts(world: &World) -> Vec<Receipt> {
    receipts_of(&*world.store, &tenant()).await
}

/// The receipts of proposals alone, without what was learned later.
pub async fn proposals(world: &World) -> Vec<Receipt> {
    let mut found = receipts(world).await;
    found.retain(|receipt| receipt.kind == ReceiptKind::Proposal);
    found
}

pub async fn phase(world: &World, name: &str) -> Option<Phase> {
    let found = world.store.key(&tenant(), &key(name)).await.expect("a key");
    found.map(|record| record.phase)
}

/// The keys of the calls that took effect, in order.
pub fn effects(world: &World) -> Vec<String> {
    let applied = world.connector.applied();
    applied
        .iter()
        .map(|call| call.idempotency_key.to_string())
        .collect()
}

/// `decision ok reason`, the three words most tests compare.
pub fn words(result: &ActionResult) -> String {
    let reason = result.reason.map_or("-", operators_kernel::Reason::as_str);
    format!("{} {} {reason}", result.decision.as_str(), result.ok)
}

/// Another world in the same store and with the same outside: a second process, as far as the
/// store can tell.
pub fn neighbour(world: &World) -> World {
    World {
        settings: operators_kernel::Settings {
            node: "neighbour".to_owned(),
            ..world.settings.clone()
        },
        ..world.clone()
    }
}

/// Makes the store look at its sessions, and bury those that show no life.
pub async fn bury_the_lifeless(world: &World) {
    let lease = Duration::from_hours(1);
    let session = world.store.open_session("undertaker", lease).await;
    let session = session.expect("opens");
    world.store.close_session(session).await.expect("closes");
}

pub fn now(world: &World) -> operators_kernel::Timestamp {
    world.clock.now()
}
