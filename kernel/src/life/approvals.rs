//! Approvals: what a rule wants a person asked about, and that person's answer.
//!
//! A question is bound to what the action says, to the text of the policy that asks, and to the
//! key's generation: an answer about one is none about another. It is asked once per key and stands
//! for [`ASKED_FOR`]; a veto stands for ever. An approval lets nothing past the policy: the policy is
//! asked again when the action is proposed again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::action::{Reason, Refusal};
use crate::clock::Timestamp;
use crate::directive::{Directive, DirectiveAnswer, Order};
use crate::durable::{Claim, Fingerprint};
use crate::key::IdempotencyKey;
use crate::life::controls::{DirectiveStep, Note, NoteError, NoteKind, NoteName, read, write};
use crate::receipt::Proposal;
use crate::shared::Shared;
use crate::text::Text;

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
}

/// What a person said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Whether it may run.
    pub approved: bool,
    /// Who said so.
    pub by: String,
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
    Approved(String),
    /// It waits, or was vetoed; the question, where it is a new one.
    Waits(Refusal, Option<Note>),
}

impl Approval {
    /// Reads a note; nothing if there is none.
    pub fn read(body: Option<&str>) -> Result<Option<Self>, NoteError> {
        read("an approval", body)
    }

    fn of(claim: &Claim, generation: u32) -> Self {
        let span = i64::try_from(ASKED_FOR.as_micros()).unwrap_or(i64::MAX);
        let expires_at = claim.at.as_micros().saturating_add(span);
        Self {
            proposal: claim.proposal.clone(),
            fingerprint: claim.fingerprint,
            generation,
            asked_at: claim.at,
            expires_at: Timestamp::from_micros(expires_at),
            answer: None,
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

    fn note(&self) -> Result<Note, NoteError> {
        Ok(Note {
            name: NoteName::approval(&self.proposal.idempotency_key),
            body: Some(write(self)?),
        })
    }

    fn waits(&self) -> Refusal {
        let key = shell_word(self.proposal.idempotency_key.as_str());
        let expires = self.expires_at;
        self.refusal(format!(
            "a person is asked first, until {expires}: `operators approvals approve {key} \
             --because 'checked'` or `veto`, then propose it again"
        ))
    }

    fn refusal(&self, error: String) -> Refusal {
        Refusal {
            rule: self.proposal.rule.clone(),
            ..Refusal::new(Reason::AwaitingApproval, error)
        }
    }
}

/// What the question about this claim's key says, or a new question.
pub(super) fn asked(
    claim: &Claim,
    generation: u32,
    body: Option<&str>,
) -> Result<Asked, NoteError> {
    let before = Approval::read(body)?.filter(|before| before.is_about(claim, generation));
    if let Some(before) = before {
        match &before.answer {
            Some(veto) if !veto.approved => {
                let why = veto.note.as_ref();
                let why = why.map_or_else(String::new, |why| format!(" ({why})"));
                let (by, at) = (&veto.by, veto.at);
                let error = format!("vetoed by {by} at {at}{why}; propose something else");
                return Ok(Asked::Waits(before.refusal(error), None));
            }
            Some(approval) if !before.is_over(claim.at) => {
                return Ok(Asked::Approved(approval.by.clone()));
            }
            None if !before.is_over(claim.at) => return Ok(Asked::Waits(before.waits(), None)),
            Some(_) | None => {}
        }
    }
    let new = Approval::of(claim, generation);
    Ok(Asked::Waits(new.waits(), Some(new.note()?)))
}

/// Decides an answer to a question.
pub(super) fn answer(
    directive: &Directive,
    body: Option<&str>,
) -> Result<DirectiveStep, NoteError> {
    let unchanged = |answer| Ok(DirectiveStep::unchanged(answer));
    let Some(mut approval) = Approval::read(body)? else {
        return unchanged(DirectiveAnswer::NotAsked);
    };
    match &approval.answer {
        // The same answer again, its own answer lost.
        Some(before) if before.receipt_id == directive.receipt_id => {}
        Some(before) => return unchanged(DirectiveAnswer::AnsweredBefore(before.clone())),
        None if approval.is_over(directive.at) => return unchanged(DirectiveAnswer::NotAsked),
        None => {}
    }
    approval.answer = Some(Answer {
        approved: matches!(directive.order, Order::Approve(_)),
        by: directive.by.clone(),
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

/// A key as one word of a shell: there to be copied.
fn shell_word(key: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if key.chars().all(is_plain) {
        return key.to_owned();
    }
    format!("'{}'", key.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_quoted_where_a_shell_would_split_it() {
        assert_eq!(shell_word("order:SO-1:hold"), "order:SO-1:hold");
        assert_eq!(shell_word("a b; it's"), "'a b; it'\\''s'");
    }
}
