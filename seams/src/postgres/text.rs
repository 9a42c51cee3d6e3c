//! Statements as text: one call of one function, its arguments as quoted literals.
//!
//! No statement is prepared: behind a pooler that shares server connections by transaction, a
//! prepared statement may be missing, or be another client's. A statement that carries its
//! arguments goes out and comes back as one message, through any pooler.

use std::fmt::Write;
use std::num::ParseIntError;
use std::str::{FromStr, Split};

use memchr::{memchr2, memchr3};

use super::trouble::Trouble;

/// Stands between the values of a column and the fields of an answer; the functions of the schema know it too.
const BETWEEN: char = '\u{1f}';
/// Stands for null in a column, and between the items of an answer.
const NULL: char = '\u{1e}';

/// A value that cannot be sent: it holds a character that has a meaning of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unsendable;

/// One value of a column.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Text(&'a str),
    Number(i64),
    Null,
}

impl Value<'_> {
    /// About how many bytes it takes.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Text(text) => text.len() + 1,
            Self::Number(_) => 12,
            Self::Null => 2,
        }
    }
}

/// `SELECT * FROM function(…)` in the making.
#[derive(Debug)]
pub(super) struct Call {
    text: String,
    is_first: bool,
    is_sendable: bool,
}

impl Call {
    pub(super) fn of(function: &str) -> Self {
        Self::begun("SELECT * FROM operators.", function, 256)
    }

    /// A function that answers with one text, and room for what will weigh that much: a batch is
    /// written once, into one piece of memory.
    pub(super) fn fast(function: &str, weight: usize) -> Self {
        // Not `FROM`, for which the server would set up a table first.
        Self::begun("SELECT operators.", function, weight)
    }

    fn begun(start: &str, function: &str, weight: usize) -> Self {
        let mut text = String::with_capacity(weight);
        text.push_str(start);
        text.push_str(function);
        text.push('(');
        Self {
            text,
            is_first: true,
            is_sendable: true,
        }
    }

    pub(super) fn text(mut self, value: &str) -> Self {
        self.separate();
        self.text.push_str("E'");
        self.is_sendable &= escape(&mut self.text, value);
        self.text.push('\'');
        self
    }

    pub(super) fn text_or_null(self, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.text(value),
            None => self.null(),
        }
    }

    /// The values of one argument for a whole batch, as one text.
    pub(super) fn column<'a>(mut self, values: impl Iterator<Item = Value<'a>>) -> Self {
        self.separate();
        self.text.push_str("E'");
        for (place, value) in values.enumerate() {
            if place > 0 {
                self.text.push(BETWEEN);
            }
            match value {
                Value::Text(text) => {
                    self.is_sendable &= stands_in_a_column(text) && escape(&mut self.text, text);
                }
                Value::Number(number) => self.digits(number),
                Value::Null => self.text.push(NULL),
            }
        }
        self.text.push('\'');
        self
    }

    /// One value, which could as well stand in a column.
    pub(super) fn value(mut self, value: Value<'_>) -> Self {
        match value {
            Value::Text(text) => {
                self.is_sendable &= stands_in_a_column(text);
                self.text(text)
            }
            Value::Number(number) => self.number(number),
            Value::Null => self.null(),
        }
    }

    pub(super) fn number(mut self, number: i64) -> Self {
        self.separate();
        self.text.push('\'');
        self.digits(number);
        self.text.push_str("'::bigint");
        self
    }

    fn digits(&mut self, number: i64) {
        // A text takes whatever is written to it.
        let written = write!(self.text, "{number}");
        self.is_sendable &= written.is_ok();
    }

    pub(super) fn number_or_null(self, number: Option<i64>) -> Self {
        match number {
            Some(number) => self.number(number),
            None => self.null(),
        }
    }

    pub(super) fn null(mut self) -> Self {
        self.separate();
        self.text.push_str("NULL");
        self
    }

    pub(super) fn flag(mut self, flag: bool) -> Self {
        self.separate();
        self.text.push_str(if flag { "true" } else { "false" });
        self
    }

    /// The statement, unless a value holds what no statement can.
    pub(super) fn finish(mut self) -> Result<String, Unsendable> {
        self.text.push(')');
        if self.is_sendable {
            Ok(self.text)
        } else {
            Err(Unsendable)
        }
    }

    fn separate(&mut self) {
        if !self.is_first {
            self.text.push(',');
        }
        self.is_first = false;
    }
}

/// What a function said about one item, field by field.
#[derive(Debug)]
pub(super) struct Said<'a>(Split<'a, char>);

impl<'a> Said<'a> {
    /// What was said about several, one after the other.
    pub(super) fn about_each(text: &'a str) -> impl Iterator<Item = Self> {
        text.split(NULL).map(|item| Self(item.split(BETWEEN)))
    }

    pub(super) fn next_text(&mut self) -> Result<&'a str, Trouble> {
        let cut = || Trouble::meaning("its answer", "it ends too early");
        self.0.next().ok_or_else(cut)
    }

    pub(super) fn next_number<T: FromStr<Err = ParseIntError>>(&mut self) -> Result<T, Trouble> {
        let number = self.next_text()?.parse();
        number.map_err(|error: ParseIntError| Trouble::meaning("its answer", error))
    }
}

/// Several values as one argument; those that cannot be sent are in no row either.
pub(super) fn joined<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for value in values.filter(|value| !value.contains([BETWEEN, NULL])) {
        if !text.is_empty() {
            text.push(BETWEEN);
        }
        text.push_str(value);
    }
    text
}

/// Whether it holds none of the characters that keep the values of a column apart.
fn stands_in_a_column(value: &str) -> bool {
    memchr2(b'\x1f', b'\x1e', value.as_bytes()).is_none()
}

/// Appends `value` to a literal so that it means the same under every setting of the server. False
/// if it holds a NUL, which no text of the server can; it is cut there, so that nothing but itself
/// can ever be read from it.
fn escape(text: &mut String, value: &str) -> bool {
    let mut rest = value;
    // What is looked for is ASCII, and so begins a character.
    while let Some(place) = memchr3(b'\'', b'\\', 0, rest.as_bytes()) {
        let (before, after) = rest.split_at(place);
        text.push_str(before);
        let Some(mark @ ('\'' | '\\')) = after.chars().next() else {
            return false;
        };
        text.push(mark);
        text.push(mark);
        rest = after.get(mark.len_utf8()..).unwrap_or("");
    }
    text.push_str(rest);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_are_doubled_and_nul_is_refused() {
        let call = Call::of("f").text("a'b\\c").number(-3).null().flag(true);
        assert_eq!(
            call.finish().expect("sendable"),
            "SELECT * FROM operators.f(E'a''b\\\\c','-3'::bigint,NULL,true)"
        );
        let hostile = r"\'); DROP TABLE x; --";
        let sent = Call::of("f").text(hostile).finish().expect("sendable");
        assert_eq!(
            sent,
            r"SELECT * FROM operators.f(E'\\''); DROP TABLE x; --')"
        );
        assert_eq!(Call::of("f").text("a\0b").finish(), Err(Unsendable));
    }

    #[test]
    fn a_column_keeps_its_values_apart() {
        let column = |text| {
            let values = [Value::Text(text), Value::Null, Value::Number(7)];
            Call::of("f").column(values.into_iter()).finish()
        };
        let sent = column("a'").expect("sendable");
        assert_eq!(sent, "SELECT * FROM operators.f(E'a''\u{1f}\u{1e}\u{1f}7')");
        for taken in ["b\u{1f}c", "b\u{1e}c", "b\0c"] {
            assert_eq!(column(taken), Err(Unsendable));
        }
        assert_eq!(joined(["a", "b\u{1f}", "c"].into_iter()), "a\u{1f}c");
    }
}
