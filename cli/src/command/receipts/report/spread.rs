//! How long things took, kept as counts: a share of all that is a little too high, never too low.

use std::collections::BTreeMap;
use std::time::Duration;

/// Values are told apart by their highest bits: so many of them make the error at most an eighth.
const BITS: u32 = 3;

/// Spans, counted by size.
#[derive(Debug, Default)]
pub(super) struct Spread {
    counts: BTreeMap<u64, u64>,
    total: u64,
    longest: u64,
}

impl Spread {
    pub(super) fn add(&mut self, span: Duration) {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        *self.counts.entry(ceiling(micros)).or_default() += 1;
        self.total += 1;
        self.longest = self.longest.max(micros);
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn longest(&self) -> Duration {
        Duration::from_micros(self.longest)
    }

    /// At least `percent` of all took no longer.
    pub(super) fn percentile(&self, percent: u64) -> Duration {
        let wanted = self.total.saturating_mul(percent).div_ceil(100);
        let mut passed = 0;
        for (ceiling, count) in &self.counts {
            passed += count;
            if passed >= wanted {
                return Duration::from_micros(self.longest.min(*ceiling));
            }
        }
        self.longest()
    }
}

/// The largest value that is not told apart from this one.
fn ceiling(value: u64) -> u64 {
    let low = u64::BITS
        .saturating_sub(value.leading_zeros())
        .saturating_sub(BITS + 1);
    value | ((1 << low) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_at_most_an_eighth_too_high_and_never_too_low() {
        let mut spread = Spread::default();
        assert_eq!(spread.percentile(95), Duration::ZERO);
        for micros in 1..=10_000 {
            spread.add(Duration::from_micros(micros));
        }
        for percent in [1, 50, 95, 99, 100] {
            let exact = percent * 100;
            let told = u64::try_from(spread.percentile(percent).as_micros()).expect("small");
            assert!(
                told >= exact && told <= exact + exact / 8,
                "{percent}: {told}"
            );
        }
        assert_eq!(spread.longest(), Duration::from_millis(10));
        assert!(spread.counts.len() < 100, "{}", spread.counts.len());
    }

    #[test]
    fn the_ends_of_the_scale_hold() {
        for value in [0, 1, 15, 16, 17, u64::MAX] {
            assert!(ceiling(value) >= value);
        }
        assert_eq!(ceiling(15), 15);
        assert_eq!(ceiling(16), 17);
    }
}
