//! Why a ruling is what it is: the rules that matched, and what each constraint saw.
//!
//! Owns the record that rulings are made from, so an explanation cannot disagree with the
//! decision it explains. It prints nothing, and it never holds an argument's value.

use std::fmt;

use operators_kernel::{PolicyRef, Ruling, Shared, TrustDecision, TrustQuestion};

use crate::expression::Steps;
use crate::magnitude::Magnitude;
use crate::policy::Rule;
use crate::predicate::{Judgement, Predicate};

/// As long as most reasons are: a text that need not grow.
const BECAUSE_BYTES: usize = 64;

/// How much of an expression a receipt repeats: enough to find it, not a page.
const TEXT_SHOWN_MAX: usize = 160;

/// A ruling with everything it rests on.
#[derive(Debug, Clone)]
pub struct Explanation<'a> {
    /// What the set answers.
    pub ruling: Ruling,
    /// Every rule that speaks of the action, or that could not tell whether it does, by policy name
    /// and rule name.
    pub findings: Vec<Finding<'a>>,
    /// Every rule for this tool whose `if` says that it does not speak of the action.
    pub silent: Vec<Finding<'a>>,
}

/// A rule for the action's tool, and how its constraints fared. It owns no text, so that a ruling
/// over many rules costs what their questions cost.
#[derive(Debug, Clone)]
pub struct Finding<'a> {
    /// The policy it stands in.
    pub policy: &'a Shared<PolicyRef>,
    /// The rule.
    pub rule: &'a Rule,
    /// Each as far as it was asked.
    only_if: Option<Judgement>,
    require: Option<Judgement>,
    /// `max_value` and the action's value.
    ceiling: Option<(Magnitude, Option<Magnitude>)>,
    holds: bool,
}

/// A constraint of a rule and what it saw.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Check<'a> {
    /// `if`: does the rule speak of the action?
    If {
        /// The expression, or a closure's label.
        text: &'a str,
        /// What it came to.
        judgement: &'a Judgement,
    },
    /// `max_value` against the action's `value`.
    MaxValue {
        /// The ceiling.
        max: Magnitude,
        /// The action's value; `None` when it is missing or not finite.
        value: Option<Magnitude>,
    },
    /// `require`: what must hold.
    Require {
        /// The expression, or a closure's label.
        text: &'a str,
        /// What it came to.
        judgement: &'a Judgement,
    },
}

impl<'a> Finding<'a> {
    pub(crate) fn new(
        policy: &'a Shared<PolicyRef>,
        rule: &'a Rule,
        question: &TrustQuestion<'_>,
        steps: &Steps,
    ) -> Self {
        let ask = |predicate: &Predicate| predicate.judge(question, steps);
        let only_if = rule.only_if.as_ref().map(ask);
        let holds = only_if.as_ref().is_none_or(Judgement::is_yes);
        let mut finding = Self {
            policy,
            rule,
            only_if,
            require: None,
            ceiling: None,
            holds,
        };
        // What does not speak of the action, or cannot tell, has nothing further to ask of it.
        if !holds {
            return finding;
        }
        if let Some(max) = rule.max_value {
            let value = question.action.value.as_ref().and_then(Magnitude::of);
            finding.ceiling = Some((max, value));
            finding.holds &= is_within(value, max);
        }
        if let Some(predicate) = &rule.require {
            let judgement = ask(predicate);
            finding.holds &= judgement.is_yes();
            finding.require = Some(judgement);
        }
        finding
    }

    /// One entry per constraint of the rule, as far as they were asked.
    pub fn checks(&self) -> impl Iterator<Item = Check<'_>> {
        let only_if = self.rule.only_if.as_ref().zip(self.only_if.as_ref());
        let require = self.rule.require.as_ref().zip(self.require.as_ref());
        let only_if = only_if.map(|(predicate, judgement)| Check::If {
            text: predicate.text(),
            judgement,
        });
        let ceiling = self.ceiling;
        let ceiling = ceiling.map(|(max, value)| Check::MaxValue { max, value });
        let require = require.map(|(predicate, judgement)| Check::Require {
            text: predicate.text(),
            judgement,
        });
        [only_if, ceiling, require].into_iter().flatten()
    }

    /// Whether its `if` says that it does not speak of the action.
    pub fn is_silent(&self) -> bool {
        self.only_if == Some(Judgement::No)
    }

    /// Whether every constraint holds.
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// A ruling that cites this rule; `because` tells the constraints that failed, or else all.
    pub(crate) fn ruling(&self, decision: TrustDecision) -> Ruling {
        let mut because = String::with_capacity(BECAUSE_BYTES);
        let told = self.tell_because(&mut because);
        Ruling {
            rule: Some(self.rule.name.clone()),
            policy: Some(self.policy.clone()),
            because: told.ok().map(|()| because).filter(|it| !it.is_empty()),
            ..Ruling::of(decision)
        }
    }

    /// What a ruling says of the constraints that it rests on.
    fn tell_because(&self, text: &mut String) -> fmt::Result {
        let told = self.checks().filter(|check| self.holds || !check.holds());
        for (n, check) in told.enumerate() {
            if n > 0 {
                text.push_str(", ");
            }
            check.tell(text)?;
        }
        Ok(())
    }
}

impl Check<'_> {
    /// The word of the rule file.
    pub fn word(&self) -> &'static str {
        match self {
            Self::If { .. } => "if",
            Self::MaxValue { .. } => "max_value",
            Self::Require { .. } => "require",
        }
    }

    /// Whether the constraint is met; one that cannot be judged is not.
    pub fn holds(&self) -> bool {
        match self {
            Self::MaxValue { max, value } => is_within(*value, *max),
            Self::If { judgement, .. } | Self::Require { judgement, .. } => judgement.is_yes(),
        }
    }

    /// Says what it saw. Every ruling is told so, and what is said of a number piece by piece costs a
    /// quarter of what it costs to format it.
    fn tell(&self, to: &mut impl fmt::Write) -> fmt::Result {
        match self {
            Self::MaxValue { max, value: None } => {
                to.write_str("the action has no value to hold against `max_value` ")?;
                max.tell(to)
            }
            Self::MaxValue {
                max,
                value: Some(value),
            } => {
                let side = if self.holds() { "within" } else { "above" };
                to.write_str("value ")?;
                value.tell(to)?;
                to.write_str(" is ")?;
                to.write_str(side)?;
                to.write_str(" `max_value` ")?;
                max.tell(to)
            }
            Self::If { text, judgement } | Self::Require { text, judgement } => {
                let word = self.word();
                match judgement {
                    Judgement::Yes => write!(to, "`{word}` holds"),
                    Judgement::No => write!(to, "`{word}` does not hold: {}", cut(text)),
                    Judgement::Error(error) => {
                        write!(to, "`{word}` cannot be judged: {error}: {}", cut(text))
                    }
                }
            }
        }
    }
}

impl fmt::Display for Check<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tell(f)
    }
}

/// A value that is missing or not finite is within nothing.
fn is_within(value: Option<Magnitude>, max: Magnitude) -> bool {
    value.is_some_and(|value| !value.is_above(max))
}

/// The text on one line, and no more of it than a receipt should repeat.
fn cut(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = crate::error::shown(&words.join(" "));
    match line.char_indices().nth(TEXT_SHOWN_MAX) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}
