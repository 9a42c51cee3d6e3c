//! What people and limits say about a claim that everything else lets through.
//!
//! What is remembered for that are *notes*: small texts of a tenant that a store keeps by name,
//! reads and writes in the same transaction as the claim, and does not understand. Only what is here
//! does. A note that cannot be read stops the claim.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::action::{Reason, Refusal};
use crate::directive::{Directive, DirectiveAnswer, Halt, Order};
use crate::durable::Claim;
use crate::key::{OperatorName, TenantId};
use crate::life::KeyRecord;
use crate::life::alerts::acknowledge;
use crate::life::approvals::{Asked, answer, asked};
use crate::life::claim::seen;
use crate::life::limits::take_slots;
use crate::life::retention::prune;
use crate::receipt::{Ending, Person, Receipt};
use crate::trust::OnAlert;

/// What a note is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoteKind {
    /// What is paused: one note for all of a tenant.
    Pause,
    /// The slots of a limit.
    Limit,
    /// A question to a person about a key.
    Approval,
    /// Something that ran and that a person should see.
    Alert,
    /// The same, once somebody has.
    Acknowledged,
    /// Up to where receipts were pruned: one note for all of a tenant.
    Pruned,
}

impl NoteKind {
    /// The word in stores.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Limit => "limit",
            Self::Approval => "approval",
            Self::Alert => "alert",
            Self::Acknowledged => "acknowledged",
            Self::Pruned => "pruned",
        }
    }
}

/// Which note of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NoteName {
    /// What it is about.
    pub kind: NoteKind,
    /// Which one of its kind: 1–512 bytes.
    pub name: String,
}

impl NoteName {
    /// The one note about what is paused.
    pub fn pause() -> Self {
        Self::paused().clone()
    }

    /// The same, to be asked for with every claim.
    pub fn paused() -> &'static Self {
        static PAUSED: LazyLock<NoteName> = LazyLock::new(|| NoteName {
            kind: NoteKind::Pause,
            name: "all".to_owned(),
        });
        &PAUSED
    }
}

/// A note to write; without a text it is taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Which one.
    pub name: NoteName,
    /// What it says from now on.
    pub body: Option<String>,
}

/// A note, or an order, that says nothing that can be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be understood: {problem}")]
pub struct NoteError {
    what: &'static str,
    problem: String,
}

impl NoteError {
    pub(crate) fn new(what: &'static str, problem: &impl ToString) -> Self {
        Self {
            what,
            problem: problem.to_string(),
        }
    }
}

/// What is paused, of one tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pauses {
    /// The pause of everything.
    pub everything: Option<Halt>,
    /// The pauses of single operators.
    pub operators: BTreeMap<OperatorName, Halt>,
}

impl Pauses {
    /// Reads the note; without one, nothing is paused.
    pub fn read(body: Option<&str>) -> Result<Self, NoteError> {
        Ok(read("what is paused", body)?.unwrap_or_default())
    }

    fn place(&mut self, operator: Option<&OperatorName>) -> Option<Halt> {
        match operator {
            None => self.everything.take(),
            Some(name) => self.operators.remove(name),
        }
    }

    fn note(&self) -> Result<Note, NoteError> {
        let is_empty = self.everything.is_none() && self.operators.is_empty();
        Ok(Note {
            name: NoteName::pause(),
            body: (!is_empty).then(|| write(self)).transpose()?,
        })
    }

    /// Why this claim is not granted, if a pause stops it.
    pub fn stop(&self, claim: &Claim) -> Option<Refusal> {
        let operator = claim.proposal.operator.as_ref();
        let own = operator.and_then(|name| Some((name, self.operators.get(name)?)));
        let (what, halt, option) = match (&self.everything, own) {
            (Some(halt), _) => ("everything".to_owned(), halt, String::new()),
            (None, Some((name, halt))) => (
                format!("operator `{name}`"),
                halt,
                format!(" --operator {name}"),
            ),
            (None, None) => return None,
        };
        let (by, at) = (&halt.by, halt.at);
        let why = halt.note.as_ref();
        let why = why.map_or_else(String::new, |why| format!(" ({why})"));
        let error = format!("{what} is paused by {by} since {at}{why}");
        let hint = format!("`operators resume{option}` lets it go on");
        Some(Refusal::new(Reason::Paused, error).with_hint(hint))
    }
}

/// Whether nothing but a pause can stop this claim, which everything else lets through.
pub fn is_let_through_unless_paused(claim: &Claim) -> bool {
    claim.limits.is_empty() && claim.on_alert == OnAlert::Notify
}

/// The notes that decide whether this claim, which everything else lets through, is granted.
pub fn wanted(claim: &Claim) -> Vec<NoteName> {
    let limits = claim.limits.iter().map(NoteName::limit);
    let question = match claim.on_alert {
        OnAlert::Approve => Some(NoteName::approval(&claim.proposal.idempotency_key)),
        OnAlert::Notify => None,
    };
    let pause = std::iter::once(NoteName::pause());
    pause.chain(question).chain(limits).collect()
}

/// What becomes of a grant.
#[derive(Debug, Clone, PartialEq)]
pub enum Through {
    /// It is granted.
    Granted(Grant),
    /// It is refused after all.
    Held(Box<Hold>),
}

/// What is written with a grant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grant {
    /// The notes.
    pub notes: Vec<Note>,
    /// The person who approved it, if one had to; it stands in the key's proposal.
    pub approver: Option<Person>,
}

/// A refusal of what everything else lets through.
#[derive(Debug, Clone, PartialEq)]
pub struct Hold {
    /// The receipt to write.
    pub receipt: Receipt,
    /// The answer.
    pub refusal: Refusal,
    /// The attempts the key has had.
    pub attempt: u32,
    /// The notes to write with the receipt.
    pub notes: Vec<Note>,
}

impl Hold {
    fn new(key: Option<&KeyRecord>, claim: &Claim, refusal: Refusal) -> Self {
        let mark = seen(key);
        let ending = Ending::Refused(&refusal);
        Self {
            receipt: claim.proposal.receipt(&mark, &ending, claim.at),
            refusal,
            attempt: mark.attempt,
            notes: Vec::new(),
        }
    }
}

/// Decides a claim that everything else lets through. `key` is the key as it was before, `found` what
/// each of the [`wanted`] notes says.
pub fn let_through(
    key: Option<&KeyRecord>,
    claim: &Claim,
    found: &BTreeMap<NoteName, Option<String>>,
) -> Result<Through, NoteError> {
    let body = |name: &NoteName| found.get(name).and_then(Option::as_deref);
    let pauses = Pauses::read(body(&NoteName::pause()))?;
    if let Some(refusal) = pauses.stop(claim) {
        return Ok(Through::Held(Box::new(Hold::new(key, claim, refusal))));
    }
    let generation = key.map_or(1, |key| key.generation);
    let mut approver = None;
    if claim.on_alert == OnAlert::Approve {
        let name = NoteName::approval(&claim.proposal.idempotency_key);
        match asked(claim, generation, body(&name))? {
            Asked::Approved(by) => approver = Some(by),
            Asked::Waits(refusal, question) => {
                let mut hold = Hold::new(key, claim, refusal);
                hold.receipt.rule.clone_from(&claim.proposal.rule);
                hold.receipt.policy.clone_from(&claim.proposal.policy);
                hold.notes.extend(question);
                return Ok(Through::Held(Box::new(hold)));
            }
        }
    }
    let slots = take_slots(claim, generation, |name| body(name).map(str::to_owned))?;
    Ok(match slots {
        Ok(notes) => Through::Granted(Grant { notes, approver }),
        Err((limit, refusal)) => {
            let mut hold = Hold::new(key, claim, refusal);
            hold.receipt.rule = Some(limit.rule);
            hold.receipt.policy = Some(limit.policy);
            Through::Held(Box::new(hold))
        }
    })
}

/// What a store does about an order.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectiveStep {
    /// The notes to write.
    pub notes: Vec<Note>,
    /// The receipt to write.
    pub receipt: Option<Box<Receipt>>,
    /// The answer.
    pub answer: DirectiveAnswer,
}

impl DirectiveStep {
    /// Nothing is written.
    pub(super) fn unchanged(answer: DirectiveAnswer) -> Self {
        Self {
            notes: Vec::new(),
            receipt: None,
            answer,
        }
    }
}

impl Directive {
    /// The notes that decide it.
    pub fn note_names(&self) -> Vec<NoteName> {
        match &self.order {
            Order::Pause(_) | Order::Resume(_) => vec![NoteName::pause()],
            Order::Approve(asked) | Order::Veto(asked) => vec![NoteName::approval(&asked.key)],
            Order::Acknowledge(id) => vec![NoteName::acknowledged(id), NoteName::alert(id)],
            Order::Prune(_) => vec![NoteName::pruned()],
        }
    }
}

/// Decides an order; `found` is what each of its notes says.
pub fn direct(
    tenant: &TenantId,
    directive: &Directive,
    found: &BTreeMap<NoteName, Option<String>>,
) -> Result<DirectiveStep, NoteError> {
    let body = |name: &NoteName| found.get(name).and_then(Option::as_deref);
    let unchanged = DirectiveStep::unchanged;
    let read = || Pauses::read(body(&NoteName::pause()));
    let pauses = match &directive.order {
        Order::Approve(asked) | Order::Veto(asked) => {
            return answer(directive, asked, body(&NoteName::approval(&asked.key)));
        }
        Order::Acknowledge(receipt_id) => return acknowledge(directive, receipt_id, found),
        Order::Prune(pruning) => {
            return prune(tenant, directive, pruning, body(&NoteName::pruned()));
        }
        Order::Pause(operator) => {
            let mut pauses = read()?;
            let before = pauses.place(operator.as_ref());
            // The same order again, its answer lost, is the same pause.
            if let Some(halt) = before.filter(|halt| halt.receipt_id != directive.receipt_id) {
                return Ok(unchanged(DirectiveAnswer::PausedBefore(halt)));
            }
            let halt = directive.halt();
            match operator {
                None => pauses.everything = Some(halt),
                Some(name) => drop(pauses.operators.insert(name.clone(), halt)),
            }
            pauses
        }
        Order::Resume(operator) => {
            let mut pauses = read()?;
            if pauses.place(operator.as_ref()).is_none() {
                return Ok(unchanged(DirectiveAnswer::NotPaused));
            }
            pauses
        }
    };
    Ok(DirectiveStep {
        notes: vec![pauses.note()?],
        receipt: Some(Box::new(directive.receipt(tenant)?)),
        answer: DirectiveAnswer::Done,
    })
}

pub(super) fn read<T: DeserializeOwned>(
    what: &'static str,
    body: Option<&str>,
) -> Result<Option<T>, NoteError> {
    let read = body.map(serde_json::from_str).transpose();
    read.map_err(|error| NoteError::new(what, &error))
}

pub(super) fn write(value: &impl Serialize) -> Result<String, NoteError> {
    serde_json::to_string(value).map_err(|error| NoteError::new("a note", &error))
}
