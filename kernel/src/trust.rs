//! The seam for trust: may this action run?

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::action::PlannedAction;
use crate::envelope::EventEnvelope;
use crate::key::{OperatorName, TenantId};
use crate::life::LIMIT_MAX;
use crate::shared::Shared;
use crate::text::Text;

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
    pub rule: Option<Text>,
    /// The policy the rule stands in.
    pub policy: Option<Shared<PolicyRef>>,
    /// What the rule saw, in words, for the receipt; never an argument's value.
    pub because: Option<String>,
    /// The limits of every rule that matched, to be checked and counted with the claim.
    pub limits: Vec<Limit>,
    /// What an `ALERT` leads to.
    pub on_alert: OnAlert,
}

/// What an `ALERT` leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnAlert {
    /// The action runs and is raised.
    #[default]
    Notify,
    /// The action waits for a person.
    Approve,
}

/// At most so many applied effects of a tenant in any window of that length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// The rule that sets it, for the receipt of what it stops.
    pub rule: Text,
    /// The policy that rule stands in.
    pub policy: Shared<PolicyRef>,
    /// Which effects are counted together: the same text for all of them, and for no other, in
    /// every process; a tenant's own.
    pub scope: String,
    /// The most effects in a window.
    pub max: u32,
    /// The window; it slides.
    pub window: Duration,
}

impl Ruling {
    /// A decision that rests on no rule.
    pub fn of(decision: TrustDecision) -> Self {
        Self {
            decision,
            rule: None,
            policy: None,
            because: None,
            limits: Vec::new(),
            on_alert: OnAlert::Notify,
        }
    }

    /// The default: nothing speaks for the action.
    pub fn closed(because: impl Into<String>) -> Self {
        Self {
            because: Some(because.into()),
            ..Self::of(TrustDecision::Block)
        }
    }

    /// Closes what no store keeps: a limit nobody can count must not be passed over.
    pub(crate) fn unless_unkept(mut self) -> Self {
        let runs = self.decision != TrustDecision::Block;
        let uncountable = self.limits.iter().any(|limit| limit.max > LIMIT_MAX);
        if runs && uncountable {
            self.decision = TrustDecision::Block;
            self.limits.clear();
            self.because = Some(format!("limits above {LIMIT_MAX} are not counted"));
        }
        self
    }
}

/// Which text decided: enough to find the exact file again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRef {
    /// `sha256:…` of its text.
    pub digest: String,
    /// The policy's name.
    pub name: String,
    /// Its version.
    pub version: u64,
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

    /// May this read be sent? The rules of an action do not speak of it; what bounds its operator
    /// does (rule 6.5). `ALLOW` sends it, anything else blocks it; limits do not count it.
    ///
    /// There is no default: a policy that stands in front of another one and forgot to ask it would
    /// open everything that the other closes. Where nothing bounds reads, the answer is
    /// [`Ruling::of`]`(`[`TrustDecision::Allow`]`)`.
    fn evaluate_read(&self, question: &TrustQuestion<'_>) -> Ruling;
}
