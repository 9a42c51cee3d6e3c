//! Alerts: what was claimed under `ALERT` and has ended, until a person has seen it.
//!
//! An alert is a note of its receipt's own write, so there is one or neither; what stands is found
//! without looking at receipts. An acknowledgement takes it away and keeps it under another kind.
//! What a person approved beforehand raises nothing: it has been seen.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::action::Disposition;
use crate::clock::Timestamp;
use crate::directive::{Directive, DirectiveAnswer};
use crate::life::controls::{DirectiveStep, Note, NoteError, NoteKind, NoteName, read, write};
use crate::receipt::{KnownBy, Proposal, Receipt, ReceiptKind, ReceiptOutcome};
use crate::shared::Shared;
use crate::text::Text;
use crate::trust::TrustDecision;

/// Something that ran and that a person should see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alert {
    /// What was proposed; its receipt is the alert's.
    pub proposal: Shared<Proposal>,
    /// How it ended, as far as its receipt knew.
    pub outcome: ReceiptOutcome,
    /// Why not ok.
    pub error: Option<String>,
    /// When its end was recorded.
    pub raised_at: Timestamp,
    /// Who has seen it.
    pub acknowledged: Option<Acknowledgement>,
}

/// A person has seen an alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acknowledgement {
    /// Who.
    pub by: String,
    /// How that name is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_by: Option<KnownBy>,
    /// When, by that person's clock.
    pub at: Timestamp,
    /// What it led to, in words.
    pub note: Option<String>,
    /// The receipt of it.
    pub receipt_id: Text,
}

impl NoteName {
    /// The alert of this receipt, while nobody has acknowledged it.
    pub fn alert(receipt_id: &str) -> Self {
        Self {
            kind: NoteKind::Alert,
            name: receipt_id.to_owned(),
        }
    }

    /// The alert of this receipt, once somebody has.
    pub fn acknowledged(receipt_id: &str) -> Self {
        Self {
            kind: NoteKind::Acknowledged,
            name: receipt_id.to_owned(),
        }
    }
}

impl Alert {
    /// Reads a note; nothing if there is none.
    pub fn read(body: Option<&str>) -> Result<Option<Self>, NoteError> {
        read("an alert", body)
    }
}

/// Whether the end of this proposal may raise an alert: a store that writes ends in another way
/// than by [`raised`] leaves these to it.
pub fn may_raise(proposal: &Proposal) -> bool {
    proposal.decision == TrustDecision::Alert
}

/// The alert that the end of a claimed proposal raises, to be written with its receipt.
pub fn raised(proposal: &Shared<Proposal>, receipt: &Receipt) -> Result<Option<Note>, NoteError> {
    // What became known later about an alert is the same alert.
    let is_end =
        receipt.kind == ReceiptKind::Proposal && receipt.decision == Some(Disposition::Alert);
    let outcome = receipt.outcome.filter(|_| is_end);
    let (Some(outcome), None) = (outcome, &receipt.approver) else {
        return Ok(None);
    };
    let alert = Alert {
        proposal: proposal.clone(),
        outcome,
        error: receipt.error.clone(),
        raised_at: receipt.settled_at,
        acknowledged: None,
    };
    Ok(Some(Note {
        name: NoteName::alert(&receipt.receipt_id),
        body: Some(write(&alert)?),
    }))
}

/// Decides an acknowledgement.
pub(super) fn acknowledge(
    directive: &Directive,
    receipt_id: &str,
    found: &BTreeMap<NoteName, Option<String>>,
) -> Result<DirectiveStep, NoteError> {
    let (open, seen) = (
        NoteName::alert(receipt_id),
        NoteName::acknowledged(receipt_id),
    );
    let alert = |name: &NoteName| Alert::read(found.get(name).and_then(Option::as_deref));
    let before = alert(&seen)?.and_then(|alert| alert.acknowledged);
    // The same order again, its answer lost, is the same acknowledgement.
    if before.as_ref().map(|before| &before.receipt_id) == Some(&directive.receipt_id) {
        return Ok(DirectiveStep::unchanged(DirectiveAnswer::Done));
    }
    if let Some(before) = before {
        return Ok(DirectiveStep::unchanged(
            DirectiveAnswer::AcknowledgedBefore(before),
        ));
    }
    let Some(mut alert) = alert(&open)? else {
        return Ok(DirectiveStep::unchanged(DirectiveAnswer::NotRaised));
    };
    alert.acknowledged = Some(Acknowledgement {
        by: directive.by.name.clone(),
        known_by: directive.by.known_by,
        at: directive.at,
        note: directive.note.clone(),
        receipt_id: directive.receipt_id.clone(),
    });
    let kept = Note {
        name: seen,
        body: Some(write(&alert)?),
    };
    let gone = Note {
        name: open,
        body: None,
    };
    Ok(DirectiveStep {
        notes: vec![kept, gone],
        receipt: Some(Box::new(directive.receipt_about(&alert.proposal))),
        answer: DirectiveAnswer::Done,
    })
}
