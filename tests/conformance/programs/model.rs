//! The model: plain maps, its own turns and deaths, and what must always hold.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use operators_kernel::life::{
    self, ClaimStep, EntityRecord, ForgetStep, KeyRecord, Phase, ResolveStep, Turn,
};
use operators_kernel::{
    Beat, Claim, ClaimAnswer, EffectClass, EntityKey, Forget, ForgetAnswer, IdempotencyKey,
    Receipt, ReceiptOutcome, Resolution, ResolveAnswer, SessionId, SettleAnswer, Settlement,
    Shared, Slip, StoreTime, TenantId, Ticket, Timestamp,
};

/// How much time passes between two calls: more than a short lease.
pub(super) const STEP: Duration = Duration::from_millis(3);

/// The answer to a dead session.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fenced;

pub(super) type Place = (TenantId, EntityKey);

/// Somebody in a queue: its session, and the receipt of its proposal.
type Waiter = (SessionId, String);

/// Whoever wants a turn, and its place as far as it is known.
struct Asker<'a> {
    session: SessionId,
    name: &'a str,
    place: Option<Ticket>,
}

#[derive(Debug, Clone)]
struct Session {
    lease: Duration,
    until: i64,
    handle: usize,
    is_gone: bool,
    is_dead: bool,
}

/// All that a store should remember.
#[derive(Debug, Default, Clone)]
pub(super) struct Model {
    now: i64,
    pub(super) keys: BTreeMap<(TenantId, IdempotencyKey), KeyRecord>,
    pub(super) entities: BTreeMap<Place, EntityRecord>,
    pub(super) receipts: Vec<Receipt>,
    queues: BTreeMap<Place, BTreeMap<u64, Waiter>>,
    sessions: BTreeMap<SessionId, Session>,
    tickets: u64,
}

impl Model {
    pub(super) fn pass_time(&mut self) {
        self.now += i64::try_from(STEP.as_micros()).expect("short");
    }

    pub(super) fn time(&self) -> StoreTime {
        StoreTime(self.now)
    }

    pub(super) fn open(&mut self, handle: usize, lease: Duration) -> SessionId {
        self.bury_lifeless();
        let session = SessionId(self.sessions.len() as u64 + 1);
        let opened = Session {
            lease,
            until: self.time().plus(lease).0,
            handle,
            is_gone: false,
            is_dead: false,
        };
        self.sessions.insert(session, opened);
        session
    }

    pub(super) fn beat(&mut self, session: SessionId) -> Beat {
        let now = self.time();
        match self.sessions.get_mut(&session) {
            Some(found) if !found.is_dead => found.until = now.plus(found.lease).0,
            Some(_) | None => return Beat::Dead,
        }
        self.bury_lifeless();
        Beat::Alive
    }

    /// A handle is gone, and with it the process behind its sessions.
    pub(super) fn crash(&mut self, handle: usize) {
        for session in self.sessions.values_mut() {
            session.is_gone |= session.handle == handle;
        }
    }

    fn is_lifeless(&self, session: SessionId) -> bool {
        let found = self.sessions.get(&session);
        found.is_none_or(|found| found.is_dead || found.is_gone || found.until < self.now)
    }

    fn bury_lifeless(&mut self) {
        let all: Vec<SessionId> = self.sessions.keys().copied().collect();
        for session in all {
            if !self.sessions[&session].is_dead && self.is_lifeless(session) {
                self.bury(session);
            }
        }
    }

    pub(super) fn bury(&mut self, session: SessionId) {
        if let Some(found) = self.sessions.get_mut(&session) {
            found.is_dead = true;
        }
        for queue in self.queues.values_mut() {
            queue.retain(|_, (waiter, _)| *waiter != session);
        }
        let at = Timestamp::from_micros(1_700_000_000_000_000 + self.now);
        let mut left: Vec<KeyRecord> = self.keys.values().cloned().collect();
        left.retain(|key| key.session == session && key.phase == Phase::Intent);
        left.sort_by(|a, b| a.proposal.receipt_id.cmp(&b.proposal.receipt_id));
        for key in left {
            let place = place_of(&key);
            let entity = self.entities.get(&place).cloned().unwrap_or_default();
            let died = life::owner_died(&key, &entity, at).expect("an intent");
            self.write(died.0, died.1, Some(died.2));
        }
    }

    fn write(&mut self, key: KeyRecord, entity: EntityRecord, receipt: Option<Receipt>) {
        self.entities.insert(place_of(&key), entity);
        let name = (
            key.proposal.tenant_id.clone(),
            key.proposal.idempotency_key.clone(),
        );
        self.keys.insert(name, key);
        self.append(receipt);
    }

    fn append(&mut self, receipt: Option<Receipt>) {
        let Some(receipt) = receipt else { return };
        let known = self
            .receipts
            .iter()
            .any(|r| r.receipt_id == receipt.receipt_id);
        if !known {
            self.receipts.push(receipt);
        }
    }

    /// Whether the turn is to be had, burying the dead that stand in the way.
    fn turn(&mut self, place: &Place, asker: &mut Asker<'_>) -> Turn {
        let holder = |model: &Self| model.entities.get(place).and_then(|entity| entity.holder);
        if let Some(found) = holder(self).filter(|holder| *holder != asker.session)
            && self.is_lifeless(found)
        {
            self.bury(found);
        }
        if holder(self).is_some() {
            return Turn::Taken;
        }
        loop {
            let queue = self.queues.get(place);
            let Some((first, waiter)) = queue.and_then(|queue| queue.first_key_value()) else {
                return Turn::Free;
            };
            let first = Ticket(*first);
            let (session, name) = waiter;
            if asker.place == Some(first) || asker.name == name {
                asker.place = Some(first);
                return Turn::Free;
            }
            let session = *session;
            if session == asker.session || !self.is_lifeless(session) {
                return Turn::Taken;
            }
            self.bury(session);
        }
    }

    fn queue(&mut self, place: &Place, asker: &Asker<'_>) -> Ticket {
        let queue = self.queues.entry(place.clone()).or_default();
        if let Some(ticket) = asker.place.filter(|ticket| queue.contains_key(&ticket.0)) {
            return ticket;
        }
        if let Some(ticket) = self.place_of(place, asker.name) {
            return ticket;
        }
        self.tickets += 1;
        let queue = self.queues.entry(place.clone()).or_default();
        queue.insert(self.tickets, (asker.session, asker.name.to_owned()));
        Ticket(self.tickets)
    }

    fn place_of(&self, place: &Place, asker: &str) -> Option<Ticket> {
        let mut queue = self.queues.get(place)?.iter();
        let found = queue.find(|(_, (_, name))| name == asker);
        found.map(|(ticket, _)| Ticket(*ticket))
    }

    pub(super) fn leave(&mut self, place: &Place, ticket: Ticket) {
        if let Some(queue) = self.queues.get_mut(place) {
            queue.remove(&ticket.0);
        }
    }

    fn is_fenced(&self, session: SessionId) -> bool {
        self.sessions
            .get(&session)
            .is_none_or(|found| found.is_dead)
    }

    pub(super) fn pass(
        &mut self,
        place: &Place,
        session: SessionId,
        name: &str,
        ticket: Option<Ticket>,
    ) -> Result<Option<Ticket>, Fenced> {
        if self.is_fenced(session) {
            return Err(Fenced);
        }
        let mut asker = Asker {
            session,
            name,
            place: ticket,
        };
        if self.turn(place, &mut asker) == Turn::Taken {
            return Ok(Some(self.queue(place, &asker)));
        }
        if let Some(ticket) = asker.place {
            self.leave(place, ticket);
        }
        Ok(None)
    }

    pub(super) fn claim(&mut self, claim: &Claim) -> Result<ClaimAnswer, Fenced> {
        if self.is_fenced(claim.session) {
            return Err(Fenced);
        }
        let tenant = claim.proposal.tenant_id.clone();
        let place = (tenant.clone(), claim.proposal.entity_key.clone());
        let receipt_id = &claim.proposal.receipt_id;
        let mut asker = Asker {
            session: claim.session,
            name: receipt_id,
            place: claim.ticket,
        };
        let name = (tenant, claim.proposal.idempotency_key.clone());
        if claim.asked_before {
            asker.place = self.place_of(&place, receipt_id);
            let told = self.receipts.iter().find(|r| r.receipt_id == *receipt_id);
            if let Some(receipt) = told {
                let answer = life::told_before(receipt, self.keys.get(&name), claim);
                if let Some(ticket) = asker.place {
                    self.leave(&place, ticket);
                }
                return Ok(answer);
            }
        }
        let turn = self.turn(&place, &mut asker);
        let entity = self.entities.get(&place).cloned().unwrap_or_default();
        let answer = match life::claim(self.keys.get(&name), &entity, turn, claim, self.time()) {
            ClaimStep::Grant { key, entity } => {
                let mark = key.mark();
                self.write(key.into_inner(), entity, None);
                ClaimAnswer::Claimed(mark)
            }
            ClaimStep::GrantedBefore(mark) => ClaimAnswer::Claimed(mark),
            ClaimStep::Wait => {
                return Ok(ClaimAnswer::Wait(self.queue(&place, &asker)));
            }
            ClaimStep::Probe(doubt) => ClaimAnswer::Probe(doubt),
            ClaimStep::End { receipt, answer } => {
                self.append(Some(receipt.into_receipt()));
                answer
            }
        };
        if let Some(ticket) = asker.place {
            self.leave(&place, ticket);
        }
        Ok(answer)
    }

    pub(super) fn settle(&mut self, settlement: &Settlement) -> SettleAnswer {
        let proposal = &settlement.proposal;
        let name = (proposal.tenant_id.clone(), proposal.idempotency_key.clone());
        let key = self.keys[&name].clone();
        for receipt_id in life::receipts_to_ask(&key, settlement).iter().flatten() {
            let mut found = self.receipts.iter().filter(|r| r.receipt_id == *receipt_id);
            let told = found.find_map(|receipt| life::told_in(receipt, &key, settlement));
            if let Some(answer) = told {
                return answer;
            }
        }
        let entity = self.entities[&place_of(&key)].clone();
        let step = life::settle(&key, &entity, settlement);
        if let Some(elsewhere) = life::took_effect_elsewhere(&key, settlement)
            && step.receipt.is_some()
        {
            let place = (proposal.tenant_id.clone(), elsewhere.clone());
            let left = self.entities.entry(place).or_default();
            *left = life::with_what_took_effect(left.clone(), settlement);
        }
        let key = step.key.map_or(key, Shared::into_inner);
        self.write(
            key,
            step.entity.unwrap_or(entity),
            step.receipt.map(Slip::into_receipt),
        );
        step.answer
    }

    pub(super) fn resolve(&mut self, tenant: &TenantId, resolution: &Resolution) -> ResolveAnswer {
        let name = (tenant.clone(), resolution.key.clone());
        let Some(key) = self.keys.get(&name) else {
            return ResolveAnswer::NotInDoubt(None);
        };
        let entity = self.entities[&place_of(key)].clone();
        match life::resolve(key, &entity, resolution, self.time()) {
            ResolveStep::Stay(answer) => answer,
            ResolveStep::Close {
                key,
                entity,
                receipt,
            } => {
                let phase = key.phase;
                self.write(key.into_inner(), entity, Some(*receipt));
                ResolveAnswer::Resolved(phase)
            }
        }
    }

    pub(super) fn forget(&mut self, tenant: &TenantId, wish: &Forget) -> ForgetAnswer {
        let name = (tenant.clone(), wish.key.clone());
        let Some(key) = self.keys.get(&name) else {
            return ForgetAnswer::NotBurned(None);
        };
        match life::forget(key, wish) {
            ForgetStep::Stay(answer) => answer,
            ForgetStep::Open { key, receipt } => {
                let generation = key.generation;
                self.keys.insert(name, key.into_inner());
                self.append(Some(*receipt));
                ForgetAnswer::Forgotten(generation)
            }
        }
    }

    /// What must hold whatever was asked; `before` is the state one call ago, and only a `forget`
    /// may have un-burned a key since.
    pub(super) fn check(&self, before: &Self, forgot: bool, place: &str) {
        for (name, entity) in &self.entities {
            let keys = || self.keys.values().filter(|key| place_of(key) == *name);
            let intents: Vec<_> = keys().filter(|key| key.phase == Phase::Intent).collect();
            assert!(intents.len() <= 1, "{place}: two intents on {name:?}");
            // Rule 4.8: nothing was begun while another key's abandoned request could still land.
            for (intent, key) in intents
                .iter()
                .flat_map(|one| keys().map(move |key| (one, key)))
            {
                let is_awaited = key.phase == Phase::Applied
                    && !key.open_attempts.is_empty()
                    && !matches!(key.effect, EffectClass::Keyed { .. });
                assert!(
                    !is_awaited || key.open_until <= intent.first_intent_at,
                    "{place}: a request on {name:?} was overtaken"
                );
            }
            let owner = intents.first().map(|key| key.session);
            assert_eq!(entity.holder, owner, "{place}: the turn on {name:?}");
            let doubts: Vec<_> = keys()
                .filter(|key| key.phase == Phase::InDoubt)
                .map(|key| &key.proposal.idempotency_key)
                .collect();
            assert!(doubts.len() <= 1, "{place}: two doubts on {name:?}");
            // A doubt that is being sent again still holds the entity.
            let resent = intents.first().map(|key| &key.proposal.idempotency_key);
            let held = entity.doubt.as_ref().filter(|doubt| resent != Some(*doubt));
            assert_eq!(
                held,
                doubts.first().copied(),
                "{place}: the doubt on {name:?}"
            );
            let earlier = before.entities.get(name);
            assert!(
                earlier.is_none_or(|e| e.fence <= entity.fence),
                "{place}: a fence shrank"
            );
        }
        for (name, key) in &before.keys {
            let now = &self.keys[name];
            let burned = |key: &KeyRecord| matches!(key.phase, Phase::Applied | Phase::WrittenOff);
            let kept = burned(now) || forgot;
            assert!(!burned(key) || kept, "{place}: {name:?} was un-burned");
            assert!(
                now.generation >= key.generation,
                "{place}: {name:?} went back"
            );
        }
        let ids: BTreeSet<_> = self.receipts.iter().map(|r| &r.receipt_id).collect();
        assert_eq!(
            ids.len(),
            self.receipts.len(),
            "{place}: a receipt is there twice"
        );
        for receipt in &self.receipts {
            let place_of = (receipt.tenant_id.clone(), receipt.entity_key.clone());
            let newest = self.entities.get(&place_of).and_then(|e| e.revision);
            assert!(
                receipt.outcome != Some(ReceiptOutcome::Applied) || receipt.revision <= newest,
                "{place}: what {} applied is not the newest",
                receipt.receipt_id
            );
        }
        let kept = self.receipts.get(..before.receipts.len());
        assert_eq!(
            kept,
            Some(&before.receipts[..]),
            "{place}: a receipt changed"
        );
    }
}

/// The entity a key is on.
pub(super) fn place_of(key: &KeyRecord) -> Place {
    (
        key.proposal.tenant_id.clone(),
        key.proposal.entity_key.clone(),
    )
}
