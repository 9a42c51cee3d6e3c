//! What a person has accepted of a server: its tools, as they described themselves then.
//!
//! Owns the file `.operators/mcp/NAME.json` and what counts as a change. A server that changes a
//! description or a schema after it was reviewed is the oldest trick against agents.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use operators_kernel::{ConnectorName, json as canonical};

use crate::schema::CompiledSchema;

/// The largest file of this kind: the tools of a large server.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A server's tools by their names there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Accepted {
    pub(crate) tools: BTreeMap<String, Seen>,
}

/// One tool, as it described itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Seen {
    pub(crate) digest: String,
    description: Option<String>,
    pub(crate) input_schema: Value,
    annotations: Value,
}

/// What differs between a server as it was accepted and as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The tool's name at the server.
    pub tool: String,
    /// `new`, `gone`, or which parts changed.
    pub what: String,
}

/// Where a connector's file is.
pub(crate) fn path(base_dir: &Path, name: &ConnectorName) -> PathBuf {
    base_dir.join(".operators/mcp").join(format!("{name}.json"))
}

impl Seen {
    pub(crate) fn of(tool: &Tool) -> Result<Self, String> {
        let annotations = serde_json::to_value(&tool.annotations);
        let annotations = annotations.map_err(|error| error.to_string())?;
        let description = tool.description.as_ref().map(ToString::to_string);
        let input_schema = Value::Object(tool.input_schema.as_ref().clone());
        let whole = json!([description, input_schema, annotations]);
        let digest = canonical::digest(&whole).map_err(|error| error.to_string())?;
        Ok(Self {
            digest: digest.text(),
            description,
            input_schema,
            annotations,
        })
    }

    /// The server's own claim, which is believed only where the configuration says so.
    pub(crate) fn says_it_reads(&self) -> bool {
        self.annotations.get("readOnlyHint") == Some(&Value::Bool(true))
    }

    pub(crate) fn has_usable_schema(&self) -> bool {
        CompiledSchema::compile(&self.input_schema).is_ok()
    }

    /// Which parts another look found different.
    pub(crate) fn changes(&self, now: &Self) -> Vec<&'static str> {
        let parts = [
            (
                self.description != now.description,
                "its description changed",
            ),
            (
                self.input_schema != now.input_schema,
                "its arguments changed",
            ),
            (self.annotations != now.annotations, "its hints changed"),
        ];
        let changed = parts.into_iter().filter(|(changed, _)| *changed);
        changed.map(|(_, part)| part).collect()
    }
}

impl Accepted {
    /// Reads the file; `None` if there is none yet.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, String> {
        let refuse = |problem: &dyn std::fmt::Display| {
            format!("cannot read `{}`: {problem}", path.display())
        };
        let about = match std::fs::metadata(path) {
            Ok(about) => about,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(refuse(&error)),
        };
        if !about.is_file() || about.len() > FILE_BYTES_MAX {
            return Err(refuse(&"not a regular file of a fitting size"));
        }
        let text = std::fs::read_to_string(path).map_err(|error| refuse(&error))?;
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| refuse(&error))
    }

    /// Replaces the file as a whole, or not at all.
    pub(crate) fn write(&self, path: &Path) -> Result<(), String> {
        let refuse = |problem: &dyn std::fmt::Display| {
            format!("cannot write `{}`: {problem}", path.display())
        };
        let text = serde_json::to_string_pretty(self).map_err(|error| refuse(&error))?;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| refuse(&error))?;
        }
        // One of its own for each process: two that come first must not write into one another.
        let beside = path.with_extension(format!("{}.new", std::process::id()));
        let written = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)
            .and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.sync_all()
            })
            .and_then(|()| std::fs::rename(&beside, path));
        written.map_err(|error| refuse(&error))
    }

    pub(crate) fn differences(&self, now: &Self) -> Vec<Difference> {
        let mut found = Vec::new();
        for (tool, seen) in &now.tools {
            let what = match self.tools.get(tool) {
                Some(before) if before.digest == seen.digest => continue,
                Some(before) => before.changes(seen).join(" and "),
                None => "new".to_owned(),
            };
            let tool = tool.clone();
            found.push(Difference { tool, what });
        }
        let gone = self
            .tools
            .keys()
            .filter(|tool| !now.tools.contains_key(*tool));
        found.extend(gone.map(|tool| Difference {
            tool: tool.clone(),
            what: "gone".to_owned(),
        }));
        found
    }
}
