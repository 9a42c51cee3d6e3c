//! Comparing an action's `value` with a ceiling, exactly.
//!
//! Owns the comparison, because the obvious one is wrong: as `f64`, 9007199254740993 and
//! 9007199254740992 are the same number, and the larger would pass under the smaller.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Number;

/// Up to here every whole number is a double of its own.
const EXACT_MAX: u64 = 1 << 53;

/// A finite number, kept as it was written: whole or with a fraction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Magnitude(Written);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Written {
    Whole(i64),
    /// Above every `i64`.
    Beyond(u64),
    /// Finite.
    Fraction(f64),
}

impl Magnitude {
    /// A whole number.
    pub fn whole(number: i64) -> Self {
        Self(Written::Whole(number))
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
            return Some(Self(Written::Beyond(whole)));
        }
        number.as_f64().and_then(Self::fraction)
    }

    /// Whether this is more than `ceiling`, without rounding either.
    pub fn is_above(self, ceiling: Self) -> bool {
        self.compare(ceiling).is_gt()
    }

    /// Which of the two is larger, without rounding either.
    pub(crate) fn compare(self, other: Self) -> Ordering {
        match (self.0, other.0) {
            (Written::Whole(left), Written::Whole(right)) => left.cmp(&right),
            (Written::Fraction(left), Written::Fraction(right)) => of_fractions(left, right),
            (Written::Fraction(left), whole) => of_mixed(whole, left).reverse(),
            (whole, Written::Fraction(right)) => of_mixed(whole, right),
            (left, right) => left.wide().cmp(&right.wide()),
        }
    }
}

impl Written {
    /// Without its fraction, which only leads down.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "its fraction is taken, and it saturates far beyond every number it is held against"
    )]
    fn wide(self) -> i128 {
        match self {
            Self::Whole(number) => number.into(),
            Self::Beyond(number) => number.into(),
            Self::Fraction(number) => number.floor() as i128,
        }
    }
}

/// Both are finite, so there is always an answer.
fn of_fractions(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).unwrap_or(Ordering::Equal)
}

fn of_mixed(whole: Written, fraction: f64) -> Ordering {
    if let Written::Whole(whole) = whole
        && whole.unsigned_abs() <= EXACT_MAX
    {
        return of_fractions(exact(whole), fraction);
    }
    // A whole number is above 2.5 when it is above 2, and below it when it is 2.
    match whole.wide().cmp(&Written::Fraction(fraction).wide()) {
        Ordering::Equal if fraction.fract() != 0.0 => Ordering::Less,
        ordering => ordering,
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "only what a double holds comes here"
)]
fn exact(whole: i64) -> f64 {
    whole as f64
}

impl Magnitude {
    /// Writes it down, as short as can be read back.
    pub(crate) fn tell(self, to: &mut impl fmt::Write) -> fmt::Result {
        match self.0 {
            Written::Whole(number) => to.write_str(itoa::Buffer::new().format(number)),
            Written::Beyond(number) => to.write_str(itoa::Buffer::new().format(number)),
            Written::Fraction(number) => match without_fraction(number) {
                Some(whole) => {
                    to.write_str(itoa::Buffer::new().format(whole))?;
                    to.write_str(".0")
                }
                // Plain display writes 1e300 as 301 digits.
                None => write!(to, "{number:?}"),
            },
        }
    }
}

/// A number whose digits are those of a whole one, which are found in a fifth of the time.
#[expect(
    clippy::cast_possible_truncation,
    reason = "it has no fraction and far fewer digits"
)]
fn without_fraction(number: f64) -> Option<i64> {
    let is_plain = number.fract() == 0.0 && number.abs() < 1e15 && number != 0.0;
    is_plain.then_some(number as i64)
}

impl fmt::Display for Magnitude {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tell(f)
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
    fn a_number_is_told_as_it_would_be_written() {
        for number in [
            180.0,
            -3.0,
            0.0,
            -0.0,
            19.25,
            1e14,
            999_999_999_999_999.0,
            1e15,
            1e16,
            -1e300,
            5e-324,
        ] {
            let told = Magnitude::fraction(number).expect("finite").to_string();
            assert_eq!(told, format!("{number:?}"));
        }
        assert_eq!(Magnitude::whole(-500).to_string(), "-500");
    }

    #[test]
    fn what_is_not_finite_is_no_magnitude() {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Magnitude::fraction(number), None);
        }
    }
}
