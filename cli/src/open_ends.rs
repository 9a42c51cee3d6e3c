//! What of a tenant has no recorded end: attempts in flight, and doubts.
//!
//! Owns the look and its words. It writes nothing.

use std::time::Duration;

use anyhow::Result;
use operators_kernel::life::KeyRecord;
use operators_kernel::{InFlight, Ledger, OwnerState, StoreTime, TenantId};
use serde::Serialize;

use crate::output::shown;
use crate::words::duration;

/// Attempts in flight and doubts, a key in one of them only.
#[derive(Debug)]
pub(crate) struct OpenEnds {
    pub(crate) in_flight: Vec<InFlight>,
    pub(crate) doubts: Vec<KeyRecord>,
    /// The store's clock at the end of the look.
    pub(crate) now: StoreTime,
}

impl OpenEnds {
    /// Looks at what is in flight first: what becomes a doubt meanwhile is then seen as one.
    pub(crate) async fn of(ledger: &dyn Ledger, tenant: &TenantId) -> Result<Self> {
        let (mut in_flight, _) = ledger.in_flight(tenant).await?;
        let (doubts, mut now) = ledger.doubts(tenant).await?;
        if in_flight.is_empty() && doubts.is_empty() {
            // A doubt that was sent again between the two looks was in neither.
            (in_flight, now) = ledger.in_flight(tenant).await?;
        }
        let name = |key: &KeyRecord| key.proposal.idempotency_key.clone();
        in_flight.retain(|one| !doubts.iter().any(|doubt| name(doubt) == name(&one.key)));
        Ok(Self {
            in_flight,
            doubts,
            now,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight.is_empty() && self.doubts.is_empty()
    }

    /// How many of the attempts in flight have an owner of that kind.
    pub(crate) fn owned(&self, owner: OwnerState) -> usize {
        let of_owner = self.in_flight.iter().filter(|one| one.owner == owner);
        of_owner.count()
    }

    /// `2 in flight (1 owner gone, 1 owner alive)`.
    pub(crate) fn in_flight_in_words(&self) -> String {
        let kinds = [OwnerState::Gone, OwnerState::NotKnownYet, OwnerState::Alive];
        let counted = kinds.map(|kind| (self.owned(kind), kind));
        let counted = counted.iter().filter(|(count, _)| *count > 0);
        let words: Vec<String> = counted
            .map(|(count, kind)| format!("{count} {}", owner(*kind)))
            .collect();
        format!("{} in flight ({})", self.in_flight.len(), words.join(", "))
    }
}

/// Whether the process behind an attempt is there, in the words of listings.
pub(crate) fn owner(state: OwnerState) -> &'static str {
    match state {
        OwnerState::Alive => "owner alive",
        OwnerState::Gone => "owner gone",
        OwnerState::NotKnownYet => "owner not known yet",
    }
}

/// The same of one attempt, with what it means for whoever waits.
pub(crate) fn owner_in_words(attempt: &InFlight, now: StoreTime) -> String {
    let node = shown(&attempt.node);
    match attempt.owner {
        OwnerState::Alive => format!("`{node}`, which made it, is alive"),
        OwnerState::Gone => format!("`{node}`, which made it, is gone"),
        OwnerState::NotKnownYet => format!(
            "whether `{node}`, which made it, is gone is not known before its lease ends, in {}",
            duration(left(now, attempt.lease_until))
        ),
    }
}

/// From when on nothing of this key can land any more.
pub(crate) fn may_land_for(record: &KeyRecord, now: StoreTime) -> Duration {
    now.until(record.open_until.max(record.quiescent_at))
}

/// What is left of a span, rounded up: `0s` must mean that it is over.
pub(crate) fn left(now: StoreTime, until: StoreTime) -> Duration {
    Duration::from_secs(seconds_up(now.until(until)))
}

/// Whole seconds, rounded up.
pub(crate) fn seconds_up(span: Duration) -> u64 {
    u64::try_from(span.as_micros().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// An attempt in flight, as `--json` shows it. Spans, not times: the store's clock compares with
/// itself alone.
#[derive(Debug, Serialize)]
pub(crate) struct Flight<'a> {
    state: &'static str,
    pub(crate) idempotency_key: &'a str,
    pub(crate) entity_key: &'a str,
    pub(crate) connector: &'a str,
    pub(crate) tool: &'a str,
    effect: &'static str,
    generation: u32,
    pub(crate) attempt: u32,
    proposed_at: String,
    pub(crate) in_flight_for_seconds: u64,
    pub(crate) may_land_for_seconds: u64,
    pub(crate) owner: OwnerState,
    node: &'a str,
    lease_seconds: u64,
    pub(crate) lease_left_seconds: u64,
    receipt_id: &'a str,
}

impl<'a> Flight<'a> {
    pub(crate) fn new(attempt: &'a InFlight, now: StoreTime) -> Self {
        let record = &attempt.key;
        let proposal = &record.proposal;
        Self {
            state: "in_flight",
            idempotency_key: proposal.idempotency_key.as_str(),
            entity_key: proposal.entity_key.as_str(),
            connector: proposal.action.connector.as_str(),
            tool: proposal.action.tool.as_str(),
            effect: record.effect.as_str(),
            generation: record.generation,
            attempt: record.attempt,
            proposed_at: proposal.proposed_at.to_string(),
            in_flight_for_seconds: record.first_intent_at.until(now).as_secs(),
            may_land_for_seconds: seconds_up(may_land_for(record, now)),
            owner: attempt.owner,
            node: &attempt.node,
            lease_seconds: attempt.lease.as_secs(),
            lease_left_seconds: seconds_up(now.until(attempt.lease_until)),
            receipt_id: &proposal.receipt_id,
        }
    }
}
