//! From what a server answered, or did not, to one of three outcomes.
//!
//! | what was seen | outcome |
//! |---|---|
//! | a result | `Applied` |
//! | a result with `isError` | `Unknown`, or `NotApplied` where `tool_error` says so |
//! | JSON-RPC "method not found" and "invalid params" | `NotApplied`: the server refused |
//! | no connection, or an HTTP 4xx | `NotApplied` |
//! | a result over 1 MiB, a task, a question back, any other error, a closed connection | `Unknown` |
//!
//! Owns this table. Anything it does not name is `Unknown`.

use rmcp::ServiceError;
use rmcp::model::{CallToolResponse, CallToolResult, ErrorCode};
use serde_json::Value;

use operators_kernel::{ConnectorError, Effect, InvokeOutcome, ToolName};

use crate::config::ToolErrorWord;
use crate::hidden::Hidden;
use crate::mcp::McpTool;
use crate::mcp::web;

/// The largest result taken in; results are kept with the key for ever.
const RESULT_BYTES_MAX: usize = 1024 * 1024;

pub(crate) fn of(
    answered: Result<CallToolResponse, ServiceError>,
    tool: &McpTool,
    name: &ToolName,
    hidden: &Hidden,
) -> InvokeOutcome {
    let unknown = |message: String| InvokeOutcome::Unknown(ConnectorError::new(message));
    let not_applied = |message: String| InvokeOutcome::NotApplied(ConnectorError::new(message));
    let quoted = |text: &str| hidden.quote(text);
    match answered {
        Ok(CallToolResponse::Complete(result)) => match value(&result) {
            Err(problem) => unknown(format!("`{name}` answered, but {problem}")),
            Ok(value) if result.is_error == Some(true) => {
                let told = match &value {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                let message = format!("`{name}` failed: `{}`", quoted(&told));
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
        Err(ServiceError::McpError(error)) => {
            let message = format!("`{name}` was refused: `{}`", quoted(&error.message));
            match error.code {
                ErrorCode::METHOD_NOT_FOUND | ErrorCode::INVALID_PARAMS => not_applied(message),
                _ => unknown(message),
            }
        }
        Err(ServiceError::TransportSend(error)) => match web::refused(&*error.error) {
            Some(problem) => not_applied(format!("`{name}` was not taken: {}", quoted(&problem))),
            None => unknown(format!(
                "`{name}` got no answer: {}",
                quoted(&error.to_string())
            )),
        },
        Err(error) => unknown(format!(
            "`{name}` got no answer: {}",
            quoted(&error.to_string())
        )),
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
