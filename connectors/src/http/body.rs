//! What a request carries: the arguments, or a table of templates, as JSON or as a form.
//!
//! Owns how values are put into a body. It must not know headers, but for the media type.

use std::collections::BTreeSet;

use hyper::Method;
use serde_json::{Map, Value};

use operators_kernel::Call;

use crate::config::{BodyEncoding, BodySource, ToolConfig};
use crate::http::path::escape;
use crate::template::Template;

/// Deeper than any form a vendor takes; a bound on the names that nesting makes.
const FORM_DEPTH_MAX: usize = 8;

/// A compiled body.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    Nothing,
    Args(BodyEncoding),
    /// The arguments without these.
    Rest(BTreeSet<String>, BodyEncoding),
    Template(Node, BodyEncoding),
}

/// A value with templates in it.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    Fixed(Value),
    Text(Template),
    List(Vec<Node>),
    Table(Vec<(String, Node)>),
}

impl Body {
    /// Compiles a tool's body; the error names the field it is about. `elsewhere` are the arguments
    /// that the request carries in another place, as dotted paths.
    pub(crate) fn compile(
        tool: &ToolConfig,
        method: &Method,
        elsewhere: impl Iterator<Item = String>,
    ) -> Result<Self, (&'static str, String)> {
        let bodiless = matches!(*method, Method::GET | Method::HEAD);
        let encoding = tool.encoding.unwrap_or_default();
        let body = match &tool.body {
            Some(BodySource::Args | BodySource::Rest | BodySource::Template(_)) if bodiless => {
                let problem = format!(
                    "`{method}` has no body; name the arguments in `path` or `query`, or use `POST`"
                );
                return Err(("body", problem));
            }
            Some(BodySource::None) => Self::Nothing,
            Some(BodySource::Template(fields)) => {
                let node = Node::of_table(fields).map_err(|problem| ("body", problem))?;
                Self::Template(node, encoding)
            }
            Some(BodySource::Rest) => {
                let whole = |path: String| path.split('.').next().map(str::to_owned);
                Self::Rest(elsewhere.filter_map(whole).collect(), encoding)
            }
            None if bodiless || *method == Method::DELETE => Self::Nothing,
            Some(BodySource::Args) | None => Self::Args(encoding),
        };
        if matches!(body, Self::Nothing) && tool.encoding.is_some() {
            let problem = "there is no body to encode; remove it".to_owned();
            return Err(("encoding", problem));
        }
        Ok(body)
    }

    /// The media type of what is sent.
    pub(crate) fn media(&self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Args(encoding) | Self::Rest(_, encoding) | Self::Template(_, encoding) => {
                Some(match encoding {
                    BodyEncoding::Json => "application/json",
                    BodyEncoding::Form => "application/x-www-form-urlencoded",
                })
            }
        }
    }

    /// The bytes of a call's body. The error is a sentence without any value.
    pub(crate) fn render(&self, call: &Call) -> Result<Option<Vec<u8>>, String> {
        let (value, encoding) = match self {
            Self::Nothing => return Ok(None),
            // The common case, without a copy of the arguments.
            Self::Args(BodyEncoding::Json) => return json(&call.args).map(Some),
            Self::Args(encoding) => (Value::Object((*call.args).clone()), encoding),
            Self::Rest(elsewhere, encoding) => {
                let mut args = (*call.args).clone();
                args.retain(|name, _| !elsewhere.contains(name));
                (Value::Object(args), encoding)
            }
            Self::Template(node, encoding) => (node.render(call)?, encoding),
        };
        let bytes = match encoding {
            BodyEncoding::Json => json(&value),
            BodyEncoding::Form => form(&value),
        };
        bytes.map(Some)
    }
}

impl Node {
    fn compile(value: &Value) -> Result<Self, String> {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(Self::Fixed(value.clone())),
            Value::String(text) => Ok(Self::Text(Template::parse(text)?)),
            Value::Array(items) => {
                let items = items.iter().map(Self::compile);
                Ok(Self::List(items.collect::<Result<_, _>>()?))
            }
            Value::Object(fields) => Self::of_table(fields),
        }
    }

    fn of_table(fields: &Map<String, Value>) -> Result<Self, String> {
        let fields = fields
            .iter()
            .map(|(name, field)| Ok::<_, String>((name.clone(), Self::compile(field)?)));
        Ok(Self::Table(fields.collect::<Result<_, _>>()?))
    }

    fn render(&self, call: &Call) -> Result<Value, String> {
        match self {
            Self::Fixed(value) => Ok(value.clone()),
            Self::Text(template) => match template.as_placeholder() {
                Some(placeholder) => placeholder.json(call),
                None => template.render_plain(call).map(Value::String),
            },
            Self::List(items) => items.iter().map(|item| item.render(call)).collect(),
            Self::Table(fields) => fields
                .iter()
                .map(|(name, field)| Ok((name.clone(), field.render(call)?)))
                .collect(),
        }
    }
}

fn json(value: &impl serde::Serialize) -> Result<Vec<u8>, String> {
    serde_json::to_vec(value).map_err(|error| error.to_string())
}

/// `a=1&b[c]=2&d[0]=3`: the way of PHP, Rails and Stripe to put nested values into a form. Null is
/// left out: a form has no word for it.
pub(crate) fn form(value: &Value) -> Result<Vec<u8>, String> {
    let mut pairs = Vec::new();
    if let Value::Object(fields) = value {
        for (name, field) in fields {
            push(&mut pairs, name, field, 1)?;
        }
    }
    Ok(pairs.join("&").into_bytes())
}

fn push(pairs: &mut Vec<String>, name: &str, value: &Value, depth: usize) -> Result<(), String> {
    if depth > FORM_DEPTH_MAX {
        return Err(format!("the form is nested deeper than {FORM_DEPTH_MAX}"));
    }
    let text = match value {
        Value::Null => return Ok(()),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                push(pairs, &format!("{name}[{at}]"), item, depth + 1)?;
            }
            return Ok(());
        }
        Value::Object(fields) => {
            for (inner, field) in fields {
                push(pairs, &format!("{name}[{inner}]"), field, depth + 1)?;
            }
            return Ok(());
        }
    };
    pairs.push(format!("{}={}", escape(name), escape(&text)));
    Ok(())
}
