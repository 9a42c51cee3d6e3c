//! What every transactional store does about a call: load, ask the kernel's pure functions, write.
//!
//! Here is what such a store must offer; beneath, what is done with it: `keys` from claim to forget,
//! `turns`, `notes`, the `deaths` of sessions, and the `stage` of others' statements. They own the
//! order of reading and writing inside one transaction, and must not know how records are kept.

mod deaths;
mod keys;
mod notes;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod stage;
mod turns;

use operators_kernel::life::{EntityRecord, KeyRecord, Note, NoteError, NoteName};
use operators_kernel::{
    Claim, ClaimAnswer, EntityKey, IdempotencyKey, Receipt, SessionId, Shared, Slip, StoreTime,
    TenantId, Ticket, Timestamp,
};

pub(crate) use deaths::{bury_the_lifeless, declare_dead, declare_owner_dead, heartbeat};
pub(crate) use keys::{claim, forget, resolve, settle};
pub(crate) use notes::direct;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) use stage::{Staged, stage};
pub(crate) use turns::pass;

/// How much of a key's record changed, so that a store need not write all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// A new attempt: everything.
    Claimed,
    /// The same attempt in another phase: everything but what was proposed.
    Moved,
}

impl Change {
    /// How much of it the end of an attempt changed. Mostly a phase; but a key that turns out to be
    /// burned by another of its attempts is bound to what that one said.
    fn between(before: &KeyRecord, after: &KeyRecord) -> Self {
        if before.fingerprint == after.fingerprint {
            Self::Moved
        } else {
            Self::Claimed
        }
    }
}

/// Somebody in an entity's queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiter {
    /// Its session, with which it goes.
    pub(crate) session: SessionId,
    /// The receipt of its proposal: asking again after a lost answer finds its place again.
    pub(crate) asker: String,
}

/// Whoever wants a turn, and its place in the queue as far as that is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) session: SessionId,
    /// The receipt of its proposal.
    pub(crate) name: &'a str,
    pub(crate) place: Option<Ticket>,
}

/// The records of a store inside one transaction.
pub(crate) trait Book {
    /// Why a record could not be read or written.
    type Error;

    /// The store's clock; one reading per transaction.
    fn now(&self) -> StoreTime;
    /// The wall clock, for receipts that the store itself owes.
    fn stamp(&self) -> Timestamp;

    /// A key's record, shared with whoever keeps it in memory.
    fn key(
        &mut self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<Shared<KeyRecord>>, Self::Error>;
    /// What a claim is answered that repeats what its key was burned by, where the record need not be
    /// read for it; `None` says nothing about the key.
    fn duplicate(
        &mut self,
        _tenant: &TenantId,
        _claim: &Claim,
    ) -> Result<Option<(Slip, ClaimAnswer)>, Self::Error> {
        Ok(None)
    }
    /// Writes a key's record.
    fn put_key(&mut self, record: Shared<KeyRecord>, change: Change) -> Result<(), Self::Error>;
    /// An entity's record; the default if nobody touched it yet.
    fn entity(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
    ) -> Result<EntityRecord, Self::Error>;
    /// Writes an entity's record.
    fn put_entity(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        record: &EntityRecord,
    ) -> Result<(), Self::Error>;
    /// Appends a receipt; one whose id is there already stays as it is.
    fn append(&mut self, receipt: Slip) -> Result<(), Self::Error>;
    /// The receipt of this id.
    fn receipt(
        &mut self,
        tenant: &TenantId,
        receipt_id: &str,
    ) -> Result<Option<Receipt>, Self::Error>;

    /// What a note says.
    fn note(&mut self, tenant: &TenantId, name: &NoteName) -> Result<Option<String>, Self::Error>;
    /// Writes a note, or takes it away.
    fn put_note(&mut self, tenant: &TenantId, note: Note) -> Result<(), Self::Error>;

    /// Who has waited longest for an entity.
    fn first_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
    ) -> Result<Option<(Ticket, Waiter)>, Self::Error>;
    /// Puts somebody behind everybody who waits.
    fn add_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        waiter: Waiter,
    ) -> Result<Ticket, Self::Error>;
    /// The place of whoever waits under this name.
    fn place_of(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        asker: &str,
    ) -> Result<Option<Ticket>, Self::Error>;
    /// Whether a place is still there.
    fn has_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<bool, Self::Error>;
    /// Takes a place out of the queue.
    fn remove_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<(), Self::Error>;

    /// Whether a session was declared dead, or never existed.
    fn is_buried(&mut self, session: SessionId) -> Result<bool, Self::Error>;
    /// Whether a session that was not declared dead shows no sign of life.
    fn is_lifeless(&mut self, session: SessionId) -> Result<bool, Self::Error>;
    /// Every session that was not declared dead and shows no sign of life.
    fn lifeless_sessions(&mut self) -> Result<Vec<SessionId>, Self::Error>;
    /// Gives a session one more lease.
    fn extend(&mut self, session: SessionId) -> Result<(), Self::Error>;
    /// Declares a session dead, for ever, and takes its places out of all queues.
    fn bury(&mut self, session: SessionId) -> Result<(), Self::Error>;
    /// The keys that a session left as intents.
    fn intents_of(&mut self, session: SessionId) -> Result<Vec<KeyRecord>, Self::Error>;
}

/// What went wrong in a transaction besides the records themselves.
#[derive(Debug)]
pub(crate) enum BookError<E> {
    /// A record could not be read or written.
    Records(E),
    /// The session is dead and fenced.
    SessionDead(SessionId),
    /// A settlement for a key that nobody claimed: rows were deleted by hand.
    KeyMissing(IdempotencyKey),
    /// A note that says nothing that can be understood.
    Note(NoteError),
}

impl<E> From<E> for BookError<E> {
    fn from(error: E) -> Self {
        Self::Records(error)
    }
}
