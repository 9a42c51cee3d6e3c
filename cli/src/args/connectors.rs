//! The words of `operators connectors`.

use std::path::PathBuf;

use clap::{Args as ArgsOf, Subcommand};
use operators_kernel::{ConnectorName, ToolName};

use crate::args::Whose;

#[derive(Debug, Subcommand)]
pub(crate) enum ConnectorsCommand {
    /// Every tool: its effect class, its schema, its connector's health
    List(ConnectorsListArgs),
    /// Ask a connector whether it can be used, or make one read; never an effect
    Test(ConnectorsTestArgs),
    /// Take an MCP server's tools as they are now: new ones, and those held because they changed
    Accept(ConnectorsAcceptArgs),
    /// Write tool definitions from the description of an API
    #[command(subcommand)]
    Import(ImportCommand),
}

#[derive(Debug, ArgsOf)]
pub(crate) struct ConnectorsListArgs {
    /// Ask every connector how it is; without it, nothing is contacted
    #[arg(long)]
    pub(crate) health: bool,
    /// Print JSON lines
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct ConnectorsTestArgs {
    /// The connector
    #[arg(value_name = "NAME", value_parser = |text: &str| ConnectorName::parse(text))]
    pub(crate) name: ConnectorName,
    /// Make this read and print what it answers; a tool with effects is refused
    #[arg(long, value_name = "TOOL", value_parser = |text: &str| ToolName::parse(text))]
    pub(crate) tool: Option<ToolName>,
    /// The arguments of that read, as a JSON object
    #[arg(long, value_name = "JSON", default_value = "{}", requires = "tool")]
    pub(crate) args: String,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct ConnectorsAcceptArgs {
    /// The connector
    #[arg(value_name = "NAME", value_parser = |text: &str| ConnectorName::parse(text))]
    pub(crate) name: ConnectorName,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// From an `OpenAPI` 3 document, JSON or YAML: GET is a read, everything else opaque
    Openapi(OpenapiArgs),
}

#[derive(Debug, ArgsOf)]
pub(crate) struct OpenapiArgs {
    /// The document; nothing outside it is read
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The connector's name [default: the file's]
    #[arg(long, value_name = "NAME", value_parser = |text: &str| ConnectorName::parse(text))]
    pub(crate) connector: Option<ConnectorName>,
    /// Where the vendor is [default: the document's first server]
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// Only paths that begin with this
    #[arg(long, value_name = "PREFIX")]
    pub(crate) path: Option<String>,
    /// Write into this new file [default: stdout]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}
