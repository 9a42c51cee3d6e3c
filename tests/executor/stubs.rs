//! Section 10: rehearsals, and the wall between them and the real thing.

use std::sync::{Arc, Mutex};

use operators_kernel::{
    Ruling, RunContext, ToolContract, ToolMode, TrustPolicy, TrustQuestion, forecast,
};
use operators_tests::fakes::AllowAll;
use operators_tests::fixtures::{World, hold, plan, registry_with, tenant};

use crate::support::{each_store, effects, memory, one, receipts, receipts_of, words};

/// The same world, in which every tool is a stub.
fn stubbed(world: &World) -> World {
    let registry = registry_with(&world.connector, |_, contract| ToolContract {
        mode: ToolMode::Stub,
        ..contract
    });
    World {
        registry: Arc::new(registry),
        ..world.clone()
    }
}

/// Rule 10.1: a rehearsal before the real run suppresses nothing, and one after it is answered by
/// no real key; each leaves its receipts with its own.
#[tokio::test]
async fn a_rehearsal_burns_no_real_key_and_meets_none() {
    for home in each_store() {
        let world = &home.world;
        let rehearsal = stubbed(world);
        let (live, stub) = (world.start().await, rehearsal.start().await);
        let action = || hold("e", "k");
        let decisions = [
            words(&one(&stub, world, action()).await),
            words(&one(&stub, world, action()).await),
            words(&one(&live, world, action()).await),
            words(&one(&live, world, action()).await),
        ];
        let expected = [
            "ALLOW true -",
            "DEDUP true -",
            "ALLOW true -",
            "DEDUP true -",
        ];
        assert_eq!(decisions, expected, "{}", home.name);
        assert_eq!(effects(world), ["k", "k"], "{}", home.name);
        let calls = world.connector.calls();
        assert_ne!(calls[0].downstream_key, calls[1].downstream_key);
        let stubs = tenant().stub().expect("room");
        for (tenant, found) in [
            (tenant(), receipts(world).await),
            (stubs.clone(), receipts_of(&*world.store, &stubs).await),
        ] {
            assert_eq!(found.len(), 2, "{}", home.name);
            assert!(found.iter().all(|receipt| receipt.tenant_id == tenant));
        }
    }
}

#[derive(Debug, Default)]
struct Listening(Mutex<Vec<String>>);

impl TrustPolicy for Listening {
    fn evaluate(&self, question: &TrustQuestion<'_>) -> Ruling {
        let mut heard = self.0.lock().expect("no panic");
        heard.push(question.tenant.to_string());
        AllowAll.evaluate(question)
    }

    fn evaluate_read(&self, question: &TrustQuestion<'_>) -> Ruling {
        self.evaluate(question)
    }
}

/// Rule 10.1: trust judges a rehearsal as it would judge the real thing.
#[tokio::test]
async fn trust_is_asked_about_the_tenant_itself() {
    let policy = Arc::new(Listening::default());
    let mut world = stubbed(&memory().world);
    world.policy = Arc::clone(&policy) as Arc<dyn TrustPolicy>;
    let executor = world.start().await;
    one(&executor, &world, hold("e", "k")).await;
    assert_eq!(*policy.0.lock().expect("no panic"), [tenant().to_string()]);
}

/// Rule 10.1: a forecast looks where the run would.
#[tokio::test]
async fn a_forecast_of_a_rehearsal_looks_at_the_rehearsal_s_keys() {
    let home = memory();
    let world = &home.world;
    let live = world.start().await;
    one(&live, world, hold("e", "k")).await;
    let rehearsal = stubbed(world);
    let plan = plan(vec![hold("e", "k"), hold("e", "k")]);
    let decisions = async |world: &World| {
        let forecasts = forecast(&world.seams(), &world.run(), &plan).await;
        let forecasts = forecasts.expect("a forecast");
        let words = forecasts.iter().map(|one| one.decision.as_str());
        words.collect::<Vec<_>>()
    };
    assert_eq!(decisions(world).await, ["DEDUP", "DEDUP"]);
    assert_eq!(decisions(&rehearsal).await, ["ALLOW", "DEDUP"]);
}

/// Rule 10.2: nobody can get at the stubs' keys with a live tool.
#[tokio::test]
async fn a_live_tool_does_not_run_for_a_tenant_of_stubs() {
    let world = memory().world;
    let stubs = tenant().stub().expect("room");
    let run = || RunContext::new(&*world.clock, stubs.clone());
    let executor = world.start().await;
    let refused = executor.run_action(&run(), hold("e", "k")).await;
    let error = refused.expect_err("refused").to_string();
    assert!(error.contains("`shop:orders.hold` is live"), "{error}");
    assert!(world.connector.calls().is_empty());
    // A stub is at home there.
    let rehearsal = stubbed(&world);
    let executor = rehearsal.start().await;
    let result = executor.run_action(&run(), hold("e", "k")).await;
    assert_eq!(words(&result.expect("a result")), "ALLOW true -");
    assert_eq!(receipts_of(&*world.store, &stubs).await.len(), 1);
}
