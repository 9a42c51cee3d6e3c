//! A call to the writing thread, from its caller to its answer, whatever it asks for.

use std::path::Path;

use operators_kernel::StoreError;
use tokio::sync::oneshot;

use super::super::records::RowError;
use super::super::rows::Rows;
use super::super::trouble::{Trouble, sort};
use crate::book::BookError;

/// One call on its way to the thread.
pub(super) trait Job: Send {
    /// Does the work inside the transaction; it is answered once that is committed.
    fn run(self: Box<Self>, rows: &mut Rows<'_>, path: &Path) -> Box<dyn Pending>;
    /// Answers without having done anything.
    fn refuse(self: Box<Self>, error: StoreError);
}

/// One call whose work is done but not yet durable.
pub(super) trait Pending {
    /// Why the work failed and must be undone, if it did.
    fn trouble(&self) -> Option<&Trouble>;
    /// Answers, as the commit went.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

/// What is asked for, and where the answer goes.
pub(super) struct Call<W, T> {
    pub(super) work: W,
    pub(super) reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<W, T: Send + 'static> Job for Call<W, T>
where
    W: FnOnce(&mut Rows<'_>) -> Result<T, BookError<RowError>> + Send,
{
    fn run(self: Box<Self>, rows: &mut Rows<'_>, path: &Path) -> Box<dyn Pending> {
        let Self { work, reply } = *self;
        let outcome = work(rows).map_err(|error| sort(path, error));
        Box::new(Done { outcome, reply })
    }

    fn refuse(self: Box<Self>, error: StoreError) {
        // Whoever asked may have left.
        drop(self.reply.send(Err(error)));
    }
}

struct Done<T> {
    outcome: Result<T, Trouble>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T> Pending for Done<T> {
    fn trouble(&self) -> Option<&Trouble> {
        self.outcome.as_ref().err()
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let Self { outcome, reply } = *self;
        let outcome = outcome.map_err(|trouble| trouble.told);
        // Whoever asked may have left; the work is done all the same.
        drop(reply.send(outcome.and_then(|value| committed.map(|()| value))));
    }
}
