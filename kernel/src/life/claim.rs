//! What a proposal meets at the store's door, in the order of the gates.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Number, Value};

use crate::action::{LOOK_AT_DOUBTS, Original, Reason, Refusal};
use crate::connector::EffectClass;
use crate::content_digest::ContentDigest;
use crate::durable::{Claim, ClaimAnswer, Clearance, Fence, OnDoubt, StoreTime};
use crate::json::{self, JsonError};
use crate::key::{ConnectorName, EntityKey, ToolName};
use crate::life::{EntityRecord, KeyRecord, Phase};
use crate::packed::Packed;
use crate::receipt::{AttemptMark, Ending, Proposal, Receipt, ReceiptOutcome};
use crate::shared::Shared;
use crate::slip::Slip;

/// As long as most of what is said: a text that need not grow.
const SAID_BYTES: usize = 256;

/// How many differing paths a conflict names; enough to see what happened.
const CONFLICT_PATHS_MAX: usize = 20;

/// Whether the entity's turn is to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Nobody holds it and nobody came earlier.
    Free,
    /// A living session holds it, or came earlier.
    Taken,
}

/// What a store does about one claim.
#[derive(Debug, Clone, PartialEq)]
pub enum ClaimStep {
    /// Write both records, take the turn, answer `Claimed`.
    Grant {
        /// The key, now an intent.
        key: Shared<KeyRecord>,
        /// The entity, now held.
        entity: EntityRecord,
    },
    /// This very claim was granted before and its answer was lost: answer `Claimed` again.
    GrantedBefore(AttemptMark),
    /// Put it in the queue (or leave it there) and answer `Wait`.
    Wait,
    /// Write nothing, answer `Probe`.
    Probe(Box<KeyRecord>),
    /// Write the receipt, touch no key, answer this.
    End {
        /// The receipt of this proposal.
        receipt: Slip,
        /// The answer.
        answer: ClaimAnswer,
    },
}

/// Decides one claim. `key` is the key's record, `entity` its entity's (the claim's entity).
pub fn claim(
    key: Option<&KeyRecord>,
    entity: &EntityRecord,
    turn: Turn,
    claim: &Claim,
    now: StoreTime,
) -> ClaimStep {
    if let Some(key) = key {
        match key.phase {
            Phase::Applied | Phase::WrittenOff => return burned(key, claim),
            Phase::Intent if key.proposal.receipt_id == claim.proposal.receipt_id => {
                return ClaimStep::GrantedBefore(key.mark());
            }
            // The fingerprint binds from the intent on, and a turn on another entity would not
            // keep the two apart.
            Phase::Intent if key.proposal.entity_key != claim.proposal.entity_key => {
                return conflict(key, claim);
            }
            Phase::Intent => return ClaimStep::Wait,
            // Its owner was taken for dead, or it was settled, and the answer was lost. It has its
            // receipt; another attempt under the same one would leave no trace.
            Phase::Failed | Phase::InDoubt | Phase::Forgotten
                if key.proposal.receipt_id == claim.proposal.receipt_id =>
            {
                return refused(Some(key), claim, proposed_before());
            }
            Phase::Failed | Phase::InDoubt | Phase::Forgotten => {}
        }
    }
    if turn == Turn::Taken {
        return ClaimStep::Wait;
    }
    if let Some(refusal) = stale(entity, claim) {
        return refused(key, claim, refusal);
    }
    match key.filter(|key| key.phase == Phase::InDoubt) {
        Some(doubt) => {
            if let Some(step) = doubtful(doubt, claim, now) {
                return step;
            }
        }
        None => {
            if let Some(refusal) = entity_held(entity, claim, now) {
                return refused(key, claim, refusal);
            }
        }
    }
    match &claim.clearance {
        Clearance::Refused(refusal) => refused(key, claim, refusal.clone()),
        Clearance::Cleared => grant(key, entity, claim, now),
    }
}

/// What a proposal was answered whose answer was lost, as the receipt tells that it left. What has
/// changed since is not asked: another answer would have no receipt.
pub fn told_before(receipt: &Receipt, key: Option<&KeyRecord>, claim: &Claim) -> ClaimAnswer {
    let attempt = receipt.attempt;
    let key = key.filter(|key| key.generation == receipt.generation);
    let original = key.and_then(|key| Some(key.application.as_ref()?.original.clone()));
    let refusal = match (receipt.outcome, original) {
        (Some(ReceiptOutcome::Applied | ReceiptOutcome::Deduplicated), Some(original)) => {
            return ClaimAnswer::Duplicate { original, attempt };
        }
        (Some(ReceiptOutcome::Refused), _) => refusal_of(receipt, key, claim),
        // It was claimed and that claim is over, or its key was forgotten since.
        (
            Some(
                ReceiptOutcome::Applied
                | ReceiptOutcome::Deduplicated
                | ReceiptOutcome::Failed
                | ReceiptOutcome::InDoubt,
            )
            | None,
            _,
        ) => proposed_before(),
    };
    ClaimAnswer::Refused { refusal, attempt }
}

/// A refusal as its receipt tells it; the paths of a conflict are not kept there.
fn refusal_of(receipt: &Receipt, key: Option<&KeyRecord>, claim: &Claim) -> Refusal {
    let reason = receipt.reason.unwrap_or(Reason::InDoubt);
    let other = key.filter(|_| reason == Reason::Conflict);
    Refusal {
        reason,
        error: receipt.error.clone().unwrap_or_default(),
        hint: receipt.hint.clone(),
        conflict: other.map_or_else(Vec::new, |key| differing_paths(key, claim)),
        rule: receipt
            .rule
            .clone()
            .filter(|_| matches!(reason, Reason::Limit | Reason::AwaitingApproval)),
    }
}

fn burned(key: &KeyRecord, claim: &Claim) -> ClaimStep {
    if key.fingerprint != claim.fingerprint {
        return conflict(key, claim);
    }
    let Some(application) = &key.application else {
        let refusal = Refusal::new(
            Reason::InDoubt,
            "the key is burned but its application is not recorded",
        )
        .with_hint("`operators keys show` tells what is kept of the key");
        return refused(Some(key), claim, refusal);
    };
    let (receipt, answer) = duplicate(claim, seen(Some(key)), application.original.clone());
    ClaimStep::End { receipt, answer }
}

/// The receipt and the answer of what was applied before, by the last attempt of `mark`.
pub(crate) fn duplicate(
    claim: &Claim,
    mark: AttemptMark,
    original: Original,
) -> (Slip, ClaimAnswer) {
    let attempt = mark.attempt;
    let receipt = Slip::Duplicate {
        proposal: claim.proposal.clone(),
        mark,
        original_receipt_id: original.receipt_id.clone(),
        at: claim.at,
    };
    (receipt, ClaimAnswer::Duplicate { original, attempt })
}

fn conflict(key: &KeyRecord, claim: &Claim) -> ClaimStep {
    let error = "the idempotency key was used before with other arguments";
    let refusal = Refusal {
        conflict: differing_paths(key, claim),
        ..Refusal::new(Reason::Conflict, error)
    };
    refused(Some(key), claim, refusal)
}

fn differing_paths(key: &KeyRecord, claim: &Claim) -> Vec<String> {
    json::differing_paths(&key.said(), &said(claim), CONFLICT_PATHS_MAX)
}

fn stale(entity: &EntityRecord, claim: &Claim) -> Option<Refusal> {
    let (proposed, applied) = (claim.proposal.revision?, entity.revision?);
    (proposed < applied).then(|| {
        let error = format!("revision {proposed} is older than the applied revision {applied}");
        Refusal::new(Reason::StaleRevision, error)
    })
}

/// What to do about a doubt on this very key; `None` means: send it again.
fn doubtful(doubt: &KeyRecord, claim: &Claim, now: StoreTime) -> Option<ClaimStep> {
    if doubt.fingerprint != claim.fingerprint {
        return Some(conflict(doubt, claim));
    }
    if doubt.may_resend(now, claim.deadline.saturating_add(claim.max_land)) {
        return None;
    }
    if doubt.effect == EffectClass::Probeable && claim.on_doubt == OnDoubt::Probe {
        return Some(ClaimStep::Probe(Box::new(doubt.clone())));
    }
    let wait = now.until(doubt.open_until);
    let error = if wait > Duration::ZERO {
        let seconds = wait.as_secs_f64();
        format!("whether it happened is not known, and it may still land for {seconds:.1} s")
    } else {
        "whether it happened is not known".to_owned()
    };
    let refusal = Refusal::new(Reason::InDoubt, error).with_hint(LOOK_AT_DOUBTS);
    Some(refused(Some(doubt), claim, refusal))
}

fn proposed_before() -> Refusal {
    Refusal::new(
        Reason::InDoubt,
        "this very proposal was made before and is over; see its receipt",
    )
}

fn entity_held(entity: &EntityRecord, claim: &Claim, now: StoreTime) -> Option<Refusal> {
    let entity_key = &claim.proposal.entity_key;
    if let Some(doubt) = &entity.doubt {
        let error = format!("`{entity_key}` is held: another key of it is in doubt");
        let hint = format!("it is key `{doubt}`; {LOOK_AT_DOUBTS}");
        return Some(Refusal::new(Reason::EntityInDoubt, error).with_hint(hint));
    }
    let wait = now.until(entity.landing_until);
    (wait > Duration::ZERO).then(|| {
        let seconds = wait.as_secs_f64();
        let error = format!(
            "`{entity_key}` is held: an abandoned request on it may still land for {seconds:.1} s"
        );
        Refusal::new(Reason::EntityInDoubt, error)
    })
}

fn refused(key: Option<&KeyRecord>, claim: &Claim, refusal: Refusal) -> ClaimStep {
    let mark = seen(key);
    let attempt = mark.attempt;
    let receipt = claim
        .proposal
        .receipt(&mark, &Ending::Refused(&refusal), claim.at);
    ClaimStep::End {
        receipt: receipt.into(),
        answer: ClaimAnswer::Refused { refusal, attempt },
    }
}

/// What a proposal that makes no attempt can say about attempts: how many there were.
pub(super) fn seen(key: Option<&KeyRecord>) -> AttemptMark {
    match key {
        None => AttemptMark::none(),
        Some(key) => AttemptMark {
            session: None,
            fence: None,
            approver: None,
            ..key.mark()
        },
    }
}

fn grant(
    key: Option<&KeyRecord>,
    entity: &EntityRecord,
    claim: &Claim,
    now: StoreTime,
) -> ClaimStep {
    let fence = Fence(entity.fence.0.saturating_add(1));
    let (generation, attempts) = key.map_or((1, 0), |key| (key.generation, key.attempt));
    let doubt = key.filter(|key| key.phase == Phase::InDoubt);
    let record = KeyRecord {
        generation,
        phase: Phase::Intent,
        attempt: attempts.saturating_add(1),
        session: claim.session,
        fence,
        fingerprint: claim.fingerprint,
        effect: claim.effect,
        on_unknown: claim.on_unknown,
        first_intent_at: doubt.map_or(now, |doubt| doubt.first_intent_at),
        quiescent_at: now.plus(claim.deadline).plus(claim.max_land),
        open_attempts: doubt
            .map(|doubt| doubt.open_attempts.clone())
            .unwrap_or_default(),
        open_until: doubt.map_or(StoreTime(i64::MIN), |doubt| doubt.open_until),
        proposal: claim.proposal.clone(),
        application: None,
    };
    let mut entity = entity.clone();
    entity.fence = fence;
    entity.holder = Some(claim.session);
    ClaimStep::Grant {
        key: record.into(),
        entity,
    }
}

fn said(claim: &Claim) -> serde_json::Value {
    Said::by(&claim.proposal).to_value()
}

impl KeyRecord {
    /// What took effect, or else what was last tried.
    fn said(&self) -> serde_json::Value {
        let applied = self.application.as_ref().and_then(|it| it.said.as_ref());
        Said::by(applied.unwrap_or(&self.proposal)).to_value()
    }
}

/// What an action says: the same key saying something else is a conflict. In the order in which it is
/// hashed.
#[derive(Debug, Serialize)]
pub(crate) struct Said<'a, A> {
    args: &'a A,
    connector: &'a ConnectorName,
    entity_key: &'a EntityKey,
    tool: &'a ToolName,
    value: Option<&'a Number>,
}

impl<'a> Said<'a, Packed<Map<String, Value>>> {
    pub(super) fn by(proposal: &'a Proposal) -> Self {
        Self::with(&proposal.action.args, proposal)
    }

    pub(super) fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

impl<A: Serialize> Said<'_, A> {
    /// As [`json::digest`] has it. Every proposal is hashed, so what is known beforehand is not found
    /// out again: which names there are, and their order.
    pub(crate) fn digest(&self) -> Result<ContentDigest, JsonError> {
        let mut text = Vec::with_capacity(SAID_BYTES);
        text.extend_from_slice(b"{\"args\":");
        json::append(&mut text, self.args)?;
        text.extend_from_slice(b",\"connector\":");
        json::append(&mut text, self.connector)?;
        text.extend_from_slice(b",\"entity_key\":");
        json::append(&mut text, self.entity_key)?;
        text.extend_from_slice(b",\"tool\":");
        json::append(&mut text, self.tool)?;
        text.extend_from_slice(b",\"value\":");
        json::append(&mut text, &self.value)?;
        text.push(b'}');
        Ok(ContentDigest::of(&text))
    }
}

impl<'a, A> Said<'a, A> {
    /// As a proposal says it whose arguments are still at hand.
    pub(crate) fn with(args: &'a A, proposal: &'a Proposal) -> Self {
        Self {
            args,
            connector: &proposal.action.connector,
            entity_key: &proposal.entity_key,
            tool: &proposal.action.tool,
            value: proposal.value.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_said_is_hashed_as_its_canonical_form() {
        let (connector, tool) = (ConnectorName::parse("shop"), ToolName::parse("orders.hold"));
        let (connector, tool) = (connector.expect("a name"), tool.expect("a name"));
        for entity in ["order:1", "order:\"é\\/𝄞"] {
            let entity_key = EntityKey::parse(entity).expect("an entity");
            for value in [None, Some(json!(180.0)), Some(json!(-3)), Some(json!(1e21))] {
                let value = value.as_ref().and_then(Value::as_number);
                let args = json!({"b": [1.5, null, "\u{1}\n"], "a": {"z": true, "é": -0.5, "": 0}});
                let said = Said {
                    args: &args,
                    connector: &connector,
                    entity_key: &entity_key,
                    tool: &tool,
                    value,
                };
                let whole = json::digest(&said).expect("a digest");
                assert_eq!(said.digest(), Ok(whole), "{said:?}");
            }
        }
    }
}
