//! Settlements: the end of an attempt of the common kind, and what is written for it.

use std::sync::Arc;

use operators_kernel::life::{self, Application, Phase};
use operators_kernel::{
    Ending, Original, Packed, SettleAnswer, SettledOutcome, Settlement, TenantId,
};

use super::fast::{self, Fast, Function, revision, signed};
use super::lines::{IfBroken, Lines};
use super::rows::{canonical, to_json};
use super::text::{Said, Value};

const SETTLE: Function = Function {
    one: Some("settle_one"),
    many: "settle_many",
    if_broken: IfBroken::AskAgain,
};

/// One settlement, with everything the statement needs worked out by its own caller.
#[derive(Debug)]
pub(super) struct SettleItem {
    tenant: TenantId,
    settlement: Settlement,
    phase: Phase,
    application: Option<String>,
    body: String,
}

impl SettleItem {
    /// None if it is not of the common kind.
    pub(super) fn of(tenant: &TenantId, settlement: &Settlement) -> Fast<Self> {
        let mark = &settlement.mark;
        if mark.session != Some(settlement.session) || mark.fence.is_none() {
            return Ok(None);
        }
        let proposal = &settlement.proposal;
        // Its alert is a note.
        if life::may_raise(proposal) {
            return Ok(None);
        }
        let (phase, application, ending) = match &settlement.outcome {
            SettledOutcome::Applied(effect) => {
                let application = Application {
                    attempt: mark.attempt,
                    original: Original {
                        receipt_id: proposal.receipt_id.clone(),
                        applied_at: settlement.at,
                        result: Packed::from(&*effect.result),
                        written_off: false,
                    },
                    effect_id: effect.effect_id.clone(),
                    double_applied: false,
                    said: None,
                };
                let ending = Ending::Applied {
                    result_digest: settlement.result_digest,
                    effect_id: effect.effect_id.clone(),
                };
                (Phase::Applied, Some(to_json(&application)?), ending)
            }
            // It gives slots back.
            SettledOutcome::NotApplied { .. } if !proposal.limits.is_empty() => return Ok(None),
            SettledOutcome::NotApplied { error } => (Phase::Failed, None, Ending::Failed { error }),
            SettledOutcome::Unknown { .. } => return Ok(None),
        };
        let body = canonical(&proposal.receipt(mark, &ending, settlement.at))?;
        Ok(Some(Self {
            tenant: tenant.clone(),
            phase,
            application,
            body,
            settlement: settlement.clone(),
        }))
    }

    pub(super) fn weight(&self) -> usize {
        self.body.len() + self.application.as_ref().map_or(0, String::len)
    }

    fn place(&self) -> (&str, &str) {
        (
            self.tenant.as_str(),
            self.settlement.proposal.entity_key.as_str(),
        )
    }

    fn key(&self) -> (&str, &str) {
        (
            self.tenant.as_str(),
            self.settlement.proposal.idempotency_key.as_str(),
        )
    }

    /// In the order of the function's arguments.
    fn values(&self) -> [Value<'_>; 13] {
        let Settlement { mark, proposal, .. } = &self.settlement;
        [
            Value::Text(self.tenant.as_str()),
            Value::Text(proposal.entity_key.as_str()),
            Value::Text(proposal.idempotency_key.as_str()),
            Value::Number(signed(self.settlement.session.0)),
            Value::Number(signed(mark.fence.map_or(0, |fence| fence.0))),
            Value::Number(i64::from(mark.generation)),
            Value::Number(i64::from(mark.attempt)),
            Value::Text(&proposal.receipt_id),
            Value::Text(self.phase.as_str()),
            revision(proposal),
            self.application.as_deref().map_or(Value::Null, Value::Text),
            Value::Number(self.settlement.at.as_micros()),
            Value::Text(&self.body),
        ]
    }

    fn answer(&self, said: &mut Said<'_>) -> Fast<SettleAnswer> {
        if said.next_text()? != "settled" {
            return Ok(None);
        }
        let error = match &self.settlement.outcome {
            SettledOutcome::Applied(_) => None,
            SettledOutcome::NotApplied { error } | SettledOutcome::Unknown { error } => {
                Some(error.clone())
            }
        };
        Ok(Some(SettleAnswer {
            receipt_id: self.settlement.proposal.receipt_id.clone(),
            phase: self.phase,
            error,
            double_applied: false,
        }))
    }
}

/// Settles a batch; the answers come in the order of the items.
pub(super) async fn settle(lines: Arc<Lines>, items: Vec<SettleItem>) -> Vec<Fast<SettleAnswer>> {
    let order = fast::in_order(&items, SettleItem::place, SettleItem::key);
    let said = fast::run(&lines, SETTLE, &items, &order, SettleItem::values).await;
    let answers = fast::deal(&items, &order, said, SettleItem::answer);
    let told = items
        .iter()
        .zip(&answers)
        .rfind(|(_, a)| matches!(a, Ok(Some(_))));
    if let Some((item, _)) = told {
        lines.note_acked(&item.settlement.proposal.receipt_id);
    }
    answers
}
