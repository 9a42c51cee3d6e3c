//! An agent that proposes the same hold twice, and an executor that holds the order once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use operators::{
    Call, Connector, ConnectorName, DeterministicExecutor, Effect, EffectClass, ExecutionPlan,
    InvokeOutcome, MemoryStore, OnUnknown, Policy, Registry, RuleSet, RunContext, Seams, Settings,
    SystemClock, TenantId, Tool, ToolContract, ToolName, async_trait,
};
use serde_json::json;

// What the model proposes: the keys say what must not overlap, and what counts as the same.
const PLAN: &str = r#"[
  {"connector": "magento", "tool": "orders.hold", "args": {"order": "SO-10884", "reason": "ship-risk-review"},
   "entity_key": "ship-risk:SO-10884", "idempotency_key": "ship-risk:SO-10884:hold"},
  {"connector": "magento", "tool": "orders.hold", "args": {"order": "SO-10884", "reason": "ship-risk-review"},
   "entity_key": "ship-risk:SO-10884", "idempotency_key": "ship-risk:SO-10884:hold"}]"#;
const POLICY: &[u8] = b"policy = 'demo'\nversion = 1\n[[rule]]\nname = 'holds'\ntool = 'orders.hold'\ndecision = 'ALLOW'";

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example shows its result")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The seams: what is remembered, what can be reached, what may run, and time.
    let clock = Arc::new(SystemClock::new());
    let contract = ToolContract {
        effect: EffectClass::Opaque, // nothing is known about repeating it: a doubt waits for a person
        timeout: Duration::from_secs(3),
        max_land: Duration::from_secs(30),
        on_unknown: OnUnknown::Hold,
        secret_args: Vec::new(),
    };
    let hold = Tool {
        contract,
        schema: None,
        connector: Arc::new(Magento),
    };
    let names = (
        ConnectorName::parse("magento")?,
        ToolName::parse("orders.hold")?,
    );
    let policy = Policy::parse(Path::new("demo.toml"), POLICY)?;
    let seams = Seams {
        durable: Arc::new(MemoryStore::new(clock.clone())), // SqliteStore::open(path)? survives a restart
        connectors: Arc::new(Registry::from_tools([(names.0, names.1, hold)])),
        policy: Arc::new(RuleSet::new(vec![policy], BTreeMap::new())?),
        clock: clock.clone(),
    };
    // The plan is checked as a whole, then disposed of action by action: ALLOW, then DEDUP.
    let executor = DeterministicExecutor::start(seams, Settings::default()).await?;
    let run = RunContext::new(&*clock, TenantId::parse("acme")?);
    let results = executor.run(&run, &ExecutionPlan::parse(PLAN)?).await?;
    println!("{}", serde_json::to_string_pretty(&results)?);
    Ok(executor.stop().await?)
}

/// Stands in for the vendor; a real one would pass `call.downstream_key` along.
#[derive(Debug)]
struct Magento;

#[async_trait]
impl Connector for Magento {
    async fn invoke(&self, call: &Call) -> InvokeOutcome {
        let result = json!({ "status": "holded", "order": call.args.get("order") });
        InvokeOutcome::Applied(Effect {
            result,
            effect_id: None,
        })
    }
}
