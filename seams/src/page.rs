//! Records held in memory as a [`Book`]: all of them, or those of a remote store that one decision
//! needs.
//!
//! A remote store loads a page inside its transaction, lets `book` decide on it, and writes back
//! what changed. Asked for a record it does not hold, a partial page says which, so that the store
//! can load it and let `book` decide again; nothing is ever guessed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::hash_map::Entry;
use hashbrown::{Equivalent, HashMap};
use operators_kernel::life::{EntityRecord, KeyRecord, Note, NoteName, Phase};
use operators_kernel::{
    EntityKey, IdempotencyKey, Receipt, SessionId, StoreTime, TenantId, Ticket, Timestamp,
};

use crate::book::{Book, Change, Waiter};

/// A key of a tenant.
pub(crate) type KeyName = (TenantId, IdempotencyKey);
/// An entity of a tenant.
pub(crate) type EntityName = (TenantId, EntityKey);

/// A name of a tenant's that is only looked up, so that it need not be copied. Hashes as the pair.
#[derive(Hash)]
struct Of<'a, N>(&'a TenantId, &'a N);

impl<N: PartialEq> Equivalent<(TenantId, N)> for Of<'_, N> {
    fn equivalent(&self, name: &(TenantId, N)) -> bool {
        *self.0 == name.0 && *self.1 == name.1
    }
}

/// Everybody who waits for one entity, in their order.
pub(crate) type Queue = BTreeMap<Ticket, Waiter>;

/// A record that a decision needs and a partial page does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Want {
    /// One key.
    Key(KeyName),
    /// One entity.
    Entity(EntityName),
    /// Everybody who waits for one entity.
    Queue(EntityName),
    /// One session.
    Session(SessionId),
    /// Every session that was not declared dead.
    Sessions,
    /// The intents of one session, with their entities.
    Intents(SessionId),
    /// A ticket nobody has.
    Ticket,
    /// The receipt of this id.
    Receipt(String),
    /// One note.
    Note(NoteName),
}

/// What a page knows of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionRecord {
    /// How long one sign of life counts.
    pub(crate) lease: Duration,
    /// Until when its last one counts.
    pub(crate) alive_until: StoreTime,
    /// Declared dead, for ever.
    pub(crate) is_dead: bool,
}

/// Whether what a page does not hold does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// It holds everything there is.
    Whole,
    /// It holds what was loaded.
    Part,
}

/// What a decision changed, for the store to write; a page that holds everything notes receipts
/// alone, for there is nothing else to write.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Keys, with how much of each.
    pub(crate) keys: Vec<(KeyName, Change)>,
    /// Entities.
    pub(crate) entities: Vec<EntityName>,
    /// Receipts, in order.
    pub(crate) receipts: Vec<Receipt>,
    /// New places in queues.
    pub(crate) waiters_added: Vec<(EntityName, Ticket, Waiter)>,
    /// Places given back.
    pub(crate) waiters_removed: Vec<(EntityName, Ticket)>,
    /// Notes.
    pub(crate) notes: Vec<(TenantId, Note)>,
    /// Sessions given one more lease.
    pub(crate) extended: Vec<SessionId>,
    /// Sessions declared dead; their places in queues go with them.
    pub(crate) buried: Vec<SessionId>,
}

/// Records and one reading of the clocks.
#[derive(Debug)]
pub(crate) struct Page {
    extent: Extent,
    pub(crate) now: StoreTime,
    pub(crate) stamp: Timestamp,
    keys: HashMap<KeyName, Option<Arc<KeyRecord>>>,
    entities: HashMap<EntityName, EntityRecord>,
    queues: HashMap<EntityName, Queue>,
    sessions: HashMap<SessionId, SessionRecord>,
    knows_all_sessions: bool,
    intents: HashMap<SessionId, Vec<KeyName>>,
    next_ticket: Option<Ticket>,
    /// Receipts of proposals that were asked before, loaded for one decision.
    receipts: HashMap<String, Option<Receipt>>,
    notes: HashMap<(TenantId, NoteName), Option<String>>,
    pub(crate) changes: Changes,
}

impl Page {
    /// An empty page that holds everything there is.
    pub(crate) fn whole() -> Self {
        let mut page = Self::new(Extent::Whole, StoreTime(0), Timestamp::from_micros(0));
        page.next_ticket = Some(Ticket(1));
        page
    }

    /// An empty page onto which records are loaded.
    #[cfg(any(feature = "postgres", feature = "dynamodb"))]
    pub(crate) fn part(now: StoreTime, stamp: Timestamp) -> Self {
        Self::new(Extent::Part, now, stamp)
    }

    fn new(extent: Extent, now: StoreTime, stamp: Timestamp) -> Self {
        Self {
            extent,
            now,
            stamp,
            keys: HashMap::new(),
            entities: HashMap::new(),
            queues: HashMap::new(),
            sessions: HashMap::new(),
            knows_all_sessions: extent == Extent::Whole,
            intents: HashMap::new(),
            next_ticket: None,
            receipts: HashMap::new(),
            notes: HashMap::new(),
            changes: Changes::default(),
        }
    }

    /// The key as it is on this page.
    pub(crate) fn key_now(&self, name: &KeyName) -> Option<&KeyRecord> {
        self.keys.get(name)?.as_deref()
    }

    /// Every key on this page.
    pub(crate) fn keys_now(&self) -> impl Iterator<Item = &KeyRecord> {
        self.keys.values().flatten().map(|key| &**key)
    }

    /// Every note on this page that says something.
    pub(crate) fn notes_now(&self) -> impl Iterator<Item = (&TenantId, &NoteName, &str)> {
        self.notes
            .iter()
            .filter_map(|((tenant, name), body)| Some((tenant, name, body.as_deref()?)))
    }

    /// A session that is new.
    pub(crate) fn add_session(&mut self, session: SessionId, record: SessionRecord) {
        self.sessions.insert(session, record);
    }

    /// The receipt of this id, or the knowledge that there is none.
    pub(crate) fn load_receipt(&mut self, receipt_id: String, receipt: Option<Receipt>) {
        self.receipts.insert(receipt_id, receipt);
    }

    /// Forgets the receipts that were loaded for the last decision.
    pub(crate) fn unload_receipts(&mut self) {
        self.receipts.clear();
    }

    fn missing<T>(&self, want: impl FnOnce() -> Want, absent: T) -> Result<T, Want> {
        match self.extent {
            Extent::Whole => Ok(absent),
            Extent::Part => Err(want()),
        }
    }

    fn session(&self, session: SessionId) -> Result<Option<SessionRecord>, Want> {
        match self.sessions.get(&session) {
            Some(record) => Ok(Some(*record)),
            None if self.knows_all_sessions => Ok(None),
            None => self.missing(|| Want::Session(session), None),
        }
    }
}

/// Loading, for stores that keep their records elsewhere.
#[cfg(any(feature = "postgres", feature = "dynamodb"))]
impl Page {
    /// The entity as it is on this page.
    pub(crate) fn entity_now(&self, name: &EntityName) -> Option<&EntityRecord> {
        self.entities.get(name)
    }

    /// Everybody who waits for an entity, as it is on this page.
    #[cfg(feature = "dynamodb")]
    pub(crate) fn queue_now(&self, name: &EntityName) -> Option<&Queue> {
        self.queues.get(name)
    }

    /// The ticket the next waiter gets.
    pub(crate) fn load_ticket(&mut self, ticket: Ticket) {
        self.next_ticket = Some(ticket);
    }

    pub(crate) fn load_key(&mut self, name: KeyName, record: Option<KeyRecord>) {
        self.keys.insert(name, record.map(Arc::new));
    }

    pub(crate) fn load_entity(&mut self, name: EntityName, record: EntityRecord) {
        self.entities.insert(name, record);
    }

    /// What a note says.
    pub(crate) fn load_note(&mut self, tenant: TenantId, name: NoteName, body: Option<String>) {
        self.notes.insert((tenant, name), body);
    }

    pub(crate) fn load_queue(&mut self, name: EntityName, queue: Queue) {
        self.queues.insert(name, queue);
    }

    /// A session, or the knowledge that there is none.
    pub(crate) fn load_session(&mut self, session: SessionId, record: Option<SessionRecord>) {
        let gone = SessionRecord {
            lease: Duration::ZERO,
            alive_until: StoreTime(i64::MIN),
            is_dead: true,
        };
        self.sessions.insert(session, record.unwrap_or(gone));
    }

    pub(crate) fn load_intents(&mut self, session: SessionId, keys: Vec<KeyRecord>) {
        let names = keys
            .iter()
            .map(|key| {
                let proposal = &key.proposal;
                (proposal.tenant_id.clone(), proposal.idempotency_key.clone())
            })
            .collect();
        for (name, key) in std::iter::zip::<&Vec<KeyName>, _>(&names, keys) {
            let loaded = self.keys.entry(name.clone());
            loaded.or_insert_with(|| Some(Arc::new(key)));
        }
        self.intents.insert(session, names);
    }
}

fn queue_of(tenant: &TenantId, entity: &EntityKey) -> impl FnOnce() -> Want {
    || Want::Queue((tenant.clone(), entity.clone()))
}

impl Book for Page {
    type Error = Want;

    fn now(&self) -> StoreTime {
        self.now
    }

    fn stamp(&self) -> Timestamp {
        self.stamp
    }

    fn key(
        &mut self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<Arc<KeyRecord>>, Want> {
        match self.keys.get(&Of(tenant, key)) {
            Some(record) => Ok(record.clone()),
            None => self.missing(|| Want::Key((tenant.clone(), key.clone())), None),
        }
    }

    fn put_key(&mut self, record: KeyRecord, change: Change) -> Result<(), Want> {
        let proposal = &record.proposal;
        let name = (proposal.tenant_id.clone(), proposal.idempotency_key.clone());
        if self.extent == Extent::Part {
            self.changes.keys.push((name.clone(), change));
        }
        self.keys.insert(name, Some(Arc::new(record)));
        Ok(())
    }

    fn entity(&mut self, tenant: &TenantId, entity: &EntityKey) -> Result<EntityRecord, Want> {
        let want = || Want::Entity((tenant.clone(), entity.clone()));
        match self.entities.get(&Of(tenant, entity)) {
            Some(record) => Ok(record.clone()),
            None => self.missing(want, EntityRecord::default()),
        }
    }

    fn put_entity(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        record: &EntityRecord,
    ) -> Result<(), Want> {
        let name = (tenant.clone(), entity.clone());
        if self.extent == Extent::Part {
            self.changes.entities.push(name.clone());
        }
        self.entities.insert(name, record.clone());
        Ok(())
    }

    fn append(&mut self, receipt: Receipt) -> Result<(), Want> {
        self.changes.receipts.push(receipt);
        Ok(())
    }

    fn receipt(&mut self, _tenant: &TenantId, receipt_id: &str) -> Result<Option<Receipt>, Want> {
        match self.receipts.get(receipt_id) {
            Some(receipt) => Ok(receipt.clone()),
            None => Err(Want::Receipt(receipt_id.to_owned())),
        }
    }

    fn note(&mut self, tenant: &TenantId, name: &NoteName) -> Result<Option<String>, Want> {
        if self.extent == Extent::Whole && self.notes.is_empty() {
            return Ok(None);
        }
        match self.notes.get(&Of(tenant, name)) {
            Some(body) => Ok(body.clone()),
            None => self.missing(|| Want::Note(name.clone()), None),
        }
    }

    fn put_note(&mut self, tenant: &TenantId, note: Note) -> Result<(), Want> {
        let name = (tenant.clone(), note.name.clone());
        if note.body.is_none() && self.extent == Extent::Whole {
            self.notes.remove(&name);
        } else {
            self.notes.insert(name, note.body.clone());
        }
        self.changes.notes.push((tenant.clone(), note));
        Ok(())
    }

    fn first_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
    ) -> Result<Option<(Ticket, Waiter)>, Want> {
        if self.extent == Extent::Whole && self.queues.is_empty() {
            return Ok(None);
        }
        match self.queues.get(&Of(tenant, entity)) {
            Some(queue) => Ok(queue
                .first_key_value()
                .map(|(ticket, waiter)| (*ticket, waiter.clone()))),
            None => self.missing(queue_of(tenant, entity), None),
        }
    }

    fn add_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        waiter: Waiter,
    ) -> Result<Ticket, Want> {
        let ticket = self.next_ticket.take().ok_or(Want::Ticket)?;
        if self.extent == Extent::Whole {
            self.next_ticket = Some(Ticket(ticket.0 + 1));
        }
        let name = (tenant.clone(), entity.clone());
        self.queues
            .entry(name.clone())
            .or_default()
            .insert(ticket, waiter.clone());
        self.changes.waiters_added.push((name, ticket, waiter));
        Ok(ticket)
    }

    fn place_of(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        asker: &str,
    ) -> Result<Option<Ticket>, Want> {
        let Some(queue) = self.queues.get(&Of(tenant, entity)) else {
            return self.missing(queue_of(tenant, entity), None);
        };
        let mut places = queue.iter();
        let place = places.find(|(_, waiter)| waiter.asker == asker);
        Ok(place.map(|(ticket, _)| *ticket))
    }

    fn has_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<bool, Want> {
        match self.queues.get(&Of(tenant, entity)) {
            Some(queue) => Ok(queue.contains_key(&ticket)),
            None => self.missing(queue_of(tenant, entity), false),
        }
    }

    fn remove_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<(), Want> {
        let name = (tenant.clone(), entity.clone());
        if let Entry::Occupied(mut queue) = self.queues.entry(name.clone()) {
            queue.get_mut().remove(&ticket);
            if queue.get().is_empty() && self.extent == Extent::Whole {
                queue.remove();
            }
        }
        self.changes.waiters_removed.push((name, ticket));
        Ok(())
    }

    fn is_buried(&mut self, session: SessionId) -> Result<bool, Want> {
        Ok(self.session(session)?.is_none_or(|found| found.is_dead))
    }

    fn is_lifeless(&mut self, session: SessionId) -> Result<bool, Want> {
        let found = self.session(session)?;
        Ok(found.is_none_or(|found| found.is_dead || found.alive_until < self.now))
    }

    fn lifeless_sessions(&mut self) -> Result<Vec<SessionId>, Want> {
        if !self.knows_all_sessions {
            return Err(Want::Sessions);
        }
        let mut found: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(_, session)| !session.is_dead && session.alive_until < self.now)
            .map(|(session, _)| *session)
            .collect();
        found.sort();
        Ok(found)
    }

    fn extend(&mut self, session: SessionId) -> Result<(), Want> {
        if let Some(found) = self.sessions.get_mut(&session) {
            found.alive_until = self.now.plus(found.lease);
        }
        self.changes.extended.push(session);
        Ok(())
    }

    fn bury(&mut self, session: SessionId) -> Result<(), Want> {
        if let Some(found) = self.sessions.get_mut(&session) {
            found.is_dead = true;
        }
        let whole = self.extent == Extent::Whole;
        self.queues.retain(|_, queue| {
            queue.retain(|_, waiter| waiter.session != session);
            !whole || !queue.is_empty()
        });
        self.changes.buried.push(session);
        Ok(())
    }

    fn intents_of(&mut self, session: SessionId) -> Result<Vec<KeyRecord>, Want> {
        if let Some(names) = self.intents.get(&session) {
            let keys = names.iter().filter_map(|name| self.key_now(name));
            return Ok(keys.cloned().collect());
        }
        let mut found: Vec<KeyRecord> = self
            .keys_now()
            .filter(|key| key.phase == Phase::Intent && key.session == session)
            .cloned()
            .collect();
        found.sort_by(|a, b| a.proposal.receipt_id.cmp(&b.proposal.receipt_id));
        self.missing(|| Want::Intents(session), found)
    }
}
