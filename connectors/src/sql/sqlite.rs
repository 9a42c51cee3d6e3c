//! Statements in a `SQLite` file: on a thread of their own, in one transaction each.
//!
//! Owns the file's opening and the transaction. It must not know tools.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::types::{ToSqlOutput, Value as Held, ValueRef};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use serde_json::{Map, Value, json};

use crate::sql::{Done, Fault, ROWS_MAX, Work};

/// Runs one piece of work. A caller that leaves before the commit leaves nothing behind.
pub(crate) async fn run(path: PathBuf, work: Work) -> Result<Done, Fault> {
    let gone = Arc::new(AtomicBool::new(false));
    let leaving = Leaving(Arc::clone(&gone));
    let done = tokio::task::spawn_blocking(move || blocking(&path, &work, &gone)).await;
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

fn blocking(path: &Path, work: &Work, gone: &AtomicBool) -> Result<Done, Fault> {
    // Never made here: a typing error in a path must not become an empty database.
    let access = if work.reads {
        OpenFlags::SQLITE_OPEN_READ_ONLY
    } else {
        OpenFlags::SQLITE_OPEN_READ_WRITE
    };
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut file = Connection::open_with_flags(path, flags).map_err(|error| nothing(&error))?;
    file.busy_timeout(work.deadline / 2)
        .and_then(|()| file.pragma_update(None, "foreign_keys", "ON"))
        .map_err(|error| nothing(&error))?;
    let behavior = if work.reads {
        TransactionBehavior::Deferred
    } else {
        TransactionBehavior::Immediate
    };
    let transaction = file
        .transaction_with_behavior(behavior)
        .map_err(|error| nothing(&error))?;
    let done = execute(&transaction, work)?;
    if work.reads {
        // Dropped, and so rolled back: there is nothing to keep.
        return Ok(done);
    }
    if gone.load(Ordering::SeqCst) {
        return Err(Fault::Nothing("nobody waited for it any more".to_owned()));
    }
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

fn execute(transaction: &rusqlite::Transaction<'_>, work: &Work) -> Result<Done, Fault> {
    let mut prepared = transaction
        .prepare(&work.text)
        .map_err(|error| nothing(&error))?;
    let values = work.values.iter().map(Bound);
    let values = rusqlite::params_from_iter(values);
    let done = if work.returns {
        let names: Vec<String> = prepared
            .column_names()
            .into_iter()
            .map(str::to_owned)
            .collect();
        let mut rows = prepared.query(values).map_err(|error| nothing(&error))?;
        let mut kept = Vec::new();
        while let Some(row) = rows.next().map_err(|error| nothing(&error))? {
            if kept.len() == ROWS_MAX {
                return Err(Fault::Nothing(format!("more than {ROWS_MAX} rows")));
            }
            kept.push(shown(row, &names).map_err(|error| nothing(&error))?);
        }
        let affected = u64::try_from(kept.len()).unwrap_or(u64::MAX);
        Done {
            affected,
            rows: kept,
        }
    } else {
        let affected = prepared.execute(values).map_err(|error| nothing(&error))?;
        Done {
            affected: u64::try_from(affected).unwrap_or(u64::MAX),
            rows: Vec::new(),
        }
    };
    match work.expect_rows {
        Some(expected) if expected != done.affected => Err(Fault::Nothing(format!(
            "{} rows, but `expect_rows` is {expected}; rolled back",
            done.affected
        ))),
        _ => Ok(done),
    }
}

/// A JSON value as `SQLite` keeps it; arrays and objects as their text.
struct Bound<'a>(&'a Value);

impl rusqlite::ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let held = match self.0 {
            Value::Null => Held::Null,
            Value::Bool(flag) => Held::Integer(i64::from(*flag)),
            Value::Number(number) => match number.as_i64() {
                Some(whole) => Held::Integer(whole),
                None => Held::Real(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => return Ok(ToSqlOutput::Borrowed(ValueRef::from(text.as_str()))),
            Value::Array(_) | Value::Object(_) => Held::Text(self.0.to_string()),
        };
        Ok(ToSqlOutput::Owned(held))
    }
}

fn shown(row: &rusqlite::Row<'_>, names: &[String]) -> rusqlite::Result<Value> {
    let mut fields = Map::new();
    for (at, name) in names.iter().enumerate() {
        let value = match row.get_ref(at)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => json!(number),
            ValueRef::Real(number) => json!(number),
            ValueRef::Text(text) => json!(String::from_utf8_lossy(text)),
            ValueRef::Blob(bytes) => json!(operators_kernel::json::hex(bytes)),
        };
        fields.insert(name.clone(), value);
    }
    Ok(Value::Object(fields))
}
