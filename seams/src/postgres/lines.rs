//! Connections of our own, and what every statement on them has in common.
//!
//! There is no pool that outsiders could hand a half-used connection to: a line is taken by one
//! task, which owns it until its work is done, and goes back only then. One whose work failed or
//! was dropped is closed. The functions of the schema refuse to run in a transaction they did not
//! begin, in case that fails all the same.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use operators_kernel::{Rows, Statement};
use operators_sql::{Failure, postgres};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::address::Address;
use super::text::{Call, joined};
use super::trouble::{ROLLED_BACK, Trouble};

/// How long to wait for a server, a connection or an answer before failing closed. A commit that
/// takes longer may still happen; asking again finds out.
const PATIENCE: Duration = Duration::from_secs(10);

/// The connections of one store, and what it was told is durable.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) address: Address,
    permits: Arc<Semaphore>,
    // Std locks: held to push or pop, never over an await, nor while a connection is closed.
    idle: Mutex<Vec<PgConnection>>,
    /// The last receipts that were acknowledged, newest last, one per statement. As many as there
    /// are lines: the newest commit is always among them.
    acked: Mutex<VecDeque<String>>,
    /// Which cluster this store began on.
    cluster: OnceLock<Option<String>>,
    /// Set once, when the store was found to have forgotten something: nothing is done after that.
    ruin: OnceLock<String>,
}

/// A connection in use. Dropped, it is closed.
#[derive(Debug)]
pub(super) struct Line {
    connection: PgConnection,
    was_idle: bool,
    lines: Arc<Lines>,
    _permit: OwnedSemaphorePermit,
}

impl Lines {
    pub(super) fn new(address: Address) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(address.connections_max)),
            address,
            idle: Mutex::new(Vec::new()),
            acked: Mutex::new(VecDeque::new()),
            cluster: OnceLock::new(),
            ruin: OnceLock::new(),
        }
    }

    /// A connection: the one used last, or a new one.
    pub(super) async fn take(self: &Arc<Self>) -> Result<Line, Trouble> {
        self.check()?;
        let permit = Arc::clone(&self.permits).acquire_owned();
        let Ok(Ok(permit)) = tokio::time::timeout(PATIENCE, permit).await else {
            let problem = "all its connections were busy for 10 s".to_owned();
            return Err(Trouble::Unavailable(problem));
        };
        let idle = lock(&self.idle).pop();
        let was_idle = idle.is_some();
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let mut line = Line {
            connection,
            was_idle,
            lines: Arc::clone(self),
            _permit: permit,
        };
        if !was_idle && self.cluster.get().is_some() {
            self.identify(&mut line).await?;
        }
        Ok(line)
    }

    /// Runs one statement that stands for itself and changes nothing when it is asked twice: on a
    /// fresh connection if the one at hand turns out to be broken, again if the server asks for that.
    pub(super) async fn run(
        self: &Arc<Self>,
        statement: impl Into<Arc<String>>,
    ) -> Result<Vec<PgRow>, Trouble> {
        self.run_if(IfBroken::AskAgain, statement).await
    }

    /// As [`run`](Self::run), with a say in what follows from a broken connection.
    pub(super) async fn run_if(
        self: &Arc<Self>,
        if_broken: IfBroken,
        statement: impl Into<Arc<String>>,
    ) -> Result<Vec<PgRow>, Trouble> {
        let statement = statement.into();
        let mut tries = Tries::new(if_broken);
        loop {
            let mut line = self.take().await?;
            match line.rows(Arc::clone(&statement)).await {
                Ok(rows) => {
                    line.give_back();
                    return Ok(rows);
                }
                Err(trouble) => tries.consider(trouble, &line).await?,
            }
        }
    }

    async fn connect(&self) -> Result<PgConnection, Trouble> {
        let connecting = PgConnection::connect_with(&self.address.options);
        match tokio::time::timeout(PATIENCE, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(Trouble::connecting(error)),
            Err(_) => Err(Trouble::Unavailable(
                "no connection: no answer for 10 s".to_owned(),
            )),
        }
    }

    /// Checks that the cluster behind a new connection is the one this store began on, and still
    /// holds what it acknowledged.
    pub(super) async fn identify(&self, line: &mut Line) -> Result<(), Trouble> {
        let statement = Call::of("identity").text(&self.all_acked()).finish()?;
        let rows = line.rows(statement).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let found: Option<String> = sqlx::Row::try_get(row, 0)?;
        if *self.cluster.get_or_init(|| found.clone()) != found {
            return Err(self.ruined(
                "store rolled back: another database cluster answers at its address; what this \
                 process burned may look free there. Check the address, then restart",
            ));
        }
        Ok(())
    }

    /// Remembers that a receipt was acknowledged.
    pub(super) fn note_acked(&self, receipt_id: &str) {
        let mut acked = lock(&self.acked);
        acked.push_back(receipt_id.to_owned());
        while acked.len() > self.address.connections_max {
            acked.pop_front();
        }
    }

    /// The newest acknowledged receipt, to be looked for by the next statement.
    pub(super) fn last_acked(&self) -> String {
        joined(lock(&self.acked).back().map(String::as_str).into_iter())
    }

    /// All that is remembered, for the slower calls.
    pub(super) fn all_acked(&self) -> String {
        joined(lock(&self.acked).iter().map(String::as_str))
    }

    fn check(&self) -> Result<(), Trouble> {
        match self.ruin.get() {
            None => Ok(()),
            Some(problem) => Err(Trouble::Unusable(problem.clone())),
        }
    }

    fn ruined(&self, problem: &str) -> Trouble {
        Trouble::Unusable(self.ruin.get_or_init(|| problem.to_owned()).clone())
    }
}

impl Line {
    /// Sends a text and collects the rows of its last statements. An error leaves the line fit for
    /// nothing but being dropped.
    pub(super) async fn rows(
        &mut self,
        text: impl Into<Arc<String>>,
    ) -> Result<Vec<PgRow>, Trouble> {
        self.rows_within(PATIENCE, text).await
    }

    /// As [`rows`](Self::rows), of work that may take longer.
    pub(super) async fn rows_within(
        &mut self,
        patience: Duration,
        text: impl Into<Arc<String>>,
    ) -> Result<Vec<PgRow>, Trouble> {
        let answer = sqlx::raw_sql(AssertSqlSafe(text.into())).fetch_all(&mut self.connection);
        match tokio::time::timeout(patience, answer).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => match Trouble::from(error) {
                Trouble::RolledBack => Err(self.lines.ruined(ROLLED_BACK)),
                trouble => Err(trouble),
            },
            Err(_) => {
                let seconds = patience.as_secs();
                Err(Trouble::Broken(format!("no answer for {seconds} s")))
            }
        }
    }

    /// Runs one statement of others. If it was refused the line is still fit for undoing it.
    pub(super) async fn execute(&mut self, statement: &Statement) -> Result<Rows, Failure> {
        let patience = PATIENCE.saturating_add(statement.deadline);
        let ran = postgres::execute(&mut self.connection, statement);
        let silent = || Failure::Broken(format!("no answer for {patience:?}"));
        let ran = tokio::time::timeout(patience, ran).await;
        ran.unwrap_or_else(|_| Err(silent()))
    }

    /// Has the server check what a statement of others left to be checked.
    pub(super) async fn check(&mut self, text: &'static str) -> Result<(), Failure> {
        let answer = sqlx::raw_sql(text).execute(&mut self.connection);
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(postgres::failed(&error)),
            Err(_) => Err(Failure::Broken("no answer for 10 s".to_owned())),
        }
    }

    /// Back to the others, the work being done.
    pub(super) fn give_back(self) {
        let Self {
            connection, lines, ..
        } = self;
        lock(&lines.idle).push(connection);
    }
}

/// How often one statement or transaction is tried before the caller hears of it.
const TRIES_MAX: u32 = 6;

/// What follows when a connection that had been lying idle breaks under a request. It says nothing
/// about the server as it is now, but the request may have been done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IfBroken {
    /// Asked again at once: it is answered the same, however often it is asked.
    AskAgain,
    /// The caller hears of it. A claim must say that it was asked before; otherwise one that was
    /// refused could be granted under the receipt of its refusal, had the cause gone meanwhile. What
    /// a person orders is not the same the second time: a resume would lift a pause that somebody
    /// set meanwhile, and a forget the generation that was applied meanwhile.
    Tell,
}

/// Counts tries, and pauses between them.
#[derive(Debug)]
pub(super) struct Tries {
    made: u32,
    if_broken: IfBroken,
}

impl Tries {
    pub(super) fn new(if_broken: IfBroken) -> Self {
        Self { made: 0, if_broken }
    }

    /// Ok if it should be tried again: it did not happen, or may be asked twice and broke on a
    /// connection that had been lying idle.
    pub(super) async fn consider(&mut self, trouble: Trouble, line: &Line) -> Result<(), Trouble> {
        self.made += 1;
        match trouble {
            Trouble::Again(_) if self.made < TRIES_MAX => {
                let pause = Duration::from_millis(1 << self.made.min(6));
                tokio::time::sleep(pause).await;
                Ok(())
            }
            Trouble::Broken(problem) if line.was_idle => {
                // Its neighbours broke with it.
                let neighbours = std::mem::take(&mut *lock(&line.lines.idle));
                drop(neighbours);
                if self.if_broken == IfBroken::AskAgain && self.made < TRIES_MAX {
                    Ok(())
                } else {
                    Err(Trouble::Broken(problem))
                }
            }
            trouble => Err(trouble),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
