//! What can happen next.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use operators_kernel::life::{self, ClaimStep, Phase, ResolveStep, Turn};
use operators_kernel::{
    Claim, EffectClass, Resolution, Resolver, SessionId, Settlement, Shared, StoreTime, Verdict,
};
use operators_tests::conformance::desk::{
    applied, ask, failed, fingerprint, it_happened, moment, unknown,
};

use super::{Broken, Fate, Request, Rules, Stage, World};

/// A call ends within one tick of its intent and may land for one more.
const DEADLINE: i64 = 1;
const MAX_LAND: i64 = 1;
/// Time has no bound; the attempts have.
const GRANTS_MAX: u64 = 3;

impl World {
    /// All that can happen next.
    pub(in super::super) fn successors(&self, rules: &Rules) -> Vec<(String, Self)> {
        let mut next = Vec::new();
        for who in 0..self.workers.len() {
            self.worker_steps(who, rules, &mut next);
        }
        for at in 0..self.requests.len() {
            self.network_steps(at, rules, &mut next);
        }
        self.reaper_steps(rules, &mut next);
        for key in 0..self.keys.len() {
            self.resolver_steps(key, rules, &mut next);
        }
        let mut later = self.clone();
        later.now += 1;
        let now = later.now;
        // Whatever could land by now has landed or is gone.
        later
            .requests
            .retain(|request| request.fate != Fate::Flying || now < request.until);
        next.push(("time passes".to_owned(), later));
        next
    }

    fn worker_steps(&self, who: usize, rules: &Rules, next: &mut Vec<(String, Self)>) {
        let worker = &self.workers[who];
        let is_alive = self.alive.contains(&worker.session);
        let mut become_answered = |settlement: &Settlement, outcome, words: &str| {
            let mut world = self.clone();
            let mut settlement = settlement.clone();
            settlement.outcome = outcome;
            world.workers[who].stage = Stage::Answered(Arc::new(settlement));
            next.push((format!("{who} {words}"), world));
        };
        match &worker.stage {
            Stage::Idle => {
                for key in 0..self.keys.len() {
                    next.extend(self.claims(who, key, rules));
                }
            }
            Stage::Claimed(settlement) => {
                let until = self.landing_limit(worker.key, rules);
                let in_time = self.now < until - MAX_LAND;
                if in_time && (is_alive || rules.lack(Broken::SentWithoutALease)) {
                    let world = self.sends(who, settlement, until);
                    next.push((format!("{who} sends"), world));
                } else {
                    become_answered(settlement, failed(), "is too late, sends nothing");
                }
            }
            Stage::Sent(settlement) => {
                let fence = settlement.mark.fence.map_or(0, |fence| fence.0);
                let request = self.requests.iter().find(|request| request.fence == fence);
                match request.map(|request| request.fate) {
                    Some(Fate::Landed) => become_answered(settlement, applied(), "hears yes"),
                    Some(Fate::Refused) => become_answered(settlement, failed(), "hears no"),
                    Some(Fate::Flying) | None => {}
                }
                let taken_for = match rules.broken {
                    Some(Broken::TimeOutIsAFailure) => failed(),
                    Some(Broken::TimeOutIsASuccess) => applied(),
                    _ => unknown(),
                };
                become_answered(settlement, taken_for, "hears nothing");
            }
            Stage::Answered(settlement) => {
                next.push((
                    format!("{who} settles"),
                    self.settles(who, settlement, rules),
                ));
            }
        }
        if !matches!(worker.stage, Stage::Idle) && self.mishaps < rules.mishaps {
            let mut world = self.clone();
            world.mishaps += 1;
            world.workers[who].stage = Stage::Idle;
            world.new_session(who);
            next.push((format!("{who} crashes and starts again"), world.tidied()));
        }
    }

    fn new_session(&mut self, who: usize) {
        self.sessions += 1;
        self.alive.push(self.sessions);
        self.workers[who].session = self.sessions;
    }

    fn claims(&self, who: usize, at: usize, rules: &Rules) -> Option<(String, Self)> {
        if self.entity.fence.0 >= GRANTS_MAX {
            return None;
        }
        let mut world = self.clone();
        if !world.alive.contains(&world.workers[who].session) {
            world.new_session(who);
        }
        let claim = claim_of(
            at,
            self.entity.fence.0 + 1,
            world.workers[who].session,
            rules,
        );
        let turn = match world.entity.holder {
            Some(_) => Turn::Taken,
            None => Turn::Free,
        };
        let key = world.keys[at].as_deref();
        let step = life::claim(key, &world.entity, turn, &claim, StoreTime(world.now));
        let ClaimStep::Grant { key, entity } = step else {
            return None;
        };
        let settlement = Settlement {
            session: claim.session,
            mark: key.mark(),
            proposal: claim.proposal,
            outcome: unknown(),
            result_digest: None,
            at: claim.at,
        };
        world.keys[at] = Some(key);
        world.entity = entity;
        world.workers[who].key = at;
        world.workers[who].stage = Stage::Claimed(Arc::new(settlement));
        Some((format!("{who} claims key {at}"), world.patched(at, rules)))
    }

    /// Until when a call sent now may land: its deadline counts from its intent.
    fn landing_limit(&self, key: usize, rules: &Rules) -> i64 {
        let from_send =
            rules.lack(Broken::DeadlineFromTheSend) || rules.lack(Broken::SentWithoutALease);
        let intent = self.keys[key].as_ref().map(|key| key.quiescent_at.0);
        intent
            .filter(|_| !from_send)
            .unwrap_or(self.now + DEADLINE + MAX_LAND)
    }

    fn sends(&self, who: usize, settlement: &Arc<Settlement>, until: i64) -> Self {
        let mut world = self.clone();
        world.requests.push(Request {
            key: world.workers[who].key,
            fence: settlement.mark.fence.map_or(0, |fence| fence.0),
            until,
            fate: Fate::Flying,
        });
        world.requests.sort();
        world.workers[who].stage = Stage::Sent(Arc::clone(settlement));
        world
    }

    fn settles(&self, who: usize, settlement: &Settlement, rules: &Rules) -> Self {
        let mut world = self.clone();
        let at = world.workers[who].key;
        let record = self.keys[at].as_deref().expect("claimed");
        let mut settlement = settlement.clone();
        if rules.lack(Broken::SettlesAnyAttempt) {
            settlement.mark = record.mark();
            settlement.proposal = record.proposal.clone();
        }
        let step = life::settle(record, &self.entity, &settlement);
        let key = step.key.map_or_else(|| record.clone(), Shared::into_inner);
        let entity = step.entity.unwrap_or_else(|| self.entity.clone());
        let again = life::settle(&key, &entity, &settlement);
        world.settled_twice = again.key.is_some_and(|again| *again != key)
            || again.entity.is_some_and(|again| again != entity);
        world.keys[at] = Some(key.into());
        world.entity = entity;
        world.workers[who].stage = Stage::Idle;
        world.patched(at, rules).tidied()
    }

    fn network_steps(&self, at: usize, rules: &Rules, next: &mut Vec<(String, Self)>) {
        let request = self.requests[at];
        if request.fate != Fate::Flying {
            return;
        }
        let name = format!("the request of turn {}", request.fence);
        let mut landed = self.clone();
        landed.requests[at].fate = Fate::Landed;
        let keyed = matches!(rules.effect, EffectClass::Keyed { .. });
        let is_repeat = keyed && self.effects[request.key] > 0;
        if !is_repeat {
            landed.effects[request.key] += 1;
            landed.overlapped = self.keys.iter().enumerate().any(|(at, key)| {
                at != request.key && key.as_ref().is_some_and(|key| key.fence.0 > request.fence)
            });
        }
        next.push((format!("{name} lands"), landed.tidied()));
        let mut refused = self.clone();
        refused.requests[at].fate = Fate::Refused;
        next.push((format!("{name} is refused"), refused.tidied()));
        let mut dropped = self.clone();
        dropped.requests.remove(at);
        next.push((format!("{name} is lost"), dropped));
    }

    /// Leases that run out: of the crashed at any time, of the living by mishap.
    fn reaper_steps(&self, rules: &Rules, next: &mut Vec<(String, Self)>) {
        for (place, session) in self.alive.iter().enumerate() {
            let owner = self
                .workers
                .iter()
                .find(|worker| worker.session == *session);
            let is_living = owner.is_some();
            let is_idle = owner.is_some_and(|owner| matches!(owner.stage, Stage::Idle));
            if is_idle || (is_living && self.mishaps == rules.mishaps) {
                continue;
            }
            let mut world = self.clone();
            world.alive.remove(place);
            world.mishaps += u8::from(is_living);
            for at in 0..world.keys.len() {
                let Some(key) = world.keys[at].as_deref() else {
                    continue;
                };
                if key.session != SessionId(*session) {
                    continue;
                }
                let died = life::owner_died(key, &world.entity, moment());
                if let Some((mut key, mut entity, _)) = died {
                    if rules.lack(Broken::DeathFreesTheIntent) {
                        key.phase = Phase::Failed;
                        key.open_attempts.clear();
                        entity.doubt = None;
                    }
                    world.keys[at] = Some(key.into());
                    world.entity = entity;
                    world = world.patched(at, rules);
                }
            }
            next.push((format!("session {session} is declared dead"), world));
        }
    }

    /// A person, or a probe, who says what is true at that moment.
    fn resolver_steps(&self, at: usize, rules: &Rules, next: &mut Vec<(String, Self)>) {
        let Some(key) = self.keys[at].as_deref() else {
            return;
        };
        if key.phase != Phase::InDoubt {
            return;
        }
        let truth = match self.effects[at] {
            0 => (Verdict::NotApplied, "it did not happen"),
            _ => (it_happened(), "it happened"),
        };
        for (verdict, words) in [truth, (Verdict::WriteOff, "write it off")] {
            let resolution = Resolution {
                key: key.proposal.idempotency_key.clone(),
                generation: key.generation,
                attempt: key.attempt,
                verdict,
                by: Resolver::Probe,
                note: None,
                receipt_id: "rc_person".into(),
                result_digest: None,
                at: key.proposal.proposed_at,
            };
            let now = match rules.broken {
                Some(Broken::NotAppliedIsBelievedAtOnce) => i64::MAX,
                _ => self.now,
            };
            let step = life::resolve(key, &self.entity, &resolution, StoreTime(now));
            if let ResolveStep::Close { key, entity, .. } = step {
                let mut world = self.clone();
                world.keys[at] = Some(key);
                world.entity = entity;
                next.push((format!("key {at}: {words}"), world.patched(at, rules)));
            }
        }
    }

    /// Takes a rule out where it would show.
    fn patched(mut self, at: usize, rules: &Rules) -> Self {
        match rules.broken {
            Some(Broken::DoubtHoldsNobody) => self.entity.doubt = None,
            Some(Broken::NobodyWaitsForLanding) => self.entity.landing_until = StoreTime(i64::MIN),
            Some(Broken::FailedResendClearsTheDoubt) => {
                let key = self.keys[at].as_deref();
                let cleared = key.filter(|key| {
                    key.phase == Phase::InDoubt && !key.open_attempts.contains(&key.attempt)
                });
                if let Some(mut key) = cleared.cloned() {
                    key.phase = Phase::Failed;
                    key.open_attempts.clear();
                    self.entity.doubt = None;
                    self.keys[at] = Some(key.into());
                }
            }
            _ => {}
        }
        self
    }

    /// Forgets answers that nobody waits for any more.
    fn tidied(mut self) -> Self {
        let awaited: Vec<u64> = self
            .workers
            .iter()
            .filter_map(|worker| match &worker.stage {
                Stage::Sent(settlement) => settlement.mark.fence.map(|fence| fence.0),
                Stage::Idle | Stage::Claimed(_) | Stage::Answered(_) => None,
            })
            .collect();
        self.requests
            .retain(|request| request.fate == Fate::Flying || awaited.contains(&request.fence));
        self
    }
}

/// A proposal; each grant has a fence of its own, and so a receipt.
fn claim_of(key: usize, fence: u64, session: u64, rules: &Rules) -> Claim {
    static TEMPLATES: OnceLock<Vec<Claim>> = OnceLock::new();
    let templates = TEMPLATES.get_or_init(|| {
        let template = |name| {
            let mut claim = ask("order:1", name);
            claim.fingerprint = fingerprint(&claim.proposal);
            claim
        };
        ["k0", "k1"].map(template).into()
    });
    let mut claim = templates[key].clone();
    claim.proposal.receipt_id = format!("rc_{fence}").into();
    claim.effect = rules.effect;
    claim.on_unknown = rules.on_unknown;
    claim.session = SessionId(session);
    claim.deadline = Duration::from_micros(DEADLINE.unsigned_abs());
    claim.max_land = Duration::from_micros(MAX_LAND.unsigned_abs());
    claim
}
