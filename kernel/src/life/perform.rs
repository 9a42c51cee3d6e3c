//! Whether a store may bring an attempt's effect about, or what it was told before.

use serde_json::Value;

use crate::connector::Effect;
use crate::durable::{SettleAnswer, SettledOutcome, StoreTime};
use crate::life::settle::told_by;
use crate::life::{EntityRecord, KeyRecord, Phase};
use crate::receipt::{Receipt, ReceiptOutcome};
use crate::shared::Shared;
use crate::work::{Performance, Performed};

/// What a store does about one performance.
#[derive(Debug, Clone, PartialEq)]
pub enum PerformStep {
    /// Run the statement, and settle by what it comes to, in this transaction.
    Run,
    /// Settle as not applied, for this reason; run nothing.
    Refuse(String),
    /// It was done before and its answer was lost: answer this, write nothing.
    Done(Performed),
    /// The attempt is over: find its receipt, answer what [`told`] makes of it, write nothing.
    Over,
}

/// Decides one performance against its key's record and the record of that key's entity, both
/// locked until the transaction ends.
pub fn perform(
    key: &KeyRecord,
    entity: &EntityRecord,
    performance: &Performance,
    now: StoreTime,
) -> PerformStep {
    let own = &performance.proposal.receipt_id;
    let mark = &performance.mark;
    if let Some(application) = told_by(key, own) {
        return PerformStep::Done(Performed {
            outcome: SettledOutcome::Applied(Shared::from(Effect {
                result: Shared::from(&application.original.result),
                effect_id: application.effect_id.clone(),
            })),
            answer: SettleAnswer {
                receipt_id: application.original.receipt_id.clone(),
                phase: key.phase,
                error: None,
                double_applied: application.double_applied,
            },
        });
    }
    let is_current = key.phase == Phase::Intent
        && key.generation == mark.generation
        && key.attempt == mark.attempt
        && key.proposal.receipt_id == *own;
    if !is_current {
        return PerformStep::Over;
    }
    let holds_the_turn = key.session == performance.session
        && Some(key.fence) == mark.fence
        && entity.holder == Some(key.session)
        && entity.fence == key.fence;
    if !holds_the_turn {
        return PerformStep::Refuse("nothing was run: the turn is another's".to_owned());
    }
    if now > key.quiescent_at {
        return PerformStep::Refuse("nothing was run: its deadline has passed".to_owned());
    }
    PerformStep::Run
}

/// What is known of an attempt that is over, from the receipt it left.
pub fn told(key: &KeyRecord, performance: &Performance, receipt: Option<&Receipt>) -> Performed {
    let receipt_id = performance.proposal.receipt_id.clone();
    if receipt.is_some_and(|receipt| receipt.outcome == Some(ReceiptOutcome::Applied)) {
        // Its key was forgotten since, and the answer with it.
        return Performed {
            outcome: SettledOutcome::Applied(Shared::from(Effect {
                result: Value::Null.into(),
                effect_id: receipt.and_then(|receipt| receipt.effect_id.clone()),
            })),
            answer: SettleAnswer {
                receipt_id,
                phase: key.phase,
                error: None,
                double_applied: false,
            },
        };
    }
    let said = receipt.and_then(|receipt| receipt.error.clone());
    let error = said.unwrap_or_else(|| "nothing was run: this attempt is over".to_owned());
    Performed {
        answer: SettleAnswer {
            receipt_id,
            phase: key.phase,
            error: Some(error.clone()),
            double_applied: false,
        },
        outcome: SettledOutcome::NotApplied { error },
    }
}
