//! What a plan must be before any gate sees it, whether it was parsed or built in Rust.
//!
//! A number that two readers read differently would give two actions one fingerprint, so what a
//! strict parse refuses is refused here too, in the same words.

use serde_json::{Map, Value};

use crate::action::{ARGS_BYTES_MAX, ExecutionPlan, PLAN_ACTIONS_MAX, PlannedAction};
use crate::json::{self, JsonError};
use crate::key::KEY_BYTES_MAX;

/// How deep arguments stand in a plan that is a bare array of actions, the shallowest there is.
const ARGS_DEPTH: usize = 2;

/// How many times its [`weight`] a JSON text can be long: a control character is six bytes, a number
/// up to 24.
const BYTES_PER_WEIGHT_MAX: usize = 8;

impl ExecutionPlan {
    /// Checks the plan as a whole; `place` is where its actions stand.
    pub(crate) fn check(&self, place: &str) -> Result<(), JsonError> {
        if self.actions.len() > PLAN_ACTIONS_MAX {
            let count = self.actions.len();
            let problem = format!("{count} actions, at most {PLAN_ACTIONS_MAX}");
            return Err(problem_at("/actions", problem));
        }
        for (index, action) in self.actions.iter().enumerate() {
            action.check().map_err(|error| {
                let mut error = error.below(&index.to_string());
                error.place.insert_str(0, place);
                error
            })?;
        }
        Ok(())
    }
}

impl PlannedAction {
    /// The checks that types alone do not make.
    pub(crate) fn check(&self) -> Result<(), JsonError> {
        let in_args = |error: JsonError| error.below("args");
        json::check_object(&self.args, ARGS_DEPTH).map_err(in_args)?;
        check_size(&self.args).map_err(in_args)?;
        if let Some(value) = &self.value {
            json::check_number(value).map_err(|error| error.below("value"))?;
        }
        for (field, text) in [
            ("/source_id", &self.source_id),
            ("/index_hash", &self.index_hash),
        ] {
            let Some(text) = text else { continue };
            if text.is_empty() || text.len() > KEY_BYTES_MAX || text.chars().any(char::is_control) {
                let problem = format!("1–{KEY_BYTES_MAX} bytes without control characters");
                return Err(problem_at(field, problem));
            }
        }
        let is_beyond = |revision| revision > json::INTEGER_MAX;
        if self.revision.is_some_and(is_beyond) {
            return Err(problem_at("/revision", "beyond 2^53 − 1".to_owned()));
        }
        Ok(())
    }
}

fn problem_at(place: &str, problem: String) -> JsonError {
    JsonError {
        place: place.to_owned(),
        problem,
    }
}

/// Writing all arguments out to count them would cost every small action what only large ones need.
pub(crate) fn check_size(args: &Map<String, Value>) -> Result<(), JsonError> {
    let weight: usize = args.iter().map(|(name, value)| entry(name, value)).sum();
    if weight <= ARGS_BYTES_MAX / BYTES_PER_WEIGHT_MAX {
        return Ok(());
    }
    let bytes = json::canonical(args)?.len();
    if bytes > ARGS_BYTES_MAX {
        let problem = format!("args are {bytes} bytes, at most {ARGS_BYTES_MAX}");
        return Err(problem_at("", problem));
    }
    Ok(())
}

/// About how large a value is; its depth is bounded already.
fn weight(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| weight(item) + 1).sum(),
        Value::Object(object) => object.iter().map(|(name, value)| entry(name, value)).sum(),
    }
}

fn entry(name: &str, value: &Value) -> usize {
    name.len() + 4 + weight(value)
}
