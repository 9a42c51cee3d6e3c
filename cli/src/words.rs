//! Times and spans as people say them.

use std::time::Duration;

use operators_kernel::Timestamp;

/// How long before `now` that was: `just now`, `42s ago`, `3h ago`.
pub(crate) fn ago(now: Timestamp, then: Timestamp) -> String {
    let micros = now.as_micros().saturating_sub(then.as_micros());
    let span = Duration::from_micros(u64::try_from(micros).unwrap_or(0));
    if span < Duration::from_secs(1) {
        return "just now".to_owned();
    }
    format!("{} ago", duration(span))
}

/// A span in its largest unit, cut off: `42s`, `59m`, `23h`, `400d`.
pub(crate) fn duration(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// How long something took.
pub(crate) fn millis(span: Duration) -> String {
    if span < Duration::from_secs(10) {
        format!("{}ms", span.as_millis())
    } else {
        duration(span)
    }
}

/// A time without its fraction: `2026-01-31 12:00:00Z`.
pub(crate) fn moment(at: Timestamp) -> String {
    let text = at.to_string();
    match text.split_once('.') {
        Some((whole, _)) => format!("{}Z", whole.replacen('T', " ", 1)),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_told_in_their_largest_unit() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (61, "1m"),
            (7_200, "2h"),
            (200_000, "2d"),
        ] {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
        let now = Timestamp::from_micros(10_000_000);
        assert_eq!(ago(now, now), "just now");
        assert_eq!(ago(now, Timestamp::from_micros(99_000_000)), "just now");
        assert_eq!(ago(now, Timestamp::from_micros(5_000_000)), "5s ago");
        assert_eq!(moment(Timestamp::from_micros(0)), "1970-01-01 00:00:00Z");
    }
}
