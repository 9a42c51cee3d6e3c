//! A rule's limit: how many effects in how long, counted together by what.
//!
//! Owns the words and the name of the counter. Counting is the store's, with the claim, so that two
//! processes cannot both take the last slot.

use std::time::Duration;

use operators_kernel::life::LIMIT_MAX;
use operators_kernel::{Limit, OperatorName, PolicyRef, Shared, Text, TrustQuestion};
use serde_json::{Value, json};

/// The shortest and the longest window: below, a busy machine's clock decides; above, nobody will
/// remember why.
const WINDOW_BOUNDS: (Duration, Duration) =
    (Duration::from_secs(1), Duration::from_hours(24 * 366));

/// What effects are counted together by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitBy {
    /// Each entity for itself.
    Entity,
    /// Each operator for itself.
    Operator,
    /// Each tool of each connector for itself.
    Tool,
    /// The tenant as a whole.
    Tenant,
}

impl LimitBy {
    /// The word in a rule file; `None` for a word that is none.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "entity" => Self::Entity,
            "operator" => Self::Operator,
            "tool" => Self::Tool,
            "tenant" => Self::Tenant,
            _ => return None,
        })
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Entity => "entity",
            Self::Operator => "operator",
            Self::Tool => "tool",
            Self::Tenant => "tenant",
        }
    }
}

/// At most `max` effects in any `per`, counted by `by`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleLimit {
    /// The most effects in a window.
    pub max: u32,
    /// The window, which slides.
    pub per: Duration,
    /// What is counted together.
    pub by: LimitBy,
}

impl RuleLimit {
    /// Reads a window such as `1h`; the error says what is wrong with it.
    pub fn window(text: &str) -> Result<Duration, String> {
        let window = humantime::parse_duration(text).map_err(|_| "is not a duration".to_owned())?;
        window_problem(window).map_or(Ok(window), Err)
    }

    /// Why no store could count it.
    pub(crate) fn problem(self) -> Option<String> {
        if !(1..=LIMIT_MAX).contains(&self.max) {
            return Some(format!("is not from 1 to {LIMIT_MAX}"));
        }
        window_problem(self.per).map(|problem| format!("has a window that {problem}"))
    }

    /// What it says, for the digest of rules that have no text.
    pub(crate) fn described(self) -> Value {
        let per = humantime::format_duration(self.per).to_string();
        json!({ "max": self.max, "per": per, "by": self.by.as_str() })
    }

    /// What the store is asked to keep for this action. The scope names the counter: by policy and
    /// rule, not by version, so that counting on does not depend on an edit elsewhere in the file.
    pub(crate) fn for_question(
        self,
        policy: &Shared<PolicyRef>,
        rule: &Text,
        question: &TrustQuestion<'_>,
    ) -> Limit {
        let action = question.action;
        let counted = match self.by {
            LimitBy::Entity => json!([action.entity_key.as_str()]),
            LimitBy::Operator => json!([question.operator.map(OperatorName::as_str)]),
            LimitBy::Tool => json!([action.connector.as_str(), action.tool.as_str()]),
            LimitBy::Tenant => json!([]),
        };
        Limit {
            rule: rule.clone(),
            policy: policy.clone(),
            // As JSON, so that no two lists of parts are one text.
            scope: json!([policy.name, rule, self.by.as_str(), counted]).to_string(),
            max: self.max,
            window: self.per,
        }
    }
}

fn window_problem(window: Duration) -> Option<String> {
    let (shortest, longest) = WINDOW_BOUNDS;
    let fits = (shortest..=longest).contains(&window);
    (!fits).then(|| {
        format!(
            "is not from {} to {}",
            humantime::format_duration(shortest),
            humantime::format_duration(longest)
        )
    })
}
