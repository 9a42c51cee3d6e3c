//! One operation as a tool: its name, its effect class, its templates and its argument schema.
//!
//! Owns the decisions of an import. What our configuration cannot say is an error or a remark.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use operators_kernel::{ConnectorName, ToolName};

use crate::openapi::document::{Document, Found};
use crate::openapi::names::{argument, name};
use crate::openapi::{key, one_line, quoted, schema};
use crate::schema::CompiledSchema;

/// Headers that a parameter cannot set, as the standard says.
const HEADERS_IGNORED: [&str; 3] = ["accept", "content-type", "authorization"];

/// The header of vendors that honour keys.
const KEY_HEADER: &str = "idempotency-key";

/// A tool in the making.
#[derive(Debug)]
pub(crate) struct Operation {
    name: ToolName,
    summary: String,
    method: String,
    path: String,
    /// Parameters and the arguments they take; so are headers.
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    has_body: bool,
    /// The body is not all of the arguments.
    shares_args: bool,
    /// The body is a form, not JSON.
    is_form: bool,
    schema: Option<Value>,
    pub(crate) remarks: Vec<String>,
}

/// The arguments as they are collected.
#[derive(Debug, Default)]
struct Args {
    properties: Map<String, Value>,
    required: BTreeSet<String>,
    /// Whether names that nobody spoke of may come, too.
    open: bool,
    /// A body that is more than a list of properties.
    also: Option<Value>,
}

impl Operation {
    pub(crate) fn read(
        document: &Document,
        found: &Found<'_>,
        taken: &mut BTreeSet<ToolName>,
    ) -> Result<Self, String> {
        if matches!(found.method.as_str(), "OPTIONS" | "TRACE") {
            return Err("the method is none of ours".to_owned());
        }
        let mut operation = Self {
            name: name(found, taken)?,
            summary: found
                .body
                .get("summary")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            method: found.method.clone(),
            path: found.path.to_owned(),
            query: Vec::new(),
            headers: Vec::new(),
            has_body: false,
            shares_args: false,
            is_form: false,
            schema: None,
            remarks: Vec::new(),
        };
        let mut args = Args::default();
        operation.parameters(document, found, &mut args)?;
        operation.body(document, found, &mut args)?;
        if let Some(left) = operation.path.split(['{', '}']).nth(1)
            && !left.starts_with("args.")
        {
            return Err(format!(
                "`{{{}}}` in its path is no parameter",
                left.escape_debug()
            ));
        }
        operation.schema(args);
        Ok(operation)
    }

    fn parameters(
        &mut self,
        document: &Document,
        found: &Found<'_>,
        args: &mut Args,
    ) -> Result<(), String> {
        let own = found.body.get("parameters").and_then(Value::as_array);
        let mut seen = BTreeSet::new();
        for parameter in own.into_iter().flatten().chain(found.shared) {
            let parameter = document.resolve(parameter)?;
            let of = |field: &str| parameter.get(field).and_then(Value::as_str);
            let (Some(wire), Some(place)) = (of("name"), of("in")) else {
                return Err("a parameter has no name or no place".to_owned());
            };
            if !seen.insert((wire.to_owned(), place.to_owned())) {
                continue;
            }
            let required = parameter.get("required") == Some(&Value::Bool(true));
            let argument = argument(wire);
            match place {
                "path" => {
                    let from = format!("{{{wire}}}");
                    self.path = self.path.replace(&from, &format!("{{args.{argument}}}"));
                }
                "query" if is_repeated(parameter) => {
                    let value = format!("{{args.{argument}}}");
                    self.query.push((wire.to_owned(), value));
                }
                "header" if HEADERS_IGNORED.contains(&wire.to_ascii_lowercase().as_str()) => {
                    continue;
                }
                "header" if wire.eq_ignore_ascii_case(KEY_HEADER) => {
                    self.remarks.push(
                        "takes an `Idempotency-Key`: `effect = \"keyed\"` if the vendor honours it"
                            .to_owned(),
                    );
                    continue;
                }
                "header" if required => {
                    let value = format!("{{args.{argument}}}");
                    self.headers.push((wire.to_owned(), value));
                }
                _ if required => return Err(format!("it needs the {place} `{wire}`")),
                _ => {
                    let remark = format!("the optional {place} parameter `{wire}` is left out");
                    self.remarks.push(remark);
                    continue;
                }
            }
            let content = || parameter.get("content")?.as_object()?.values().next();
            let schema = parameter.get("schema").or_else(|| content()?.get("schema"));
            let cleaned = match schema {
                Some(schema) => schema::clean(document, schema)?,
                None => json!({}),
            };
            args.properties.insert(argument.clone(), cleaned);
            if required || place == "path" {
                args.required.insert(argument);
            }
        }
        Ok(())
    }

    fn body(
        &mut self,
        document: &Document,
        found: &Found<'_>,
        args: &mut Args,
    ) -> Result<(), String> {
        let Some(body) = found.body.get("requestBody") else {
            return Ok(());
        };
        let body = document.resolve(body)?;
        if matches!(self.method.as_str(), "GET" | "HEAD") {
            self.remarks
                .push("its body is left out: a read has none".to_owned());
            return Ok(());
        }
        let content = body.get("content").and_then(Value::as_object);
        let plain = |media: &str| {
            let media = media.split(';').next().unwrap_or_default();
            media.trim().to_owned()
        };
        let of = |fits: &dyn Fn(&str) -> bool| {
            let mut media = content.into_iter().flatten();
            media.find(|(media, _)| fits(&plain(media)))
        };
        let json = of(&|media| media == "application/json" || media.ends_with("+json"));
        let form = || of(&|media| media == "application/x-www-form-urlencoded");
        self.is_form = json.is_none();
        let Some((_, json)) = json.or_else(form) else {
            return Err("its body is neither JSON nor a form".to_owned());
        };
        let cleaned = match json.get("schema") {
            Some(schema) => schema::clean(document, schema)?,
            None => json!({}),
        };
        let is_object = match cleaned.get("type") {
            None => true,
            Some(Value::String(kind)) => kind == "object",
            Some(Value::Array(kinds)) => kinds.contains(&json!("object")),
            Some(_) => false,
        };
        if !is_object {
            return Err("its body is not an object".to_owned());
        }
        self.has_body = true;
        let elsewhere: BTreeSet<String> = args.properties.keys().cloned().collect();
        let both = args.take_body(cleaned);
        let both = elsewhere.iter().find(|name| both.contains(*name));
        self.shares_args = !elsewhere.is_empty() && both.is_none();
        if let Some(name) = both {
            self.remarks.push(format!(
                "`{name}` is asked for in the body and elsewhere: one argument is sent in both"
            ));
        }
        Ok(())
    }

    fn schema(&mut self, args: Args) {
        let whole = args.whole();
        for candidate in [whole.clone(), schema::without_patterns(whole)] {
            if CompiledSchema::compile(&candidate).is_ok() {
                self.schema = Some(candidate);
                return;
            }
        }
        let remark = "its argument schema cannot be used and is left out";
        self.remarks.push(remark.to_owned());
    }

    /// The tool's table, under a line that says what it is.
    pub(crate) fn toml(&self, connector: &ConnectorName) -> String {
        let mut text = format!(
            "\n# {} {}{}\n[connectors.{}.tools.{}]\n",
            self.method,
            one_line(&self.path),
            match one_line(&self.summary) {
                summary if summary.is_empty() => String::new(),
                summary => format!(": {summary}"),
            },
            key(connector.as_str()),
            quoted(self.name.as_str())
        );
        let effect = if self.method == "GET" {
            "read"
        } else {
            "opaque"
        };
        let mut line = |name: &str, value: &str| {
            // Writing to a String cannot fail.
            let _infallible = writeln!(text, "{name} = {value}");
        };
        line("effect", &quoted(effect));
        line("method", &quoted(&self.method));
        line("path", &quoted(&self.path));
        for (name, pairs) in [("query", &self.query), ("headers", &self.headers)] {
            let pairs = pairs.iter();
            let pairs = pairs.map(|(name, value)| format!("{} = {}", key(name), quoted(value)));
            let pairs: Vec<String> = pairs.collect();
            if !pairs.is_empty() {
                line(name, &format!("{{ {} }}", pairs.join(", ")));
            }
        }
        if !self.has_body && !matches!(self.method.as_str(), "GET" | "HEAD") {
            line("body", "\"none\"");
        } else if self.has_body && self.shares_args {
            line("body", "\"rest\"");
        } else if self.has_body && self.method == "DELETE" {
            line("body", "\"args\"");
        }
        if self.has_body && self.is_form {
            line("encoding", "\"form\"");
        }
        let schema = self.schema.as_ref();
        if let Some(Ok(schema)) = schema.map(toml::Value::try_from) {
            line("args_schema", &schema.to_string());
        }
        text
    }
}

/// Whether a query parameter is one value, or a list that is written as one pair for each item:
/// what a `query` table can say.
fn is_repeated(parameter: &Value) -> bool {
    let schema = parameter.get("schema");
    let is = |wanted: &str| match schema.and_then(|schema| schema.get("type")) {
        Some(Value::String(kind)) => kind == wanted,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == wanted),
        _ => false,
    };
    let style = parameter.get("style").and_then(Value::as_str);
    let is_form = style.is_none_or(|style| style == "form");
    let explodes = parameter.get("explode") != Some(&Value::Bool(false));
    is_form && !is("object") && (explodes || !is("array")) && parameter.get("content").is_none()
}

impl Args {
    /// Properties join the arguments; anything else about the body must hold besides. The names
    /// that the body has, as far as it tells them.
    fn take_body(&mut self, cleaned: Value) -> BTreeSet<String> {
        let Value::Object(mut fields) = cleaned else {
            return BTreeSet::new();
        };
        let listed_there = fields.get("properties").and_then(Value::as_object);
        let in_body: BTreeSet<String> = listed_there
            .into_iter()
            .flat_map(Map::keys)
            .cloned()
            .collect();
        let listed = matches!(fields.get("properties"), Some(Value::Object(_)));
        let only_listed = fields.keys().all(|name| {
            matches!(
                name.as_str(),
                "type" | "properties" | "required" | "additionalProperties"
            )
        });
        let closed = !matches!(
            fields.get("additionalProperties"),
            Some(Value::Bool(true) | Value::Object(_))
        );
        if !(listed && only_listed && closed) {
            self.open = true;
            fields.remove("additionalProperties");
            self.also = Some(Value::Object(fields));
            return in_body;
        }
        if let Some(Value::Array(required)) = fields.remove("required") {
            let names = required.iter().filter_map(Value::as_str);
            self.required.extend(names.map(str::to_owned));
        }
        if let Some(Value::Object(properties)) = fields.remove("properties") {
            self.properties.extend(properties);
        }
        in_body
    }

    fn whole(self) -> Value {
        let mut whole = json!({
            "type": "object",
            "properties": self.properties,
            "required": self.required,
        });
        if let Value::Object(fields) = &mut whole {
            if let Some(also) = self.also {
                fields.insert("allOf".to_owned(), json!([also]));
            }
            if !self.open {
                fields.insert("additionalProperties".to_owned(), json!(false));
            }
        }
        whole
    }
}
