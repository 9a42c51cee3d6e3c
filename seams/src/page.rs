//! Records held in memory as a [`Book`]: all of them, or those of a remote store that one decision
//! needs.
//!
//! A remote store loads a page inside its transaction, lets `book` decide on it, and writes back
//! what changed. Asked for a record it does not hold, a partial page says which, so that the store
//! can load it and let `book` decide again; nothing is ever guessed.

mod entities;
mod keys;
#[cfg(any(feature = "postgres", feature = "dynamodb"))]
mod load;
mod records;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::{Equivalent, HashMap, HashSet};
use operators_kernel::life::{Note, NoteName};
use operators_kernel::{
    Clock, EntityKey, IdempotencyKey, Receipt, SessionId, StoreTime, TenantId, Text, Ticket,
    Timestamp,
};

use crate::book::{Change, Waiter};

use entities::Entities;
use keys::Kept;
pub(crate) use table::{Called, Table};

/// A key of a tenant.
pub(crate) type KeyName = (TenantId, IdempotencyKey);
/// An entity of a tenant.
pub(crate) type EntityName = (TenantId, EntityKey);

/// A name of a tenant's that is only looked up, so that it need not be copied. Hashes as the pair.
#[derive(Hash)]
struct Of<'a, N>(&'a TenantId, &'a N);

impl<N: Clone> Of<'_, N> {
    /// The pair, to be kept.
    fn to_owned(&self) -> (TenantId, N) {
        (self.0.clone(), self.1.clone())
    }
}

impl<N: PartialEq> Equivalent<(TenantId, N)> for Of<'_, N> {
    fn equivalent(&self, name: &(TenantId, N)) -> bool {
        // The name first: tenants are mostly the same.
        *self.1 == name.1 && *self.0 == name.0
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

/// The wall clock, of which few decisions ask anything.
#[derive(Debug)]
enum Stamp {
    /// Read already.
    At(Timestamp),
    /// Read when asked.
    Of(Arc<dyn Clock>),
}

/// Whether what a page does not hold does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// It holds everything there is.
    Whole,
    /// It holds what was loaded.
    Part,
}

/// What a decision changed, for the store to write; on a page that holds everything there is nothing
/// to write.
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

/// Records and one reading of the clocks. In this order in memory: what every action changes first, so
/// that it is in few lines.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Page {
    keys: Table<Kept>,
    pub(crate) now: StoreTime,
    extent: Extent,
    knows_all_sessions: bool,
    entities: Entities,
    queues: HashMap<EntityName, Queue>,
    sessions: HashMap<SessionId, SessionRecord>,
    stamp: Stamp,
    /// Keys that were looked for and do not exist.
    absent: HashSet<KeyName>,
    intents: HashMap<SessionId, Vec<KeyName>>,
    next_ticket: Option<Ticket>,
    /// Receipts of proposals that were asked before, loaded for one decision.
    receipts: HashMap<Text, Option<Receipt>>,
    notes: HashMap<(TenantId, NoteName), Option<String>>,
    pub(crate) changes: Changes,
}

impl Page {
    /// An empty page that holds everything there is.
    pub(crate) fn whole(clock: Arc<dyn Clock>) -> Self {
        let mut page = Self::new(Extent::Whole, StoreTime(0), Stamp::Of(clock));
        page.next_ticket = Some(Ticket(1));
        page
    }

    /// An empty page onto which records are loaded.
    #[cfg(any(feature = "postgres", feature = "dynamodb"))]
    pub(crate) fn part(now: StoreTime, stamp: Timestamp) -> Self {
        Self::new(Extent::Part, now, Stamp::At(stamp))
    }

    fn new(extent: Extent, now: StoreTime, stamp: Stamp) -> Self {
        Self {
            extent,
            now,
            stamp,
            keys: Table::default(),
            absent: HashSet::new(),
            entities: Entities::default(),
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

    /// Every note on this page that says something.
    pub(crate) fn notes_now(&self) -> impl Iterator<Item = (&TenantId, &NoteName, &str)> {
        self.notes
            .iter()
            .filter_map(|((tenant, name), body)| Some((tenant, name, body.as_deref()?)))
    }

    /// Whether anybody waits for a turn.
    pub(crate) fn has_waiters(&self) -> bool {
        !self.queues.is_empty()
    }

    /// A session that is new.
    pub(crate) fn add_session(&mut self, session: SessionId, record: SessionRecord) {
        self.sessions.insert(session, record);
    }

    /// The receipt of this id, or the knowledge that there is none.
    pub(crate) fn load_receipt(&mut self, receipt_id: impl Into<Text>, receipt: Option<Receipt>) {
        self.receipts.insert(receipt_id.into(), receipt);
    }

    /// Where a change is noted that a store has to write; a page that holds everything is the store.
    fn changed(&mut self) -> Option<&mut Changes> {
        (self.extent == Extent::Part).then_some(&mut self.changes)
    }

    fn missing<T>(&self, want: impl FnOnce() -> Want, absent: T) -> Result<T, Want> {
        match self.extent {
            Extent::Whole => Ok(absent),
            Extent::Part => Err(want()),
        }
    }

    pub(crate) fn session(&self, session: SessionId) -> Result<Option<SessionRecord>, Want> {
        match self.sessions.get(&session) {
            Some(record) => Ok(Some(*record)),
            None if self.knows_all_sessions => Ok(None),
            None => self.missing(|| Want::Session(session), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use operators_kernel::life::EntityRecord;

    use super::*;
    use crate::SystemClock;
    use crate::book::Book;

    /// It would grow with every limit, alert, wait and heartbeat, for as long as the process lives.
    #[test]
    fn a_page_that_holds_everything_collects_nothing_to_write() {
        let mut page = Page::whole(Arc::new(SystemClock::new()));
        let tenant = TenantId::parse("acme").expect("a tenant");
        let entity = EntityKey::parse("order:1").expect("an entity");
        let session = SessionId(1);
        let record = SessionRecord {
            lease: Duration::from_secs(1),
            alive_until: StoreTime(1),
            is_dead: false,
        };
        page.add_session(session, record);
        let note = Note {
            name: NoteName::pause(),
            body: Some("{}".to_owned()),
        };
        page.put_note(&tenant, note).expect("a note");
        for asker in ["rc_1", "rc_2"] {
            let asker = asker.to_owned();
            let waiter = Waiter { session, asker };
            page.add_waiter(&tenant, &entity, waiter).expect("a place");
        }
        page.remove_waiter(&tenant, &entity, Ticket(1))
            .expect("left");
        let entity_record = EntityRecord::default();
        page.put_entity(&tenant, &entity, &entity_record)
            .expect("an entity");
        page.extend(session).expect("a beat");
        page.bury(session).expect("buried");
        let nothing = format!("{:?}", Changes::default());
        assert_eq!(format!("{:?}", page.changes), nothing);
    }
}
