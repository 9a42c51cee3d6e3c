//! The executor: it knows the order of the gates, the life of a key, and every noun.
//!
//! It knows no vendor, no database and no command line, and it reads no clock: all of those are
//! behind the traits that live here. Read `action`, `executor`, `gates`, `durable` and `receipt`,
//! in that order, to follow one action from top to bottom.

#![deny(clippy::wildcard_enum_match_arm)]

mod action;
mod admission;
mod clock;
mod connector;
mod content_digest;
mod directive;
mod durable;
mod envelope;
mod error;
mod executor;
mod folded;
pub mod gates;
pub mod json;
mod kernel;
mod key;
mod keyless;
mod lease;
mod ledger;
pub mod life;
pub mod log;
mod namespace;
mod packed;
mod permit;
mod proposed;
mod receipt;
mod redact;
mod rehearse;
mod reply;
mod said;
mod secret;
mod setup;
mod shared;
mod single_flight;
mod slip;
mod standstill;
mod text;
mod trust;
mod within;
mod work;

pub use action::{
    ARGS_BYTES_MAX, ActionResult, BLOCKED_BY_TRUST_POLICY, Disposition, ExecutionPlan, Original,
    Outcome, PLAN_ACTIONS_MAX, PLAN_BYTES_MAX, PlannedAction, Reason, Refusal,
};
pub use clock::{Clock, IdKind, Timestamp};
pub use connector::{
    ArgsSchema, Call, Connector, ConnectorError, Effect, EffectClass, Health, InvalidArgs,
    InvokeOutcome, OnUnknown, ProbeOutcome, Tool, ToolContract, ToolMode, ToolRegistry,
};
pub use content_digest::{ContentDigest, NoDigest};
pub use directive::{Directive, DirectiveAnswer, Halt, Order, QuestionRef};
pub use durable::{
    Beat, Claim, ClaimAnswer, Clearance, DurableExec, Fence, Fingerprint, Forget, ForgetAnswer,
    OnDoubt, Resolution, ResolveAnswer, Resolver, SessionId, SettleAnswer, SettledOutcome,
    Settlement, StoreError, StoreTime, Ticket, Verdict,
};
pub use envelope::{EventEnvelope, dotted_matches};
pub use error::{ExecError, RunError};
pub use executor::DeterministicExecutor;
pub use folded::Folded;
pub use key::{
    ConnectorName, EntityKey, IdempotencyKey, IdentifierError, KEY_BYTES_MAX, NAME_BYTES_MAX,
    OperatorName, TenantId, ToolName,
};
pub use ledger::{
    Cursor, Glimpse, InFlight, Ledger, LedgerEntry, OwnerState, PAGE_MAX, ReceiptFilter,
    TenantHistory,
};
pub use packed::Packed;
pub use permit::SendPermit;
pub use receipt::{
    AttemptMark, Ending, KnownBy, Person, Proposal, RECEIPT_VERSION, Receipt, ReceiptAction,
    ReceiptKind, ReceiptOutcome,
};
pub use redact::{RedactionKey, SecretText};
pub use rehearse::{Forecast, Wait, forecast};
pub use said::RESULT_BYTES_MAX;
pub use secret::{Secret, SecretError, SecretStore};
pub use setup::{OnFailure, Progress, RunContext, Seams, Settings, WAITERS_MAX};
pub use shared::Shared;
pub use slip::Slip;
pub use standstill::Standstills;
pub use text::Text;
pub use trust::{Limit, OnAlert, PolicyRef, Ruling, TrustDecision, TrustPolicy, TrustQuestion};
pub use work::{Performance, Performed, Rows, Statement, Work};
