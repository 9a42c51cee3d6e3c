//! One JSON-RPC message of a server, looked at before the library sees it.
//!
//! Owns what counts as an answer to a request of ours. The library drops what it does not know: a
//! tool's fields, and a message that is a result and an error at once, which leaves its request
//! waiting.

use rmcp::model::{ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use serde_json::{Map, Value};

/// Where a tool, as the server wrote it, stands in its own `_meta`.
pub(crate) const WHOLE_TOOL: &str = "operators/whole-tool";

/// What a body says that came with a status of failure.
pub(crate) enum Refusal {
    /// Nothing was done; the words for it, as far as there are any.
    Words(String),
    /// It is the answer all the same.
    Answer(Box<ServerJsonRpcMessage>),
    /// Something was done, and it cannot be told what.
    Unclear(&'static str),
}

/// Reads a message that may be anything. An answer that cannot be read becomes an error of ours,
/// so that its request ends; what is no message is `None`.
pub(crate) fn read(text: &[u8]) -> Option<ServerJsonRpcMessage> {
    let value = parsed(text)?;
    let id = id_of(&value);
    match understood(value) {
        Ok(message) => Some(message),
        Err(problem) => {
            tracing::debug!(problem, "a message of a server was not understood");
            let problem = format!("its answer cannot be read: {problem}");
            let error = ErrorData::internal_error(problem, None);
            id.map(|id| ServerJsonRpcMessage::error(error, Some(id)))
        }
    }
}

/// Reads the answer to the request `id`.
pub(crate) fn answer(text: &[u8], id: &RequestId) -> Result<ServerJsonRpcMessage, &'static str> {
    let value = parsed(text).ok_or("it is no JSON object")?;
    let is_ours = id_of(&value).as_ref() == Some(id);
    match understood(value)? {
        JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) if !is_ours => {
            Err("it is the answer to another request")
        }
        message @ (JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)) => Ok(message),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {
            Err("it is neither a result nor an error")
        }
    }
}

/// Reads what came with a status of failure for the request `id`.
pub(crate) fn refusal(text: &[u8], id: &RequestId) -> Refusal {
    let words = String::from_utf8_lossy(text);
    let Ok(mut value) = serde_json::from_slice::<Value>(without_mark(text)) else {
        return if may_tell_result(&words) {
            Refusal::Unclear("it cannot be read")
        } else {
            Refusal::Words(words.into_owned())
        };
    };
    without_null(&mut value);
    let has_result = |one: &Value| one.get("result").is_some();
    if !has_result(&value)
        && !value
            .as_array()
            .is_some_and(|all| all.iter().any(has_result))
    {
        if is_result_inside(&value) {
            return Refusal::Unclear("it stands inside something else");
        }
        let places = ["/error/message", "/message", "/error", "/detail"];
        let mut found = places
            .iter()
            .filter_map(|place| value.pointer(place)?.as_str());
        let words = found
            .next()
            .map_or_else(|| value.to_string(), str::to_owned);
        return Refusal::Words(words);
    }
    match answer(text, id) {
        Ok(message) => Refusal::Answer(Box::new(message)),
        Err(problem) => Refusal::Unclear(problem),
    }
}

/// The data of one event, as the library is to see it.
pub(crate) fn of_event(data: &str) -> Option<String> {
    let message = read(data.as_bytes())?;
    serde_json::to_string(&message).ok()
}

/// Whether what is no JSON as a whole may tell a result all the same: JSON that was cut off, or that
/// stands among events, in another text or in another encoding.
fn may_tell_result(text: &str) -> bool {
    let begin = text.trim_start_matches(|c: char| c == '\u{feff}' || c.is_whitespace());
    begin.starts_with(['{', '[']) || names_result(text)
}

fn names_result(text: &str) -> bool {
    let is_filling = |c: &char| matches!(c, '\0' | '\\') || c.is_whitespace();
    let plain: String = text.chars().filter(|c| !is_filling(c)).collect();
    plain.contains("\"result\":")
}

/// Whether a result stands anywhere inside, in a text too.
fn is_result_inside(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields
            .iter()
            .any(|(name, field)| (name == "result" && !field.is_null()) || is_result_inside(field)),
        Value::Array(items) => items.iter().any(is_result_inside),
        Value::String(text) => names_result(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text)
}

fn parsed(text: &[u8]) -> Option<Value> {
    let mut value: Value = serde_json::from_slice(without_mark(text)).ok()?;
    without_null(&mut value);
    value.is_object().then_some(value)
}

/// Some servers write both fields, and null into the one that does not hold.
fn without_null(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else {
        return;
    };
    for (one, other) in [("result", "error"), ("error", "result")] {
        if fields.get(one) == Some(&Value::Null) && fields.contains_key(other) {
            fields.remove(one);
        }
    }
}

/// The id that an answer carries. Ours are numbers; some servers give them back as texts.
fn id_of(value: &Value) -> Option<RequestId> {
    if value.get("method").is_some() {
        return None;
    }
    let number = match value.get("id")? {
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(id), _) => id,
            (None, Some(id)) => format!("{id}").parse().ok()?,
            (None, None) => return None,
        },
        Value::String(text) => text.parse().ok()?,
        _ => return None,
    };
    Some(RequestId::Number(number))
}

fn understood(mut value: Value) -> Result<ServerJsonRpcMessage, &'static str> {
    if value.get("result").is_some() && value.get("error").is_some() {
        return Err("it is a result and an error at once");
    }
    let id = id_of(&value);
    if let (Some(id), Some(fields)) = (id, value.as_object_mut()) {
        fields.insert("id".to_owned(), id.into_json_value());
    }
    let tools = value
        .pointer_mut("/result/tools")
        .and_then(Value::as_array_mut);
    for tool in tools.into_iter().flatten().filter_map(Value::as_object_mut) {
        keep_whole(tool);
    }
    serde_json::from_value(value).map_err(|_| "it is no message of the protocol")
}

/// Puts the tool beside itself, where the library passes on what it does not know.
fn keep_whole(tool: &mut Map<String, Value>) {
    let mut whole = tool.clone();
    whole.remove("_meta");
    let meta = tool
        .entry("_meta")
        .or_insert_with(|| Value::Object(Map::new()));
    if meta.is_null() {
        *meta = Value::Object(Map::new());
    }
    if let Some(meta) = meta.as_object_mut() {
        meta.insert(WHOLE_TOOL.to_owned(), Value::Object(whole));
    }
}
