//! What connectors need from outside: their credentials, and, if asked for, an answer.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use operators_connectors::Registry;
use operators_kernel::{
    ConnectorName, Health as ConnectorHealth, SecretStore as _, TenantId, Tool,
};

use crate::command::connectors;
use crate::command::doctor::{Diagnosis, Health};
use crate::compose;
use crate::project::Project;

/// What stands before the name of a credential.
const SECRET_PREFIX: &str = "secret:";

/// Resolves every credential that connectors and notices name, and says which is missing.
pub(super) async fn secrets(
    found: &mut Diagnosis,
    project: &Project,
    tenant: &TenantId,
) -> Result<()> {
    let named = named(project)?;
    if named.is_empty() {
        let told = "no connector and no notice names one";
        found.add("secrets", Health::Ok, told);
        return Ok(());
    }
    let secrets = match compose::secrets(project) {
        Ok(secrets) => secrets,
        Err(error) => {
            found.add("secrets", Health::Failed, format!("{error:#}"));
            return Ok(());
        }
    };
    for (name, places) in named {
        let places: Vec<String> = places.into_iter().collect();
        let places = places.join("`, `");
        match secrets.secret(tenant, &name).await {
            Ok(_) => {
                let told = format!("`{name}` is there, for `{places}`");
                found.add("secrets", Health::Ok, told);
            }
            Err(error) => {
                let told = format!("`{places}` needs it: {error}");
                found.add("secrets", Health::Failed, told);
            }
        }
    }
    Ok(())
}

/// Every credential that is named, with where.
fn named(project: &Project) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let config: toml::Table = toml::from_str(&project.text)?;
    let mut named = BTreeMap::new();
    let connectors = config.get("connectors").and_then(toml::Value::as_table);
    for (connector, settings) in connectors.into_iter().flatten() {
        // A stub answers in its place, and needs nothing.
        if settings.get("mode").and_then(toml::Value::as_str) != Some("stub") {
            collect(settings, &format!("connectors.{connector}"), &mut named);
        }
    }
    let notify = config.get("trust").and_then(|trust| trust.get("notify"));
    if let Some(notify) = notify {
        collect(notify, "trust.notify", &mut named);
    }
    Ok(named)
}

fn collect(value: &toml::Value, place: &str, named: &mut BTreeMap<String, BTreeSet<String>>) {
    match value {
        toml::Value::String(text) => {
            if let Some(name) = text.strip_prefix(SECRET_PREFIX) {
                let places = named.entry(name.to_owned()).or_default();
                places.insert(place.to_owned());
            }
        }
        toml::Value::Array(values) => values.iter().for_each(|one| collect(one, place, named)),
        toml::Value::Table(table) => table.values().for_each(|one| collect(one, place, named)),
        toml::Value::Integer(_)
        | toml::Value::Float(_)
        | toml::Value::Boolean(_)
        | toml::Value::Datetime(_) => {}
    }
}

/// Asks each connector how it is.
pub(super) async fn health(found: &mut Diagnosis, registry: &Registry, tenant: &TenantId) {
    let mut first: BTreeMap<&ConnectorName, &Tool> = BTreeMap::new();
    for (connector, _, tool, _) in registry.tools() {
        first.entry(connector).or_insert(tool);
    }
    for (name, tool) in first {
        match connectors::health(&*tool.connector, tenant).await {
            ConnectorHealth::Well(told) => {
                found.add("health", Health::Ok, format!("`{name}`: {told}"));
            }
            ConnectorHealth::Ill(error) => {
                found.add("health", Health::Failed, format!("`{name}`: {error}"));
            }
            ConnectorHealth::Unasked => {
                let told = format!("`{name}` cannot be asked without a call, so it was not");
                found.add("health", Health::Note, told);
            }
        }
    }
}
