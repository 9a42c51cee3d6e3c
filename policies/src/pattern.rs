//! Which tools a rule or a reach speaks of: an exact name, or one with whole segments left open.
//!
//! Owns what a pattern may look like. A pattern is checked as strictly as a name, so that one
//! that can never fit (`Orders.hold`, `ord*`) is refused where it is written and not found out
//! when a BLOCK rule silently blocks nothing.

use operators_kernel::{ToolName, dotted_matches};

use crate::error::shown;

/// Stands for exactly one whole segment.
pub(crate) const ANY_SEGMENT: &str = "*";

/// Why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; {remedy}")]
#[non_exhaustive]
pub struct PatternError {
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

impl PatternError {
    pub(crate) fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}

/// A tool's name, byte for byte, in which `*` may stand for exactly one whole segment; no segment
/// is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPattern(String);

impl ToolPattern {
    /// Checks `text` and takes it as it is.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        // With its stars replaced, a pattern must be a name: same letters, same length.
        if let Err(error) = ToolName::parse(text.replace('*', "-")) {
            return Err(PatternError::new(
                format!("tool `{}` cannot fit any tool: {error}", shown(text)),
                "write the tool's name as it is registered",
            ));
        }
        for segment in text.split('.') {
            if segment.is_empty() {
                return Err(PatternError::new(
                    format!("tool `{text}` has an empty segment"),
                    "remove the dot that leads, trails or is doubled",
                ));
            }
            if segment.contains('*') && segment != ANY_SEGMENT {
                return Err(PatternError::new(
                    format!("tool `{text}` has `*` for a part of a segment"),
                    "let `*` stand for a whole segment, as in `orders.*`, or write one rule per tool",
                ));
            }
        }
        Ok(Self(text.to_owned()))
    }

    /// Whether the pattern speaks of this tool.
    pub fn fits(&self, tool: &ToolName) -> bool {
        dotted_matches(&self.0, tool.as_str())
    }

    /// The text, as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn fits(pattern: &str, tool: &str) -> bool {
        let pattern = ToolPattern::parse(pattern).expect(pattern);
        pattern.fits(&ToolName::parse(tool).expect(tool))
    }

    #[test]
    fn a_star_is_exactly_one_segment() {
        assert!(fits("orders.*", "orders.hold"));
        assert!(fits("*.hold", "orders.hold"));
        assert!(fits("*", "ping"));
        assert!(fits("a.*.c", "a.b.c"));
        assert!(!fits("orders.*", "orders"));
        assert!(!fits("orders.*", "orders."));
        assert!(!fits("orders.*", "orders.hold.now"));
        assert!(!fits("*", "orders.hold"));
    }

    #[test]
    fn without_a_star_only_the_same_bytes_fit() {
        assert!(fits("orders.hold", "orders.hold"));
        for other in ["orders.hold.", "orders.holds", "orders-hold", "orders"] {
            assert!(!fits("orders.hold", other), "{other}");
        }
    }

    #[test]
    fn a_pattern_that_is_no_name_is_refused() {
        let too_long = "x".repeat(65);
        let cases = [
            ("", "is empty"),
            ("Orders.hold", "'O'"),
            ("ORDERS.*", "'O'"),
            ("\u{43e}rders.hold", "'\u{43e}'"),
            ("orders.h\u{f6}ld", "which is not one of"),
            ("orders.hold\u{200b}", "'\\u{200b}'"),
            ("\u{feff}orders.hold", "'\\u{feff}'"),
            ("orders\u{2024}hold", "which is not one of"),
            ("orders.\u{ff48}old", "which is not one of"),
            ("orders.hold ", "' '"),
            (" orders.hold", "' '"),
            ("orders.hold\n", "'\\n'"),
            ("orders.hold\0", "'\\0'"),
            ("orders/hold", "'/'"),
            ("shop:orders.hold", "':'"),
            ("orders.hol?", "'?'"),
            ("orders.[a-z]", "'['"),
            ("orders.hold.", "empty segment"),
            (".orders.hold", "empty segment"),
            ("orders..hold", "empty segment"),
            (".", "empty segment"),
            ("ord*", "part of a segment"),
            ("orders.ho*d", "part of a segment"),
            ("orders.**", "part of a segment"),
            ("**", "part of a segment"),
            (too_long.as_str(), "65 bytes"),
        ];
        for (text, problem) in cases {
            let error = ToolPattern::parse(text).expect_err(text);
            assert!(error.problem.contains(problem), "{text:?}: {error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
