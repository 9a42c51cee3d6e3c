//! How a tool's answers are read: which statuses mean what, and what is taken from a body.
//!
//! Owns the compiled mapping. It must not know sockets: `outcome` reads the answer.

use serde_json::Value;

use operators_kernel::{Call, Effect};

use crate::config::{ConditionConfig, ConnectorConfig, Statuses, ToolConfig};
use crate::hidden::Hidden;
use crate::http::condition::Condition;
use crate::pointer::{EffectIdAt, Pointer};
use crate::registry::{Place, RegistryError};
use crate::size::{ANSWER_DEFAULT, SizeText};

/// A proxy says it too, about a request it passed on: never a refusal unless listed by itself.
const REQUEST_TIMEOUT: u16 = 408;

/// What a status means by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    Applied,
    NotApplied,
    Unknown,
}

/// A tool's mapping of answers.
#[derive(Debug)]
pub(crate) struct Reading {
    applied: Option<Statuses>,
    not_applied: Option<Statuses>,
    pub(crate) applied_if: Option<Condition>,
    pub(crate) not_applied_if: Option<Condition>,
    pub(crate) already_applied: Option<Condition>,
    pub(crate) take: Take,
    /// The largest body taken in.
    pub(crate) max_answer: SizeText,
}

impl Reading {
    pub(crate) fn compile(
        config: &ConnectorConfig,
        tool: &ToolConfig,
        place: &Place,
    ) -> Result<Self, RegistryError> {
        let statuses = |field: &str, text: &Option<String>| {
            let parsed = text.as_deref().map(Statuses::parse).transpose();
            parsed.map_err(|problem| place.refuse(field, problem))
        };
        let reading = Self {
            applied: statuses("applied", &tool.applied)?,
            not_applied: statuses("not_applied", &tool.not_applied)?,
            applied_if: condition("applied_if", tool.applied_if.as_ref(), place)?,
            not_applied_if: condition("not_applied_if", tool.not_applied_if.as_ref(), place)?,
            already_applied: condition("already_applied", tool.already_applied.as_ref(), place)?,
            max_answer: config.max_answer.unwrap_or(ANSWER_DEFAULT),
            take: Take::compile(tool.result.as_deref(), tool.effect_id.as_deref(), place)?,
        };
        if let Some(contradiction) = reading.contradiction() {
            let problem = format!("`{contradiction}` stands in `applied` too; decide for one");
            return Err(place.refuse("not_applied", problem));
        }
        Ok(reading)
    }

    /// What a status means. A code listed by itself comes before its hundred.
    pub(crate) fn meaning(&self, status: u16) -> Meaning {
        if lists(self.applied.as_ref(), status, &[]) {
            return Meaning::Applied;
        }
        if lists(self.not_applied.as_ref(), status, &[500]) {
            return Meaning::NotApplied;
        }
        if lists_hundred(self.applied.as_ref(), status, 2) {
            return Meaning::Applied;
        }
        if lists_hundred(self.not_applied.as_ref(), status, 4) && status != REQUEST_TIMEOUT {
            return Meaning::NotApplied;
        }
        Meaning::Unknown
    }

    /// Whether a condition looks into the body of an answer with this status.
    pub(crate) fn looks_into(&self, status: u16) -> bool {
        [&self.not_applied_if, &self.already_applied]
            .into_iter()
            .flatten()
            .any(|condition| condition.covers(status) && condition.looks())
    }

    fn contradiction(&self) -> Option<String> {
        let (applied, not_applied) = (self.applied.as_ref(), self.not_applied.as_ref());
        let both =
            |status: &u16| lists(applied, *status, &[]) && lists(not_applied, *status, &[500]);
        if let Some(status) = (200..600).find(both) {
            return Some(status.to_string());
        }
        let both = |hundred: &u16| {
            lists_hundred(applied, hundred * 100, 2) && lists_hundred(not_applied, hundred * 100, 4)
        };
        (2..6).find(both).map(|hundred| format!("{hundred}xx"))
    }
}

/// What is taken from the body of an answer that says "applied".
#[derive(Debug)]
pub(crate) struct Take {
    result: Option<Pointer>,
    effect_id: EffectIdAt,
}

impl Take {
    pub(crate) fn compile(
        result: Option<&str>,
        effect_id: Option<&str>,
        place: &Place,
    ) -> Result<Self, RegistryError> {
        let pointer = |field: &str, text: &str| {
            Pointer::parse(text).map_err(|problem| place.refuse(field, problem))
        };
        Ok(Self {
            result: result.map(|text| pointer("result", text)).transpose()?,
            effect_id: EffectIdAt::compile(effect_id, place)?,
        })
    }

    /// The effect as the body tells it, without what is hidden. What is not there is null: the
    /// effect happened all the same.
    pub(crate) fn effect(&self, body: Value, hidden: &Hidden) -> Effect {
        let body = hidden.blank_value(body);
        let effect_id = self.effect_id.take(&body);
        let result = match &self.result {
            None => body,
            Some(pointer) => pointer.find(&body).cloned().unwrap_or(Value::Null),
        };
        Effect {
            result: result.into(),
            effect_id,
        }
    }
}

/// Compiles a condition of that name.
pub(crate) fn condition(
    field: &str,
    config: Option<&ConditionConfig>,
    place: &Place,
) -> Result<Option<Condition>, RegistryError> {
    let Some(config) = config else {
        return Ok(None);
    };
    let condition = Condition::compile(config).map_err(|problem| place.refuse(field, problem))?;
    Ok(Some(condition))
}

/// Whether a condition holds; a missing one never does.
pub(crate) fn holds(
    condition: Option<&Condition>,
    call: &Call,
    status: u16,
    body: &Result<Value, String>,
) -> Result<bool, String> {
    condition.map_or(Ok(false), |condition| condition.holds(call, status, body))
}

fn lists(listed: Option<&Statuses>, status: u16, default: &[u16]) -> bool {
    listed.map_or_else(|| default.contains(&status), |listed| listed.lists(status))
}

fn lists_hundred(listed: Option<&Statuses>, status: u16, default: u16) -> bool {
    listed.map_or_else(
        || status / 100 == default,
        |listed| listed.lists_hundred(status),
    )
}
