//! A tool's `query` table: what stands behind the `?`, a name and its value at a time.
//!
//! Owns what an absent, a single and a listed value become. It must not know paths or bodies.

use serde_json::{Map, Value};

use operators_kernel::Call;

use crate::http::path::escape;
use crate::template::{Template, scalar};

/// A compiled table, in the order of its names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, Source)>);

#[derive(Debug, Clone)]
enum Source {
    Fixed(String),
    Text(Template),
}

impl Query {
    /// Compiles a table; the error names the parameter it is about.
    pub(crate) fn compile(table: &Map<String, Value>) -> Result<Self, (String, String)> {
        let mut compiled = Vec::new();
        for (name, value) in table {
            let source = match value {
                Value::String(text) => Template::parse(text).map(Source::Text),
                Value::Number(_) | Value::Bool(_) => Ok(Source::Fixed(value.to_string())),
                Value::Null | Value::Array(_) | Value::Object(_) => {
                    Err("is not a text, a number or a boolean".to_owned())
                }
            };
            let source = source.map_err(|problem| (name.clone(), problem))?;
            compiled.push((name.clone(), source));
        }
        Ok(Self(compiled))
    }

    /// The arguments it takes, as dotted paths.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = String> {
        let templates = self.0.iter().filter_map(|(_, source)| match source {
            Source::Fixed(_) => None,
            Source::Text(template) => Some(template),
        });
        templates.flat_map(Template::arguments)
    }

    /// The query of a call: what the path brings already, and then this table, percent-encoded.
    pub(crate) fn render(
        &self,
        before: Option<String>,
        call: &Call,
    ) -> Result<Option<String>, String> {
        let mut pairs: Vec<String> = before.into_iter().collect();
        for (name, source) in &self.0 {
            let values = match source {
                Source::Fixed(text) => vec![text.clone()],
                Source::Text(template) => values(template, call)?,
            };
            let pair = |value: &String| format!("{}={}", escape(name), escape(value));
            pairs.extend(values.iter().map(pair));
        }
        Ok((!pairs.is_empty()).then(|| pairs.join("&")))
    }
}

/// What is one argument and nothing else may be absent, which leaves the parameter out, or a list,
/// which repeats it. Text around it makes no sense without it, so there it is needed.
fn values(template: &Template, call: &Call) -> Result<Vec<String>, String> {
    let Some(placeholder) = template.as_placeholder() else {
        return Ok(vec![template.render_plain(call)?]);
    };
    match placeholder.find(call) {
        None | Some(Value::Null) if placeholder.is_argument() => Ok(Vec::new()),
        Some(Value::Array(items)) => {
            let name = placeholder.name();
            let item = |item: &Value| scalar(Some(item), &name);
            items.iter().map(item).collect()
        }
        _ => Ok(vec![template.render_plain(call)?]),
    }
}
