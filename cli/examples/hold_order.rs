//! An agent proposes the same hold twice; the executor places it once.
use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use operators::{
    Call, Connector, ConnectorName, DeterministicExecutor, Effect, EffectClass, ExecutionPlan,
    InvokeOutcome, MemoryStore, Policy, Registry, RuleSet, RunContext, Seams, Settings,
    SystemClock, TenantId, Tool, ToolContract, ToolName, async_trait,
};

const RULES: &[u8] = b"policy='demo'\nversion=1\n[[rule]]\nname='holds'\ndecision='ALLOW'";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The model proposes: the keys say what must not overlap, and what counts as the same.
    let hold = r#"{"connector": "magento", "tool": "orders.hold",
        "args": {"order": "SO-10884", "reason": "ship-risk-review"},
        "entity_key": "ship-risk:SO-10884", "idempotency_key": "ship-risk:SO-10884:hold"}"#;
    let plan = ExecutionPlan::parse(&format!("[{hold}, {hold}]"))?;
    // What can be reached, and what is known about it: nothing, so a doubt waits for a person.
    let contract = ToolContract {
        timeout: Duration::from_secs(3),
        ..ToolContract::new(EffectClass::Opaque)
    };
    let tool = Tool {
        contract,
        schema: None,
        connector: Arc::new(Magento),
    };
    let connector = ConnectorName::parse("magento")?;
    let tool = (connector, ToolName::parse("orders.hold")?, tool);
    let rules = Policy::parse(Path::new("rules.toml"), RULES)?;
    // The seams; with `SqliteStore` in place of `MemoryStore` everything survives a restart.
    let clock = SystemClock::new();
    let seams = Seams {
        durable: Arc::new(MemoryStore::new(Arc::new(clock))),
        connectors: Arc::new(Registry::from_tools([tool])),
        policy: Arc::new(RuleSet::new(vec![rules], BTreeMap::new())?),
        clock: Arc::new(clock),
    };
    // The executor disposes, one action at a time: ALLOW, then DEDUP.
    let executor = DeterministicExecutor::start(seams, Settings::default()).await?;
    let run = RunContext::new(&clock, TenantId::parse("acme")?);
    serde_json::to_writer_pretty(std::io::stdout(), &executor.run(&run, &plan).await?)?;
    Ok(executor.stop().await?)
}

#[derive(Debug)]
struct Magento; // A real one would call the vendor, and pass `call.downstream_key` along.
#[async_trait]
impl Connector for Magento {
    async fn invoke(&self, call: &Call) -> InvokeOutcome {
        let answer = serde_json::json!({"status": "holded", "order": call.args.get("order")});
        InvokeOutcome::Applied(Effect::of(answer))
    }
}
