//! The one thread that writes: it commits whatever queued while its last commit ran.
//!
//! Owns the transaction around every change. A caller that gives up loses only its answer: the work
//! was handed over and is done or refused as a whole.

mod calls;

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
use super::log_files::{close_and_fold, fold_if_long};
use super::proposals::Proposals;
use super::records::RowError;
use super::rows::{Around, Rows};
use super::stage::Stage;
use super::trouble::{Trouble, sorted};
use super::witness::{Acked, Fall, Witness, is_of_place};
use crate::book::BookError;
use calls::{Call, Job, Pending};

/// The most calls in one commit: bounds how long the first of them waits for the last.
const BATCH_MAX: usize = 512;

/// A handle on the writing thread, which ends with it: what was handed over is written, and the
/// file is closed in good order, its log folded back into it if no other process has it open.
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

impl Writer {
    /// Starts the thread.
    pub(super) fn start(desk: Desk) -> Result<Self, StoreError> {
        let (queue, jobs) = channel();
        let path = desk.path.clone();
        let thread = thread::Builder::new()
            .name("operators-sqlite".to_owned())
            .spawn(move || desk.serve(&jobs))
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
            problem: "its writing thread ended; restart".to_owned(),
        };
        let queue = self.queue.as_ref().ok_or_else(gone)?;
        queue.send(order).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// The writing thread's side.
pub(super) struct Desk {
    path: PathBuf,
    connection: Connection,
    /// Opened when the first statement of others comes.
    stage: Option<Stage>,
    clock: Arc<StoreClock>,
    alive: Arc<SignsOfLife>,
    proposals: Proposals,
    witness: Witness,
    /// Set after an error that leaves it open what is on the disk; nothing is written after that.
    broken: Option<String>,
}

/// What became of the jobs of a batch.
enum Batch {
    /// Whatever was written is whole; the newest receipt of it.
    Clean(Option<Acked>),
    /// A job failed after it wrote, or its failure ended the transaction.
    Spoilt,
}

impl Desk {
    pub(super) fn new(
        path: &Path,
        connection: Connection,
        clock: Arc<StoreClock>,
        alive: Arc<SignsOfLife>,
        witness: Witness,
    ) -> Self {
        Self {
            path: path.to_owned(),
            connection,
            stage: None,
            clock,
            alive,
            proposals: Proposals::default(),
            witness,
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
            self.fold();
        }
        self.close();
    }

    /// Folds the log back if it is long. It was asked where it is after the last commit; a pause of this
    /// process in between is why it is asked again.
    fn fold(&mut self) {
        if self.broken.is_none() && self.check_where().is_ok() {
            // What cannot be folded now is folded after another commit.
            drop(fold_if_long(&self.connection));
        }
    }

    /// Closes the file in good order; after damage its log stays as it is.
    fn close(mut self) {
        drop(self.stage.take());
        let is_sound = self.broken.as_deref().is_none_or(is_of_place);
        if is_sound && self.witness.may_fold(&self.connection) {
            close_and_fold(self.connection);
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
            let around = Around {
                clock: &self.clock,
                alive: &self.alive,
                proposals: &self.proposals,
            };
            let witness = &mut self.witness;
            let performed = stage.perform(&self.path, around, witness, &tenant, &performance);
            self.stage = Some(stage);
            let performed = performed.map_err(|trouble| self.note(trouble))?;
            self.check_where().map(|()| performed)
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
        if let Err(error) = self.begin() {
            for job in batch {
                job.refuse(error.clone());
            }
            return;
        }
        let mut pending = Vec::with_capacity(batch.len());
        let committed = match self.run_jobs(batch, &mut pending) {
            Ok(Batch::Clean(newest)) => self.end(newest),
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
        Ok(Batch::Clean(rows.into_newest()))
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

    /// Begins a transaction in which what was acknowledged is there.
    fn begin(&mut self) -> Result<(), StoreError> {
        self.check()?;
        self.execute("BEGIN IMMEDIATE")
            .map_err(|error| self.sort(&error))?;
        self.witness.check(&self.connection).map_err(|fall| {
            drop(self.execute("ROLLBACK"));
            self.fell(fall)
        })
    }

    /// Commits, and answers for it only if that was in the file at the path.
    fn end(&mut self, newest: Option<Acked>) -> Result<(), StoreError> {
        self.execute("COMMIT").map_err(|error| self.sort(&error))?;
        self.witness.remember(newest);
        self.check_where()
    }

    /// Refuses to write into a store that is not the one it was: what is written there would be lost
    /// with it, or was forgotten there.
    fn check(&mut self) -> Result<(), StoreError> {
        if let Some(problem) = &self.broken {
            return Err(StoreError::Unusable {
                store: describe(&self.path),
                problem: problem.clone(),
            });
        }
        self.witness.look().map_err(|fall| self.fell(fall))
    }

    fn check_where(&mut self) -> Result<(), StoreError> {
        let here = self.witness.look_where();
        here.map_err(|fall| self.fell(fall))
    }

    fn fell(&mut self, fall: Fall) -> StoreError {
        let trouble = Trouble::of_fall(&self.path, fall);
        self.note(trouble)
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

#[cfg(test)]
mod tests;
