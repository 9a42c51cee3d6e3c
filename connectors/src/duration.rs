//! Durations as people write them in configuration: `3s`, `500ms`, `14d`.
//!
//! The one place that reads and writes them; the command line uses it too.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;

/// The longest duration taken: ten years. Longer is a slip of the pen, and adding it to a time
/// must not overflow anywhere.
pub const DURATION_MAX: Duration = Duration::from_hours(3_650 * 24);

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad duration `{text}`: {problem}; write it like `500ms`, `30s`, `5m`, `24h` or `14d`")]
pub struct DurationError {
    text: String,
    problem: String,
}

/// Reads a duration, at most [`DURATION_MAX`].
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let refuse = |problem: String| DurationError {
        text: text.escape_debug().take(40).collect(),
        problem,
    };
    let duration = humantime::parse_duration(text).map_err(|error| refuse(error.to_string()))?;
    if duration > DURATION_MAX {
        return Err(refuse("longer than ten years".to_owned()));
    }
    Ok(duration)
}

/// Writes a duration so that [`parse`] reads it back: `1m 30s`.
pub fn format(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// A duration as a text field of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct DurationText(Duration);

impl DurationText {
    /// The duration itself.
    pub fn get(self) -> Duration {
        self.0
    }
}

impl From<Duration> for DurationText {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl TryFrom<String> for DurationText {
    type Error = DurationError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        parse(&text).map(Self)
    }
}

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, seconds) in [("3s", 3), ("5m", 300), ("24h", 86_400), ("14d", 1_209_600)] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse("0s"), Ok(Duration::ZERO));
        assert_eq!(
            parse(&format(Duration::from_millis(90_500))),
            Ok(Duration::from_millis(90_500))
        );
    }

    #[test]
    fn what_is_no_duration_is_refused_with_the_way_to_write_it() {
        for text in [
            "",
            "3",
            "3 parsecs",
            "-1s",
            "s",
            "11years",
            "9999999999999999999h",
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains("`14d`"), "{error}");
        }
    }
}
