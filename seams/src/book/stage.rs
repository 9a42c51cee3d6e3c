//! Whether a statement of others may run in the transaction that settles.

use operators_kernel::life::{self, PerformStep};
use operators_kernel::{Performance, Performed, TenantId};

use super::{Book, BookError};

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
