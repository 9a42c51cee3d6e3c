//! Exit codes and what they say: `applied = "0"`, `not_applied = "64, 66-70"`.
//!
//! Owns the text's grammar. A code that stands in neither says nothing, and so is unknown.

use std::collections::BTreeSet;

/// What an exit code says about the effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Says {
    Applied,
    NotApplied,
    Nothing,
}

/// The codes of one program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Codes {
    applied: BTreeSet<i32>,
    not_applied: BTreeSet<i32>,
}

impl Codes {
    /// Reads both texts; the error names the field and what is wrong with it.
    pub(crate) fn compile(
        applied: Option<&str>,
        not_applied: Option<&str>,
    ) -> Result<Self, (&'static str, String)> {
        let applied = parse(applied.unwrap_or("0")).map_err(|problem| ("applied", problem))?;
        let not_applied = match not_applied {
            None => BTreeSet::new(),
            Some(text) => parse(text).map_err(|problem| ("not_applied", problem))?,
        };
        if let Some(both) = applied.intersection(&not_applied).next() {
            let problem = format!("exit code {both} stands in `applied` too; it can say one thing");
            return Err(("not_applied", problem));
        }
        Ok(Self {
            applied,
            not_applied,
        })
    }

    pub(crate) fn says(&self, code: i32) -> Says {
        if self.applied.contains(&code) {
            Says::Applied
        } else if self.not_applied.contains(&code) {
            Says::NotApplied
        } else {
            Says::Nothing
        }
    }
}

fn parse(text: &str) -> Result<BTreeSet<i32>, String> {
    let wrong = |item: &str| {
        format!(
            "`{}` is not an exit code from 0 to 255; write `0` or `64, 66-70`",
            item.escape_debug()
        )
    };
    let code = |item: &str| {
        let parsed = item.trim().parse::<u8>();
        parsed.map(i32::from).map_err(|_| wrong(item.trim()))
    };
    let mut codes = BTreeSet::new();
    for item in text.split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last) = (code(first)?, code(last)?);
        if first > last {
            return Err(wrong(item.trim()));
        }
        codes.extend(first..=last);
    }
    Ok(codes)
}

#[cfg(test)]
mod tests {
    use super::Says::{Applied, NotApplied, Nothing};
    use super::*;

    #[test]
    fn a_code_that_nobody_speaks_of_says_nothing() {
        let codes = Codes::compile(None, Some("3, 64-66")).expect("codes");
        let said = [0, 1, 3, 63, 64, 66, 67, 255].map(|code| codes.says(code));
        assert_eq!(
            said,
            [
                Applied, Nothing, NotApplied, Nothing, NotApplied, NotApplied, Nothing, Nothing
            ]
        );
    }

    #[test]
    fn a_text_that_is_no_list_of_codes_is_refused() {
        for bad in ["", "ok", "256", "-1", "9-2", "1,,2", "1-2-3"] {
            let (field, problem) = Codes::compile(Some(bad), None).expect_err(bad);
            assert_eq!(field, "applied");
            assert!(problem.contains("write `0`"), "{problem}");
        }
        let (field, problem) = Codes::compile(None, Some("0-3")).expect_err("both");
        assert_eq!(field, "not_applied");
        assert!(
            problem.contains("exit code 0 stands in `applied` too"),
            "{problem}"
        );
    }
}
