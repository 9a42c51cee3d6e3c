//! Reading an answer: within its cap, to its marked end, as JSON where it is called JSON.
//!
//! Owns what counts as a whole body. It must not know what a status means.

use std::time::Duration;

use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use serde_json::Value;

use crate::http::sender::Answer;
use crate::size::SizeText;

/// How much of a refusal is read for its message, and for how long: it is refused either way.
const REFUSAL_BYTES_MAX: usize = 16 * 1024;
const REFUSAL_WAIT_MAX: Duration = Duration::from_millis(500);

/// What the headers say about the body.
pub(crate) struct Head {
    json: bool,
    /// Whether the end of the body is marked. If not, it ends when the connection does, and a
    /// crash looks the same as an end.
    framed: bool,
}

impl Head {
    pub(crate) fn of(answer: &Answer) -> Self {
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
    pub(crate) fn value(&self, body: &[u8]) -> Result<Value, String> {
        if body.is_empty() && (self.framed || !self.json) {
            return Ok(Value::Null);
        }
        match serde_json::from_slice(body) {
            Ok(value) => Ok(value),
            Err(error) if self.json => Err(format!("not JSON: {error}")),
            Err(_) => Ok(Value::String(String::from_utf8_lossy(body).into_owned())),
        }
    }

    /// Whether the body is whole: marked so, or at least the JSON it is called.
    pub(crate) fn complete(&self, body: &[u8]) -> Result<(), String> {
        if self.framed {
            return Ok(());
        }
        self.value(body).map(drop)
    }
}

/// Reads a body to its end, if that comes before `max`: results are kept with the key for ever.
pub(crate) async fn read(answer: &mut Answer, max: SizeText) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    loop {
        match answer.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > max.bytes() => {
                return Err(format!("it is larger than {max}"));
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            Err(problem) => return Err(problem),
        }
    }
}

/// Reads what is there of a body whose end does not matter.
pub(crate) async fn glance(answer: &mut Answer) -> Vec<u8> {
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
