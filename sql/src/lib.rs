//! One statement with bound values, run on a connection that somebody else opened: how JSON values
//! go in and rows come out.
//!
//! The `sql` connector runs statements on connections of its own, a store those of its own database
//! in its own transaction; both mean the same by a statement. Nothing here begins, ends or opens
//! anything.

#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

/// How many rows a statement may answer with; more is a report, not a result.
pub const ROWS_MAX: usize = 1_000;

/// Why a statement did not run to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The database refused it, or what it answered is refused here.
    Refused(String),
    /// The connection, the disk or the file failed: what is said is no answer to the statement.
    Broken(String),
}

impl Failure {
    /// The sentence, whichever it is.
    pub fn into_words(self) -> String {
        match self {
            Self::Refused(said) | Self::Broken(said) => said,
        }
    }
}

fn too_many() -> Failure {
    Failure::Refused(format!("more than {ROWS_MAX} rows"))
}
