//! Claims and settlements in batches: the common cases, one statement each.

use std::collections::HashSet;
use std::sync::Arc;

use operators_kernel::life::{self, Application, Phase};
use operators_kernel::{
    AttemptMark, Claim, ClaimAnswer, Clearance, Ending, Fence, OnAlert, Original, Proposal,
    Receipt, SettleAnswer, SettledOutcome, Settlement, TenantId,
};
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::lines::{IfBroken, Lines};
use super::pieces::{self, Pieces};
use super::rows::{canonical, from_json, to_json};
use super::text::{Call, Value};
use super::trouble::Trouble;

/// What a fast statement says about one item: the answer, or that it has to be decided under locks.
pub(super) type Fast<T> = Result<Option<T>, Trouble>;

/// One claim, with everything the statement needs worked out by its own caller.
#[derive(Debug)]
pub(super) struct ClaimItem {
    pub(super) tenant: TenantId,
    pub(super) claim: Claim,
    effect: String,
    on_unknown: String,
    proposal: String,
    duplicate: Pieces<4>,
    refusal: Option<Pieces<3>>,
}

impl ClaimItem {
    pub(super) fn of(tenant: &TenantId, claim: &Claim) -> Result<Self, Trouble> {
        Ok(Self {
            tenant: tenant.clone(),
            claim: claim.clone(),
            effect: to_json(&claim.effect)?,
            on_unknown: to_json(&claim.on_unknown)?,
            proposal: to_json(&claim.proposal)?,
            duplicate: pieces::of_duplicate(claim)?,
            refusal: pieces::of_refusal(claim)?,
        })
    }

    /// About how many bytes it adds to a statement.
    pub(super) fn weight(&self) -> usize {
        self.proposal.len().saturating_mul(4)
    }

    fn place(&self) -> (&str, &str) {
        (
            self.tenant.as_str(),
            self.claim.proposal.entity_key.as_str(),
        )
    }

    fn key(&self) -> (&str, &str) {
        (
            self.tenant.as_str(),
            self.claim.proposal.idempotency_key.as_str(),
        )
    }

    /// In the order of the function's arguments.
    fn values(&self) -> [Value<'_>; 20] {
        let claim = &self.claim;
        let Pieces([first, second, third, last]) = &self.duplicate;
        let refusal = match &self.refusal {
            Some(Pieces(pieces)) => pieces.each_ref().map(|piece| Value::Text(piece)),
            None => [Value::Null; 3],
        };
        [
            Value::Text(self.tenant.as_str()),
            Value::Text(claim.proposal.entity_key.as_str()),
            Value::Text(claim.proposal.idempotency_key.as_str()),
            Value::Number(signed(claim.session.0)),
            Value::Text(&claim.fingerprint.0),
            Value::Text(&self.effect),
            Value::Text(&self.on_unknown),
            Value::Number(span_us(claim)),
            revision(&claim.proposal),
            Value::Text(&claim.proposal.receipt_id),
            Value::Text(&self.proposal),
            Value::Number(claim.at.as_micros()),
            Value::Text(first),
            Value::Text(second),
            Value::Text(third),
            Value::Text(last),
            refusal[0],
            refusal[1],
            refusal[2],
            Value::Text(if is_controlled(claim) { "t" } else { "f" }),
        ]
    }

    fn answer(&self, row: &PgRow) -> Fast<ClaimAnswer> {
        let claim = &self.claim;
        let generation = unsigned(row.try_get(2)?);
        let attempt = unsigned(row.try_get(3)?);
        Ok(Some(match row.try_get(1)? {
            "claimed" => {
                let fence = u64::try_from(row.try_get::<i64, _>(4)?).unwrap_or(0);
                ClaimAnswer::Claimed(AttemptMark {
                    generation,
                    attempt,
                    session: Some(claim.session),
                    fence: Some(Fence(fence)),
                    approver: None,
                })
            }
            "duplicate" => {
                let found: Application = from_json("a key's application", row.try_get(5)?)?;
                ClaimAnswer::Duplicate {
                    original: found.original,
                    attempt,
                }
            }
            "refused" => match &claim.clearance {
                Clearance::Refused(refusal) => ClaimAnswer::Refused {
                    refusal: refusal.clone(),
                    attempt,
                },
                Clearance::Cleared => return Ok(None),
            },
            "dead" => return Err(Trouble::SessionDead(claim.session)),
            _ => return Ok(None),
        }))
    }
}

/// Claims a batch; the answers come in the order of the items.
pub(super) async fn claim(lines: Arc<Lines>, items: Vec<ClaimItem>) -> Vec<Fast<ClaimAnswer>> {
    let order = in_order(&items, ClaimItem::place, ClaimItem::key);
    let rows = run(
        &lines,
        ("claim", IfBroken::Tell),
        &items,
        &order,
        ClaimItem::values,
    )
    .await;
    let answers = deal(&items, &order, rows, ClaimItem::answer);
    let ended = |answer: &Fast<ClaimAnswer>| {
        matches!(
            answer,
            Ok(Some(
                ClaimAnswer::Duplicate { .. } | ClaimAnswer::Refused { .. }
            ))
        )
    };
    let told = items.iter().zip(&answers).rfind(|(_, a)| ended(a));
    if let Some((item, _)) = told {
        lines.note_acked(&item.claim.proposal.receipt_id);
    }
    answers
}

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
                        result: effect.result.clone(),
                        written_off: false,
                    },
                    effect_id: effect.effect_id.clone(),
                    double_applied: false,
                };
                let ending = Ending::Applied {
                    result_digest: settlement.result_digest.clone(),
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

    fn answer(&self, row: &PgRow) -> Fast<SettleAnswer> {
        if row.try_get::<&str, _>(1)? != "settled" {
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
    let order = in_order(&items, SettleItem::place, SettleItem::key);
    let rows = run(
        &lines,
        ("settle", IfBroken::AskAgain),
        &items,
        &order,
        SettleItem::values,
    )
    .await;
    let answers = deal(&items, &order, rows, SettleItem::answer);
    let told = items
        .iter()
        .zip(&answers)
        .rfind(|(_, a)| matches!(a, Ok(Some(_))));
    if let Some((item, _)) = told {
        lines.note_acked(&item.settlement.proposal.receipt_id);
    }
    answers
}

/// A receipt that touches no key, and its text.
#[derive(Debug)]
pub(super) struct RecordItem {
    receipt: Receipt,
    body: String,
}

impl RecordItem {
    pub(super) fn of(receipt: Receipt) -> Result<Self, Trouble> {
        let body = canonical(&receipt)?;
        Ok(Self { receipt, body })
    }

    pub(super) fn weight(&self) -> usize {
        self.body.len()
    }

    /// In the order of the function's arguments.
    fn values(&self) -> [Value<'_>; 5] {
        [
            Value::Text(self.receipt.tenant_id.as_str()),
            Value::Text(self.receipt.idempotency_key.as_str()),
            Value::Text(&self.receipt.receipt_id),
            Value::Number(self.receipt.settled_at.as_micros()),
            Value::Text(&self.body),
        ]
    }
}

/// Writes a batch of receipts.
pub(super) async fn record(lines: Arc<Lines>, items: Vec<RecordItem>) -> Vec<Result<(), Trouble>> {
    let order: Vec<usize> = (0..items.len()).collect();
    let written = run(
        &lines,
        ("record", IfBroken::AskAgain),
        &items,
        &order,
        RecordItem::values,
    )
    .await;
    if let (Ok(_), Some(item)) = (&written, items.last()) {
        lines.note_acked(&item.receipt.receipt_id);
    }
    let written = written.map(drop);
    items.iter().map(|_| written.clone()).collect()
}

/// The numbers of the items in one order for all batches, so that no two wait for each other.
///
/// A statement meets a row once, so of several items on one entity or key the first goes; the others
/// are decided alone, after it.
fn in_order<'a, I>(
    items: &'a [I],
    place: impl Fn(&'a I) -> (&'a str, &'a str),
    key: impl Fn(&'a I) -> (&'a str, &'a str),
) -> Vec<usize> {
    let mut keys = HashSet::with_capacity(items.len());
    let mut order: Vec<_> = items
        .iter()
        .enumerate()
        .filter(|(_, item)| keys.insert(key(item)))
        .map(|(number, item)| (place(item), number))
        .collect();
    order.sort_unstable();
    order.dedup_by_key(|(place, _)| *place);
    order.into_iter().map(|(_, number)| number).collect()
}

async fn run<'a, I, const N: usize>(
    lines: &Arc<Lines>,
    (function, if_broken): (&str, IfBroken),
    items: &'a [I],
    order: &[usize],
    values: impl Fn(&'a I) -> [Value<'a>; N],
) -> Result<Vec<PgRow>, Trouble> {
    let rows: Vec<[Value<'a>; N]> = order
        .iter()
        .filter_map(|number| items.get(*number))
        .map(values)
        .collect();
    let weight: usize = rows.iter().flatten().map(Value::weight).sum();
    // A sixteenth for what is quoted.
    let mut call = Call::sized(function, weight + weight / 16 + 512).text(&lines.last_acked());
    for column in 0..N {
        let values = rows.iter().filter_map(|row| row.get(column).copied());
        call = call.column(values);
    }
    lines.run_if(if_broken, call.finish()?).await
}

/// Gives each item its row's answer. Where the whole statement failed and may be tried again, each
/// item is decided alone: one that cannot be done must not hold up the others.
fn deal<I, T>(
    items: &[I],
    order: &[usize],
    rows: Result<Vec<PgRow>, Trouble>,
    answer: impl Fn(&I, &PgRow) -> Fast<T>,
) -> Vec<Fast<T>> {
    let rows = match rows {
        Ok(rows) => rows,
        Err(Trouble::Again(_)) => return items.iter().map(|_| Ok(None)).collect(),
        Err(trouble) => return items.iter().map(|_| Err(trouble.clone())).collect(),
    };
    let mut answers: Vec<Fast<T>> = items.iter().map(|_| Ok(None)).collect();
    for (number, row) in order.iter().zip(rows.iter()) {
        if let (Some(item), Some(place)) = (items.get(*number), answers.get_mut(*number)) {
            *place = answer(item, row);
        }
    }
    answers
}

/// Whether people or limits have a say that the statement does not know of.
fn is_controlled(claim: &Claim) -> bool {
    !claim.limits.is_empty() || claim.on_alert == OnAlert::Approve
}

/// How long a call may still land; far beyond any life, but no overflow when added to a time.
fn span_us(claim: &Claim) -> i64 {
    const SPAN_MAX: i64 = i64::MAX / 4;
    let span = claim.deadline.saturating_add(claim.max_land);
    i64::try_from(span.as_micros()).map_or(SPAN_MAX, |span| span.min(SPAN_MAX))
}

fn revision(proposal: &Proposal) -> Value<'static> {
    let number = proposal.revision.map(signed);
    number.map_or(Value::Null, Value::Number)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}
