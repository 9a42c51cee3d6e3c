//! From what a server answered, or did not, to one of three outcomes.
//!
//! | what was seen | outcome |
//! |---|---|
//! | a result, whatever the HTTP status | `Applied` |
//! | a result with `isError` | `Unknown`, or `NotApplied` where `tool_error` says so |
//! | JSON-RPC "method not found" and "invalid params" | `NotApplied`: the server refused |
//! | no connection, or an HTTP 4xx without a result | `NotApplied` |
//! | a result over 1 MiB, a task, a question back, any other error, a closed connection | `Unknown` |
//!
//! Owns this table. Anything it does not name is `Unknown`. Only of what did not happen is it said
//! that it was refused, or not taken.

use rmcp::ServiceError;
use rmcp::model::{CallToolResponse, CallToolResult, ErrorCode};
use serde_json::Value;

use operators_kernel::{ConnectorError, Effect, InvokeOutcome, ToolName};

use crate::config::ToolErrorWord;
use crate::hidden::Hidden;
use crate::mcp::McpTool;
use crate::mcp::fault::{Fault, Meaning, first_line};
use crate::mcp::link::Link;

/// The largest result taken in; results are kept with the key for ever.
const RESULT_BYTES_MAX: usize = 1024 * 1024;

/// What a call ended with, if not with an answer.
pub(crate) enum Ended {
    /// The server refused it, in these words.
    Refused(String),
    /// Another error of the server's, or of the way to it.
    Fault(Fault),
}

impl Ended {
    pub(crate) fn of(error: &ServiceError, link: &Link) -> Self {
        match error {
            ServiceError::McpError(error)
                if matches!(
                    error.code,
                    ErrorCode::METHOD_NOT_FOUND | ErrorCode::INVALID_PARAMS
                ) =>
            {
                Self::Refused(first_line(&error.message).to_owned())
            }
            other => Self::Fault(link.fault(other)),
        }
    }
}

pub(crate) fn of(
    answered: Result<CallToolResponse, Ended>,
    tool: &McpTool,
    name: &ToolName,
    hidden: &Hidden,
) -> InvokeOutcome {
    let unknown = |message: String| InvokeOutcome::Unknown(ConnectorError::new(message));
    let not_applied = |message: String| InvokeOutcome::NotApplied(ConnectorError::new(message));
    match answered {
        Ok(CallToolResponse::Complete(result)) => match value(&result) {
            Err(problem) => unknown(format!("`{name}` answered, but {problem}")),
            Ok(value) if result.is_error == Some(true) => {
                let told = match &value {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                let message = format!("`{name}` answered with an error: `{}`", hidden.quote(&told));
                match tool.tool_error {
                    ToolErrorWord::Unknown => unknown(message),
                    ToolErrorWord::NotApplied => not_applied(message),
                }
            }
            Ok(value) => applied(hidden.blank_value(value), tool),
        },
        Ok(_) => unknown(format!(
            "`{name}` did not answer but asked for more, which a call of ours does not give"
        )),
        Err(Ended::Refused(words)) => {
            not_applied(format!("`{name}` was refused: `{}`", hidden.quote(&words)))
        }
        Err(Ended::Fault(fault)) => {
            let told = fault.told(hidden);
            match fault.meaning {
                Meaning::NotTaken | Meaning::NotLetIn | Meaning::Forgotten => {
                    not_applied(format!("`{name}` was not taken: {told}"))
                }
                Meaning::Open => unknown(format!("`{name}` got no result: {told}")),
            }
        }
    }
}

fn applied(result: Value, tool: &McpTool) -> InvokeOutcome {
    let effect_id = tool.effect_id.take(&result);
    InvokeOutcome::Applied(Effect {
        result: result.into(),
        effect_id,
    })
}

/// What a result says: its structured part, the one text it has, or all of its blocks.
fn value(result: &CallToolResult) -> Result<Value, String> {
    let blocks = serde_json::to_value(&result.content).map_err(|error| error.to_string())?;
    let value = match (&result.structured_content, blocks) {
        (Some(structured), _) => structured.clone(),
        (None, Value::Array(blocks)) => match blocks.as_slice() {
            [one] if one.get("type") == Some(&Value::String("text".to_owned())) => {
                let text = one.get("text").and_then(Value::as_str).unwrap_or_default();
                let parsed = serde_json::from_str(text);
                parsed.unwrap_or_else(|_| Value::String(text.to_owned()))
            }
            _ => Value::Array(blocks),
        },
        (None, other) => other,
    };
    // What it takes as JSON is what will be kept.
    let bytes = serde_json::to_vec(&value).map_err(|error| error.to_string())?;
    if bytes.len() > RESULT_BYTES_MAX {
        return Err(format!(
            "its result is larger than {RESULT_BYTES_MAX} bytes"
        ));
    }
    Ok(value)
}
