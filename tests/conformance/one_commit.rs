//! Everything that two processes, a database and their deaths can do to one transactional action,
//! decided by the kernel's own functions: breadth first over all states, each once.

use std::collections::HashSet;
use std::time::Duration;

use operators_kernel::life::{self, ClaimStep, EntityRecord, KeyRecord, PerformStep, Phase, Turn};
use operators_kernel::{
    Claim, EffectClass, Performance, SessionId, SettledOutcome, Settlement, StoreTime,
};
use operators_tests::conformance::desk::{applied, ask_as, failed, fingerprint, moment};
use operators_tests::conformance::transactional::job;
use serde_json::json;

/// A call ends within one tick of its intent; time and attempts have bounds.
const DEADLINE: Duration = Duration::from_micros(1);
const NOW_MAX: i64 = 3;
const GRANTS_MAX: u64 = 3;

/// A rule that is taken away, to see that it is missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// Whoever comes with work has it run.
    RunUnasked,
    /// An owner's death is a doubt, as for any other class.
    DeathIsADoubt,
}

#[derive(Debug, Clone)]
struct World {
    claim: Claim,
    key: Option<KeyRecord>,
    entity: EntityRecord,
    /// Each worker's session, and what it holds.
    workers: [(u64, Option<Performance>); 2],
    sessions: u64,
    /// How often the row was changed, for good.
    rows: usize,
    now: i64,
}

impl World {
    fn new(broken: Broken) -> Self {
        let mut claim = ask_as(EffectClass::Transactional, "account:ada", "k1");
        if broken == Broken::DeathIsADoubt {
            claim.effect = EffectClass::Opaque;
        }
        claim.deadline = DEADLINE;
        claim.fingerprint = fingerprint(&claim.proposal);
        Self {
            claim,
            key: None,
            entity: EntityRecord::default(),
            workers: [(1, None), (2, None)],
            sessions: 2,
            rows: 0,
            now: 0,
        }
    }

    /// What tells two states apart.
    fn compact(&self) -> String {
        let key = self.key.as_ref();
        let key = key.map(|key| (key.phase, key.mark(), key.proposal.receipt_id.clone()));
        let workers = self.workers.each_ref().map(|(session, held)| {
            let held = held.as_ref().map(|held| held.mark.clone());
            (*session, held)
        });
        format!(
            "{key:?} {:?} {workers:?} {} {}",
            self.entity, self.rows, self.now
        )
    }

    /// What must hold, in words if it does not.
    fn violated(&self) -> Option<&'static str> {
        let phase = self.key.as_ref().map(|key| key.phase);
        let is_burned = phase == Some(Phase::Applied);
        if self.rows > 1 {
            return Some("the row was changed twice");
        }
        if is_burned != (self.rows == 1) {
            return Some("row and burn disagree");
        }
        (phase == Some(Phase::InDoubt) || self.entity.doubt.is_some()).then_some("a doubt")
    }

    fn successors(&self, broken: Broken) -> Vec<(String, Self)> {
        let mut next = Vec::new();
        for who in 0..self.workers.len() {
            match &self.workers[who].1 {
                None => next.extend(self.claims(who)),
                Some(held) => {
                    for outcome in [applied(), failed()] {
                        let done = self.performs(held, &outcome, broken);
                        next.push((format!("{who} performs, unheard"), done.clone()));
                        let mut heard = done;
                        heard.workers[who].1 = None;
                        next.push((format!("{who} performs"), heard));
                    }
                }
            }
            next.push((format!("{who} crashes"), self.crashed(who)));
        }
        next.extend(self.buried());
        if self.now < NOW_MAX {
            let mut later = self.clone();
            later.now += 1;
            next.push(("time passes".to_owned(), later));
        }
        next
    }

    fn claims(&self, who: usize) -> Option<(String, Self)> {
        let mut claim = self.claim.clone();
        claim.session = SessionId(self.workers[who].0);
        claim.proposal.receipt_id = format!("r{}", self.entity.fence.0 + 1).into();
        if self.entity.fence.0 >= GRANTS_MAX {
            return None;
        }
        let turn = match self.entity.holder {
            Some(_) => Turn::Taken,
            None => Turn::Free,
        };
        let now = StoreTime(self.now);
        let ClaimStep::Grant { key, entity } =
            life::claim(self.key.as_ref(), &self.entity, turn, &claim, now)
        else {
            return None;
        };
        let mut world = self.clone();
        world.workers[who].1 = Some(Performance {
            session: claim.session,
            mark: key.mark(),
            proposal: claim.proposal,
            work: job("", json!([]), DEADLINE),
            at: self.claim.at,
        });
        world.key = Some(key.into_inner());
        world.entity = entity;
        Some((format!("{who} claims"), world))
    }

    /// The database refuses it or not; row and settlement are one step, as they are one commit.
    fn performs(&self, held: &Performance, outcome: &SettledOutcome, broken: Broken) -> Self {
        let mut world = self.clone();
        let key = world.key.as_ref().expect("claimed");
        let mut settlement = held.not_run("refused".to_owned());
        let step = life::perform(key, &world.entity, held, StoreTime(self.now));
        match step {
            PerformStep::Run => settlement.outcome = outcome.clone(),
            _ if broken == Broken::RunUnasked => settlement.outcome = outcome.clone(),
            PerformStep::Refuse(_) => {}
            PerformStep::Done(_) | PerformStep::Over => return world,
        }
        world.settles(&settlement);
        world
    }

    fn settles(&mut self, settlement: &Settlement) {
        let key = self.key.as_ref().expect("claimed");
        if matches!(settlement.outcome, SettledOutcome::Applied(_)) {
            self.rows += 1;
        }
        let step = life::settle(key, &self.entity, settlement);
        if let Some(key) = step.key {
            self.key = Some(key.into_inner());
        }
        if let Some(entity) = step.entity {
            self.entity = entity;
        }
    }

    fn crashed(&self, who: usize) -> Self {
        let mut world = self.clone();
        world.sessions = (world.sessions + 1).min(6);
        world.workers[who] = (world.sessions, None);
        world
    }

    /// Whoever holds the turn is taken for dead, rightly or not.
    fn buried(&self) -> Option<(String, Self)> {
        let key = self.key.as_ref()?;
        let at = self.claim.at;
        let (key, entity, _) = life::owner_died(key, &self.entity, at)?;
        let mut world = self.clone();
        world.key = Some(key);
        world.entity = entity;
        Some(("the owner is buried".to_owned(), world))
    }
}

/// How many states there are, and the first that breaks what must hold.
fn explore(broken: Broken) -> (usize, Option<&'static str>) {
    let start = World::new(broken);
    let mut seen = HashSet::from([start.compact()]);
    let mut open = vec![start];
    while let Some(world) = open.pop() {
        for (_, next) in world.successors(broken) {
            if let Some(broken) = next.violated() {
                return (seen.len(), Some(broken));
            }
            if seen.insert(next.compact()) {
                open.push(next);
            }
        }
    }
    (seen.len(), None)
}

/// Rules 12.1, 12.2, 12.4.
#[test]
fn a_row_is_changed_once_and_only_with_its_burn_whoever_dies_when() {
    let (states, violated) = explore(Broken::Nothing);
    println!("{states} states");
    assert_eq!(violated, None);
    assert!(states > 500, "{states} states are not all there are");
}

#[test]
fn a_rule_that_is_taken_away_is_missed() {
    assert!(explore(Broken::RunUnasked).1.is_some());
    assert_eq!(explore(Broken::DeathIsADoubt).1, Some("a doubt"));
}

/// Rule 12.4: an earlier doubt of the same key, from when its tool was another, is not forgotten.
#[test]
fn an_owners_death_frees_only_what_no_earlier_attempt_holds() {
    let world = World::new(Broken::Nothing);
    let (_, world) = world.claims(0).expect("granted");
    let key = world.key.expect("claimed");
    let died = |key: &KeyRecord| {
        let died = life::owner_died(key, &world.entity, moment()).expect("an intent");
        (died.0.phase, died.1.doubt.is_some(), died.1.holder)
    };
    assert_eq!(died(&key), (Phase::Failed, false, None));
    let mut resent = key.clone();
    resent.open_attempts = vec![1];
    resent.attempt = 2;
    assert_eq!(died(&resent), (Phase::InDoubt, true, None));
    let mut opaque = key;
    opaque.effect = EffectClass::Opaque;
    assert_eq!(died(&opaque), (Phase::InDoubt, true, None));
}
