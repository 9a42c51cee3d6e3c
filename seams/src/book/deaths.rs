//! Who counts as dead, and what follows for what they left.

use operators_kernel::life::{self, Phase};
use operators_kernel::{Beat, IdempotencyKey, SessionId, TenantId};

use super::notes::slots_given_back;
use super::{Book, BookError, Change};

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
            let change = Change::between(&key, &moved);
            book.put_key(moved.into(), change)?;
            book.put_entity(tenant, entity_key, &entity)?;
            let raised = life::raised(&key.proposal, &receipt);
            book.append(receipt.into())?;
            for note in notes.into_iter().chain(raised.map_err(BookError::Note)?) {
                book.put_note(tenant, note)?;
            }
        }
    }
    Ok(())
}

/// Declares the owner of a key's intent dead if it shows no sign of life; whether the key is in flight
/// no more.
pub(crate) fn declare_owner_dead<B: Book>(
    book: &mut B,
    tenant: &TenantId,
    key: &IdempotencyKey,
) -> Result<bool, BookError<B::Error>> {
    let found = book.key(tenant, key)?;
    let Some(intent) = found.filter(|found| found.phase == Phase::Intent) else {
        return Ok(true);
    };
    if !book.is_buried(intent.session)? && !book.is_lifeless(intent.session)? {
        return Ok(false);
    }
    declare_dead(book, intent.session)?;
    Ok(true)
}
