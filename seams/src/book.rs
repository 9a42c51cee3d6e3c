//! What every transactional store does about a call: load, ask the kernel's pure functions, write.
//!
//! Owns the order of reading and writing inside one transaction, and who counts as dead. It must
//! not know how records are kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use operators_kernel::life::{
    self, ClaimStep, EntityRecord, ForgetStep, KeyRecord, Note, NoteError, NoteName, PerformStep,
    ResolveStep, SettleStep, Through, Turn,
};
use operators_kernel::{
    Beat, Claim, ClaimAnswer, Directive, DirectiveAnswer, EntityKey, Forget, ForgetAnswer,
    IdempotencyKey, Performance, Performed, Receipt, Resolution, ResolveAnswer, SessionId,
    SettleAnswer, Settlement, StoreTime, TenantId, Ticket, Timestamp,
};

/// How much of a key's record changed, so that a store need not write all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// A new attempt: everything.
    Claimed,
    /// The same attempt in another phase: everything but what was proposed.
    Moved,
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
    ) -> Result<Option<Arc<KeyRecord>>, Self::Error>;
    /// Writes a key's record.
    fn put_key(&mut self, record: KeyRecord, change: Change) -> Result<(), Self::Error>;
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
    fn append(&mut self, receipt: Receipt) -> Result<(), Self::Error>;
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

/// Answers one claim.
pub(crate) fn claim<B: Book>(
    book: &mut B,
    tenant: &TenantId,
    claim: &Claim,
) -> Result<ClaimAnswer, BookError<B::Error>> {
    if book.is_buried(claim.session)? {
        return Err(BookError::SessionDead(claim.session));
    }
    let (entity_key, name) = (&claim.proposal.entity_key, &claim.proposal.receipt_id);
    let mut asker = Asker {
        session: claim.session,
        name,
        place: claim.ticket,
    };
    if claim.asked_before {
        asker.place = book.place_of(tenant, entity_key, name)?;
        if let Some(receipt) = book.receipt(tenant, name)? {
            let key = book.key(tenant, &claim.proposal.idempotency_key)?;
            give_place_back(book, tenant, entity_key, asker)?;
            return Ok(life::told_before(&receipt, key.as_deref(), claim));
        }
    }
    let (entity, turn) = turn_of(book, tenant, entity_key, &mut asker)?;
    // Read after `turn_of`: burying a dead holder may have moved this very key.
    let key = book.key(tenant, &claim.proposal.idempotency_key)?;
    let answer = match life::claim(key.as_deref(), &entity, turn, claim, book.now()) {
        ClaimStep::Grant {
            key: mut granted,
            entity,
        } => match let_through(book, tenant, key.as_deref(), claim)? {
            Ok(approver) => {
                if approver.is_some() {
                    granted.proposal.approver = approver;
                }
                let mark = granted.mark();
                book.put_key(*granted, Change::Claimed)?;
                book.put_entity(tenant, entity_key, &entity)?;
                ClaimAnswer::Claimed(mark)
            }
            Err(refused) => refused,
        },
        ClaimStep::GrantedBefore(mark) => ClaimAnswer::Claimed(mark),
        ClaimStep::Wait => {
            let ticket = queue(book, tenant, entity_key, asker)?;
            return Ok(ClaimAnswer::Wait(ticket));
        }
        ClaimStep::Probe(doubt) => ClaimAnswer::Probe(doubt),
        ClaimStep::End { receipt, answer } => {
            book.append(*receipt)?;
            answer
        }
    };
    give_place_back(book, tenant, entity_key, asker)?;
    Ok(answer)
}

/// What people and limits say about a claim that everything else lets through: who approved it, if
/// anybody had to, or a refusal whose receipt is written.
fn let_through<B: Book>(
    book: &mut B,
    tenant: &TenantId,
    key: Option<&KeyRecord>,
    claim: &Claim,
) -> Result<Result<Option<String>, ClaimAnswer>, BookError<B::Error>> {
    let found = notes(book, tenant, life::wanted(claim))?;
    let (answer, notes) = match life::let_through(key, claim, &found).map_err(BookError::Note)? {
        Through::Granted(grant) => (Ok(grant.approver), grant.notes),
        Through::Held(hold) => {
            book.append(hold.receipt)?;
            let (refusal, attempt) = (hold.refusal, hold.attempt);
            (Err(ClaimAnswer::Refused { refusal, attempt }), hold.notes)
        }
    };
    for note in notes {
        book.put_note(tenant, note)?;
    }
    Ok(answer)
}

/// What each of these notes says.
fn notes<B: Book>(
    book: &mut B,
    tenant: &TenantId,
    names: Vec<NoteName>,
) -> Result<BTreeMap<NoteName, Option<String>>, BookError<B::Error>> {
    let mut found = BTreeMap::new();
    for name in names {
        let body = book.note(tenant, &name)?;
        found.insert(name, body);
    }
    Ok(found)
}

/// Does what a person orders.
pub(crate) fn direct<B: Book>(
    book: &mut B,
    tenant: &TenantId,
    directive: &Directive,
) -> Result<DirectiveAnswer, BookError<B::Error>> {
    let found = notes(book, tenant, directive.note_names())?;
    let step = life::direct(tenant, directive, &found).map_err(BookError::Note)?;
    for note in step.notes {
        book.put_note(tenant, note)?;
    }
    if let Some(receipt) = step.receipt {
        book.append(*receipt)?;
    }
    Ok(step.answer)
}

/// Lets a read through, or tells it its place.
pub(crate) fn pass<B: Book>(
    book: &mut B,
    tenant: &TenantId,
    entity_key: &EntityKey,
    mut asker: Asker<'_>,
) -> Result<Option<Ticket>, BookError<B::Error>> {
    if book.is_buried(asker.session)? {
        return Err(BookError::SessionDead(asker.session));
    }
    let (_, turn) = turn_of(book, tenant, entity_key, &mut asker)?;
    if turn == Turn::Taken {
        return Ok(Some(queue(book, tenant, entity_key, asker)?));
    }
    give_place_back(book, tenant, entity_key, asker)?;
    Ok(None)
}

/// The entity, and whether its turn is to be had by `asker`, whose place is noted if it is the
/// first. Dead holders and dead waiters are buried on the way; the asker is not, however old its
/// last heartbeat: it asks.
fn turn_of<B: Book>(
    book: &mut B,
    tenant: &TenantId,
    entity_key: &EntityKey,
    asker: &mut Asker<'_>,
) -> Result<(EntityRecord, Turn), BookError<B::Error>> {
    let mut entity = book.entity(tenant, entity_key)?;
    if let Some(holder) = entity.holder
        && holder != asker.session
        && book.is_lifeless(holder)?
    {
        declare_dead(book, holder)?;
        entity = book.entity(tenant, entity_key)?;
    }
    if entity.holder.is_some() {
        return Ok((entity, Turn::Taken));
    }
    while let Some((first, waiter)) = book.first_waiter(tenant, entity_key)? {
        if Some(first) == asker.place || waiter.asker == asker.name {
            asker.place = Some(first);
            break;
        }
        if waiter.session == asker.session || !book.is_lifeless(waiter.session)? {
            return Ok((entity, Turn::Taken));
        }
        declare_dead(book, waiter.session)?;
    }
    Ok((entity, Turn::Free))
}

/// The place of `asker`: the one it has, by whatever it is known, or the last.
fn queue<B: Book>(
    book: &mut B,
    tenant: &TenantId,
    entity: &EntityKey,
    asker: Asker<'_>,
) -> Result<Ticket, BookError<B::Error>> {
    if let Some(ticket) = asker.place
        && book.has_waiter(tenant, entity, ticket)?
    {
        return Ok(ticket);
    }
    if let Some(ticket) = book.place_of(tenant, entity, asker.name)? {
        return Ok(ticket);
    }
    let waiter = Waiter {
        session: asker.session,
        asker: asker.name.to_owned(),
    };
    Ok(book.add_waiter(tenant, entity, waiter)?)
}

fn give_place_back<B: Book>(
    book: &mut B,
    tenant: &TenantId,
    entity: &EntityKey,
    asker: Asker<'_>,
) -> Result<(), BookError<B::Error>> {
    if let Some(ticket) = asker.place {
        book.remove_waiter(tenant, entity, ticket)?;
    }
    Ok(())
}

/// Records the end of one attempt.
pub(crate) fn settle<B: Book>(
    book: &mut B,
    tenant: &TenantId,
    settlement: &Settlement,
) -> Result<SettleAnswer, BookError<B::Error>> {
    let name = &settlement.proposal.idempotency_key;
    let Some(record) = book.key(tenant, name)? else {
        return Err(BookError::KeyMissing(name.clone()));
    };
    let entity_key = record.proposal.entity_key.clone();
    let entity = book.entity(tenant, &entity_key)?;
    let SettleStep {
        key,
        entity,
        receipt,
        answer,
    } = life::settle(&record, &entity, settlement);
    let mut notes = match &key {
        Some(key) => slots_given_back(book, tenant, key)?,
        None => Vec::new(),
    };
    if let Some(receipt) = &receipt {
        let raised = life::raised(&settlement.proposal, receipt);
        notes.extend(raised.map_err(BookError::Note)?);
    }
    if let Some(key) = key {
        book.put_key(*key, Change::Moved)?;
    }
    if let Some(entity) = entity {
        book.put_entity(tenant, &entity_key, &entity)?;
    }
    if let Some(receipt) = receipt {
        book.append(*receipt)?;
    }
    for note in notes {
        book.put_note(tenant, note)?;
    }
    Ok(answer)
}

/// What a store does about a statement of others.
#[derive(Debug)]
pub(crate) enum Staged {
    /// Runs it, and settles by what it comes to.
    Run,
    /// Settles as not applied, for this reason.
    Refuse(String),
    /// Answers this; nothing is written.
    Told(Box<Performed>),
}

/// Whether a statement of others may run: only for the attempt whose intent the key is, only while
/// its session lives and holds the turn.
pub(crate) fn stage<B: Book>(
    book: &mut B,
    tenant: &TenantId,
    performance: &Performance,
) -> Result<Staged, BookError<B::Error>> {
    let name = &performance.proposal.idempotency_key;
    let Some(key) = book.key(tenant, name)? else {
        return Err(BookError::KeyMissing(name.clone()));
    };
    let entity = book.entity(tenant, &key.proposal.entity_key)?;
    Ok(
        match life::perform(&key, &entity, performance, book.now()) {
            PerformStep::Run if book.is_buried(performance.session)? => {
                Staged::Refuse("nothing was run: the session is dead".to_owned())
            }
            PerformStep::Run => Staged::Run,
            PerformStep::Refuse(why) => Staged::Refuse(why),
            PerformStep::Done(performed) => Staged::Told(Box::new(performed)),
            PerformStep::Over => {
                let receipt = book.receipt(tenant, &performance.proposal.receipt_id)?;
                Staged::Told(Box::new(life::told(&key, performance, receipt.as_ref())))
            }
        },
    )
}

/// The notes to write now that a key is as it is: a slot of a limit is its key's only while the
/// effect may have happened. Read before anything is written, so that a page that lacks one can be
/// loaded and decided on again.
fn slots_given_back<B: Book>(
    book: &mut B,
    tenant: &TenantId,
    key: &KeyRecord,
) -> Result<Vec<Note>, BookError<B::Error>> {
    let mut notes = Vec::new();
    for name in life::slots_given_back(key) {
        let body = book.note(tenant, &name)?;
        let freed = life::give_slot_back(key, name, body.as_deref());
        notes.extend(freed.map_err(BookError::Note)?);
    }
    Ok(notes)
}

/// Closes a doubt.
pub(crate) fn resolve<B: Book>(
    book: &mut B,
    tenant: &TenantId,
    resolution: &Resolution,
) -> Result<ResolveAnswer, BookError<B::Error>> {
    let Some(record) = book.key(tenant, &resolution.key)? else {
        return Ok(ResolveAnswer::NotInDoubt(None));
    };
    let entity_key = record.proposal.entity_key.clone();
    let entity = book.entity(tenant, &entity_key)?;
    match life::resolve(&record, &entity, resolution, book.now()) {
        ResolveStep::Stay(answer) => Ok(answer),
        ResolveStep::Close {
            key,
            entity,
            receipt,
        } => {
            let phase = key.phase;
            let notes = slots_given_back(book, tenant, &key)?;
            book.put_key(*key, Change::Moved)?;
            book.put_entity(tenant, &entity_key, &entity)?;
            book.append(*receipt)?;
            for note in notes {
                book.put_note(tenant, note)?;
            }
            Ok(ResolveAnswer::Resolved(phase))
        }
    }
}

/// Opens a burned key's next generation.
pub(crate) fn forget<B: Book>(
    book: &mut B,
    tenant: &TenantId,
    wish: &Forget,
) -> Result<ForgetAnswer, BookError<B::Error>> {
    let Some(record) = book.key(tenant, &wish.key)? else {
        return Ok(ForgetAnswer::NotBurned(None));
    };
    match life::forget(&record, wish) {
        ForgetStep::Stay(answer) => Ok(answer),
        ForgetStep::Open { key, receipt } => {
            let generation = key.generation;
            book.put_key(*key, Change::Moved)?;
            book.append(*receipt)?;
            Ok(ForgetAnswer::Forgotten(generation))
        }
    }
}

/// Keeps one session alive and buries those that are not.
pub(crate) fn heartbeat<B: Book>(
    book: &mut B,
    session: SessionId,
) -> Result<Beat, BookError<B::Error>> {
    if book.is_buried(session)? {
        return Ok(Beat::Dead);
    }
    book.extend(session)?;
    bury_the_lifeless(book)?;
    Ok(Beat::Alive)
}

/// Declares every session dead that shows no sign of life.
pub(crate) fn bury_the_lifeless<B: Book>(book: &mut B) -> Result<(), BookError<B::Error>> {
    for session in book.lifeless_sessions()? {
        declare_dead(book, session)?;
    }
    Ok(())
}

/// Declares a session dead: its intents become doubts, or are free where nothing can have happened,
/// each with the receipt it still lacks.
pub(crate) fn declare_dead<B: Book>(
    book: &mut B,
    session: SessionId,
) -> Result<(), BookError<B::Error>> {
    book.bury(session)?;
    let at = book.stamp();
    for key in book.intents_of(session)? {
        let (tenant, entity_key) = (&key.proposal.tenant_id, &key.proposal.entity_key);
        let entity = book.entity(tenant, entity_key)?;
        if let Some((moved, entity, receipt)) = life::owner_died(&key, &entity, at) {
            let notes = slots_given_back(book, tenant, &moved)?;
            book.put_key(moved, Change::Moved)?;
            book.put_entity(tenant, entity_key, &entity)?;
            let raised = life::raised(&key.proposal, &receipt);
            book.append(receipt)?;
            for note in notes.into_iter().chain(raised.map_err(BookError::Note)?) {
                book.put_note(tenant, note)?;
            }
        }
    }
    Ok(())
}
