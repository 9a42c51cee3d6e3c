//! Why a ruling is what it is: the rules that matched, and what each constraint saw.
//!
//! Owns the record that rulings are made from, so an explanation cannot disagree with the
//! decision it explains. It prints nothing, and it never holds an argument's value.

use std::fmt;

use operators_kernel::{PolicyRef, Ruling, TrustDecision, TrustQuestion};

use crate::magnitude::Magnitude;
use crate::policy::Rule;

/// A ruling with everything it rests on.
#[derive(Debug, Clone)]
pub struct Explanation<'a> {
    /// What the set answers.
    pub ruling: Ruling,
    /// Every rule that speaks of the action, by policy name and rule name.
    pub findings: Vec<Finding<'a>>,
}

/// A rule that speaks of the action, and how its constraints fared.
#[derive(Debug, Clone)]
pub struct Finding<'a> {
    /// The policy it stands in.
    pub policy: &'a PolicyRef,
    /// The rule.
    pub rule: &'a Rule,
    /// One entry per constraint of the rule.
    pub checks: Vec<Check>,
}

/// A constraint of a rule and what it saw.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Check {
    /// `max_value` against the action's `value`.
    MaxValue {
        /// The ceiling.
        max: Magnitude,
        /// The action's value; `None` when it is missing or not finite.
        value: Option<Magnitude>,
    },
}

impl<'a> Finding<'a> {
    pub(crate) fn new(policy: &'a PolicyRef, rule: &'a Rule, question: &TrustQuestion<'_>) -> Self {
        let value = question.action.value.as_ref().and_then(Magnitude::of);
        let max_value = rule.max_value.map(|max| Check::MaxValue { max, value });
        Self {
            policy,
            rule,
            checks: max_value.into_iter().collect(),
        }
    }

    /// Whether every constraint holds.
    pub fn holds(&self) -> bool {
        self.checks.iter().all(Check::holds)
    }

    /// A ruling that cites this rule; `because` tells the constraints that failed, or else all.
    pub(crate) fn ruling(&self, decision: TrustDecision) -> Ruling {
        let told = |check: &&Check| self.holds() || !check.holds();
        let words: Vec<String> = self
            .checks
            .iter()
            .filter(told)
            .map(Check::to_string)
            .collect();
        Ruling {
            decision,
            rule: Some(self.rule.name.clone()),
            policy: Some(self.policy.clone()),
            because: (!words.is_empty()).then(|| words.join(", ")),
        }
    }
}

impl Check {
    /// Whether the constraint is met; one that cannot be judged is not.
    pub fn holds(&self) -> bool {
        match self {
            Self::MaxValue { max, value } => value.is_some_and(|value| !value.is_above(*max)),
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxValue { max, value: None } => {
                write!(
                    f,
                    "the action has no value to hold against `max_value` {max}"
                )
            }
            Self::MaxValue {
                max,
                value: Some(value),
            } => {
                let side = if self.holds() { "within" } else { "above" };
                write!(f, "value {value} is {side} `max_value` {max}")
            }
        }
    }
}
