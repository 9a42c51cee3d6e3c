//! A forecast says what a run would, against the store as it is, and touches nothing.

use std::sync::Arc;
use std::time::Duration;

use operators_kernel::{
    Disposition, ExecutionPlan, Forecast, PlannedAction, Reason, Text, TrustDecision, forecast,
};
use operators_tests::fakes::{Act, Op, Says};
use operators_tests::fixtures::{World, action, hold, plan};
use serde_json::json;

use crate::support::{Home, each_store, effects, faulty, memory, one, receipts};

type Told = (
    Disposition,
    bool,
    Option<Reason>,
    Option<String>,
    Option<Text>,
    Vec<String>,
);

/// How long a request may still land depends on when it is asked.
fn timeless(error: Option<&String>) -> Option<String> {
    error.map(|text| text.split(" for ").next().unwrap_or_default().to_owned())
}

fn told(forecast: &Forecast) -> Told {
    (
        forecast.decision,
        forecast.ok,
        forecast.reason,
        timeless(forecast.error.as_ref()),
        forecast.rule.clone(),
        forecast.conflict.clone(),
    )
}

/// Forecasts, checks that nothing was touched, runs, and compares.
async fn comes_true(world: &World, plan: &ExecutionPlan) -> Vec<Forecast> {
    let calls = world.connector.calls().len();
    let before = receipts(world).await;
    let look = || async {
        let mut seen = Vec::new();
        for action in &plan.actions {
            let (key, entity) = (&action.idempotency_key, &action.entity_key);
            let glimpse = world.store.glimpse(&world.run().tenant, key, entity).await;
            let glimpse = glimpse.expect("a look");
            seen.push((glimpse.key, glimpse.entity));
        }
        seen
    };
    let seen = look().await;
    let forecasts = forecast(&world.seams(), &world.run(), plan)
        .await
        .expect("forecasts");
    assert_eq!(world.connector.calls().len(), calls, "a forecast invoked");
    assert_eq!(receipts(world).await, before, "a forecast left a receipt");
    assert_eq!(look().await, seen, "a forecast changed a key or an entity");
    let executor = world.start().await;
    let results = executor.run(&world.run(), plan).await.expect("runs");
    for (forecast, result) in forecasts.iter().zip(&results) {
        let ran = (
            result.decision,
            result.ok,
            result.reason,
            timeless(result.error.as_ref()),
            result.rule.clone(),
            result.conflict.clone(),
        );
        assert_eq!(told(forecast), ran, "{}", forecast.action.idempotency_key);
        assert_eq!(forecast.action, result.action);
    }
    forecasts
}

/// Rules 1.2–1.8, 3.1–3.5 and 4.2, forecast: each ending, and what the plan itself changes.
#[tokio::test]
async fn a_forecast_comes_true_and_touches_nothing() {
    for Home {
        mut world, name, ..
    } in each_store()
    {
        let policy = Arc::new(Says::new(TrustDecision::Allow));
        world.policy = Arc::clone(&policy) as _;
        let executor = world.start().await;
        world
            .connector
            .then([Act::Apply, Act::Refuse, Act::Unknown]);
        one(&executor, &world, hold("e", "applied")).await;
        one(&executor, &world, hold("e", "failed")).await;
        one(&executor, &world, hold("doubtful", "doubt")).await;
        let revised = |key: &str, revision: u64| PlannedAction {
            revision: Some(revision),
            ..hold("revised", key)
        };
        let told = comes_true(
            &world,
            &plan(vec![
                action("orders.get", "e", "r", json!({"password": "hunter22"})),
                hold("e", "applied"),
                action("orders.hold", "e", "applied", json!({"order": "SO-2"})),
                hold("e", "failed"),
                hold("e", "new"),
                hold("e", "new"),
                action("orders.hold", "e", "new", json!({})),
                hold("doubtful", "doubt"),
                hold("doubtful", "other"),
                action("orders.nope", "e", "nope", json!({})),
                revised("r1", 1),
                revised("r3", 3),
                revised("r2", 2),
            ]),
        )
        .await;
        let reasons: Vec<_> = told
            .iter()
            .map(|f| f.reason.map_or(f.decision.as_str(), Reason::as_str))
            .collect();
        assert_eq!(
            reasons,
            [
                "ALLOW",
                "DEDUP",
                "conflict",
                "ALLOW",
                "ALLOW",
                "DEDUP",
                "conflict",
                "in_doubt",
                "entity_in_doubt",
                "unknown_tool",
                "ALLOW",
                "ALLOW",
                "stale_revision"
            ],
            "{name}"
        );
        let text = serde_json::to_string(&told).expect("json");
        assert!(!text.contains("hunter22"), "{text}");
        for decision in [TrustDecision::Block, TrustDecision::Alert] {
            policy.change(decision);
            let plan = plan(vec![hold("e", "applied"), hold("e", "weighed")]);
            let told = comes_true(&world, &plan).await;
            assert_eq!(told[0].decision, Disposition::Dedup, "{name}");
            assert_eq!(told[1].decision, decision.into(), "{name}");
        }
    }
}

/// Rules 4.5, 4.7 and 4.8, forecast: a doubt that would be sent again frees its entity, or holds
/// it while the first request may land.
#[tokio::test]
async fn a_forecast_sees_what_a_resend_would_change() {
    for (tool, wanted) in [
        ("orders.refund", "ALLOW"),
        ("orders.tag", "entity_in_doubt"),
    ] {
        let world = memory().world;
        let executor = world.start().await;
        let act = |key: &str| action(tool, "e", key, json!({}));
        world.connector.then([Act::Unknown]);
        assert!(!one(&executor, &world, act("k")).await.ok);
        world.clock.advance(Duration::from_secs(1));
        let told = comes_true(&world, &plan(vec![act("k"), act("k"), act("next")])).await;
        assert_eq!(told[0].decision, Disposition::Allow);
        assert_eq!(told[1].decision, Disposition::Dedup);
        let last = told[2]
            .reason
            .map_or(told[2].decision.as_str(), Reason::as_str);
        assert_eq!(last, wanted, "{tool}");
    }
}

/// A forecast writes nothing: no call of the store's writing half is made.
#[tokio::test]
async fn a_forecast_only_looks() {
    let mut world = memory().world;
    let store = faulty(&mut world);
    let actions = vec![hold("e", "k"), action("orders.get", "e", "r", json!({}))];
    let told = forecast(&world.seams(), &world.run(), &plan(actions)).await;
    assert_eq!(told.expect("forecasts").len(), 2);
    for op in [
        Op::Open,
        Op::Heartbeat,
        Op::Close,
        Op::Claim,
        Op::Settle,
        Op::Record,
        Op::Pass,
        Op::Leave,
        Op::Resolve,
        Op::Forget,
        Op::Direct,
    ] {
        assert_eq!(store.count(op), 0, "{op:?}");
    }
    assert!(store.count(Op::Look) > 0);
    assert!(effects(&world).is_empty());
}
