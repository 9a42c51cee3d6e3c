//! Claims: what one carries to the database, and what the answer means.

use std::sync::Arc;

use operators_kernel::life::Application;
use operators_kernel::{AttemptMark, Claim, ClaimAnswer, Clearance, Fence, OnAlert, TenantId};

use super::fast::{self, Fast, Function, revision, signed};
use super::lines::{IfBroken, Lines};
use super::pieces::{self, Pieces};
use super::rows::{from_json, to_json, to_long_json};
use super::text::{Said, Value};
use super::trouble::Trouble;

const CLAIM: Function = Function {
    one: Some("claim_one"),
    many: "claim_many",
    if_broken: IfBroken::Tell,
};

/// One claim, with everything the statement needs worked out by its own caller.
#[derive(Debug)]
pub(super) struct ClaimItem {
    pub(super) tenant: TenantId,
    pub(super) claim: Claim,
    fingerprint: String,
    /// None where nobody expects one.
    intent: Option<Intent>,
    duplicate: Pieces<4>,
    refusal: Option<Pieces<3>>,
}

/// What only the intent of a claim keeps.
#[derive(Debug)]
struct Intent {
    effect: String,
    on_unknown: String,
    proposal: String,
}

impl Intent {
    fn of(claim: &Claim) -> Result<Self, Trouble> {
        Ok(Self {
            effect: to_json(&claim.effect)?,
            on_unknown: to_json(&claim.on_unknown)?,
            proposal: to_long_json(&claim.proposal)?,
        })
    }
}

impl ClaimItem {
    /// One that is likely a duplicate carries nothing that only an intent needs.
    pub(super) fn of(
        tenant: &TenantId,
        claim: &Claim,
        is_likely_burned: bool,
    ) -> Result<Self, Trouble> {
        let intent = (!is_likely_burned).then(|| Intent::of(claim));
        Ok(Self {
            tenant: tenant.clone(),
            claim: claim.clone(),
            fingerprint: claim.fingerprint.0.text(),
            intent: intent.transpose()?,
            duplicate: pieces::of_duplicate(claim)?,
            refusal: pieces::of_refusal(claim)?,
        })
    }

    /// About how many bytes it adds to a statement.
    pub(super) fn weight(&self) -> usize {
        let intent = self.intent.as_ref().map_or(0, |kept| kept.proposal.len());
        let refusal = self.refusal.as_ref().map_or(0, Pieces::len);
        intent + self.duplicate.len() + refusal
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
        let [first, second, third, last] = self.duplicate.each();
        let [effect, on_unknown, proposal] = match &self.intent {
            Some(kept) => [&kept.effect, &kept.on_unknown, &kept.proposal].map(String::as_str),
            None => [""; 3],
        };
        let refusal = match &self.refusal {
            Some(pieces) => pieces.each().map(Value::Text),
            None => [Value::Null; 3],
        };
        [
            Value::Text(self.tenant.as_str()),
            Value::Text(claim.proposal.entity_key.as_str()),
            Value::Text(claim.proposal.idempotency_key.as_str()),
            Value::Number(signed(claim.session.0)),
            Value::Text(&self.fingerprint),
            Value::Text(effect),
            Value::Text(on_unknown),
            Value::Number(span_us(claim)),
            revision(&claim.proposal),
            Value::Text(&claim.proposal.receipt_id),
            Value::Text(proposal),
            Value::Number(claim.at.as_micros()),
            Value::Text(first),
            Value::Text(second),
            Value::Text(third),
            Value::Text(last),
            refusal[0],
            refusal[1],
            refusal[2],
            Value::Text(if self.is_for_locks() { "t" } else { "f" }),
        ]
    }

    /// Whether it is decided under locks if it turns out to be new: people or limits have a say that
    /// the statement does not know of, or it does not carry what an intent keeps.
    fn is_for_locks(&self) -> bool {
        let claim = &self.claim;
        self.intent.is_none() || !claim.limits.is_empty() || claim.on_alert == OnAlert::Approve
    }

    fn answer(&self, said: &mut Said<'_>) -> Fast<ClaimAnswer> {
        let claim = &self.claim;
        let word = said.next_text()?;
        if word == "dead" {
            return Err(Trouble::SessionDead(claim.session));
        }
        if !matches!(word, "claimed" | "duplicate" | "refused") {
            return Ok(None);
        }
        let (generation, attempt) = (said.next_number()?, said.next_number()?);
        Ok(Some(match (word, &claim.clearance) {
            ("claimed", _) => ClaimAnswer::Claimed(AttemptMark {
                generation,
                attempt,
                session: Some(claim.session),
                fence: Some(Fence(said.next_number()?)),
                approver: None,
            }),
            ("duplicate", _) => {
                let found: Application = from_json("a key's application", said.next_text()?)?;
                ClaimAnswer::Duplicate {
                    original: found.original,
                    attempt,
                }
            }
            (_, Clearance::Refused(refusal)) => ClaimAnswer::Refused {
                refusal: refusal.clone(),
                attempt,
            },
            (_, Clearance::Cleared) => return Ok(None),
        }))
    }
}

/// Claims a batch; the answers come in the order of the items.
pub(super) async fn claim(lines: Arc<Lines>, items: Vec<ClaimItem>) -> Vec<Fast<ClaimAnswer>> {
    let order = fast::in_order(&items, ClaimItem::place, ClaimItem::key);
    let said = fast::run(&lines, CLAIM, &items, &order, ClaimItem::values).await;
    let answers = fast::deal(&items, &order, said, ClaimItem::answer);
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

/// How long a call may still land; far beyond any life, but no overflow when added to a time.
fn span_us(claim: &Claim) -> i64 {
    const SPAN_MAX: i64 = i64::MAX / 4;
    let span = claim.deadline.saturating_add(claim.max_land);
    i64::try_from(span.as_micros()).map_or(SPAN_MAX, |span| span.min(SPAN_MAX))
}
