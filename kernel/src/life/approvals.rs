//! Approvals: what a rule wants a person asked about, and that person's answer.
//!
//! A question is bound to what the action says, to the text of the policy that asks, and to the
//! key's generation: an answer about one is none about another. A key has one question at a time,
//! which stands for [`ASKED_FOR`]; another takes its place when the key is proposed with something
//! else, so an answer says by receipt which one it is about. Vetoes outlive that: they stand for
//! ever. An approval lets nothing past the policy: the policy is asked again when the action is
//! proposed again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::action::{Reason, Refusal};
use crate::clock::Timestamp;
use crate::directive::{Directive, DirectiveAnswer, Order, QuestionRef};
use crate::durable::{Claim, Fingerprint};
use crate::key::IdempotencyKey;
use crate::life::controls::{DirectiveStep, Note, NoteError, NoteKind, NoteName, read, write};
use crate::receipt::{KnownBy, Person, Proposal};
use crate::shared::Shared;
use crate::text::Text;
use crate::trust::PolicyRef;

/// How long a question may wait for its answer, and an approval for its action.
pub const ASKED_FOR: Duration = Duration::from_hours(72);

/// A question to a person, and the answer once there is one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// What was proposed; its receipt is the question's.
    pub proposal: Shared<Proposal>,
    /// What the action says, as one hash.
    pub fingerprint: Fingerprint,
    /// The key's generation.
    pub generation: u32,
    /// When it was asked, by the proposer's clock.
    pub asked_at: Timestamp,
    /// From then on it is asked anew.
    pub expires_at: Timestamp,
    /// What a person said.
    pub answer: Option<Answer>,
    /// What a person vetoed of this key before another question took its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    vetoes: Vec<Veto>,
}

/// A veto, and all that tells whether a proposal is the one that was vetoed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Veto {
    /// The receipt of the question.
    question: Text,
    fingerprint: Fingerprint,
    generation: u32,
    policy: Option<Shared<PolicyRef>>,
    answer: Answer,
}

/// What a person said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Whether it may run.
    pub approved: bool,
    /// Who said so.
    pub by: String,
    /// How that name is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_by: Option<KnownBy>,
    /// When, by that person's clock.
    pub at: Timestamp,
    /// Why, in words.
    pub note: Option<String>,
    /// The receipt of the answer.
    pub receipt_id: Text,
}

impl NoteName {
    /// The question about a key.
    pub fn approval(key: &IdempotencyKey) -> Self {
        Self {
            kind: NoteKind::Approval,
            name: key.as_str().to_owned(),
        }
    }
}

/// What an approval makes of a claim that needs one.
pub(super) enum Asked {
    /// It may run; this person said so.
    Approved(Person),
    /// It waits, or was vetoed; the question, where it is a new one.
    Waits(Refusal, Option<Note>),
}

impl Approval {
    /// Reads a note; nothing if there is none.
    pub fn read(body: Option<&str>) -> Result<Option<Self>, NoteError> {
        read("an approval", body)
    }

    fn of(claim: &Claim, generation: u32, vetoes: Vec<Veto>) -> Self {
        let span = i64::try_from(ASKED_FOR.as_micros()).unwrap_or(i64::MAX);
        let expires_at = claim.at.as_micros().saturating_add(span);
        Self {
            proposal: claim.proposal.clone(),
            fingerprint: claim.fingerprint,
            generation,
            asked_at: claim.at,
            expires_at: Timestamp::from_micros(expires_at),
            answer: None,
            vetoes,
        }
    }

    fn is_about(&self, claim: &Claim, generation: u32) -> bool {
        self.fingerprint == claim.fingerprint
            && self.generation == generation
            && self.proposal.policy == claim.proposal.policy
    }

    /// Whether an answer, or the action, comes too late.
    pub fn is_over(&self, at: Timestamp) -> bool {
        at >= self.expires_at
    }

    /// Whether a person can answer it.
    pub fn is_open(&self, at: Timestamp) -> bool {
        self.answer.is_none() && !self.is_over(at)
    }

    /// Everything of this key that was vetoed.
    fn into_vetoes(self) -> Vec<Veto> {
        let mut vetoes = self.vetoes;
        let veto = self.answer.filter(|answer| !answer.approved);
        vetoes.extend(veto.map(|answer| Veto {
            question: self.proposal.receipt_id.clone(),
            fingerprint: self.fingerprint,
            generation: self.generation,
            policy: self.proposal.policy.clone(),
            answer,
        }));
        vetoes
    }

    /// What is said to an answer about a question that stands here no more.
    fn instead_of(&self, question: &QuestionRef, directive: &Directive) -> DirectiveAnswer {
        let mut vetoes = self.vetoes.iter();
        match vetoes.find(|veto| veto.question == question.receipt_id) {
            // The same answer again, its own answer lost.
            Some(veto) if veto.answer.receipt_id == directive.receipt_id => DirectiveAnswer::Done,
            Some(veto) => DirectiveAnswer::AnsweredBefore(veto.answer.clone()),
            None if self.is_open(directive.at) => {
                DirectiveAnswer::AskedAnew(self.proposal.receipt_id.clone())
            }
            None => DirectiveAnswer::NotAsked,
        }
    }

    fn note(&self) -> Result<Note, NoteError> {
        Ok(Note {
            name: NoteName::approval(&self.proposal.idempotency_key),
            body: Some(write(self)?),
        })
    }

    fn waits(&self) -> Refusal {
        let (question, expires) = (&self.proposal.receipt_id, self.expires_at);
        let error = format!(
            "a person is asked first, until {expires}; once one approved, propose it again"
        );
        let hint = format!(
            "`operators approvals approve {question} --because 'checked'` or `veto` answers it"
        );
        refusal(&self.proposal, error).with_hint(hint)
    }
}

impl Veto {
    fn is_of(&self, claim: &Claim, generation: u32) -> bool {
        self.fingerprint == claim.fingerprint
            && self.generation == generation
            && self.policy == claim.proposal.policy
    }

    fn stops(&self, claim: &Claim) -> Refusal {
        let Answer { by, at, note, .. } = &self.answer;
        let why = note.as_ref();
        let why = why.map_or_else(String::new, |why| format!(" ({why})"));
        let error = format!("vetoed by {by} at {at}{why}; propose something else");
        refusal(&claim.proposal, error)
    }
}

fn refusal(proposal: &Proposal, error: String) -> Refusal {
    Refusal {
        rule: proposal.rule.clone(),
        ..Refusal::new(Reason::AwaitingApproval, error)
    }
}

/// What the question about this claim's key says, or a new question.
pub(super) fn asked(
    claim: &Claim,
    generation: u32,
    body: Option<&str>,
) -> Result<Asked, NoteError> {
    let before = Approval::read(body)?;
    let same = before
        .as_ref()
        .filter(|before| before.is_about(claim, generation) && !before.is_over(claim.at));
    if let Some(same) = same {
        match &same.answer {
            None => return Ok(Asked::Waits(same.waits(), None)),
            Some(yes) if yes.approved => {
                return Ok(Asked::Approved(Person {
                    name: yes.by.clone(),
                    known_by: yes.known_by,
                }));
            }
            // It is among the vetoes, which are never over.
            Some(_) => {}
        }
    }
    let vetoes = before.map_or_else(Vec::new, Approval::into_vetoes);
    if let Some(veto) = vetoes.iter().find(|veto| veto.is_of(claim, generation)) {
        return Ok(Asked::Waits(veto.stops(claim), None));
    }
    let new = Approval::of(claim, generation, vetoes);
    Ok(Asked::Waits(new.waits(), Some(new.note()?)))
}

/// Decides an answer to a question.
pub(super) fn answer(
    directive: &Directive,
    question: &QuestionRef,
    body: Option<&str>,
) -> Result<DirectiveStep, NoteError> {
    let unchanged = |answer| Ok(DirectiveStep::unchanged(answer));
    let Some(mut approval) = Approval::read(body)? else {
        return unchanged(DirectiveAnswer::NotAsked);
    };
    // INVARIANT (answered-as-seen): whoever answers saw what this receipt shows. What else was asked
    // about the key since then was not seen, and is not answered.
    if approval.proposal.receipt_id != question.receipt_id {
        return unchanged(approval.instead_of(question, directive));
    }
    match &approval.answer {
        // The same answer again, its own answer lost.
        Some(before) if before.receipt_id == directive.receipt_id => {}
        Some(before) => return unchanged(DirectiveAnswer::AnsweredBefore(before.clone())),
        None if approval.is_over(directive.at) => return unchanged(DirectiveAnswer::NotAsked),
        None => {}
    }
    approval.answer = Some(Answer {
        approved: matches!(directive.order, Order::Approve(_)),
        by: directive.by.name.clone(),
        known_by: directive.by.known_by,
        at: directive.at,
        note: directive.note.clone(),
        receipt_id: directive.receipt_id.clone(),
    });
    Ok(DirectiveStep {
        notes: vec![approval.note()?],
        receipt: Some(Box::new(directive.receipt_about(&approval.proposal))),
        answer: DirectiveAnswer::Done,
    })
}
