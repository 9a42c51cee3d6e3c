//! Where statements of others run: a connection of its own to the same file, in one transaction with
//! the burn and the receipt.
//!
//! Owns what such a statement may not do, and how long it may take. It has its own connection, so
//! that what guards a statement never touches the statements of the store, and its own transaction,
//! so that what a statement does to a transaction touches nobody else's settlement.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use operators_kernel::{
    Clock, Performance, Performed, SettledOutcome, Settlement, Statement, StoreError, TenantId,
};
use operators_sql::{Failure, sqlite::execute};
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::{Connection, ErrorCode};

use super::describe;
use super::open;
use super::rows::{Around, Rows};
use super::trouble::{Trouble, sort, sorted};
use super::witness::Witness;
use crate::SystemClock;
use crate::book::{self, Staged};

/// How many steps of `SQLite`'s machine lie between two looks at the clock; well below a millisecond.
const STEPS_BETWEEN_LOOKS: i32 = 10_000;

/// The connection, and whether a statement of others is on it.
#[derive(Debug)]
pub(super) struct Stage {
    connection: Connection,
    is_guarded: Arc<AtomicBool>,
}

/// What one transaction came to.
enum Try {
    /// It was committed, or there was nothing to write.
    Done(Box<Performed>),
    /// The statement, or the database as it committed, ended all of it: nothing happened.
    Undone(String),
}

/// What runs in that transaction.
#[derive(Clone, Copy)]
enum Part<'a> {
    /// The statement, and what follows from it.
    Whole,
    /// Only what follows: it was tried, and this came of it.
    Aftermath(&'a str),
}

impl Stage {
    /// Opens the file once more.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let unusable = |problem| StoreError::Unusable {
            store: describe(path),
            problem,
        };
        let connection = open::open_again(path).map_err(unusable)?;
        let own_tables = open::own_tables().map_err(unusable)?;
        let is_guarded = Arc::new(AtomicBool::new(false));
        let guard = Arc::clone(&is_guarded);
        let guarded = move |asked: AuthContext<'_>| {
            if !guard.load(Ordering::SeqCst) || is_allowed(&asked.action, &own_tables) {
                Authorization::Allow
            } else {
                Authorization::Deny
            }
        };
        connection
            .pragma_update(None, "foreign_keys", true)
            .and_then(|()| connection.authorizer(Some(guarded)))
            .map_err(|error| sorted(path, &error).told)?;
        Ok(Self {
            connection,
            is_guarded,
        })
    }

    /// Runs the statement, settles by what it came to, and commits both; or finds that it was done.
    pub(super) fn perform(
        &self,
        path: &Path,
        around: Around<'_>,
        witness: &mut Witness,
        tenant: &TenantId,
        performance: &Performance,
    ) -> Result<Performed, Trouble> {
        let mut part = Part::Whole;
        let mut undone = String::new();
        for _ in 0..2 {
            match self.in_transaction(path, around, witness, tenant, performance, part)? {
                Try::Done(performed) => return Ok(*performed),
                Try::Undone(error) => undone = error,
            }
            part = Part::Aftermath(&undone);
        }
        let unavailable = StoreError::Unavailable {
            store: describe(path),
            problem: undone,
        };
        Err(unavailable.into())
    }

    fn in_transaction(
        &self,
        path: &Path,
        around: Around<'_>,
        witness: &mut Witness,
        tenant: &TenantId,
        performance: &Performance,
        part: Part<'_>,
    ) -> Result<Try, Trouble> {
        let broken = |error: rusqlite::Error| sorted(path, &error);
        self.execute("BEGIN IMMEDIATE").map_err(broken)?;
        let open = Open(self);
        witness
            .check(&self.connection)
            .map_err(|fall| Trouble::of_fall(path, fall))?;
        let mut rows = Rows::new(&self.connection, around);
        let staged = book::stage(&mut rows, tenant, performance);
        let settlement = match staged.map_err(|error| sort(path, error))? {
            Staged::Told(performed) => return Ok(Try::Done(performed)),
            Staged::Refuse(error) => performance.not_run(error),
            Staged::Run => match part {
                Part::Whole => self.run(path, performance)?,
                Part::Aftermath(error) => performance.settlement(Err(error.to_owned())),
            },
        };
        if self.connection.is_autocommit() {
            // The statement ended the transaction: a trigger of its table said so, or it was
            // interrupted.
            return Ok(Try::Undone(said(&settlement)));
        }
        let answer = book::settle(&mut rows, tenant, &settlement);
        let answer = answer.map_err(|error| sort(path, error))?;
        rows.write_logs().map_err(broken)?;
        match self.execute("COMMIT") {
            Ok(()) => {
                witness.remember(rows.into_newest());
                let outcome = settlement.outcome;
                Ok(Try::Done(Box::new(Performed { outcome, answer })))
            }
            // What was left to be checked until now, a deferred foreign key, does not hold.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                drop(open);
                Ok(Try::Undone(error.to_string()))
            }
            Err(error) => Err(broken(error)),
        }
    }

    /// The settlement that follows from the statement, which is undone unless it says `Applied`.
    fn run(&self, path: &Path, performance: &Performance) -> Result<Settlement, Trouble> {
        let broken = |error: rusqlite::Error| sorted(path, &error);
        self.execute("SAVEPOINT work").map_err(broken)?;
        let ran = match self.guarded(performance.work.statement()) {
            Err(Failure::Broken(said)) => return Err(Trouble::of_damage(path, said)),
            ran => ran.map_err(Failure::into_words),
        };
        let settlement = performance.settlement(ran);
        if self.connection.is_autocommit() {
            return Ok(settlement);
        }
        if !matches!(settlement.outcome, SettledOutcome::Applied(_)) {
            self.execute("ROLLBACK TO work").map_err(broken)?;
        }
        self.execute("RELEASE work").map_err(broken)?;
        Ok(settlement)
    }

    fn guarded(&self, statement: &Statement) -> Result<operators_kernel::Rows, Failure> {
        let (clock, deadline) = (SystemClock::new(), statement.deadline);
        let refused = |error: rusqlite::Error| Failure::Refused(error.to_string());
        let is_late = move || clock.monotonic() >= deadline;
        self.connection
            .progress_handler(STEPS_BETWEEN_LOOKS, Some(is_late))
            .map_err(refused)?;
        self.is_guarded.store(true, Ordering::SeqCst);
        let ran = execute(&self.connection, statement);
        self.is_guarded.store(false, Ordering::SeqCst);
        self.connection
            .progress_handler(0, None::<fn() -> bool>)
            .map_err(refused)?;
        match ran {
            // Not of a failing disk, which is slow as well.
            Err(Failure::Refused(_)) if clock.monotonic() >= deadline => Err(Failure::Refused(
                format!("it did not end within {deadline:?}"),
            )),
            ran => ran,
        }
    }

    fn execute(&self, statement: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(statement)?.execute([])?;
        Ok(())
    }
}

/// A transaction, which is rolled back unless it was committed.
struct Open<'a>(&'a Stage);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.0.connection.is_autocommit() {
            // It fails only if there is none, which is as good.
            drop(self.0.execute("ROLLBACK"));
        }
    }
}

fn said(settlement: &Settlement) -> String {
    match &settlement.outcome {
        SettledOutcome::Applied(_) => "it ended the transaction it ran in".to_owned(),
        SettledOutcome::NotApplied { error } | SettledOutcome::Unknown { error } => error.clone(),
    }
}

/// What a statement of others may do: read and change rows of tables that are not the store's.
fn is_allowed(action: &AuthAction<'_>, own_tables: &[String]) -> bool {
    let is_foreign = |table: &str| !own_tables.iter().any(|own| own.eq_ignore_ascii_case(table));
    match action {
        AuthAction::Select | AuthAction::Recursive => true,
        AuthAction::Function { function_name } => *function_name != "load_extension",
        AuthAction::Read { table_name, .. }
        | AuthAction::Insert { table_name }
        | AuthAction::Update { table_name, .. }
        | AuthAction::Delete { table_name } => is_foreign(table_name),
        _ => false,
    }
}
