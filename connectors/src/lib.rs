//! Talking to the outside: the registry of tools, and one connector per kind of system.
//!
//! Owns what a configuration may say about a tool, and how a call becomes a request that is made
//! once. It must not know stores, policies, or what an executor does with an outcome.

mod beside;
mod command;
mod config;
pub mod duration;
mod file;
mod foreign;
mod hidden;
mod http;
mod kinds;
#[cfg(feature = "mcp")]
mod mcp;
mod openapi;
mod pointer;
mod registry;
mod schema;
mod secrets;
mod size;
#[cfg(feature = "sql")]
mod sql;
mod stub;
mod template;
#[cfg(test)]
mod tests;

pub use beside::StoreAddress;
pub use command::supervise;
pub use config::{
    AuthConfig, BasicConfig, BodyEncoding, BodySource, ClientAuth, ConditionConfig,
    ConnectorConfig, ConnectorKind, EffectWord, HeaderText, ModeWord, Oauth2Config, OutputForm,
    ProbeConfig, SigV4Config, Statuses, ToolConfig, ToolErrorWord,
};
#[cfg(feature = "mcp")]
pub use mcp::{Difference, accept_mcp};
pub use openapi::{ImportSettings, Imported, import_openapi};
pub use registry::{Registry, RegistryError};
pub use secrets::{EnvSecrets, ProjectSecrets, SecretConfig};
pub use size::SizeText;
