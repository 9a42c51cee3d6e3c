//! CEL expressions: `if` and `require`, compiled once and judged within a bound.
//!
//! Owns what an expression may say and how long it may take. The text is parsed by the `cel` crate
//! and judged here, because a gate needs what that crate's interpreter does not promise: a count of
//! steps that ends, patterns compiled once, and no copy of the arguments per question. A test
//! compares the two on every expression that both take.

mod calculate;
mod compile;
mod evaluate;
mod fault;
mod kinds;
mod term;
mod value;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use operators_kernel::TrustQuestion;
use serde_json::Value;

pub use compile::EXPRESSION_BYTES_MAX;
pub(crate) use compile::Parsed;
pub use fault::{EXPRESSION_STEPS_MAX, QUESTION_STEPS_MAX};
pub(crate) use fault::{Fault, Steps};
pub(crate) use term::Fact;

/// Why a text is not an expression that can be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; {remedy}")]
#[non_exhaustive]
pub struct ExpressionError {
    /// Where in the text, in bytes.
    pub offset: usize,
    /// What is wrong there.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

impl ExpressionError {
    pub(crate) fn new(
        offset: usize,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            offset,
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}

/// Something an expression reads: a variable, and the fields that follow it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Path {
    pub(crate) fact: Fact,
    pub(crate) fields: Vec<String>,
    /// As it is written.
    pub(crate) text: String,
}

/// An expression, compiled: made only by [`Expression::parse`], so every one comes to a bool or to
/// an error that blocks.
#[derive(Clone)]
pub struct Expression {
    text: Arc<str>,
    compiled: Arc<compile::Compiled>,
}

impl Expression {
    /// Reads and checks a CEL expression.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let compiled = compile::compile(text, None)?;
        Ok(Self {
            text: text.into(),
            compiled: Arc::new(compiled),
        })
    }

    /// Checks it once more, knowing the JSON Schema that the tool's arguments fit.
    pub fn check_args(&self, schema: &Value) -> Result<(), ExpressionError> {
        compile::compile(&self.text, Some(schema)).map(|_| ())
    }

    /// The text, as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn reads(&self) -> &BTreeSet<Path> {
        &self.compiled.reads
    }

    /// What it reads, as it is written and as it is there.
    pub(crate) fn readings(&self, question: &TrustQuestion<'_>) -> Vec<(String, Option<Value>)> {
        let read = |path: &Path| {
            let mut place = evaluate::read(path.fact, question)?;
            for field in &path.fields {
                place = place.get(field)?.clone();
            }
            Some(place)
        };
        let reads = self.compiled.reads.iter();
        reads.map(|path| (path.text.clone(), read(path))).collect()
    }

    /// Whether it is true of the question.
    pub(crate) fn judge(&self, question: &TrustQuestion<'_>, steps: &Steps) -> Result<bool, Fault> {
        steps.begin();
        evaluate::judge(&self.compiled.term, question, steps)
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.text).finish()
    }
}
