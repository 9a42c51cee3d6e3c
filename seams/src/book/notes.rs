//! What people ordered and limits count, read and written beside the keys.

use std::collections::BTreeMap;

use operators_kernel::life::{self, KeyRecord, Note, NoteName, Through};
use operators_kernel::{Claim, ClaimAnswer, Directive, DirectiveAnswer, Person, TenantId};

use super::{Book, BookError};

/// What people and limits say about a claim that everything else lets through: who approved it, if
/// anybody had to, or a refusal whose receipt is written.
pub(super) fn let_through<B: Book>(
    book: &mut B,
    tenant: &TenantId,
    key: Option<&KeyRecord>,
    claim: &Claim,
) -> Result<Result<Option<Person>, ClaimAnswer>, BookError<B::Error>> {
    // Mostly nothing is counted, nobody has to be asked, and nobody ordered anything.
    if life::is_let_through_unless_paused(claim) && book.note(tenant, NoteName::paused())?.is_none()
    {
        return Ok(Ok(None));
    }
    let found = notes(book, tenant, life::wanted(claim))?;
    let (answer, notes) = match life::let_through(key, claim, &found).map_err(BookError::Note)? {
        Through::Granted(grant) => (Ok(grant.approver), grant.notes),
        Through::Held(hold) => {
            book.append(hold.receipt.into())?;
            let (refusal, attempt) = (hold.refusal, hold.attempt);
            (Err(ClaimAnswer::Refused { refusal, attempt }), hold.notes)
        }
    };
    for note in notes {
        book.put_note(tenant, note)?;
    }
    Ok(answer)
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
        book.append(receipt.into())?;
    }
    Ok(step.answer)
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

/// The notes to write now that a key is as it is: a slot of a limit is its key's only while the
/// effect may have happened. Read before anything is written, so that a page that lacks one can be
/// loaded and decided on again.
pub(super) fn slots_given_back<B: Book>(
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
