//! The `http` connector: a call becomes one request, and its answer one of three outcomes.
//!
//! `tool` compiles the configuration, `request` builds, `sender` sends once, `outcome` judges by
//! the tool's `reading`, `probe` asks afterwards, `check` looks, `auth` lets in, `address` guards what
//! is dialled. Beneath `sender`, `dial` connects, `line` speaks over one connection, and
//! `departure` asks before each write whether the call may still be sent.

pub(crate) mod address;
mod answer;
mod auth;
mod body;
mod check;
mod condition;
mod departure;
pub(crate) mod dial;
pub(crate) mod headers;
mod line;
pub(crate) mod outcome;
pub(crate) mod path;
mod probe;
mod query;
mod reading;
mod request;
pub(crate) mod sender;
mod tool;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hyper::StatusCode;
use tokio::time::Instant;

use operators_kernel::{
    Call, Connector, ConnectorError, Health, InvokeOutcome, ProbeOutcome, SecretStore, TenantId,
    ToolName,
};

use crate::config::ConnectorConfig;
use crate::hidden::Hidden;
use crate::http::address::{Guard, Lookup, SystemLookup};
use crate::http::auth::{Auth, Entry};
use crate::http::check::Check;
use crate::http::dial::Dialer;
use crate::http::headers::HeaderKey;
use crate::http::path::Base;
use crate::http::request::Prepared;
use crate::http::sender::{Answer, Sender, Terms, Unanswered};
use crate::http::tool::{HttpTool, Outline};
use crate::registry::{self, Place, RegistryError};

#[cfg(test)]
pub(crate) use auth::SigV4;
#[cfg(test)]
pub(crate) use sender::Request;

/// How much of a call's deadline getting its credentials may take: what is left still leaves room
/// to find that the vendor cannot be reached, which is a definite failure.
const CREDENTIALS_SHARE: f64 = 0.4;

/// Talks to one vendor over HTTP.
pub(crate) struct HttpConnector {
    base: Base,
    timeout_min: Duration,
    tools: BTreeMap<ToolName, HttpTool>,
    auth: Option<Auth>,
    check: Check,
    secrets: Arc<dyn SecretStore>,
    sender: Sender,
}

impl fmt::Debug for HttpConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConnector")
            .field("base", &self.base)
            .field("sender", &self.sender)
            .field("auth", &self.auth)
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}

impl HttpConnector {
    /// Compiles a connector and all its tools; nothing is contacted.
    pub(crate) fn compile(
        config: &ConnectorConfig,
        place: &Place,
        base_dir: &Path,
        secrets: Arc<dyn SecretStore>,
    ) -> Result<Self, RegistryError> {
        Self::compile_with(config, place, base_dir, secrets, Arc::new(SystemLookup))
    }

    /// The same, with another way than the system's to resolve names.
    pub(crate) fn compile_with(
        config: &ConnectorConfig,
        place: &Place,
        base_dir: &Path,
        secrets: Arc<dyn SecretStore>,
        lookup: Arc<dyn Lookup>,
    ) -> Result<Self, RegistryError> {
        let allow_private = config.allow_private_addresses.unwrap_or(false);
        let Some(base_url) = &config.base_url else {
            return Err(place.refuse("base_url", "is missing; write `https://api.example.com`"));
        };
        let base = Base::parse(base_url, allow_private)
            .map_err(|problem| place.refuse("base_url", problem))?;
        let auth = match &config.auth {
            None => None,
            Some(auth) => Some(Auth::compile(auth, allow_private, &place.inside("auth"))?),
        };
        let mut tools = BTreeMap::new();
        let mut timeout_min = registry::TIMEOUT_DEFAULT;
        for (name, tool) in &config.tools {
            timeout_min = timeout_min.min(registry::timeout(config, tool));
            let compiled = HttpTool::compile(config, tool, place, &place.tool(name))?;
            refuse_second_credential(auth.as_ref(), &compiled, &place.tool(name))?;
            tools.insert(name.clone(), compiled);
        }
        let authorities = match &config.ca_file {
            None => None,
            Some(path) => Some(
                dial::authorities(&base_dir.join(path))
                    .map_err(|problem| place.refuse("ca_file", problem))?,
            ),
        };
        let guard = Guard {
            lookup,
            allow_private,
        };
        Ok(Self {
            check: Check::compile(config, place)?,
            base,
            timeout_min,
            tools,
            auth,
            secrets,
            sender: Sender::new(Dialer::new(guard, authorities, timeout_min)),
        })
    }

    /// Makes one request, once, within the call's deadline.
    async fn send(
        &self,
        sent: &Outline,
        call: &Call,
        pooled: bool,
    ) -> Result<(Answer, Hidden), (Unanswered, Hidden)> {
        let begun = Instant::now();
        let share = call.deadline.mul_f64(CREDENTIALS_SHARE);
        let ready = tokio::time::timeout(share, self.ready(sent, call, share)).await;
        let Prepared { request, hidden } = ready
            .unwrap_or_else(|_elapsed| Err("its credentials were not there in time".to_owned()))
            .map_err(|problem| {
                (
                    Unanswered::NotSent(problem),
                    Hidden::of(call, &sent.secret_args),
                )
            })?;
        let terms = Terms {
            permit: call.permit.clone(),
            within: Some(call.deadline.saturating_sub(begun.elapsed())),
            pooled,
        };
        match self.sender.send(request, terms).await {
            Err(unanswered) => Err((unanswered, hidden)),
            Ok(answer) => {
                if let (Some(auth), StatusCode::UNAUTHORIZED) = (&self.auth, answer.status()) {
                    auth.rejected(&call.tenant);
                }
                Ok((answer, hidden))
            }
        }
    }

    /// Everything that happens before the first byte: templates, secrets, tokens, signatures.
    async fn ready(
        &self,
        sent: &Outline,
        call: &Call,
        share: Duration,
    ) -> Result<Prepared, String> {
        let mut prepared = request::prepare(&self.base, sent, call, self.secrets.as_ref()).await?;
        if let Some(auth) = &self.auth {
            let entry = Entry {
                tenant: &call.tenant,
                secrets: self.secrets.as_ref(),
                sender: &self.sender,
                deadline: share,
            };
            auth.admit(&mut prepared.request, &entry, &mut prepared.hidden)
                .await?;
        }
        Ok(prepared)
    }
}

/// Two credentials would leave it to the vendor which one counts.
fn refuse_second_credential(
    auth: Option<&Auth>,
    tool: &HttpTool,
    place: &Place,
) -> Result<(), RegistryError> {
    let Some(header) = auth.map(Auth::header) else {
        return Ok(());
    };
    let probe = tool.probe.iter().map(|probe| &probe.sent.headers);
    let mut all = std::iter::once(&tool.sent.headers).chain(probe);
    if all.any(|headers| headers.contains_key(&HeaderKey(header.as_str().to_owned()))) {
        let problem = format!("`{header}` is written by the connector's `auth`; remove one");
        return Err(place.refuse("headers", problem));
    }
    Ok(())
}

#[async_trait]
impl Connector for HttpConnector {
    async fn invoke(&self, call: &Call) -> InvokeOutcome {
        let Some(tool) = self.tools.get(&call.tool) else {
            let message = format!(
                "`{}` was not sent: the connector has no such tool",
                call.tool
            );
            return InvokeOutcome::NotApplied(ConnectorError::new(message));
        };
        let label = &tool.sent.label;
        match self.send(&tool.sent, call, tool.pooled).await {
            Ok((answer, hidden)) => {
                outcome::of_answer(answer, &tool.reading, call, label, &hidden).await
            }
            Err((unanswered, hidden)) => outcome::of_failure(&unanswered, label, &hidden),
        }
    }

    async fn probe(&self, call: &Call) -> ProbeOutcome {
        let tool = self.tools.get(&call.tool);
        let Some(probe) = tool.and_then(|tool| tool.probe.as_ref()) else {
            let message = format!("`{}` has no probe", call.tool);
            return ProbeOutcome::Unknown(ConnectorError::new(message));
        };
        let label = &probe.sent.label;
        let message = match self.send(&probe.sent, call, true).await {
            Ok((answer, hidden)) => return probe.judge(answer, call, &hidden).await,
            Err((unanswered, hidden)) => outcome::no_answer(&unanswered, label, &hidden),
        };
        ProbeOutcome::Unknown(ConnectorError::new(message))
    }

    async fn check(&self, tenant: &TenantId) -> Health {
        let ill = |message: String| Health::Ill(ConnectorError::new(message));
        let call = match check::call(tenant, self.timeout_min) {
            Ok(call) => call,
            Err(problem) => return ill(problem),
        };
        let sent = &self.check.sent;
        match self.send(sent, &call, true).await {
            Ok((answer, hidden)) => self.check.judge(answer, &hidden).await,
            Err((Unanswered::NotSent(problem), _)) => ill(problem),
            Err((unanswered, hidden)) => ill(outcome::no_answer(&unanswered, &sent.label, &hidden)),
        }
    }
}
