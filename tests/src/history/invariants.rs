//! What must hold over every history, whatever was killed when; one function each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use operators_kernel::life::{KeyRecord, Phase};
use operators_kernel::{IdempotencyKey, Receipt, ReceiptKind, ReceiptOutcome};

use super::{History, Line};
use crate::sink::Hit;

/// What must hold over every history, named as in the list of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invariant {
    /// At most one effect per key.
    I1,
    /// No two requests at once on an entity.
    I2,
    /// Turns in the order of the queue.
    I3,
    /// Refused means that nothing was seen (I9 as well).
    I4,
    /// One receipt per proposal.
    I5,
    /// Burned means that it took effect.
    I6,
    /// What was sent is settled, or listed as a doubt.
    I10,
    /// Revisions increase.
    I12,
    /// At rest nothing is in flight.
    L2,
}

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// Where, in words.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.text)
    }
}

#[derive(Debug, Default)]
struct Found(Vec<Violation>);

impl Found {
    fn add(&mut self, invariant: Invariant, text: String) {
        self.0.push(Violation { invariant, text });
    }
}

impl History {
    /// Every invariant that is broken, in words.
    pub fn violations(&self) -> Vec<Violation> {
        let checks: [fn(&Self, &mut Found); 9] = [
            Self::at_most_one_effect_per_key,
            Self::no_overlap_per_entity,
            Self::turns_in_arrival_order,
            Self::refused_means_nothing_seen,
            Self::one_receipt_per_proposal,
            Self::burned_means_effect,
            Self::what_was_sent_is_settled_or_a_doubt,
            Self::revisions_increase,
            Self::nothing_in_flight_at_rest,
        ];
        let mut found = Found::default();
        for check in checks {
            check(self, &mut found);
        }
        found.0
    }

    fn proposals(&self) -> impl Iterator<Item = &Receipt> {
        self.receipts
            .iter()
            .filter(|receipt| receipt.kind == ReceiptKind::Proposal)
    }

    fn hit_keys(&self) -> BTreeSet<&str> {
        self.hits.iter().map(|hit| hit.key.as_str()).collect()
    }

    fn was_in_doubt(&self, key: &str) -> bool {
        self.receipts.iter().any(|receipt| {
            receipt.idempotency_key.as_str() == key
                && receipt.outcome == Some(ReceiptOutcome::InDoubt)
        })
    }

    fn record(&self, key: &str) -> Option<&KeyRecord> {
        self.keys
            .iter()
            .find(|(name, _)| name.as_str() == key)
            .map(|(_, record)| record)
    }

    fn at_most_one_effect_per_key(&self, found: &mut Found) {
        for key in self.hit_keys() {
            let count = self.effects(key).count();
            if count > 1 {
                found.add(
                    Invariant::I1,
                    format!("`{key}` took effect {count} times: {:?}", self.spoken(key)),
                );
            }
        }
    }

    /// A request is under way from its arrival to its answer. Once its outcome was a doubt nobody
    /// waits for its answer any more: then it counts up to its effect, if it had one.
    fn no_overlap_per_entity(&self, found: &mut Found) {
        let mut lanes: BTreeMap<&str, Vec<(u64, u64, &Hit)>> = BTreeMap::new();
        for hit in &self.hits {
            let end = match (self.was_in_doubt(&hit.key), hit.applied_ns) {
                (false, _) => hit.left_ns.unwrap_or(u64::MAX),
                (true, Some(applied_ns)) if !hit.is_replay => applied_ns,
                (true, _) => continue,
            };
            let lane = lanes.entry(&hit.entity).or_default();
            lane.push((hit.arrived_ns, end, hit));
        }
        for (entity, mut lane) in lanes {
            lane.sort_by_key(|(start, ..)| *start);
            let mut last: Option<(u64, &Hit)> = None;
            for (start, end, hit) in lane {
                if let Some((until, before)) = last
                    && start < until
                {
                    let text = format!("on `{entity}`, {hit:?} came during {before:?}");
                    found.add(Invariant::I2, text);
                }
                if last.is_none_or(|(until, _)| end > until) {
                    last = Some((end, hit));
                }
            }
        }
    }

    /// Whoever waited in the store's queue was sent in the order of the queue.
    fn turns_in_arrival_order(&self, found: &mut Found) {
        let mut lanes: BTreeMap<&str, Vec<(u64, &str)>> = BTreeMap::new();
        for line in &self.lines {
            let Line::Ticket(queued) = line else { continue };
            // A key of several proposals cannot be told apart in the sink's log; one that died in the
            // queue left no receipt, and another was sent for its key.
            let mut proposals = self.proposals_of(&queued.key);
            let is_the_one = proposals
                .next()
                .is_some_and(|r| r.receipt_id == queued.receipt_id);
            let is_only = is_the_one && proposals.next().is_none();
            if is_only && !self.was_in_doubt(&queued.key) {
                let lane = lanes.entry(&queued.entity).or_default();
                lane.push((queued.ticket, &queued.key));
            }
        }
        for (entity, mut lane) in lanes {
            lane.sort_unstable();
            lane.dedup();
            let sent: Vec<(u64, &str)> = lane
                .iter()
                .filter_map(|(_, key)| Some((self.effects(key).next()?.arrived_ns, *key)))
                .collect();
            if let Some(pair) = sent.windows(2).find(|pair| pair[0].0 > pair[1].0) {
                let text = format!("on `{entity}`, `{}` overtook `{}`", pair[1].1, pair[0].1);
                found.add(Invariant::I3, text);
            }
        }
    }

    fn proposals_of<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Receipt> {
        self.proposals()
            .filter(move |receipt| receipt.idempotency_key.as_str() == key)
    }

    /// Every request must belong to a proposal that was let through and made an attempt.
    fn refused_means_nothing_seen(&self, found: &mut Found) {
        for key in self.hit_keys() {
            let hits = self.hits.iter().filter(|hit| hit.key == key).count();
            let attempts = self
                .proposals()
                .filter(|receipt| {
                    receipt.idempotency_key.as_str() == key && made_an_attempt(receipt)
                })
                .count();
            if hits > attempts {
                let text = format!(
                    "`{key}` was sent {hits} times on {attempts} attempts: {:?}",
                    self.spoken(key)
                );
                found.add(Invariant::I4, text);
            }
        }
    }

    fn one_receipt_per_proposal(&self, found: &mut Found) {
        let mut ids: BTreeMap<&str, usize> = BTreeMap::new();
        for receipt in &self.receipts {
            *ids.entry(&receipt.receipt_id).or_default() += 1;
        }
        for (id, count) in ids.iter().filter(|(_, count)| **count > 1) {
            found.add(Invariant::I5, format!("{count} receipts are called `{id}`"));
        }
        let mut proposed: BTreeSet<&str> = BTreeSet::new();
        for line in &self.lines {
            match line {
                Line::Proposed(id) => {
                    proposed.insert(id);
                }
                Line::Answered(id) if !self.proposals().any(|r| r.receipt_id == *id) => {
                    found.add(Invariant::I5, format!("proposal `{id}` left no receipt"));
                }
                Line::Result(result) if !ids.contains_key(result.receipt_id.as_str()) => {
                    let text = format!("result without its receipt `{}`", result.receipt_id);
                    found.add(Invariant::I5, text);
                }
                _ => {}
            }
        }
        for receipt in &self.receipts {
            let id = receipt.receipt_id.as_str();
            let cited = receipt.original_receipt_id.as_deref();
            if receipt.kind == ReceiptKind::Proposal && !proposed.contains(id) {
                found.add(Invariant::I5, format!("nobody proposed receipt `{id}`"));
            }
            if cited.is_some_and(|cited| !ids.contains_key(cited)) {
                let text = format!("receipt `{id}` cites `{cited:?}`, which is not there");
                found.add(Invariant::I5, text);
            }
        }
    }

    fn burned_means_effect(&self, found: &mut Found) {
        for (name, record) in &self.keys {
            if record.phase == Phase::Applied && self.effects(name.as_str()).next().is_none() {
                found.add(Invariant::I6, format!("`{name}` is burned without effect"));
            }
        }
    }

    fn what_was_sent_is_settled_or_a_doubt(&self, found: &mut Found) {
        let in_doubt: BTreeSet<IdempotencyKey> = self
            .keys
            .iter()
            .filter(|(_, record)| record.phase == Phase::InDoubt)
            .map(|(name, _)| name.clone())
            .collect();
        if in_doubt != self.doubts {
            let text = format!("in doubt {in_doubt:?}, listed {:?}", self.doubts);
            found.add(Invariant::I10, text);
        }
        for key in self.hit_keys() {
            let phase = self.record(key).map(|record| record.phase);
            let is_open = matches!(phase, Some(Phase::InDoubt));
            let is_burned = matches!(phase, Some(Phase::Applied | Phase::WrittenOff));
            let took_effect = self.effects(key).next().is_some();
            let was_answered = |hit: &Hit| hit.key != key || hit.status.is_some();
            let is_lost = match phase {
                None | Some(Phase::Intent | Phase::Forgotten) => true,
                Some(_) => took_effect && !is_open && !is_burned,
            };
            // "Failed" needs the vendor's word, or a person's, about every request of the key.
            let is_guessed = phase == Some(Phase::Failed)
                && !self.hits.iter().all(was_answered)
                && !self.was_in_doubt(key);
            if is_lost || is_guessed {
                let text = format!("`{key}` was sent and is {phase:?}: {:?}", self.spoken(key));
                found.add(Invariant::I10, text);
            }
        }
    }

    fn revisions_increase(&self, found: &mut Found) {
        let mut last: BTreeMap<&str, (u64, &str)> = BTreeMap::new();
        let mut effects: Vec<&Hit> = self.hits.iter().filter(|hit| hit.is_effect()).collect();
        effects.sort_by_key(|hit| hit.applied_ns);
        for hit in effects {
            let revision = self
                .receipts
                .iter()
                .find(|receipt| receipt.idempotency_key.as_str() == hit.key)
                .and_then(|receipt| receipt.revision);
            let Some(revision) = revision else { continue };
            match last.get(hit.entity.as_str()) {
                Some((newest, key)) if *newest > revision => {
                    let text = format!(
                        "on `{}`, `{}` with revision {revision} came after `{key}` with {newest}",
                        hit.entity, hit.key
                    );
                    found.add(Invariant::I12, text);
                }
                _ => {
                    last.insert(&hit.entity, (revision, &hit.key));
                }
            }
        }
    }

    fn nothing_in_flight_at_rest(&self, found: &mut Found) {
        for (name, record) in &self.keys {
            if record.phase == Phase::Intent {
                found.add(Invariant::L2, format!("`{name}` is still an intent"));
            }
        }
        for (name, entity) in &self.entities {
            if let Some(holder) = entity.holder {
                found.add(Invariant::L2, format!("`{name}` is held by {holder}"));
            }
            let doubt = entity.doubt.as_ref();
            if doubt.is_some_and(|doubt| !self.doubts.contains(doubt)) {
                let text = format!("`{name}` is held by a doubt that is none: {doubt:?}");
                found.add(Invariant::L2, text);
            }
        }
    }

    /// What the trail and the sink tell of one key, for messages.
    fn spoken(&self, key: &str) -> Vec<String> {
        let receipts = self
            .receipts
            .iter()
            .filter(|receipt| receipt.idempotency_key.as_str() == key)
            .map(|r| format!("{:?} {:?} {:?} {:?}", r.kind, r.outcome, r.attempt, r.error));
        let hits = self.hits.iter().filter(|hit| hit.key == key);
        receipts.chain(hits.map(|hit| format!("{hit:?}"))).collect()
    }
}

fn made_an_attempt(receipt: &Receipt) -> bool {
    use ReceiptOutcome::{Applied, Failed, InDoubt};
    matches!(receipt.outcome, Some(Applied | Failed | InDoubt)) && receipt.session.is_some()
}
