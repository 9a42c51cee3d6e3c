//! Section 4, first half: what a doubt is, what it holds, and what ends it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use operators_connectors::Registry;
use operators_kernel::life::Phase;
use operators_kernel::{
    Call, Connector, ConnectorError, ConnectorName, Effect, InvokeOutcome, OnUnknown, ProbeOutcome,
    ReceiptKind, ReceiptOutcome, Resolution, ResolveAnswer, Resolver, Tool, ToolName, Verdict,
};
use operators_tests::fakes::Act;
use operators_tests::fixtures::{TOOLS, World, action, contract, hold, key, registry_with, tenant};
use serde_json::json;

use crate::support::{
    Home, each_store, effects, memory, now, one, phase, proposals, receipts, words,
};

fn note(key: &str) -> operators_kernel::PlannedAction {
    action("orders.note", "e", key, json!({"text": "x"}))
}

fn refund(key: &str) -> operators_kernel::PlannedAction {
    action("orders.refund", "e", key, json!({"amount": 5}))
}

fn found(id: &str) -> ProbeOutcome {
    ProbeOutcome::Applied(Effect {
        result: json!({"found": true}).into(),
        effect_id: Some(id.to_owned()),
    })
}

async fn resolve(world: &World, name: &str, verdict: Verdict) -> ResolveAnswer {
    let record = world
        .store
        .key(&tenant(), &key(name))
        .await
        .expect("a look");
    let record = record.expect("a key");
    let resolution = Resolution {
        key: key(name),
        generation: record.generation,
        attempt: record.attempt,
        verdict,
        by: Resolver::Person("jenny".into()),
        note: Some("asked the shop".to_owned()),
        receipt_id: format!("rc_resolve_{}", receipts(world).await.len()).into(),
        result_digest: None,
        at: now(world),
    };
    world
        .store
        .resolve(&tenant(), resolution)
        .await
        .expect("an answer")
}

/// Rules 4.1, 4.2 and 4.4: an unknown outcome is neither failure nor success; it holds the whole
/// entity, and no time that passes ends it.
#[tokio::test]
async fn an_unknown_outcome_is_a_doubt_and_holds_the_entity() {
    for Home { world, name, .. } in &each_store() {
        let executor = world.start().await;
        world.connector.then([Act::ApplyThenUnknown]);
        let first = one(&executor, world, hold("e", "k")).await;
        assert_eq!(words(&first), "ALLOW false in_doubt", "{name}");
        assert_eq!(first.error.as_deref(), Some("the answer was lost"));
        assert_eq!(phase(world, "k").await, Some(Phase::InDoubt));
        for _ in 0..2 {
            let same = one(&executor, world, hold("e", "k")).await;
            assert_eq!(words(&same), "BLOCK false in_doubt", "{name}");
            let other = one(&executor, world, hold("e", "other")).await;
            assert_eq!(words(&other), "BLOCK false entity_in_doubt", "{name}");
            world.clock.advance(Duration::from_secs(1_000_000));
        }
        let reads = one(&executor, world, action("orders.get", "e", "r", json!({}))).await;
        assert!(reads.ok, "{name}: a read changes nothing");
        let elsewhere = one(&executor, world, hold("e2", "k2")).await;
        assert!(elsewhere.ok, "{name}: another entity is not held");
        assert_eq!(effects(world), ["k", "r", "k2"], "{name}");
        let (doubts, _) = world.store.doubts(&tenant()).await.expect("a list");
        assert_eq!(doubts.len(), 1, "{name}");
    }
}

/// Rule 4.1: no answer within the deadline is a doubt. Time is the runtime's, paused.
#[tokio::test(start_paused = true)]
async fn a_time_out_is_a_doubt() {
    let world = memory().world;
    let executor = world.start().await;
    world.connector.then([Act::ApplyThenHang]);
    let started = tokio::time::Instant::now();
    let result = one(&executor, &world, hold("e", "k")).await;
    assert_eq!(words(&result), "ALLOW false in_doubt");
    assert_eq!(result.error.as_deref(), Some("no answer within 2s"));
    assert_eq!(started.elapsed(), Duration::from_secs(2));
    assert_eq!(executor.entities_in_flight(), 0);
    let receipt = proposals(&world).await.pop().expect("a receipt");
    assert_eq!(receipt.outcome, Some(ReceiptOutcome::InDoubt));
}

/// Rule 4.1: a panic is a doubt, whether it comes from the future, from making it, or from
/// dropping it at the deadline; in each case the process lives and the turn is free.
#[tokio::test(start_paused = true)]
async fn a_panic_is_a_doubt_wherever_it_comes_from() {
    for place in [Panic::Making, Panic::Polling, Panic::Dropping] {
        let mut world = memory().world;
        let connector: Arc<dyn Connector> = Arc::new(Panicking(place));
        world.registry = Arc::new(registry_of(&connector));
        let executor = world.start().await;
        let result = executor.run_action(&world.run(), hold("e", "k")).await;
        let result = result.unwrap_or_else(|error| panic!("{place:?}: {error}"));
        assert_eq!(words(&result), "ALLOW false in_doubt", "{place:?}");
        assert_eq!(phase(&world, "k").await, Some(Phase::InDoubt), "{place:?}");
        assert_eq!(executor.entities_in_flight(), 0, "{place:?}");
        assert_eq!(proposals(&world).await.len(), 1, "{place:?}");
        // The probe of such a connector panics as well, and settles nothing.
        let probed = executor
            .run_action(&world.run(), note("n"))
            .await
            .expect("a result");
        assert_eq!(words(&probed), "BLOCK false entity_in_doubt", "{place:?}");
    }
}

#[derive(Debug, Clone, Copy)]
enum Panic {
    Making,
    Polling,
    Dropping,
}

/// A connector written without `async_trait`, which can panic before there is a future.
#[derive(Debug)]
struct Panicking(Panic);

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "scripted panic in drop");
    }
}

type Boxed<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl operators_kernel::Connector for Panicking {
    fn invoke<'a, 'b, 'c>(
        &'a self,
        _call: &'b operators_kernel::Call,
    ) -> Boxed<'c, operators_kernel::InvokeOutcome>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        match self.0 {
            Panic::Making => panic!("scripted panic before the future"),
            Panic::Polling => Box::pin(async { panic!("scripted panic in the future") }),
            Panic::Dropping => Box::pin(async {
                let _held = PanicsWhenDropped;
                std::future::pending().await
            }),
        }
    }
}

/// Every tool, behind one connector.
fn registry_of(connector: &Arc<dyn Connector>) -> Registry {
    Registry::from_tools(TOOLS.iter().map(|(name, effect)| {
        let tool = Tool {
            contract: contract(*effect),
            schema: None,
            connector: Arc::clone(connector),
        };
        let shop = ConnectorName::parse("shop").expect("a name");
        (shop, ToolName::parse(*name).expect("a name"), tool)
    }))
}

/// Rule 4.5: a keyed doubt is sent again with the same downstream key, inside the vendor's window
/// less a tenth (54 of 60 s), and not after it.
#[tokio::test]
async fn a_keyed_doubt_is_sent_again_with_the_same_downstream_key() {
    for (wait, wanted) in [(53, "ALLOW true -"), (54, "BLOCK false in_doubt")] {
        let world = memory().world;
        let executor = world.start().await;
        world.connector.then([Act::ApplyThenUnknown]);
        let first = one(&executor, &world, refund("k")).await;
        assert_eq!(words(&first), "ALLOW false in_doubt");
        world.clock.advance(Duration::from_secs(wait));
        let again = one(&executor, &world, refund("k")).await;
        assert_eq!(words(&again), wanted, "after {wait} s");
        let calls = world.connector.calls();
        if wanted.starts_with("ALLOW") {
            assert_eq!(again.attempt, 2);
            assert_eq!(calls.len(), 2);
            assert_eq!(calls[0].downstream_key, calls[1].downstream_key);
            assert_eq!((calls[0].attempt, calls[1].attempt), (1, 2));
            assert_eq!(
                words(&one(&executor, &world, refund("k")).await),
                "DEDUP true -"
            );
        } else {
            assert_eq!(calls.len(), 1);
        }
    }
}

/// Rule 4.5: an opaque doubt is never sent again, unless its tool says so.
#[tokio::test]
async fn an_opaque_doubt_is_sent_again_only_where_the_tool_says_retry() {
    let mut world = memory().world;
    world.registry = Arc::new(registry_with(&world.connector, |_, mut contract| {
        contract.on_unknown = OnUnknown::Retry;
        contract
    }));
    let executor = world.start().await;
    world.connector.then([Act::Unknown, Act::Unknown]);
    for attempt in 1..=2 {
        let doubt = one(&executor, &world, hold("e", "k")).await;
        assert_eq!(
            (words(&doubt).as_str(), doubt.attempt),
            ("ALLOW false in_doubt", attempt)
        );
    }
    let done = one(&executor, &world, hold("e", "k")).await;
    assert_eq!((words(&done).as_str(), done.attempt), ("ALLOW true -", 3));
}

/// Rule 4.13: a probe that finds the effect burns the key without a second one.
#[tokio::test]
async fn a_probe_that_finds_the_effect_burns_the_key() {
    for Home { world, name, .. } in &each_store() {
        let executor = world.start().await;
        world.connector.then([Act::ApplyThenUnknown]);
        let first = one(&executor, world, note("k")).await;
        assert_eq!(words(&first), "ALLOW false in_doubt", "{name}");
        world.connector.probes_find([found("vendor-7")]);
        let again = one(&executor, world, note("k")).await;
        assert_eq!(words(&again), "DEDUP true -", "{name}");
        assert_eq!(
            again.original.expect("cited").result,
            json!({"found": true})
        );
        assert_eq!(effects(world), ["k"], "{name}");
        let left = receipts(world).await;
        let correction = left
            .iter()
            .find(|receipt| receipt.kind == ReceiptKind::Correction);
        let correction = correction.expect("what was learned later");
        assert_eq!(
            correction.original_receipt_id.as_ref(),
            Some(&first.receipt_id)
        );
        assert_eq!(correction.effect_id.as_deref(), Some("vendor-7"));
        assert_eq!(correction.approver, None);
        assert!(
            one(&executor, world, note("k2")).await.ok,
            "{name}: the entity is free"
        );
    }
}

/// Rules 4.6 and 4.13: a probe that finds nothing is believed once nothing can land any more; then
/// the action runs.
#[tokio::test]
async fn a_probe_that_finds_nothing_is_believed_after_quiescence() {
    let world = memory().world;
    let executor = world.start().await;
    world.connector.then([Act::Unknown]);
    assert_eq!(
        words(&one(&executor, &world, note("k")).await),
        "ALLOW false in_doubt"
    );
    world
        .connector
        .probes_find([ProbeOutcome::NotApplied, ProbeOutcome::NotApplied]);
    // The deadline is two seconds: until then the request may land.
    world.clock.advance(Duration::from_millis(1_999));
    let early = one(&executor, &world, note("k")).await;
    assert_eq!(words(&early), "BLOCK false in_doubt");
    assert!(early.error.expect("why").contains("may still land"));
    world.clock.advance(Duration::from_millis(1));
    let runs = one(&executor, &world, note("k")).await;
    assert_eq!((words(&runs).as_str(), runs.attempt), ("ALLOW true -", 2));
    assert_eq!(effects(&world), ["k"]);
}

/// A connector whose probe looks at once and answers three seconds later.
#[derive(Debug)]
struct SlowToTell(World);

#[async_trait]
impl Connector for SlowToTell {
    async fn invoke(&self, call: &Call) -> InvokeOutcome {
        self.0.connector.invoke(call).await
    }

    async fn probe(&self, call: &Call) -> ProbeOutcome {
        let found = self.0.connector.probe(call).await;
        self.0.clock.advance(Duration::from_secs(3));
        found
    }
}

/// Rules 4.6 and 4.13: what a probe did not find may have landed while it answered, if it could
/// still land when it was asked.
#[tokio::test]
async fn a_probe_that_looked_too_early_is_not_believed_though_it_answers_late() {
    let mut world = memory().world;
    let connector: Arc<dyn Connector> = Arc::new(SlowToTell(world.clone()));
    world.registry = Arc::new(registry_of(&connector));
    let executor = world.start().await;
    world.connector.then([Act::Unknown]);
    let first = one(&executor, &world, note("k")).await;
    assert_eq!(words(&first), "ALLOW false in_doubt");
    let nothing = [ProbeOutcome::NotApplied, ProbeOutcome::NotApplied];
    world.connector.probes_find(nothing);
    // The deadline is two seconds: until then the request may land.
    world.clock.advance(Duration::from_secs(1));
    let early = one(&executor, &world, note("k")).await;
    assert_eq!(words(&early), "BLOCK false in_doubt");
    assert_eq!(world.connector.calls().len(), 1);
    let runs = one(&executor, &world, note("k")).await;
    assert_eq!((words(&runs).as_str(), runs.attempt), ("ALLOW true -", 2));
}

/// Rule 4.13: a probe that cannot tell leaves the doubt as it is.
#[tokio::test]
async fn a_probe_that_cannot_tell_leaves_the_doubt() {
    let world = memory().world;
    let executor = world.start().await;
    world.connector.then([Act::Unknown]);
    assert_eq!(
        words(&one(&executor, &world, note("k")).await),
        "ALLOW false in_doubt"
    );
    world.clock.advance(Duration::from_secs(100));
    let unknown = ProbeOutcome::Unknown(ConnectorError::new("the shop is closed"));
    world.connector.probes_find([unknown]);
    assert_eq!(
        words(&one(&executor, &world, note("k")).await),
        "BLOCK false in_doubt"
    );
    assert_eq!(world.connector.calls().len(), 1);
    assert_eq!(proposals(&world).await.len(), 2);
}

/// Rules 4.4, 4.6 and 5.7: a person decides; "not applied" is believed only after quiescence, and
/// what was decided is a new receipt that cites the first.
#[tokio::test]
async fn a_person_ends_a_doubt() {
    let world = memory().world;
    let executor = world.start().await;
    world.connector.then([Act::Unknown]);
    let first = one(&executor, &world, hold("e", "k")).await;
    let early = resolve(&world, "k", Verdict::NotApplied).await;
    assert_eq!(early, ResolveAnswer::MayStillLand(Duration::from_secs(2)));
    assert_eq!(receipts(&world).await.len(), 1);
    world.clock.advance(Duration::from_secs(2));
    let late = resolve(&world, "k", Verdict::NotApplied).await;
    assert_eq!(late, ResolveAnswer::Resolved(Phase::Failed));
    let correction = receipts(&world).await.pop().expect("a correction");
    assert_eq!(correction.kind, ReceiptKind::Correction);
    assert_eq!(correction.original_receipt_id, Some(first.receipt_id));
    assert_eq!(correction.approver.as_deref(), Some("jenny"));
    assert!(
        one(&executor, &world, hold("e", "k")).await.ok,
        "free again"
    );
}

/// Rule 4.11: a written-off key dedups, says so, and is never run again.
#[tokio::test]
async fn a_written_off_key_dedups_and_says_so() {
    let world = memory().world;
    let executor = world.start().await;
    world.connector.then([Act::Unknown]);
    one(&executor, &world, hold("e", "k")).await;
    let answer = resolve(&world, "k", Verdict::WriteOff).await;
    assert_eq!(answer, ResolveAnswer::Resolved(Phase::WrittenOff));
    let again = one(&executor, &world, hold("e", "k")).await;
    assert_eq!(words(&again), "DEDUP true -");
    assert!(again.original.expect("cited").written_off);
    world.clock.advance(Duration::from_secs(2));
    assert!(
        one(&executor, &world, hold("e", "other")).await.ok,
        "the entity is free"
    );
    assert_eq!(effects(&world), ["other"]);
}
