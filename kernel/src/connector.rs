//! The seams to the outside: what a tool promises, how it is called, and its three answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::key::{ConnectorName, EntityKey, IdempotencyKey, OperatorName, TenantId, ToolName};
use crate::permit::SendPermit;
use crate::shared::Shared;
use crate::work::Work;

/// What is known about repeating a tool's effect; declared in the registry, never by a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "class")]
pub enum EffectClass {
    /// No effect at all: no dedup, no policy.
    Read,
    /// Safe to repeat while the entity's turn is held.
    Idempotent,
    /// The vendor honours our downstream key.
    Keyed {
        /// For how long the vendor remembers a key.
        window_ms: u64,
    },
    /// The connector can ask the vendor "did it happen?".
    Probeable,
    /// A statement in the store's own database, run in the transaction that burns the key.
    Transactional,
    /// Nothing is known. The default for anything undeclared.
    Opaque,
}

impl EffectClass {
    /// The word in configuration and listings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Idempotent => "idempotent",
            Self::Keyed { .. } => "keyed",
            Self::Probeable => "probeable",
            Self::Transactional => "transactional",
            Self::Opaque => "opaque",
        }
    }
}

/// What a doubt about this tool leads to when nothing better is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnknown {
    /// Hold the entity until a probe, a late answer or a person decides.
    #[default]
    Hold,
    /// Send again: at-least-once, and labelled so wherever it is shown.
    Retry,
}

/// Whether a tool reaches its system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolMode {
    /// It does.
    #[default]
    Live,
    /// Somebody answers in its place, and nothing outside changes. Its keys and receipts live
    /// under [`TenantId::stub`], so that a rehearsal burns nothing real.
    Stub,
}

/// What the registry promises about one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolContract {
    /// What is known about repeating it.
    pub effect: EffectClass,
    /// The total deadline of one call; written with the intent before the first byte leaves.
    pub timeout: Duration,
    /// How long after its deadline an abandoned request may still land at the vendor.
    pub max_land: Duration,
    /// What a doubt leads to.
    pub on_unknown: OnUnknown,
    /// Arguments shown only as keyed hashes, as dotted paths (`card.number`).
    pub secret_args: Vec<String>,
    /// Whether it reaches its system.
    pub mode: ToolMode,
}

impl ToolContract {
    /// A tool of that effect class that answers within 30 s, whose abandoned requests may land for
    /// 30 s more, and whose doubts are held.
    pub fn new(effect: EffectClass) -> Self {
        Self {
            effect,
            timeout: Duration::from_secs(30),
            max_land: Duration::from_secs(30),
            on_unknown: OnUnknown::Hold,
            secret_args: Vec::new(),
            mode: ToolMode::Live,
        }
    }
}

/// A registered tool: its contract, the shape of its arguments, and who runs it.
#[derive(Debug, Clone)]
pub struct Tool {
    /// What is promised about it.
    pub contract: ToolContract,
    /// The shape its arguments must have, when one is declared.
    pub schema: Option<Arc<dyn ArgsSchema>>,
    /// Who runs it.
    pub connector: Arc<dyn Connector>,
}

impl Tool {
    pub(crate) fn is_read(&self) -> bool {
        self.contract.effect == EffectClass::Read
    }

    /// The arguments that are secret by what is promised about it, if there is a tool at all.
    pub(crate) fn secret_args(tool: Option<&Self>) -> &[String] {
        tool.map_or(&[], |tool| &tool.contract.secret_args)
    }
}

/// Knows every tool that can be reached. What it does not know is refused.
///
/// Synchronous and in memory: a lookup neither waits nor fails.
pub trait ToolRegistry: fmt::Debug + Send + Sync + 'static {
    /// The tool of that exact name, or `None`.
    fn tool(&self, connector: &ConnectorName, tool: &ToolName) -> Option<Tool>;
}

/// Judges arguments before anything else looks at them. Pure.
pub trait ArgsSchema: fmt::Debug + Send + Sync + 'static {
    /// The first place that does not fit, as a JSON pointer and a sentence without the value.
    fn check(&self, args: &Map<String, Value>) -> Result<(), InvalidArgs>;
}

/// Where arguments do not fit a tool's schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct InvalidArgs {
    /// A JSON pointer into the action, such as `/args/amount`.
    pub path: String,
    /// What is wrong, without the value itself.
    pub problem: String,
}

/// One call, as the connector sees it. The only place where secret arguments are plain.
#[derive(Clone)]
pub struct Call {
    /// Whose action it is.
    pub tenant: TenantId,
    /// Who proposed it.
    pub operator: Option<OperatorName>,
    /// The connector's configured name.
    pub connector: ConnectorName,
    /// Which tool.
    pub tool: ToolName,
    /// The arguments as proposed.
    pub args: Shared<Map<String, Value>>,
    /// The entity whose turn is held.
    pub entity_key: EntityKey,
    /// The planner's key.
    pub idempotency_key: IdempotencyKey,
    /// The key to pass to the vendor: the same for every attempt of this key and generation.
    pub downstream_key: String,
    /// Which attempt this is.
    pub attempt: u32,
    /// How long the whole call may take; the executor gives up then, and so should the connector.
    pub deadline: Duration,
    /// Asked right before the request that can have an effect leaves; see [`Connector::invoke`].
    pub permit: SendPermit,
}

impl fmt::Debug for Call {
    /// Leaves the arguments out: they may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("tenant", &self.tenant)
            .field("connector", &self.connector)
            .field("tool", &self.tool)
            .field("idempotency_key", &self.idempotency_key)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// How a call ended. There is no fourth case: what cannot be classified is `Unknown`.
#[derive(Debug, Clone, PartialEq)]
pub enum InvokeOutcome {
    /// The effect happened.
    Applied(Effect),
    /// Provably, no effect happened.
    NotApplied(ConnectorError),
    /// The effect may have happened, or may still happen.
    Unknown(ConnectorError),
}

/// What the vendor said about an effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// Its answer.
    pub result: Shared<Value>,
    /// Its own id for what it did.
    pub effect_id: Option<String>,
}

impl Effect {
    /// One that the vendor has no id for.
    pub fn of(result: Value) -> Self {
        Self {
            result: result.into(),
            effect_id: None,
        }
    }
}

/// What a connector found when it asked "did it happen?".
#[derive(Debug, Clone, PartialEq)]
pub enum ProbeOutcome {
    /// It did; believed at once.
    Applied(Effect),
    /// It has not; believed only once nothing can land any more.
    NotApplied,
    /// It cannot tell.
    Unknown(ConnectorError),
}

/// What a connector found when it looked at its system without changing anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It is there and lets us in; one line on what was seen.
    Well(String),
    /// It cannot be used as configured, and why.
    Ill(ConnectorError),
    /// The connector has no way to look without an effect.
    Unasked,
}

/// What went wrong in a call, in a sentence for people; never a credential. The executor takes the
/// call's secret arguments out of it; see [`Call::secret_texts`] before cutting what it quotes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConnectorError {
    /// One line, lowercase.
    pub message: String,
}

impl ConnectorError {
    /// An error of one line.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }
}

/// Runs tools against one outside system, and is honest about what it does not know.
#[async_trait]
pub trait Connector: fmt::Debug + Send + Sync + 'static {
    /// Makes the call once. It never retries a request that may have left.
    ///
    /// It asks [`call.permit`](Call::permit) right before the request that can have an effect,
    /// whatever it did before that (connect, greet, fetch a token, list tools), and sends nothing
    /// after a refusal: by then another process may be doing this very action. The executor asks
    /// once itself, before it calls.
    ///
    /// - *Atomic*: whatever the vendor makes so; nothing here.
    /// - *After `Applied`*: the effect happened. *After `NotApplied`*: no effect happened and none
    ///   will, as where the permit was refused. *After `Unknown`*: either; the executor holds the
    ///   entity.
    /// - *If it panics or passes its deadline*: taken as `Unknown`.
    /// - *Dropped half-way*: the effect may still happen; the executor drops it only at the
    ///   deadline and takes that as `Unknown`.
    async fn invoke(&self, call: &Call) -> InvokeOutcome;

    /// What the store runs in the call's place, for a tool that is
    /// [`Transactional`](EffectClass::Transactional): nothing is sent here. Pure.
    ///
    /// - *After `Err`*: nothing is run, and the call is not applied.
    fn prepare(&self, call: &Call) -> Result<Arc<dyn Work>, ConnectorError> {
        Err(ConnectorError::new(format!(
            "connector `{}` has nothing that a store could run for `{}`",
            call.connector, call.tool
        )))
    }

    /// Asks whether an earlier attempt of this very key took effect. It changes nothing.
    ///
    /// - *Atomic*: one look.
    /// - *After `Applied`*: the effect had happened. *After `NotApplied`*: it was not there at some
    ///   moment during the call. *After `Unknown`*: nothing is known.
    /// - *If it panics or passes its deadline*: taken as `Unknown`.
    /// - *Dropped half-way*: nothing changed.
    async fn probe(&self, call: &Call) -> ProbeOutcome {
        ProbeOutcome::Unknown(ConnectorError::new(format!(
            "connector `{}` cannot tell whether `{}` happened",
            call.connector, call.tool
        )))
    }

    /// Looks whether the system can be used: reached, greeted, let in. Never an effect.
    ///
    /// - *Atomic*: one look; nothing anywhere changes.
    /// - *After `Well`*: it could be used at some moment during the call. *After `Ill`*: it could
    ///   not. *After `Unasked`*: nobody looked.
    /// - *If it panics or passes its caller's deadline*: taken as `Ill`.
    /// - *Dropped half-way*: nothing changed.
    async fn check(&self, _tenant: &TenantId) -> Health {
        Health::Unasked
    }
}
