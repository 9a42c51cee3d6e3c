//! The two files that `SQLite` keeps beside the store's: its write-ahead log (`-wal`) and the index of
//! that log in shared memory (`-shm`). When a file may be opened without them, and when the log may be
//! folded back into the file.
//!
//! INVARIANT (one-log): all processes that have the file open use the same log by the same index. `SQLite`
//! finds both by name at each opening and never looks again: where one was removed meanwhile, the next
//! process makes another, the two write over each other, and the last of them to close folds what *it*
//! knows of the log into the file and removes the log, whatever else is in it. So a file that is open
//! elsewhere is not opened without its two, and nothing is folded, while running or at the end, but a log
//! that still is at its place.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};

/// The ends of their names: the log's, then its index's.
pub(super) const LOG: &str = "-wal";
pub(super) const INDEX: &str = "-shm";

/// Pages in the log before it is folded back into the file (16 MiB): a page written often in between
/// is copied once.
const LOG_PAGES: i64 = 4_096;

/// How long a file that is open elsewhere may be without its two. A process makes them within
/// milliseconds of opening the file, and removes them as it closes it, so this means that they were
/// taken away.
const WITHOUT_MAX: Duration = Duration::from_secs(2);
const WITHOUT_PAUSE: Duration = Duration::from_millis(2);

/// `store.db` → `store.db-wal`.
pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// Refuses a file that another process has open and whose log or index is not at its place.
pub(super) fn check_before_opening(path: &Path) -> Result<(), String> {
    // SQLite keeps them beside the file itself, whatever links lead there.
    let file = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let paths = [beside(&file, LOG), beside(&file, INDEX)];
    let mut waited = Duration::ZERO;
    loop {
        let Some(missing) = paths.iter().find(|path| !path.exists()) else {
            return Ok(());
        };
        if !is_open_elsewhere(path) {
            return Ok(());
        }
        if waited >= WITHOUT_MAX {
            return Err(removed(missing, &file));
        }
        std::thread::sleep(WITHOUT_PAUSE);
        waited += WITHOUT_PAUSE;
    }
}

fn removed(missing: &Path, file: &Path) -> String {
    let name = file.file_name().unwrap_or(OsStr::new("it"));
    format!(
        "`{}` was removed while another process has the file open, and what is written from here on \
         would overwrite what that process has written; end every process that uses the file \
         (`fuser {}` lists them; a run that ends by itself or by Ctrl-C puts its log back into the \
         file where it can), then start again",
        missing.display(),
        name.display()
    )
}

/// Whether any other connection has the file open, in this process or in another one. Not asked of the
/// locks directly: to open and close the file would take away those that this process has.
fn is_open_elsewhere(path: &Path) -> bool {
    let alone = || -> rusqlite::Result<()> {
        let connection = super::open::connect(path)?;
        connection.busy_handler(None)?;
        // In this mode SQLite makes no index: it opens the log only if it has the file for itself.
        connection.pragma_update(None, "locking_mode", "exclusive")?;
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
    };
    // Every other trouble is told, by name, when the file is opened.
    alone().is_err_and(|error| {
        matches!(
            error.sqlite_error_code(),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
        )
    })
}

/// Keeps `SQLite` from folding by itself, be it after a commit or as the connection is closed.
pub(super) fn fold_only_on_demand(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)
}

/// Folds the log back once it is long. The caller has just seen that it is at its place.
pub(super) fn fold_if_long(connection: &Connection) -> rusqlite::Result<()> {
    let ask = |statement: &str| {
        let mut statement = connection.prepare_cached(statement)?;
        statement.query_row([], |row| row.get::<_, i64>(1))
    };
    if ask("PRAGMA wal_checkpoint(noop)")? >= LOG_PAGES {
        // As much of it as nobody reads; the rest next time.
        ask("PRAGMA wal_checkpoint(passive)")?;
    }
    Ok(())
}

/// Closes a connection; the last to the file folds the log back and removes it with its index. The
/// caller has just seen that it is at its place.
pub(super) fn close_and_fold(connection: Connection) {
    let fold = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false);
    // What is not folded now stays in the log, where the next to open the file finds it.
    drop(fold);
    drop(connection);
}
