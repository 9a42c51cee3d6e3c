//! How a key's open ends are closed by others than its owner: a death, an answer, a wish.

use crate::action::Original;
use crate::clock::Timestamp;
use crate::connector::EffectClass;
use crate::durable::{
    Forget, ForgetAnswer, Resolution, ResolveAnswer, Resolver, StoreTime, Verdict,
};
use crate::life::{Application, EntityRecord, KeyRecord, Phase};
use crate::receipt::{AttemptMark, Ending, Receipt};
use crate::said;
use crate::shared::Shared;

use std::time::Duration;

/// What the receipt of an attempt says whose owner died before its end was recorded.
const OWNER_DIED: &str = "the process that made this attempt ended before its outcome was recorded";

/// What it says where that decides the outcome.
const NEVER_COMMITTED: &str =
    "the process that made this attempt ended before it was committed; nothing happened";

/// Turns a dead owner's intent into a doubt, with the receipt its proposal still lacks; one whose
/// effect and burn are one commit is known not to have happened, and is free. `None` if the key is
/// no intent.
pub fn owner_died(
    key: &KeyRecord,
    entity: &EntityRecord,
    at: Timestamp,
) -> Option<(KeyRecord, EntityRecord, Receipt)> {
    if key.phase != Phase::Intent {
        return None;
    }
    let is_known = key.effect == EffectClass::Transactional;
    let ending = if is_known {
        Ending::Failed {
            error: NEVER_COMMITTED,
        }
    } else {
        Ending::InDoubt { error: OWNER_DIED }
    };
    let receipt = key.proposal.receipt(&key.mark(), &ending, at);
    let mut key = key.clone();
    let mut entity = entity.clone();
    entity.release_if_held_by(key.session, key.fence);
    if !is_known {
        key.add_open_attempt(key.attempt, key.quiescent_at);
    }
    if is_known && key.open_attempts.is_empty() && key.application.is_none() {
        key.phase = Phase::Failed;
    } else if key.application.is_some() {
        // An earlier attempt's late answer came first: the key is known to be applied.
        key.phase = Phase::Applied;
        entity.wait_for_open_attempts(&key);
        key.bind_to_what_was_applied();
    } else {
        key.phase = Phase::InDoubt;
    }
    entity.note_doubt(&key);
    Some((key, entity, receipt))
}

/// What a store does about a resolution.
#[derive(Debug, Clone, PartialEq)]
pub enum ResolveStep {
    /// Write all three, answer `Resolved`.
    Close {
        /// The key, out of doubt.
        key: Shared<KeyRecord>,
        /// Its entity, no longer held by it.
        entity: EntityRecord,
        /// The correction.
        receipt: Box<Receipt>,
    },
    /// Write nothing, answer this.
    Stay(ResolveAnswer),
}

/// Decides a resolution.
pub fn resolve(
    key: &KeyRecord,
    entity: &EntityRecord,
    resolution: &Resolution,
    now: StoreTime,
) -> ResolveStep {
    let is_meant = (key.generation, key.attempt) == (resolution.generation, resolution.attempt);
    if key.phase != Phase::InDoubt || !is_meant {
        return ResolveStep::Stay(ResolveAnswer::NotInDoubt(Some(key.phase)));
    }
    let wait = now.until(key.open_until);
    if resolution.verdict == Verdict::NotApplied && wait > Duration::ZERO {
        return ResolveStep::Stay(ResolveAnswer::MayStillLand(wait));
    }
    let mut record = key.clone();
    let mut entity = entity.clone();
    let receipt_id = resolution.receipt_id.clone();
    let ending = match &resolution.verdict {
        Verdict::Applied(effect) => {
            // Where only one attempt is undecided, that is the one that happened.
            let attempt = match key.open_attempts.as_slice() {
                [only] => *only,
                _ => key.attempt,
            };
            let (effect, digest) = said::answer(effect, resolution.result_digest);
            let effect_id = effect.effect_id.clone();
            record.set_applied(attempt, receipt_id.clone(), resolution.at, &effect);
            entity.note_revision(key.proposal.revision);
            entity.wait_for_open_attempts(&record);
            Ending::Applied {
                result_digest: digest,
                effect_id,
            }
        }
        Verdict::NotApplied => {
            record.close_open_attempts();
            record.phase = Phase::Failed;
            Ending::Failed {
                error: "it did not happen",
            }
        }
        Verdict::WriteOff => {
            write_off(&mut record, resolution);
            // Nobody knows whether it landed, so it may yet, and nothing must overtake it.
            entity.landing_until = entity.landing_until.max(key.open_until);
            Ending::InDoubt {
                error: "written off: nobody knows whether it happened",
            }
        }
    };
    entity.note_doubt(&record);
    let mut receipt = key
        .proposal
        .correction(receipt_id, &key.mark(), &ending, resolution.at);
    receipt.note.clone_from(&resolution.note);
    if resolution.verdict == Verdict::WriteOff {
        // There is nothing left to do about it.
        receipt.hint = None;
    }
    receipt.decided_by(match &resolution.by {
        Resolver::Person(person) => Some(person),
        Resolver::Probe => None,
    });
    ResolveStep::Close {
        key: record.into(),
        entity,
        receipt: Box::new(receipt),
    }
}

fn write_off(record: &mut KeyRecord, resolution: &Resolution) {
    record.phase = Phase::WrittenOff;
    record.application = Some(Application {
        attempt: record.attempt,
        original: Original {
            receipt_id: resolution.receipt_id.clone(),
            applied_at: resolution.at,
            result: serde_json::Value::Null.into(),
            written_off: true,
        },
        effect_id: None,
        double_applied: false,
        said: None,
    });
}

/// What a store does about a wish to forget.
#[derive(Debug, Clone, PartialEq)]
pub enum ForgetStep {
    /// Write both, answer `Forgotten`.
    Open {
        /// The key, free, of its next generation.
        key: Shared<KeyRecord>,
        /// The receipt.
        receipt: Box<Receipt>,
    },
    /// Write nothing, answer this.
    Stay(ForgetAnswer),
}

/// Decides a wish to forget: only what is burned or written off can be.
pub fn forget(key: &KeyRecord, wish: &Forget) -> ForgetStep {
    match key.phase {
        Phase::Applied | Phase::WrittenOff => {}
        phase @ (Phase::Intent | Phase::Failed | Phase::InDoubt | Phase::Forgotten) => {
            return ForgetStep::Stay(ForgetAnswer::NotBurned(Some(phase)));
        }
    }
    let mut record = key.clone();
    record.generation = key.generation.saturating_add(1);
    record.attempt = 0;
    record.phase = Phase::Forgotten;
    record.application = None;
    record.close_open_attempts();
    let mark = AttemptMark {
        generation: record.generation,
        attempt: 0,
        session: None,
        fence: None,
        approver: None,
    };
    let mut receipt = key
        .proposal
        .forgotten(wish.receipt_id.clone(), &mark, wish.at);
    receipt.decided_by(Some(&wish.by));
    receipt.note.clone_from(&wish.note);
    ForgetStep::Open {
        key: record.into(),
        receipt: Box::new(receipt),
    }
}
