//! The executor: it knows the order of the gates, the life of a key, and every noun.
//!
//! It knows no vendor, no database and no command line, and it reads no clock: all of those are
//! behind the traits that live here. Read `action`, `executor`, `gates`, `durable` and `receipt`,
//! in that order, to follow one action from top to bottom.

#![deny(clippy::wildcard_enum_match_arm)]

mod action;
mod clock;
mod connector;
mod envelope;
pub mod json;
mod key;
mod secret;
mod trust;

pub use action::{
    ARGS_BYTES_MAX, ActionResult, BLOCKED_BY_TRUST_POLICY, Disposition, ExecutionPlan, Original,
    Outcome, PLAN_ACTIONS_MAX, PLAN_BYTES_MAX, PlannedAction, Reason, Refusal,
};
pub use clock::{Clock, IdKind, Timestamp};
pub use connector::{
    ArgsSchema, Call, Connector, ConnectorError, Effect, EffectClass, InvalidArgs, InvokeOutcome,
    OnUnknown, ProbeOutcome, Tool, ToolContract, ToolRegistry,
};
pub use envelope::{EventEnvelope, dotted_matches};
pub use key::{
    ConnectorName, EntityKey, IdempotencyKey, IdentifierError, KEY_BYTES_MAX, NAME_BYTES_MAX,
    OperatorName, TenantId, ToolName,
};
pub use secret::{Secret, SecretError, SecretStore};
pub use trust::{PolicyRef, Ruling, TrustDecision, TrustPolicy, TrustQuestion};
