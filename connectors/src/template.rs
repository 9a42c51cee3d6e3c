//! Templates: texts with `{args.a.b}` and `{action.entity_key}` in them, checked when they load.
//!
//! Owns what a placeholder may name and what value it may take. It must not know where the text
//! goes: the caller escapes.

use serde_json::Value;

use operators_kernel::Call;

/// The placeholders, as messages list them.
const KNOWN: &str = "`{args.NAME}`, `{action.tool}`, `{action.entity_key}`, \
                     `{action.idempotency_key}` and `{action.downstream_key}`";

/// A parsed template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// Text that goes out as it stands.
    Literal(String),
    /// A value of the call.
    Placeholder(Placeholder),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Placeholder {
    Arg(Vec<String>),
    Tool,
    EntityKey,
    IdempotencyKey,
    DownstreamKey,
}

impl Template {
    /// Parses a template; the error says what is wrong and what would be right.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (literal, from_brace) = rest.split_at(at);
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.to_owned()));
            }
            let Some((inside, after)) = from_brace
                .strip_prefix('{')
                .and_then(|open| open.split_once('}'))
            else {
                return Err(format!(
                    "a brace without its partner; placeholders are {KNOWN}"
                ));
            };
            parts.push(Part::Placeholder(Placeholder::parse(inside)?));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        Ok(Self { parts })
    }

    /// A text that stands for itself, braces included.
    pub(crate) fn literal(text: &str) -> Self {
        Self {
            parts: vec![Part::Literal(text.to_owned())],
        }
    }

    /// The placeholder that it begins with, if it does.
    pub(crate) fn leading_placeholder(&self) -> Option<&Placeholder> {
        match self.parts.first() {
            Some(Part::Placeholder(placeholder)) => Some(placeholder),
            Some(Part::Literal(_)) | None => None,
        }
    }

    /// Fills the template in, passing each value (not the literals) through `escape`.
    pub(crate) fn render(
        &self,
        call: &Call,
        escape: impl Fn(&Placeholder, &str) -> Result<String, String>,
    ) -> Result<String, String> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(literal) => text.push_str(literal),
                Part::Placeholder(placeholder) => {
                    text.push_str(&escape(placeholder, &placeholder.value(call)?)?);
                }
            }
        }
        Ok(text)
    }

    /// Its texts and placeholders, in order.
    #[cfg(feature = "sql")]
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter()
    }

    /// The texts between placeholders.
    pub(crate) fn literals(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Literal(literal) => Some(literal.as_str()),
            Part::Placeholder(_) => None,
        })
    }

    /// The arguments it takes, as dotted paths.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = String> {
        self.parts.iter().filter_map(|part| match part {
            Part::Placeholder(Placeholder::Arg(path)) => Some(path.join(".")),
            Part::Placeholder(_) | Part::Literal(_) => None,
        })
    }

    /// The placeholder, when it is the whole text.
    pub(crate) fn as_placeholder(&self) -> Option<&Placeholder> {
        match self.parts.as_slice() {
            [Part::Placeholder(placeholder)] => Some(placeholder),
            _ => None,
        }
    }

    /// The text of a call, with nothing escaped.
    pub(crate) fn render_plain(&self, call: &Call) -> Result<String, String> {
        self.render(call, |_, value| Ok(value.to_owned()))
    }

    /// The whole text, when it has no placeholder.
    pub(crate) fn as_literal(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Literal(literal)] => Some(literal),
            _ => None,
        }
    }
}

impl Placeholder {
    fn parse(inside: &str) -> Result<Self, String> {
        match inside {
            "action.tool" => return Ok(Self::Tool),
            "action.entity_key" => return Ok(Self::EntityKey),
            "action.idempotency_key" => return Ok(Self::IdempotencyKey),
            "action.downstream_key" => return Ok(Self::DownstreamKey),
            _ => {}
        }
        match inside.strip_prefix("args.") {
            Some(path) if path.split('.').all(|name| !name.is_empty()) => {
                Ok(Self::Arg(path.split('.').map(str::to_owned).collect()))
            }
            _ => Err(format!(
                "unknown placeholder `{{{}}}`; there are {KNOWN}",
                inside.escape_debug()
            )),
        }
    }

    /// Its name in messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Arg(path) => format!("args.{}", path.join(".")),
            Self::Tool => "action.tool".to_owned(),
            Self::EntityKey => "action.entity_key".to_owned(),
            Self::IdempotencyKey => "action.idempotency_key".to_owned(),
            Self::DownstreamKey => "action.downstream_key".to_owned(),
        }
    }

    /// Its value with its type: an argument may be anything but missing.
    pub(crate) fn json(&self, call: &Call) -> Result<Value, String> {
        match self {
            Self::Arg(path) => match lookup(call, path) {
                Some(value) => Ok(value.clone()),
                None => Err(format!("`{}` is missing", self.name())),
            },
            Self::Tool | Self::EntityKey | Self::IdempotencyKey | Self::DownstreamKey => {
                self.value(call).map(Value::String)
            }
        }
    }

    /// Whether it is taken from the arguments.
    pub(crate) fn is_argument(&self) -> bool {
        matches!(self, Self::Arg(_))
    }

    /// The argument it names, if it names one that is there.
    pub(crate) fn find<'a>(&self, call: &'a Call) -> Option<&'a Value> {
        match self {
            Self::Arg(path) => lookup(call, path),
            Self::Tool | Self::EntityKey | Self::IdempotencyKey | Self::DownstreamKey => None,
        }
    }

    fn value(&self, call: &Call) -> Result<String, String> {
        match self {
            Self::Arg(path) => scalar(lookup(call, path), &self.name()),
            Self::Tool => Ok(call.tool.to_string()),
            Self::EntityKey => Ok(call.entity_key.to_string()),
            Self::IdempotencyKey => Ok(call.idempotency_key.to_string()),
            Self::DownstreamKey => Ok(call.downstream_key.clone()),
        }
    }
}

/// The object keys of a dotted path.
pub(crate) fn split(path: &str) -> Vec<String> {
    path.split('.').map(str::to_owned).collect()
}

/// Whether one dotted path is the other, or lies inside it.
pub(crate) fn overlap(one: &str, other: &str) -> bool {
    let (one, other) = (split(one), split(other));
    one.iter().zip(&other).all(|(a, b)| a == b)
}

/// The argument at a path of object keys.
pub(crate) fn lookup<'a>(call: &'a Call, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter()
        .try_fold(call.args.get(first)?, |value, name| value.get(name))
}

/// A value as one text; the error names it.
pub(crate) fn scalar(value: Option<&Value>, name: &str) -> Result<String, String> {
    match value {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        Some(Value::Bool(flag)) => Ok(flag.to_string()),
        None | Some(Value::Null) => Err(format!("`{name}` is missing")),
        Some(Value::Array(_) | Value::Object(_)) => {
            Err(format!("`{name}` is not a text, a number or a boolean"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_checked_when_it_is_read() {
        for good in [
            "",
            "plain",
            "{args.a}",
            "a{args.a.b}c{action.tool}",
            "{action.entity_key}",
        ] {
            assert!(Template::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "{",
            "}",
            "{args}",
            "{args.}",
            "{args.a..b}",
            "{action.args}",
            "{}",
            "{{args.a}}",
            "{args.a",
        ] {
            let error = Template::parse(bad).expect_err(bad);
            assert!(error.contains("`{action.downstream_key}`"), "{error}");
        }
    }
}
