//! What stays behind: one receipt per proposal, whatever happened, and how an ending becomes one.
//!
//! Owns the receipt's fields and the only functions that fill them. It must not know where receipts
//! are kept.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use crate::action::{Disposition, LOOK_AT_DOUBTS, Reason, Refusal};
use crate::clock::Timestamp;
use crate::content_digest::ContentDigest;
use crate::durable::{Fence, SessionId};
use crate::key::{ConnectorName, EntityKey, IdempotencyKey, OperatorName, TenantId, ToolName};
use crate::packed::Packed;
use crate::shared::Shared;
use crate::text::Text;
use crate::trust::{PolicyRef, TrustDecision};

/// The version of the receipts that are written now: what fields there are. One that a kept text
/// lacks is null; no kept text is rewritten.
pub const RECEIPT_VERSION: u32 = 2;

/// The version of a receipt that does not say it.
fn first_version() -> u32 {
    1
}

/// What a receipt is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiptKind {
    /// A proposal and how it ended.
    Proposal,
    /// What became known later about an earlier receipt, which it cites.
    Correction,
    /// A key was opened for its next generation, on purpose.
    Forget,
    /// An operator, or everything, was paused.
    Pause,
    /// A pause ended.
    Resume,
    /// A person let an action run that had to wait for one.
    Approve,
    /// A person said no to it.
    Veto,
    /// The key that signs checkpoints was replaced.
    SigningKey,
    /// A person has seen an alert.
    Acknowledge,
    /// The texts of old receipts went into a file and left the store.
    Prune,
}

/// How the name of a person who decided is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KnownBy {
    /// They said so: `--as`.
    As,
    /// The environment said so: `$USER`, `$LOGNAME`.
    Environment,
    /// The system said so: it is the user that the process runs as.
    System,
}

impl KnownBy {
    /// The word in receipts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::As => "as",
            Self::Environment => "environment",
            Self::System => "system",
        }
    }
}

/// A person who decided something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// Their name.
    pub name: String,
    /// How it is known; `None` where a program answers for its own people.
    pub known_by: Option<KnownBy>,
}

impl From<&str> for Person {
    /// One whom a program names.
    fn from(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            known_by: None,
        }
    }
}

impl std::fmt::Display for Person {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// How it ended, for auditors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiptOutcome {
    /// The effect happened (or a read was answered).
    Applied,
    /// Stopped before the connector.
    Refused,
    /// Applied before; nothing happened now.
    Deduplicated,
    /// The connector says nothing happened.
    Failed,
    /// Nobody knows.
    InDoubt,
}

impl ReceiptOutcome {
    /// The word in receipts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Refused => "refused",
            Self::Deduplicated => "deduplicated",
            Self::Failed => "failed",
            Self::InDoubt => "in_doubt",
        }
    }
}

/// The action's part that a receipt shows whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiptAction {
    /// The arguments; secret ones as keyed hashes.
    pub args: Packed<Map<String, Value>>,
    /// The connector named.
    pub connector: ConnectorName,
    /// The tool named.
    pub tool: ToolName,
}

/// Everything about a proposal that is known before it ends. It is written with the intent, so
/// that whoever finds a dead owner's intent can still write its receipt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proposal {
    /// The id of the receipt this proposal will leave.
    pub receipt_id: Text,
    /// Whose it is.
    pub tenant_id: TenantId,
    /// The reseller behind the tenant.
    pub reseller_id: Option<String>,
    /// Who proposed.
    pub operator: Option<OperatorName>,
    /// The run it was part of.
    pub run_id: Text,
    /// The plan it stood in.
    pub plan_id: Text,
    /// The event behind the plan.
    pub event_id: Option<String>,
    /// The thread through sense, reason and act.
    pub correlation_id: Text,
    /// The action.
    pub action: Shared<ReceiptAction>,
    /// Its magnitude.
    pub value: Option<Number>,
    /// Its entity.
    pub entity_key: EntityKey,
    /// Its key.
    pub idempotency_key: IdempotencyKey,
    /// Its revision.
    pub revision: Option<u64>,
    /// Where it came from.
    pub source_id: Option<String>,
    /// The index behind it.
    pub index_hash: Option<String>,
    /// What trust said.
    pub decision: TrustDecision,
    /// The rule that said so.
    pub rule: Option<Text>,
    /// The policy that rule stands in.
    pub policy: Option<Shared<PolicyRef>>,
    /// What the rule saw.
    pub note: Option<String>,
    /// The person who approved it, once one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approver: Option<String>,
    /// How that person's name is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_by: Option<KnownBy>,
    /// The limits it counts towards, by the names of their notes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
    /// When it was proposed.
    pub proposed_at: Timestamp,
}

/// Which attempt of which generation, under whose turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptMark {
    /// The key's generation.
    pub generation: u32,
    /// The attempt, 0 if none was made.
    pub attempt: u32,
    /// The session that acted.
    pub session: Option<SessionId>,
    /// The turn's fence.
    pub fence: Option<Fence>,
    /// The person who approved it, if one had to.
    pub approver: Option<Person>,
}

impl AttemptMark {
    /// For what ended before any attempt, on a key nobody has seen.
    pub fn none() -> Self {
        Self {
            generation: 1,
            attempt: 0,
            session: None,
            fence: None,
            approver: None,
        }
    }
}

/// How a proposal ended, with just what its receipt needs.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending<'a> {
    /// The effect happened, or a read was answered.
    Applied {
        /// Of the result, if there was one to tell.
        result_digest: Option<ContentDigest>,
        /// The vendor's id for it.
        effect_id: Option<String>,
    },
    /// The connector says nothing happened.
    Failed {
        /// What it said.
        error: &'a str,
    },
    /// Nobody knows.
    InDoubt {
        /// What was seen.
        error: &'a str,
    },
    /// Stopped before the connector.
    Refused(&'a Refusal),
    /// Applied before.
    Duplicate {
        /// The receipt of that application.
        original_receipt_id: &'a str,
    },
}

/// One line of the audit trail. Every field is always present, null when empty; they are declared
/// in the order of RFC 8785, so that the text that is kept is written straight through.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// The action; secret arguments as keyed hashes.
    pub action: Shared<ReceiptAction>,
    /// The person who decided, if one did.
    pub approver: Option<String>,
    /// How many attempts the key has had, this one included.
    pub attempt: u32,
    /// The thread through sense, reason and act.
    pub correlation_id: Text,
    /// What became of it; null for what is no proposal.
    pub decision: Option<Disposition>,
    /// The vendor's id for the effect.
    pub effect_id: Option<String>,
    /// Its entity.
    pub entity_key: EntityKey,
    /// Why not ok: what is so.
    pub error: Option<String>,
    /// The event behind the plan.
    pub event_id: Option<String>,
    /// The fence of the turn it acted under.
    pub fence: Option<Fence>,
    /// The key's generation.
    pub generation: u32,
    /// What a person at the terminal may do about it. Never for a model.
    pub hint: Option<String>,
    /// Its key.
    pub idempotency_key: IdempotencyKey,
    /// The index behind it.
    pub index_hash: Option<String>,
    /// What it is about.
    pub kind: ReceiptKind,
    /// How the person's name is known; null where a program says whose decision it was.
    pub known_by: Option<KnownBy>,
    /// What a rule saw, or why a person decided as they did.
    pub note: Option<String>,
    /// Whether the world is as the action asked.
    pub ok: bool,
    /// Who proposed.
    pub operator: Option<OperatorName>,
    /// The receipt this one collapsed into or corrects.
    pub original_receipt_id: Option<Text>,
    /// How it ended; null for what is no proposal.
    pub outcome: Option<ReceiptOutcome>,
    /// The plan.
    pub plan_id: Text,
    /// The policy that rule stands in.
    pub policy: Option<Shared<PolicyRef>>,
    /// When it was proposed.
    pub proposed_at: Timestamp,
    /// Why not ok, for programs.
    pub reason: Option<Reason>,
    /// Its id.
    pub receipt_id: Text,
    /// The reseller behind the tenant.
    pub reseller_id: Option<String>,
    /// `sha256:…` of what the connector answered.
    pub result_digest: Option<String>,
    /// The action's revision.
    pub revision: Option<u64>,
    /// The trust rule that decided.
    pub rule: Option<Text>,
    /// The run.
    pub run_id: Text,
    /// The session that acted.
    pub session: Option<SessionId>,
    /// When its end was recorded.
    pub settled_at: Timestamp,
    /// Where it came from.
    pub source_id: Option<String>,
    /// Whose it is.
    pub tenant_id: TenantId,
    /// Its magnitude.
    pub value: Option<Number>,
    /// Which fields there were when it was written.
    #[serde(default = "first_version")]
    pub version: u32,
}

impl Proposal {
    /// The person who approved it.
    pub fn approved_by(&self) -> Option<Person> {
        let name = self.approver.clone()?;
        let known_by = self.known_by;
        Some(Person { name, known_by })
    }

    /// Names the person who approved it.
    pub fn name_approver(&mut self, approver: Option<Person>) {
        self.known_by = approver.as_ref().and_then(|person| person.known_by);
        self.approver = approver.map(|person| person.name);
    }

    /// The receipt of this proposal.
    pub fn receipt(&self, mark: &AttemptMark, ending: &Ending<'_>, at: Timestamp) -> Receipt {
        let mut receipt = self.blank(mark, at);
        match ending {
            Ending::Applied {
                result_digest,
                effect_id,
            } => {
                receipt.ok = true;
                receipt.outcome = Some(ReceiptOutcome::Applied);
                receipt.result_digest = result_digest.as_ref().map(ContentDigest::text);
                receipt.effect_id.clone_from(effect_id);
            }
            Ending::Failed { error } => {
                receipt.outcome = Some(ReceiptOutcome::Failed);
                receipt.reason = Some(Reason::Failed);
                receipt.error = Some((*error).to_owned());
            }
            Ending::InDoubt { error } => {
                receipt.outcome = Some(ReceiptOutcome::InDoubt);
                receipt.reason = Some(Reason::InDoubt);
                receipt.error = Some((*error).to_owned());
                receipt.hint = Some(LOOK_AT_DOUBTS.to_owned());
            }
            Ending::Refused(refusal) => {
                receipt.decision = Some(Disposition::Block);
                receipt.reason = Some(refusal.reason);
                receipt.error = Some(refusal.error.clone());
                receipt.hint.clone_from(&refusal.hint);
                if refusal.reason != Reason::Policy {
                    receipt.without_ruling();
                }
            }
            Ending::Duplicate {
                original_receipt_id,
            } => {
                receipt.decision = Some(Disposition::Dedup);
                receipt.ok = true;
                receipt.outcome = Some(ReceiptOutcome::Deduplicated);
                receipt.original_receipt_id = Some(Text::from(*original_receipt_id));
                receipt.without_ruling();
            }
        }
        receipt
    }

    /// A receipt that says later what became known about this proposal, citing its own.
    pub fn correction(
        &self,
        receipt_id: Text,
        mark: &AttemptMark,
        ending: &Ending<'_>,
        at: Timestamp,
    ) -> Receipt {
        let mut receipt = self.receipt(mark, ending, at);
        receipt.kind = ReceiptKind::Correction;
        receipt.original_receipt_id = Some(std::mem::replace(&mut receipt.receipt_id, receipt_id));
        receipt
    }

    /// The receipt of opening this key's next generation.
    pub fn forgotten(&self, receipt_id: Text, mark: &AttemptMark, at: Timestamp) -> Receipt {
        let mut receipt = self.blank(mark, at);
        receipt.kind = ReceiptKind::Forget;
        receipt.original_receipt_id = Some(std::mem::replace(&mut receipt.receipt_id, receipt_id));
        receipt.decision = None;
        receipt.outcome = None;
        receipt.ok = true;
        receipt.without_ruling();
        receipt
    }

    fn blank(&self, mark: &AttemptMark, at: Timestamp) -> Receipt {
        Receipt {
            receipt_id: self.receipt_id.clone(),
            kind: ReceiptKind::Proposal,
            tenant_id: self.tenant_id.clone(),
            reseller_id: self.reseller_id.clone(),
            operator: self.operator.clone(),
            run_id: self.run_id.clone(),
            plan_id: self.plan_id.clone(),
            event_id: self.event_id.clone(),
            correlation_id: self.correlation_id.clone(),
            action: self.action.clone(),
            value: self.value.clone(),
            entity_key: self.entity_key.clone(),
            idempotency_key: self.idempotency_key.clone(),
            generation: mark.generation,
            attempt: mark.attempt,
            revision: self.revision,
            source_id: self.source_id.clone(),
            index_hash: self.index_hash.clone(),
            decision: Some(self.decision.into()),
            rule: self.rule.clone(),
            policy: self.policy.clone(),
            ok: false,
            outcome: Some(ReceiptOutcome::Refused),
            reason: None,
            error: None,
            hint: None,
            known_by: self.known_by,
            version: RECEIPT_VERSION,
            note: self.note.clone(),
            result_digest: None,
            effect_id: None,
            original_receipt_id: None,
            approver: self.approver.clone(),
            session: mark.session,
            fence: mark.fence,
            proposed_at: self.proposed_at,
            settled_at: at,
        }
    }
}

impl Receipt {
    /// Names the person who decided.
    pub(crate) fn decided_by(&mut self, person: Option<&Person>) {
        self.approver = person.map(|person| person.name.clone());
        self.known_by = person.and_then(|person| person.known_by);
    }

    /// What ended before trust was asked, as far as an observer can tell, cites no rule.
    fn without_ruling(&mut self) {
        self.rule = None;
        self.policy = None;
        self.note = None;
    }
}
