//! The store that forgets with its process: for tests, rehearsals and embedding without a disk.
//!
//! Held to the same rules as every other store, surviving a restart excepted. Several executors of
//! one process may share it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use operators_kernel::life::{EntityRecord, KeyRecord, Phase};
use operators_kernel::{
    Beat, Claim, ClaimAnswer, Clock, Cursor, DurableExec, EntityKey, Forget, ForgetAnswer, Glimpse,
    IdempotencyKey, Ledger, LedgerEntry, PAGE_MAX, Receipt, ReceiptFilter, RedactionKey,
    Resolution, ResolveAnswer, SessionId, SettleAnswer, Settlement, StoreError, StoreTime,
    TenantId, Ticket, Timestamp,
};
use tokio::sync::Notify;

use crate::book::{self, Book, BookError, Change};

/// Nothing can go wrong with records in memory.
#[derive(Debug)]
enum Never {}

/// Keys, turns and receipts in memory.
#[derive(Debug)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    // A std lock: held for map look-ups, never over an await.
    records: Mutex<Records>,
    /// Rung whenever a turn may have come.
    turns: Notify,
}

#[derive(Debug, Default)]
struct Records {
    keys: HashMap<(TenantId, IdempotencyKey), KeyRecord>,
    entities: HashMap<(TenantId, EntityKey), EntityRecord>,
    waiters: HashMap<(TenantId, EntityKey), BTreeMap<Ticket, SessionId>>,
    sessions: HashMap<SessionId, Session>,
    receipts: HashMap<TenantId, Vec<LedgerEntry>>,
    receipt_ids: HashSet<String>,
    redaction_keys: HashMap<TenantId, RedactionKey>,
    sessions_opened: u64,
    tickets_given: u64,
    receipts_written: u64,
}

#[derive(Debug)]
struct Session {
    lease: Duration,
    alive_until: StoreTime,
    is_dead: bool,
}

impl MemoryStore {
    /// An empty store whose time is `clock`'s.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            records: Mutex::new(Records::default()),
            turns: Notify::new(),
        }
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&mut MemoryBook<'_>) -> Result<T, BookError<Never>>,
    ) -> Result<T, StoreError> {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let micros = i64::try_from(self.clock.monotonic().as_micros()).unwrap_or(i64::MAX);
        let mut book = MemoryBook {
            records: &mut records,
            now: StoreTime(micros),
            stamp: self.clock.now(),
        };
        work(&mut book).map_err(|error| match error {
            BookError::Records(never) => match never {},
            BookError::SessionDead(session) => StoreError::SessionDead {
                store: self.describe(),
                session,
            },
            BookError::KeyMissing(key) => StoreError::Unusable {
                store: self.describe(),
                problem: format!("key `{key}` was claimed but is not there"),
            },
        })
    }

    fn look<T>(&self, look: impl FnOnce(&Records) -> T) -> T {
        look(&self.records.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl DurableExec for MemoryStore {
    async fn open_session(&self, _node: &str, lease: Duration) -> Result<SessionId, StoreError> {
        self.with(|book| {
            book::bury_the_lifeless(book)?;
            book.records.sessions_opened += 1;
            let session = SessionId(book.records.sessions_opened);
            let alive_until = book.now.plus(lease);
            let opened = Session {
                lease,
                alive_until,
                is_dead: false,
            };
            book.records.sessions.insert(session, opened);
            Ok(session)
        })
    }

    async fn heartbeat(&self, session: SessionId) -> Result<Beat, StoreError> {
        self.with(|book| book::heartbeat(book, session))
    }

    async fn close_session(&self, session: SessionId) -> Result<(), StoreError> {
        let closed = self.with(|book| book::declare_dead(book, session));
        self.turns.notify_waiters();
        closed
    }

    async fn claim(
        &self,
        tenant: &TenantId,
        claims: Vec<Claim>,
    ) -> Result<Vec<ClaimAnswer>, StoreError> {
        self.with(|book| {
            claims
                .iter()
                .map(|claim| book::claim(book, tenant, claim))
                .collect()
        })
    }

    async fn settle(
        &self,
        tenant: &TenantId,
        settlements: Vec<Settlement>,
    ) -> Result<Vec<SettleAnswer>, StoreError> {
        let answers = self.with(|book| {
            settlements
                .iter()
                .map(|settlement| book::settle(book, tenant, settlement))
                .collect()
        });
        self.turns.notify_waiters();
        answers
    }

    async fn record(&self, _tenant: &TenantId, receipts: Vec<Receipt>) -> Result<(), StoreError> {
        self.with(|book| {
            for receipt in &receipts {
                book.append(receipt)?;
            }
            Ok(())
        })
    }

    async fn pass(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        session: SessionId,
        ticket: Option<Ticket>,
    ) -> Result<Option<Ticket>, StoreError> {
        let passed = self.with(|book| book::pass(book, tenant, entity, session, ticket));
        self.turns.notify_waiters();
        passed
    }

    async fn wait(&self, _tenant: &TenantId, _entity: &EntityKey, _ticket: Ticket, _asked: u32) {
        // Somebody may have settled since the answer, and a holder may die without a word: look
        // again soon in any case.
        let rung = self.turns.notified();
        drop(tokio::time::timeout(Duration::from_millis(5), rung).await);
    }

    async fn leave(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<(), StoreError> {
        let left = self.with(|book| Ok(book.remove_waiter(tenant, entity, ticket)?));
        self.turns.notify_waiters();
        left
    }

    async fn resolve(
        &self,
        tenant: &TenantId,
        resolution: Resolution,
    ) -> Result<ResolveAnswer, StoreError> {
        self.with(|book| book::resolve(book, tenant, &resolution))
    }

    async fn forget(&self, tenant: &TenantId, forget: Forget) -> Result<ForgetAnswer, StoreError> {
        self.with(|book| book::forget(book, tenant, &forget))
    }

    async fn redaction_key(&self, tenant: &TenantId) -> Result<RedactionKey, StoreError> {
        if let Some(key) = self.look(|records| records.redaction_keys.get(tenant).cloned()) {
            return Ok(key);
        }
        let fresh = crate::random_key().map_err(|problem| StoreError::Unavailable {
            store: self.describe(),
            problem,
        })?;
        self.with(|book| {
            let keys = &mut book.records.redaction_keys;
            Ok(keys.entry(tenant.clone()).or_insert(fresh).clone())
        })
    }
}

#[async_trait]
impl Ledger for MemoryStore {
    fn describe(&self) -> String {
        "the memory store".to_owned()
    }

    async fn glimpse(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
        entity: &EntityKey,
    ) -> Result<Glimpse, StoreError> {
        self.with(|book| {
            Ok(Glimpse {
                key: book.key(tenant, key)?,
                entity: book.entity(tenant, entity)?,
                now: book.now,
            })
        })
    }

    async fn key(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<KeyRecord>, StoreError> {
        self.with(|book| Ok(book.key(tenant, key)?))
    }

    async fn doubts(&self, tenant: &TenantId) -> Result<(Vec<KeyRecord>, StoreTime), StoreError> {
        self.with(|book| {
            let mut found: Vec<KeyRecord> = book
                .records
                .keys
                .iter()
                .filter(|((owner, _), key)| owner == tenant && key.phase == Phase::InDoubt)
                .map(|(_, key)| key.clone())
                .collect();
            found.sort_by(|a, b| {
                let order =
                    |key: &KeyRecord| (key.first_intent_at, key.proposal.receipt_id.clone());
                order(a).cmp(&order(b))
            });
            Ok((found, book.now))
        })
    }

    async fn receipts(
        &self,
        tenant: &TenantId,
        filter: &ReceiptFilter,
        cursor: Cursor,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>, StoreError> {
        let limit = limit.min(PAGE_MAX);
        Ok(self.look(|records| {
            let Some(trail) = records.receipts.get(tenant) else {
                return Vec::new();
            };
            let admitted = |entry: &&LedgerEntry| filter.admits(&entry.receipt);
            match cursor {
                Cursor::After(start) => trail
                    .iter()
                    .filter(|entry| entry.sequence > start)
                    .filter(admitted)
                    .take(limit)
                    .cloned()
                    .collect(),
                Cursor::Before(end) => trail
                    .iter()
                    .rev()
                    .filter(|entry| entry.sequence < end)
                    .filter(admitted)
                    .take(limit)
                    .cloned()
                    .collect(),
            }
        }))
    }

    async fn check(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
}

/// The records under the lock, with one reading of the clocks.
struct MemoryBook<'a> {
    records: &'a mut Records,
    now: StoreTime,
    stamp: Timestamp,
}

impl Book for MemoryBook<'_> {
    type Error = Never;

    fn now(&self) -> StoreTime {
        self.now
    }

    fn stamp(&self) -> Timestamp {
        self.stamp
    }

    fn key(&mut self, tenant: &TenantId, key: &IdempotencyKey) -> Result<Option<KeyRecord>, Never> {
        let name = (tenant.clone(), key.clone());
        Ok(self.records.keys.get(&name).cloned())
    }

    fn put_key(&mut self, record: &KeyRecord, _change: Change) -> Result<(), Never> {
        let proposal = &record.proposal;
        let name = (proposal.tenant_id.clone(), proposal.idempotency_key.clone());
        self.records.keys.insert(name, record.clone());
        Ok(())
    }

    fn entity(&mut self, tenant: &TenantId, entity: &EntityKey) -> Result<EntityRecord, Never> {
        let name = (tenant.clone(), entity.clone());
        Ok(self
            .records
            .entities
            .get(&name)
            .cloned()
            .unwrap_or_default())
    }

    fn put_entity(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        record: &EntityRecord,
    ) -> Result<(), Never> {
        let name = (tenant.clone(), entity.clone());
        self.records.entities.insert(name, record.clone());
        Ok(())
    }

    fn append(&mut self, receipt: &Receipt) -> Result<(), Never> {
        let records = &mut *self.records;
        if records.receipt_ids.insert(receipt.receipt_id.clone()) {
            records.receipts_written += 1;
            let trail = records
                .receipts
                .entry(receipt.tenant_id.clone())
                .or_default();
            trail.push(LedgerEntry {
                sequence: records.receipts_written,
                receipt: receipt.clone(),
            });
        }
        Ok(())
    }

    fn first_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
    ) -> Result<Option<(Ticket, SessionId)>, Never> {
        if self.records.waiters.is_empty() {
            return Ok(None);
        }
        let queue = self.records.waiters.get(&(tenant.clone(), entity.clone()));
        Ok(queue.and_then(|queue| {
            queue
                .iter()
                .next()
                .map(|(ticket, session)| (*ticket, *session))
        }))
    }

    fn add_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        session: SessionId,
    ) -> Result<Ticket, Never> {
        self.records.tickets_given += 1;
        let ticket = Ticket(self.records.tickets_given);
        let queue = self.records.waiters.entry((tenant.clone(), entity.clone()));
        queue.or_default().insert(ticket, session);
        Ok(ticket)
    }

    fn has_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<bool, Never> {
        let queue = self.records.waiters.get(&(tenant.clone(), entity.clone()));
        Ok(queue.is_some_and(|queue| queue.contains_key(&ticket)))
    }

    fn remove_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<(), Never> {
        let name = (tenant.clone(), entity.clone());
        if let Some(queue) = self.records.waiters.get_mut(&name) {
            queue.remove(&ticket);
            if queue.is_empty() {
                self.records.waiters.remove(&name);
            }
        }
        Ok(())
    }

    fn is_buried(&mut self, session: SessionId) -> Result<bool, Never> {
        let found = self.records.sessions.get(&session);
        Ok(found.is_none_or(|session| session.is_dead))
    }

    fn is_lifeless(&mut self, session: SessionId) -> Result<bool, Never> {
        let found = self.records.sessions.get(&session);
        Ok(found.is_none_or(|session| session.is_dead || session.alive_until < self.now))
    }

    fn lifeless_sessions(&mut self) -> Result<Vec<SessionId>, Never> {
        let mut found: Vec<SessionId> = self
            .records
            .sessions
            .iter()
            .filter(|(_, session)| !session.is_dead && session.alive_until < self.now)
            .map(|(session, _)| *session)
            .collect();
        found.sort();
        Ok(found)
    }

    fn extend(&mut self, session: SessionId) -> Result<(), Never> {
        if let Some(session) = self.records.sessions.get_mut(&session) {
            session.alive_until = self.now.plus(session.lease);
        }
        Ok(())
    }

    fn bury(&mut self, session: SessionId) -> Result<(), Never> {
        if let Some(session) = self.records.sessions.get_mut(&session) {
            session.is_dead = true;
        }
        self.records.waiters.retain(|_, queue| {
            queue.retain(|_, waiter| *waiter != session);
            !queue.is_empty()
        });
        Ok(())
    }

    fn intents_of(&mut self, session: SessionId) -> Result<Vec<KeyRecord>, Never> {
        let mut found: Vec<KeyRecord> = self
            .records
            .keys
            .values()
            .filter(|key| key.phase == Phase::Intent && key.session == session)
            .cloned()
            .collect();
        found.sort_by(|a, b| a.proposal.receipt_id.cmp(&b.proposal.receipt_id));
        Ok(found)
    }
}
