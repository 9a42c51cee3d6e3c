//! Words and numbers as HTML: what came from outside is escaped here, and nowhere else.

use std::fmt::{Display, Write as _};
use std::time::Duration;

use crate::output::shown;

/// Text from outside, inside an element or a quoted attribute.
pub(super) fn text(raw: &(impl Display + ?Sized)) -> String {
    let mut safe = String::new();
    for character in shown(raw).chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            plain => safe.push(plain),
        }
    }
    safe
}

/// A table of cells that are HTML already; the first column names the row.
pub(super) fn table(titles: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut body = String::new();
    for row in rows {
        body.push_str("<tr>");
        for (number, cell) in row.iter().enumerate() {
            let tag = if number == 0 {
                "th scope=\"row\""
            } else {
                "td"
            };
            let end = if number == 0 { "th" } else { "td" };
            let _infallible = write!(body, "<{tag}>{cell}</{end}>");
        }
        body.push_str("</tr>\n");
    }
    if body.is_empty() {
        return "<p class=\"none\">None.</p>\n".to_owned();
    }
    let mut head = String::new();
    for title in titles {
        let _infallible = write!(head, "<th scope=\"col\">{title}</th>");
    }
    format!(
        "<div class=\"wide\"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>\n"
    )
}

/// `1 234 567`, with spaces that do not break.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

pub(super) fn grouped_size(number: usize) -> String {
    grouped(u64::try_from(number).unwrap_or(u64::MAX))
}

/// A span with two or three digits: `0.42 ms`, `17 ms`, `3.2 s`, `4.5 min`.
pub(super) fn span(span: Duration) -> String {
    let millis = span.as_secs_f64() * 1_000.0;
    match millis {
        ..10.0 => format!("{millis:.2} ms"),
        ..1_000.0 => format!("{millis:.0} ms"),
        ..100_000.0 => format!("{:.1} s", millis / 1_000.0),
        _ => format!("{:.1} min", millis / 60_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_outside_is_text_and_nothing_else() {
        let hostile = "<script>'\"&\u{202e}\n";
        assert_eq!(text(hostile), "&lt;script&gt;&#39;&quot;&amp;\\u{202e}\\n");
    }

    #[test]
    fn numbers_are_told_so_that_they_can_be_read() {
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(grouped(12), "12");
        assert_eq!(span(Duration::from_micros(420)), "0.42 ms");
        assert_eq!(span(Duration::from_millis(17)), "17 ms");
        assert_eq!(span(Duration::from_secs(270)), "4.5 min");
    }
}
