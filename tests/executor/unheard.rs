//! Section 8: answers of a store that get lost on the way, or never come.

use std::sync::Arc;
use std::time::Duration;

use operators_kernel::life::Phase;
use operators_kernel::{
    ActionResult, DeterministicExecutor, ExecError, PlannedAction, Reason, StoreError,
};
use operators_tests::fakes::{Act, Fault, FaultyExec, Op};
use operators_tests::fixtures::{World, action, hold, key, tenant_named};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::failing::started;
use crate::support::{
    at_rest, begin, effects, faulty, held_inside, let_others_run, memory, neighbour, one, phase,
    proposals, until, words,
};

/// Far beyond any patience, far below the lease of a session in these tests.
const MINUTE: Duration = Duration::from_mins(1);

fn read(entity: &str, name: &str) -> PlannedAction {
    action("orders.get", entity, name, json!({}))
}

/// A world whose callers are told after a second.
fn patient() -> World {
    let mut world = memory().world;
    world.settings.store_patience = Duration::from_secs(1);
    world
}

/// Two processes on one store; the answers of the first may get lost.
async fn two_processes() -> (
    World,
    Arc<FaultyExec>,
    Arc<DeterministicExecutor>,
    Arc<DeterministicExecutor>,
) {
    let mut world = patient();
    let other = Arc::new(neighbour(&world).start().await);
    let store = faulty(&mut world);
    let executor = Arc::new(world.start().await);
    (world, store, executor, other)
}

async fn soon(executor: &DeterministicExecutor, world: &World, act: PlannedAction) -> ActionResult {
    let result = tokio::time::timeout(MINUTE, one(executor, world, act)).await;
    result.expect("not held up")
}

fn loses(store: &FaultyExec, lost: Op) {
    store.by_chance(move |op| {
        if op == lost {
            Fault::After
        } else {
            Fault::None
        }
    });
}

/// Rules 8.3 and 2.6: the answer "wait" is lost, once or twice. There is one place in the queue all
/// the same, and nobody is held up behind it.
#[tokio::test(start_paused = true)]
async fn a_place_whose_answer_was_lost_holds_nobody_up() {
    for act in [hold("e", "k2"), read("e", "r2")] {
        let op = if act.tool.as_str() == "orders.get" {
            Op::Pass
        } else {
            Op::Claim
        };
        let (world, store, executor, other) = two_processes().await;
        let first = held_inside(&other, &world, hold("e", "k1")).await;
        store.next(op, [Fault::After, Fault::After, Fault::None, Fault::After]);
        let lost = begin(&executor, &world, act).await;
        until("asked often", || store.count(op) >= 5).await;
        world.connector.gate.add_permits(1);
        assert!(first.await.expect("joins").expect("a result").ok);
        assert!(lost.await.expect("joins").expect("a result").ok, "{op:?}");
        assert!(soon(&other, &world, hold("e", "k3")).await.ok, "{op:?}");
        assert_eq!(proposals(&world).await.len(), 3, "{op:?}: one each");
    }
}

/// Rules 8.3 and 2.6: what waits is done by another meanwhile. Its place goes with the answer.
#[tokio::test(start_paused = true)]
async fn a_lost_place_of_what_is_a_duplicate_now_holds_nobody_up() {
    let (world, store, executor, other) = two_processes().await;
    let first = held_inside(&other, &world, hold("e", "k")).await;
    store.next(Op::Claim, [Fault::After, Fault::Before]);
    let same = begin(&executor, &world, hold("e", "k")).await;
    until("asked once", || store.count(Op::Claim) == 1).await;
    world.connector.gate.add_permits(1);
    assert!(first.await.expect("joins").expect("a result").ok);
    let same = same.await.expect("joins").expect("a result");
    assert_eq!(words(&same), "DEDUP true -");
    assert!(soon(&other, &world, hold("e", "k2")).await.ok);
    assert_eq!(effects(&world), ["k", "k2"]);
}

/// Rules 8.2 and 2.6: a caller is told that the store does not answer; the place it may have is
/// found and given back when the store does.
#[tokio::test(start_paused = true)]
async fn a_place_that_stays_lost_is_given_back() {
    for (op, act) in [(Op::Claim, hold("e", "k2")), (Op::Pass, read("e", "r2"))] {
        let (world, store, executor, other) = two_processes().await;
        let first = held_inside(&other, &world, hold("e", "k1")).await;
        loses(&store, op);
        let run = world.run();
        let told = tokio::time::timeout(MINUTE, executor.run_action(&run, act)).await;
        let error = told.expect("within a minute").expect_err("told");
        assert!(matches!(error, ExecError::Store(_)), "{op:?}: {error}");
        store.heal();
        world.connector.gate.add_permits(1);
        assert!(first.await.expect("joins").expect("a result").ok);
        assert!(soon(&other, &world, hold("e", "k3")).await.ok, "{op:?}");
        assert_eq!(effects(&world), ["k1", "k3"], "{op:?}: sent all the same");
    }
}

/// Rules 8.2 and 2.6: the answer "wait" comes after its caller was told, and the action is done by
/// another before it is asked for again.
#[tokio::test(start_paused = true)]
async fn a_place_that_came_too_late_holds_nobody_up() {
    let mut world = patient();
    let other = Arc::new(neighbour(&world).start().await);
    let third = Arc::new(neighbour(&world).start().await);
    let store = faulty(&mut world);
    let executor = world.start().await;
    let first = held_inside(&other, &world, hold("e", "k1")).await;
    world.connector.then([Act::Wait]);
    let ahead = begin(&third, &world, hold("e", "k2")).await;
    let_others_run().await;
    let gate = Arc::new(Semaphore::new(0));
    store.next(Op::Claim, [Fault::Hold(Arc::clone(&gate))]);
    let run = world.run();
    let told = tokio::time::timeout(MINUTE, executor.run_action(&run, hold("e", "k1"))).await;
    told.expect("within a minute").expect_err("told");
    world.connector.gate.add_permits(1);
    assert!(first.await.expect("joins").expect("a result").ok);
    until("its turn came", || world.connector.calls().len() == 2).await;
    gate.add_permits(1);
    until("asked again", || store.count(Op::Claim) == 2).await;
    world.connector.gate.add_permits(1);
    assert!(ahead.await.expect("joins").expect("a result").ok);
    assert!(soon(&other, &world, hold("e", "k3")).await.ok);
    assert_eq!(effects(&world), ["k1", "k2", "k3"]);
    assert_eq!(proposals(&world).await.len(), 4, "one each");
}

/// Rules 8.2 and 2.6: whoever waits and finds the store unusable is told, and waits no longer.
#[tokio::test(start_paused = true)]
async fn whoever_finds_the_store_unusable_leaves_the_queue() {
    for (op, act) in [(Op::Claim, hold("e", "k2")), (Op::Pass, read("e", "r2"))] {
        let (world, store, executor, other) = two_processes().await;
        let first = held_inside(&other, &world, hold("e", "k1")).await;
        store.next(op, [Fault::None, Fault::Unusable]);
        let told = executor.run_action(&world.run(), act).await;
        let error = told.expect_err("told");
        assert!(
            matches!(error, ExecError::Store(StoreError::Unusable { .. })),
            "{op:?}: {error}"
        );
        world.connector.gate.add_permits(1);
        assert!(first.await.expect("joins").expect("a result").ok);
        assert!(soon(&other, &world, hold("e", "k3")).await.ok, "{op:?}");
        assert_eq!(effects(&world), ["k1", "k3"], "{op:?}");
    }
}

/// Rules 8.3 and 5.1: the answer "refused" is lost, and what stood against the action is gone by
/// the next try. The result is what the receipt tells.
#[tokio::test(start_paused = true)]
async fn a_refusal_whose_answer_was_lost_is_the_result() {
    let (world, store, executor, other) = two_processes().await;
    world.connector.then([Act::ApplyThenUnknown]);
    let doubt = action("orders.refund", "e", "k1", json!({}));
    assert!(!one(&other, &world, doubt.clone()).await.ok);
    store.next(Op::Claim, [Fault::After, Fault::Before]);
    let held = begin(&executor, &world, hold("e", "k2")).await;
    until("asked once", || store.count(Op::Claim) == 1).await;
    // Keyed: its next proposal sends it again and ends the doubt.
    assert!(one(&other, &world, doubt).await.ok);
    let held = held.await.expect("joins").expect("a result");
    assert_eq!(held.reason, Some(Reason::EntityInDoubt));
    assert_eq!(phase(&world, "k2").await, None, "no intent");
    let receipts = proposals(&world).await;
    let told = receipts.iter().find(|r| r.receipt_id == held.receipt_id);
    assert_eq!(told.expect("a receipt").reason, held.reason);
    assert!(one(&executor, &world, hold("e", "k2")).await.ok);
}

/// One call of `op` is taken by the store and never answered until the gate opens.
async fn told_of_silence(op: Op, act: PlannedAction) -> (World, Arc<FaultyExec>, Arc<Semaphore>) {
    let (world, store, executor) = started().await;
    let gate = Arc::new(Semaphore::new(0));
    store.next(op, [Fault::Hold(Arc::clone(&gate))]);
    let mut run = world.run();
    if op == Op::RedactionKey {
        run.tenant = tenant_named("new");
    }
    let told = tokio::time::timeout(MINUTE, executor.run_action(&run, act)).await;
    match told.expect("within a minute") {
        Err(ExecError::Store(StoreError::Unavailable { problem, .. })) => {
            assert_eq!(problem, "no answer within 1s", "{op:?}");
        }
        // Asked again, and then it answered.
        Ok(result) => assert_eq!((op, result.ok), (Op::RedactionKey, true)),
        Err(error) => panic!("{op:?}: {error}"),
    }
    at_rest(&executor).await;
    let again = tokio::time::timeout(MINUTE, one(&executor, &world, hold("e", "k9"))).await;
    assert!(again.expect("not held up").ok, "{op:?}");
    (world, store, gate)
}

/// Rule 8.2: a store that takes a call and says nothing keeps nobody waiting, whatever was asked;
/// and a read that was said not to have been sent is not sent later.
#[tokio::test(start_paused = true)]
async fn a_silent_store_keeps_nobody_waiting_whatever_was_asked() {
    let (world, _, gate) = told_of_silence(Op::Pass, read("e", "r")).await;
    gate.add_permits(1);
    let_others_run().await;
    let sent = |world: &World| {
        let calls = world.connector.calls();
        calls
            .iter()
            .filter(|call| call.idempotency_key == key("r"))
            .count()
    };
    assert_eq!(sent(&world), 0);
    let (world, _, gate) = told_of_silence(Op::Record, read("e", "r")).await;
    assert_eq!(sent(&world), 1);
    gate.add_permits(1);
    let_others_run().await;
    assert_eq!(proposals(&world).await.len(), 2, "recorded all the same");
    told_of_silence(Op::RedactionKey, hold("e", "k")).await;
}

/// Rules 8.2 and 2.5: as little for whoever is refused because too many wait.
#[tokio::test(start_paused = true)]
async fn a_silent_store_keeps_no_overloaded_caller_waiting() {
    let (mut world, store, _) = started().await;
    world.settings.waiters_max = 0;
    let executor = Arc::new(world.start().await);
    let first = held_inside(&executor, &world, hold("e", "k1")).await;
    let gate = Arc::new(Semaphore::new(0));
    store.next(Op::Record, [Fault::Hold(Arc::clone(&gate))]);
    let run = world.run();
    let told = tokio::time::timeout(MINUTE, executor.run_action(&run, hold("e", "k2"))).await;
    let error = told.expect("within a minute").expect_err("told");
    assert!(matches!(error, ExecError::Store(_)), "{error}");
    gate.add_permits(1);
    world.connector.gate.add_permits(1);
    assert!(first.await.expect("joins").expect("a result").ok);
    let_others_run().await;
    assert_eq!(proposals(&world).await.len(), 2, "recorded all the same");
}

/// Rules 8.2 and 8.3: a process that ends in good order finds out first what became of a claim whose
/// answer never came. Nothing was sent for it, and nobody after it could know that.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_being_found_out_is_no_doubt_when_the_process_ends() {
    let (world, store, executor) = started().await;
    // It lands, and its answers are lost for longer than anybody waits.
    loses(&store, Op::Claim);
    let told = executor.run_action(&world.run(), hold("e", "k")).await;
    told.expect_err("told");
    store.heal();
    assert_eq!(executor.entities_in_flight(), 0, "its place is given up");
    let executor = Arc::into_inner(executor).expect("nobody else's");
    executor.stop().await.expect("in good order");
    assert_eq!(phase(&world, "k").await, Some(Phase::Failed), "free again");
    assert!(effects(&world).is_empty());
}

/// Rules 8.2 and 8.3: the same if the store then says that it cannot be used: that is said of the
/// second try, and nothing about the first.
#[tokio::test(start_paused = true)]
async fn a_claim_that_landed_is_found_out_though_the_store_was_unusable_since() {
    let (world, store, executor) = started().await;
    // The last of them when somebody looks what became of it.
    let faults = [Fault::After, Fault::Unusable, Fault::Unusable];
    store.next(Op::Claim, faults);
    let told = executor.run_action(&world.run(), hold("e", "k")).await;
    told.expect_err("told");
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(store.count(Op::Claim), 3);
    let next = soon(&executor, &world, hold("e", "k2")).await;
    assert_eq!(words(&next), "ALLOW true -");
    assert_eq!(phase(&world, "k").await, Some(Phase::Failed), "free again");
    assert_eq!(effects(&world), ["k2"]);
}

/// Rule 8.2: one answer that is lost leaves no session behind that others would wait for.
#[tokio::test(start_paused = true)]
async fn a_process_whose_last_answer_is_lost_asks_again() {
    for fault in [Fault::Before, Fault::After] {
        let (_world, store, executor) = started().await;
        store.next(Op::Close, [fault]);
        let executor = Arc::into_inner(executor).expect("nobody else's");
        executor.stop().await.expect("in good order");
        assert_eq!(store.count(Op::Close), 2);
    }
}

/// Rule 8.2: nor at the beginning and at the end of a process.
#[tokio::test(start_paused = true)]
async fn a_silent_store_keeps_no_process_from_ending() {
    let (world, store, executor) = started().await;
    let gate = Arc::new(Semaphore::new(0));
    store.next(Op::Open, [Fault::Hold(Arc::clone(&gate))]);
    let starting = DeterministicExecutor::start(world.seams(), world.settings.clone());
    let told = tokio::time::timeout(MINUTE, starting).await;
    told.expect("within a minute").expect_err("told");
    store.next(Op::Close, [Fault::Hold(gate)]);
    let executor = Arc::into_inner(executor).expect("nobody else's");
    let told = tokio::time::timeout(MINUTE, executor.stop()).await;
    told.expect("within a minute").expect_err("told");
}
