//! The seam for time and ids: the kernel reads no clock and makes no random number itself.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text::Text;

/// Gives the time and fresh ids; with a fixed one, results and receipts are byte-identical.
///
/// Calls are cheap, never block and never fail.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The wall clock, for what people read in receipts. No safety decision compares it.
    fn now(&self) -> Timestamp;

    /// Time that only moves forward, from an arbitrary start. Leases are judged by it.
    fn monotonic(&self) -> Duration;

    /// An id nobody else has: the kind's prefix, then text that sorts by the time it was made.
    fn id(&self, kind: IdKind) -> Text;
}

/// What an id is for; it decides the prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdKind {
    /// `rc_…`, a receipt.
    Receipt,
    /// `pl_…`, a plan handed over for execution.
    Plan,
    /// `run_…`, one run of an operator.
    Run,
    /// `ev_…`, an event.
    Event,
    /// `co_…`, a thread through sense, reason and act that nobody else named.
    Correlation,
}

impl IdKind {
    /// The prefix with its underscore.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Receipt => "rc_",
            Self::Plan => "pl_",
            Self::Run => "run_",
            Self::Event => "ev_",
            Self::Correlation => "co_",
        }
    }
}

/// A moment in microseconds since 1970 UTC; written as RFC 3339 with six digits, always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From microseconds since 1970-01-01T00:00:00Z; kept inside the years 1–9999.
    pub fn from_micros(micros: i64) -> Self {
        Self(micros.clamp(-62_135_596_800_000_000, 253_402_207_200_000_000))
    }

    /// Microseconds since 1970-01-01T00:00:00Z.
    pub fn as_micros(self) -> i64 {
        self.0
    }

    /// Reads RFC 3339; `None` if it is not that.
    pub fn parse(text: &str) -> Option<Self> {
        let moment: jiff::Timestamp = text.parse().ok()?;
        Some(Self::from_micros(moment.as_microsecond()))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(moment) => write!(f, "{moment:.6}"),
            // `from_micros` keeps the value inside jiff's range.
            Err(_) => Err(fmt::Error),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not an RFC 3339 time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_with_six_digits_and_read_back() {
        let moment = Timestamp::from_micros(1_700_000_000_000_000);
        assert_eq!(moment.to_string(), "2023-11-14T22:13:20.000000Z");
        assert_eq!(Timestamp::parse(&moment.to_string()), Some(moment));
        assert!(!Timestamp::from_micros(i64::MAX).to_string().is_empty());
        assert!(!Timestamp::from_micros(i64::MIN).to_string().is_empty());
        assert_eq!(Timestamp::parse("yesterday"), None);
    }
}
