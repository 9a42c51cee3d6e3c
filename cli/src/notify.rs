//! `[trust.notify]`: the program and the webhook that are told of new alerts and new questions.
//!
//! Owns what the configuration may say about them. Each is a tool of a connector like any other, so
//! it has the same guard, deadline and environment; `deliver` calls it.

mod deliver;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use operators_connectors::duration::{self, DurationText};
use operators_connectors::{ConnectorConfig, Registry, RegistryError};
use operators_kernel::{ConnectorName, Tool, ToolName, ToolRegistry as _};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use crate::compose;
use crate::config::{Address, refusal};
use crate::locate;
use crate::project::Project;

pub(crate) use deliver::Deliveries;

/// How long one try may take when nothing is said.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// How long a run that has ended waits for what is still on its way when nothing is said.
const GRACE_DEFAULT: Duration = Duration::from_secs(2);

/// The longest of either: a person waits at the terminal.
const SPAN_MAX: Duration = Duration::from_mins(1);

/// The tool that tells.
const TOOL: &str = "notice";

/// `[trust.notify]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NotifyConfig {
    /// A program and its arguments, never a shell.
    command: Option<Vec<String>>,
    /// The variables that program sees.
    env: Option<Vec<String>>,
    /// Where to `POST`; such an address is often a credential itself.
    webhook: Option<Address>,
    /// Headers of that request; `secret:NAME` for a credential.
    #[serde(default)]
    headers: BTreeMap<String, Address>,
    /// Whether an internal address may be called.
    #[serde(default)]
    allow_private_addresses: bool,
    /// How long one try may take.
    timeout: Option<DurationText>,
    /// How long a run that has ended waits for what is on its way.
    grace: Option<DurationText>,
}

impl NotifyConfig {
    fn timeout(&self) -> Duration {
        self.timeout.map_or(TIMEOUT_DEFAULT, DurationText::get)
    }

    /// What types alone do not check: the field and the problem.
    fn problem(&self) -> Option<(&'static str, String)> {
        let spans = [("timeout", self.timeout), ("grace", self.grace)];
        for (field, span) in spans {
            if span.is_some_and(|span| span.get() > SPAN_MAX) {
                let longest = duration::format(SPAN_MAX);
                return Some((field, format!("is longer than `{longest}`; write less")));
            }
        }
        match (&self.command, &self.webhook) {
            (None, None) => Some(("", "tells nobody; add `command` or `webhook`".to_owned())),
            (None, _) if self.env.is_some() => {
                Some(("env", "is for a `command`, and there is none".to_owned()))
            }
            (_, None) if !self.headers.is_empty() => Some((
                "headers",
                "are for a `webhook`, and there is none".to_owned(),
            )),
            _ => None,
        }
    }
}

/// One way to tell somebody.
#[derive(Debug)]
pub(crate) struct Channel {
    /// `command` or `webhook`.
    name: &'static str,
    tool: Tool,
}

/// The ways of this project to tell somebody; nothing is started or contacted.
pub(crate) fn channels(project: &Project) -> Result<Vec<Channel>> {
    let Some(config) = &project.config.trust.notify else {
        return Ok(Vec::new());
    };
    let refuse = |field: &str, problem: &str| {
        let place = match field {
            "" => "trust.notify".to_owned(),
            field => format!("trust.notify.{field}"),
        };
        let at = locate::in_toml(&project.text, &place);
        let problem = format!("`{place}` {problem}");
        refusal(&project.config_file(), &project.text, at, &problem)
    };
    if let Some((field, problem)) = config.problem() {
        return Err(refuse(field, &problem));
    }
    let timeout = duration::format(config.timeout());
    let mut channels = Vec::new();
    if let Some(argv) = &config.command {
        let tool = json!({ "argv": argv, "timeout": timeout, "output": "text" });
        let mut connector = json!({ "kind": "command", "tools": { TOOL: tool } });
        if let (Some(env), Some(fields)) = (&config.env, connector.as_object_mut()) {
            fields.insert("env".to_owned(), json!(env));
        }
        let tool =
            build(project, connector)?.map_err(|error| refuse(field(&error), &error.problem))?;
        channels.push(Channel {
            name: "command",
            tool,
        });
    }
    if let Some(webhook) = &config.webhook {
        let (base, path) =
            split(webhook.reveal()).map_err(|problem| refuse("webhook", &problem))?;
        let headers = config.headers.iter();
        let headers: BTreeMap<_, _> = headers.map(|(name, text)| (name, text.reveal())).collect();
        let tool = json!({ "method": "POST", "path": path, "timeout": timeout });
        let connector = json!({
            "kind": "http",
            "base_url": base,
            "allow_private_addresses": config.allow_private_addresses,
            "headers": headers,
            "tools": { TOOL: tool },
        });
        let tool =
            build(project, connector)?.map_err(|error| refuse(field(&error), &error.problem))?;
        channels.push(Channel {
            name: "webhook",
            tool,
        });
    }
    Ok(channels)
}

fn build(project: &Project, connector: Value) -> Result<Result<Tool, RegistryError>> {
    let mut connector: ConnectorConfig = serde_json::from_value(connector)?;
    for tool in connector.tools.values_mut() {
        // Whoever knows the path of a webhook may post there.
        tool.secret_path = true;
    }
    let (name, tool) = (ConnectorName::parse("notify")?, ToolName::parse(TOOL)?);
    let configs = BTreeMap::from([(name.clone(), connector)]);
    let secrets = Arc::new(compose::secrets(project)?);
    let registry = match Registry::build(configs, project.dir(), secrets) {
        Ok(registry) => registry,
        Err(error) => return Ok(Err(error)),
    };
    let tool = registry.tool(&name, &tool);
    Ok(Ok(tool.context("a connector without its tool")?))
}

/// The field of ours that became what the registry refuses.
fn field(error: &RegistryError) -> &'static str {
    let fields = [
        ("argv", "command"),
        ("env", "env"),
        ("headers", "headers"),
        ("timeout", "timeout"),
    ];
    let found = fields
        .iter()
        .find(|(theirs, _)| error.place.contains(theirs));
    found.map_or("webhook", |(_, ours)| ours)
}

/// The address without its path, and the path with its query. The text itself is never repeated.
fn split(webhook: &str) -> Result<(String, String), String> {
    let url = Url::parse(webhook)
        .map_err(|error| format!("is not a URL ({error}); write `https://…`"))?;
    let mut base = url.clone();
    base.set_path("/");
    base.set_query(None);
    let path = match url.query() {
        None => url.path().to_owned(),
        Some(query) => format!("{}?{query}", url.path()),
    };
    match url.fragment() {
        Some(_) => Err("ends with a `#…`, which is never sent; remove it".to_owned()),
        None => Ok((base.to_string(), path)),
    }
}

/// How long a run of this project that has ended waits for what is on its way.
pub(crate) fn grace(project: &Project) -> Duration {
    let config = project.config.trust.notify.as_ref();
    let said = config.and_then(|config| config.grace);
    said.map_or(GRACE_DEFAULT, DurationText::get)
}
