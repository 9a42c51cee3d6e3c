//! What can go wrong between here and the server, and what it means for the caller.

use operators_kernel::{SessionId, StoreError};
use operators_sql::postgres::is_over;

use super::text::Unsendable;

/// Why a statement or transaction was not answered.
#[derive(Debug, Clone)]
pub(super) enum Trouble {
    /// It did not happen, and may be tried again at once.
    Again(String),
    /// The connection broke or fell silent: it may have happened. Asking again finds out.
    Broken(String),
    /// The server says no, for now.
    Unavailable(String),
    /// A person must look.
    Unusable(String),
    /// What was acknowledged is gone.
    RolledBack,
    /// The session is dead and fenced.
    SessionDead(SessionId),
}

/// What is said of a store that forgot.
pub(super) const ROLLED_BACK: &str = "store rolled back: it no longer holds what it acknowledged \
    to this process (it was restored from a backup, or a standby without the last commits took \
    over), so keys that are burned may look free. Compare the receipts with the systems the \
    actions touched, then restart";

impl Trouble {
    /// As the kernel sees it.
    pub(super) fn into_store_error(self, store: &str) -> StoreError {
        let store = store.to_owned();
        match self {
            Self::Again(problem) | Self::Broken(problem) | Self::Unavailable(problem) => {
                StoreError::Unavailable { store, problem }
            }
            Self::Unusable(problem) => StoreError::Unusable { store, problem },
            Self::RolledBack => StoreError::Unusable {
                store,
                problem: ROLLED_BACK.to_owned(),
            },
            Self::SessionDead(session) => StoreError::SessionDead { store, session },
        }
    }

    /// Of a connection that could not be made: nothing was asked on it, so nothing was done.
    pub(super) fn connecting(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Io(error) => Self::Unavailable(format!("no connection: {error}")),
            sqlx::Error::Protocol(problem) => {
                Self::Unavailable(format!("no connection: {problem}"))
            }
            error => error.into(),
        }
    }

    /// For a call that is not the same when it is asked twice, and so was not asked again.
    pub(super) fn once(self) -> Self {
        match self {
            Self::Broken(problem) => Self::Broken(format!(
                "{problem}; whether it was done is not known: look (`operators keys show`, \
                 `operators receipts list`) before you ask again"
            )),
            trouble => trouble,
        }
    }

    /// Records that say nothing that can be understood.
    pub(super) fn meaning(what: &str, problem: impl std::fmt::Display) -> Self {
        Self::Unusable(format!("{what} cannot be read: {problem}"))
    }
}

impl From<Unsendable> for Trouble {
    fn from(_: Unsendable) -> Self {
        Self::Unusable("a value holds a control character that it cannot keep".to_owned())
    }
}

impl From<sqlx::Error> for Trouble {
    /// Never shows the statement, which carries the arguments, nor the URL.
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => {
                by_code(error.code().as_deref().unwrap_or(""), error.message())
            }
            sqlx::Error::Io(error) => Self::Broken(format!("the connection broke: {error}")),
            sqlx::Error::Protocol(problem) => {
                Self::Broken(format!("the connection broke: {problem}"))
            }
            sqlx::Error::Tls(error) => Self::Unusable(format!("no TLS: {error}")),
            sqlx::Error::Configuration(error) => Self::Unusable(format!("its URL: {error}")),
            error @ (sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::Decode(_)
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::ColumnIndexOutOfBounds { .. }
            | sqlx::Error::RowNotFound) => Self::meaning("its answer", error),
            error => Self::Unavailable(error.to_string()),
        }
    }
}

/// Sorts by `SQLSTATE`.
fn by_code(code: &str, message: &str) -> Trouble {
    let said = || format!("{message} ({code})");
    match code {
        "OP001" => Trouble::RolledBack,
        // Serialization, deadlock, a row that came first, a transaction somebody left open.
        "40001" | "40P01" | "23505" | "25001" | "25P02" => Trouble::Again(said()),
        // Lock timeout, cancelled, read-only (a server that is just being demoted).
        "55P03" | "57014" | "25006" => Trouble::Unavailable(said()),
        "XX001" | "XX002" => Trouble::Unusable(said()),
        code if is_over(code) => Trouble::Broken(said()),
        _ => match code.get(..2) {
            // Resources, an operator's intervention, system errors.
            Some("53" | "57" | "58" | "XX") => Trouble::Unavailable(said()),
            _ => Trouble::Unusable(said()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule 8.2: a settle that meets the end of its connection is asked again. The store ends its own
    /// transactions that stand still, and took the server's word for that as a reason to give up.
    #[test]
    fn a_connection_that_the_server_ended_leaves_open_what_was_done() {
        for code in ["25P03", "25P04", "40003", "57P01", "57P05", "08006"] {
            let trouble = by_code(code, "said");
            assert!(matches!(trouble, Trouble::Broken(_)), "{code}: {trouble:?}");
        }
        let trouble = by_code("57014", "said");
        assert!(matches!(trouble, Trouble::Unavailable(_)), "{trouble:?}");
    }

    #[test]
    fn what_may_pass_is_retryable_and_the_rest_is_not() {
        for code in [
            "40001", "40P01", "53300", "53100", "57P01", "57P03", "08006", "55P03", "57000",
        ] {
            let error = by_code(code, "said").into_store_error("the store");
            assert!(error.is_retryable(), "{code}");
        }
        for code in [
            "28P01", "3D000", "42501", "42P01", "OP001", "22P05", "XX001", "",
        ] {
            let error = by_code(code, "said").into_store_error("the store");
            assert!(!error.is_retryable(), "{code}");
        }
    }
}
