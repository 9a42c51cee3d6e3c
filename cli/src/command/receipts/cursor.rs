//! Where a page ended, as people copy it: `older:120` goes on below, `newer:120` above.
//!
//! A cursor names a place in the trail, not a count: what is written meanwhile moves nothing. The
//! word says which way it leads, so that a cursor of one command is not taken by the other's.

use std::fmt;

use operators_kernel::Cursor;
use serde::Serialize;

use crate::output::{note_line, shown};

/// Goes on with what was written before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Older(pub(crate) u64);

/// Goes on with what was written after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Newer(pub(crate) u64);

const OLDER: &str = "older";
const NEWER: &str = "newer";

impl Older {
    /// Before the first page: everything is older.
    pub(crate) const END: Self = Self(i64::MAX.unsigned_abs());

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        number(text, OLDER, "receipts list").map(Self)
    }

    pub(crate) fn cursor(self) -> Cursor {
        Cursor::Before(self.0)
    }
}

impl Newer {
    /// Before the first receipt: everything is newer.
    pub(crate) const START: Self = Self(0);

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        number(text, NEWER, "receipts export` or `tail").map(Self)
    }

    pub(crate) fn cursor(self) -> Cursor {
        Cursor::After(self.0)
    }
}

impl fmt::Display for Older {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{OLDER}:{}", self.0)
    }
}

impl fmt::Display for Newer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NEWER}:{}", self.0)
    }
}

/// For programs: one JSON line on stderr, `{"next":"older:120"}`.
pub(crate) fn tell_program(cursor: impl fmt::Display) {
    #[derive(Serialize)]
    struct Told {
        next: String,
    }
    note_line(&Told {
        next: cursor.to_string(),
    });
}

fn number(text: &str, way: &str, whose: &str) -> Result<u64, String> {
    let place = text
        .strip_prefix(way)
        .and_then(|rest| rest.strip_prefix(':'));
    let place = place.and_then(|place| place.parse::<u64>().ok());
    place
        .filter(|place| i64::try_from(*place).is_ok())
        .ok_or_else(|| format!("`{}` is no cursor of `{whose}` (`{way}:120`)", shown(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_is_written() {
        assert_eq!(Older::parse(&Older(120).to_string()), Ok(Older(120)));
        assert_eq!(Newer::parse(&Newer(0).to_string()), Ok(Newer(0)));
        assert_eq!(Older::parse(&Older::END.to_string()), Ok(Older::END));
    }

    #[test]
    fn a_cursor_of_the_other_way_is_refused() {
        for text in ["newer:1", "120", "older:", "older:-1", "older:1x", ""] {
            assert!(Older::parse(text).is_err(), "{text}");
        }
        assert!(Newer::parse("older:1").is_err());
        assert!(Newer::parse("newer:9223372036854775808").is_err());
    }
}
