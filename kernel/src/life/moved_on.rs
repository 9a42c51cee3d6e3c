//! The end of an attempt whose key has moved on since: to its next generation, or to another entity.
//!
//! The key's record tells nothing about such an attempt any more. What was told of it stands in its
//! receipts, and what it did stands with the entity that it was on.

use crate::durable::{SettleAnswer, SettledOutcome, Settlement};
use crate::key::EntityKey;
use crate::life::settle::{DOUBLE_APPLIED, late_receipt_id};
use crate::life::{EntityRecord, KeyRecord};
use crate::receipt::{Receipt, ReceiptOutcome};
use crate::text::Text;

/// The receipts that may tell of a settlement whose key was forgotten since; nothing where its record
/// tells. [`told_in`] says what each of them that is there comes to.
pub fn receipts_to_ask(key: &KeyRecord, settlement: &Settlement) -> Option<[Text; 2]> {
    let own = &settlement.proposal.receipt_id;
    (settlement.mark.generation < key.generation).then(|| [own.clone(), late_receipt_id(own)])
}

/// What a settlement was answered, if this receipt of its attempt says the same: it came before, and
/// its answer was lost. Nothing is written then.
pub fn told_in(
    receipt: &Receipt,
    key: &KeyRecord,
    settlement: &Settlement,
) -> Option<SettleAnswer> {
    let says = match &settlement.outcome {
        SettledOutcome::Applied(_) => ReceiptOutcome::Applied,
        SettledOutcome::NotApplied { .. } => ReceiptOutcome::Failed,
        SettledOutcome::Unknown { .. } => ReceiptOutcome::InDoubt,
    };
    (receipt.outcome == Some(says)).then(|| SettleAnswer {
        receipt_id: receipt.receipt_id.clone(),
        phase: key.phase,
        error: receipt.error.clone(),
        double_applied: receipt.note.as_deref() == Some(DOUBLE_APPLIED),
    })
}

/// The entity on which a settlement took effect, where its key was tried on another since: whatever
/// is older than what happened there is stale, though the key has nothing to do with it any more.
pub fn took_effect_elsewhere<'a>(
    key: &KeyRecord,
    settlement: &'a Settlement,
) -> Option<&'a EntityKey> {
    let proposal = &settlement.proposal;
    let took_effect = matches!(settlement.outcome, SettledOutcome::Applied(_));
    let is_elsewhere = proposal.revision.is_some()
        && took_effect
        && proposal.entity_key != key.proposal.entity_key;
    is_elsewhere.then_some(&proposal.entity_key)
}

/// That entity, to be written with the settlement.
#[must_use]
pub fn with_what_took_effect(mut elsewhere: EntityRecord, settlement: &Settlement) -> EntityRecord {
    elsewhere.note_revision(settlement.proposal.revision);
    elsewhere
}
