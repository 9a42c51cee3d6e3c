//! Opening the file: what is refused, what is set, and how its schema grows.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, MAIN_DB, OpenFlags};

use super::log::backfill;
use super::log_files::{check_before_opening, fold_only_on_demand};
use super::place;
use super::trouble::{ACCESS, in_words};

/// `oprs`: marks the file as ours, so that another program's database is never touched.
const APPLICATION_ID: i64 = 0x6f70_7273;

/// Below this `SQLite` can corrupt a write-ahead log that several processes use.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// Every schema there ever was, oldest first; never edited, only added to.
const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/sqlite/0001_first.sql"),
    include_str!("../../migrations/sqlite/0002_askers.sql"),
    include_str!("../../migrations/sqlite/0003_notes.sql"),
    include_str!("../../migrations/sqlite/0004_log.sql"),
    include_str!("../../migrations/sqlite/0005_log_sealed.sql"),
    include_str!("../../migrations/sqlite/0006_retention.sql"),
    include_str!("../../migrations/sqlite/0007_itself.sql"),
    include_str!("../../migrations/sqlite/0008_shelves.sql"),
    include_str!("../../migrations/sqlite/0009_short_shelves.sql"),
];

/// The schema from which on every receipt has a place in a log.
const LOG_SCHEMA: usize = 4;

/// How long to wait for another process's transaction: they take milliseconds, so this means that
/// one is stuck.
const BUSY_MAX: Duration = Duration::from_secs(10);

/// The pause between two tries for the write lock. `SQLite`'s own handler backs off to 100 ms, which
/// makes processes that share a file wait for nothing.
const BUSY_PAUSE: Duration = Duration::from_micros(500);

/// Opens the file for reading and writing, made and migrated as needed; the problem in words if it
/// cannot be trusted.
pub(super) fn open(path: &Path) -> Result<Connection, String> {
    check_library()?;
    place::prepare(path)?;
    check_before_opening(path)?;
    let mut connection = open_again(path)?;
    migrate(&mut connection)?;
    Ok(connection)
}

/// Opens a file for writing that this process has open already, and so has looked at.
pub(super) fn open_again(path: &Path) -> Result<Connection, String> {
    let connection = connect(path).map_err(|e| in_words(&e))?;
    // Where it may not write, SQLite reads, and says so at the first action.
    if connection.is_readonly(MAIN_DB).map_err(|e| in_words(&e))? {
        return Err(format!("it is read-only; {ACCESS}"));
    }
    check_owner(&connection)?;
    set_durable(&connection)?;
    Ok(connection)
}

/// Opens the file for looking only.
pub(super) fn open_to_look(path: &Path) -> Result<Connection, String> {
    let look = || {
        let connection = connect(path)?;
        fold_only_on_demand(&connection)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    };
    look().map_err(|error: rusqlite::Error| in_words(&error))
}

/// The tables that are the store's own, as its migrations make them.
pub(super) fn own_tables() -> Result<Vec<String>, String> {
    let scratch = Connection::open_in_memory().map_err(|e| in_words(&e))?;
    for script in MIGRATIONS {
        scratch.execute_batch(script).map_err(|e| in_words(&e))?;
    }
    let mut names = scratch
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")
        .map_err(|e| in_words(&e))?;
    let names = names
        .query_map([], |row| row.get(0))
        .map_err(|e| in_words(&e))?;
    names.collect::<Result<_, _>>().map_err(|e| in_words(&e))
}

fn check_library() -> Result<(), String> {
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        return Err(format!(
            "SQLite {} can corrupt a shared file; 3.51.3 or later is needed",
            rusqlite::version()
        ));
    }
    Ok(())
}

pub(super) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(literal(path), flags)?;
    connection.busy_handler(Some(be_patient))?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// The path as `SQLite` must be told it: what begins with `file:` would be read as an address, and so
/// another file opened than the one that was looked at and whose neighbours are watched.
fn literal(path: &Path) -> PathBuf {
    if path.is_relative() {
        Path::new(".").join(path)
    } else {
        path.to_owned()
    }
}

fn be_patient(tries: i32) -> bool {
    std::thread::sleep(BUSY_PAUSE);
    u128::try_from(tries).unwrap_or(0) * BUSY_PAUSE.as_micros() < BUSY_MAX.as_micros()
}

fn pragma(connection: &Connection, name: &str) -> Result<i64, String> {
    connection
        .pragma_query_value(None, name, |row| row.get(0))
        .map_err(|e| in_words(&e))
}

fn check_owner(connection: &Connection) -> Result<(), String> {
    // One look at all three: another process may be making the file this very moment.
    let moment = connection
        .unchecked_transaction()
        .map_err(|e| in_words(&e))?;
    let tables: i64 = moment
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(|e| in_words(&e))?;
    let (application, version) = (
        pragma(&moment, "application_id")?,
        pragma(&moment, "user_version")?,
    );
    moment.finish().map_err(|e| in_words(&e))?;
    if application != APPLICATION_ID && (application != 0 || version != 0 || tables != 0) {
        return Err("it is another program's database; choose another path".to_owned());
    }
    let known = MIGRATIONS.len();
    if usize::try_from(version).is_ok_and(|version| version > known) {
        return Err(format!(
            "a newer version wrote it (schema {version}, this one knows {known}); upgrade operators"
        ));
    }
    Ok(())
}

/// Memory for pages that were read, at most. Enough for what a commit touches: the system keeps the
/// file in memory as well, and a page of a larger cache is one that the processor has to fetch, which
/// made duplicates up to a quarter slower with eight times as much.
const CACHE_KIB: i64 = 4 * 1024;

fn set_durable(connection: &Connection) -> Result<(), String> {
    let mode = keep_a_log(connection).map_err(|e| in_words(&e))?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(format!(
            "its journal mode stays `{mode}`; a write-ahead log cannot be used there"
        ));
    }
    connection
        .pragma_update(None, "synchronous", "FULL")
        .map_err(|e| in_words(&e))?;
    let level = pragma(connection, "synchronous")?;
    if level < 2 {
        return Err(format!(
            "`synchronous` stays {level}; acknowledged writes could be lost"
        ));
    }
    fold_only_on_demand(connection)
        .and_then(|()| connection.pragma_update(None, "cache_size", -CACHE_KIB))
        .and_then(|()| connection.pragma_update(None, "trusted_schema", false))
        .map_err(|e| in_words(&e))
}

/// Switches to a write-ahead log and says what the journal mode is now. `SQLite` does not wait for
/// the lock of this switch, whatever handler is set, so processes that make a file together would
/// refuse each other; the patience is here instead.
fn keep_a_log(connection: &Connection) -> rusqlite::Result<String> {
    connection.busy_handler(None)?;
    let mut tries = 0;
    let mode = loop {
        match connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && be_patient(tries) =>
            {
                tries += 1;
            }
            done => break done,
        }
    };
    connection.busy_handler(Some(be_patient))?;
    mode
}

fn migrate(connection: &mut Connection) -> Result<(), String> {
    if pragma(connection, "user_version")? == i64::try_from(MIGRATIONS.len()).unwrap_or(0) {
        return Ok(());
    }
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(|e| in_words(&e))?;
    // Read again under the lock: another process may have done it meanwhile.
    let done = usize::try_from(pragma(&transaction, "user_version")?).unwrap_or(usize::MAX);
    for (number, script) in MIGRATIONS.iter().enumerate().skip(done) {
        transaction
            .execute_batch(script)
            .map_err(|error| format!("migration {}: {}", number + 1, in_words(&error)))?;
        if number + 1 == LOG_SCHEMA {
            backfill(&transaction).map_err(|e| in_words(&e))?;
        }
        transaction
            .pragma_update(
                None,
                "user_version",
                i64::try_from(number + 1).unwrap_or(i64::MAX),
            )
            .map_err(|e| in_words(&e))?;
    }
    transaction
        .pragma_update(None, "application_id", APPLICATION_ID)
        .map_err(|e| in_words(&e))?;
    transaction.commit().map_err(|e| in_words(&e))
}
