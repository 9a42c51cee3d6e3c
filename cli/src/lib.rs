//! Everything an agent needs to embed the executor: one name per thing, from one crate.
//!
//! A model proposes, a deterministic executor disposes: at most one effect per key; where the
//! outcome cannot be known, the entity is held and a connector's probe or a person decides; with a
//! vendor that honours keys, effectively once.
//!
//! Of a result, give a model `decision`, `ok`, `result`, `reason` and `error`, never `hint`: it has
//! the commands, and the ids they take, with which a person answers, and whoever may type them can
//! run them. Neither give it the `receipt_id` of what awaits approval, which names the question.
//!
//! Start with [`DeterministicExecutor`] and [`Seams`]; `examples/hold_order.rs` is the whole of it
//! on one page. The binary of this package is the command line over the same parts.

pub use async_trait::async_trait;
pub use operators_connectors::{
    AuthConfig, BasicConfig, BodyEncoding, BodySource, ClientAuth, ConditionConfig,
    ConnectorConfig, ConnectorKind, EffectWord, EnvSecrets, HeaderText, ModeWord, Oauth2Config,
    OutputForm, ProbeConfig, ProjectSecrets, Registry, RegistryError, SecretConfig, SigV4Config,
    Statuses, ToolConfig, ToolErrorWord,
};
pub use operators_kernel::{
    ARGS_BYTES_MAX, ActionResult, ArgsSchema, BLOCKED_BY_TRUST_POLICY, Call, Clock, Connector,
    ConnectorError, ConnectorName, Cursor, DeterministicExecutor, Directive, DirectiveAnswer,
    Disposition, DurableExec, Effect, EffectClass, EntityKey, EventEnvelope, ExecError,
    ExecutionPlan, Forecast, Halt, Health, IdKind, IdempotencyKey, IdentifierError, InFlight,
    InvalidArgs, InvokeOutcome, KEY_BYTES_MAX, KnownBy, Ledger, LedgerEntry, Limit, NAME_BYTES_MAX,
    OnAlert, OnFailure, OnUnknown, OperatorName, Order, Original, OwnerState, PAGE_MAX,
    PLAN_ACTIONS_MAX, PLAN_BYTES_MAX, Person, PlannedAction, PolicyRef, ProbeOutcome, Progress,
    QuestionRef, RECEIPT_VERSION, Reason, Receipt, ReceiptFilter, ReceiptKind, ReceiptOutcome,
    Ruling, RunContext, RunError, Seams, Secret, SecretError, SecretStore, SendPermit, Settings,
    Shared, StoreError, TenantId, Text, Timestamp, Tool, ToolContract, ToolMode, ToolName,
    ToolRegistry, TrustDecision, TrustPolicy, TrustQuestion, WAITERS_MAX, Wait, forecast, json,
    life, log,
};
pub use operators_policies::{
    Check, Explanation, Expression, ExpressionError, Finding, Judgement, Layers, LimitBy,
    LiveRules, LoadError, Magnitude, PatternError, Policy, PolicyError, Predicate, Reach, Reloaded,
    Replayed, Rule, RuleLimit, RuleSet, ToolPattern,
};
pub use operators_seams::{DynamoStore, MemoryStore, PgStore, SqliteStore, SystemClock};
