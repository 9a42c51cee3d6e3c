//! The `command` connector: a call becomes one process, and its exit code one of three outcomes.
//!
//! `tool` compiles the configuration, `environment` is what a program sees of ours, `process` runs
//! it and ends its whole group, `supervisor` and `supervise` are how it is ended also where this process
//! cannot, `unsupervised` is what is known where nobody does that, `codes` reads exit codes. There is never a shell: each text of
//! `argv` becomes exactly one argument. The call is JSON on stdin, the result JSON on stdout.
//!
//! | what was seen | outcome |
//! |---|---|
//! | it does not start, or a template cannot be filled in | `NotApplied` |
//! | an exit code in `applied` (`0` unless said), stdout as `output` says | `Applied` |
//! | an exit code in `not_applied` (none unless said) | `NotApplied` |
//! | any other code, a signal, stdout over 1 MiB or unreadable, the deadline | `Unknown` |

mod codes;
mod environment;
pub(crate) mod process;
mod supervise;
mod supervisor;
mod tool;
mod unsupervised;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};

use operators_kernel::{
    Call, Connector, ConnectorError, Effect, Health, InvokeOutcome, ProbeOutcome, SecretStore,
    TenantId, ToolName,
};

use crate::command::codes::Says;
use crate::command::process::{Bounds, Ended, Failed};
use crate::command::tool::{CommandTool, Program};
use crate::command::unsupervised::Unsupervised;
use crate::config::{ConnectorConfig, OutputForm};
use crate::hidden::Hidden;
use crate::registry::{Place, RegistryError};
use crate::size::{ANSWER_DEFAULT, SizeText};

pub(crate) use environment::Environment;
#[cfg(feature = "mcp")]
pub(crate) use process::Group;
pub use supervise::supervise;
#[cfg(feature = "mcp")]
pub(crate) use supervisor::Listen;
#[cfg(feature = "mcp")]
pub(crate) use supervisor::Supervised;
pub(crate) use supervisor::Supervisor;

/// Runs programs of this machine.
#[derive(Debug)]
pub(crate) struct CommandConnector {
    environment: Environment,
    tools: BTreeMap<ToolName, CommandTool>,
    max_answer: SizeText,
    secrets: Arc<dyn SecretStore>,
    supervisor: Option<Supervisor>,
    unsupervised: Unsupervised,
}

impl CommandConnector {
    /// Compiles a connector and its tools; nothing is started.
    pub(crate) fn compile(
        config: &ConnectorConfig,
        place: &Place,
        base_dir: &Path,
        secrets: Arc<dyn SecretStore>,
    ) -> Result<Self, RegistryError> {
        let environment = Environment::compile(config, place, base_dir)?;
        let mut tools = BTreeMap::new();
        for (name, tool) in &config.tools {
            let compiled = CommandTool::compile(config, tool, &place.tool(name), base_dir)?;
            tools.insert(name.clone(), compiled);
        }
        Ok(Self {
            environment,
            tools,
            max_answer: config.max_answer.unwrap_or(ANSWER_DEFAULT),
            secrets,
            supervisor: Supervisor::of(config, base_dir),
            unsupervised: Unsupervised::default(),
        })
    }

    /// Runs one program to its end and says what its exit code means; an error is one before the
    /// start, with a sentence.
    async fn run(
        &self,
        call: &Call,
        tool: &CommandTool,
        program: &Program,
        supervisor: Option<&Supervisor>,
    ) -> Result<Answer, String> {
        let mut hidden = Hidden::of(call, &tool.secret_args);
        let argv = program.render(call)?;
        let variables = self
            .environment
            .variables(&call.tenant, self.secrets.as_ref(), &mut hidden)
            .await?;
        let told = told(call)?;
        let bounds = Bounds {
            deadline: call.deadline,
            stdout: self.max_answer,
        };
        let ended = if let Some(supervisor) = supervisor {
            let argv = supervisor.argv(&argv);
            let command = self.environment.command(&argv, variables);
            process::run_supervised(command, &told, bounds, &call.permit).await
        } else {
            let command = self.environment.command(&argv, variables);
            let permitted = call.permit.confirm().await;
            permitted.map_err(|refused| refused.message)?;
            process::run(command, &told, bounds).await
        };
        let label = format!("`{}`", program.label);
        Ok(match ended {
            Err(Failed::NotStarted(problem)) => {
                return Err(format!("{label} does not start: {problem}"));
            }
            Err(Failed::NotPermitted(problem)) => return Err(problem),
            Err(Failed::Midway(problem)) => Answer::Unknown(format!("{label} {problem}")),
            Ok(ended) => judge(&ended, tool, program, &label, &hidden),
        })
    }
}

/// What one run of a program came to.
enum Answer {
    Applied(Effect),
    NotApplied(String),
    Unknown(String),
}

fn judge(
    ended: &Ended,
    tool: &CommandTool,
    program: &Program,
    label: &str,
    hidden: &Hidden,
) -> Answer {
    let told = |ending: &str| {
        let stderr = hidden.quote(&ended.stderr);
        if stderr.is_empty() {
            format!("{label} {ending}")
        } else {
            format!("{label} {ending}: `{stderr}`")
        }
    };
    let Some(code) = ended.code else {
        return Answer::Unknown(told("was ended by a signal"));
    };
    match program.codes.says(code) {
        Says::NotApplied => Answer::NotApplied(told(&format!("ended with exit code {code}"))),
        Says::Nothing => Answer::Unknown(told(&format!(
            "ended with exit code {code}, which its configuration does not speak of"
        ))),
        Says::Applied => match result(&ended.stdout, tool.output) {
            Ok(value) => {
                let result = hidden.blank_value(value);
                let effect_id = tool.effect_id.take(&result);
                Answer::Applied(Effect {
                    result: result.into(),
                    effect_id,
                })
            }
            Err(problem) => Answer::Unknown(told(&format!(
                "ended with exit code {code}, but its stdout {problem}"
            ))),
        },
    }
}

fn result(stdout: &[u8], form: OutputForm) -> Result<Value, String> {
    let text = std::str::from_utf8(stdout).map_err(|_| "is not UTF-8".to_owned())?;
    match form {
        OutputForm::Text => Ok(Value::String(text.trim_end_matches('\n').to_owned())),
        OutputForm::Json if text.trim().is_empty() => Ok(Value::Null),
        OutputForm::Json => {
            serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))
        }
    }
}

/// What a program is told: one JSON object.
fn told(call: &Call) -> Result<Vec<u8>, String> {
    let told = json!({
        "args": call.args,
        "action": {
            "tenant": call.tenant.as_str(),
            "operator": call.operator.as_ref().map(ToString::to_string),
            "connector": call.connector.as_str(),
            "tool": call.tool.as_str(),
            "entity_key": call.entity_key.as_str(),
            "idempotency_key": call.idempotency_key.as_str(),
            "downstream_key": call.downstream_key,
            "attempt": call.attempt,
        },
        "deadline_ms": u64::try_from(call.deadline.as_millis()).unwrap_or(u64::MAX),
    });
    serde_json::to_vec(&told).map_err(|error| error.to_string())
}

#[async_trait]
impl Connector for CommandConnector {
    async fn invoke(&self, call: &Call) -> InvokeOutcome {
        let Some(tool) = self.tools.get(&call.tool) else {
            let message = format!("`{}`: the connector has no such tool", call.tool);
            return InvokeOutcome::NotApplied(ConnectorError::new(message));
        };
        // Dropped when the program was ended, by itself or from here.
        let _seen = self.unsupervised.begin(call);
        // What has no effect needs nobody to end it in time.
        let supervisor = self.supervisor.as_ref().filter(|_| !tool.reads);
        let ran = self.run(call, tool, &tool.program, supervisor).await;
        match ran.unwrap_or_else(Answer::NotApplied) {
            Answer::Applied(effect) => InvokeOutcome::Applied(effect),
            Answer::NotApplied(message) => InvokeOutcome::NotApplied(ConnectorError::new(message)),
            // A read has no effect, whatever went wrong.
            Answer::Unknown(message) if tool.reads => {
                InvokeOutcome::NotApplied(ConnectorError::new(message))
            }
            Answer::Unknown(message) => InvokeOutcome::Unknown(ConnectorError::new(message)),
        }
    }

    async fn probe(&self, call: &Call) -> ProbeOutcome {
        let unknown = |message: String| ProbeOutcome::Unknown(ConnectorError::new(message));
        let Some(tool) = self.tools.get(&call.tool) else {
            return unknown(format!("`{}`: the connector has no such tool", call.tool));
        };
        let Some(probe) = &tool.probe else {
            return unknown(format!("`{}` has no probe", call.tool));
        };
        match self.run(call, tool, probe, None).await {
            Ok(Answer::Applied(effect)) => ProbeOutcome::Applied(effect),
            Ok(Answer::NotApplied(_)) => {
                if self.supervisor.is_none() && !self.unsupervised.saw_the_end_of(call) {
                    return unknown(unsupervised::STILL_RUNS.to_owned());
                }
                ProbeOutcome::NotApplied
            }
            Ok(Answer::Unknown(problem)) | Err(problem) => unknown(problem),
        }
    }

    /// Whether every program is there; none is started.
    async fn check(&self, tenant: &TenantId) -> Health {
        let ill = |message: String| Health::Ill(ConnectorError::new(message));
        let (secrets, mut hidden) = (self.secrets.as_ref(), Hidden::without_call());
        let variables = self.environment.variables(tenant, secrets, &mut hidden);
        let variables = match variables.await {
            Ok(variables) => variables,
            Err(problem) => return ill(problem),
        };
        let programs = self.tools.values();
        let programs = programs.flat_map(|tool| tool.probe.iter().chain([&tool.program]));
        let mut found = 0;
        for program in programs {
            if let Err(problem) = self.environment.find(program.path(), &variables) {
                return ill(format!("`{}` {problem}", program.label));
            }
            found += 1;
        }
        Health::Well(match found {
            1 => "its program is there".to_owned(),
            found => format!("its {found} programs are there"),
        })
    }
}
