//! This project's side: the real executor, a real policy, a connector that answers at once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use async_trait::async_trait;
use load::{Bounds, Cell, EffectName, Effects, Side};
use operators_kernel::{
    Call, Connector, ConnectorName, DeterministicExecutor, DurableExec, Effect, EffectClass,
    EntityKey, IdempotencyKey, InvokeOutcome, PlannedAction, RunContext, Seams, Settings, TenantId,
    Tool, ToolContract, ToolName, ToolRegistry,
};
use operators_policies::{Policy, RuleSet};
use operators_seams::SystemClock;
use serde_json::{Map, Value, json};

const RULES: &str = "
policy = 'benchmark'
version = 1
[[rule]]
name = 'holds run'
connector = 'shop'
tool = 'orders.*'
decision = 'ALLOW'
max_value = 500
";

/// Long enough that no heartbeat falls into a measurement of milliseconds.
const LEASE: Duration = Duration::from_secs(60);

/// Plans that run at once: one for each of the most callers.
const RUNS: usize = 256;

/// An executor on some store, and what it needs to propose.
#[derive(Debug)]
pub(crate) struct Ours {
    executor: DeterministicExecutor,
    /// Every caller runs a plan of its own, as agents do.
    runs: Box<[RunContext]>,
    connector: ConnectorName,
    tool: ToolName,
    pub(crate) effects: Arc<Effects>,
}

impl Ours {
    /// Starts an executor on `store`.
    pub(crate) async fn start(store: Arc<dyn DurableExec>) -> Result<Self> {
        let effects = Arc::new(Effects::default());
        let clock = Arc::new(SystemClock::new());
        let rules = Policy::parse(Path::new("benchmark.toml"), RULES.as_bytes())?;
        let tool = Tool {
            contract: ToolContract::new(EffectClass::Opaque),
            schema: None,
            connector: Arc::new(AtOnce(Arc::clone(&effects))),
        };
        let seams = Seams {
            durable: store,
            connectors: Arc::new(OneTool(tool)),
            policy: Arc::new(RuleSet::new(vec![rules], BTreeMap::new())?),
            clock: clock.clone(),
        };
        let settings = Settings {
            lease: LEASE,
            ..Settings::default()
        };
        let tenant = TenantId::parse("acme")?;
        Ok(Self {
            executor: DeterministicExecutor::start(seams, settings).await?,
            runs: (0..RUNS)
                .map(|_| RunContext::new(&*clock, tenant.clone()))
                .collect(),
            connector: ConnectorName::parse("shop")?,
            tool: ToolName::parse("orders.hold")?,
            effects,
        })
    }

    fn action(&self, effect: EffectName) -> Result<PlannedAction, String> {
        let said = |error: operators_kernel::IdentifierError| error.to_string();
        let entity_key = EntityKey::parse(effect.entity()).map_err(said)?;
        let idempotency_key = IdempotencyKey::parse(effect.key()).map_err(said)?;
        let order = effect.order();
        let args: Map<String, Value> =
            [("order", order), ("reason", "ship-risk-review".to_owned())]
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.into()))
                .collect();
        Ok(PlannedAction {
            connector: self.connector.clone(),
            tool: self.tool.clone(),
            args: args.into(),
            value: serde_json::Number::from_f64(180.0),
            entity_key,
            idempotency_key,
            revision: None,
            source_id: None,
            index_hash: None,
        })
    }

    /// Ends the session in good order.
    pub(crate) async fn stop(self: Arc<Self>) -> Result<()> {
        let ours = Arc::into_inner(self).ok_or_else(|| anyhow!("somebody still proposes"))?;
        Ok(ours.executor.stop().await?)
    }
}

impl Side for Ours {
    async fn propose(&self, effect: EffectName) -> Result<(), String> {
        let caller = effect.caller;
        let action = self.action(effect)?;
        let run = &self.runs[caller % RUNS];
        let done = self.executor.run_action(run, action).await;
        match done {
            Ok(result) if result.ok => Ok(()),
            Ok(result) => Err(format!("not ok: {result:?}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Measures one cell on a store that nobody used before.
pub(crate) async fn measure(store: Arc<dyn DurableExec>, bounds: Bounds) -> Result<Cell> {
    let ours = Arc::new(Ours::start(store).await?);
    let effects = Arc::clone(&ours.effects);
    let cell = load::measure(&ours, &effects, bounds).await;
    ours.stop().await.context("stopping the executor")?;
    cell.map_err(|problem| anyhow!(problem))
}

/// A vendor that does as it is told, at once.
#[derive(Debug)]
struct AtOnce(Arc<Effects>);

#[async_trait]
impl Connector for AtOnce {
    async fn invoke(&self, _call: &Call) -> InvokeOutcome {
        self.0.happen();
        InvokeOutcome::Applied(Effect::of(json!({"status": "holded"})))
    }
}

#[derive(Debug)]
struct OneTool(Tool);

impl ToolRegistry for OneTool {
    fn tool(&self, connector: &ConnectorName, tool: &ToolName) -> Option<Tool> {
        let found = connector.as_str() == "shop" && tool.as_str() == "orders.hold";
        found.then(|| self.0.clone())
    }
}
