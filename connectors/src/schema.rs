//! The shape of a tool's arguments: a JSON Schema, compiled once when the configuration loads.
//!
//! Owns the sentences about what does not fit. They name places and limits, never a value: an
//! argument may be secret.

use std::path::Path;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{ValidationError, Validator};
use serde_json::{Map, Value};

use operators_kernel::{ArgsSchema, InvalidArgs, json};

/// The largest schema file: room for any real one.
const SCHEMA_BYTES_MAX: u64 = 1024 * 1024;

/// How much of a schema's own text (allowed values, a pattern) a sentence quotes.
const QUOTE_CHARS_MAX: usize = 120;

/// A compiled schema.
#[derive(Debug)]
pub(crate) struct CompiledSchema {
    validator: Validator,
}

impl CompiledSchema {
    /// Compiles a schema given as a table, or read from the `.json` file that a text names.
    pub(crate) fn load(source: &Value, base_dir: &Path) -> Result<Self, String> {
        match source {
            Value::String(path) => Self::compile(&read(&base_dir.join(path))?),
            Value::Object(_) => Self::compile(source),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                Err("must be a table, or the path of a `.json` file".to_owned())
            }
        }
    }

    /// Compiles a schema.
    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        // References to elsewhere are refused: loading a configuration asks nobody anything.
        let validator = jsonschema::options()
            .offline()
            .build(schema)
            .map_err(|error| {
                let place = error.instance_path().as_str();
                let place = if place.is_empty() { "/" } else { place };
                format!(
                    "not a valid JSON Schema at `{place}`: {}",
                    quote(&error.to_string())
                )
            })?;
        Ok(Self { validator })
    }
}

impl ArgsSchema for CompiledSchema {
    fn check(&self, args: &Map<String, Value>) -> Result<(), InvalidArgs> {
        let instance = Value::Object(args.clone());
        self.validator
            .validate(&instance)
            .map_err(|error| invalid(&error))
    }
}

/// Reads a JSON file strictly, bounded in size.
pub(crate) fn read(path: &Path) -> Result<Value, String> {
    let refuse =
        |problem: &dyn std::fmt::Display| format!("cannot read `{}`: {problem}", path.display());
    let metadata = std::fs::metadata(path).map_err(|error| refuse(&error))?;
    if !metadata.is_file() || metadata.len() > SCHEMA_BYTES_MAX {
        return Err(refuse(&"not a regular file of at most 1 MiB"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| refuse(&error))?;
    json::parse(&text).map_err(|error| refuse(&error))
}

fn invalid(error: &ValidationError<'_>) -> InvalidArgs {
    let mut path = format!("/args{}", error.instance_path());
    let problem = match error.kind() {
        ValidationErrorKind::Required { property } => {
            json::push_segment(&mut path, property.as_str().unwrap_or_default());
            "is required".to_owned()
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            json::push_segment(&mut path, unexpected.first().map_or("", String::as_str));
            "is not an argument of this tool".to_owned()
        }
        kind => sentence(kind),
    };
    InvalidArgs { path, problem }
}

/// What does not fit, in the schema's words only.
fn sentence(kind: &ValidationErrorKind) -> String {
    match kind {
        ValidationErrorKind::Type {
            kind: TypeKind::Single(wanted),
        } => format!("must be of type {wanted}"),
        ValidationErrorKind::Enum { options } => {
            format!("must be one of {}", quote(&options.to_string()))
        }
        ValidationErrorKind::Constant { expected_value } => {
            format!("must be {}", quote(&expected_value.to_string()))
        }
        ValidationErrorKind::Minimum { limit } => format!("must be at least {limit}"),
        ValidationErrorKind::Maximum { limit } => format!("must be at most {limit}"),
        ValidationErrorKind::ExclusiveMinimum { limit } => format!("must be above {limit}"),
        ValidationErrorKind::ExclusiveMaximum { limit } => format!("must be below {limit}"),
        ValidationErrorKind::MinLength { limit } => {
            format!("must have at least {limit} characters")
        }
        ValidationErrorKind::MaxLength { limit } => format!("must have at most {limit} characters"),
        ValidationErrorKind::MinItems { limit } => format!("must have at least {limit} items"),
        ValidationErrorKind::MaxItems { limit } => format!("must have at most {limit} items"),
        ValidationErrorKind::Pattern { pattern } => format!("must match {}", quote(pattern)),
        ValidationErrorKind::Format { format } => format!("must be a valid {}", quote(format)),
        other => format!(
            "does not satisfy `{}` of the tool's schema",
            other.keyword()
        ),
    }
}

fn quote(text: &str) -> String {
    let mut characters = text.chars();
    let mut short: String = characters.by_ref().take(QUOTE_CHARS_MAX).collect();
    if characters.next().is_some() {
        short.push('…');
    }
    format!(
        "`{}`",
        short.escape_debug().to_string().replace("\\\"", "\"")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_violation_names_the_place_and_never_the_value() {
        let schema = CompiledSchema::compile(&json!({
            "type": "object",
            "required": ["order"],
            "additionalProperties": false,
            "properties": {
                "order": {"type": "string", "pattern": "^SO-[0-9]+$"},
                "amount": {"type": "number", "maximum": 10},
                "currency": {"enum": ["EUR", "USD"]},
                "card": {"type": "object", "properties": {"number": {"type": "string", "minLength": 40}}},
                "either": {"anyOf": [{"type": "null"}, {"const": 1}]},
            },
        }))
        .expect("schema");
        let canary = "hunter2-canary";
        let cases = [
            (json!({}), "/args/order", "is required"),
            (
                json!({"order": canary}),
                "/args/order",
                "must match `^SO-[0-9]+$`",
            ),
            (
                json!({"order": "SO-1", "amount": canary}),
                "/args/amount",
                "must be of type number",
            ),
            (
                json!({"order": "SO-1", "amount": 4711}),
                "/args/amount",
                "must be at most 10",
            ),
            (
                json!({"order": "SO-1", "currency": canary}),
                "/args/currency",
                "must be one of `[\"EUR\",\"USD\"]`",
            ),
            (
                json!({"order": "SO-1", "card": {"number": canary}}),
                "/args/card/number",
                "must have at least 40 characters",
            ),
            (
                json!({"order": "SO-1", "either": canary}),
                "/args/either",
                "does not satisfy `anyOf` of the tool's schema",
            ),
            (
                json!({"order": "SO-1", "a/b": canary}),
                "/args/a~1b",
                "is not an argument of this tool",
            ),
        ];
        for (args, path, problem) in cases {
            let args = args.as_object().expect("object");
            let error = schema.check(args).expect_err(path);
            assert_eq!(
                (error.path.as_str(), error.problem.as_str()),
                (path, problem)
            );
            assert!(!error.to_string().contains(canary));
        }
        let good = json!({"order": "SO-1", "amount": 9.5});
        assert_eq!(schema.check(good.as_object().expect("object")), Ok(()));
    }

    #[test]
    fn a_schema_that_points_elsewhere_is_refused() {
        for schema in [
            json!({"$ref": "https://example.com/s.json"}),
            json!({"$ref": "file:///etc/passwd"}),
        ] {
            assert!(CompiledSchema::compile(&schema).is_err());
        }
    }
}
