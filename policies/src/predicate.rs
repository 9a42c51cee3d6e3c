//! A question that a rule asks of an action: a CEL expression, or a closure of the program around.
//!
//! Owns how either comes to yes, no or an error. It must not know what follows from the answer.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use operators_kernel::TrustQuestion;
use serde_json::Value;

use crate::expression::{Expression, ExpressionError, Fault, Steps};

type Ask = dyn Fn(&TrustQuestion<'_>) -> bool + Send + Sync;

/// Something that is true of an action or not. Whatever goes wrong while it is asked blocks.
#[derive(Clone)]
pub struct Predicate(Kind);

#[derive(Clone)]
enum Kind {
    Expression(Expression),
    Code { label: Arc<str>, ask: Arc<Ask> },
}

/// What a predicate came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// It is true.
    Yes,
    /// It is false.
    No,
    /// It could not be judged; never shows an argument's value.
    Error(String),
}

impl Predicate {
    /// A CEL expression, as in a rule file.
    pub fn expression(text: &str) -> Result<Self, ExpressionError> {
        Expression::parse(text).map(Self::from)
    }

    /// A closure, which must be pure and quick: nothing bounds it, and a panic blocks. `label`
    /// stands for it in receipts and in the policy's digest, so change it when the code changes.
    pub fn code(
        label: &str,
        ask: impl Fn(&TrustQuestion<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self(Kind::Code {
            label: label.into(),
            ask: Arc::new(ask),
        })
    }

    /// The expression's text, or the closure's label.
    pub fn text(&self) -> &str {
        match &self.0 {
            Kind::Expression(expression) => expression.as_str(),
            Kind::Code { label, .. } => label,
        }
    }

    /// The expression, unless it is code.
    pub fn as_expression(&self) -> Option<&Expression> {
        match &self.0 {
            Kind::Expression(expression) => Some(expression),
            Kind::Code { .. } => None,
        }
    }

    /// What an expression reads of a question, as it is written and as it is there; `None` where
    /// there is nothing, or where it is read item by item. It shows values: ask with arguments that
    /// may be shown.
    pub fn readings(&self, question: &TrustQuestion<'_>) -> Vec<(String, Option<Value>)> {
        let Kind::Expression(expression) = &self.0 else {
            return Vec::new();
        };
        expression.readings(question)
    }

    pub(crate) fn judge(&self, question: &TrustQuestion<'_>, steps: &Steps) -> Judgement {
        let judged = match &self.0 {
            Kind::Expression(expression) => expression.judge(question, steps),
            Kind::Code { ask, .. } => {
                catch_unwind(AssertUnwindSafe(|| ask(question))).map_err(|_| Fault::Panicked)
            }
        };
        match judged {
            Ok(true) => Judgement::Yes,
            Ok(false) => Judgement::No,
            Err(fault) => Judgement::Error(fault.to_string()),
        }
    }
}

impl Judgement {
    /// Whether it is true; what could not be judged is not.
    pub fn is_yes(&self) -> bool {
        matches!(self, Self::Yes)
    }
}

impl From<Expression> for Predicate {
    fn from(expression: Expression) -> Self {
        Self(Kind::Expression(expression))
    }
}

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match &self.0 {
            Kind::Expression(_) => "Expression",
            Kind::Code { .. } => "Code",
        };
        f.debug_tuple(name).field(&self.text()).finish()
    }
}
