//! Tool definitions from an `OpenAPI` 3 document, as text for a person to read and keep.
//!
//! Owns the safe defaults: `GET` is a read, everything else opaque. What cannot be said in our
//! configuration is left out with a remark; nothing is fetched, and every tool that is written has
//! been loaded once. `document` reads, `schema` cleans, `operation` decides, this file writes.

mod document;
mod names;
mod operation;
mod schema;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use operators_kernel::ConnectorName;

use crate::config::ConnectorConfig;
use crate::openapi::document::Document;
use crate::openapi::operation::Operation;
use crate::registry::Registry;
use crate::secrets::EnvSecrets;

/// What to take from a document.
#[derive(Debug, Clone)]
pub struct ImportSettings {
    /// The connector's name in the configuration.
    pub connector: ConnectorName,
    /// Where the vendor is; left out, the document's first server.
    pub base_url: Option<String>,
    /// Only paths that begin with this.
    pub path_prefix: Option<String>,
}

/// What came of an import.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The configuration, as TOML.
    pub toml: String,
    /// How many tools it has.
    pub tools: usize,
    /// What was left out, and why.
    pub remarks: Vec<String>,
}

/// A piece of configuration, read back.
#[derive(Deserialize)]
struct Piece {
    connectors: BTreeMap<ConnectorName, ConnectorConfig>,
}

/// Writes tool definitions from the text of a document, JSON or YAML. The error is a sentence.
pub fn import_openapi(text: &str, settings: &ImportSettings) -> Result<Imported, String> {
    let document = Document::parse(text)?;
    let base_url = match &settings.base_url {
        Some(url) => url.clone(),
        None => document.server()?,
    };
    let head = head(settings, &base_url);
    loads(&head).map_err(|problem| format!("the server cannot be used: {problem}"))?;
    let mut taken = BTreeSet::new();
    let (mut written, mut remarks) = (Vec::new(), Vec::new());
    for found in document.operations(settings.path_prefix.as_deref())? {
        let operation = match Operation::read(&document, &found, &mut taken) {
            Ok(operation) => operation,
            Err(problem) => {
                remarks.push(format!("{} is left out: {problem}", found.label));
                continue;
            }
        };
        let text = operation.toml(&settings.connector);
        match loads(&format!("{head}{text}")) {
            Ok(()) => {
                let said = operation.remarks.iter();
                remarks.extend(said.map(|remark| format!("{}: {remark}", found.label)));
                written.push(text);
            }
            Err(problem) => remarks.push(format!("{} is left out: {problem}", found.label)),
        }
    }
    if written.is_empty() {
        let first = remarks.first().map_or("it has no paths", String::as_str);
        return Err(format!("the document has nothing to import: {first}"));
    }
    let mut toml = format!(
        "# {}, by `operators connectors import openapi`.\n\
         # GET is a read; everything else is opaque until you know better: say `keyed`, with its\n\
         # window, where the vendor honours idempotency keys, and put credentials into `headers`\n\
         # as `secret:NAME`. Policies decide what may run.\n",
        one_line(&document.title())
    );
    for credential in document.credentials() {
        // Writing to a String cannot fail.
        let _infallible = writeln!(toml, "# The vendor asks for {}.", one_line(&credential));
    }
    toml.push_str(&head);
    toml.extend(written.iter().map(String::as_str));
    Ok(Imported {
        toml,
        tools: written.len(),
        remarks,
    })
}

fn head(settings: &ImportSettings, base_url: &str) -> String {
    format!(
        "[connectors.{}]\nkind = \"http\"\nbase_url = {}\n",
        key(settings.connector.as_str()),
        quoted(base_url)
    )
}

/// Whether a piece of configuration is one that a project could have.
fn loads(piece: &str) -> Result<(), String> {
    let piece: Piece = toml::from_str(piece).map_err(|error| error.message().to_owned())?;
    Registry::build(piece.connectors, Path::new("."), Arc::new(EnvSecrets))
        .map(drop)
        .map_err(|error| error.to_string())
}

/// A text as TOML writes it.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A key of a table: bare if it can be.
fn key(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.chars().all(bare) {
        name.to_owned()
    } else {
        quoted(name)
    }
}

/// A text that fits into a comment: one line, and nothing a terminal would obey.
fn one_line(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(160)
        .collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
