//! Decisions over time, in so few stretches that they fit into one chart, however long the trail.

use std::collections::BTreeMap;

use operators_kernel::{Disposition, Timestamp};

/// How many of each decision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) allow: u64,
    pub(super) alert: u64,
    pub(super) block: u64,
    pub(super) dedup: u64,
}

impl Counts {
    pub(super) fn add(&mut self, decision: Disposition) {
        match decision {
            Disposition::Allow => self.allow += 1,
            Disposition::Alert => self.alert += 1,
            Disposition::Block => self.block += 1,
            Disposition::Dedup => self.dedup += 1,
        }
    }

    fn merge(&mut self, other: Self) {
        self.allow += other.allow;
        self.alert += other.alert;
        self.block += other.block;
        self.dedup += other.dedup;
    }

    pub(super) fn total(self) -> u64 {
        self.allow + self.alert + self.block + self.dedup
    }

    /// Each with its name, as they are drawn from the ground up.
    pub(super) fn named(self) -> [(&'static str, u64); 4] {
        [
            ("ALLOW", self.allow),
            ("ALERT", self.alert),
            ("BLOCK", self.block),
            ("DEDUP", self.dedup),
        ]
    }
}

/// The most stretches in a chart.
pub(super) const BARS_MAX: usize = 48;

const MINUTE: i64 = 60_000_000;
const DAY: i64 = 1_440 * MINUTE;

/// Stretches that people count in; beyond the last they double.
const WIDTHS: [(i64, &str); 10] = [
    (MINUTE, "minute"),
    (5 * MINUTE, "5 minutes"),
    (15 * MINUTE, "15 minutes"),
    (60 * MINUTE, "hour"),
    (180 * MINUTE, "3 hours"),
    (720 * MINUTE, "12 hours"),
    (DAY, "day"),
    (2 * DAY, "2 days"),
    (7 * DAY, "7 days"),
    (28 * DAY, "28 days"),
];

/// Counts by stretch of time.
#[derive(Debug)]
pub(super) struct Timeline {
    width: i64,
    stretches: BTreeMap<i64, Counts>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            width: MINUTE,
            stretches: BTreeMap::new(),
        }
    }
}

impl Timeline {
    pub(super) fn add(&mut self, at: Timestamp, decision: Disposition) {
        let stretch = at.as_micros().div_euclid(self.width);
        self.stretches.entry(stretch).or_default().add(decision);
        while self.span() > BARS_MAX {
            self.widen();
        }
    }

    /// How many stretches there are from the first to the last, empty ones too.
    fn span(&self) -> usize {
        let (first, last) = (
            self.stretches.keys().next(),
            self.stretches.keys().next_back(),
        );
        match (first, last) {
            (Some(first), Some(last)) => usize::try_from(last - first + 1).unwrap_or(usize::MAX),
            _ => 0,
        }
    }

    fn widen(&mut self) {
        let wider = WIDTHS.iter().find(|(width, _)| *width > self.width);
        let width = wider.map_or(self.width.saturating_mul(2), |(width, _)| *width);
        let mut merged: BTreeMap<i64, Counts> = BTreeMap::new();
        for (stretch, counts) in &self.stretches {
            let start = stretch.saturating_mul(self.width);
            merged
                .entry(start.div_euclid(width))
                .or_default()
                .merge(*counts);
        }
        self.width = width;
        self.stretches = merged;
    }

    /// How long a stretch is, in words.
    pub(super) fn unit(&self) -> String {
        let known = WIDTHS.iter().find(|(width, _)| *width == self.width);
        known.map_or_else(
            || format!("{} days", self.width / DAY),
            |(_, words)| (*words).to_owned(),
        )
    }

    /// Every stretch from the first to the last with its start, empty ones too.
    pub(super) fn stretches(&self) -> Vec<(Timestamp, Counts)> {
        let (first, last) = (
            self.stretches.keys().next(),
            self.stretches.keys().next_back(),
        );
        let (Some(first), Some(last)) = (first, last) else {
            return Vec::new();
        };
        let stretch = |number: i64| {
            let counts = self.stretches.get(&number).copied().unwrap_or_default();
            (
                Timestamp::from_micros(number.saturating_mul(self.width)),
                counts,
            )
        };
        (*first..=*last).map(stretch).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_micros(minutes * MINUTE)
    }

    #[test]
    fn however_long_it_fits_and_nothing_is_lost() {
        for (last, unit) in [(10, "minute"), (60 * 24, "hour"), (60 * 24 * 300, "7 days")] {
            let mut timeline = Timeline::default();
            for number in 0..=100 {
                timeline.add(at(last * number / 100), Disposition::Allow);
            }
            timeline.add(at(0), Disposition::Block);
            let stretches = timeline.stretches();
            assert!(stretches.len() <= BARS_MAX, "{}", stretches.len());
            assert_eq!(timeline.unit(), unit);
            let total: u64 = stretches.iter().map(|(_, counts)| counts.total()).sum();
            assert_eq!(total, 102);
        }
    }

    #[test]
    fn the_ends_of_time_are_one_chart() {
        let mut timeline = Timeline::default();
        for micros in [i64::MIN, 0, i64::MAX] {
            timeline.add(Timestamp::from_micros(micros), Disposition::Dedup);
        }
        assert!(timeline.stretches().len() <= BARS_MAX);
        assert!(timeline.unit().ends_with("days"));
    }
}
