//! The `mcp` connector: a call becomes one `tools/call` of a Model Context Protocol server.
//!
//! `link` is a connection (`stdio` a program of ours, `web` streamable HTTP), `accepted` what a
//! person has accepted of a server, `outcome` the three answers. Whatever a server says about
//! itself is a hint from a stranger: effect classes come from the configuration, a tool that
//! changed since it was accepted is held, and answers are bounded before they are read.

mod accepted;
mod link;
mod outcome;
mod stdio;
mod web;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rmcp::model::{CallToolRequestParams, MetaObject, RequestMetaObject};
use serde_json::{Map, json};
use tokio::sync::Mutex;

use operators_kernel::{
    Call, Connector, ConnectorError, ConnectorName, Health, InvokeOutcome, SecretStore, TenantId,
    ToolName,
};

use crate::config::{ConnectorConfig, EffectWord, ToolConfig, ToolErrorWord};
use crate::hidden::Hidden;
use crate::mcp::accepted::{Accepted, Seen};
use crate::mcp::link::{Link, Waiting, Way};
use crate::pointer::EffectIdAt;
use crate::registry::{Place, RegistryError, effect_word};

/// Where the downstream key stands in a request's `_meta`.
const KEY_META: &str = "operators/idempotency-key";

/// What changed about a server since it was accepted.
pub use accepted::Difference;

/// One tool of a server, compiled.
#[derive(Debug)]
pub(crate) struct McpTool {
    /// Its name at the server.
    remote: String,
    tool_error: ToolErrorWord,
    effect_id: EffectIdAt,
    secret_args: Vec<String>,
    reads: bool,
}

/// Talks to one server.
#[derive(Debug)]
pub(crate) struct McpConnector {
    name: ConnectorName,
    way: Way,
    tools: BTreeMap<ToolName, McpTool>,
    accepted: PathBuf,
    secrets: Arc<dyn SecretStore>,
    // An async lock: whoever connects is awaited, and nobody connects twice.
    links: Mutex<BTreeMap<TenantId, Arc<Link>>>,
}

/// The configuration with what is known of the server: the tools that were accepted and are not
/// listed, and schemas for those that are. Nothing is contacted.
pub(crate) fn with_accepted(
    name: &ConnectorName,
    config: &ConnectorConfig,
    place: &Place,
    base_dir: &Path,
) -> Result<ConnectorConfig, RegistryError> {
    let mut config = config.clone();
    let accepted = Accepted::read(&accepted::path(base_dir, name))
        .map_err(|problem| place.refuse("kind", problem))?;
    let trusts = config.trust_read_hints.unwrap_or(false);
    for (remote, seen) in accepted.iter().flat_map(|accepted| &accepted.tools) {
        let listed = config.tools.iter().find(|(name, tool)| {
            let own = tool.remote.as_deref().unwrap_or(name.as_str());
            own == remote
        });
        let name = match (listed, ToolName::parse(remote)) {
            (Some((name, _)), _) => name.clone(),
            (None, Ok(name)) if !config.tools.contains_key(&name) => name,
            // No name of ours: it is reached only under one that the configuration gives it.
            (None, _) => continue,
        };
        let tool = config.tools.entry(name).or_default();
        if tool.effect.is_none() && trusts && seen.says_it_reads() {
            tool.effect = Some(EffectWord::Read);
        }
        if tool.args_schema.is_none() && seen.has_usable_schema() {
            tool.args_schema = Some(seen.input_schema.clone());
        }
    }
    Ok(config)
}

/// Asks a server what it is now, and takes that as accepted. Says what changed.
pub async fn accept_mcp(
    name: &ConnectorName,
    config: &ConnectorConfig,
    base_dir: &Path,
    secrets: Arc<dyn SecretStore>,
    tenant: &TenantId,
) -> Result<Vec<Difference>, String> {
    let place = Place::connector(name);
    let connector = McpConnector::compile(name, config, &place, base_dir, secrets)
        .map_err(|error| error.to_string())?;
    let patience = crate::registry::TIMEOUT_DEFAULT;
    let link = connector.link(tenant, patience).await?;
    let seen = link.tools(patience).await?;
    let before = Accepted::read(&connector.accepted)?.unwrap_or_default();
    let now = Accepted { tools: seen };
    now.write(&connector.accepted)?;
    Ok(before.differences(&now))
}

impl McpConnector {
    /// Compiles a connector and its tools; nothing is contacted.
    pub(crate) fn compile(
        name: &ConnectorName,
        config: &ConnectorConfig,
        place: &Place,
        base_dir: &Path,
        secrets: Arc<dyn SecretStore>,
    ) -> Result<Self, RegistryError> {
        let way = Way::compile(config, place, base_dir)?;
        let mut tools = BTreeMap::new();
        for (tool_name, tool) in &config.tools {
            let compiled = compile_tool(config, tool_name, tool, &place.tool(tool_name))?;
            tools.insert(tool_name.clone(), compiled);
        }
        Ok(Self {
            name: name.clone(),
            way,
            tools,
            accepted: accepted::path(base_dir, name),
            secrets,
            links: Mutex::default(),
        })
    }

    /// The connection for a tenant, made if there is none that can be used.
    async fn link(&self, tenant: &TenantId, patience: Duration) -> Result<Arc<Link>, String> {
        let mut links = self.links.lock().await;
        if let Some(link) = links.get(tenant).filter(|link| link.is_usable()) {
            return Ok(Arc::clone(link));
        }
        links.remove(tenant);
        let connecting = Link::connect(&self.way, tenant, self.secrets.as_ref());
        let connected = tokio::time::timeout(patience, connecting).await;
        let link = connected.map_err(|_| "the server did not come up in time".to_owned())??;
        let link = Arc::new(link);
        links.insert(tenant.clone(), Arc::clone(&link));
        Ok(link)
    }

    /// The connection, if the tool is there and is what was accepted. An error is one before
    /// anything was sent.
    async fn ready(&self, call: &Call, tool: &McpTool) -> Result<Arc<Link>, String> {
        // Half of the time at most: what is late here is a definite failure, not a doubt.
        let patience = call.deadline / 2;
        let link = self.link(&call.tenant, patience).await?;
        let tools = link.tools(patience).await?;
        let remote = tool.remote.escape_debug();
        let Some(seen) = tools.get(&tool.remote) else {
            return Err(format!("the server has no tool `{remote}`"));
        };
        self.hold_if_changed(&tool.remote, seen, &tools)?;
        Ok(link)
    }

    /// The first look at a server is taken as accepted; after that only a person accepts.
    fn hold_if_changed(
        &self,
        remote: &str,
        seen: &Seen,
        all: &BTreeMap<String, Seen>,
    ) -> Result<(), String> {
        let Some(accepted) = Accepted::read(&self.accepted)? else {
            let first = Accepted { tools: all.clone() };
            return first.write(&self.accepted);
        };
        let changed = match accepted.tools.get(remote) {
            Some(before) if before.digest == seen.digest => return Ok(()),
            Some(before) => before.changes(seen).join(" and "),
            None => "it is new".to_owned(),
        };
        Err(format!(
            "held: the tool `{}` is not what was accepted ({changed}); a person has to look at it",
            remote.escape_debug()
        ))
    }

    async fn call(&self, call: &Call, tool: &McpTool) -> InvokeOutcome {
        let link = match self.ready(call, tool).await {
            Ok(link) => link,
            Err(problem) => {
                let message = format!("`{}` was not sent: {problem}", call.tool);
                return InvokeOutcome::NotApplied(ConnectorError::new(message));
            }
        };
        let mut hidden = Hidden::of(call, &tool.secret_args);
        hidden.add_all(link.hidden());
        let params = params(call, tool);
        if let Err(refused) = call.permit.check() {
            return InvokeOutcome::NotApplied(refused);
        }
        // A caller that leaves at the deadline leaves a server that may hang: the next one gets a
        // new connection.
        let waiting = Waiting::on(&link);
        let answered = link.peer().call_tool_once(params).await;
        let outcome = outcome::of(answered, tool, &call.tool, &hidden);
        waiting.over(&outcome);
        outcome
    }
}

fn params(call: &Call, tool: &McpTool) -> CallToolRequestParams {
    let mut meta = Map::new();
    meta.insert(KEY_META.to_owned(), json!(call.downstream_key));
    let mut params = CallToolRequestParams::new(tool.remote.clone());
    params.meta = Some(RequestMetaObject(MetaObject(meta)));
    params.with_arguments((*call.args).clone())
}

fn compile_tool(
    config: &ConnectorConfig,
    name: &ToolName,
    tool: &ToolConfig,
    place: &Place,
) -> Result<McpTool, RegistryError> {
    let effect = effect_word(config, tool);
    if effect == EffectWord::Probeable {
        return Err(place.refuse(
            "effect",
            "an MCP server cannot be asked whether a call happened; use `keyed` if it honours the \
             key in `_meta`, otherwise `opaque`",
        ));
    }
    let remote = tool.remote.clone().unwrap_or_else(|| name.to_string());
    if remote.is_empty() {
        return Err(place.refuse("remote", "is empty; write the tool's name at the server"));
    }
    Ok(McpTool {
        remote,
        tool_error: tool.tool_error.unwrap_or_default(),
        effect_id: EffectIdAt::compile(tool.effect_id.as_deref(), place)?,
        secret_args: tool.secret_args.clone(),
        reads: effect == EffectWord::Read,
    })
}

#[async_trait]
impl Connector for McpConnector {
    async fn invoke(&self, call: &Call) -> InvokeOutcome {
        let Some(tool) = self.tools.get(&call.tool) else {
            let message = format!("`{}`: the connector has no such tool", call.tool);
            return InvokeOutcome::NotApplied(ConnectorError::new(message));
        };
        match self.call(call, tool).await {
            // A read has no effect, whatever went wrong.
            InvokeOutcome::Unknown(error) if tool.reads => InvokeOutcome::NotApplied(error),
            outcome => outcome,
        }
    }

    /// Greets the server and counts its tools; calls none.
    async fn check(&self, tenant: &TenantId) -> Health {
        let patience = crate::registry::TIMEOUT_DEFAULT;
        let asked = async {
            let tools = self.link(tenant, patience).await?.tools(patience).await?;
            let accepted = Accepted::read(&self.accepted)?;
            let now = Accepted { tools };
            let changed = accepted.map_or(0, |accepted| accepted.differences(&now).len());
            Ok::<_, String>((now.tools.len(), changed))
        };
        match asked.await {
            Ok((count, 0)) => Health::Well(format!("it has {count} tools")),
            Ok((_, changed)) => Health::Ill(ConnectorError::new(format!(
                "{changed} tools are not what was accepted; look at them with `operators \
                 connectors accept {}`",
                self.name
            ))),
            Err(problem) => Health::Ill(ConnectorError::new(problem)),
        }
    }
}
