//! Opening the file: what is refused, what is set, and how its schema grows.

use std::fs::{self, DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use nix::sys::statfs;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::log::backfill;

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

/// File systems that several machines may share, by the numbers that Linux has for them: `SQLite`
/// trusts their locks no further than one machine, and its write-ahead log needs memory that all
/// share. FUSE (0x65735546) is not among them, because it says nothing of what is behind it.
const SHARED_FILE_SYSTEMS: &[(i64, &str)] = &[
    (0x6969, "NFS"),
    // The first is the old `smbfs`; `cifs` has two numbers of its own, by version.
    (0x517B, "SMB"),
    (0xFF53_4D42, "SMB"),
    (0xFE53_4D42, "SMB"),
    (0x0102_1997, "9p"),
    (0x00C3_6400, "Ceph"),
    // The two implementations have a number each.
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0BD0_0BD0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
];

/// Opens the file for reading and writing, made and migrated as needed; the problem in words if it
/// cannot be trusted.
pub(super) fn open(path: &Path) -> Result<Connection, String> {
    prepare_file(path)?;
    let mut connection = connect(path)?;
    check_owner(&connection)?;
    set_durable(&connection)?;
    migrate(&mut connection)?;
    Ok(connection)
}

/// Opens the file for looking only.
pub(super) fn open_to_look(path: &Path) -> Result<Connection, String> {
    let connection = connect(path)?;
    connection
        .pragma_update(None, "query_only", true)
        .map_err(in_words)?;
    Ok(connection)
}

/// The tables that are the store's own, as its migrations make them.
pub(super) fn own_tables() -> Result<Vec<String>, String> {
    let scratch = Connection::open_in_memory().map_err(in_words)?;
    for script in MIGRATIONS {
        scratch.execute_batch(script).map_err(in_words)?;
    }
    let mut names = scratch
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")
        .map_err(in_words)?;
    let names = names.query_map([], |row| row.get(0)).map_err(in_words)?;
    names.collect::<Result<_, _>>().map_err(in_words)
}

fn prepare_file(path: &Path) -> Result<(), String> {
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        return Err(format!(
            "SQLite {} can corrupt a shared file; 3.51.3 or later is needed",
            rusqlite::version()
        ));
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.exists()) {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| format!("its folder cannot be made: {error}"))?;
    }
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => return Err("it is not a regular file".to_owned()),
        Ok(_) => {}
        Err(_) => {
            // Made here, not by SQLite, so that it is never readable by others, not for a moment.
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path)
                .map(drop)
                .or_else(|error| match error.kind() {
                    std::io::ErrorKind::AlreadyExists => Ok(()),
                    _ => Err(format!("it cannot be made: {error}")),
                })?;
        }
    }
    let system =
        statfs::statfs(path).map_err(|error| format!("its disk cannot be asked: {error}"))?;
    match shared_file_system(system.filesystem_type().0) {
        Some(name) => Err(format!(
            "it is on {name}, which several machines may share and whose locks cannot be trusted; \
             keep it on a local disk"
        )),
        None => Ok(()),
    }
}

/// The name of a file system that is refused, by its number.
fn shared_file_system(number: impl TryInto<i64>) -> Option<&'static str> {
    // Where the number is a signed word of 32 bits, the larger ones come out negative.
    let number = number.try_into().ok()? & 0xFFFF_FFFF;
    let mut known = SHARED_FILE_SYSTEMS.iter();
    known
        .find(|(kind, _)| *kind == number)
        .map(|(_, name)| *name)
}

fn connect(path: &Path) -> Result<Connection, String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(in_words)?;
    connection
        .busy_handler(Some(be_patient))
        .map_err(in_words)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

fn be_patient(tries: i32) -> bool {
    std::thread::sleep(BUSY_PAUSE);
    u128::try_from(tries).unwrap_or(0) * BUSY_PAUSE.as_micros() < BUSY_MAX.as_micros()
}

fn pragma(connection: &Connection, name: &str) -> Result<i64, String> {
    connection
        .pragma_query_value(None, name, |row| row.get(0))
        .map_err(in_words)
}

fn check_owner(connection: &Connection) -> Result<(), String> {
    // One look at all three: another process may be making the file this very moment.
    let moment = connection.unchecked_transaction().map_err(in_words)?;
    let tables: i64 = moment
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(in_words)?;
    let (application, version) = (
        pragma(&moment, "application_id")?,
        pragma(&moment, "user_version")?,
    );
    moment.finish().map_err(in_words)?;
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

/// Pages in the log before it is folded back into the file (16 MiB): a page written often in between
/// is copied once.
const LOG_PAGES: i64 = 4_096;
/// Memory for pages that were read, at most. Enough for what a commit touches: the system keeps the
/// file in memory as well, and a page of a larger cache is one that the processor has to fetch, which
/// made duplicates up to a quarter slower with eight times as much.
const CACHE_KIB: i64 = 4 * 1024;

fn set_durable(connection: &Connection) -> Result<(), String> {
    let mode = keep_a_log(connection).map_err(in_words)?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(format!(
            "its journal mode stays `{mode}`; a write-ahead log cannot be used there"
        ));
    }
    connection
        .pragma_update(None, "synchronous", "FULL")
        .map_err(in_words)?;
    let level = pragma(connection, "synchronous")?;
    if level < 2 {
        return Err(format!(
            "`synchronous` stays {level}; acknowledged writes could be lost"
        ));
    }
    for (name, value) in [
        ("wal_autocheckpoint", LOG_PAGES),
        ("cache_size", -CACHE_KIB),
    ] {
        connection
            .pragma_update(None, name, value)
            .map_err(in_words)?;
    }
    connection
        .pragma_update(None, "trusted_schema", false)
        .map_err(in_words)
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
        .map_err(in_words)?;
    // Read again under the lock: another process may have done it meanwhile.
    let done = usize::try_from(pragma(&transaction, "user_version")?).unwrap_or(usize::MAX);
    for (number, script) in MIGRATIONS.iter().enumerate().skip(done) {
        transaction
            .execute_batch(script)
            .map_err(|error| format!("migration {}: {}", number + 1, in_words(error)))?;
        if number + 1 == LOG_SCHEMA {
            backfill(&transaction).map_err(in_words)?;
        }
        transaction
            .pragma_update(
                None,
                "user_version",
                i64::try_from(number + 1).unwrap_or(i64::MAX),
            )
            .map_err(in_words)?;
    }
    transaction
        .pragma_update(None, "application_id", APPLICATION_ID)
        .map_err(in_words)?;
    transaction.commit().map_err(in_words)
}

/// What `SQLite` said, with what to do where that is known.
#[expect(
    clippy::needless_pass_by_value,
    reason = "it is what `map_err` hands over, everywhere in this file"
)]
pub(super) fn in_words(error: rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            "it is not a SQLite file, or is damaged; restore it from a backup, or move it away to \
             start anew (which forgets every key)"
                .to_owned()
        }
        Some(ErrorCode::DatabaseCorrupt) => format!(
            "it is damaged ({error}); restore it from a backup, or save what can be read with \
             `sqlite3 FILE .recover`"
        ),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cifs` was let through: it does not report the number that is named after SMB. The numbers are
    /// those of Linux's `magic.h` and of the file systems' own headers.
    #[test]
    fn file_systems_that_machines_share_are_known_by_their_numbers() {
        for (number, name) in [
            (0x6969_i64, "NFS"),
            (0x517B, "SMB"),
            (0xFF53_4D42, "SMB"),
            (0xFE53_4D42, "SMB"),
            (0x0102_1997, "9p"),
            (0x00C3_6400, "Ceph"),
            (0x5346_414F, "AFS"),
            (0x6B41_4653, "AFS"),
            (0x7375_7245, "Coda"),
            (0x0BD0_0BD0, "Lustre"),
            (0x0116_1970, "GFS2"),
            (0x7461_636F, "OCFS2"),
        ] {
            assert_eq!(shared_file_system(number), Some(name), "{number:#x}");
        }
        assert_eq!(shared_file_system(-11_317_950_i32), Some("SMB"));
        for (number, name) in [
            (0xEF53_i64, "ext4"),
            (0x5846_5342, "XFS"),
            (0x9123_683E, "btrfs"),
            (0x2FC1_2FC1, "ZFS"),
            (0x0102_1994, "tmpfs"),
            (0x794C_7630, "overlayfs"),
            (0x6573_5546, "FUSE"),
        ] {
            assert_eq!(shared_file_system(number), None, "{name}");
        }
    }
}
