//! A decision from an action and its context: rule files, evaluated as a set, failing closed.
//!
//! Reading a file is the only I/O here; a ruling is a pure function of the question and the rules.
//! This crate knows no store, no connector, and nothing of what happened to a key before. Read
//! `rule_set` for how a ruling comes about and `rule_file` for what a rule may say.

mod code;
mod error;
mod explain;
mod expression;
mod idle;
mod index;
mod limit;
mod live;
mod load;
mod magnitude;
mod pattern;
mod policy;
mod predicate;
mod reach;
mod replay;
mod room;
mod rule_file;
mod rule_set;
mod shape;
#[cfg(test)]
mod tests;

pub use error::{PolicyError, PolicyProblems};
pub use explain::{Check, Explanation, Finding};
pub use expression::{
    EXPRESSION_BYTES_MAX, EXPRESSION_STEPS_MAX, Expression, ExpressionError, QUESTION_STEPS_MAX,
};
pub use idle::{Idle, IdleRule, KnownTool, idle_rules};
pub use limit::{LimitBy, RuleLimit};
pub use live::{LiveRules, LoadError, Reloaded};
pub use magnitude::Magnitude;
pub use pattern::{PatternError, ToolPattern};
pub use policy::{Policy, Rule};
pub use predicate::{Judgement, Predicate};
pub use reach::Reach;
pub use replay::Replayed;
pub use room::loading;
pub use rule_file::{RULE_FILE_BYTES_MAX, Schemas};
pub use rule_set::{Layers, RuleSet};
