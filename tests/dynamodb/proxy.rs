//! What only this service's proxy does: refuse as the service would, and forget requests.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use operators_tests::proxy::{Fate, Proxy};

/// It is refused with this status and error.
pub fn refuse(status: u16, error: &str) -> Fate {
    Fate::Answer(refusal(status, error))
}

/// As [`refuse`], as it is written.
pub fn refusal(status: u16, error: &str) -> Vec<u8> {
    let body = match error {
        "TransactionConflict" => {
            let reason = r#"{"Code":"TransactionConflict","Message":"conflict"}"#;
            format!(
                r#"{{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","Message":"cancelled","CancellationReasons":[{reason}]}}"#
            )
        }
        error => format!(
            r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{error}","message":"on purpose"}}"#
        ),
    };
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status} Refused\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    answer.into_bytes()
}

/// The server never recognises a request that it has seen before, as after the ten minutes for
/// which its token is good.
pub fn forget_tokens(proxy: &Proxy) {
    proxy.change(another_token);
}

/// Another token of the same length.
fn another_token(message: &mut [u8]) {
    const NAME: &[u8] = br#""ClientRequestToken":""#;
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let place = message.windows(NAME.len()).position(|part| part == NAME);
    if let Some(place) = place {
        let count = COUNT.fetch_add(1, Ordering::SeqCst);
        let start = place + NAME.len();
        message[start..start + 8].copy_from_slice(format!("{count:08}").as_bytes());
    }
}

/// From now on the store's answers are dated so much later than they are.
pub fn move_dates(proxy: &Proxy, by: Duration) {
    proxy.change_answers(move |answer| {
        const NAME: &[u8] = b"\r\ndate: ";
        let head = answer.to_ascii_lowercase();
        let Some(place) = head.windows(NAME.len()).position(|part| part == NAME) else {
            return;
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = (now.expect("after 1970") + by).as_secs();
        let date = DateTime::from_secs(i64::try_from(seconds).expect("a date"));
        let date = date.fmt(DateTimeFormat::HttpDate).expect("a date");
        let start = place + NAME.len();
        answer[start..start + date.len()].copy_from_slice(date.as_bytes());
    });
}
