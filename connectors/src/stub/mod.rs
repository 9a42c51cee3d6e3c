//! `mode = "stub"`: answers in place of any connector, for rehearsals.
//!
//! Owns the file of answers and the echo. It reaches nothing; that its keys stay apart from real
//! ones is the kernel's business (`ToolMode::Stub`). The effect id of everything a stub does
//! begins with `stub:`, so that no receipt of it can be taken for another.

use std::collections::BTreeMap;
use std::path::Path;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use operators_kernel::{
    Call, Connector, ConnectorError, Effect, Health, InvokeOutcome, ProbeOutcome, TenantId,
    ToolName,
};

use crate::config::ConnectorConfig;
use crate::registry::{Place, RegistryError};
use crate::schema;

/// What every effect id of a stub begins with.
const MARK: &str = "stub:";

/// Answers for one connector.
#[derive(Debug)]
pub(crate) struct StubConnector {
    answers: BTreeMap<ToolName, Answer>,
}

/// What a tool answers, every time.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    #[serde(default)]
    outcome: Word,
    /// Left out: the call's own arguments.
    #[serde(default)]
    result: Option<Value>,
    #[serde(default)]
    effect_id: Option<String>,
    #[serde(default)]
    error: Option<String>,
    /// What a probe finds; left out, it cannot tell.
    #[serde(default)]
    probe: Option<Word>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    #[default]
    Applied,
    NotApplied,
    Unknown,
}

impl StubConnector {
    /// Reads the file of answers, if one is named; every tool in it must be configured.
    pub(crate) fn load(
        config: &ConnectorConfig,
        place: &Place,
        base_dir: &Path,
    ) -> Result<Self, RegistryError> {
        let refuse = |problem: String| place.refuse("answers", problem);
        let answers: BTreeMap<ToolName, Answer> = match &config.answers {
            None => BTreeMap::new(),
            Some(path) => {
                let value = schema::read(&base_dir.join(path)).map_err(refuse)?;
                operators_kernel::json::from_value(value)
                    .map_err(|error| refuse(format!("`{}`: {error}", path.escape_debug())))?
            }
        };
        if let Some(name) = answers.keys().find(|name| !config.tools.contains_key(name)) {
            return Err(refuse(format!("the connector has no tool `{name}`")));
        }
        Ok(Self { answers })
    }

    fn answer(&self, call: &Call) -> Answer {
        self.answers.get(&call.tool).cloned().unwrap_or_default()
    }
}

fn effect(answer: Answer, call: &Call) -> Effect {
    let id = answer.effect_id.as_ref().unwrap_or(&call.downstream_key);
    Effect {
        effect_id: Some(format!("{MARK}{id}")),
        result: answer.result.unwrap_or_else(|| json!(call.args)).into(),
    }
}

fn error(answer: &Answer) -> ConnectorError {
    let said = answer.error.as_deref().unwrap_or("its answers say so");
    ConnectorError::new(format!("the stub failed on purpose: {said}"))
}

#[async_trait]
impl Connector for StubConnector {
    async fn invoke(&self, call: &Call) -> InvokeOutcome {
        // A rehearsal meets what the real call would meet.
        if let Err(refused) = call.permit.check() {
            return InvokeOutcome::NotApplied(refused);
        }
        let answer = self.answer(call);
        match answer.outcome {
            Word::Applied => InvokeOutcome::Applied(effect(answer, call)),
            Word::NotApplied => InvokeOutcome::NotApplied(error(&answer)),
            Word::Unknown => InvokeOutcome::Unknown(error(&answer)),
        }
    }

    async fn probe(&self, call: &Call) -> ProbeOutcome {
        let answer = self.answer(call);
        match answer.probe {
            Some(Word::Applied) => ProbeOutcome::Applied(effect(answer, call)),
            Some(Word::NotApplied) => ProbeOutcome::NotApplied,
            Some(Word::Unknown) | None => ProbeOutcome::Unknown(error(&answer)),
        }
    }

    async fn check(&self, _tenant: &TenantId) -> Health {
        Health::Well("a stub: nothing is reached".to_owned())
    }
}
