//! Every tool that can be reached, and what is promised about each.
//!
//! Owns which words of the configuration go together. It must not know how a call is made: each
//! kind compiles its own tools.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use operators_kernel::{
    ArgsSchema, ConnectorName, EffectClass, SecretStore, Tool, ToolContract, ToolMode, ToolName,
    ToolRegistry,
};

use crate::beside::{self, StoreAddress};
use crate::config::{ConnectorConfig, ConnectorKind, EffectWord, ModeWord, ToolConfig};
use crate::duration::DurationText;
use crate::foreign;
use crate::kinds::{self, Surroundings};
use crate::schema::CompiledSchema;

/// The deadline of a call when nothing is said: as long as a person would wait.
pub(crate) const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// For how long a vendor is taken to remember a key: what Stripe and most others promise.
const WINDOW_DEFAULT: Duration = Duration::from_hours(24);

/// How long an abandoned request may still be on its way through proxies and queues.
const MAX_LAND_DEFAULT: Duration = Duration::from_secs(30);

/// The kind shown for tools that an embedding program brought along.
const KIND_CUSTOM: &str = "custom";

/// A configuration of connectors that cannot be used: where, what is wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct RegistryError {
    /// The field, as in `connectors.shop.tools."orders.hold".window`.
    pub place: String,
    /// What is wrong there, and the remedy.
    pub problem: String,
}

/// The tools of a project, by connector and name.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    connectors: BTreeMap<ConnectorName, BTreeMap<ToolName, Registered>>,
}

#[derive(Debug, Clone)]
struct Registered {
    kind: &'static str,
    tool: Tool,
}

impl Registry {
    /// Compiles a configuration as a whole: templates, schemas, contracts. Nothing is contacted,
    /// and no secret is read; paths are relative to `base_dir`.
    pub fn build(
        configs: BTreeMap<ConnectorName, ConnectorConfig>,
        base_dir: &Path,
        secrets: Arc<dyn SecretStore>,
    ) -> Result<Self, RegistryError> {
        Self::build_beside(configs, base_dir, secrets, &StoreAddress::Elsewhere)
    }

    /// As [`build`](Self::build), for connectors that may speak to the store's own database.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the caller has no further use of a configuration, nor of its own handle"
    )]
    pub fn build_beside(
        configs: BTreeMap<ConnectorName, ConnectorConfig>,
        base_dir: &Path,
        secrets: Arc<dyn SecretStore>,
        store: &StoreAddress,
    ) -> Result<Self, RegistryError> {
        let mut connectors = BTreeMap::new();
        for (name, config) in &configs {
            let place = Place::connector(name);
            foreign::refuse(config, &place)?;
            let config = &beside::completed(config, &place, base_dir, store)?;
            let config = &kinds::completed(name, config, &place, base_dir)?;
            let surroundings = Surroundings {
                base_dir,
                secrets: &secrets,
                store,
            };
            let connector = kinds::compile(name, config, &place, &surroundings)?;
            let mut tools = BTreeMap::new();
            for (tool_name, tool) in &config.tools {
                let place = place.tool(tool_name);
                let registered = Registered {
                    kind: config.kind.as_str(),
                    tool: Tool {
                        contract: contract(config, tool, &place)?,
                        schema: schema(tool, &place, base_dir)?,
                        connector: Arc::clone(&connector),
                    },
                };
                tools.insert(tool_name.clone(), registered);
            }
            connectors.insert(name.clone(), tools);
        }
        Ok(Self { connectors })
    }

    /// Registers tools made in Rust, shown as kind `custom`. Of two with one name the later wins.
    pub fn from_tools(tools: impl IntoIterator<Item = (ConnectorName, ToolName, Tool)>) -> Self {
        let mut registry = Self::default();
        for (connector, name, tool) in tools {
            let kind = KIND_CUSTOM;
            registry
                .connectors
                .entry(connector)
                .or_default()
                .insert(name, Registered { kind, tool });
        }
        registry
    }

    /// Every tool with its connector's kind, in order of connector and name.
    pub fn tools(
        &self,
    ) -> impl Iterator<Item = (&ConnectorName, &ToolName, &Tool, &'static str)> + '_ {
        self.connectors.iter().flat_map(|(connector, tools)| {
            tools
                .iter()
                .map(move |(name, registered)| (connector, name, &registered.tool, registered.kind))
        })
    }
}

impl ToolRegistry for Registry {
    fn tool(&self, connector: &ConnectorName, tool: &ToolName) -> Option<Tool> {
        let registered = self.connectors.get(connector)?.get(tool)?;
        Some(registered.tool.clone())
    }
}

/// The effect class of a tool in words; the default depends on what the kind can promise.
pub(crate) fn effect_word(config: &ConnectorConfig, tool: &ToolConfig) -> EffectWord {
    tool.effect.unwrap_or(match config.kind {
        ConnectorKind::File => EffectWord::Probeable,
        ConnectorKind::Http | ConnectorKind::Command | ConnectorKind::Mcp | ConnectorKind::Sql => {
            EffectWord::Opaque
        }
    })
}

/// The deadline of one call of this tool.
pub(crate) fn timeout(config: &ConnectorConfig, tool: &ToolConfig) -> Duration {
    let said = tool.timeout.or(config.timeout);
    said.map_or(TIMEOUT_DEFAULT, DurationText::get)
}

/// How long after its deadline an abandoned call of this tool may still land.
pub(crate) fn max_land(config: &ConnectorConfig, tool: &ToolConfig) -> Duration {
    let default = match config.kind {
        // A killed program's request may be on its way like any other.
        ConnectorKind::Http | ConnectorKind::Command | ConnectorKind::Mcp | ConnectorKind::Sql => {
            MAX_LAND_DEFAULT
        }
        // A line lands under the file's lock before the deadline, or never.
        ConnectorKind::File => Duration::ZERO,
    };
    tool.max_land.map_or(default, DurationText::get)
}

fn contract(
    config: &ConnectorConfig,
    tool: &ToolConfig,
    place: &Place,
) -> Result<ToolContract, RegistryError> {
    let word = effect_word(config, tool);
    if tool.window.is_some() && word != EffectWord::Keyed {
        return Err(place.refuse(
            "window",
            "only a keyed tool has a window; set `effect = \"keyed\"` or remove it",
        ));
    }
    let window = tool.window.map_or(WINDOW_DEFAULT, DurationText::get);
    let effect = match word {
        EffectWord::Read => EffectClass::Read,
        EffectWord::Idempotent => EffectClass::Idempotent,
        EffectWord::Keyed => EffectClass::Keyed {
            window_ms: u64::try_from(window.as_millis()).unwrap_or(u64::MAX),
        },
        EffectWord::Probeable => EffectClass::Probeable,
        EffectWord::Transactional => EffectClass::Transactional,
        EffectWord::Opaque => EffectClass::Opaque,
    };
    if window.is_zero() {
        return Err(place.refuse(
            "window",
            "is zero; write how long the vendor remembers a key",
        ));
    }
    let timeout = timeout(config, tool);
    if timeout.is_zero() {
        return Err(place.refuse(
            "timeout",
            "is zero, so no call could ever be made; write `3s`",
        ));
    }
    let max_land = max_land(config, tool);
    let landing = timeout.saturating_add(max_land);
    if word == EffectWord::Keyed && window <= landing {
        let problem = format!(
            "the vendor would have forgotten the key while a request may still land ({landing:?}: \
             `timeout` and `max_land`), so nothing in doubt could ever be sent again; write a \
             longer one if the vendor keeps it, shorten those two, or leave `effect` out"
        );
        return Err(place.refuse("window", problem));
    }
    if let Some(bad) = tool
        .secret_args
        .iter()
        .find(|path| path.split('.').any(str::is_empty))
    {
        let problem = format!(
            "`{}` is not a dotted path such as `card.number`",
            bad.escape_debug()
        );
        return Err(place.refuse("secret_args", problem));
    }
    Ok(ToolContract {
        effect,
        timeout,
        max_land,
        on_unknown: tool.on_unknown.unwrap_or_default(),
        secret_args: tool.secret_args.clone(),
        mode: match config.mode {
            ModeWord::Live => ToolMode::Live,
            ModeWord::Stub => ToolMode::Stub,
        },
    })
}

fn schema(
    tool: &ToolConfig,
    place: &Place,
    base_dir: &Path,
) -> Result<Option<Arc<dyn ArgsSchema>>, RegistryError> {
    let Some(source) = &tool.args_schema else {
        return Ok(None);
    };
    let compiled = CompiledSchema::load(source, base_dir)
        .map_err(|problem| place.refuse("args_schema", problem))?;
    Ok(Some(Arc::new(compiled)))
}

/// Where in the configuration we are, for messages.
#[derive(Debug, Clone)]
pub(crate) struct Place(String);

impl Place {
    /// The place of a connector.
    pub(crate) fn connector(name: &ConnectorName) -> Self {
        let name = name.as_str();
        // A dotted name is one TOML key only in quotes.
        if name.contains('.') {
            Self(format!("connectors.\"{name}\""))
        } else {
            Self(format!("connectors.{name}"))
        }
    }

    /// The place of a tool of this connector.
    pub(crate) fn tool(&self, name: &ToolName) -> Self {
        Self(format!("{}.tools.\"{name}\"", self.0))
    }

    /// A table here.
    pub(crate) fn inside(&self, table: &str) -> Self {
        Self(format!("{}.{table}", self.0))
    }

    /// An error about all of this table.
    pub(crate) fn whole(&self, problem: impl Into<String>) -> RegistryError {
        RegistryError {
            place: self.0.clone(),
            problem: problem.into(),
        }
    }

    /// An error about a field here.
    pub(crate) fn refuse(&self, field: &str, problem: impl Into<String>) -> RegistryError {
        RegistryError {
            place: format!("{}.{field}", self.0),
            problem: problem.into(),
        }
    }
}
