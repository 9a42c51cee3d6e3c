//! Statements as text: one call of one function, its arguments as quoted literals.
//!
//! No statement is prepared: behind a pooler that shares server connections by transaction, a
//! prepared statement may be missing, or be another client's. A statement that carries its
//! arguments goes out and comes back as one message, through any pooler.

/// Stands between the values of a column; the functions of the schema know it too.
const BETWEEN: char = '\u{1f}';
/// Stands for null in a column.
const NULL: char = '\u{1e}';

/// A value that cannot be sent: it holds a character that has a meaning of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unsendable;

/// The values of one argument for a whole batch.
#[derive(Debug, Default, Clone)]
pub(super) struct Column {
    text: String,
    has_some: bool,
}

impl Column {
    pub(super) fn push(&mut self, value: &str) -> Result<(), Unsendable> {
        if value.contains([BETWEEN, NULL]) {
            return Err(Unsendable);
        }
        self.next();
        self.text.push_str(value);
        Ok(())
    }

    pub(super) fn push_number(&mut self, number: i64) {
        self.next();
        self.text.push_str(&number.to_string());
    }

    pub(super) fn push_null(&mut self) {
        self.next();
        self.text.push(NULL);
    }

    fn next(&mut self) {
        if self.has_some {
            self.text.push(BETWEEN);
        }
        self.has_some = true;
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
        Self {
            text: format!("SELECT * FROM operators.{function}("),
            is_first: true,
            is_sendable: true,
        }
    }

    pub(super) fn text(mut self, value: &str) -> Self {
        self.separate();
        self.is_sendable &= quote(&mut self.text, value);
        self
    }

    pub(super) fn text_or_null(self, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.text(value),
            None => self.null(),
        }
    }

    pub(super) fn column(self, column: &Column) -> Self {
        self.text(&column.text)
    }

    pub(super) fn number(mut self, number: i64) -> Self {
        self.separate();
        self.text.push_str(&format!("'{number}'::bigint"));
        self
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

/// Several values as one argument.
pub(super) fn joined<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let mut column = Column::default();
    for value in values {
        if column.push(value).is_err() {
            // What cannot be sent is in no receipt either.
            column.push_null();
        }
    }
    column.text
}

/// Appends `value` as a literal that means the same under every setting of the server. False, with
/// nothing that could be executed appended, if it holds a NUL, which no text of the server can.
fn quote(text: &mut String, value: &str) -> bool {
    if value.contains('\0') {
        text.push_str("NULL");
        return false;
    }
    text.reserve(value.len() + value.len() / 8 + 3);
    text.push_str("E'");
    let mut rest = value;
    while let Some(place) = rest.find(['\'', '\\']) {
        let (before, after) = rest.split_at(place);
        text.push_str(before);
        let mark = after.chars().next().unwrap_or('\'');
        text.push(mark);
        text.push(mark);
        rest = after.get(mark.len_utf8()..).unwrap_or("");
    }
    text.push_str(rest);
    text.push('\'');
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
        let mut column = Column::default();
        column.push("a").expect("plain");
        column.push_null();
        column.push_number(7);
        assert_eq!(column.text, "a\u{1f}\u{1e}\u{1f}7");
        assert_eq!(column.push("b\u{1f}c"), Err(Unsendable));
        assert_eq!(column.push("b\u{1e}c"), Err(Unsendable));
    }
}
