//! What an error means: what its caller hears, and whether the file may be written any more.

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
    format!("the disk or the file failed ({said}); nothing more is written")
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
            "key `{key}` was claimed but its row is gone; rows were deleted by hand"
        )),
        BookError::Note(error) => unusable(error.to_string()),
        BookError::Records(RowError::Alive(error)) => StoreError::Unavailable {
            store: describe(path),
            problem: format!("its lock file: {error}"),
        },
        BookError::Records(RowError::Meaning { what, problem }) => {
            unusable(format!("{what} cannot be read: {problem}"))
        }
    };
    told.into()
}

/// Busy and full pass; a damaged or foreign file does not.
pub(super) fn sorted(path: &Path, error: &rusqlite::Error) -> Trouble {
    let store = describe(path);
    let unavailable = |problem: &str| StoreError::Unavailable {
        store: store.clone(),
        problem: problem.to_owned(),
    };
    let told = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            unavailable("another process has held its write lock for 10 s")
        }
        Some(ErrorCode::DiskFull) => unavailable("the disk is full"),
        Some(ErrorCode::OutOfMemory) => unavailable("out of memory"),
        _ => StoreError::Unusable {
            store,
            problem: error.to_string(),
        },
    };
    Trouble {
        told,
        damage: damage(error),
    }
}
