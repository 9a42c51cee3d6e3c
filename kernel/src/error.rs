//! When the executor could not establish or record what happened. Outcomes are not errors.

use crate::action::ActionResult;
use crate::durable::StoreError;
use crate::json::JsonError;
use crate::key::IdempotencyKey;

/// Why an action has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The store did not answer in time, or cannot be used. Nothing was sent.
    #[error("nothing was sent: {0}")]
    Store(#[from] StoreError),
    /// The call ended but its end could not be recorded yet; the executor keeps trying. Should the
    /// process end first, the key is in doubt.
    #[error("the call for key `{key}` ended ({outcome}) but is not recorded yet: {source}")]
    NotRecorded {
        /// The key.
        key: IdempotencyKey,
        /// How the call ended, in a word.
        outcome: &'static str,
        /// Why it is not recorded.
        source: StoreError,
    },
    /// The session could not be ended in good order; what was run stands, and is in its receipts.
    #[error("the session did not end in good order, and ends by itself after its lease: {0}")]
    NotEnded(#[source] StoreError),
    /// The plan or action is not one that a strict parse would have let in. Nothing was run.
    #[error("nothing was run: {0}")]
    Invalid(#[from] JsonError),
    /// The caller left while the action waited for its turn. Nothing was sent.
    #[error("abandoned while waiting for its turn; nothing was sent")]
    Abandoned,
    /// A promise of the executor or of a seam was broken. Nothing more is sent.
    #[error("broken invariant: {0}")]
    Invariant(String),
}

/// A plan that stopped half-way: what had been done by then, and why it stopped.
#[derive(Debug, thiserror::Error)]
#[error("{}{source}", self.place())]
pub struct RunError {
    /// The results of the actions before.
    pub completed: Vec<ActionResult>,
    /// Why the next one has none.
    pub source: ExecError,
}

impl RunError {
    /// What is invalid names its own place.
    fn place(&self) -> String {
        if matches!(self.source, ExecError::Invalid(_)) {
            return String::new();
        }
        format!("action {} of the plan: ", self.completed.len() + 1)
    }
}
