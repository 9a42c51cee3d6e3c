//! Section 1: the order of the gates, one trace per step.

use std::sync::Arc;

use async_trait::async_trait;
use operators_connectors::Registry;
use operators_kernel::{
    ArgsSchema, Call, Connector, ConnectorName, DeterministicExecutor, Disposition, DurableExec,
    InvalidArgs, InvokeOutcome, OnFailure, Progress, Reason, Ruling, Tool, ToolName, TrustDecision,
    TrustPolicy, TrustQuestion,
};
use operators_tests::fakes::{Act, FaultyExec, Says, ScriptedConnector, Trace};
use operators_tests::fixtures::{TOOLS, World, action, contract, hold, plan, tenant};
use serde_json::{Map, Value, json};

use crate::support::{
    at_rest, begin, effects, held_inside, let_others_run, memory, one, phase, proposals, words,
};

/// Tells the trace that it was called, and what the store knew of the key at that moment.
#[derive(Debug)]
struct TracedConnector {
    inner: Arc<ScriptedConnector>,
    store: Arc<dyn DurableExec>,
    trace: Trace,
}

#[async_trait]
impl Connector for TracedConnector {
    async fn invoke(&self, call: &Call) -> InvokeOutcome {
        let key = self.store.key(&call.tenant, &call.idempotency_key).await;
        let phase = key
            .expect("a look")
            .map_or("none", |key| key.phase.as_str());
        self.trace.note(format!("connector: called, key {phase}"));
        let outcome = self.inner.invoke(call).await;
        self.trace.note("connector: answered");
        outcome
    }
}

#[derive(Debug)]
struct TracedPolicy {
    inner: Arc<Says>,
    trace: Trace,
}

impl TrustPolicy for TracedPolicy {
    fn evaluate(&self, question: &TrustQuestion<'_>) -> Ruling {
        self.trace.note("policy: asked");
        self.inner.evaluate(question)
    }

    fn evaluate_read(&self, question: &TrustQuestion<'_>) -> Ruling {
        self.trace.note("policy: asked about a read");
        self.inner.evaluate_read(question)
    }
}

#[derive(Debug)]
struct NeedsReason;

impl ArgsSchema for NeedsReason {
    fn check(&self, args: &Map<String, Value>) -> Result<(), InvalidArgs> {
        if args.contains_key("reason") {
            return Ok(());
        }
        Err(InvalidArgs {
            path: "/args/reason".to_owned(),
            problem: "is missing".to_owned(),
        })
    }
}

/// An embedder's own check, with a mistake in it.
#[derive(Debug)]
struct Panics;

impl ArgsSchema for Panics {
    fn check(&self, _args: &Map<String, Value>) -> Result<(), InvalidArgs> {
        panic!("on purpose")
    }
}

struct Stage {
    world: World,
    trace: Trace,
    policy: Arc<Says>,
}

/// A world in which store, policy and connector tell one trace.
fn stage() -> Stage {
    stage_with(None)
}

fn stage_with(schema: Option<&Arc<dyn ArgsSchema>>) -> Stage {
    let mut world = memory().world;
    let trace = Trace::default();
    let policy = Arc::new(Says::new(TrustDecision::Allow));
    let bare = Arc::clone(&world.store);
    world.store = Arc::new(FaultyExec::new(Arc::clone(&bare)).traced(&trace));
    world.policy = Arc::new(TracedPolicy {
        inner: Arc::clone(&policy),
        trace: trace.clone(),
    });
    let connector: Arc<dyn Connector> = Arc::new(TracedConnector {
        inner: Arc::clone(&world.connector),
        store: bare,
        trace: trace.clone(),
    });
    world.registry = Arc::new(shop(&connector, schema));
    Stage {
        world,
        trace,
        policy,
    }
}

fn shop(connector: &Arc<dyn Connector>, schema: Option<&Arc<dyn ArgsSchema>>) -> Registry {
    Registry::from_tools(TOOLS.iter().map(|(name, effect)| {
        let tool = Tool {
            contract: contract(*effect),
            schema: schema.map(Arc::clone),
            connector: Arc::clone(connector),
        };
        let connector = ConnectorName::parse("shop").expect("a name");
        (connector, ToolName::parse(*name).expect("a name"), tool)
    }))
}

async fn started(stage: &Stage) -> Arc<DeterministicExecutor> {
    Arc::new(stage.world.start().await)
}

/// Rule 1.1: while another action holds the entity, nothing at all happens to this one.
#[tokio::test]
async fn an_action_waits_for_its_turn_before_anything_else() {
    let stage = stage();
    let executor = started(&stage).await;
    let first = held_inside(&executor, &stage.world, hold("e", "e:1")).await;
    stage.trace.take();
    let second = begin(&executor, &stage.world, hold("e", "e:2")).await;
    let third = begin(
        &executor,
        &stage.world,
        action("orders.get", "e", "r", json!({})),
    )
    .await;
    let_others_run().await;
    assert_eq!(stage.trace.take(), [""; 0], "somebody did not wait");
    stage.world.connector.gate.add_permits(1);
    for caller in [first, second, third] {
        assert!(caller.await.expect("joins").expect("a result").ok);
    }
    assert_eq!(executor.entities_in_flight(), 0);
}

/// Rule 1.2: a read meets neither dedup nor rules nor claim, and its receipt is durable before its
/// result is given. Whether its operator reaches it is asked after its turn.
#[tokio::test]
async fn a_read_is_invoked_after_its_turn_without_dedup_and_without_rules() {
    let stage = stage();
    let executor = started(&stage).await;
    stage.policy.change(TrustDecision::Block);
    for _ in 0..2 {
        let read = action("orders.get", "e", "r", json!({}));
        let result = one(&executor, &stage.world, read).await;
        stage.trace.note("caller: has the result");
        assert_eq!(words(&result), "ALLOW true -");
        assert_eq!(result.result, Some(json!({"status": "done"}).into()));
        assert_eq!(
            stage.trace.take(),
            [
                "store: passed",
                "policy: asked about a read",
                "connector: called, key none",
                "connector: answered",
                "store: recorded",
                "caller: has the result"
            ]
        );
    }
    assert_eq!(stage.policy.asked(), 0);
    assert_eq!(phase(&stage.world, "r").await, None);
}

/// Rules 1.5 and 5.1: the intent is durable when the connector is called, and the end is settled
/// before the caller hears of it.
#[tokio::test]
async fn the_intent_is_durable_before_the_call_and_the_end_before_the_reply() {
    let stage = stage();
    let executor = started(&stage).await;
    let result = one(&executor, &stage.world, hold("e", "k")).await;
    stage.trace.note("caller: has the result");
    assert_eq!(
        stage.trace.take(),
        [
            "policy: asked",
            "store: claimed",
            "connector: called, key intent",
            "connector: answered",
            "store: settled",
            "caller: has the result"
        ]
    );
    let left = proposals(&stage.world).await;
    assert_eq!(left[0].receipt_id, result.receipt_id);
}

/// Rule 1.3: an applied action under a policy that now blocks is a duplicate and raises nothing.
#[tokio::test]
async fn dedup_comes_before_trust() {
    let stage = stage();
    let executor = started(&stage).await;
    let first = one(&executor, &stage.world, hold("e", "k")).await;
    stage.policy.change(TrustDecision::Block);
    stage.trace.take();
    let again = one(&executor, &stage.world, hold("e", "k")).await;
    assert_eq!(words(&again), "DEDUP true -");
    assert_eq!((again.error, again.rule), (None, None));
    assert_eq!(again.original.expect("cited").receipt_id, first.receipt_id);
    // The policy is pure, so that it was asked cannot be seen from outside.
    assert_eq!(stage.trace.take(), ["policy: asked", "store: duplicate"]);
    let receipt = proposals(&stage.world).await.pop().expect("a receipt");
    assert_eq!(receipt.decision, Some(Disposition::Dedup));
    assert_eq!(
        (receipt.rule, receipt.policy, receipt.note),
        (None, None, None)
    );
}

/// Rule 1.4: a blocked action reaches no connector, leaves no intent and burns no key; once a
/// policy allows it, it runs.
#[tokio::test]
async fn a_blocked_action_leaves_nothing_behind_but_its_receipt() {
    let stage = stage();
    let executor = started(&stage).await;
    stage.policy.change(TrustDecision::Block);
    let blocked = one(&executor, &stage.world, hold("e", "k")).await;
    assert_eq!(words(&blocked), "BLOCK false policy");
    assert_eq!(blocked.error.as_deref(), Some("blocked by trust policy"));
    assert_eq!(stage.trace.take(), ["policy: asked", "store: refused"]);
    assert_eq!(phase(&stage.world, "k").await, None);
    stage.policy.change(TrustDecision::Allow);
    let allowed = one(&executor, &stage.world, hold("e", "k")).await;
    assert_eq!(
        (words(&allowed).as_str(), allowed.attempt),
        ("ALLOW true -", 1)
    );
    assert_eq!(effects(&stage.world), ["k"]);
}

/// Rules 1.8 and 5.1: a check of arguments that panics has not found them good; there is a receipt.
#[tokio::test]
async fn a_schema_that_panics_refuses() {
    let schema: Arc<dyn ArgsSchema> = Arc::new(Panics);
    let stage = stage_with(Some(&schema));
    let executor = started(&stage).await;
    let result = one(&executor, &stage.world, hold("e", "k")).await;
    assert_eq!(words(&result), "BLOCK false invalid_args");
    assert_eq!(crate::support::receipts(&stage.world).await.len(), 1);
    assert!(stage.world.connector.calls().is_empty());
}

/// Rule 1.8: registry and schema are asked before trust, and after dedup.
#[tokio::test]
async fn an_unknown_tool_and_bad_args_are_refused_before_trust_and_after_dedup() {
    let schema: Arc<dyn ArgsSchema> = Arc::new(NeedsReason);
    let strict = stage_with(Some(&schema));
    let executor = started(&strict).await;
    let unknown = action("orders.explode", "e", "k1", json!({"reason": "x"}));
    let result = one(&executor, &strict.world, unknown.clone()).await;
    assert_eq!(words(&result), "BLOCK false unknown_tool");
    let result = one(&executor, &strict.world, hold("e", "k2")).await;
    assert_eq!(words(&result), "BLOCK false invalid_args");
    let read = action("orders.get", "e", "k3", json!({}));
    let result = one(&executor, &strict.world, read).await;
    assert_eq!(words(&result), "BLOCK false invalid_args");
    assert_eq!(strict.policy.asked(), 0);
    assert!(strict.world.connector.calls().is_empty());

    // The same store, once without the schema and with the tool: what applied then is a duplicate
    // now, whatever registry and schema say today.
    let mut easy = stage();
    easy.world.store = Arc::clone(&strict.world.store);
    let connector = Arc::clone(&easy.world.connector) as Arc<dyn Connector>;
    let tool = Tool {
        contract: contract(operators_kernel::EffectClass::Opaque),
        schema: None,
        connector,
    };
    easy.world.registry = Arc::new(Registry::from_tools(["orders.explode", "orders.hold"].map(
        |name| {
            let connector = ConnectorName::parse("shop").expect("a name");
            let name = ToolName::parse(name).expect("a name");
            (connector, name, tool.clone())
        },
    )));
    let before = started(&easy).await;
    assert!(one(&before, &easy.world, unknown.clone()).await.ok);
    assert!(one(&before, &easy.world, hold("e", "k2")).await.ok);
    for done in [unknown, hold("e", "k2")] {
        let result = one(&executor, &strict.world, done).await;
        assert_eq!(words(&result), "DEDUP true -");
    }
}

/// Rule 1.6: strictly in order, each ended before the next begins; a failure does not stop it.
#[tokio::test]
async fn a_plan_runs_in_order_and_goes_on_after_a_failure() {
    let stage = stage();
    let executor = started(&stage).await;
    stage
        .world
        .connector
        .then([Act::Apply, Act::Refuse, Act::Unknown]);
    let actions = (1..=5).map(|n| hold(&format!("e{n}"), &format!("k{n}")));
    let mut told = Vec::new();
    let results = executor
        .run_watched(
            &stage.world.run(),
            &plan(actions.collect()),
            OnFailure::Continue,
            &mut |progress| {
                told.push(match progress {
                    Progress::Begins(index, action) => {
                        format!("begins {index} {}", action.idempotency_key)
                    }
                    Progress::Ended(index, result) => format!("ended {index} {}", words(result)),
                });
            },
        )
        .await
        .expect("runs");
    assert_eq!(
        told,
        [
            "begins 0 k1",
            "ended 0 ALLOW true -",
            "begins 1 k2",
            "ended 1 ALLOW false failed",
            "begins 2 k3",
            "ended 2 ALLOW false in_doubt",
            "begins 3 k4",
            "ended 3 ALLOW true -",
            "begins 4 k5",
            "ended 4 ALLOW true -"
        ]
    );
    assert_eq!(results.len(), 5);
    assert_eq!(effects(&stage.world), ["k1", "k4", "k5"]);
    let settled = stage.trace.take();
    let calls: Vec<_> = settled
        .iter()
        .filter(|line| line.starts_with("connector: called") || *line == "store: settled")
        .map(|line| line.split(':').next().expect("a word"))
        .collect();
    assert_eq!(
        calls,
        ["connector", "store"].repeat(5),
        "two were at work at once"
    );
}

/// Rule 1.6: unless stopping was asked for; what was not proposed leaves no receipt.
#[tokio::test]
async fn a_plan_stops_after_a_failure_when_asked_to() {
    for (act, reason) in [
        (Act::Refuse, Reason::Failed),
        (Act::Unknown, Reason::InDoubt),
    ] {
        let stage = stage();
        let executor = started(&stage).await;
        stage.world.connector.then([Act::Apply, act]);
        let actions = (1..=4).map(|n| hold(&format!("e{n}"), &format!("k{n}")));
        let results = executor
            .run_watched(
                &stage.world.run(),
                &plan(actions.collect()),
                OnFailure::Stop,
                &mut |_| {},
            )
            .await
            .expect("runs");
        assert_eq!(results.len(), 2);
        assert_eq!(results[1].reason, Some(reason));
        assert_eq!(stage.world.connector.calls().len(), 2);
        assert_eq!(proposals(&stage.world).await.len(), 2);
        at_rest(&executor).await;
    }
}

/// Rule 1.6: the same key twice in one plan is one effect and one duplicate, in order.
#[tokio::test]
async fn a_plan_that_repeats_itself_applies_once() {
    let stage = stage();
    let executor = started(&stage).await;
    let thrice = plan(vec![hold("e", "k"), hold("e", "k"), hold("e", "k")]);
    let results = executor
        .run(&stage.world.run(), &thrice)
        .await
        .expect("runs");
    let decisions: Vec<_> = results.iter().map(words).collect();
    assert_eq!(decisions, ["ALLOW true -", "DEDUP true -", "DEDUP true -"]);
    assert_eq!(effects(&stage.world), ["k"]);
    let run_ids = proposals(&stage.world).await;
    assert!(run_ids.iter().all(|receipt| receipt.tenant_id == tenant()));
}
