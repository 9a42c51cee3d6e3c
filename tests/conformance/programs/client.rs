//! The clients: what they ask next, of the store and of the model alike.

mod compare;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use operators_kernel::life::KeyRecord;
use operators_kernel::log::{Audit, inspect};
use operators_kernel::{
    Claim, ClaimAnswer, Clearance, ContentDigest, DurableExec, EffectClass, Forget, OnDoubt,
    OnUnknown, Packed, Proposal, Reason, Refusal, Resolution, ResolveAnswer, Resolver, SessionId,
    SettledOutcome, Settlement, StoreError, TenantId, Ticket, Verdict,
};
use operators_tests::conformance::desk::{
    LONG, applied, ask, failed, fingerprint, fresh_id, it_happened, moment, unknown,
};
use operators_tests::fixtures::{entity, key, tenant_named};
use operators_tests::stores::Bench;

use super::dice::Dice;
use super::model::{Fenced, Model, Place, STEP};
use super::seen::Seen;

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
    /// As `Timeless`, but nothing except its lease shows that a process ended, and a place may go
    /// with its session only when it is met.
    Leased,
}

/// A read in a queue.
struct Reading {
    place: Place,
    asker: String,
    session: SessionId,
    ticket: Ticket,
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
    reading: Vec<Reading>,
    asked: Vec<Claim>,
    /// The model's number of each place in a queue, by the store's.
    places: BTreeMap<(Place, Ticket), Ticket>,
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
            places: BTreeMap::new(),
            seen: Seen::default(),
        };
        for _ in 0..2 {
            client.open().await;
            if detail != Detail::Exact {
                client.model.pass_time(); // It passed, if the lease is short.
            }
        }
        client
    }

    /// By rule 11.5: whatever was done lawfully, the log alone shows nothing wrong.
    pub(super) async fn audit(&self, place: &str) {
        let store = self.bench.open().await;
        let audit = Audit::default();
        for name in ["acme", "globex"] {
            let tenant = tenant_named(name);
            let mut silent = |_, _| {};
            let audited = inspect(store.log(), &tenant, audit.clone(), &mut silent);
            let found = audited.await.expect("the store shows");
            assert_eq!(found.faults, [], "{place}, tenant {name}");
        }
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
        if lease == SHORT && self.detail != Detail::Exact {
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
            claim.proposal.action.args = Packed::default();
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

    /// A new claim, one that waits, or one whose answer was lost.
    fn next_claim(&mut self, session: SessionId) -> Claim {
        let mut claim = match self.dice.below(10) {
            0 | 1 if !self.asked.is_empty() => {
                let mut unheard = self.dice.pick(&self.asked).clone();
                unheard.asked_before = true;
                unheard
            }
            2..5 if !self.waiting.is_empty() => {
                let at = self.dice.below(self.waiting.len());
                self.waiting.remove(at)
            }
            _ => self.new_claim(),
        };
        // Whoever waits asks again for itself; a lost answer may be asked for by its successor.
        let is_new = claim.session == SessionId(0);
        let may_succeed = claim.ticket.is_none() || self.dice.one_in(8);
        if is_new || (may_succeed && self.detail != Detail::Leased) {
            claim.session = session;
        }
        claim
    }

    async fn claim(&mut self) {
        let (session, handle, _) = self.session();
        let mut claim = self.next_claim(session);
        let tenant = claim.proposal.tenant_id.clone();
        let told = self.handles[handle]
            .claim(&tenant, vec![claim.clone()])
            .await;
        let place = (tenant, claim.proposal.entity_key.clone());
        let mut known = claim.clone();
        known.ticket = self.model_ticket(&place, claim.ticket);
        let expected = self.model.claim(&known);
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
                self.same_answer(&place, told.clone(), expected);
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
                    result_digest: Some(ContentDigest::of(b"")),
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
                claim.asked_before = false;
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
        let at = match self.dice.below(8) {
            0 => self.left_behind().unwrap_or(last),
            1 | 2 => self.dice.below(last + 1),
            _ => last,
        };
        let outcome = match self.dice.below(6) {
            0 => failed(),
            1..4 if at == last => unknown(),
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

    /// An attempt that nothing was said about, and whose key has moved on since.
    fn left_behind(&self) -> Option<usize> {
        self.attempts.iter().position(|(settlement, told)| {
            let (proposal, mark) = (&settlement.proposal, &settlement.mark);
            let name = (proposal.tenant_id.clone(), proposal.idempotency_key.clone());
            let key = self.model.keys.get(&name);
            let is_last =
                |key: &KeyRecord| (key.generation, key.attempt) == (mark.generation, mark.attempt);
            told.is_none() && !key.is_some_and(is_last)
        })
    }

    async fn resolve(&mut self) {
        let tenant = self.tenant();
        let doubt = self.model.keys.iter().find(|((owner, _), key)| {
            *owner == tenant && key.phase == operators_kernel::life::Phase::InDoubt
        });
        let (name, generation, attempt) = match doubt {
            Some(((_, name), key)) => (name.clone(), key.generation, key.attempt),
            None => (key("k1"), 1, 1),
        };
        let verdict = match self.dice.below(5) {
            0 => Verdict::WriteOff,
            1 | 2 => it_happened(),
            _ => Verdict::NotApplied,
        };
        let resolution = Resolution {
            key: name,
            generation: generation + u32::from(self.dice.one_in(8)),
            attempt: attempt + u32::from(self.dice.one_in(8)),
            verdict,
            by: Resolver::Person("ada".into()),
            note: None,
            receipt_id: fresh_id(),
            result_digest: Some(ContentDigest::of(b"1")),
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
            by: "ada".into(),
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
        let (place, asker, session, ticket) = match self.reading.pop() {
            // Now and then its answer was lost.
            Some(read) if !self.dice.one_in(3) => {
                let known = (!self.dice.one_in(4)).then_some(read.ticket);
                (read.place, read.asker, read.session, known)
            }
            _ => (
                (self.tenant(), entity("order:1")),
                fresh_id().to_string(),
                session,
                None,
            ),
        };
        let passed = self.handles[handle]
            .pass(&place.0, &place.1, session, &asker, ticket)
            .await;
        let known = self.model_ticket(&place, ticket);
        let expected = self.model.pass(&place, session, &asker, known);
        match (passed, expected) {
            (Err(StoreError::SessionDead { .. }), Err(Fenced)) => {}
            (Ok(None), Ok(None)) => self.seen.note("passed"),
            (Ok(Some(ticket)), Ok(Some(expected))) => {
                self.same_place(&place, ticket, expected);
                self.seen.note("queued");
                self.reading.push(Reading {
                    place,
                    asker,
                    session,
                    ticket,
                });
            }
            (told, expected) => panic!("{}: {told:?} is not {expected:?}", self.place),
        }
    }

    async fn leave(&mut self) {
        let (place, ticket) = match (self.waiting.pop(), self.reading.pop()) {
            (Some(claim), reading) => {
                self.reading.extend(reading);
                let Some(ticket) = claim.ticket else { return };
                let Proposal {
                    tenant_id,
                    entity_key,
                    ..
                } = claim.proposal.into_inner();
                ((tenant_id, entity_key), ticket)
            }
            (None, Some(read)) => (read.place, read.ticket),
            (None, None) => return,
        };
        let left = self.handles[0].leave(&place.0, &place.1, ticket).await;
        left.expect("leaves");
        if let Some(known) = self.model_ticket(&place, Some(ticket)) {
            self.model.leave(&place, known);
        }
    }
}
