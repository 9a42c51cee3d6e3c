//! Sections 2 and 4: sessions that stop showing life, and what their owners may still do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use operators_connectors::{ConnectorConfig, ConnectorKind, EnvSecrets, Registry, ToolConfig};
use operators_kernel::life::Phase;
use operators_kernel::{ConnectorName, ReceiptKind, ReceiptOutcome, ToolName};
use operators_tests::fakes::{Act, Fault, FaultyExec, Op};
use operators_tests::fixtures::{World, action, hold};
use serde_json::json;

use crate::support::{
    begin, bury_the_lifeless, effects, faulty, held_inside, let_others_run, memory, neighbour, one,
    phase, proposals, receipts, words,
};

const LEASE: Duration = Duration::from_secs(30);

/// Rules 2.9 and 4.3: the owner shows no life, so its turn goes to those who wait and its intent
/// is a doubt with the receipt its proposal lacked.
#[tokio::test]
async fn a_session_without_life_loses_its_turn_and_leaves_a_doubt() {
    let world = memory().world;
    let frozen = Arc::new(world.start().await);
    let owner = held_inside(&frozen, &world, hold("e", "k")).await;
    let other = Arc::new(neighbour(&world).start().await);
    let waiting = begin(&other, &world, hold("e", "k2")).await;
    let_others_run().await;
    assert!(!waiting.is_finished(), "alive, so it must wait");
    // The frozen one misses its beats, the other does not.
    world.clock.advance(LEASE + Duration::from_micros(1));
    let waited = waiting.await.expect("joins").expect("a result");
    assert_eq!(words(&waited), "BLOCK false entity_in_doubt");
    assert_eq!(phase(&world, "k").await, Some(Phase::InDoubt));
    let receipts = proposals(&world).await;
    assert_eq!(receipts.len(), 2);
    assert_eq!(receipts[0].outcome, Some(ReceiptOutcome::InDoubt));
    assert_eq!(receipts[0].idempotency_key.as_str(), "k");
    let same = one(&other, &world, hold("e", "k")).await;
    assert_eq!(words(&same), "BLOCK false in_doubt");
    owner.abort();
}

/// Rules 4.4, 4.9 and 5.7: the owner was taken for dead and then tells how its attempt ended:
/// applied burns, not applied frees, and a correction cites the receipt it corrects.
#[tokio::test]
async fn a_late_answer_is_accepted_from_a_dead_session() {
    for (act, wanted, then) in [
        (Act::Apply, Phase::Applied, "DEDUP true -"),
        (Act::Refuse, Phase::Failed, "ALLOW true -"),
        (Act::Unknown, Phase::InDoubt, "BLOCK false in_doubt"),
    ] {
        let mut world = memory().world;
        let bare = world.clone();
        let store = faulty(&mut world);
        let frozen = Arc::new(world.start().await);
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        // The claim is durable; its owner hears of it and goes on, its end is held back.
        let clock = Arc::clone(&world.clock);
        world.connector.then([act]);
        let before = Arc::clone(&gate);
        store.next(Op::Claim, [Fault::Hold(before)]);
        let owner = begin(&frozen, &world, hold("e", "k")).await;
        let_others_run().await;
        assert_eq!(phase(&bare, "k").await, Some(Phase::Intent));
        gate.add_permits(1);
        store.next(Op::Settle, [Fault::Before]);
        crate::support::until("the call was made", || !world.connector.calls().is_empty()).await;
        clock.advance(LEASE * 2);
        bury_the_lifeless(&bare).await;
        let result = owner.await.expect("joins").expect("a result");
        assert_eq!(phase(&bare, "k").await, Some(wanted));
        let left = receipts(&bare).await;
        assert_eq!(
            left[0].outcome,
            Some(ReceiptOutcome::InDoubt),
            "written by the undertaker"
        );
        if wanted == Phase::InDoubt {
            assert_eq!(left.len(), 1, "nothing new was learned");
            assert_eq!(result.receipt_id, left[0].receipt_id);
        } else {
            assert_eq!(left.len(), 2);
            assert_eq!(left[1].kind, ReceiptKind::Correction);
            assert_eq!(
                left[1].original_receipt_id.as_ref(),
                Some(&left[0].receipt_id)
            );
            assert_eq!(result.receipt_id, left[1].receipt_id);
        }
        let again = one(&frozen, &world, hold("e", "k")).await;
        assert_eq!(words(&again), then);
    }
}

/// Rule 2.9: an executor whose session was declared dead opens another and goes on, reads too.
#[tokio::test]
async fn an_executor_whose_session_died_opens_another_and_goes_on() {
    for read_first in [false, true] {
        let mut world = memory().world;
        let store = faulty(&mut world);
        let executor = world.start().await;
        assert!(one(&executor, &world, hold("e", "k1")).await.ok);
        world.clock.advance(LEASE * 2);
        bury_the_lifeless(&world).await;
        let opened = store.count(Op::Open);
        if read_first {
            assert!(
                one(&executor, &world, action("orders.get", "e", "r", json!({})))
                    .await
                    .ok
            );
        }
        assert!(one(&executor, &world, hold("e", "k2")).await.ok);
        assert_eq!(store.count(Op::Open), opened + 1, "one new session");
        let receipts = proposals(&world).await;
        assert_ne!(receipts[0].session, receipts.last().expect("k2").session);
        executor.stop().await.expect("ends its new session");
    }
}

/// Rule 2.9: the heartbeat finds out by itself, with nothing in flight.
#[tokio::test(start_paused = true)]
async fn the_heartbeat_opens_another_session_when_its_own_died() {
    let mut world = memory().world;
    let store = faulty(&mut world);
    let _executor = world.start().await;
    world.clock.advance(LEASE * 2);
    bury_the_lifeless(&world).await;
    let opened = store.count(Op::Open);
    tokio::time::sleep(LEASE / 3 + Duration::from_millis(1)).await;
    assert_eq!(store.count(Op::Open), opened + 1);
}

/// What passes between the claim and the send, in a world whose tools have an hour's deadline.
async fn claimed_then(
    pass: impl Fn(&World) + Send + Sync + 'static,
) -> (World, Arc<FaultyExec>, String) {
    let mut world = memory().world;
    world.registry = Arc::new(operators_tests::fixtures::registry_with(
        &world.connector,
        |_, mut contract| {
            contract.timeout = Duration::from_hours(1);
            contract
        },
    ));
    let bare = world.clone();
    let store = faulty(&mut world);
    let executor = world.start().await;
    store.next(Op::Claim, [Fault::Then(Arc::new(move || pass(&bare)))]);
    let result = one(&executor, &world, hold("e", "k")).await;
    let words = words(&result);
    if !result.ok {
        assert!(result.error.expect("why").starts_with("nothing was sent"));
    }
    (world, store, words)
}

/// Rule 4.12: with a tenth of the lease left or less, the store is asked before anything is sent.
#[tokio::test]
async fn a_call_is_sent_only_while_a_tenth_of_the_lease_is_left() {
    let (_, store, plenty) = claimed_then(|world| {
        world.clock.advance(
            LEASE
                .checked_sub(LEASE / 10)
                .unwrap()
                .checked_sub(Duration::from_micros(1))
                .unwrap(),
        );
    })
    .await;
    assert_eq!(
        (plenty.as_str(), store.count(Op::Heartbeat)),
        ("ALLOW true -", 0)
    );
    let (_, store, asked) =
        claimed_then(|world| world.clock.advance(LEASE.checked_sub(LEASE / 10).unwrap())).await;
    assert_eq!(
        (asked.as_str(), store.count(Op::Heartbeat)),
        ("ALLOW true -", 1)
    );
}

/// Rule 4.12: the lease lapsed and the session was declared dead, so nothing is sent; the doubt
/// that its death left is ended by the late answer, for it is known that nothing was sent (4.9).
#[tokio::test]
async fn nothing_is_sent_once_the_session_is_dead() {
    let (world, _, result) = claimed_then(|world| {
        world.clock.advance(LEASE * 2);
        let store = Arc::clone(&world.store);
        // The memory store answers at once.
        let opened = futures_now(async move { store.open_session("other", LEASE).await });
        opened.expect("opens");
    })
    .await;
    assert_eq!(result, "ALLOW false failed");
    assert!(world.connector.calls().is_empty());
    assert_eq!(phase(&world, "k").await, Some(Phase::Failed));
    let executor = world.start().await;
    assert!(
        one(&executor, &world, hold("e", "k")).await.ok,
        "the key was left free"
    );
    assert_eq!(effects(&world), ["k"]);
}

/// Rule 4.12: a heartbeat that cannot be confirmed sends nothing either.
#[tokio::test]
async fn nothing_is_sent_when_the_store_does_not_confirm_the_lease() {
    let mut world = memory().world;
    let store = faulty(&mut world);
    let executor = world.start().await;
    let clock = Arc::clone(&world.clock);
    store.next(
        Op::Claim,
        [Fault::Then(Arc::new(move || clock.advance(LEASE)))],
    );
    store.next(Op::Heartbeat, [Fault::Before]);
    let result = one(&executor, &world, hold("e", "k")).await;
    assert_eq!(words(&result), "ALLOW false failed");
    assert!(world.connector.calls().is_empty());
    assert_eq!(proposals(&world).await.len(), 1);
}

/// A server that says when it was asked for its tools, and lists them once it may.
const SLOW_SERVER: &str = r#"
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"method":"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}' ;;
    *'"method":"tools/list"'*)
      touch asked
      while ! test -e may-list; do sleep 0.02; done
      echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"orders.hold","inputSchema":{"type":"object"}}]}}' ;;
    *'"method":"tools/call"'*)
      echo x >> called
      echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[]}}' ;;
  esac
done
"#;

/// Rule 4.12: a server took longer to list its tools than the lease lasted, and no heartbeat was
/// confirmed since.
#[tokio::test]
async fn a_tool_of_a_server_that_was_greeted_longer_than_the_lease_is_not_called() {
    for (passes, wanted) in [
        (Duration::ZERO, "ALLOW true -"),
        (LEASE, "ALLOW false failed"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut world = memory().world;
        world.registry = Arc::new(slow_server(folder.path()));
        let store = faulty(&mut world);
        let executor = Arc::new(world.start().await);
        let called = begin(&executor, &world, hold("e", "k")).await;
        while !folder.path().join("asked").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        store.next(Op::Heartbeat, [Fault::Before]);
        world.clock.advance(passes);
        std::fs::write(folder.path().join("may-list"), "").expect("written");
        let result = called.await.expect("no panic").expect("a result");
        assert_eq!(words(&result), wanted);
        if passes > Duration::ZERO {
            let told = result.error.expect("why");
            assert!(told.contains("nothing was sent"), "{told}");
        }
        let is_called = folder.path().join("called").exists();
        assert_eq!(is_called, passes == Duration::ZERO);
    }
}

fn slow_server(folder: &std::path::Path) -> Registry {
    let argv = ["sh", "-c", SLOW_SERVER].map(str::to_owned);
    let hold = ToolName::parse("orders.hold").expect("a name");
    let config = ConnectorConfig {
        argv: Some(argv.to_vec()),
        tools: BTreeMap::from([(hold, ToolConfig::default())]),
        ..ConnectorConfig::new(ConnectorKind::Mcp)
    };
    let shop = ConnectorName::parse("shop").expect("a name");
    let configs = BTreeMap::from([(shop, config)]);
    Registry::build(configs, folder, Arc::new(EnvSecrets)).expect("a configuration")
}

/// Drives a future that never waits.
fn futures_now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("it waits"),
    }
}
