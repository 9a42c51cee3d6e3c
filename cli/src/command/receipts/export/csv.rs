//! Receipts as CSV (RFC 4180): a header, CRLF, quotes where they are needed.
//!
//! A spreadsheet runs a cell that begins like a formula, and a line break inside quotes looks like
//! a new line to most tools. So, unless the values are wanted raw, text that begins with one of
//! [`FORMULA`] (or with the mark itself) gets a `'` in front, and hidden characters are written out.

use std::io::{self, Write};

use operators_kernel::Receipt;

use super::columns::{COLUMNS, Cell};
use crate::output::shown;

/// What a spreadsheet takes for the start of a formula, in its wide forms too.
const FORMULA: [char; 10] = ['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠'];

/// Stands before text that a spreadsheet would run; spreadsheets do not show it.
const MARK: char = '\'';

/// How text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// Nothing acts, nothing hides.
    On,
    /// Every value as it is.
    Raw,
}

pub(super) fn header(out: &mut impl Write) -> io::Result<()> {
    let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
    write!(out, "{}\r\n", names.join(","))
}

pub(super) fn row(out: &mut impl Write, receipt: &Receipt, guard: Guard) -> io::Result<()> {
    let cells = COLUMNS
        .iter()
        .map(|column| (column.of)(receipt).map_or_else(String::new, |cell| written(&cell, guard)));
    write!(out, "{}\r\n", cells.collect::<Vec<_>>().join(","))
}

fn written(cell: &Cell<'_>, guard: Guard) -> String {
    match cell {
        Cell::Text(text) => quoted(&guarded(text, guard)),
        Cell::Json(json) => quoted(json),
        Cell::Whole(number) => number.to_string(),
        Cell::Real(number) => number.to_string(),
        Cell::Truth(truth) => truth.to_string(),
        Cell::Time(time) => time.to_string(),
    }
}

fn guarded(text: &str, guard: Guard) -> String {
    match guard {
        Guard::Raw => text.to_owned(),
        Guard::On if text.starts_with(FORMULA) || text.starts_with(MARK) => {
            format!("{MARK}{}", shown(text))
        }
        Guard::On => shown(text),
    }
}

fn quoted(text: &str) -> String {
    let needs = |c: char| matches!(c, ',' | '"' | '\r' | '\n');
    if text.contains(needs) || text.starts_with(' ') || text.ends_with(' ') {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_stand_where_they_are_needed() {
        for (text, cell) in [
            ("plain", "plain"),
            ("", ""),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("two\r\nlines", "\"two\r\nlines\""),
            (" space", "\" space\""),
        ] {
            assert_eq!(quoted(text), cell);
        }
    }

    #[test]
    fn no_cell_begins_like_a_formula_and_the_mark_can_be_taken_off_again() {
        for text in ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "＝1", "'=1"] {
            assert_eq!(guarded(text, Guard::On), format!("'{}", shown(text)));
            assert_eq!(guarded(text, Guard::Raw), text);
        }
        assert_eq!(guarded("a=1", Guard::On), "a=1");
        assert_eq!(guarded("a\nb\u{1b}", Guard::On), "a\\nb\\u{1b}");
    }
}
