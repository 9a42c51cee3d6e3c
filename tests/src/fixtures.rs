//! Ordinary things to test with: names, actions, plans, seams.

use std::sync::Arc;
use std::time::Duration;

use operators_kernel::{
    Clock, ConnectorName, DeterministicExecutor, DurableExec, EffectClass, EntityKey,
    ExecutionPlan, IdempotencyKey, PlannedAction, RunContext, Seams, Settings, Shared, TenantId,
    Tool, ToolContract, ToolName, TrustPolicy,
};
use serde_json::{Map, Value, json};

use operators_connectors::Registry;

use crate::fakes::{AllowAll, ScriptedConnector, TestClock};

/// The tenant `acme`.
pub fn tenant() -> TenantId {
    tenant_named("acme")
}

/// A tenant of that name.
pub fn tenant_named(name: &str) -> TenantId {
    TenantId::parse(name).expect("a valid tenant")
}

/// An entity of that name.
pub fn entity(name: &str) -> EntityKey {
    EntityKey::parse(name).expect("a valid entity key")
}

/// A key of that name.
pub fn key(name: &str) -> IdempotencyKey {
    IdempotencyKey::parse(name).expect("a valid key")
}

/// `orders.hold` on `shop`: the action most tests use.
pub fn hold(entity_key: &str, idempotency_key: &str) -> PlannedAction {
    action(
        "orders.hold",
        entity_key,
        idempotency_key,
        json!({"order": "SO-1"}),
    )
}

/// Any tool on `shop`.
pub fn action(tool: &str, entity_key: &str, idempotency_key: &str, args: Value) -> PlannedAction {
    PlannedAction {
        connector: ConnectorName::parse("shop").expect("a valid connector"),
        tool: ToolName::parse(tool).expect("a valid tool"),
        args: object(args),
        value: None,
        entity_key: entity(entity_key),
        idempotency_key: key(idempotency_key),
        revision: None,
        source_id: None,
        index_hash: None,
    }
}

/// A plan of these actions.
pub fn plan(actions: Vec<PlannedAction>) -> ExecutionPlan {
    ExecutionPlan {
        reasoning: None,
        actions,
    }
}

/// A contract of that effect class: calls end within two seconds and land at once.
pub fn contract(effect: EffectClass) -> ToolContract {
    ToolContract {
        timeout: Duration::from_secs(2),
        max_land: Duration::ZERO,
        ..ToolContract::new(effect)
    }
}

/// The tools every test shop has, one per effect class.
pub const TOOLS: &[(&str, EffectClass)] = &[
    ("orders.get", EffectClass::Read),
    ("orders.hold", EffectClass::Opaque),
    ("orders.release", EffectClass::Opaque),
    ("orders.tag", EffectClass::Idempotent),
    ("orders.refund", EffectClass::Keyed { window_ms: 60_000 }),
    ("orders.note", EffectClass::Probeable),
];

/// A registry with every tool of [`TOOLS`] on `shop`, all run by `connector`.
pub fn registry(connector: &Arc<ScriptedConnector>) -> Registry {
    registry_with(connector, |_, contract| contract)
}

/// As [`registry`], with each contract changed by `change`.
pub fn registry_with(
    connector: &Arc<ScriptedConnector>,
    change: impl Fn(&str, ToolContract) -> ToolContract,
) -> Registry {
    Registry::from_tools(TOOLS.iter().map(|(name, effect)| {
        let tool = Tool {
            contract: change(name, contract(*effect)),
            schema: None,
            connector: Arc::clone(connector) as Arc<dyn operators_kernel::Connector>,
        };
        let shop = ConnectorName::parse("shop").expect("a valid connector");
        (shop, ToolName::parse(*name).expect("a valid tool"), tool)
    }))
}

/// Everything one executor needs, with handles on the fakes.
#[derive(Debug, Clone)]
pub struct World {
    /// The connector behind every tool.
    pub connector: Arc<ScriptedConnector>,
    /// The clock.
    pub clock: Arc<TestClock>,
    /// The store.
    pub store: Arc<dyn DurableExec>,
    /// The policy; replace it before `start`.
    pub policy: Arc<dyn TrustPolicy>,
    /// The registry; replace it before `start`.
    pub registry: Arc<Registry>,
    /// The settings; change them before `start`.
    pub settings: Settings,
}

impl World {
    /// A world on this store, where everything is allowed and every call applies.
    pub fn on(store: Arc<dyn DurableExec>, clock: Arc<TestClock>) -> Self {
        let connector = Arc::new(ScriptedConnector::default());
        let registry = Arc::new(registry(&connector));
        Self {
            connector,
            clock,
            store,
            policy: Arc::new(AllowAll),
            registry,
            settings: Settings::default(),
        }
    }

    /// A world on a fresh memory store.
    pub fn in_memory() -> Self {
        let clock = Arc::new(TestClock::default());
        let store = operators_seams::MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>);
        Self::on(Arc::new(store), clock)
    }

    /// The seams of this world.
    pub fn seams(&self) -> Seams {
        Seams {
            durable: Arc::clone(&self.store),
            connectors: Arc::clone(&self.registry) as Arc<dyn operators_kernel::ToolRegistry>,
            policy: Arc::clone(&self.policy),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
        }
    }

    /// Starts an executor in it.
    pub async fn start(&self) -> DeterministicExecutor {
        DeterministicExecutor::start(self.seams(), self.settings.clone())
            .await
            .expect("starts")
    }

    /// A fresh run for [`tenant`].
    pub fn run(&self) -> RunContext {
        RunContext::new(&*self.clock, tenant())
    }
}

/// An object from a JSON literal.
pub fn object(value: Value) -> Shared<Map<String, Value>> {
    match value {
        Value::Object(object) => object.into(),
        other => panic!("not an object: {other}"),
    }
}
