//! Which receipts: the filters of the command line, and how they become a store's filter.

use std::num::NonZeroUsize;
use std::time::Duration;

use clap::Args as ArgsOf;
use operators_connectors::duration;
use operators_kernel::{
    Clock, Disposition, EntityKey, IdempotencyKey, OperatorName, Reason, ReceiptFilter,
    ReceiptOutcome, Timestamp, ToolName,
};
use serde::de::DeserializeOwned;

use crate::output::{quoted, shown};

/// Which receipts.
#[derive(Debug, ArgsOf)]
#[command(next_help_heading = "Filters")]
pub(crate) struct FilterArgs {
    /// Proposed by this operator
    #[arg(long, value_name = "NAME", value_parser = |text: &str| OperatorName::parse(text))]
    operator: Option<OperatorName>,
    /// `ALLOW`, `ALERT`, `BLOCK` or `DEDUP`
    #[arg(long, value_name = "DECISION", value_parser = decision)]
    decision: Option<Disposition>,
    /// `applied`, `refused`, `deduplicated`, `failed` or `in_doubt`
    #[arg(long, value_name = "OUTCOME", value_parser = word::<ReceiptOutcome>)]
    outcome: Option<ReceiptOutcome>,
    /// Why it is not ok: `policy`, `conflict`, `failed`, `in_doubt`, …
    #[arg(long, value_name = "REASON", value_parser = word::<Reason>)]
    reason: Option<Reason>,
    /// On this tool
    #[arg(long, value_name = "TOOL", value_parser = |text: &str| ToolName::parse(text))]
    tool: Option<ToolName>,
    /// On this entity key
    #[arg(long, value_name = "KEY", value_parser = |text: &str| EntityKey::parse(text))]
    entity: Option<EntityKey>,
    /// On this idempotency key
    #[arg(long, value_name = "KEY", value_parser = |text: &str| IdempotencyKey::parse(text))]
    key: Option<IdempotencyKey>,
    /// With this correlation id
    #[arg(long, value_name = "ID")]
    correlation: Option<String>,
    /// Of this run
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// Settled at or after this time: RFC 3339, a date, or how long ago (`2h`)
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    since: Option<Moment>,
    /// Settled before this time
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    until: Option<Moment>,
}

impl FilterArgs {
    /// The filter a store understands; "ago" is counted from now.
    pub(crate) fn resolve(self, clock: &dyn Clock) -> ReceiptFilter {
        let now = clock.now();
        ReceiptFilter {
            receipt_id: None,
            operator: self.operator,
            decision: self.decision,
            outcome: self.outcome,
            reason: self.reason,
            tool: self.tool,
            entity_key: self.entity,
            idempotency_key: self.key,
            correlation_id: self.correlation,
            run_id: self.run,
            since: self.since.map(|moment| moment.resolve(now)),
            until: self.until.map(|moment| moment.resolve(now)),
        }
    }
}

/// A filter as it is typed, times spelt out, so that a command that goes on means the same.
pub(crate) fn words(filter: &ReceiptFilter) -> String {
    let options = [
        (
            "operator",
            filter.operator.as_ref().map(ToString::to_string),
        ),
        (
            "decision",
            filter.decision.map(|word| word.as_str().to_owned()),
        ),
        (
            "outcome",
            filter.outcome.map(|word| word.as_str().to_owned()),
        ),
        ("reason", filter.reason.map(|word| word.as_str().to_owned())),
        ("tool", filter.tool.as_ref().map(ToString::to_string)),
        (
            "entity",
            filter.entity_key.as_ref().map(ToString::to_string),
        ),
        (
            "key",
            filter.idempotency_key.as_ref().map(ToString::to_string),
        ),
        ("correlation", filter.correlation_id.clone()),
        ("run", filter.run_id.clone()),
        ("since", filter.since.map(|time| time.to_string())),
        ("until", filter.until.map(|time| time.to_string())),
    ];
    let option = |(name, value): (&str, Option<String>)| {
        value.map(|value| format!(" --{name} {}", quoted(&value)))
    };
    options.into_iter().filter_map(option).collect()
}

/// A time on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    At(Timestamp),
    Ago(Duration),
}

impl Moment {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let at = Timestamp::parse(text).or_else(|| Timestamp::parse(&format!("{text}T00:00:00Z")));
        if let Some(at) = at {
            return Ok(Self::At(at));
        }
        duration::parse(text).map(Self::Ago).map_err(|_| {
            "neither a time (`2026-01-31T12:00:00Z`, `2026-01-31`) nor how long ago (`2h`)"
                .to_owned()
        })
    }

    pub(crate) fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(span) => {
                let micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
                Timestamp::from_micros(now.as_micros().saturating_sub(micros))
            }
        }
    }
}

/// How many receipts, as it is typed.
pub(crate) fn at_least_one(text: &str) -> Result<NonZeroUsize, String> {
    let refused = || "is no number of receipts; write `1` or more".to_owned();
    text.parse().map_err(|_| refused())
}

fn decision(text: &str) -> Result<Disposition, String> {
    word(&text.to_ascii_uppercase())
}

/// Reads a word of the receipts' vocabulary; the error lists the words there are.
fn word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(serde_json::Value::from(text)).map_err(|error| shown(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_time_a_date_or_how_long_ago() {
        let noon = Timestamp::parse("2026-01-31T12:00:00Z").expect("a time");
        assert_eq!(Moment::parse("2026-01-31T12:00:00Z"), Ok(Moment::At(noon)));
        let midnight = Timestamp::parse("2026-01-31T00:00:00Z").expect("a time");
        assert_eq!(Moment::parse("2026-01-31"), Ok(Moment::At(midnight)));
        assert_eq!(
            Moment::parse("12h").map(|ago| ago.resolve(noon)),
            Ok(midnight)
        );
        assert!(Moment::parse("yesterday").is_err());
    }

    #[test]
    fn a_filter_word_that_does_not_exist_lists_those_that_do() {
        let error = word::<Reason>("nope").expect_err("no such reason");
        assert!(error.contains("stale_revision"), "{error}");
        assert_eq!(decision("dedup"), Ok(Disposition::Dedup));
    }
}
