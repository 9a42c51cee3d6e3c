//! What the end of an attempt does to its key, early, late or twice.

use crate::durable::{SettleAnswer, SettledOutcome, Settlement};
use crate::life::{Application, EntityRecord, KeyRecord, Phase, Said};
use crate::receipt::{Ending, Proposal};
use crate::shared::Shared;
use crate::slip::Slip;
use crate::text::Text;

/// What the receipt notes of an effect that was not the first of its key.
pub(super) const DOUBLE_APPLIED: &str = "double_applied: two attempts of this key took effect";

/// What a store does about one settlement.
#[derive(Debug, Clone, PartialEq)]
pub struct SettleStep {
    /// The key to write; `None` if it stays as it is.
    pub key: Option<Shared<KeyRecord>>,
    /// The entity to write; `None` if it stays as it is.
    pub entity: Option<EntityRecord>,
    /// The receipt to write; `None` if it was written before.
    pub receipt: Option<Slip>,
    /// The answer.
    pub answer: SettleAnswer,
}

/// Decides one settlement against its key's record and the record of that key's entity (which, for
/// an attempt of long ago, need not be the settlement's; see
/// [`took_effect_elsewhere`](super::took_effect_elsewhere)). One whose key was forgotten since is
/// looked for in its receipts first: see [`receipts_to_ask`](super::receipts_to_ask).
///
/// A settlement is accepted from whoever made the attempt, dead session or not: it has the truth
/// about that attempt. It moves nothing but what that truth decides.
pub fn settle(key: &KeyRecord, entity: &EntityRecord, settlement: &Settlement) -> SettleStep {
    let mark = &settlement.mark;
    let is_current = key.generation == mark.generation
        && key.attempt == mark.attempt
        && key.proposal.receipt_id == settlement.proposal.receipt_id;
    match (is_current, key.phase) {
        (true, Phase::Intent) => on_time(key, entity, settlement),
        _ if was_settled_before(key, settlement) => unchanged(key, settlement),
        _ => late(key, entity, settlement, is_current),
    }
}

fn on_time(key: &KeyRecord, entity: &EntityRecord, settlement: &Settlement) -> SettleStep {
    let mut key = key.clone();
    let mut entity = entity.clone();
    let earlier_applied = key.application.take();
    let mut double_applied = false;
    let mut error = None;
    match (&settlement.outcome, earlier_applied) {
        (SettledOutcome::Applied(effect), earlier) => {
            double_applied = earlier.is_some() && !key.repeats_are_harmless();
            let receipt_id = settlement.proposal.receipt_id.clone();
            key.set_applied(settlement.mark.attempt, receipt_id, settlement.at, effect);
            if let Some(application) = &mut key.application {
                application.double_applied = double_applied;
            }
        }
        // A late answer told meanwhile that an earlier attempt took effect: that is the truth,
        // whatever became of this one.
        (SettledOutcome::NotApplied { error: why }, Some(earlier)) => {
            key.phase = Phase::Applied;
            key.application = Some(earlier);
            error = Some(why.clone());
        }
        (SettledOutcome::Unknown { error: why }, Some(earlier)) => {
            key.phase = Phase::Applied;
            key.application = Some(earlier);
            key.add_open_attempt(key.attempt, key.quiescent_at);
            error = Some(why.clone());
        }
        (SettledOutcome::NotApplied { error: why }, None) => {
            // R5: a definite failure of a retry says nothing about an earlier attempt.
            key.phase = if key.open_attempts.is_empty() {
                Phase::Failed
            } else {
                Phase::InDoubt
            };
            error = Some(not_applied(why, &key));
        }
        (SettledOutcome::Unknown { error: why }, None) => {
            key.add_open_attempt(key.attempt, key.quiescent_at);
            key.phase = Phase::InDoubt;
            error = Some(why.clone());
        }
    }
    entity.release_if_held_by(key.session, key.fence);
    finish(key, entity, settlement, error, double_applied)
}

/// What a definite failure says, with why that may not be the end of it.
fn not_applied(why: &str, key: &KeyRecord) -> String {
    match key.phase {
        Phase::InDoubt => format!("{why} (an earlier attempt is undecided, so the doubt stays)"),
        Phase::Intent | Phase::Applied | Phase::Failed | Phase::WrittenOff | Phase::Forgotten => {
            why.to_owned()
        }
    }
}

fn finish(
    mut key: KeyRecord,
    mut entity: EntityRecord,
    settlement: &Settlement,
    error: Option<String>,
    double_applied: bool,
) -> SettleStep {
    let took_effect = matches!(settlement.outcome, SettledOutcome::Applied(_));
    if took_effect && settlement.proposal.entity_key == key.proposal.entity_key {
        entity.note_revision(settlement.proposal.revision);
    }
    if key.phase == Phase::Applied {
        entity.wait_for_open_attempts(&key);
        key.bind_to_what_was_applied();
    }
    entity.note_doubt(&key);
    let receipt = slip_of(settlement, error.as_deref(), double_applied);
    let answer = SettleAnswer {
        receipt_id: settlement.proposal.receipt_id.clone(),
        phase: key.phase,
        error,
        double_applied,
    };
    SettleStep {
        key: Some(key.into()),
        entity: Some(entity),
        receipt: Some(receipt),
        answer,
    }
}

fn slip_of(settlement: &Settlement, error: Option<&str>, double_applied: bool) -> Slip {
    let (proposal, mark, at) = (&settlement.proposal, &settlement.mark, settlement.at);
    match &settlement.outcome {
        SettledOutcome::Applied(effect) if !double_applied => Slip::Applied {
            proposal: proposal.clone(),
            mark: mark.clone(),
            result_digest: settlement.result_digest,
            effect_id: effect.effect_id.clone(),
            at,
        },
        SettledOutcome::Applied(_)
        | SettledOutcome::NotApplied { .. }
        | SettledOutcome::Unknown { .. } => {
            let mut receipt = proposal.receipt(mark, &ending_of(settlement, error), at);
            if double_applied {
                receipt.note = Some(DOUBLE_APPLIED.to_owned());
            }
            receipt.into()
        }
    }
}

fn ending_of<'a>(settlement: &'a Settlement, error: Option<&'a str>) -> Ending<'a> {
    match &settlement.outcome {
        SettledOutcome::Applied(effect) => Ending::Applied {
            result_digest: settlement.result_digest,
            effect_id: effect.effect_id.clone(),
        },
        SettledOutcome::NotApplied { error: why } => Ending::Failed {
            error: error.unwrap_or(why),
        },
        SettledOutcome::Unknown { error: why } => Ending::InDoubt {
            error: error.unwrap_or(why),
        },
    }
}

/// The same settlement came before and its answer was lost; or what it says is known already.
fn was_settled_before(key: &KeyRecord, settlement: &Settlement) -> bool {
    match &settlement.outcome {
        SettledOutcome::Applied(_) => told_by(key, &settlement.proposal.receipt_id).is_some(),
        SettledOutcome::NotApplied { .. } => {
            let attempt = settlement.mark.attempt;
            let burned_by_this = key
                .application
                .as_ref()
                .is_some_and(|application| application.attempt == attempt);
            // An attempt that is neither open nor said to have taken effect is known to have failed.
            key.generation == settlement.mark.generation
                && !key.open_attempts.contains(&attempt)
                && !burned_by_this
        }
        // "Not known" adds nothing to any phase it can meet late.
        SettledOutcome::Unknown { .. } => true,
    }
}

/// How this very settlement burned the key, if it did.
pub(super) fn told_by<'a>(key: &'a KeyRecord, own: &str) -> Option<&'a Application> {
    key.application.as_ref().filter(|application| {
        let receipt_id = &application.original.receipt_id;
        *receipt_id == *own || *receipt_id == late_receipt_id(own)
    })
}

fn unchanged(key: &KeyRecord, settlement: &Settlement) -> SettleStep {
    let told = told_by(key, &settlement.proposal.receipt_id);
    let error = match &settlement.outcome {
        SettledOutcome::Applied(_) => None,
        SettledOutcome::NotApplied { error } => Some(not_applied(error, key)),
        SettledOutcome::Unknown { error } => Some(error.clone()),
    };
    let answer = SettleAnswer {
        receipt_id: told
            .map_or(&settlement.proposal.receipt_id, |told| {
                &told.original.receipt_id
            })
            .clone(),
        phase: key.phase,
        error,
        double_applied: told.is_some_and(|told| told.double_applied),
    };
    SettleStep {
        key: None,
        entity: None,
        receipt: None,
        answer,
    }
}

/// The attempt's receipt was written by somebody else (its owner was taken for dead, or a person
/// answered); now its owner tells the truth. A correction says so.
fn late(
    key: &KeyRecord,
    entity: &EntityRecord,
    settlement: &Settlement,
    is_current: bool,
) -> SettleStep {
    let mut key = key.clone();
    let mut entity = entity.clone();
    let receipt_id = late_receipt_id(&settlement.proposal.receipt_id);
    let same_generation = key.generation == settlement.mark.generation;
    let mut double_applied = false;
    let mut error = None;
    match &settlement.outcome {
        SettledOutcome::Applied(effect) => {
            let attempt = settlement.mark.attempt;
            let earlier = key.application.as_ref().filter(|a| !a.original.written_off);
            // Somebody who saw this very attempt take effect spoke of the same effect.
            let another = !same_generation || earlier.is_some_and(|a| a.attempt != attempt);
            double_applied = another && !key.repeats_are_harmless();
            let is_running = key.phase == Phase::Intent;
            if same_generation && earlier.is_none() {
                key.set_applied(attempt, receipt_id.clone(), settlement.at, effect);
                if let Some(application) = &mut key.application {
                    application.said = said_otherwise(&key.proposal, &settlement.proposal);
                }
            } else if same_generation {
                key.open_attempts.retain(|open| *open != attempt);
            }
            if is_running {
                // A later attempt is on its way; its own end closes the key.
                key.phase = Phase::Intent;
            }
        }
        SettledOutcome::NotApplied { error: why } => {
            if same_generation {
                key.open_attempts
                    .retain(|attempt| *attempt != settlement.mark.attempt);
                if key.phase == Phase::InDoubt && key.open_attempts.is_empty() {
                    key.phase = Phase::Failed;
                    key.close_open_attempts();
                }
            }
            error = Some(not_applied(why, &key));
        }
        SettledOutcome::Unknown { error: why } => error = Some(why.clone()),
    }
    if is_current {
        entity.release_if_held_by(key.session, key.fence);
    }
    let mut step = finish(key, entity, settlement, error, double_applied);
    let ending = ending_of(settlement, step.answer.error.as_deref());
    let mut correction = settlement.proposal.correction(
        receipt_id.clone(),
        &settlement.mark,
        &ending,
        settlement.at,
    );
    if double_applied {
        correction.note = Some(DOUBLE_APPLIED.to_owned());
    }
    step.receipt = Some(correction.into());
    step.answer.receipt_id = receipt_id;
    step
}

/// What took effect, where a later attempt of the key says something else: a key whose every attempt
/// was taken for failed is free for corrected arguments, and then one of them turns out to have
/// happened after all.
fn said_otherwise(last: &Proposal, applied: &Shared<Proposal>) -> Option<Shared<Proposal>> {
    let is_same = Said::by(last).to_value() == Said::by(applied).to_value();
    (!is_same).then(|| applied.clone())
}

/// A late answer's receipt is found from the one it corrects, so that writing it twice is once.
pub(super) fn late_receipt_id(receipt_id: &str) -> Text {
    format!("{receipt_id}.late").into()
}
