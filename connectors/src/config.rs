//! What a configuration may say about connectors and their tools.
//!
//! Owns the words and the shape; `registry` decides which of them go together. The types are flat
//! on purpose: a tagged enum would be read through a buffer, and errors would lose their line.

mod answer;
mod auth;

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::{Map, Value};

use operators_kernel::{OnUnknown, ToolName};

use crate::duration::DurationText;
use crate::size::SizeText;

pub use answer::{ConditionConfig, ProbeConfig, Statuses};
pub use auth::{AuthConfig, BasicConfig, ClientAuth, Oauth2Config, SigV4Config};

/// One `[connectors.NAME]` table. Fields that do not belong to its `kind` are refused by
/// [`Registry::build`](crate::Registry::build).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectorConfig {
    /// Which kind of system it talks to.
    pub kind: ConnectorKind,
    /// Whether it is reached at all. Default `live`.
    #[serde(default)]
    pub mode: ModeWord,
    /// `mode = "stub"` only: a JSON file with an answer per tool, relative to the project. What it
    /// does not name is answered with its own arguments.
    #[serde(default)]
    pub answers: Option<String>,
    /// The deadline of a call, unless the tool says otherwise. Default `30s`.
    #[serde(default)]
    pub timeout: Option<DurationText>,
    /// `http`: where the vendor is; scheme, host, port and path prefix of every request.
    #[serde(default)]
    pub base_url: Option<String>,
    /// `http`: whether loopback, private and other internal addresses may be called.
    #[serde(default)]
    pub allow_private_addresses: Option<bool>,
    /// `http`: headers of every request; a tool's own header of the same name wins.
    #[serde(default)]
    pub headers: BTreeMap<String, HeaderText>,
    /// `http`: how requests are let in.
    #[serde(default)]
    pub auth: Option<AuthConfig>,
    /// `http`: a PEM file, relative to the project, with the only authorities that are trusted.
    #[serde(default)]
    pub ca_file: Option<String>,
    /// `http`: a path whose `GET` tells whether the vendor is well; a 2xx means that it is.
    #[serde(default)]
    pub check: Option<String>,
    /// `file`: the file to append to, relative to the project.
    #[serde(default)]
    pub path: Option<String>,
    /// `mcp`: the server, if it is a program of ours: its name and arguments.
    #[serde(default)]
    pub argv: Option<Vec<String>>,
    /// `mcp`: the server's address, if it is behind one. `sql`: `store`, `sqlite:PATH`,
    /// `postgres://…` or `secret:NAME`.
    #[serde(default)]
    pub url: Option<HeaderText>,
    /// `mcp`: whether a server's word that a tool only reads is believed. Default no.
    #[serde(default)]
    pub trust_read_hints: Option<bool>,
    /// `command`, `mcp`: the folder programs run in, relative to the project. Default: the project.
    #[serde(default)]
    pub dir: Option<String>,
    /// `command`, `mcp`: the variables that programs inherit, and no others. Default `["PATH"]`.
    #[serde(default)]
    pub env: Option<Vec<String>>,
    /// `command`, `mcp`: variables with a value of their own, or `secret:NAME`.
    #[serde(default)]
    pub variables: BTreeMap<String, HeaderText>,
    /// `command`, `mcp`: the program `operators`, which ends programs in time also where the process that
    /// started them cannot. A name, or a path relative to the project. `operators` itself is taken where
    /// it runs the project; where a program embeds it and says nothing, there is none.
    #[serde(default)]
    pub supervisor: Option<String>,
    /// `http`, `command`: the largest answer taken in. Default `1MiB`, at most `16MiB`.
    #[serde(default)]
    pub max_answer: Option<SizeText>,
    /// The tools, by name.
    #[serde(default)]
    pub tools: BTreeMap<ToolName, ToolConfig>,
}

impl ConnectorConfig {
    /// A connector of that kind that says nothing else and has no tools yet.
    pub fn new(kind: ConnectorKind) -> Self {
        Self {
            kind,
            mode: ModeWord::Live,
            answers: None,
            timeout: None,
            base_url: None,
            allow_private_addresses: None,
            headers: BTreeMap::new(),
            auth: None,
            ca_file: None,
            check: None,
            path: None,
            argv: None,
            url: None,
            trust_read_hints: None,
            dir: None,
            env: None,
            variables: BTreeMap::new(),
            supervisor: None,
            max_answer: None,
            tools: BTreeMap::new(),
        }
    }
}

/// One `[connectors.NAME.tools."TOOL"]` table.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolConfig {
    /// What is known about repeating it. Left out: `opaque`, or `probeable` for `file`.
    #[serde(default)]
    pub effect: Option<EffectWord>,
    /// `keyed` only: for how long the vendor remembers a key. Default `24h`.
    #[serde(default)]
    pub window: Option<DurationText>,
    /// The deadline of one call; the connector's when left out.
    #[serde(default)]
    pub timeout: Option<DurationText>,
    /// How long after its deadline an abandoned request may still land. Default `30s`, `0s` for
    /// `file`.
    #[serde(default)]
    pub max_land: Option<DurationText>,
    /// What a doubt leads to. Default `hold`.
    #[serde(default)]
    pub on_unknown: Option<OnUnknown>,
    /// Arguments that are never shown, as dotted paths.
    #[serde(default)]
    pub secret_args: Vec<String>,
    /// A JSON Schema for the arguments: a table, or the path of a `.json` file.
    #[serde(default)]
    pub args_schema: Option<Value>,
    /// `http`: the method. Default `POST`, `GET` for a read.
    #[serde(default)]
    pub method: Option<String>,
    /// `http`: the template of path and query.
    #[serde(default)]
    pub path: Option<String>,
    /// `http`: whether the path is a credential itself, as a webhook's is. It is blanked out of
    /// messages, and they do not name it. For programs: a file that holds it holds a credential.
    #[serde(skip)]
    pub secret_path: bool,
    /// `http`: query parameters by name; a text may be a template. One that is an argument and
    /// nothing else is left out with it, and repeated for a list.
    #[serde(default)]
    pub query: Map<String, Value>,
    /// `http`: headers of this tool's requests.
    #[serde(default)]
    pub headers: BTreeMap<String, HeaderText>,
    /// `http`: what the body is. Default `args` for `POST`, `PUT` and `PATCH`.
    #[serde(default)]
    pub body: Option<BodySource>,
    /// `http`, `keyed` only: the header that carries the downstream key. Default
    /// `Idempotency-Key`.
    #[serde(default)]
    pub key_header: Option<String>,
    /// `http`: how the body is written. Default `json`.
    #[serde(default)]
    pub encoding: Option<BodyEncoding>,
    /// `http`: what an applied answer must say besides; if it does not, the outcome is unknown.
    #[serde(default)]
    pub applied_if: Option<ConditionConfig>,
    /// `http`: an answer that means that it did not happen, whatever its status.
    #[serde(default)]
    pub not_applied_if: Option<ConditionConfig>,
    /// `http`: an answer that means that this very effect had happened before.
    #[serde(default)]
    pub already_applied: Option<ConditionConfig>,
    /// `http`: where the result stands in the answer, as a JSON pointer. Default: the whole answer.
    #[serde(default)]
    pub result: Option<String>,
    /// `command`: the program and its arguments; each text is exactly one argument.
    #[serde(default)]
    pub argv: Option<Vec<String>>,
    /// The statuses of `http` (default `2xx`) or the exit codes of `command` (default `0`) that
    /// say it happened.
    #[serde(default)]
    pub applied: Option<String>,
    /// The statuses of `http` (default `4xx, 500`) or the exit codes of `command` (default: none)
    /// that say nothing happened. What stands in neither is unknown.
    #[serde(default)]
    pub not_applied: Option<String>,
    /// `command`: what stdout is. Default `json`.
    #[serde(default)]
    pub output: Option<OutputForm>,
    /// Where the id of the effect stands, as a JSON pointer: in the answer of `http`, in the result
    /// of `command`. Default `/id`.
    #[serde(default)]
    pub effect_id: Option<String>,
    /// `probeable` only: how to ask whether it happened.
    #[serde(default)]
    pub probe: Option<ProbeConfig>,
    /// `mcp`: the tool's name at the server. Default: its name here.
    #[serde(default)]
    pub remote: Option<String>,
    /// `mcp`: what a tool's own error says about the effect. Default `unknown`.
    #[serde(default)]
    pub tool_error: Option<ToolErrorWord>,
    /// `sql`: the statement, with `{args.NAME}` where a value is bound.
    #[serde(default)]
    pub statement: Option<String>,
    /// `sql`: how many rows it must change; any other number is rolled back.
    #[serde(default)]
    pub expect_rows: Option<u64>,
}

/// What the error of an MCP tool says about its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolErrorWord {
    /// Nothing: it may have been half done.
    #[default]
    Unknown,
    /// That there is none.
    NotApplied,
}

/// What a program writes to stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputForm {
    /// One JSON value, or nothing.
    #[default]
    Json,
    /// A text.
    Text,
}

/// The kinds, as messages list them.
const KINDS: &str = "`http`, `file`, `command`, `mcp` and `sql`";

/// The kinds of system that can be talked to in this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum ConnectorKind {
    /// A vendor's HTTP interface.
    Http,
    /// A local file that gets one line per effect.
    File,
    /// Programs of this machine.
    Command,
    /// A server of the Model Context Protocol.
    Mcp,
    /// A database.
    Sql,
}

impl ConnectorKind {
    /// The word in configuration and listings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::File => "file",
            Self::Command => "command",
            Self::Mcp => "mcp",
            Self::Sql => "sql",
        }
    }
}

impl TryFrom<String> for ConnectorKind {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        match word.as_str() {
            "http" => Ok(Self::Http),
            "file" => Ok(Self::File),
            "command" => Ok(Self::Command),
            "mcp" => Ok(Self::Mcp),
            "sql" => Ok(Self::Sql),
            _ => Err(format!(
                "unknown connector kind `{}`; there are {KINDS}",
                word.escape_debug()
            )),
        }
    }
}

/// Whether a connector is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModeWord {
    /// It is.
    #[default]
    Live,
    /// Answers come from a file, or are echoes; nothing outside changes.
    Stub,
}

/// The effect classes as configuration writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum EffectWord {
    /// No effect at all.
    Read,
    /// Safe to repeat.
    Idempotent,
    /// The vendor honours the downstream key.
    Keyed,
    /// The connector can ask whether it happened.
    Probeable,
    /// A statement in the store's own transaction.
    Transactional,
    /// Nothing is known.
    Opaque,
}

impl TryFrom<String> for EffectWord {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        match word.as_str() {
            "read" => Ok(Self::Read),
            "idempotent" => Ok(Self::Idempotent),
            "keyed" => Ok(Self::Keyed),
            "probeable" => Ok(Self::Probeable),
            "opaque" => Ok(Self::Opaque),
            "transactional" => Ok(Self::Transactional),
            _ => Err(format!(
                "unknown effect `{}`; there are `read`, `idempotent`, `keyed`, `probeable`, \
                 `transactional` and `opaque`",
                word.escape_debug()
            )),
        }
    }
}

/// Where the body of an HTTP request comes from.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub enum BodySource {
    /// The arguments, as an object.
    Args,
    /// The arguments that stand neither in the path nor in the query nor in a header.
    Rest,
    /// No body.
    None,
    /// A table whose texts are templates; a text that is one placeholder keeps its value's type.
    Template(Map<String, Value>),
}

impl TryFrom<Value> for BodySource {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match value {
            Value::String(word) if word == "args" => Ok(Self::Args),
            Value::String(word) if word == "rest" => Ok(Self::Rest),
            Value::String(word) if word == "none" => Ok(Self::None),
            Value::Object(fields) => Ok(Self::Template(fields)),
            _ => Err(
                "a body is `\"args\"`, `\"rest\"`, `\"none\"` or a table of templates".to_owned(),
            ),
        }
    }
}

/// How the body of an HTTP request is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BodyEncoding {
    /// As a JSON object.
    #[default]
    Json,
    /// As a form; what is inside something else is written `outer[inner]`.
    Form,
}

/// The text of a header: a template, or exactly `secret:NAME`.
///
/// It prints as nothing, because people do put credentials here.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct HeaderText(String);

impl HeaderText {
    /// Takes a header text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for HeaderText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeaderText(…)")
    }
}
