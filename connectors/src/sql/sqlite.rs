//! Statements in a `SQLite` file: on a thread of their own, in one transaction each.
//!
//! Owns the file's opening and the transaction. It must not know tools.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use operators_kernel::Rows;
use operators_sql::{Failure, sqlite::execute};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::sql::{Fault, Job};

/// Runs one piece of work. A caller that leaves before the commit leaves nothing behind.
pub(crate) async fn run(path: PathBuf, job: Job) -> Result<Rows, Fault> {
    let gone = Arc::new(AtomicBool::new(false));
    let leaving = Leaving(Arc::clone(&gone));
    let done = tokio::task::spawn_blocking(move || blocking(&path, &job, &gone)).await;
    drop(leaving);
    // A panic half-way, or a runtime that is going away.
    done.unwrap_or_else(|error| Err(Fault::Unsure(error.to_string())))
}

/// Tells the thread that nobody waits any more.
struct Leaving(Arc<AtomicBool>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn nothing(error: &rusqlite::Error) -> Fault {
    Fault::Nothing(error.to_string())
}

fn blocking(path: &Path, job: &Job, gone: &AtomicBool) -> Result<Rows, Fault> {
    // Never made here: a typing error in a path must not become an empty database.
    let access = if job.statement.reads {
        OpenFlags::SQLITE_OPEN_READ_ONLY
    } else {
        OpenFlags::SQLITE_OPEN_READ_WRITE
    };
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut file = Connection::open_with_flags(path, flags).map_err(|error| nothing(&error))?;
    file.busy_timeout(job.statement.deadline / 2)
        .and_then(|()| file.pragma_update(None, "foreign_keys", "ON"))
        .map_err(|error| nothing(&error))?;
    let behavior = if job.statement.reads {
        TransactionBehavior::Deferred
    } else {
        TransactionBehavior::Immediate
    };
    let transaction = file
        .transaction_with_behavior(behavior)
        .map_err(|error| nothing(&error))?;
    job.may_run()?;
    let ran = execute(&transaction, &job.statement).map_err(Failure::into_words);
    let ran = ran.and_then(|rows| job.expected(rows));
    let done = ran.map_err(Fault::Nothing)?;
    if job.statement.reads {
        // Dropped, and so rolled back: there is nothing to keep.
        return Ok(done);
    }
    if gone.load(Ordering::SeqCst) {
        return Err(Fault::Nothing("nobody waited for it any more".to_owned()));
    }
    // The statement may have taken long, or the process stood still: it is undone here.
    job.may_run()?;
    match transaction.commit() {
        Ok(()) => Ok(done),
        Err(error) => match error.sqlite_error_code() {
            // The transaction is still whole then, and is rolled back as it is dropped.
            Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::ConstraintViolation) => {
                Err(nothing(&error))
            }
            _ => Err(Fault::Unsure(error.to_string())),
        },
    }
}
