//! Why an expression could not be judged, and the count of steps that bounds how long it may try.
//!
//! Steps are counted, not timed: the same question gives the same answer on a busy machine.

use std::cell::Cell;

/// The most steps one expression may take: a hundred times what a rule about a long order needs,
/// and about a millisecond.
pub const EXPRESSION_STEPS_MAX: u32 = 50_000;

/// The most steps all expressions together may take for one action, so that a thousand rules that
/// are each just within their bound cannot hold a run either.
pub const QUESTION_STEPS_MAX: u32 = 1_000_000;

/// So much text is one step where text is copied, compared or searched.
const BYTES_PER_STEP: usize = 32;

/// Why there is no answer. It never shows an argument's value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("there is no `{0}`")]
    NoField(String),
    #[error("there is no such entry")]
    NoEntry,
    #[error("{0}")]
    Unfit(String),
    #[error("there is no event")]
    NoEvent,
    #[error("a number is too large to be exact")]
    Inexact,
    #[error("a number is not finite")]
    NotFinite,
    #[error("a number overflows")]
    Overflow,
    #[error("divided by zero")]
    DividedByZero,
    #[error("a string is not a number")]
    NotANumber,
    #[error("it comes to {0}, not to a bool")]
    NotBool(&'static str),
    #[error("it takes too many steps (at most {EXPRESSION_STEPS_MAX})")]
    TooLong,
    #[error("the predicate panicked")]
    Panicked,
}

/// What is left of the steps for one expression, and for the whole question behind it.
#[derive(Debug)]
pub(crate) struct Steps {
    /// Of the expression, and never more than the question had when it began.
    left: Cell<u32>,
    begun_with: Cell<u32>,
    /// Of the question, when the expression began.
    question: Cell<u32>,
}

impl Default for Steps {
    fn default() -> Self {
        Self {
            left: Cell::new(EXPRESSION_STEPS_MAX),
            begun_with: Cell::new(EXPRESSION_STEPS_MAX),
            question: Cell::new(QUESTION_STEPS_MAX),
        }
    }
}

impl Steps {
    /// Begins the next expression: what the last one took is taken from the question.
    pub(super) fn begin(&self) {
        let taken = self.begun_with.get() - self.left.get();
        let question = self.question.get().saturating_sub(taken);
        let left = question.min(EXPRESSION_STEPS_MAX);
        self.question.set(question);
        self.begun_with.set(left);
        self.left.set(left);
    }

    #[inline]
    pub(super) fn spend_one(&self) -> Result<(), Fault> {
        match self.left.get().checked_sub(1) {
            Some(rest) => {
                self.left.set(rest);
                Ok(())
            }
            None => Err(Fault::TooLong),
        }
    }

    pub(super) fn spend(&self, count: usize) -> Result<(), Fault> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let rest = self.left.get().checked_sub(count);
        self.left.set(rest.unwrap_or_default());
        rest.map(|_| ()).ok_or(Fault::TooLong)
    }

    pub(super) fn spend_bytes(&self, bytes: usize) -> Result<(), Fault> {
        self.spend(bytes / BYTES_PER_STEP)
    }
}
