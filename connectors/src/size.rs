//! Sizes as people write them in configuration: `64KiB`, `1MiB`.
//!
//! The one place that reads them, and the bound that none may pass.

use std::fmt;

use serde::Deserialize;

/// The largest answer that may be asked for: results are kept with their key for ever, and one is
/// held in memory whole.
const SIZE_MAX: usize = 16 * 1024 * 1024;

/// The largest answer taken in where nothing is said.
pub(crate) const ANSWER_DEFAULT: SizeText = SizeText(1024 * 1024);

const UNITS: [(&str, usize); 3] = [("MiB", 1024 * 1024), ("KiB", 1024), ("B", 1)];

/// A size as a text field of a configuration: at least one byte, at most 16 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SizeText(usize);

impl SizeText {
    /// Reads `64KiB`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let unit = UNITS.iter().find(|(unit, _)| text.ends_with(unit));
        let bytes = unit.and_then(|(unit, factor)| {
            let digits = text.strip_suffix(unit)?.trim_end();
            let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let number: usize = digits.parse().ok().filter(|_| plain)?;
            number.checked_mul(*factor)
        });
        match bytes {
            Some(bytes) if (1..=SIZE_MAX).contains(&bytes) => Ok(Self(bytes)),
            Some(_) => Err(format!(
                "`{}` is not from `1B` to `16MiB`",
                text.escape_debug()
            )),
            None => {
                let shown: String = text.escape_debug().take(40).collect();
                Err(format!(
                    "bad size `{shown}`; write it like `64KiB` or `4MiB`"
                ))
            }
        }
    }

    /// In bytes.
    pub fn bytes(self) -> usize {
        self.0
    }
}

impl TryFrom<String> for SizeText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl fmt::Display for SizeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS
            .iter()
            .find(|(_, factor)| self.0.is_multiple_of(*factor));
        match whole {
            Some((unit, factor)) => write!(f, "{}{unit}", self.0 / factor),
            None => write!(f, "{}B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_number_and_a_unit_within_bounds() {
        for (text, bytes) in [("1B", 1), ("64KiB", 65_536), ("1 MiB", 1_048_576)] {
            assert_eq!(SizeText::parse(text).map(SizeText::bytes), Ok(bytes));
        }
        assert_eq!(
            SizeText::parse("16MiB").map(|size| size.to_string()),
            Ok("16MiB".to_owned())
        );
        for (text, problem) in [
            ("0B", "from `1B` to `16MiB`"),
            ("17MiB", "from `1B` to `16MiB`"),
            ("16777217B", "from `1B` to `16MiB`"),
            ("1024", "write it like"),
            ("1MB", "write it like"),
            ("1mib", "write it like"),
            ("-1KiB", "write it like"),
            ("+1KiB", "write it like"),
            ("1.5MiB", "write it like"),
            ("99999999999999999999MiB", "write it like"),
            ("MiB", "write it like"),
            ("", "write it like"),
        ] {
            let error = SizeText::parse(text).expect_err(text);
            assert!(error.contains(problem), "{error}");
        }
    }
}
