//! The small world: what tells its states apart, and what must never have happened.

mod steps;

use std::sync::Arc;

use operators_kernel::life::{EntityRecord, KeyRecord, Phase};
use operators_kernel::{EffectClass, OnUnknown, SettledOutcome, Settlement, Shared, StoreTime};

/// A rule taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    NotAppliedIsBelievedAtOnce,
    SentWithoutALease,
    DeadlineFromTheSend,
    FailedResendClearsTheDoubt,
    TimeOutIsAFailure,
    TimeOutIsASuccess,
    DeathFreesTheIntent,
    DoubtHoldsNobody,
    NobodyWaitsForLanding,
    SettlesAnyAttempt,
}

/// What the world is like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) effect: EffectClass,
    /// What a doubt leads to.
    pub(super) on_unknown: OnUnknown,
    pub(super) keys: usize,
    /// Crashes, and leases of living owners that run out.
    pub(super) mishaps: u8,
    pub(super) broken: Option<Broken>,
}

impl Rules {
    fn lack(&self, broken: Broken) -> bool {
        self.broken == Some(broken)
    }
}

/// What must never be violated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Invariant {
    /// At most one effect per key, as the vendor counts them.
    OneEffect,
    /// No effect lands once another key had a later turn on the entity.
    NoOverlap,
    /// A burned key's effect happened.
    BurnedMeansEffect,
    /// The entity's hold is its keys'.
    HoldInStep,
    /// A settlement asked again moves nothing.
    SettledOnce,
}

#[derive(Clone)]
enum Stage {
    Idle,
    /// The intent is durable, nothing was sent.
    Claimed(Arc<Settlement>),
    /// The call was sent.
    Sent(Arc<Settlement>),
    /// The call ended, one way or another.
    Answered(Arc<Settlement>),
}

#[derive(Clone)]
struct Worker {
    session: u64,
    key: usize,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Flying,
    Landed,
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    key: usize,
    fence: u64,
    until: i64,
    fate: Fate,
}

/// Sessions by the order in which they turn up.
#[derive(Default)]
struct Names(Vec<u64>);

impl Names {
    fn of(&mut self, session: u64) -> i64 {
        let known = self.0.iter().position(|known| *known == session);
        let place = known.unwrap_or_else(|| {
            self.0.push(session);
            self.0.len() - 1
        });
        i64::try_from(place).expect("few")
    }
}

/// One state.
#[derive(Clone)]
pub(super) struct World {
    now: i64,
    keys: Vec<Option<Shared<KeyRecord>>>,
    entity: EntityRecord,
    workers: [Worker; 2],
    /// Sessions that were not declared dead.
    alive: Vec<u64>,
    sessions: u64,
    requests: Vec<Request>,
    /// What the vendor did, by key.
    effects: Vec<u8>,
    mishaps: u8,
    overlapped: bool,
    settled_twice: bool,
}

impl World {
    pub(super) fn new(rules: &Rules) -> Self {
        let worker = |session| Worker {
            session,
            key: 0,
            stage: Stage::Idle,
        };
        Self {
            now: 0,
            keys: vec![None; rules.keys],
            entity: EntityRecord::default(),
            workers: [worker(1), worker(2)],
            alive: vec![1, 2],
            sessions: 2,
            requests: Vec::new(),
            effects: vec![0; rules.keys],
            mishaps: 0,
            overlapped: false,
            settled_twice: false,
        }
    }

    /// All that tells this state from others. Who is called 0 and who 1, which number a session
    /// has, and how long ago something is past, are not.
    pub(super) fn compact(&self) -> Vec<i64> {
        let (one, other) = (self.compact_from(0), self.compact_from(1));
        one.min(other)
    }

    fn compact_from(&self, first: usize) -> Vec<i64> {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let ahead = |time: StoreTime| time.0.saturating_sub(self.now).max(0);
        let mut names = Names::default();
        let mut all = vec![i64::from(self.mishaps)];
        for worker in [&self.workers[first], &self.workers[1 - first]] {
            let (stage, settlement) = match &worker.stage {
                Stage::Idle => (0, None),
                Stage::Claimed(settlement) => (1, Some(settlement)),
                Stage::Sent(settlement) => (2, Some(settlement)),
                Stage::Answered(settlement) => (3, Some(settlement)),
            };
            all.push(stage);
            if let Some(settlement) = settlement {
                let fence = settlement.mark.fence.map_or(0, |fence| fence.0);
                let outcome = match settlement.outcome {
                    SettledOutcome::Applied(_) => 1,
                    SettledOutcome::NotApplied { .. } => 2,
                    SettledOutcome::Unknown { .. } => 3,
                };
                all.extend([number(fence), outcome, names.of(worker.session)]);
                all.push(i64::try_from(worker.key).expect("few"));
                all.push(i64::from(self.alive.contains(&worker.session)));
            }
        }
        all.extend([
            number(self.entity.fence.0),
            ahead(self.entity.landing_until),
        ]);
        all.push(self.entity.holder.map_or(-1, |holder| names.of(holder.0)));
        all.push(i64::from(self.entity.doubt.is_some()));
        for (key, effects) in self.keys.iter().zip(&self.effects) {
            all.push(i64::from(*effects));
            let Some(key) = key else {
                all.push(-1);
                continue;
            };
            all.extend([
                key.phase as i64,
                i64::from(key.attempt),
                number(key.fence.0),
            ]);
            if key.phase == Phase::Intent {
                all.extend([names.of(key.session.0), ahead(key.quiescent_at)]);
            }
            let applied = key.application.as_ref();
            all.push(applied.map_or(-1, |applied| i64::from(applied.attempt)));
            all.push(ahead(key.open_until));
            all.push(i64::try_from(key.open_attempts.len()).expect("few"));
            all.extend(key.open_attempts.iter().map(|attempt| i64::from(*attempt)));
        }
        for request in &self.requests {
            let until = ahead(StoreTime(request.until));
            all.extend([-8, number(request.fence), until, request.fate as i64]);
        }
        all
    }

    /// The first invariant this state violates.
    pub(super) fn violated(&self, rules: &Rules) -> Option<Invariant> {
        // Sent again at its owner's word, an opaque call may take effect twice.
        let counts = rules.effect != EffectClass::Idempotent && rules.on_unknown == OnUnknown::Hold;
        if counts && self.effects.iter().any(|effects| *effects > 1) {
            return Some(Invariant::OneEffect);
        }
        if self.overlapped {
            return Some(Invariant::NoOverlap);
        }
        let burned_without = self.keys.iter().zip(&self.effects).any(|(key, effects)| {
            *effects == 0 && key.as_ref().is_some_and(|key| key.phase == Phase::Applied)
        });
        if burned_without {
            return Some(Invariant::BurnedMeansEffect);
        }
        if self.settled_twice {
            return Some(Invariant::SettledOnce);
        }
        let records = || self.keys.iter().flatten();
        let intent = records().find(|key| key.phase == Phase::Intent);
        let intents = records().filter(|key| key.phase == Phase::Intent).count();
        let doubts = records().filter(|key| key.phase == Phase::InDoubt).count();
        let in_step = rules.broken.is_some()
            || (intents <= 1
                && self.entity.holder == intent.map(|key| key.session)
                && intents + doubts <= 2
                && (doubts == 1) == (self.entity.doubt.is_some() && !self.resends()));
        (!in_step).then_some(Invariant::HoldInStep)
    }

    /// The doubt that holds the entity is being sent again.
    fn resends(&self) -> bool {
        let doubt = self.entity.doubt.as_ref();
        self.keys
            .iter()
            .flatten()
            .any(|key| key.phase == Phase::Intent && doubt == Some(&key.proposal.idempotency_key))
    }
}
