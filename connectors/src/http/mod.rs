//! The `http` connector: a call becomes one request, and its answer one of three outcomes.
//!
//! `tool` compiles the configuration, `request` builds, `client` sends once, `outcome` judges by
//! the tool's `reading`, `probe` asks afterwards, `address` guards what is dialled.

mod address;
mod answer;
mod body;
mod client;
mod condition;
mod headers;
mod outcome;
mod path;
mod probe;
mod reading;
mod request;
mod tool;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::Client;

use operators_kernel::{
    Call, Connector, ConnectorError, InvokeOutcome, ProbeOutcome, SecretStore, ToolName,
};

use crate::config::ConnectorConfig;
use crate::http::client::{ClientSettings, Clients};
use crate::http::path::Base;
use crate::http::request::Prepared;
use crate::http::tool::HttpTool;
use crate::registry::{self, Place, RegistryError};

#[cfg(test)]
pub(crate) use address::Guard;
pub(crate) use address::Lookup;

/// Talks to one vendor over HTTP.
pub(crate) struct HttpConnector {
    base: Base,
    allow_private: bool,
    timeout_min: std::time::Duration,
    tools: BTreeMap<ToolName, HttpTool>,
    secrets: Arc<dyn SecretStore>,
    lookup: Arc<dyn Lookup>,
    clients: Clients,
}

impl fmt::Debug for HttpConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConnector")
            .field("base", &self.base)
            .field("allow_private", &self.allow_private)
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}

impl HttpConnector {
    /// Compiles a connector and all its tools; nothing is contacted.
    pub(crate) fn compile(
        config: &ConnectorConfig,
        place: &Place,
        secrets: Arc<dyn SecretStore>,
    ) -> Result<Self, RegistryError> {
        let allow_private = config.allow_private_addresses.unwrap_or(false);
        let Some(base_url) = &config.base_url else {
            return Err(place.refuse("base_url", "is missing; write `https://api.example.com`"));
        };
        let base = Base::parse(base_url, allow_private)
            .map_err(|problem| place.refuse("base_url", problem))?;
        let mut tools = BTreeMap::new();
        let mut timeout_min = registry::TIMEOUT_DEFAULT;
        for (name, tool) in &config.tools {
            timeout_min = timeout_min.min(registry::timeout(config, tool));
            let compiled = HttpTool::compile(config, tool, place, &place.tool(name))?;
            tools.insert(name.clone(), compiled);
        }
        Ok(Self {
            base,
            allow_private,
            timeout_min,
            tools,
            secrets,
            lookup: Arc::new(address::SystemLookup),
            clients: Clients::default(),
        })
    }

    /// Resolves names by another way than the system's.
    #[cfg(test)]
    pub(crate) fn with_lookup(mut self, lookup: Arc<dyn Lookup>) -> Self {
        self.lookup = lookup;
        self
    }

    fn client(&self, pooled: bool) -> Result<&Client, String> {
        self.clients.get(pooled, || ClientSettings {
            https: self.base.is_https(),
            allow_private: self.allow_private,
            timeout_min: self.timeout_min,
            lookup: Arc::clone(&self.lookup),
        })
    }
}

#[async_trait]
impl Connector for HttpConnector {
    async fn invoke(&self, call: &Call) -> InvokeOutcome {
        let refuse = |label: &str, problem: &str| {
            let message = format!("{label} was not sent: {problem}");
            InvokeOutcome::NotApplied(ConnectorError::new(message))
        };
        let Some(tool) = self.tools.get(&call.tool) else {
            let label = format!("`{}`", call.tool);
            return refuse(&label, "the connector has no such tool");
        };
        let label = &tool.sent.label;
        let client = match self.client(tool.pooled) {
            Ok(client) => client,
            Err(problem) => return refuse(label, &problem),
        };
        match request::prepare(&self.base, &tool.sent, call, self.secrets.as_ref()).await {
            Err(problem) => refuse(label, &problem),
            Ok(Prepared { request, hidden }) => match client.execute(request).await {
                Ok(answer) => outcome::of_answer(answer, &tool.reading, call, label, &hidden).await,
                Err(error) => outcome::of_failure(&error, label, &hidden),
            },
        }
    }

    async fn probe(&self, call: &Call) -> ProbeOutcome {
        let unknown = |message: String| ProbeOutcome::Unknown(ConnectorError::new(message));
        let Some(probe) = self
            .tools
            .get(&call.tool)
            .and_then(|tool| tool.probe.as_ref())
        else {
            return unknown(format!("`{}` has no probe", call.tool));
        };
        let label = &probe.sent.label;
        let client = match self.client(true) {
            Ok(client) => client,
            Err(problem) => return unknown(format!("{label} was not sent: {problem}")),
        };
        match request::prepare(&self.base, &probe.sent, call, self.secrets.as_ref()).await {
            Err(problem) => unknown(format!("{label} was not sent: {problem}")),
            Ok(Prepared { request, hidden }) => match client.execute(request).await {
                Ok(answer) => probe.judge(answer, call, &hidden).await,
                Err(error) => unknown(outcome::no_answer(&error, label, &hidden)),
            },
        }
    }
}
