//! What comes in, and the only things that can come out: plans, actions and their results.
//!
//! Owns the JSON that planners write and callers read. It must not know how a result came about.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use crate::clock::Timestamp;
use crate::json::{self, JsonError};
use crate::key::{ConnectorName, EntityKey, IdempotencyKey, IdentifierError, ToolName};
use crate::packed::Packed;
use crate::shared::Shared;
use crate::text::Text;
use crate::trust::TrustDecision;

/// The error of every action that trust refused; callers compare it, so it never changes.
pub const BLOCKED_BY_TRUST_POLICY: &str = "blocked by trust policy";

/// The hint of every doubt.
pub(crate) const LOOK_AT_DOUBTS: &str =
    "`operators doubts list` shows what is in doubt, and how it ends";

/// The largest plan file: room for the largest plan of ordinary actions, small enough to hold.
pub const PLAN_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The longest plan. A planner that wants more is looping, or should send several.
pub const PLAN_ACTIONS_MAX: usize = 10_000;

/// The largest `args` of one action, as JSON text.
pub const ARGS_BYTES_MAX: usize = 1024 * 1024;

/// An ordered list of proposed actions. Empty is valid: nothing needs doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a plan: an object with `actions`, or an array of actions"
)]
pub struct ExecutionPlan {
    /// Why the planner proposes this, in its own words; kept out of every decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// The actions, run strictly in this order.
    pub actions: Vec<PlannedAction>,
}

impl ExecutionPlan {
    /// Reads a plan (an object, or a bare array of actions) strictly: it is valid as a whole or
    /// refused as a whole, with the place of the first problem.
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        if text.len() > PLAN_BYTES_MAX {
            return Err(JsonError {
                place: "/".to_owned(),
                problem: format!("the plan is {} bytes, at most {PLAN_BYTES_MAX}", text.len()),
            });
        }
        let value = json::parse(text)?;
        let (actions_place, plan) = if value.is_array() {
            (
                "",
                Self {
                    reasoning: None,
                    actions: json::from_value(value)?,
                },
            )
        } else {
            ("/actions", json::from_value::<Self>(value)?)
        };
        plan.check(actions_place)?;
        Ok(plan)
    }
}

/// One proposal: which tool, with what, on which entity, and what counts as the same again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an action: an object")]
pub struct PlannedAction {
    /// The connector that would run it.
    pub connector: ConnectorName,
    /// The tool on that connector.
    pub tool: ToolName,
    /// The arguments as proposed.
    pub args: Shared<Map<String, Value>>,
    /// A magnitude that trust rules compare with their ceilings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Number>,
    /// What must not be touched by two actions at once.
    pub entity_key: EntityKey,
    /// What counts as the same action; it takes effect at most once.
    pub idempotency_key: IdempotencyKey,
    /// The version of the source this action was planned from; older than the last applied one
    /// of its entity is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Where the proposal came from, for the audit trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_id: Option<String>,
    /// The index the planner looked at, for the audit trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_hash: Option<String>,
}

/// What became of an action: the three trust decisions, and `DEDUP`, which only the executor says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Disposition {
    /// Invoked unattended. Reads always carry it.
    Allow,
    /// Invoked, and raised for a person.
    Alert,
    /// Stopped before the connector; the key is not burned.
    Block,
    /// Applied before; nothing happened now.
    Dedup,
}

impl Disposition {
    /// The word in results and receipts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "ALLOW",
            Self::Alert => "ALERT",
            Self::Block => "BLOCK",
            Self::Dedup => "DEDUP",
        }
    }
}

impl From<TrustDecision> for Disposition {
    fn from(decision: TrustDecision) -> Self {
        match decision {
            TrustDecision::Allow => Self::Allow,
            TrustDecision::Alert => Self::Alert,
            TrustDecision::Block => Self::Block,
        }
    }
}

/// Why an action is not ok, as one word that programs can branch on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Trust refused it.
    Policy,
    /// The same key came before with other arguments.
    Conflict,
    /// A newer revision of its entity was applied already.
    StaleRevision,
    /// Nobody knows whether this key's effect happened.
    InDoubt,
    /// Another key of the same entity is in doubt.
    EntityInDoubt,
    /// A rule wants a person asked first, or that person said no.
    AwaitingApproval,
    /// A limit of a matching rule has no slot left.
    Limit,
    /// Too many actions wait for this entity.
    Overloaded,
    /// A person paused its operator, or everything.
    Paused,
    /// The connector says that nothing happened.
    Failed,
    /// No such connector or tool is registered.
    UnknownTool,
    /// The arguments do not fit the tool's schema.
    InvalidArgs,
}

impl Reason {
    /// The word in results and receipts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Conflict => "conflict",
            Self::StaleRevision => "stale_revision",
            Self::InDoubt => "in_doubt",
            Self::EntityInDoubt => "entity_in_doubt",
            Self::AwaitingApproval => "awaiting_approval",
            Self::Limit => "limit",
            Self::Overloaded => "overloaded",
            Self::Paused => "paused",
            Self::Failed => "failed",
            Self::UnknownTool => "unknown_tool",
            Self::InvalidArgs => "invalid_args",
        }
    }
}

/// The application that a duplicate collapsed into.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Original {
    /// The receipt of that application.
    pub receipt_id: Text,
    /// When its outcome was recorded.
    pub applied_at: Timestamp,
    /// What the connector answered then.
    pub result: Packed<Value>,
    /// Nobody knows whether it happened: a person closed the doubt, and it is never run again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub written_off: bool,
}

/// How one proposal ended; each case carries just what belongs to it.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// A read was answered.
    Read {
        /// The answer.
        result: Shared<Value>,
    },
    /// The effect happened and the key is burned.
    Applied {
        /// What the connector answered.
        result: Shared<Value>,
    },
    /// The connector says that nothing happened; the key is free.
    Failed {
        /// What it said.
        error: String,
    },
    /// Nobody knows whether the effect happened; the entity is held.
    InDoubt {
        /// What was seen.
        error: String,
    },
    /// Stopped before the connector.
    Refused(Refusal),
    /// Applied before.
    Duplicate(Original),
}

/// Why an action was stopped before the connector.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The word for programs.
    pub reason: Reason,
    /// What is so, for the proposer.
    pub error: String,
    /// What a person at the terminal may do about it.
    pub hint: Option<String>,
    /// The JSON pointers that differ, for a conflict.
    pub conflict: Vec<String>,
    /// The rule that set the limit, where one did.
    pub rule: Option<Text>,
}

impl Refusal {
    /// A refusal with no differing paths.
    pub fn new(reason: Reason, error: impl Into<String>) -> Self {
        Self {
            reason,
            error: error.into(),
            hint: None,
            conflict: Vec::new(),
            rule: None,
        }
    }

    /// The same, with what a person at the terminal may do.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}

/// The result of one action, as JSON: the first five fields are the whole contract of old, the
/// rest is left out when empty.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionResult {
    /// The action as proposed; secret arguments are shown as keyed hashes.
    pub action: PlannedAction,
    /// What became of it.
    pub decision: Disposition,
    /// Whether the world is as the action asked.
    pub ok: bool,
    /// What the connector answered, when it was asked and the effect happened.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub result: Option<Shared<Value>>,
    /// Why not ok: what is so, and nothing that opens anything. This is what a model may read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What a person at the terminal may do about it: commands, and the ids that they take. Never
    /// for a model, which would run them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Why not ok, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The trust rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Text>,
    /// The receipt this proposal left. That of a question (`awaiting_approval`) is what answers it.
    pub receipt_id: Text,
    /// How many attempts this key has had, this one included; 0 if none was ever made.
    pub attempt: u32,
    /// For a duplicate: the application it collapsed into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<Original>,
    /// For a conflict: the JSON pointers that differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflict: Vec<String>,
}

/// A `result` of JSON `null` is an answer; only a missing field is none.
fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Shared<Value>>, D::Error> {
    Shared::deserialize(deserializer).map(Some)
}

impl ActionResult {
    /// Writes an outcome out flat. `weighed` is what trust said when the action was let through.
    pub(crate) fn new(
        action: PlannedAction,
        weighed: TrustDecision,
        rule: Option<Text>,
        receipt_id: Text,
        attempt: u32,
        outcome: Outcome,
    ) -> Self {
        let mut flat = Self {
            action,
            decision: weighed.into(),
            ok: false,
            result: None,
            error: None,
            hint: None,
            reason: None,
            rule,
            receipt_id,
            attempt,
            original: None,
            conflict: Vec::new(),
        };
        match outcome {
            Outcome::Read { result } | Outcome::Applied { result } => {
                flat.ok = true;
                flat.result = Some(result);
            }
            Outcome::Failed { error } => {
                flat.error = Some(error);
                flat.reason = Some(Reason::Failed);
            }
            Outcome::InDoubt { error } => {
                flat.error = Some(error);
                flat.hint = Some(LOOK_AT_DOUBTS.to_owned());
                flat.reason = Some(Reason::InDoubt);
            }
            Outcome::Refused(refusal) => {
                flat.decision = Disposition::Block;
                flat.error = Some(refusal.error);
                flat.hint = refusal.hint;
                flat.reason = Some(refusal.reason);
                flat.conflict = refusal.conflict;
                if refusal.reason != Reason::Policy {
                    flat.rule = refusal.rule;
                }
            }
            Outcome::Duplicate(original) => {
                flat.decision = Disposition::Dedup;
                flat.ok = true;
                flat.original = Some(original);
                flat.rule = None;
            }
        }
        flat
    }
}

impl From<IdentifierError> for JsonError {
    fn from(error: IdentifierError) -> Self {
        Self {
            place: "/".to_owned(),
            problem: error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: &str = r#"{"connector":"shop","tool":"orders.hold","args":{"order":"SO-1"},
        "entity_key":"order:SO-1","idempotency_key":"order:SO-1:hold"}"#;

    #[track_caller]
    fn refused(text: &str, place: &str) {
        let error = ExecutionPlan::parse(text).expect_err(text);
        assert_eq!(error.place, place, "{error}");
    }

    #[test]
    fn a_plan_is_an_object_or_a_bare_array() {
        let object = format!(r#"{{"reasoning":"why","actions":[{HOLD}]}}"#);
        let bare = format!("[{HOLD}]");
        let from_object = ExecutionPlan::parse(&object).expect("object");
        let from_array = ExecutionPlan::parse(&bare).expect("array");
        assert_eq!(from_object.actions, from_array.actions);
        assert!(
            ExecutionPlan::parse("[]")
                .expect("empty")
                .actions
                .is_empty()
        );
    }

    #[test]
    fn what_is_no_plan_is_told_in_words() {
        for text in ["3", "\"x\"", "null"] {
            let error = ExecutionPlan::parse(text).expect_err(text).to_string();
            assert!(error.contains("expected a plan: an object with"), "{error}");
        }
        let error = ExecutionPlan::parse("[3]").expect_err("no action");
        assert_eq!(error.place, "/0");
        assert!(error.problem.ends_with("expected an action: an object"));
    }

    #[test]
    fn a_bad_plan_is_refused_with_the_place() {
        refused(r#"{"actions":[],"tenant":"x"}"#, "/tenant");
        refused(
            &format!("[{HOLD},{}]", HOLD.replace("SO-1:hold", "\\u0000")),
            "/1/idempotency_key",
        );
        refused(
            &format!("[{}]", HOLD.replace("orders.hold", "Orders.Hold")),
            "/0/tool",
        );
        refused(
            &format!("[{}]", HOLD.replace("\"args\":", "\"read\":true,\"args\":")),
            "/0/read",
        );
        refused(
            &format!("[{}]", HOLD.replace("{\"order\":\"SO-1\"}", "[]")),
            "/0/args",
        );
        refused(
            &format!("[{}]", HOLD.replace("\"args\"", "\"value\":\"9\",\"args\"")),
            "/0/value",
        );
        refused(
            &format!(
                r#"{{"actions":[{}]}}"#,
                HOLD.replace("\"args\"", "\"revision\":-1,\"args\"")
            ),
            "/actions/0/revision",
        );
        let big = format!(
            "[{}]",
            HOLD.replace("SO-1\"}", &format!("{}\"}}", "x".repeat(1 << 20)))
        );
        refused(&big, "/0/args");
        refused(&format!("[{}]", vec![HOLD; 10_001].join(",")), "/actions");
    }

    #[test]
    fn a_plan_over_its_size_is_refused_unread() {
        refused(&" ".repeat(PLAN_BYTES_MAX + 1), "/");
    }
}
