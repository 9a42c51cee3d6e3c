//! The seam for trust: may this action run?

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::action::PlannedAction;
use crate::envelope::EventEnvelope;
use crate::key::{OperatorName, TenantId};

/// What a policy can say. `DEDUP` is not here: only the executor says that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TrustDecision {
    /// Run it.
    Allow,
    /// Run it and raise it for a person.
    Alert,
    /// Do not run it.
    Block,
}

/// All that a decision may rest on.
#[derive(Debug, Clone, Copy)]
pub struct TrustQuestion<'a> {
    /// Whose action it is.
    pub tenant: &'a TenantId,
    /// Who proposes it; nobody by name when a plan is run by hand.
    pub operator: Option<&'a OperatorName>,
    /// The very value that the connector would get.
    pub action: &'a PlannedAction,
    /// The event behind it.
    pub event: Option<&'a EventEnvelope>,
}

/// A decision and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// The decision.
    pub decision: TrustDecision,
    /// The rule that decided; `None` when nothing matched and the default closed the gate.
    pub rule: Option<String>,
    /// The policy the rule stands in.
    pub policy: Option<PolicyRef>,
    /// What the rule saw, in words, for the receipt; never an argument's value.
    pub because: Option<String>,
}

impl Ruling {
    /// The default: nothing speaks for the action.
    pub fn closed(because: impl Into<String>) -> Self {
        Self {
            decision: TrustDecision::Block,
            rule: None,
            policy: None,
            because: Some(because.into()),
        }
    }
}

/// Which text decided: enough to find the exact file again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRef {
    /// The policy's name.
    pub name: String,
    /// Its version.
    pub version: u64,
    /// `sha256:…` of its text.
    pub digest: String,
}

/// Answers with a decision from the question alone: pure, quick, no I/O, no clock.
///
/// - *Atomic*: one call sees one snapshot of the rules.
/// - *After it returns*: the same question against the same rules gives the same ruling.
/// - *If it fails*: it cannot; whatever goes wrong inside is [`TrustDecision::Block`]. A panic is
///   taken as that by the executor.
/// - *Dropped half-way*: it is not async, so there is no half-way.
pub trait TrustPolicy: fmt::Debug + Send + Sync + 'static {
    /// May this action run?
    fn evaluate(&self, question: &TrustQuestion<'_>) -> Ruling;
}
