//! From an answer, or the lack of one, to one of three outcomes.
//!
//! | what was seen, unless the tool's mapping says otherwise | outcome |
//! |---|---|
//! | 2xx, whole body: JSON, another text, or nothing | `Applied` (202 too: the vendor took it on) |
//! | 2xx, body cut off, over `max_answer` (1 MiB), or called JSON and not JSON | `Unknown` |
//! | 4xx, 425 and 429 included | `NotApplied`: the vendor refused |
//! | 408 | `Unknown`: a proxy says it too, about a request it passed on |
//! | 500 with a whole answer | `NotApplied`: the vendor's own word that it failed |
//! | 500 cut off, or over `max_answer` | `Unknown` |
//! | 3xx (never followed), 1xx, 501–599 (502, 503 and 504 come from proxies) | `Unknown` |
//! | no connection: refused, unknown name, blocked address, TLS, connect time-out | `NotApplied` |
//! | held back, or closed, before the first byte of the request left | `NotApplied` |
//! | time-out, reset or closed after the request began to leave | `Unknown` |
//! | an answer that is not HTTP | `Unknown` |
//!
//! A mapping moves statuses between the first columns; it cannot make an unreadable answer
//! readable. Owns this table. Anything it does not name is `Unknown`.

use serde_json::Value;

use operators_kernel::{Call, ConnectorError, InvokeOutcome};

use crate::hidden::Hidden;
use crate::http::answer::{self, Head};
use crate::http::condition::Condition;
use crate::http::reading::{Meaning, Reading, holds};
use crate::http::sender::{Answer, Unanswered};

/// Classifies an answer. `label` names the request; `hidden` is never quoted.
pub(crate) async fn of_answer(
    mut answer: Answer,
    reading: &Reading,
    call: &Call,
    label: &str,
    hidden: &Hidden,
) -> InvokeOutcome {
    let status = answer.status().as_u16();
    let head = Head::of(&answer);
    let meaning = reading.meaning(status);
    tracing::debug!(status, "the vendor answered");
    let looks = reading.looks_into(status);
    // A refusal counts by its status alone; a server's failure only as a whole.
    let by_status = meaning == Meaning::Unknown || (meaning == Meaning::NotApplied && status < 500);
    if by_status && !looks {
        let said = quoted(label, status, &answer::glance(&mut answer).await, hidden);
        return match meaning {
            // A condition may speak of a status alone.
            _ if holds_by_status(reading.already_applied.as_ref(), status) => {
                InvokeOutcome::Applied(reading.take.effect(Value::Null, hidden))
            }
            _ if holds_by_status(reading.not_applied_if.as_ref(), status) => not_applied(said),
            Meaning::NotApplied => not_applied(said),
            Meaning::Applied | Meaning::Unknown => unknown(said),
        };
    }
    let body = match answer::read(&mut answer, reading.max_answer).await {
        Ok(body) => body,
        Err(problem) => return unreadable(label, status, &problem),
    };
    let value = head.value(&body);
    let said = |body: &[u8]| quoted(label, status, body, hidden);
    let known = |condition: &Option<Condition>| holds(condition.as_ref(), call, status, &value);
    let (already, refused) = match (
        known(&reading.already_applied),
        known(&reading.not_applied_if),
    ) {
        (Ok(already), Ok(refused)) => (already, refused),
        (Err(problem), _) | (_, Err(problem)) => return unreadable(label, status, &problem),
    };
    let says_applied =
        already || (meaning == Meaning::Applied && known(&reading.applied_if) == Ok(true));
    match (already, refused, meaning) {
        (_, true, _) if says_applied => unknown(format!("{}, which means both", said(&body))),
        (_, true, _) => not_applied(said(&body)),
        (true, false, _) => match value {
            Ok(value) => InvokeOutcome::Applied(reading.take.effect(value, hidden)),
            Err(problem) => unreadable(label, status, &problem),
        },
        (false, false, Meaning::Unknown) => unknown(said(&body)),
        (false, false, Meaning::NotApplied) => match head.complete(&body) {
            Ok(()) => not_applied(said(&body)),
            Err(problem) => unreadable(label, status, &problem),
        },
        (false, false, Meaning::Applied) => applied(reading, call, status, value, label, hidden),
    }
}

/// An answer whose status says "applied" and whose body is whole.
fn applied(
    reading: &Reading,
    call: &Call,
    status: u16,
    value: Result<Value, String>,
    label: &str,
    hidden: &Hidden,
) -> InvokeOutcome {
    let confirmed = match &reading.applied_if {
        None => Ok(true),
        Some(condition) => condition.holds(call, status, &value),
    };
    match (confirmed, value) {
        (Ok(true), Ok(value)) => InvokeOutcome::Applied(reading.take.effect(value, hidden)),
        (Ok(false), Ok(value)) => {
            let body = value.to_string();
            let said = quoted(label, status, body.as_bytes(), hidden);
            unknown(format!("{said}, which does not say that it happened"))
        }
        (Err(problem), _) | (_, Err(problem)) => unreadable(label, status, &problem),
    }
}

fn holds_by_status(condition: Option<&Condition>, status: u16) -> bool {
    condition.is_some_and(|condition| condition.covers(status) && !condition.looks())
}

fn unreadable(label: &str, status: u16, problem: &str) -> InvokeOutcome {
    unknown(format!(
        "{label} answered {status}, but the body cannot be read: {problem}"
    ))
}

/// Classifies a request that got no answer.
pub(crate) fn of_failure(failure: &Unanswered, label: &str, hidden: &Hidden) -> InvokeOutcome {
    let told = no_answer(failure, label, hidden);
    match failure {
        Unanswered::NotSent(_) | Unanswered::NoConnection { .. } => not_applied(told),
        Unanswered::Late | Unanswered::Broken(_) => unknown(told),
    }
}

/// What there is to say about a request that got no answer.
pub(crate) fn no_answer(failure: &Unanswered, label: &str, hidden: &Hidden) -> String {
    match failure {
        Unanswered::NotSent(problem) => format!("{label} was not sent: {problem}"),
        Unanswered::NoConnection { to, cause } => {
            let (to, cause) = (hidden.quote(to), hidden.quote(cause));
            format!("{label} was not sent: no connection to {to}: {cause}")
        }
        Unanswered::Late => format!("{label} got no answer in time"),
        Unanswered::Broken(cause) => format!("{label} got no answer: {}", hidden.quote(cause)),
    }
}

fn not_applied(message: String) -> InvokeOutcome {
    InvokeOutcome::NotApplied(ConnectorError::new(message))
}

fn unknown(message: String) -> InvokeOutcome {
    InvokeOutcome::Unknown(ConnectorError::new(message))
}

/// An answer in words: its status, and the vendor's message if there is one.
pub(crate) fn quoted(label: &str, status: u16, body: &[u8], hidden: &Hidden) -> String {
    let text = hidden.quote(&message_of(body));
    if text.is_empty() {
        return format!("{label} answered {status}");
    }
    format!("{label} answered {status}: `{text}`")
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
        None => text_of(body).to_owned(),
    }
}

/// A body as the text it is, but for a last character that was cut. One in another encoding is not
/// quoted: what is hidden in it would not be found.
fn text_of(body: &[u8]) -> &str {
    match std::str::from_utf8(body) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            let whole = body.get(..error.valid_up_to()).unwrap_or_default();
            std::str::from_utf8(whole).unwrap_or_default()
        }
        Err(_) => "",
    }
}
