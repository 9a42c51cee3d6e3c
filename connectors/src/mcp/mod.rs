//! The `mcp` connector: a call becomes one `tools/call` of a Model Context Protocol server.
//!
//! `link` is a connection (`stdio` a program of ours with its `lines`, `web` streamable HTTP with its
//! `requests`), `message` one message of a server and `fault` the lack of one, `accepted` what a
//! person has accepted of a server, `outcome` the three answers. Whatever a server says about itself
//! is a hint from a stranger: effect classes come from the configuration, a tool that changed since
//! it was accepted is held, and answers are bounded before they are read.

mod accepted;
mod fault;
mod lines;
mod link;
mod message;
mod outcome;
mod requests;
mod stdio;
mod web;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use rmcp::model::{CallToolRequestParams, MetaObject, RequestMetaObject};
use serde_json::{Map, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use operators_kernel::{
    Call, Connector, ConnectorError, ConnectorName, Health, InvokeOutcome, SecretStore, TenantId,
    ToolName,
};

use crate::config::{ConnectorConfig, EffectWord, ToolConfig, ToolErrorWord};
use crate::hidden::Hidden;
use crate::mcp::accepted::{Accepted, Seen};
use crate::mcp::fault::{Fault, Meaning};
use crate::mcp::link::{Link, Waiting, Way};
use crate::mcp::outcome::Ended;
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
    let (link, seen) = connector
        .seen(tenant, patiently(), &Hidden::without_call())
        .await
        .map_err(|fault| in_words(&fault))?;
    let mut before = Accepted::read(&connector.accepted)?.unwrap_or_default();
    let now = Accepted { tools: seen };
    now.write(&connector.accepted)?;
    let mut differences = before.differences(&now, link.hidden());
    differences.extend(before.complete(&now, link.hidden()).unwrap_or_default());
    Ok(differences)
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
    async fn link(
        &self,
        tenant: &TenantId,
        until: Instant,
        hidden: &Hidden,
    ) -> Result<Arc<Link>, Fault> {
        let connecting = async {
            let mut links = self.links.lock().await;
            if let Some(link) = links.get(tenant).filter(|link| link.is_usable()) {
                return Ok(Arc::clone(link));
            }
            links.remove(tenant);
            let link = Link::connect(&self.way, tenant, self.secrets.as_ref(), hidden).await?;
            let link = Arc::new(link);
            links.insert(tenant.clone(), Arc::clone(&link));
            Ok(link)
        };
        let late = "the server did not come up in time";
        let connected = timeout_at(until, connecting).await;
        connected.unwrap_or_else(|_| Err(Fault::new(Meaning::NotTaken, late)))
    }

    /// The connection, and the server's tools. A session that the server forgot is made anew: all
    /// that was sent is a question.
    async fn seen(
        &self,
        tenant: &TenantId,
        until: Instant,
        hidden: &Hidden,
    ) -> Result<(Arc<Link>, BTreeMap<String, Seen>), Fault> {
        let mut link = self.link(tenant, until, hidden).await?;
        let mut tools = link.tools(until, hidden).await;
        if tools
            .as_ref()
            .is_err_and(|fault| fault.meaning == Meaning::Forgotten)
        {
            link = self.link(tenant, until, hidden).await?;
            tools = link.tools(until, hidden).await;
        }
        Ok((link, tools?))
    }

    /// The connection, if the tool is there and is what was accepted. An error is one before
    /// the call was sent.
    async fn ready(
        &self,
        call: &Call,
        tool: &McpTool,
        until: Instant,
        hidden: &Hidden,
    ) -> Result<Arc<Link>, String> {
        let (link, tools) = self
            .seen(&call.tenant, until, hidden)
            .await
            .map_err(|fault| in_words(&fault))?;
        let remote = tool.remote.escape_debug();
        let now = Accepted { tools };
        let Some(seen) = now.tools.get(&tool.remote) else {
            return Err(format!("the server has no tool `{remote}`"));
        };
        let hidden = hidden.with(link.hidden());
        self.hold_if_changed(&tool.remote, &now, seen, &hidden)?;
        Ok(link)
    }

    /// The first look at a server is taken as accepted; after that only a person accepts.
    fn hold_if_changed(
        &self,
        remote: &str,
        now: &Accepted,
        seen: &Seen,
        hidden: &Hidden,
    ) -> Result<(), String> {
        let Some(mut accepted) = Accepted::read(&self.accepted)? else {
            return now.write(&self.accepted);
        };
        let changed = match accepted
            .tools
            .get(remote)
            .map(|before| before.changes(seen, hidden))
        {
            Some(changes) if changes.is_empty() => {
                return self.complete(&mut accepted, now, hidden);
            }
            Some(changes) => changes.join(" and "),
            None => "it is new".to_owned(),
        };
        Err(format!(
            "held: the tool `{}` is not what was accepted ({changed}); a person has to look at it",
            remote.escape_debug()
        ))
    }

    /// Takes over what an earlier version did not look at, and says so.
    fn complete(
        &self,
        accepted: &mut Accepted,
        now: &Accepted,
        hidden: &Hidden,
    ) -> Result<(), String> {
        let Some(found) = accepted.complete(now, hidden) else {
            return Ok(());
        };
        accepted.write(&self.accepted)?;
        for Difference { tool, what } in found {
            tracing::warn!(
                connector = %self.name,
                tool = %tool.escape_debug(),
                what,
                "accepted as it is now: an earlier version did not look at it"
            );
        }
        Ok(())
    }

    async fn call(&self, call: &Call, tool: &McpTool) -> InvokeOutcome {
        let begun = Instant::now();
        // Half of what is left at most: what is late here is a definite failure, not a doubt.
        let until = || Instant::now() + call.deadline.saturating_sub(begun.elapsed()) / 2;
        match self.once(call, tool, until()).await {
            (_, Some(Meaning::Forgotten)) => self.once(call, tool, until()).await.0,
            (outcome, _) => outcome,
        }
    }

    /// One try, and what the fault means if it ended with one. A server runs nothing of a session
    /// that it does not know, so after [`Meaning::Forgotten`] there is another.
    async fn once(
        &self,
        call: &Call,
        tool: &McpTool,
        until: Instant,
    ) -> (InvokeOutcome, Option<Meaning>) {
        let mut hidden = Hidden::of(call, &tool.secret_args);
        let link = match self.ready(call, tool, until, &hidden).await {
            Ok(link) => link,
            Err(problem) => {
                let message = format!("`{}` was not sent: {problem}", call.tool);
                return (
                    InvokeOutcome::NotApplied(ConnectorError::new(message)),
                    None,
                );
            }
        };
        hidden.add_all(link.hidden());
        // A caller that leaves at the deadline leaves a server that may hang: the next one gets a
        // new connection.
        let waiting = Waiting::on(&link);
        let answered = link.call(params(call, tool), call.permit.clone()).await;
        let answered = answered.map_err(|error| Ended::of(&error, &link));
        let meaning = match &answered {
            Err(Ended::Fault(fault)) => Some(fault.meaning),
            Err(Ended::Refused(_)) | Ok(_) => None,
        };
        let outcome = outcome::of(answered, tool, &call.tool, &hidden);
        let is_open = matches!(outcome, InvokeOutcome::Unknown(_));
        if !is_open && !matches!(meaning, Some(Meaning::Forgotten | Meaning::NotLetIn)) {
            waiting.over();
        }
        (outcome, meaning)
    }
}

/// Until when a look at a server may take.
fn patiently() -> Instant {
    Instant::now() + crate::registry::TIMEOUT_DEFAULT
}

/// A fault of which nothing is hidden any more.
fn in_words(fault: &Fault) -> String {
    fault.told(&Hidden::without_call())
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
        let asked = async {
            let (link, tools) = self
                .seen(tenant, patiently(), &Hidden::without_call())
                .await
                .map_err(|fault| in_words(&fault))?;
            let accepted = Accepted::read(&self.accepted)?;
            let now = Accepted { tools };
            let changed = accepted.map_or(0, |accepted| {
                accepted.differences(&now, link.hidden()).len()
            });
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
