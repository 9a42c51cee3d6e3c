//! Comparing an action's `value` with a ceiling, exactly.
//!
//! Owns the comparison, because the obvious one is wrong: as `f64`, 9007199254740993 and
//! 9007199254740992 are the same number, and the larger would pass under the smaller.

use std::fmt;

use serde_json::Number;

/// A finite number, kept as it was written: whole or with a fraction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Magnitude(Written);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Written {
    /// Wide enough for every `i64` and `u64`.
    Whole(i128),
    /// Finite.
    Fraction(f64),
}

impl Magnitude {
    /// A whole number.
    pub fn whole(number: i64) -> Self {
        Self(Written::Whole(number.into()))
    }

    /// A number with a fraction; `None` unless it is finite.
    pub fn fraction(number: f64) -> Option<Self> {
        number
            .is_finite()
            .then_some(Self(Written::Fraction(number)))
    }

    /// The number of an action; `None` unless it is finite.
    pub fn of(number: &Number) -> Option<Self> {
        if let Some(whole) = number.as_i64() {
            return Some(Self::whole(whole));
        }
        if let Some(whole) = number.as_u64() {
            return Some(Self(Written::Whole(whole.into())));
        }
        number.as_f64().and_then(Self::fraction)
    }

    /// Whether this is more than `ceiling`, without rounding either.
    pub fn is_above(self, ceiling: Self) -> bool {
        match (self.0, ceiling.0) {
            (Written::Whole(value), Written::Whole(max)) => value > max,
            (Written::Fraction(value), Written::Fraction(max)) => value > max,
            // A whole number is above 2.5 when it is above 2, and 2.5 is above a whole number
            // when 3 is.
            (Written::Whole(value), Written::Fraction(max)) => value > to_whole(max.floor()),
            (Written::Fraction(value), Written::Whole(max)) => to_whole(value.ceil()) > max,
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "it has no fraction, and it saturates far beyond every number it is compared with"
)]
fn to_whole(rounded: f64) -> i128 {
    rounded as i128
}

impl fmt::Display for Magnitude {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Written::Whole(number) => write!(f, "{number}"),
            // Plain display writes 1e300 as 301 digits.
            Written::Fraction(number) => write!(f, "{number:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn ordered(smaller: &str, larger: &str) {
        let read = |text: &str| {
            let number: Number = serde_json::from_str(text).expect(text);
            Magnitude::of(&number).expect(text)
        };
        let (smaller, larger) = (read(smaller), read(larger));
        assert!(larger.is_above(smaller), "{larger} is above {smaller}");
        assert!(!smaller.is_above(larger), "{smaller} is not above {larger}");
        assert!(!smaller.is_above(smaller), "{smaller} equals itself");
    }

    #[test]
    fn the_larger_number_is_above_however_it_is_written() {
        ordered("1", "2");
        ordered("2", "2.5");
        ordered("2.5", "3");
        ordered("-3", "-2.5");
        ordered("-2.5", "-2");
        ordered("499.99", "500");
        ordered("500", "500.0000000000001");
        ordered("0.1", "0.2");
        ordered("-1e300", "-9223372036854775808");
        ordered("18446744073709551615", "1e300");
    }

    #[test]
    fn neighbours_beyond_2_to_the_53_are_told_apart() {
        ordered("9007199254740992", "9007199254740993");
        ordered("9007199254740992.0", "9007199254740993");
        ordered("9223372036854775807", "9223372036854775808.0");
        ordered("18446744073709551614", "18446744073709551615");
        ordered("18446744073709551615", "18446744073709551616.0");
    }

    #[test]
    fn equal_numbers_are_not_above_each_other() {
        for (left, right) in [(5, 5.0), (0, -0.0), (-7, -7.0)] {
            let right = Magnitude::fraction(right).expect("finite");
            assert!(!Magnitude::whole(left).is_above(right));
            assert!(!right.is_above(Magnitude::whole(left)));
        }
    }

    #[test]
    fn what_is_not_finite_is_no_magnitude() {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Magnitude::fraction(number), None);
        }
    }
}
