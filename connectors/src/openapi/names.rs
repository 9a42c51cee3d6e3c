//! Names of ours for what a document calls otherwise: tools and arguments.
//!
//! Owns the spelling. It must not know what a name stands for.

use std::collections::BTreeSet;

use serde_json::Value;

use operators_kernel::{NAME_BYTES_MAX, ToolName};

use crate::openapi::document::Found;

/// A tool's name from the operation's, or from method and path; each is given once.
pub(crate) fn name(found: &Found<'_>, taken: &mut BTreeSet<ToolName>) -> Result<ToolName, String> {
    let given = found.body.get("operationId").and_then(Value::as_str);
    let wished = match given {
        Some(given) => tool_name(given),
        None => tool_name(&format!("{} {}", found.method.to_lowercase(), found.path)),
    };
    let wished = if wished.is_empty() { "tool" } else { &wished };
    for number in 1..=taken.len() + 1 {
        let end = if number == 1 {
            String::new()
        } else {
            format!("-{number}")
        };
        let room = NAME_BYTES_MAX.saturating_sub(end.len());
        let start = wished.get(..room).unwrap_or(wished);
        let name = ToolName::parse(format!("{start}{end}")).map_err(|error| error.to_string())?;
        if taken.insert(name.clone()) {
            return Ok(name);
        }
    }
    Err("no name is left for it".to_owned())
}

/// `getOrderById` is `get_order_by_id`, `orders/get` is `orders.get`.
fn tool_name(text: &str) -> String {
    let mut name = String::new();
    let mut before = '.';
    for c in text.chars() {
        let mapped = match c {
            'a'..='z' | '0'..='9' | '_' | '-' => c,
            'A'..='Z' => {
                if before.is_ascii_lowercase() || before.is_ascii_digit() {
                    name.push('_');
                }
                c.to_ascii_lowercase()
            }
            '/' | '.' | ' ' | ':' => '.',
            '{' | '}' => continue,
            _ => '_',
        };
        if !(mapped == '.' && (name.is_empty() || name.ends_with('.'))) {
            name.push(mapped);
        }
        before = c;
    }
    name.trim_matches(['.', '_', '-']).to_owned()
}

/// An argument's name: what a placeholder can spell.
pub(crate) fn argument(wire: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name: String = wire
        .chars()
        .map(|c| if plain(c) { c } else { '_' })
        .collect();
    name.trim_matches('_').to_owned()
}
