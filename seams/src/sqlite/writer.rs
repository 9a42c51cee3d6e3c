//! The one thread that writes: it commits whatever queued while its last commit ran.
//!
//! Owns the transaction around every change. A caller that gives up loses only its answer: the work
//! was handed over and is done or refused as a whole.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use operators_kernel::{Performance, Performed, StoreError, TenantId};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::alive::SignsOfLife;
use super::clock::StoreClock;
use super::describe;
use super::proposals::Proposals;
use super::records::RowError;
use super::rows::{Around, Rows};
use super::stage::Stage;
use super::trouble::{Trouble, sort, sorted};
use crate::book::BookError;

/// The most calls in one commit: bounds how long the first of them waits for the last.
const BATCH_MAX: usize = 512;

/// A handle on the writing thread, which ends with it: what was handed over is written, and the
/// file is closed in good order, its log folded back into it.
pub(super) struct Writer {
    /// `None` only while it is being dropped.
    queue: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has answered nobody, and whoever asked was told so.
            drop(thread.join());
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// What the thread is asked for.
enum Order {
    /// A call that shares its commit with others.
    Call(Box<dyn Job>),
    /// A statement of others, in a transaction of its own.
    Perform(Box<Performing>),
}

struct Performing {
    tenant: TenantId,
    performance: Performance,
    reply: oneshot::Sender<Result<Performed, StoreError>>,
}

/// One call on its way to the thread.
trait Job: Send {
    /// Does the work inside the transaction; it is answered once that is committed.
    fn run(self: Box<Self>, rows: &mut Rows<'_>, path: &Path) -> Box<dyn Pending>;
    /// Answers without having done anything.
    fn refuse(self: Box<Self>, error: StoreError);
}

/// One call whose work is done but not yet durable.
trait Pending {
    /// Why the work failed and must be undone, if it did.
    fn trouble(&self) -> Option<&Trouble>;
    /// Answers, as the commit went.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

struct Call<W, T> {
    work: W,
    reply: oneshot::Sender<Result<T, StoreError>>,
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

impl Writer {
    /// Starts the thread.
    pub(super) fn start(
        path: PathBuf,
        connection: Connection,
        clock: Arc<StoreClock>,
        alive: Arc<SignsOfLife>,
    ) -> Result<Self, StoreError> {
        let (queue, jobs) = channel();
        let file = path.clone();
        let thread = thread::Builder::new()
            .name("operators-sqlite".to_owned())
            .spawn(move || Desk::new(&file, connection, clock, alive).serve(&jobs))
            .map_err(|error| StoreError::Unavailable {
                store: describe(&path),
                problem: format!("no thread to be had: {error}"),
            })?;
        Ok(Self {
            queue: Some(queue),
            thread: Some(thread),
            path,
        })
    }

    /// Runs `work` in a transaction, possibly with others', and answers once it is durable.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Rows<'_>) -> Result<T, BookError<RowError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let call = Box::new(Call { work, reply });
        self.order(Order::Call(call), answer).await
    }

    /// Runs a statement of others with its settlement, and answers once both are durable.
    pub(super) async fn perform(
        &self,
        tenant: TenantId,
        performance: Performance,
    ) -> Result<Performed, StoreError> {
        let (reply, answer) = oneshot::channel();
        let performing = Box::new(Performing {
            tenant,
            performance,
            reply,
        });
        self.order(Order::Perform(performing), answer).await
    }

    async fn order<T>(
        &self,
        order: Order,
        answer: oneshot::Receiver<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let gone = || StoreError::Unusable {
            store: describe(&self.path),
            problem: "its writing thread ended".to_owned(),
        };
        let queue = self.queue.as_ref().ok_or_else(gone)?;
        queue.send(order).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// The writing thread's side.
struct Desk {
    path: PathBuf,
    connection: Connection,
    /// Opened when the first statement of others comes.
    stage: Option<Stage>,
    clock: Arc<StoreClock>,
    alive: Arc<SignsOfLife>,
    proposals: Proposals,
    identity: Option<FileIdentity>,
    /// Set after an error that leaves it open what is on the disk; nothing is written after that.
    broken: Option<String>,
}

/// What became of the jobs of a batch.
enum Batch {
    /// Whatever was written is whole.
    Clean,
    /// A job failed after it wrote, or its failure ended the transaction.
    Spoilt,
}

/// Which file is behind a path.
type FileIdentity = (u64, u64);

impl Desk {
    fn new(
        path: &Path,
        connection: Connection,
        clock: Arc<StoreClock>,
        alive: Arc<SignsOfLife>,
    ) -> Self {
        Self {
            path: path.to_owned(),
            connection,
            stage: None,
            clock,
            alive,
            proposals: Proposals::default(),
            identity: identity_of(path),
            broken: None,
        }
    }

    fn serve(mut self, orders: &Receiver<Order>) {
        while let Ok(first) = orders.recv() {
            let mut batch = Vec::new();
            let mut next = Some(first);
            while let Some(order) = next.take() {
                match order {
                    Order::Call(job) => batch.push(job),
                    Order::Perform(performing) => {
                        self.commit(std::mem::take(&mut batch));
                        self.perform(*performing);
                    }
                }
                if batch.len() < BATCH_MAX {
                    next = orders.try_recv().ok();
                }
            }
            self.commit(batch);
        }
    }

    fn perform(&mut self, performing: Performing) {
        let Performing {
            tenant,
            performance,
            reply,
        } = performing;
        let performed = self.check().and_then(|()| {
            let stage = match self.stage.take() {
                Some(stage) => stage,
                None => Stage::open(&self.path)?,
            };
            let performed = stage.perform(&self.path, self.around(), &tenant, &performance);
            self.stage = Some(stage);
            performed.map_err(|trouble| self.note(trouble))
        });
        // Whoever asked may have left; the work is done all the same.
        drop(reply.send(performed));
    }

    /// One transaction for the whole batch. A job that fails before it wrote anything fails alone;
    /// one that fails half-way, which takes a damaged row or a failing disk, takes its neighbours
    /// with it, and they ask again. A savepoint around each would keep them apart at a tenth of the
    /// speed of all.
    fn commit(&mut self, batch: Vec<Box<dyn Job>>) {
        if batch.is_empty() {
            return;
        }
        let begun = self.check().and_then(|()| {
            self.execute("BEGIN IMMEDIATE")
                .map_err(|error| self.sort(&error))
        });
        if let Err(error) = begun {
            for job in batch {
                job.refuse(error.clone());
            }
            return;
        }
        let mut pending = Vec::with_capacity(batch.len());
        let committed = match self.run_jobs(batch, &mut pending) {
            Ok(Batch::Clean) => self.execute("COMMIT").map_err(|error| self.sort(&error)),
            Ok(Batch::Spoilt) => Err(self.spoilt()),
            Err(error) => Err(self.sort(&error)),
        };
        if committed.is_err() {
            // A failed transaction may still be open; if it is not, this fails and changes nothing.
            drop(self.execute("ROLLBACK"));
            self.alive.take_back();
        } else {
            self.alive.keep();
        }
        for job in pending {
            let damage = job.trouble().and_then(|trouble| trouble.damage.clone());
            self.broken = self.broken.take().or(damage);
            job.answer(committed.clone());
        }
    }

    fn run_jobs(
        &self,
        batch: Vec<Box<dyn Job>>,
        pending: &mut Vec<Box<dyn Pending>>,
    ) -> rusqlite::Result<Batch> {
        let mut batch = batch.into_iter();
        let mut rows = Rows::new(&self.connection, self.around());
        while let Some(job) = batch.next() {
            let before = self.connection.total_changes();
            let done = job.run(&mut rows, &self.path);
            // INVARIANT (one-transaction): SQLite itself ends the transaction after an I/O error, a
            // full disk or a lack of memory, and the work of every job before goes with it. What
            // is written after that, a log's head above all, would be there without them.
            let is_spoilt = self.connection.is_autocommit()
                || done.trouble().is_some_and(|trouble| {
                    trouble.damage.is_some() || self.connection.total_changes() != before
                });
            pending.push(done);
            if is_spoilt {
                batch.for_each(|job| job.refuse(self.spoilt()));
                return Ok(Batch::Spoilt);
            }
        }
        rows.write_logs()?;
        Ok(Batch::Clean)
    }

    fn around(&self) -> Around<'_> {
        Around {
            clock: &self.clock,
            alive: &self.alive,
            proposals: &self.proposals,
        }
    }

    /// What those hear whose batch is undone for a neighbour's sake.
    fn spoilt(&self) -> StoreError {
        StoreError::Unavailable {
            store: describe(&self.path),
            problem: "a call in the same commit failed half-way; nothing of it was kept".to_owned(),
        }
    }

    /// Refuses to write into a file that is no longer the one at its path: what is written there
    /// would be lost with it.
    fn check(&mut self) -> Result<(), StoreError> {
        if self.broken.is_none() && identity_of(&self.path) != self.identity {
            self.broken = Some(
                "the file was removed or replaced while it was open; nothing more is written"
                    .to_owned(),
            );
        }
        match &self.broken {
            None => Ok(()),
            Some(problem) => Err(StoreError::Unusable {
                store: describe(&self.path),
                problem: problem.clone(),
            }),
        }
    }

    fn execute(&self, statement: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(statement)?.execute([])?;
        Ok(())
    }

    /// Sorts an error of the transaction itself.
    fn sort(&mut self, error: &rusqlite::Error) -> StoreError {
        let trouble = sorted(&self.path, error);
        self.note(trouble)
    }

    /// What the caller hears; damage ends all writing.
    fn note(&mut self, trouble: Trouble) -> StoreError {
        self.broken = self.broken.take().or(trouble.damage);
        trouble.told
    }
}

fn identity_of(path: &Path) -> Option<FileIdentity> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests;
