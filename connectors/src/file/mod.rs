//! The `file` connector: one JSON line per effect, on disk before it is reported.
//!
//! The line carries the downstream key, so "did it happen?" has an answer: the tool is
//! `probeable`. Arguments are written as they are; a tool with secret arguments is therefore
//! refused when the configuration loads. Owns the lines; `append` owns the file.

mod append;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use operators_kernel::{
    Call, Connector, ConnectorError, Effect, Health, InvokeOutcome, ProbeOutcome, SendPermit,
    Shared, TenantId, ToolName,
};

use crate::config::{ConnectorConfig, EffectWord, ToolConfig};
use crate::file::append::{Appended, Patience};
use crate::registry::{Place, RegistryError, effect_word};

/// How many lines a read answers with: the last ones.
const LINES_MAX: usize = 1_000;

/// Appends to one file.
#[derive(Debug)]
pub(crate) struct FileConnector {
    /// The path as configured, for results and messages.
    shown: String,
    path: PathBuf,
    /// Each tool, and whether it only reads.
    tools: BTreeMap<ToolName, bool>,
}

/// One effect, as it stands in the file. There is no time in it: the receipt has that.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    downstream_key: String,
    tenant: String,
    idempotency_key: String,
    entity_key: String,
    tool: String,
    args: Shared<Map<String, Value>>,
}

impl FileConnector {
    /// Compiles a connector and its tools; the file is not touched.
    pub(crate) fn compile(
        config: &ConnectorConfig,
        place: &Place,
        base_dir: &Path,
    ) -> Result<Self, RegistryError> {
        let shown = match &config.path {
            Some(path) if !path.is_empty() => path.clone(),
            _ => return Err(place.refuse("path", "is missing; write `path = \"effects.jsonl\"`")),
        };
        let mut tools = BTreeMap::new();
        for (name, tool) in &config.tools {
            let reads = compile_tool(config, tool, &place.tool(name))?;
            tools.insert(name.clone(), reads);
        }
        let path = base_dir.join(&shown);
        Ok(Self { shown, path, tools })
    }

    fn effect(&self, call: &Call) -> Effect {
        Effect {
            result: json!({ "appended": true, "file": self.shown }).into(),
            effect_id: Some(call.downstream_key.clone()),
        }
    }

    fn error(&self, problem: &str) -> ConnectorError {
        ConnectorError::new(format!("file `{}`: {problem}", self.shown.escape_debug()))
    }

    async fn append(&self, call: &Call) -> InvokeOutcome {
        let line = match line_of(call) {
            Ok(line) => line,
            Err(problem) => return InvokeOutcome::NotApplied(self.error(&problem)),
        };
        let path = self.path.clone();
        let waiting = Waiting::new(call);
        let patience = waiting.patience();
        let written =
            tokio::task::spawn_blocking(move || append::append(&path, &line, &patience)).await;
        drop(waiting);
        match written {
            Ok(Appended::Durable) => InvokeOutcome::Applied(self.effect(call)),
            Ok(Appended::Nothing(problem)) => InvokeOutcome::NotApplied(self.error(&problem)),
            Ok(Appended::Unsure(problem)) => InvokeOutcome::Unknown(self.error(&problem)),
            // A panic half-way, or a runtime that is going away.
            Err(error) => InvokeOutcome::Unknown(self.error(&error.to_string())),
        }
    }

    async fn read(&self, call: &Call) -> InvokeOutcome {
        let path = self.path.clone();
        let (tenant, entity_key) = (call.tenant.to_string(), call.entity_key.to_string());
        let read = tokio::task::spawn_blocking(move || {
            let mut last = VecDeque::new();
            append::each_line(&path, |text| {
                let Some(line) = parse(text) else { return };
                if line.tenant == tenant && line.entity_key == entity_key {
                    if last.len() == LINES_MAX {
                        last.pop_front();
                    }
                    last.push_back(json!(line));
                }
            })
            .map(|()| last)
        });
        match read.await {
            Ok(Ok(lines)) => InvokeOutcome::Applied(Effect::of(Value::Array(lines.into()))),
            // A read has no effect, whatever went wrong.
            Ok(Err(problem)) => InvokeOutcome::NotApplied(self.error(&problem)),
            Err(error) => InvokeOutcome::NotApplied(self.error(&error.to_string())),
        }
    }
}

#[async_trait]
impl Connector for FileConnector {
    async fn invoke(&self, call: &Call) -> InvokeOutcome {
        match self.tools.get(&call.tool) {
            Some(true) => self.read(call).await,
            Some(false) => self.append(call).await,
            None => InvokeOutcome::NotApplied(self.error(&format!("no tool `{}`", call.tool))),
        }
    }

    /// Whether the file could be written to; nothing is.
    async fn check(&self, _tenant: &TenantId) -> Health {
        let folder = self
            .path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let found = match (self.path.metadata(), folder.metadata()) {
            (Ok(file), _) if file.is_file() && !file.permissions().readonly() => Ok("is there"),
            (Ok(_), _) => Err("is not a file that can be written to"),
            (Err(_), Ok(folder)) if folder.is_dir() => Ok("will be made by the first effect"),
            (Err(_), _) => Err("is in a folder that is not there"),
        };
        match found {
            Ok(told) => Health::Well(format!("`{}` {told}", self.shown.escape_debug())),
            Err(problem) => Health::Ill(self.error(problem)),
        }
    }

    /// Reads the whole file: probes are rare, and the file needs no index beside it.
    async fn probe(&self, call: &Call) -> ProbeOutcome {
        let path = self.path.clone();
        let key = call.downstream_key.clone();
        let waiting = Waiting::new(call);
        let patience = waiting.patience();
        let looked = tokio::task::spawn_blocking(move || {
            let mut found = false;
            append::each_settled_line(&path, &patience, |text| {
                found = found || parse(text).is_some_and(|line| line.downstream_key == key);
            })
            .map(|()| found)
        });
        let looked = looked.await;
        drop(waiting);
        match looked {
            Ok(Ok(true)) => ProbeOutcome::Applied(self.effect(call)),
            Ok(Ok(false)) => ProbeOutcome::NotApplied,
            Ok(Err(problem)) => ProbeOutcome::Unknown(self.error(&problem)),
            Err(error) => ProbeOutcome::Unknown(self.error(&error.to_string())),
        }
    }
}

/// Says whether the tool only reads.
fn compile_tool(
    config: &ConnectorConfig,
    tool: &ToolConfig,
    place: &Place,
) -> Result<bool, RegistryError> {
    if !tool.secret_args.is_empty() {
        return Err(place.refuse(
            "secret_args",
            "a file tool writes its arguments as they are; leave secrets out of the plan",
        ));
    }
    match effect_word(config, tool) {
        EffectWord::Read => Ok(true),
        EffectWord::Probeable | EffectWord::Opaque | EffectWord::Transactional => Ok(false),
        EffectWord::Idempotent | EffectWord::Keyed => Err(place.refuse(
            "effect",
            "appending twice leaves two lines; a file tool is `probeable`, `opaque` or `read`",
        )),
    }
}

fn line_of(call: &Call) -> Result<Vec<u8>, String> {
    let line = Line {
        downstream_key: call.downstream_key.clone(),
        tenant: call.tenant.to_string(),
        idempotency_key: call.idempotency_key.to_string(),
        entity_key: call.entity_key.to_string(),
        tool: call.tool.to_string(),
        args: call.args.clone(),
    };
    // JSON escapes line breaks, so this is one line.
    let mut text = serde_json::to_vec(&line).map_err(|error| error.to_string())?;
    text.push(b'\n');
    Ok(text)
}

/// A line of ours; anything else in the file is not an effect.
fn parse(text: &[u8]) -> Option<Line> {
    serde_json::from_slice(text).ok()
}

/// The caller's side of a blocking task: dropping it, as the executor does at the deadline, tells
/// the task that nobody waits any more.
struct Waiting {
    gone: Arc<AtomicBool>,
    until: Instant,
    permit: SendPermit,
}

impl Waiting {
    fn new(call: &Call) -> Self {
        Self {
            gone: Arc::default(),
            until: Instant::now() + call.deadline,
            permit: call.permit.clone(),
        }
    }

    fn patience(&self) -> Patience {
        Patience::new(Arc::clone(&self.gone), self.until, self.permit.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::SeqCst);
    }
}
