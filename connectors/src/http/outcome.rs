//! From an answer, or the lack of one, to one of three outcomes.
//!
//! | what was seen | outcome |
//! |---|---|
//! | 2xx, whole body: JSON, another text, or nothing | `Applied` (202 too: the vendor took it on) |
//! | 2xx, body cut off, over 1 MiB, or called JSON and not JSON | `Unknown` |
//! | 4xx, 425 and 429 included | `NotApplied`: the vendor refused |
//! | 408 | `Unknown`: a proxy says it too, about a request it passed on |
//! | 500 with a whole answer | `NotApplied`: the vendor's own word that it failed |
//! | 500 cut off, or over 1 MiB | `Unknown` |
//! | 3xx (never followed), 1xx, 501–599 (502, 503 and 504 come from proxies) | `Unknown` |
//! | no connection: refused, unknown name, blocked address, TLS, connect time-out | `NotApplied` |
//! | time-out, reset or closed after the request began to leave | `Unknown` |
//! | an answer that is not HTTP | `Unknown` |
//!
//! Owns this table. Anything it does not name is `Unknown`.

use std::error::Error;
use std::time::Duration;

use reqwest::Response;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use serde_json::Value;

use operators_kernel::{ConnectorError, Effect, InvokeOutcome};

use crate::hidden::Hidden;
use crate::http::address::Blocked;
use crate::snippet::snippet;

/// The largest answer taken in; results are kept with the key for ever.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// How much of a refusal is read for its message, and for how long: it is refused either way.
const REFUSAL_BYTES_MAX: usize = 16 * 1024;
const REFUSAL_WAIT_MAX: Duration = Duration::from_millis(500);

/// The longest id taken over from an answer.
const EFFECT_ID_CHARS_MAX: usize = 256;

/// Classifies an answer. `label` names the request; `hidden` is never quoted.
pub(crate) async fn of_answer(mut answer: Response, label: &str, hidden: &Hidden) -> InvokeOutcome {
    let status = answer.status().as_u16();
    let head = Head::of(&answer);
    tracing::debug!(status, "the vendor answered");
    match status {
        200..=299 => match read(&mut answer, ANSWER_BYTES_MAX)
            .await
            .and_then(|b| head.value(&b))
        {
            Ok(value) => applied(hidden.blank_value(value)),
            Err(problem) => unknown(format!(
                "{label} answered {status}, but the body cannot be read: {problem}"
            )),
        },
        500 => {
            match read(&mut answer, ANSWER_BYTES_MAX)
                .await
                .and_then(|b| head.complete(b))
            {
                Ok(body) => not_applied(quoted(label, status, &body, hidden)),
                Err(problem) => unknown(format!("{label} answered {status}, cut short: {problem}")),
            }
        }
        400..=407 | 409..=499 => {
            not_applied(quoted(label, status, &glance(&mut answer).await, hidden))
        }
        _ => unknown(quoted(label, status, &glance(&mut answer).await, hidden)),
    }
}

/// Classifies a request that got no answer.
pub(crate) fn of_failure(error: &reqwest::Error, label: &str, hidden: &Hidden) -> InvokeOutcome {
    if let Some(blocked) = sources(error).find_map(|source| source.downcast_ref::<Blocked>()) {
        return not_applied(format!("{label} was not sent: {blocked}"));
    }
    let cause = snippet(&hidden.blank(&cause(error)));
    // Only before the first byte: connections are never reused, so "connect" is about this
    // request (`INVARIANT (sent-once)` in `client`).
    if error.is_connect() || error.is_builder() {
        return not_applied(format!("{label} was not sent: no connection: {cause}"));
    }
    if error.is_timeout() {
        return unknown(format!("{label} got no answer in time"));
    }
    unknown(format!("{label} got no answer: {cause}"))
}

fn applied(result: Value) -> InvokeOutcome {
    let effect_id = match result.get("id") {
        Some(Value::String(id)) if id.chars().count() <= EFFECT_ID_CHARS_MAX => Some(id.clone()),
        Some(Value::Number(id)) => Some(id.to_string()),
        _ => None,
    };
    InvokeOutcome::Applied(Effect { result, effect_id })
}

fn not_applied(message: String) -> InvokeOutcome {
    InvokeOutcome::NotApplied(ConnectorError::new(message))
}

fn unknown(message: String) -> InvokeOutcome {
    InvokeOutcome::Unknown(ConnectorError::new(message))
}

/// What the headers say about the body.
struct Head {
    json: bool,
    /// Whether the end of the body is marked. If not, it ends when the connection does, and a
    /// crash looks the same as an end.
    framed: bool,
}

impl Head {
    fn of(answer: &Response) -> Self {
        let headers = answer.headers();
        let media = headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let media = media
            .unwrap_or_default()
            .split(';')
            .next()
            .unwrap_or_default();
        let media = media.trim().to_ascii_lowercase();
        Self {
            json: media.ends_with("/json") || media.ends_with("+json"),
            framed: headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING),
        }
    }

    /// The body as a result, or why it cannot be one.
    fn value(&self, body: &[u8]) -> Result<Value, String> {
        if body.is_empty() && (self.framed || !self.json) {
            return Ok(Value::Null);
        }
        match serde_json::from_slice(body) {
            Ok(value) => Ok(value),
            Err(error) if self.json => Err(format!("not JSON: {error}")),
            Err(_) => Ok(Value::String(String::from_utf8_lossy(body).into_owned())),
        }
    }

    /// The body again, unless a missing end shows: unmarked, and not the JSON it is called.
    fn complete(&self, body: Vec<u8>) -> Result<Vec<u8>, String> {
        if self.framed {
            return Ok(body);
        }
        self.value(&body).map(|_| body)
    }
}

/// Reads a body to its end.
async fn read(answer: &mut Response, bytes_max: usize) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    loop {
        match answer.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > bytes_max => {
                return Err(format!("it is larger than {bytes_max} bytes"));
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            Err(error) if error.is_timeout() => return Err("it did not end in time".to_owned()),
            Err(error) => return Err(cause(&error)),
        }
    }
}

/// Reads what is there of a body whose end does not matter.
async fn glance(answer: &mut Response) -> Vec<u8> {
    let mut body = Vec::new();
    let reading = async {
        while let Ok(Some(chunk)) = answer.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() >= REFUSAL_BYTES_MAX {
                break;
            }
        }
    };
    // Whether it ended or the time did is the same to a message.
    let _in_time = tokio::time::timeout(REFUSAL_WAIT_MAX, reading)
        .await
        .is_ok();
    body
}

fn quoted(label: &str, status: u16, body: &[u8], hidden: &Hidden) -> String {
    let text = hidden.blank(&message_of(body));
    if text.trim().is_empty() {
        return format!("{label} answered {status}");
    }
    format!("{label} answered {status}: `{}`", snippet(text.trim()))
}

/// The sentence in a vendor's error, where one of the usual places has it; else the body.
fn message_of(body: &[u8]) -> String {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    let found = parsed.as_ref().and_then(|value| {
        ["/error/message", "/message", "/error", "/detail", "/title"]
            .iter()
            .find_map(|place| value.pointer(place).and_then(Value::as_str))
    });
    match found {
        Some(message) => message.to_owned(),
        None => String::from_utf8_lossy(body).into_owned(),
    }
}

/// The innermost cause: the library's own words around it name the URL.
fn cause(error: &reqwest::Error) -> String {
    match sources(error).last() {
        Some(innermost) => innermost.to_string(),
        None => "no cause was given".to_owned(),
    }
}

fn sources(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |source: &&(dyn Error + 'static)| {
        (*source).source()
    })
}
