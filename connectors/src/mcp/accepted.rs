//! What a person has accepted of a server: its tools, as they described themselves then.
//!
//! Owns the file `.operators/mcp/NAME.json` and what counts as a change. A server that changes a
//! description or a schema after it was reviewed is the oldest trick against agents.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use operators_kernel::{ConnectorName, json as canonical};

use crate::hidden::Hidden;
use crate::mcp::message::WHOLE_TOOL;
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
    /// All else that it says of itself, but `_meta`. Files from before this was looked at lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rest: Option<Map<String, Value>>,
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
        let rest = rest_of(tool)?;
        let whole = json!([description, input_schema, annotations, rest]);
        let digest = canonical::digest(&whole).map_err(|error| error.to_string())?;
        Ok(Self {
            digest: digest.text(),
            description,
            input_schema,
            annotations,
            rest: Some(rest),
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
    pub(crate) fn changes(&self, now: &Self, hidden: &Hidden) -> Vec<String> {
        if self.digest == now.digest {
            return Vec::new();
        }
        let parts = [
            (self.description != now.description, "description"),
            (self.input_schema != now.input_schema, "arguments"),
            (self.annotations != now.annotations, "hints"),
        ];
        let differing = parts.into_iter().filter(|(differs, _)| *differs);
        let mut changes: Vec<String> = differing
            .map(|(_, part)| format!("its {part} changed"))
            .collect();
        if let (Some(before), Some(rest)) = (&self.rest, &now.rest) {
            let names: BTreeSet<&String> = before.keys().chain(rest.keys()).collect();
            let differing = names
                .into_iter()
                .filter(|name| before.get(*name) != rest.get(*name));
            changes.extend(differing.map(|name| format!("its {} changed", quoted(name, hidden))));
        }
        changes
    }
}

/// What a tool says of itself beside its description, arguments and hints.
fn rest_of(tool: &Tool) -> Result<Map<String, Value>, String> {
    let whole = tool.meta.as_ref().and_then(|meta| meta.0.get(WHOLE_TOOL));
    let whole = match whole {
        Some(whole) => whole.clone(),
        None => serde_json::to_value(tool).map_err(|error| error.to_string())?,
    };
    let Value::Object(mut rest) = whole else {
        return Ok(Map::new());
    };
    let elsewhere = ["name", "description", "inputSchema", "annotations", "_meta"];
    rest.retain(|name, value| !elsewhere.contains(&name.as_str()) && !value.is_null());
    Ok(rest)
}

/// The name of a field, which the server chose.
fn quoted(name: &str, hidden: &Hidden) -> String {
    format!("`{}`", hidden.quote(name))
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
        if u64::try_from(text.len()).is_ok_and(|bytes| bytes > FILE_BYTES_MAX) {
            return Err(refuse(
                &"the server says more of itself than could be read back",
            ));
        }
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

    pub(crate) fn differences(&self, now: &Self, hidden: &Hidden) -> Vec<Difference> {
        let mut found = Vec::new();
        for (tool, seen) in &now.tools {
            let what = match self.tools.get(tool) {
                Some(before) => before.changes(seen, hidden).join(" and "),
                None => "new".to_owned(),
            };
            if what.is_empty() {
                continue;
            }
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

    /// What is looked at now, and was not when this was accepted: of tools that are as they were
    /// otherwise, it is taken as accepted, as everything is that is seen for the first time. `None`
    /// if there is nothing of the kind.
    pub(crate) fn complete(&mut self, now: &Self, hidden: &Hidden) -> Option<Vec<Difference>> {
        let lacking = self
            .tools
            .iter_mut()
            .filter(|(_, seen)| seen.rest.is_none());
        let mut found = None;
        for (tool, before) in lacking {
            let Some(seen) = now.tools.get(tool) else {
                continue;
            };
            if !before.changes(seen, hidden).is_empty() {
                continue;
            }
            *before = seen.clone();
            let found = found.get_or_insert_with(Vec::new);
            let names: Vec<String> = seen
                .rest
                .iter()
                .flatten()
                .map(|(name, _)| quoted(name, hidden))
                .collect();
            if !names.is_empty() {
                found.push(Difference {
                    tool: tool.clone(),
                    what: format!("its {} seen for the first time", names.join(" and ")),
                });
            }
        }
        found
    }
}
