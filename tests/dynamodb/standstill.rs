//! A machine whose clocks all stand still (its host paused it, or it was resumed from a snapshot): the
//! store's dates move on, and nothing that this machine counts itself shows it.
//!
//! The dates are moved on by a proxy. That is the same for the process behind it, and needs no machine.

use std::sync::Arc;
use std::time::Duration;

use operators_kernel::life::{NoteName, Phase};
use operators_kernel::{
    DeterministicExecutor, Directive, DirectiveAnswer, EffectClass, Order, Reason, RunContext,
};
use operators_seams::DynamoStore;
use operators_tests::conformance::desk::{again, ask, ask_as, fresh_id, moment, unknown};
use operators_tests::fakes::{Act, TestClock};
use operators_tests::fixtures::{World, hold, key, plan, tenant};

use crate::common::{onlooker, process, process_lasting, table};
use crate::proxy::move_dates;

/// As long as the clocks stand still: more than the five minutes that two dates may be apart.
const STANDSTILL: Duration = Duration::from_mins(20);

async fn world(url: &str) -> World {
    let store = DynamoStore::connect(url).await.expect("connects");
    World::on(Arc::new(store), Arc::new(TestClock::default()))
}

/// One action on its own: whether it was applied, and what was said otherwise.
async fn run(world: &World, key: &str) -> (bool, String) {
    let executor = world.start().await;
    let said = act(&executor, world, key).await;
    executor.stop().await.expect("stops");
    said
}

async fn act(executor: &DeterministicExecutor, world: &World, key: &str) -> (bool, String) {
    let run = RunContext::new(&*world.clock, tenant());
    let mut results = executor.run(&run, &plan(vec![hold("order:1", key)])).await;
    let result = results.as_mut().expect("runs").pop().expect("a result");
    (result.ok, result.error.unwrap_or_default())
}

/// Rules 4.6, 4.12: the claim was dated by a clock that had stood still, so another process took its
/// request for one that can no longer land before it had left.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_dated_too_early_is_not_sent() {
    let Some((_, url, proxy)) = table().await else {
        return;
    };
    let world = world(&url).await;
    let executor = world.start().await;
    assert!(act(&executor, &world, "k0").await.0);
    move_dates(&proxy, STANDSTILL);
    let (is_ok, said) = act(&executor, &world, "k1").await;
    assert!(!is_ok);
    assert!(said.starts_with("nothing was sent: "), "{said}");
    assert!(said.contains("stood still"), "{said}");
    assert_eq!(world.connector.applied().len(), 1);
    // The key is free, and what comes next is sent.
    assert_eq!(act(&executor, &world, "k1").await, (true, String::new()));
    executor.stop().await.expect("stops");
}

/// Rules 4.6, 4.12: the clocks stand still while a connector gets ready, and nobody else has asked the
/// store for anything since.
#[tokio::test(flavor = "multi_thread")]
async fn a_connector_that_took_its_time_asks_for_the_date_before_it_sends() {
    let Some((url, proxied, proxy)) = table().await else {
        return;
    };
    let mut world = world(&proxied).await;
    world.settings.lease = Duration::from_hours(1);
    world.connector.then([Act::WaitThenAsk]);
    let (stopped, begun) = (world.clone(), world.clone());
    let acting = tokio::spawn(async move { run(&begun, "k1").await });
    while world.connector.calls().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    move_dates(&proxy, STANDSTILL);
    tokio::time::sleep(Duration::from_millis(700)).await;
    stopped.connector.gate.add_permits(1);
    let (is_ok, said) = acting.await.expect("ends");
    assert!(!is_ok && said.contains("stood still"), "{said}");
    assert!(world.connector.applied().is_empty(), "sent after all");
    let left = onlooker(&url).await.key("k1").await;
    assert_eq!(left.phase, Phase::Failed);
}

/// Rule 2.9: a process that beats is not taken for dead because the date it beat with was older than
/// it seemed.
#[tokio::test(flavor = "multi_thread")]
async fn a_beat_that_was_dated_too_early_is_beaten_again() {
    let Some((_, url, proxy)) = table().await else {
        return;
    };
    let desk = process_lasting(&url, Duration::from_mins(1)).await;
    desk.take(&ask("order:1", "k1")).await;
    move_dates(&proxy, STANDSTILL);
    desk.store.heartbeat(desk.session).await.expect("beats");
    let newcomer = onlooker(&url).await;
    let (store, name) = (&newcomer.store, key("k1"));
    let declared = store.declare_owner_dead(&newcomer.tenant, &name).await;
    assert_eq!(declared, Ok(false), "it beat just now");
    assert_eq!(newcomer.key("k1").await.phase, Phase::Intent);
}

/// Rule 4.5: a vendor's window is over by the store's dates, though a clock that stood still says that
/// it was opened just now.
#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_ended_while_the_clocks_stood_still_is_over() {
    let Some((_, url, proxy)) = table().await else {
        return;
    };
    let desk = process(&url).await;
    let mut claim = ask_as(EffectClass::Keyed { window_ms: 600_000 }, "order:1", "k1");
    claim.deadline = Duration::from_millis(100);
    desk.run(&claim, unknown()).await;
    move_dates(&proxy, STANDSTILL);
    desk.refused_as(Reason::InDoubt, &again(&claim)).await;
}

/// Rule 9.1: so is the time for which a look at the pause is good.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_of_the_meantime_is_seen() {
    let Some((url, proxied, proxy)) = table().await else {
        return;
    };
    let (desk, other) = (process(&proxied).await, process(&url).await);
    let directive = Directive {
        order: Order::Pause(None),
        by: "ada".into(),
        note: None,
        receipt_id: fresh_id(),
        at: moment(),
    };
    desk.take(&ask("order:1", "k1")).await;
    // It waits for two seconds, in which the other's look is good; the dates say that they are over.
    let (store, tenant) = (Arc::clone(&other.store), other.tenant.clone());
    let pausing = tokio::spawn(async move { store.direct(&tenant, directive).await });
    let pause = NoteName::pause();
    while other.store.note(&other.tenant, &pause).await == Ok(None) {}
    move_dates(&proxy, STANDSTILL);
    desk.refused_as(Reason::Paused, &ask("order:last", "last"))
        .await;
    let paused = pausing.await.expect("pauses");
    assert_eq!(paused, Ok(DirectiveAnswer::Done));
}

/// Rule 4.12: a server that tells no date (some for tests are such) is not asked for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_dates_is_not_asked_for_them() {
    let Some((_, url, proxy)) = table().await else {
        return;
    };
    proxy.change_answers(|answer| {
        const NAME: &[u8] = b"\r\ndate: ";
        let head = answer.to_ascii_lowercase();
        if let Some(place) = head.windows(NAME.len()).position(|part| part == NAME) {
            answer[place + 2] = b'x';
        }
    });
    let world = world(&url).await;
    world.connector.then([Act::WaitThenAsk]);
    let begun = world.clone();
    let acting = tokio::spawn(async move { run(&begun, "k1").await });
    while world.connector.calls().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    world.connector.gate.add_permits(1);
    assert_eq!(acting.await.expect("ends"), (true, String::new()));
    assert_eq!(world.connector.applied().len(), 1);
}
