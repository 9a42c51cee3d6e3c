//! From a connector's table to the connector: one line per kind.
//!
//! Owns which kinds this build has. It must not know how any of them works.

use std::path::Path;
use std::sync::Arc;

use operators_kernel::{Connector, ConnectorName, SecretStore};

use crate::beside::StoreAddress;
use crate::command::CommandConnector;
use crate::config::{ConnectorConfig, ConnectorKind, ModeWord};
use crate::file::FileConnector;
use crate::http::HttpConnector;
use crate::registry::{Place, RegistryError};
use crate::stub::StubConnector;

/// The configuration with what is known beside it, from what a server was accepted as.
pub(crate) fn completed(
    name: &ConnectorName,
    config: &ConnectorConfig,
    place: &Place,
    base_dir: &Path,
) -> Result<ConnectorConfig, RegistryError> {
    match config.kind {
        #[cfg(feature = "mcp")]
        ConnectorKind::Mcp => crate::mcp::with_accepted(name, config, place, base_dir),
        #[cfg(not(feature = "mcp"))]
        ConnectorKind::Mcp => Err(not_built_in(place, name, base_dir)),
        ConnectorKind::Http | ConnectorKind::File | ConnectorKind::Command | ConnectorKind::Sql => {
            Ok(config.clone())
        }
    }
}

/// What a connector may find around it.
#[derive(Debug)]
pub(crate) struct Surroundings<'a> {
    pub(crate) base_dir: &'a Path,
    pub(crate) secrets: &'a Arc<dyn SecretStore>,
    pub(crate) store: &'a StoreAddress,
}

/// Compiles a connector; nothing is contacted.
pub(crate) fn compile(
    name: &ConnectorName,
    config: &ConnectorConfig,
    place: &Place,
    around: &Surroundings<'_>,
) -> Result<Arc<dyn Connector>, RegistryError> {
    let base_dir = around.base_dir;
    let secrets = Arc::clone(around.secrets);
    let connector: Arc<dyn Connector> = match config.kind {
        ConnectorKind::Http => Arc::new(HttpConnector::compile(config, place, base_dir, secrets)?),
        ConnectorKind::File => Arc::new(FileConnector::compile(config, place, base_dir)?),
        ConnectorKind::Command => {
            Arc::new(CommandConnector::compile(config, place, base_dir, secrets)?)
        }
        #[cfg(feature = "mcp")]
        ConnectorKind::Mcp => {
            let connector = crate::mcp::McpConnector::compile;
            Arc::new(connector(name, config, place, base_dir, secrets)?)
        }
        #[cfg(not(feature = "mcp"))]
        ConnectorKind::Mcp => return Err(not_built_in(place, name, base_dir)),
        #[cfg(feature = "sql")]
        ConnectorKind::Sql => {
            let connector = crate::sql::SqlConnector::compile;
            Arc::new(connector(config, place, base_dir, secrets, around.store)?)
        }
        #[cfg(not(feature = "sql"))]
        ConnectorKind::Sql => return Err(not_built_in(place, name, base_dir)),
    };
    // Compiled all the same: what a rehearsal accepts must work in earnest.
    match (config.mode, &config.answers) {
        (ModeWord::Live, None) => Ok(connector),
        (ModeWord::Live, Some(_)) => Err(place.refuse(
            "answers",
            "only a stub answers from a file; set `mode = \"stub\"` or remove it",
        )),
        (ModeWord::Stub, _) => Ok(Arc::new(StubConnector::load(config, place, base_dir)?)),
    }
}

#[cfg(not(all(feature = "mcp", feature = "sql")))]
fn not_built_in(place: &Place, _name: &ConnectorName, _base_dir: &Path) -> RegistryError {
    place.refuse(
        "kind",
        "connectors of this kind were left out when this program was built",
    )
}
