//! What a person tells the store to do about what runs: the order, its answer, and its receipt.
//!
//! Owns the words of an order. What it does to what is remembered is in `life::controls`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clock::Timestamp;
use crate::key::{
    ConnectorName, EntityKey, IdempotencyKey, IdentifierError, OperatorName, TenantId, ToolName,
};
use crate::life::{Acknowledgement, Answer, NoteError};
use crate::log::Pruning;
use crate::receipt::{AttemptMark, KnownBy, Person, Proposal, Receipt, ReceiptAction, ReceiptKind};
use crate::shared::Shared;
use crate::text::Text;
use crate::trust::TrustDecision;

/// The connector that stands in the receipts of what is no tool's: the executor itself.
const OURSELVES: &str = "operators";

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Nothing of this operator, or nothing at all, is claimed from now on.
    Pause(Option<OperatorName>),
    /// The pause of this operator, or the one of everything, ends.
    Resume(Option<OperatorName>),
    /// What this question asks about may run.
    Approve(QuestionRef),
    /// What this question asks about may not.
    Veto(QuestionRef),
    /// The alert of this receipt has been seen.
    Acknowledge(String),
    /// The texts of the oldest receipts may leave the store: they are in a file that was checked.
    Prune(Box<Pruning>),
}

/// Which question is answered. The key alone would not say: it is proposed with other arguments, and
/// another question stands in the place of the one that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionRef {
    /// The key it is about.
    pub key: IdempotencyKey,
    /// The receipt of the proposal that asked.
    pub receipt_id: Text,
}

/// An order, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive {
    /// What is to be done.
    pub order: Order,
    /// Who orders it.
    pub by: Person,
    /// Why, in words.
    pub note: Option<String>,
    /// The id of the receipt it leaves.
    pub receipt_id: Text,
    /// The caller's clock, for the receipt.
    pub at: Timestamp,
}

/// What became of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectiveAnswer {
    /// It is so from now on, and the receipt is written.
    Done,
    /// It was so already, by this pause; nothing was written.
    PausedBefore(Halt),
    /// There was no such pause; nothing was written.
    NotPaused,
    /// Nobody asks that, or no longer; nothing was written.
    NotAsked,
    /// The question of this receipt stands in its place; nothing was written.
    AskedAnew(Text),
    /// Somebody answered before; nothing was written.
    AnsweredBefore(Answer),
    /// That receipt raised no alert; nothing was written.
    NotRaised,
    /// Somebody acknowledged it before; nothing was written.
    AcknowledgedBefore(Acknowledgement),
    /// It does not go on where the last pruning, if there was one, ended; nothing was written.
    PrunedElsewhere(Option<Box<Pruning>>),
}

/// A pause: who asked for it, when and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Halt {
    /// Who paused.
    pub by: String,
    /// How that name is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_by: Option<KnownBy>,
    /// When, by that person's clock.
    pub at: Timestamp,
    /// Why, in words.
    pub note: Option<String>,
    /// The receipt of the pause.
    pub receipt_id: Text,
}

impl Directive {
    pub(crate) fn halt(&self) -> Halt {
        Halt {
            by: self.by.name.clone(),
            known_by: self.by.known_by,
            at: self.at,
            note: self.note.clone(),
            receipt_id: self.receipt_id.clone(),
        }
    }

    /// The receipt of an order that is about no action: it names itself where an action would stand.
    pub(crate) fn receipt(&self, tenant: &TenantId) -> Result<Receipt, NoteError> {
        let invalid = |error: IdentifierError| NoteError::new("an order", &error);
        let (kind, tool, operator) = match &self.order {
            Order::Pause(operator) => (ReceiptKind::Pause, "pause", operator),
            Order::Resume(operator) => (ReceiptKind::Resume, "resume", operator),
            Order::Prune(_) => (ReceiptKind::Prune, "prune", &None),
            Order::Approve(_) | Order::Veto(_) | Order::Acknowledge(_) => {
                return Err(NoteError::new("an order", &"it is about a proposal"));
            }
        };
        let name = operator.as_ref().map(OperatorName::as_str);
        let (args, entity) = if let Order::Prune(pruning) = &self.order {
            (pruning.args(), "receipts".to_owned())
        } else {
            let operator = name.map_or(Value::Null, Value::from);
            let args = Map::from_iter([("operator".to_owned(), operator)]);
            let entity = name.map(|name| format!("operator:{name}"));
            (args, entity.unwrap_or_else(|| "operators".to_owned()))
        };
        let proposal = Proposal {
            receipt_id: self.receipt_id.clone(),
            tenant_id: tenant.clone(),
            reseller_id: None,
            operator: operator.clone(),
            run_id: self.receipt_id.as_str().into(),
            plan_id: self.receipt_id.as_str().into(),
            event_id: None,
            correlation_id: self.receipt_id.as_str().into(),
            action: Shared::from(ReceiptAction {
                connector: ConnectorName::parse(OURSELVES).map_err(invalid)?,
                tool: ToolName::parse(tool).map_err(invalid)?,
                args: args.into(),
            }),
            value: None,
            entity_key: EntityKey::parse(entity).map_err(invalid)?,
            idempotency_key: IdempotencyKey::parse(self.receipt_id.as_str()).map_err(invalid)?,
            revision: None,
            source_id: None,
            index_hash: None,
            decision: TrustDecision::Allow,
            rule: None,
            policy: None,
            note: None,
            approver: None,
            known_by: None,
            limits: Vec::new(),
            proposed_at: self.at,
        };
        Ok(self.signed(proposal.directed(kind, self.receipt_id.clone(), self.at)))
    }

    /// The receipt of an order about this proposal, which it cites.
    pub(crate) fn receipt_about(&self, proposal: &Proposal) -> Receipt {
        let kind = match self.order {
            Order::Pause(_) => ReceiptKind::Pause,
            Order::Resume(_) => ReceiptKind::Resume,
            Order::Approve(_) => ReceiptKind::Approve,
            Order::Veto(_) => ReceiptKind::Veto,
            Order::Acknowledge(_) => ReceiptKind::Acknowledge,
            Order::Prune(_) => ReceiptKind::Prune,
        };
        self.signed(proposal.directed(kind, self.receipt_id.clone(), self.at))
    }

    fn signed(&self, mut receipt: Receipt) -> Receipt {
        receipt.decided_by(Some(&self.by));
        receipt.note.clone_from(&self.note);
        receipt
    }
}

impl Proposal {
    /// The receipt of an order that is about this proposal, or that stands where one would.
    fn directed(&self, kind: ReceiptKind, receipt_id: Text, at: Timestamp) -> Receipt {
        let mut receipt = self.forgotten(receipt_id, &AttemptMark::none(), at);
        receipt.kind = kind;
        receipt.original_receipt_id = receipt
            .original_receipt_id
            .filter(|original| *original != receipt.receipt_id);
        receipt
    }
}
