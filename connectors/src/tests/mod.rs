//! Whole connectors, from the text of a configuration to the outcome of a call.

mod addresses;
mod auth;
mod beside;
mod bodies;
mod commands;
mod configuration;
mod connections;
mod cuts;
mod departures;
mod files;
mod guide;
mod imports;
mod mappings;
mod outcomes;
mod permits;
mod probes;
mod requests;
mod secrets;
#[cfg(feature = "mcp")]
mod servers;
mod signatures;
#[cfg(feature = "sql")]
mod statements;
mod tls;
mod tokens;
mod vendor;
#[cfg(feature = "mcp")]
mod web_faults;
#[cfg(feature = "mcp")]
mod web_servers;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::Value;

use operators_kernel::{
    Call, Connector, ConnectorName, EntityKey, IdempotencyKey, InvokeOutcome, Secret, SecretError,
    SecretStore, SendPermit, TenantId, ToolName, ToolRegistry,
};

use crate::{ConnectorConfig, Registry};

/// A credential that must never be seen outside a request.
const CANARY: &str = "Bearer canary-4711-canary";

/// The same without a word before it.
const PLAIN: &str = "canary-4711-plain";

#[derive(Debug)]
struct FixedSecrets;

#[async_trait]
impl SecretStore for FixedSecrets {
    async fn secret(&self, _tenant: &TenantId, name: &str) -> Result<Secret, SecretError> {
        match name {
            "token" => Ok(Secret::new(CANARY)),
            "plain" => Ok(Secret::new(PLAIN)),
            "slashed" => Ok(Secret::new("canary/47+11=plain")),
            "broken" => Ok(Secret::new("canary-4711-canary\r\nX-Evil: 1")),
            _ => Err(SecretError::Missing {
                name: name.to_owned(),
                remedy: "there is none".to_owned(),
            }),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Project {
    connectors: BTreeMap<ConnectorName, ConnectorConfig>,
}

fn configs(toml: &str) -> Result<BTreeMap<ConnectorName, ConnectorConfig>, String> {
    toml::from_str::<Project>(toml)
        .map(|project| project.connectors)
        .map_err(|error| error.to_string())
}

fn build_in(toml: &str, base_dir: &Path) -> Result<Registry, String> {
    Registry::build(configs(toml)?, base_dir, Arc::new(FixedSecrets))
        .map_err(|error| error.to_string())
}

fn build(toml: &str) -> Result<Registry, String> {
    build_in(toml, Path::new("."))
}

/// A call of `tool` on connector `shop`.
fn call(tool: &str, args: Value) -> Call {
    let Value::Object(args) = args else {
        panic!("args are an object")
    };
    Call {
        tenant: TenantId::parse("acme").expect("tenant"),
        operator: None,
        connector: name("shop"),
        tool: ToolName::parse(tool).expect("tool"),
        args: args.into(),
        entity_key: EntityKey::parse("order:SO-1").expect("entity key"),
        idempotency_key: IdempotencyKey::parse("order:SO-1:hold").expect("key"),
        downstream_key: "dk-0001".to_owned(),
        attempt: 1,
        deadline: Duration::from_secs(5),
        permit: SendPermit::always(),
    }
}

fn name(text: &str) -> ConnectorName {
    ConnectorName::parse(text).expect("connector name")
}

/// Who runs `tool` of connector `shop`.
fn connector(registry: &Registry, tool: &str) -> Arc<dyn Connector> {
    let tool = ToolName::parse(tool).expect("tool name");
    registry
        .tool(&name("shop"), &tool)
        .expect("registered")
        .connector
}

async fn invoke(registry: &Registry, call: &Call) -> InvokeOutcome {
    connector(registry, call.tool.as_str()).invoke(call).await
}

#[track_caller]
fn applied(outcome: InvokeOutcome) -> (Value, Option<String>) {
    match outcome {
        InvokeOutcome::Applied(effect) => (effect.result.into_inner(), effect.effect_id),
        other => panic!("not applied: {other:?}"),
    }
}

#[track_caller]
fn not_applied(outcome: InvokeOutcome) -> String {
    match outcome {
        InvokeOutcome::NotApplied(error) => error.message,
        other => panic!("not a definite failure: {other:?}"),
    }
}

#[track_caller]
fn unknown(outcome: InvokeOutcome) -> String {
    match outcome {
        InvokeOutcome::Unknown(error) => error.message,
        other => panic!("not unknown: {other:?}"),
    }
}
