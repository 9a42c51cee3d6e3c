//! From the schemas of a document to schemas of ours: self-contained, bounded, and without `null`,
//! which TOML cannot write.
//!
//! Owns what is kept. Whatever is dropped makes a schema wider, never narrower: the vendor has the
//! last word about arguments.

use serde_json::{Map, Value, json};

use crate::openapi::document::Document;

/// How deep a schema is followed, and how many values one may have: references multiply.
const DEPTH_MAX: usize = 12;
const VALUES_MAX: usize = 2_000;

/// Keywords that are taken over as they are.
const PLAIN: [&str; 15] = [
    "type",
    "format",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
];

/// The largest number that JSON keeps exactly.
const NUMBER_MAX: f64 = 9_007_199_254_740_991.0;

/// A schema on its own feet. Beyond the bounds it says nothing more.
pub(crate) fn clean(document: &Document, schema: &Value) -> Result<Value, String> {
    let mut cleaning = Cleaning {
        document,
        left: VALUES_MAX,
    };
    cleaning.schema(schema, DEPTH_MAX)
}

/// The same without patterns, whose dialect may not be ours.
pub(crate) fn without_patterns(schema: Value) -> Value {
    match schema {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(name, value)| !(name == "pattern" && value.is_string()))
            .map(|(name, value)| (name, without_patterns(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_patterns).collect(),
        other => other,
    }
}

struct Cleaning<'a> {
    document: &'a Document,
    left: usize,
}

impl Cleaning<'_> {
    fn schema(&mut self, schema: &Value, depth: usize) -> Result<Value, String> {
        let Some(left) = self.left.checked_sub(1).filter(|_| depth > 0) else {
            return Ok(json!({}));
        };
        self.left = left;
        let Some(fields) = self.document.resolve(schema)?.as_object() else {
            // `true` and `false` are schemas too; the first says nothing.
            return Ok(json!({}));
        };
        let mut kept = Map::new();
        for name in PLAIN {
            if let Some(value) = fields.get(name).filter(|value| is_plain(value)) {
                kept.insert(name.to_owned(), value.clone());
            }
        }
        exclusive(&mut kept, fields);
        for name in ["enum", "required"] {
            let list = fields.get(name).and_then(Value::as_array);
            if let Some(list) = list.filter(|list| !list.is_empty() && list.iter().all(is_plain)) {
                kept.insert(name.to_owned(), json!(list));
            }
        }
        if let Some(value) = fields.get("const").filter(|value| is_plain(value)) {
            kept.insert("const".to_owned(), value.clone());
        }
        if let Some(items) = fields.get("items") {
            kept.insert("items".to_owned(), self.schema(items, depth - 1)?);
        }
        if let Some(Value::Object(properties)) = fields.get("properties") {
            let mut cleaned = Map::new();
            for (name, property) in properties {
                let resolved = self.document.resolve(property)?;
                if resolved.get("readOnly") != Some(&Value::Bool(true)) {
                    cleaned.insert(name.clone(), self.schema(property, depth - 1)?);
                }
            }
            keep_required(&mut kept, properties, &cleaned);
            kept.insert("properties".to_owned(), Value::Object(cleaned));
        }
        match fields.get("additionalProperties") {
            Some(Value::Bool(flag)) => {
                kept.insert("additionalProperties".to_owned(), json!(flag));
            }
            Some(more @ Value::Object(_)) => {
                let more = self.schema(more, depth - 1)?;
                kept.insert("additionalProperties".to_owned(), more);
            }
            _ => {}
        }
        for name in ["allOf", "anyOf", "oneOf"] {
            if let Some(Value::Array(parts)) = fields.get(name) {
                let parts = parts.iter().map(|part| self.schema(part, depth - 1));
                let parts = parts.collect::<Result<Vec<_>, _>>()?;
                if !parts.is_empty() {
                    // Parts that were cut short may overlap where the whole ones did not.
                    let name = if name == "oneOf" { "anyOf" } else { name };
                    kept.entry(name).or_insert(Value::Array(parts));
                }
            }
        }
        nullable(&mut kept, fields);
        Ok(Value::Object(kept))
    }
}

/// What the server alone writes cannot be required of a caller.
fn keep_required(
    kept: &mut Map<String, Value>,
    all: &Map<String, Value>,
    left: &Map<String, Value>,
) {
    if let Some(Value::Array(required)) = kept.get_mut("required") {
        required.retain(|name| {
            let name = name.as_str().unwrap_or_default();
            !all.contains_key(name) || left.contains_key(name)
        });
    }
}

/// Whether TOML can write it and JSON keeps it.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => number.as_f64().is_some_and(|n| n.abs() <= NUMBER_MAX),
        Value::Array(items) => items.iter().all(is_plain),
        Value::Object(fields) => fields.values().all(is_plain),
    }
}

/// In version 3.0 these are switches beside `minimum` and `maximum`.
fn exclusive(kept: &mut Map<String, Value>, fields: &Map<String, Value>) {
    for (switch, bound) in [
        ("exclusiveMinimum", "minimum"),
        ("exclusiveMaximum", "maximum"),
    ] {
        let Some(Value::Bool(on)) = fields.get(switch) else {
            continue;
        };
        kept.remove(switch);
        if *on && let Some(value) = kept.remove(bound) {
            kept.insert(switch.to_owned(), value);
        }
    }
}

/// In version 3.0 a switch, in 3.1 a type of its own; `enum` must not forbid it again.
fn nullable(kept: &mut Map<String, Value>, fields: &Map<String, Value>) {
    if fields.get("nullable") != Some(&Value::Bool(true)) {
        return;
    }
    kept.remove("enum");
    if let Some(Value::String(kind)) = kept.get("type") {
        let kinds = json!([kind, "null"]);
        kept.insert("type".to_owned(), kinds);
    }
}
