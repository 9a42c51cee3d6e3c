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
    expression: Cell<u32>,
    question: Cell<u32>,
}

impl Default for Steps {
    fn default() -> Self {
        Self {
            expression: Cell::new(EXPRESSION_STEPS_MAX),
            question: Cell::new(QUESTION_STEPS_MAX),
        }
    }
}

impl Steps {
    /// Begins the next expression.
    pub(super) fn begin(&self) {
        self.expression.set(EXPRESSION_STEPS_MAX);
    }

    pub(super) fn spend(&self, count: usize) -> Result<(), Fault> {
        let take = |left: &Cell<u32>| {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            let rest = left.get().checked_sub(count);
            left.set(rest.unwrap_or_default());
            rest.map(|_| ()).ok_or(Fault::TooLong)
        };
        take(&self.expression)?;
        take(&self.question)
    }

    pub(super) fn spend_bytes(&self, bytes: usize) -> Result<(), Fault> {
        self.spend(bytes / BYTES_PER_STEP)
    }
}
