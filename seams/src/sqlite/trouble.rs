//! What an error means: what its caller hears, and whether the file may be written any more.

use std::io;
use std::path::Path;

use operators_kernel::StoreError;
use rusqlite::ErrorCode;

use super::describe;
use super::records::RowError;
use super::witness::Fall;
use crate::book::BookError;

/// An error, sorted.
#[derive(Debug)]
pub(super) struct Trouble {
    /// What the caller hears.
    pub(super) told: StoreError,
    /// What is wrong with the disk or the file, if anything is. Nothing is written after that: what
    /// is there is not known, or not what it was.
    pub(super) damage: Option<String>,
}

impl Trouble {
    /// A statement of others was told this of the disk or the file.
    pub(super) fn of_damage(path: &Path, said: String) -> Self {
        Self {
            damage: Some(without_more(&said)),
            told: StoreError::Unusable {
                store: describe(path),
                problem: said,
            },
        }
    }

    /// The store is not what it was, or could not be asked.
    pub(super) fn of_fall(path: &Path, fall: Fall) -> Self {
        match fall {
            Fall::Sql(error) => sorted(path, &error),
            Fall::Closed(problem) => Self::from(StoreError::Unavailable {
                store: describe(path),
                problem,
            }),
            Fall::RolledBack(problem) => Self {
                damage: Some(problem.clone()),
                told: StoreError::Unusable {
                    store: describe(path),
                    problem,
                },
            },
        }
    }
}

impl From<StoreError> for Trouble {
    fn from(told: StoreError) -> Self {
        Self { told, damage: None }
    }
}

fn without_more(said: &str) -> String {
    format!(
        "the disk or the file failed ({said}); nothing more is written: see to the disk (a full one \
         may say so too), then restart"
    )
}

fn damage(error: &rusqlite::Error) -> Option<String> {
    match error.sqlite_error_code()? {
        ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
            Some(without_more(&error.to_string()))
        }
        _ => None,
    }
}

/// Sorts an error of a call.
pub(super) fn sort(path: &Path, error: BookError<RowError>) -> Trouble {
    let unusable = |problem| StoreError::Unusable {
        store: describe(path),
        problem,
    };
    let told = match error {
        BookError::Records(RowError::Sql(error)) => return sorted(path, &error),
        BookError::SessionDead(session) => StoreError::SessionDead {
            store: describe(path),
            session,
        },
        BookError::KeyMissing(key) => unusable(format!(
            "key `{key}` was claimed but its row is gone; rows were deleted by hand: restore the file \
             from a backup"
        )),
        BookError::Note(error) => unusable(error.to_string()),
        BookError::Records(RowError::Alive(error)) => StoreError::Unavailable {
            store: describe(path),
            problem: no_lock_file(path, &error),
        },
        BookError::Records(RowError::Meaning { what, problem }) => {
            unusable(unreadable(&what, &problem))
        }
    };
    told.into()
}

/// Busy and full pass; a damaged or foreign file does not.
pub(super) fn sorted(path: &Path, error: &rusqlite::Error) -> Trouble {
    let (store, problem) = (describe(path), in_words(error));
    let told = match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::DiskFull
            | ErrorCode::OutOfMemory,
        ) => StoreError::Unavailable { store, problem },
        _ => StoreError::Unusable { store, problem },
    };
    Trouble {
        told,
        damage: damage(error),
    }
}

/// What whoever runs this must be let do.
pub(super) const ACCESS: &str = "whoever runs operators must be able to write the file, the `-wal`, \
    `-shm` and `-alive` beside it and their folder, and the disk must not be mounted read-only";

/// What `SQLite` said, with what to do where that is known.
pub(super) fn in_words(error: &rusqlite::Error) -> String {
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
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::FileLockingProtocolFailed,
        ) => "another process has held its write lock for 10 s; wake it, or end it".to_owned(),
        Some(ErrorCode::DiskFull) => "the disk is full; make room on it".to_owned(),
        Some(ErrorCode::OutOfMemory) => "out of memory".to_owned(),
        Some(ErrorCode::ReadOnly) => format!("it cannot be written ({error}); {ACCESS}"),
        Some(ErrorCode::CannotOpen) => format!("it cannot be opened ({error}); {ACCESS}"),
        Some(ErrorCode::SystemIoFailure) => format!(
            "the disk or the file failed ({error}); see to the disk (a full one may say so too), then \
             try again"
        ),
        _ => error.to_string(),
    }
}

/// What is said of a row that nobody can understand.
pub(super) fn unreadable(what: &str, problem: &str) -> String {
    format!(
        "{what} cannot be read: {problem}; it is damaged, or was changed by hand: restore the file \
         from a backup"
    )
}

/// What is said of a lock file that cannot be used.
pub(super) fn no_lock_file(path: &Path, error: &io::Error) -> String {
    format!(
        "its lock file `{}-alive`: {error}; {ACCESS}",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    /// By rule 8.4: whoever reads it knows which file, and what to do.
    #[test]
    fn what_happens_to_files_is_told_with_its_remedy() {
        for (code, words, is_retryable) in [
            (ffi::SQLITE_BUSY, "wake it, or end it", true),
            (ffi::SQLITE_BUSY_RECOVERY, "wake it, or end it", true),
            // Of too many tries for a lock of the log; it passes too.
            (ffi::SQLITE_PROTOCOL, "wake it, or end it", true),
            (ffi::SQLITE_FULL, "make room", true),
            (ffi::SQLITE_READONLY, "must be able to write", false),
            (ffi::SQLITE_CANTOPEN, "must be able to write", false),
            (ffi::SQLITE_IOERR_FSYNC, "see to the disk", false),
            (ffi::SQLITE_CORRUPT, "restore it from a backup", false),
            (ffi::SQLITE_NOTADB, "restore it from a backup", false),
        ] {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            let told = sorted(Path::new("a/store.db"), &error).told;
            assert_eq!(told.is_retryable(), is_retryable, "{told}");
            for part in ["`a/store.db`", words] {
                assert!(told.to_string().contains(part), "{told}");
            }
        }
    }
}
