//! Numbers that can be had again: every random test prints its seed.

use std::time::{SystemTime, UNIX_EPOCH};

/// `SplitMix64`: small, and good enough to choose a moment.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// From this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// For one of many trials from one seed.
    pub fn of_trial(seed: u64, number: usize) -> Self {
        let number = u64::try_from(number).expect("few trials");
        Self(seed.wrapping_add(number << 40))
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// In another order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for end in (1..list.len()).rev() {
            let other = self.below(u64::try_from(end + 1).expect("a short list"));
            list.swap(end, usize::try_from(other).expect("a short list"));
        }
    }

    /// One of these.
    pub fn choose<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = self.below(u64::try_from(from.len()).expect("a short list"));
        &from[usize::try_from(index).expect("a short list")]
    }
}

/// The seed of a run, printed: `OPERATORS_SEED`, or the time.
pub fn seed(test: &str) -> u64 {
    let given = std::env::var("OPERATORS_SEED").ok();
    let seed = given.map_or_else(
        || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            u64::from(now.expect("after 1970").subsec_nanos())
        },
        |text| text.parse().expect("OPERATORS_SEED is a number"),
    );
    println!("{test}: OPERATORS_SEED={seed}");
    seed
}

/// How often each crash point is tried: `OPERATORS_KILLS`, or what a quick run can afford.
pub fn kills(otherwise: usize) -> usize {
    std::env::var("OPERATORS_KILLS").map_or(otherwise, |text| {
        text.parse().expect("OPERATORS_KILLS is a number")
    })
}
