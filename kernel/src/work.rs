//! Effects that are statements in the store's own database: prepared by a connector, run by the
//! store in the transaction that settles them.
//!
//! Owns what travels from the one to the other. It knows no database: a statement is a text with
//! values beside it, and whoever wrote it knows where it fits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::clock::Timestamp;
use crate::connector::InvokeOutcome;
use crate::content_digest::ContentDigest;
use crate::durable::{SessionId, SettleAnswer, SettledOutcome, Settlement};
use crate::json;
use crate::receipt::{AttemptMark, Proposal};
use crate::shared::Shared;

/// One statement and the values that are bound to it, never written into it.
#[derive(Clone, PartialEq)]
pub struct Statement {
    /// Its text, with the places of values as its database writes them.
    pub text: String,
    /// The values, in the order of their places.
    pub values: Vec<Value>,
    /// It only reads.
    pub reads: bool,
    /// Rows come back.
    pub returns: bool,
    /// How long it may run.
    pub deadline: Duration,
}

impl fmt::Debug for Statement {
    /// Leaves the values out: they may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Statement")
            .field("text", &self.text)
            .finish_non_exhaustive()
    }
}

/// What came of a statement.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rows {
    /// How many rows it changed, or answered with.
    pub affected: u64,
    /// Its answer, if it gives one.
    pub rows: Vec<Value>,
}

/// A prepared effect: what is to be run, and what it means that it ran so.
pub trait Work: fmt::Debug + Send + Sync + 'static {
    /// What is to be run.
    fn statement(&self) -> &Statement;

    /// What running it came to; the problem in words if the database refused it. Pure. Only
    /// `Applied` is kept: whatever else it says, the statement is undone, and so did not happen.
    fn outcome(&self, ran: Result<Rows, String>) -> InvokeOutcome;
}

/// An attempt whose effect the store itself brings about, as it settles it.
#[derive(Debug, Clone)]
pub struct Performance {
    /// The session that claimed.
    pub session: SessionId,
    /// What was claimed.
    pub mark: AttemptMark,
    /// The proposal as it was claimed.
    pub proposal: Shared<Proposal>,
    /// What is to be run.
    pub work: Arc<dyn Work>,
    /// The caller's clock, for the receipt.
    pub at: Timestamp,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Performed {
    /// How the attempt ended: never unknown, because effect and burn are one commit.
    pub outcome: SettledOutcome,
    /// What the store recorded.
    pub answer: SettleAnswer,
}

impl Performance {
    /// The settlement that follows from what the statement came to. The statement is kept only if
    /// this says `Applied`.
    pub fn settlement(&self, ran: Result<Rows, String>) -> Settlement {
        match self.work.outcome(ran) {
            InvokeOutcome::Applied(effect) => match json::digest(&effect.result) {
                Ok(digest) => self.settled(SettledOutcome::Applied(effect.into()), Some(digest)),
                Err(error) => self.not_run(format!(
                    "its answer cannot be kept, so it was undone: {error}"
                )),
            },
            InvokeOutcome::NotApplied(error) | InvokeOutcome::Unknown(error) => {
                self.not_run(error.message)
            }
        }
    }

    /// The settlement of an attempt whose statement was not run.
    pub fn not_run(&self, error: String) -> Settlement {
        self.settled(SettledOutcome::NotApplied { error }, None)
    }

    fn settled(&self, outcome: SettledOutcome, result_digest: Option<ContentDigest>) -> Settlement {
        Settlement {
            session: self.session,
            mark: self.mark.clone(),
            proposal: self.proposal.clone(),
            outcome,
            result_digest,
            at: self.at,
        }
    }
}
