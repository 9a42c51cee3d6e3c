//! Everything that is not common: one transaction that locks, loads, lets `book` decide, and writes.

use std::sync::Arc;

use operators_kernel::life::{self, NoteName};
use operators_kernel::{
    Claim, ClaimAnswer, Directive, DirectiveAnswer, EntityKey, Forget, ForgetAnswer,
    IdempotencyKey, Performance, Resolution, ResolveAnswer, SessionId, SettleAnswer, Settlement,
    TenantId, Ticket,
};

use super::burials::{Death, bury};
use super::fast::signed;
use super::ledger::find_receipt;
use super::lines::{IfBroken, Line, Lines, Tries};
use super::rows::{Loaded, NoteRow, Written, to_json};
use super::text::Call;
use super::trouble::Trouble;
use crate::book::{self, Asker, BookError};
use crate::page::{EntityName, Page, Want};

/// How often a decision may find dead sessions in its way before somebody should look.
const BURIALS_MAX: u32 = 64;

/// How a transaction begins. One whose owner is frozen or cut off is ended by the server before
/// whoever waits for its locks gives up (5 s); the server would believe in its connection for hours.
/// Its isolation is named, because the functions refuse any other, whatever the default is.
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; \
    SET LOCAL idle_in_transaction_session_timeout = '3s'";

/// The records a decision is about.
#[derive(Debug, Clone)]
pub(super) struct Around<'a> {
    tenant: &'a TenantId,
    /// The entity; the key's own if there is none.
    entity: Option<&'a EntityKey>,
    key: Option<&'a IdempotencyKey>,
    /// An entity that the key has left and that a late answer is about.
    elsewhere: Option<EntityName>,
    /// Whoever wants the turn.
    session: Option<SessionId>,
    /// Its place in the queue, as far as it knows.
    ticket: Option<Ticket>,
    /// The proposal that may have a place in the queue already.
    asker: Option<&'a str>,
    /// The notes it needs.
    notes: Vec<NoteName>,
    if_broken: IfBroken,
}

impl<'a> Around<'a> {
    /// A statement of others: its key, that key's entity, and its session.
    pub(super) fn performing(tenant: &'a TenantId, performance: &'a Performance) -> Self {
        Self {
            session: Some(performance.session),
            ..around_key(tenant, &performance.proposal.idempotency_key)
        }
    }
}

pub(super) async fn claim(
    lines: &Arc<Lines>,
    tenant: &TenantId,
    claim: &Claim,
) -> Result<ClaimAnswer, Trouble> {
    let around = Around {
        tenant,
        entity: Some(&claim.proposal.entity_key),
        key: Some(&claim.proposal.idempotency_key),
        elsewhere: None,
        session: Some(claim.session),
        ticket: claim.ticket,
        asker: Some(&claim.proposal.receipt_id),
        notes: life::wanted(claim),
        if_broken: IfBroken::Tell,
    };
    decide(lines, around, |page, place| {
        let mut claim = claim.clone();
        claim.ticket = claim.ticket.or(place);
        book::claim(page, tenant, &claim)
    })
    .await
}

pub(super) async fn pass(
    lines: &Arc<Lines>,
    tenant: &TenantId,
    entity: &EntityKey,
    asker: Asker<'_>,
) -> Result<Option<Ticket>, Trouble> {
    let around = Around {
        tenant,
        entity: Some(entity),
        key: None,
        elsewhere: None,
        session: Some(asker.session),
        ticket: asker.place,
        asker: Some(asker.name),
        notes: Vec::new(),
        if_broken: IfBroken::AskAgain,
    };
    decide(lines, around, |page, _| {
        book::pass(page, tenant, entity, asker)
    })
    .await
}

pub(super) async fn settle(
    lines: &Arc<Lines>,
    tenant: &TenantId,
    settlement: &Settlement,
) -> Result<SettleAnswer, Trouble> {
    let around = around_key(tenant, &settlement.proposal.idempotency_key);
    decide(lines, around, |page, _| {
        book::settle(page, tenant, settlement)
    })
    .await
}

pub(super) async fn resolve(
    lines: &Arc<Lines>,
    tenant: &TenantId,
    resolution: &Resolution,
) -> Result<ResolveAnswer, Trouble> {
    decide(lines, once(tenant, &resolution.key), |page, _| {
        book::resolve(page, tenant, resolution)
    })
    .await
    .map_err(Trouble::once)
}

pub(super) async fn forget(
    lines: &Arc<Lines>,
    tenant: &TenantId,
    wish: &Forget,
) -> Result<ForgetAnswer, Trouble> {
    decide(lines, once(tenant, &wish.key), |page, _| {
        book::forget(page, tenant, wish)
    })
    .await
    .map_err(Trouble::once)
}

fn around_key<'a>(tenant: &'a TenantId, key: &'a IdempotencyKey) -> Around<'a> {
    Around {
        tenant,
        entity: None,
        key: Some(key),
        elsewhere: None,
        session: None,
        ticket: None,
        asker: None,
        notes: Vec::new(),
        if_broken: IfBroken::AskAgain,
    }
}

/// As [`around_key`], of something that a person orders: asked twice, it may be done twice.
fn once<'a>(tenant: &'a TenantId, key: &'a IdempotencyKey) -> Around<'a> {
    Around {
        if_broken: IfBroken::Tell,
        ..around_key(tenant, key)
    }
}

/// Does what a person orders, in a transaction of its own.
pub(super) async fn direct(
    lines: &Arc<Lines>,
    tenant: &TenantId,
    directive: &Directive,
) -> Result<DirectiveAnswer, Trouble> {
    let mut tries = Tries::new(IfBroken::Tell);
    loop {
        let mut line = lines.take().await?;
        match direct_on(&mut line, lines, tenant, directive).await {
            Ok(answer) => {
                line.give_back();
                return Ok(answer);
            }
            Err(trouble) => {
                let told = tries.consider(trouble, &line).await;
                told.map_err(Trouble::once)?;
            }
        }
    }
}

async fn direct_on(
    line: &mut Line,
    lines: &Lines,
    tenant: &TenantId,
    directive: &Directive,
) -> Result<DirectiveAnswer, Trouble> {
    let names = directive.note_names();
    let wanted: Vec<NoteRow> = names.iter().map(NoteRow::wanted).collect();
    let statement = Call::of("desk")
        .text(&lines.last_acked())
        .text(tenant.as_str())
        .text(&to_json(&wanted)?)
        .finish()?;
    let loaded = Loaded::read(&line.rows(format!("{BEGIN}; {statement}")).await?)?;
    let mut page = Page::part(loaded.now, loaded.stamp());
    for name in names {
        let body = loaded.note(&name);
        page.load_note(tenant.clone(), name, body);
    }
    let answer = book::direct(&mut page, tenant, directive).map_err(sorted)?;
    write(line, lines, &Written::of(&mut page)?).await?;
    Ok(answer)
}

/// Runs one decision in a transaction of its own. Sessions found dead on the way are buried in
/// theirs, in the order of locks that burials have, and the decision begins anew.
async fn decide<T>(
    lines: &Arc<Lines>,
    mut around: Around<'_>,
    decision: impl Fn(&mut Page, Option<Ticket>) -> Result<T, BookError<Want>>,
) -> Result<T, Trouble> {
    let mut tries = Tries::new(around.if_broken);
    let mut burials = 0;
    loop {
        let mut line = lines.take().await?;
        match decide_on(&mut line, lines, &around, &decision).await {
            Ok(Decided::Done(answer)) => {
                line.give_back();
                return Ok(answer);
            }
            Ok(Decided::InTheWay(session)) => {
                line.rows("ROLLBACK".to_owned()).await?;
                line.give_back();
                burials += 1;
                if burials > BURIALS_MAX {
                    let problem = format!("session {session} cannot be buried");
                    return Err(Trouble::Unavailable(problem));
                }
                let entity = around.entity.map(|e| (around.tenant.clone(), e.clone()));
                bury(lines, session, Death::Lease, entity).await?;
            }
            Ok(Decided::Lacks(name)) => {
                line.rows("ROLLBACK".to_owned()).await?;
                line.give_back();
                around.elsewhere = Some(name);
            }
            Err(trouble) => tries.consider(trouble, &line).await?,
        }
    }
}

enum Decided<T> {
    Done(T),
    /// This session is dead and must be buried first.
    InTheWay(SessionId),
    /// This entity is needed as well, and a lock on it.
    Lacks(EntityName),
}

async fn decide_on<T>(
    line: &mut Line,
    lines: &Lines,
    around: &Around<'_>,
    decision: impl Fn(&mut Page, Option<Ticket>) -> Result<T, BookError<Want>>,
) -> Result<Decided<T>, Trouble> {
    let loaded = load(line, lines, around).await?;
    let place = loaded.place;
    let mut page = page_of(loaded, around);
    let decided = loop {
        match decision(&mut page, place) {
            // Nothing was changed by then.
            Err(BookError::Records(Want::Note(name))) => {
                recall(line, &mut page, around.tenant, name).await?;
            }
            Err(BookError::Records(Want::Receipt(receipt_id))) => {
                let found = find_receipt(line, around.tenant, &receipt_id).await?;
                page.load_receipt(receipt_id, found);
            }
            decided => break decided,
        }
    };
    match decided {
        Ok(answer) => {
            let written = Written::of(&mut page)?;
            write(line, lines, &written).await?;
            Ok(Decided::Done(answer))
        }
        Err(BookError::Records(Want::Intents(session))) => Ok(Decided::InTheWay(session)),
        Err(BookError::Records(Want::Entity(name))) => Ok(Decided::Lacks(name)),
        Err(error) => Err(sorted(error)),
    }
}

/// Brings a note onto the page that a decision lacked.
pub(super) async fn recall(
    line: &mut Line,
    page: &mut Page,
    tenant: &TenantId,
    name: NoteName,
) -> Result<(), Trouble> {
    let rows = line
        .rows(notes(tenant, std::slice::from_ref(&name))?)
        .await?;
    let body = Loaded::read(&rows)?.note(&name);
    page.load_note(tenant.clone(), name, body);
    Ok(())
}

pub(super) fn sorted(error: BookError<Want>) -> Trouble {
    match error {
        BookError::Records(want) => Trouble::Unusable(format!("a record is missing: {want:?}")),
        BookError::SessionDead(session) => Trouble::SessionDead(session),
        BookError::KeyMissing(key) => Trouble::Unusable(format!(
            "key `{key}` was claimed but its row is gone; rows were deleted by hand, or the store \
             was rolled back"
        )),
        BookError::Note(error) => Trouble::Unusable(error.to_string()),
    }
}

pub(super) async fn load(
    line: &mut Line,
    lines: &Lines,
    around: &Around<'_>,
) -> Result<Loaded, Trouble> {
    let session = around.session.map(|session| signed(session.0));
    let statement = Call::of("page")
        .text(&lines.last_acked())
        .text(around.tenant.as_str())
        .text_or_null(around.entity.map(EntityKey::as_str))
        .text_or_null(around.key.map(IdempotencyKey::as_str))
        .number_or_null(session)
        .number_or_null(around.ticket.map(|ticket| signed(ticket.0)))
        .text_or_null(around.asker)
        .finish()?;
    let mut message = BEGIN.to_owned();
    if let Some((tenant, entity)) = &around.elsewhere {
        // Before the key: whoever claims it there locks the two in this order.
        let statement = Call::of("page")
            .text("")
            .text(tenant.as_str())
            .text(entity.as_str())
            .text_or_null(None)
            .number_or_null(None)
            .number_or_null(None)
            .text_or_null(None)
            .finish()?;
        message.push_str("; ");
        message.push_str(&statement);
    }
    message.push_str("; ");
    message.push_str(&statement);
    if !around.notes.is_empty() {
        message.push_str("; ");
        message.push_str(&notes(around.tenant, &around.notes)?);
    }
    Loaded::read(&line.rows(message).await?)
}

/// The statement that locks and reads notes.
fn notes(tenant: &TenantId, names: &[NoteName]) -> Result<String, Trouble> {
    let wanted: Vec<NoteRow> = names.iter().map(NoteRow::wanted).collect();
    let call = Call::of("notes").text(tenant.as_str());
    Ok(call.text(&to_json(&wanted)?).finish()?)
}

pub(super) fn page_of(loaded: Loaded, around: &Around<'_>) -> Page {
    let mut page = Page::part(loaded.now, loaded.stamp());
    let tenant = around.tenant.clone();
    for name in &around.notes {
        page.load_note(tenant.clone(), name.clone(), loaded.note(name));
    }
    if let Some(key) = around.key {
        let found = loaded.keys.into_iter().next();
        page.load_key(&(tenant.clone(), key.clone()), found);
    }
    let holders = loaded.entities.values().filter_map(|entity| entity.holder);
    let waiters = loaded.queue.values().map(|waiter| waiter.session);
    let named: Vec<SessionId> = around
        .session
        .into_iter()
        .chain(holders)
        .chain(waiters)
        .collect();
    for session in named {
        page.load_session(session, loaded.sessions.get(&session).copied());
    }
    for (name, record) in loaded.entities {
        page.load_entity(&name, &record);
    }
    if let Some(entity) = around.entity {
        page.load_queue((tenant, entity.clone()), loaded.queue);
    }
    if let Some(ticket) = loaded.ticket {
        page.load_ticket(ticket);
    }
    page
}

/// Writes and commits, in one message.
pub(super) async fn write(
    line: &mut Line,
    lines: &Lines,
    written: &Written,
) -> Result<(), Trouble> {
    if written.is_empty() {
        line.rows("COMMIT".to_owned()).await?;
        return Ok(());
    }
    let changes = written.to_json()?;
    let mut message = Call::of("write").text(&changes).finish()?;
    if written.has_notes() {
        message.push_str("; ");
        message.push_str(&Call::of("write_notes").text(&changes).finish()?);
    }
    line.rows(format!("{message}; COMMIT")).await?;
    if let Some(receipt_id) = written.last_receipt() {
        lines.note_acked(receipt_id);
    }
    Ok(())
}
