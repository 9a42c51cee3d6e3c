//! Section 5: one receipt per proposal, every field, and the same bytes every time.

use std::collections::BTreeSet;
use std::sync::Arc;

use operators_connectors::Registry;
use operators_kernel::{
    ConnectorName, DeterministicExecutor, EffectClass, EventEnvelope, ExecutionPlan, OperatorName,
    RECEIPT_VERSION, Receipt, ReceiptKind, ReceiptOutcome, RedactionKey, Tool, ToolName,
    TrustDecision,
};
use operators_tests::fakes::{Act, FaultyExec, Says};
use operators_tests::fixtures::{World, action, contract, hold, object, plan, tenant};
use serde_json::{Value, json};

use crate::support::{
    Home, begin, each_store, held_inside, memory, now, one, proposals, receipts, words,
};

const SEED_PLAN: &str = r#"[
  {
    "connector": "magento",
    "tool": "orders.hold",
    "args": { "order": "SO-10884", "reason": "ship-risk-review" },
    "entity_key": "ship-risk:SO-10884",
    "idempotency_key": "ship-risk:SO-10884:hold"
  },
  {
    "connector": "magento",
    "tool": "orders.hold",
    "args": { "order": "SO-10884", "reason": "ship-risk-review" },
    "entity_key": "ship-risk:SO-10884",
    "idempotency_key": "ship-risk:SO-10884:hold"
  }
]"#;

fn magento(world: &mut World) {
    let tool = Tool {
        contract: contract(EffectClass::Opaque),
        schema: None,
        connector: Arc::clone(&world.connector) as Arc<dyn operators_kernel::Connector>,
    };
    let names = (
        ConnectorName::parse("magento").expect("a name"),
        ToolName::parse("orders.hold").expect("a name"),
    );
    world.registry = Arc::new(Registry::from_tools([(names.0, names.1, tool)]));
    let answer = json!({"status": "holded", "order": "SO-10884"});
    world.connector.then([Act::ApplyWith(answer)]);
}

/// The seed's own example: the first five fields as it shows them, ours after them. Rules 3.1, 5.6.
#[tokio::test]
async fn the_same_hold_proposed_twice_reads_as_the_seed_shows_it() {
    let mut world = memory().world;
    magento(&mut world);
    let executor = world.start().await;
    let plan = ExecutionPlan::parse(SEED_PLAN).expect("a plan");
    let results = executor.run(&world.run(), &plan).await.expect("runs");
    let action = r#"{
      "connector": "magento",
      "tool": "orders.hold",
      "args": {
        "order": "SO-10884",
        "reason": "ship-risk-review"
      },
      "entity_key": "ship-risk:SO-10884",
      "idempotency_key": "ship-risk:SO-10884:hold"
    }"#;
    let wanted = format!(
        r#"[
  {{
    "action": {action},
    "decision": "ALLOW",
    "ok": true,
    "result": {{
      "order": "SO-10884",
      "status": "holded"
    }},
    "rule": "the test's rule",
    "receipt_id": "rc_000004",
    "attempt": 1
  }},
  {{
    "action": {action},
    "decision": "DEDUP",
    "ok": true,
    "receipt_id": "rc_000005",
    "attempt": 1,
    "original": {{
      "receipt_id": "rc_000004",
      "applied_at": "2023-11-14T22:13:20.000000Z",
      "result": {{
        "order": "SO-10884",
        "status": "holded"
      }}
    }}
  }}
]"#
    );
    assert_eq!(
        serde_json::to_string_pretty(&results).expect("json"),
        wanted
    );
}

const FIELDS: &[&str] = &[
    "receipt_id",
    "kind",
    "tenant_id",
    "reseller_id",
    "operator",
    "run_id",
    "plan_id",
    "event_id",
    "correlation_id",
    "action",
    "value",
    "entity_key",
    "idempotency_key",
    "generation",
    "attempt",
    "revision",
    "source_id",
    "index_hash",
    "decision",
    "rule",
    "policy",
    "ok",
    "outcome",
    "reason",
    "error",
    "hint",
    "note",
    "result_digest",
    "effect_id",
    "original_receipt_id",
    "approver",
    "known_by",
    "session",
    "fence",
    "proposed_at",
    "settled_at",
    "version",
];

/// One proposal of every ending, and the words its receipt must say.
async fn every_ending(world: &mut World) -> Vec<Ended> {
    world.settings.waiters_max = 1;
    let policy = Arc::new(Says::new(TrustDecision::Allow));
    world.policy = Arc::clone(&policy) as Arc<dyn operators_kernel::TrustPolicy>;
    let executor = Arc::new(world.start().await);
    let mut ended = Vec::new();
    let read = || action("orders.get", "e", "r", json!({}));
    ended.push(("ALLOW applied -", one(&executor, world, read()).await));
    world.connector.then([Act::Refuse]);
    ended.push(("ALLOW failed failed", one(&executor, world, read()).await));
    ended.push((
        "ALLOW applied -",
        one(&executor, world, hold("e", "k")).await,
    ));
    ended.push((
        "DEDUP deduplicated -",
        one(&executor, world, hold("e", "k")).await,
    ));
    let other = action("orders.hold", "e", "k", json!({"order": "SO-2"}));
    ended.push(("BLOCK refused conflict", one(&executor, world, other).await));
    world.connector.then([Act::Refuse]);
    ended.push((
        "ALLOW failed failed",
        one(&executor, world, hold("e", "k2")).await,
    ));
    policy.change(TrustDecision::Block);
    ended.push((
        "BLOCK refused policy",
        one(&executor, world, hold("e", "k3")).await,
    ));
    policy.change(TrustDecision::Alert);
    let mut revised = hold("e", "k4");
    revised.revision = Some(7);
    ended.push(("ALERT applied -", one(&executor, world, revised).await));
    let mut stale = hold("e", "k5");
    stale.revision = Some(6);
    ended.push((
        "BLOCK refused stale_revision",
        one(&executor, world, stale).await,
    ));
    let unknown = action("orders.nope", "e", "k6", json!({}));
    ended.push((
        "BLOCK refused unknown_tool",
        one(&executor, world, unknown).await,
    ));
    world.connector.then([Act::Unknown]);
    ended.push((
        "ALERT in_doubt in_doubt",
        one(&executor, world, hold("e", "k7")).await,
    ));
    ended.push((
        "BLOCK refused in_doubt",
        one(&executor, world, hold("e", "k7")).await,
    ));
    ended.push((
        "BLOCK refused entity_in_doubt",
        one(&executor, world, hold("e", "k8")).await,
    ));
    ended.extend(overloaded(&executor, world).await);
    ended
}

type Ended = (&'static str, operators_kernel::ActionResult);

/// Three on one entity where only one may wait.
async fn overloaded(executor: &Arc<DeterministicExecutor>, world: &World) -> [Ended; 3] {
    let first = held_inside(executor, world, hold("busy", "k9")).await;
    let second = begin(executor, world, hold("busy", "k10")).await;
    let full = one(executor, world, hold("busy", "k11")).await;
    world.connector.gate.add_permits(1);
    let first = first.await.expect("joins").expect("a result");
    let second = second.await.expect("joins").expect("a result");
    [
        ("ALERT applied -", first),
        ("ALERT applied -", second),
        ("BLOCK refused overloaded", full),
    ]
}

/// Rules 5.1 and 5.3: whatever happened, one receipt, which says what the result says, with every
/// field present.
#[tokio::test]
async fn every_ending_leaves_one_receipt_with_every_field() {
    for Home {
        mut world, name, ..
    } in each_store()
    {
        let ended = every_ending(&mut world).await;
        let left = receipts(&world).await;
        assert_eq!(left.len(), ended.len(), "{name}: one each");
        let ids: BTreeSet<_> = left.iter().map(|receipt| &receipt.receipt_id).collect();
        assert_eq!(ids.len(), left.len(), "{name}");
        for (wanted, result) in &ended {
            let found = left
                .iter()
                .find(|receipt| receipt.receipt_id == result.receipt_id);
            let receipt = found.expect("its receipt");
            let decision = receipt.decision.expect("a decision").as_str();
            let outcome = receipt.outcome.expect("an outcome").as_str();
            let reason = receipt.reason.map_or("-", operators_kernel::Reason::as_str);
            assert_eq!(format!("{decision} {outcome} {reason}"), *wanted, "{name}");
            assert_eq!(receipt.kind, ReceiptKind::Proposal);
            assert_eq!(decision, result.decision.as_str(), "{name}");
            assert_eq!(
                (receipt.ok, receipt.reason),
                (result.ok, result.reason),
                "{name}"
            );
            assert_eq!(
                (&receipt.error, &receipt.hint, &receipt.rule),
                (&result.error, &result.hint, &result.rule),
                "{name}"
            );
            assert_eq!(receipt.attempt, result.attempt, "{name} {wanted}");
            assert_eq!(receipt.version, RECEIPT_VERSION, "{name} {wanted}");
            // Rule 9.14: no command stands where a model reads.
            let error = result.error.as_deref().unwrap_or_default();
            assert!(!error.contains("operators "), "{wanted}: {error}");
            let is_doubt = wanted.ends_with("in_doubt");
            let hint = result.hint.as_deref().unwrap_or_default();
            assert_eq!(
                hint.contains("`operators doubts list`"),
                is_doubt,
                "{wanted}: {hint}"
            );
            assert_eq!(receipt.action.args, result.action.args);
            assert_eq!(
                receipt.result_digest.is_some(),
                result.result.is_some(),
                "{name} {wanted}"
            );
            let cited = result
                .original
                .as_ref()
                .map(|original| &original.receipt_id);
            assert_eq!(receipt.original_receipt_id.as_ref(), cited, "{name}");
            let written = object(serde_json::to_value(receipt).expect("json"));
            let names: BTreeSet<_> = written.keys().map(String::as_str).collect();
            assert_eq!(names, FIELDS.iter().copied().collect(), "{name}");
        }
        let applied = left
            .iter()
            .filter(|receipt| receipt.outcome == Some(ReceiptOutcome::Applied));
        assert_eq!(applied.count(), 5, "{name}");
    }
}

/// Rule 5.3: a text that was kept before there were versions is read as the first, and what it lacks
/// as null.
#[tokio::test]
async fn a_receipt_of_the_first_version_is_read() {
    let world = memory().world;
    let executor = world.start().await;
    one(&executor, &world, hold("e", "k")).await;
    let receipt = proposals(&world).await.pop().expect("a receipt");
    let mut kept = serde_json::to_value(&receipt).expect("json");
    let fields = kept.as_object_mut().expect("an object");
    for later in ["hint", "known_by", "version"] {
        assert!(fields.remove(later).is_some(), "{later}");
    }
    let read: Receipt = serde_json::from_value(kept).expect("a receipt");
    let first = Receipt {
        version: 1,
        ..receipt
    };
    assert_eq!(read, first);
    assert_eq!((read.hint, read.known_by), (None, None));
}

/// Rule 5.3: what is known is there, and its values are those of the run.
#[tokio::test]
async fn a_receipt_carries_the_context_of_its_run() {
    let world = memory().world;
    let executor = world.start().await;
    let mut run = world.run();
    run.operator = Some(OperatorName::parse("ship-risk").expect("a name"));
    let mut event = EventEnvelope::new(
        &*world.clock,
        tenant(),
        "shopify",
        "order.created",
        serde_json::Map::new(),
        Some("thread-1".to_owned()),
    );
    event.reseller_id = Some("reseller".to_owned());
    run.correlation_id = event.correlation_id.as_str().into();
    run.event = Some(event.clone().into());
    let mut full = hold("e", "k");
    full.value = serde_json::Number::from_f64(12.5);
    full.revision = Some(3);
    full.source_id = Some("source".to_owned());
    full.index_hash = Some("index".to_owned());
    executor.run_action(&run, full).await.expect("a result");
    let receipt = proposals(&world).await.pop().expect("a receipt");
    let written = object(serde_json::to_value(&receipt).expect("json"));
    let empty = [
        "policy",
        "reason",
        "error",
        "hint",
        "known_by",
        "note",
        "effect_id",
        "original_receipt_id",
        "approver",
    ];
    for (name, value) in written.iter() {
        assert_eq!(
            value.is_null(),
            empty.contains(&name.as_str()),
            "{name}: {value}"
        );
    }
    assert_eq!(receipt.event_id.as_ref(), Some(&event.event_id));
    assert_eq!(&*receipt.correlation_id, "thread-1");
    assert_eq!((receipt.run_id, receipt.plan_id), (run.run_id, run.plan_id));
    assert_eq!(receipt.proposed_at, now(&world));
}

/// Rule 5.4: what is written stays as it is, whoever writes under its id.
#[tokio::test]
async fn a_receipt_cannot_be_written_over() {
    for Home { world, name, .. } in &each_store() {
        let executor = world.start().await;
        one(&executor, world, hold("e", "k")).await;
        let before = receipts(world).await;
        let mut forged = before[0].clone();
        forged.ok = false;
        forged.error = Some("it never happened".to_owned());
        let answer = world.store.record(&tenant(), vec![forged]).await;
        drop(answer);
        assert_eq!(receipts(world).await, before, "{name}");
    }
}

/// Rule 5.6: the same plan against the same policy, store state, clock and answers, byte for byte.
#[tokio::test]
async fn the_same_run_gives_the_same_bytes() {
    let mut written = Vec::new();
    for _ in 0..2 {
        let mut world = memory().world;
        let store = FaultyExec::new(Arc::clone(&world.store));
        let key = RedactionKey::new([7; 32]);
        world.store = Arc::new(store.with_redaction_key(key));
        let ended = every_ending(&mut world).await;
        let executor = world.start().await;
        let secret = action(
            "orders.tag",
            "s",
            "secret",
            json!({"password": "hunter22", "z": [1, 2.5]}),
        );
        let results = executor
            .run(&world.run(), &plan(vec![secret.clone(), secret]))
            .await;
        let results = results.expect("runs");
        assert_eq!(words(&results[1]), "DEDUP true -");
        let results: Vec<_> = ended
            .into_iter()
            .map(|(_, result)| result)
            .chain(results)
            .collect();
        let results = serde_json::to_string(&results).expect("json");
        let receipts = serde_json::to_string(&receipts(&world).await).expect("json");
        written.push((results, receipts));
    }
    assert_eq!(written[0], written[1]);
}

/// The JSON of a result is read back as it was written, a `null` answer included.
#[tokio::test]
async fn a_result_reads_back_as_it_was_written() {
    let world = memory().world;
    let executor = world.start().await;
    world.connector.then([Act::ApplyWith(Value::Null)]);
    let result = one(&executor, &world, hold("e", "k")).await;
    let text = serde_json::to_string(&result).expect("json");
    assert!(text.contains(r#""result":null"#), "{text}");
    let back: operators_kernel::ActionResult = serde_json::from_str(&text).expect("reads");
    assert_eq!(back, result);
}
