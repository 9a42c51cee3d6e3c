//! Whose turn it is on an entity, and the queue of those who wait for it.

use operators_kernel::life::{EntityRecord, Turn};
use operators_kernel::{EntityKey, TenantId, Ticket};

use super::deaths::declare_dead;
use super::{Asker, Book, BookError, Waiter};

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
pub(super) fn turn_of<B: Book>(
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
pub(super) fn queue<B: Book>(
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

pub(super) fn give_place_back<B: Book>(
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
