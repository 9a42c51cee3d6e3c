//! The clients: what they ask next, of the store and of the model alike.

mod compare;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use operators_kernel::{
    Claim, ClaimAnswer, Clearance, DurableExec, EffectClass, EntityKey, Forget, OnDoubt, OnUnknown,
    Reason, Refusal, Resolution, ResolveAnswer, Resolver, SessionId, SettledOutcome, Settlement,
    StoreError, TenantId, Ticket, Verdict,
};
use operators_tests::conformance::desk::{
    LONG, applied, ask, failed, fingerprint, fresh_id, it_happened, moment, unknown,
};
use operators_tests::fixtures::{entity, key, tenant_named};
use operators_tests::stores::Bench;

use super::dice::Dice;
use super::model::{Fenced, Model, STEP};

const SHORT: Duration = Duration::from_millis(1);
const SESSIONS_MAX: usize = 8;

/// How alike a store and the model must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// To the last microsecond.
    Exact,
    /// Times and the order of what happened at once apart: the store's clock is its own, and its
    /// handles may be dropped.
    Timeless,
}

/// How often what was answered.
#[derive(Debug, Default)]
pub(super) struct Seen(BTreeMap<String, u64>);

impl Seen {
    fn note(&mut self, what: &str) {
        *self.0.entry(what.to_owned()).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            *self.0.entry(what.clone()).or_default() += count;
        }
    }

    pub(super) fn show(&self, store: &str) {
        println!("{store}: {:?}", self.0);
    }

    /// A run in which nothing happened proves nothing.
    pub(super) fn is_not_vacuous(&self) {
        for what in [
            "claimed",
            "wait",
            "probe",
            "duplicate",
            "conflict",
            "stale_revision",
            "in_doubt",
            "entity_in_doubt",
            "policy",
            "fenced",
            "settled",
            "late",
            "double_applied",
            "resolved",
            "may still land",
            "forgotten",
            "passed",
            "queued",
        ] {
            let count = self.0.get(what).copied().unwrap_or_default();
            assert!(count >= 20, "`{what}` was answered {count} times only");
        }
    }
}

/// Everybody who uses one store, and the model beside it.
pub(super) struct Client<'a> {
    bench: &'a dyn Bench,
    handles: Vec<Arc<dyn DurableExec>>,
    detail: Detail,
    dice: Dice,
    model: Model,
    before: Model,
    forgot: bool,
    place: String,
    sessions: Vec<(SessionId, usize, Duration)>,
    attempts: Vec<(Settlement, Option<SettledOutcome>)>,
    waiting: Vec<Claim>,
    reading: Vec<(TenantId, EntityKey, Ticket)>,
    asked: Vec<Claim>,
    pub(super) seen: Seen,
}

impl<'a> Client<'a> {
    pub(super) async fn start(bench: &'a dyn Bench, detail: Detail, dice: Dice) -> Self {
        let mut client = Self {
            bench,
            handles: vec![bench.open().await, bench.open().await],
            detail,
            dice,
            model: Model::default(),
            before: Model::default(),
            forgot: false,
            place: String::new(),
            sessions: Vec::new(),
            attempts: Vec::new(),
            waiting: Vec::new(),
            reading: Vec::new(),
            asked: Vec::new(),
            seen: Seen::default(),
        };
        for _ in 0..2 {
            client.open().await;
        }
        client
    }

    /// One call; `place` is told if an answer is not the model's.
    pub(super) async fn step(&mut self, place: &str) {
        place.clone_into(&mut self.place);
        self.model.pass_time();
        self.before = self.model.clone();
        self.forgot = false;
        match self.dice.below(100) {
            14 if self.detail == Detail::Timeless => self.crash().await,
            0..6 | 15 if self.sessions.len() < SESSIONS_MAX => self.open().await,
            6..11 => self.beat().await,
            11..14 => self.close().await,
            16..58 => self.claim().await,
            58..78 => self.settle().await,
            78..85 => self.resolve().await,
            85..90 => self.forget().await,
            90..97 => self.pass().await,
            _ => self.leave().await,
        }
    }

    fn session(&mut self) -> (SessionId, usize, Duration) {
        *self.dice.pick(&self.sessions)
    }

    fn tenant(&mut self) -> TenantId {
        let name = *self.dice.pick(&["acme", "acme", "globex"]);
        tenant_named(name)
    }

    async fn open(&mut self) {
        let handle = self.dice.below(2);
        let lease = if self.dice.one_in(4) { SHORT } else { LONG };
        let opened = self.handles[handle].open_session("client", lease).await;
        let session = opened.expect("opens");
        assert_eq!(
            session,
            self.model.open(handle, lease),
            "the session's number"
        );
        self.sessions.push((session, handle, lease));
        self.lapse(lease).await;
    }

    /// A short lease has run out before the next call.
    async fn lapse(&self, lease: Duration) {
        if lease == SHORT && self.detail == Detail::Timeless {
            self.bench.wait(STEP).await;
        }
    }

    async fn beat(&mut self) {
        let (session, handle, lease) = self.session();
        let beat = self.handles[handle].heartbeat(session).await;
        assert_eq!(
            beat.expect("beats"),
            self.model.beat(session),
            "{}",
            self.place
        );
        self.lapse(lease).await;
    }

    async fn close(&mut self) {
        let (session, handle, _) = self.session();
        self.handles[handle]
            .close_session(session)
            .await
            .expect("closes");
        self.model.bury(session);
    }

    /// A handle is dropped and its sessions with it; another takes its place.
    async fn crash(&mut self) {
        let handle = self.dice.below(2);
        let spare = self.bench.open().await;
        drop(std::mem::replace(&mut self.handles[handle], spare));
        self.model.crash(handle);
        self.seen.note("crash");
    }

    fn new_claim(&mut self) -> Claim {
        let names = [
            ("k1", "order:1"),
            ("k2", "order:1"),
            ("k3", "order:2"),
            ("k4", "order:2"),
            ("k5", "order:3"),
        ];
        let (name, mut place) = *self.dice.pick(&names);
        if self.dice.one_in(15) {
            place = self.dice.pick(&names).1;
        }
        let mut claim = ask(place, name);
        claim.proposal.tenant_id = self.tenant();
        if self.dice.one_in(20) {
            claim.proposal.action.args.clear();
        }
        let window_ms = *self.dice.pick(&[0, 3_600_000]);
        claim.effect = *self.dice.pick(&[
            EffectClass::Opaque,
            EffectClass::Idempotent,
            EffectClass::Keyed { window_ms },
            EffectClass::Probeable,
        ]);
        if self.dice.one_in(10) {
            claim.on_unknown = OnUnknown::Retry;
        }
        claim.deadline = *self.dice.pick(&[Duration::ZERO, LONG]);
        if self.dice.one_in(3) {
            claim.proposal.revision = Some(self.dice.below(5) as u64);
        }
        if self.dice.one_in(10) {
            claim.clearance = Clearance::Refused(Refusal::new(Reason::Policy, "no"));
        }
        claim.on_doubt = *self.dice.pick(&[OnDoubt::Probe, OnDoubt::Refuse]);
        claim.fingerprint = fingerprint(&claim.proposal);
        claim
    }

    async fn claim(&mut self) {
        let (session, handle, _) = self.session();
        let mut claim = match self.dice.below(10) {
            0 if !self.asked.is_empty() => self.dice.pick(&self.asked).clone(),
            1..4 if !self.waiting.is_empty() => {
                let at = self.dice.below(self.waiting.len());
                self.waiting.remove(at)
            }
            _ => self.new_claim(),
        };
        // Whoever waits asks again for itself; a lost answer may be asked for by its successor.
        if claim.ticket.is_none() || self.dice.one_in(8) {
            claim.session = session;
        }
        let tenant = claim.proposal.tenant_id.clone();
        let told = self.handles[handle]
            .claim(&tenant, vec![claim.clone()])
            .await;
        let expected = self.model.claim(&claim);
        let answer = match (told, expected) {
            (Err(StoreError::SessionDead { .. }), Err(Fenced)) => {
                self.seen.note("fenced");
                // Most learn from it and come back under another session.
                if !self.dice.one_in(4) && self.sessions.len() > 2 {
                    self.sessions.retain(|(known, ..)| *known != claim.session);
                }
                return;
            }
            (Ok(mut told), Ok(expected)) => {
                let told = told.remove(0);
                assert_eq!(
                    self.shown(told.clone()),
                    self.shown(expected),
                    "{}",
                    self.place
                );
                told
            }
            (told, expected) => panic!("{}: {told:?} is not {expected:?}", self.place),
        };
        self.asked.push(claim.clone());
        match answer {
            ClaimAnswer::Claimed(mark) => {
                self.seen.note("claimed");
                let settlement = Settlement {
                    session: claim.session,
                    mark,
                    proposal: claim.proposal,
                    outcome: unknown(),
                    result_digest: "sha256:00".to_owned(),
                    at: moment(),
                };
                let known = |(s, _): &(Settlement, _)| {
                    s.mark == settlement.mark
                        && s.proposal.receipt_id == settlement.proposal.receipt_id
                };
                if !self.attempts.iter().any(known) {
                    self.attempts.push((settlement, None));
                }
            }
            ClaimAnswer::Wait(ticket) => {
                self.seen.note("wait");
                claim.ticket = Some(ticket);
                self.waiting.push(claim);
            }
            ClaimAnswer::Probe(_) => self.seen.note("probe"),
            ClaimAnswer::Duplicate { .. } => self.seen.note("duplicate"),
            ClaimAnswer::Refused { refusal, .. } => self.seen.note(refusal.reason.as_str()),
        }
    }

    async fn settle(&mut self) {
        if self.attempts.is_empty() {
            return;
        }
        let last = self.attempts.len() - 1;
        let at = if self.dice.one_in(4) {
            self.dice.below(last + 1)
        } else {
            last
        };
        let outcome = match self.dice.below(6) {
            0 => failed(),
            1..4 => unknown(),
            _ => applied(),
        };
        let (settlement, told_before) = &mut self.attempts[at];
        // An owner says one thing about an attempt; it may say it again.
        settlement.outcome = told_before.get_or_insert(outcome).clone();
        let settlement = settlement.clone();
        let tenant = &settlement.proposal.tenant_id;
        let handle = self.dice.below(2);
        let told = self.handles[handle]
            .settle(tenant, vec![settlement.clone()])
            .await;
        let told = told.expect("settles").remove(0);
        let expected = self.model.settle(&settlement);
        assert_eq!(told, expected, "{}", self.place);
        self.seen.note("settled");
        if told.receipt_id != settlement.proposal.receipt_id {
            self.seen.note("late");
        }
        if told.double_applied {
            self.seen.note("double_applied");
        }
    }

    async fn resolve(&mut self) {
        let tenant = self.tenant();
        let doubt = self.model.keys.iter().find(|((owner, _), key)| {
            *owner == tenant && key.phase == operators_kernel::life::Phase::InDoubt
        });
        let (name, attempt) = match doubt {
            Some(((_, name), key)) => (name.clone(), key.attempt),
            None => (key("k1"), 1),
        };
        let verdict = match self.dice.below(5) {
            0 => Verdict::WriteOff,
            1 | 2 => it_happened(),
            _ => Verdict::NotApplied,
        };
        let resolution = Resolution {
            key: name,
            attempt: attempt + u32::from(self.dice.one_in(8)),
            verdict,
            by: Resolver::Person("ada".to_owned()),
            note: None,
            receipt_id: fresh_id(),
            result_digest: "sha256:11".to_owned(),
            at: moment(),
        };
        let told = self.handles[0].resolve(&tenant, resolution.clone()).await;
        let expected = self.model.resolve(&tenant, &resolution);
        let told = told.expect("resolves");
        match (&told, &expected) {
            (ResolveAnswer::MayStillLand(_), ResolveAnswer::MayStillLand(_)) => {
                self.seen.note("may still land");
            }
            (told, expected) => assert_eq!(told, expected, "{}", self.place),
        }
        if matches!(told, ResolveAnswer::Resolved(_)) {
            self.seen.note("resolved");
        }
    }

    async fn forget(&mut self) {
        let tenant = self.tenant();
        let name = *self.dice.pick(&["k1", "k2", "k3", "k4", "k5"]);
        let wish = Forget {
            key: key(name),
            by: "ada".to_owned(),
            note: None,
            receipt_id: fresh_id(),
            at: moment(),
        };
        let told = self.handles[1].forget(&tenant, wish.clone()).await;
        let expected = self.model.forget(&tenant, &wish);
        assert_eq!(told.expect("forgets"), expected, "{}", self.place);
        if matches!(expected, operators_kernel::ForgetAnswer::Forgotten(_)) {
            self.seen.note("forgotten");
            self.forgot = true;
        }
    }

    async fn pass(&mut self) {
        let (session, handle, _) = self.session();
        let (tenant, place, ticket) = match self.reading.pop() {
            Some((tenant, place, ticket)) if !self.dice.one_in(3) => (tenant, place, Some(ticket)),
            _ => (self.tenant(), entity("order:1"), None),
        };
        let passed = self.handles[handle]
            .pass(&tenant, &place, session, ticket)
            .await;
        let expected = self
            .model
            .pass(&(tenant.clone(), place.clone()), session, ticket);
        match (passed, expected) {
            (Err(StoreError::SessionDead { .. }), Err(Fenced)) => {}
            (Ok(told), Ok(expected)) => {
                assert_eq!(told, expected);
                self.seen
                    .note(if told.is_some() { "queued" } else { "passed" });
                self.reading
                    .extend(told.map(|ticket| (tenant, place, ticket)));
            }
            (told, expected) => panic!("{}: {told:?} is not {expected:?}", self.place),
        }
    }

    async fn leave(&mut self) {
        let place_and_ticket = match (self.waiting.pop(), self.reading.pop()) {
            (Some(claim), reading) => {
                self.reading.extend(reading);
                let Some(ticket) = claim.ticket else { return };
                (claim.proposal.tenant_id, claim.proposal.entity_key, ticket)
            }
            (None, Some(reading)) => reading,
            (None, None) => return,
        };
        let (tenant, place, ticket) = place_and_ticket;
        let left = self.handles[0].leave(&tenant, &place, ticket).await;
        left.expect("leaves");
        self.model.leave(&(tenant, place), ticket);
    }
}
