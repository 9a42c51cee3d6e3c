//! From "what is wrong" to "where in the file": lines, columns, and the paths errors speak in.
//!
//! Owns places in text. It must not know what a configuration or a plan means.

use toml::de::{DeTable, DeValue};

/// Line and column of a byte offset, both counted from 1, the column in characters.
pub(crate) fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text
        .get(..text.floor_char_boundary(offset))
        .unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let column = before.get(start..).unwrap_or_default().chars().count() + 1;
    (line, column)
}

/// Where a dotted path such as `connectors.shop.tools."orders.hold".window` stands in a TOML text:
/// its own key, or the nearest table around it that is there.
pub(crate) fn in_toml(text: &str, path: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let mut table = document.get_ref();
    let mut found = None;
    for segment in dotted(path) {
        let Some((key, value)) = table.get_key_value(segment) else {
            break;
        };
        found = Some(key.span().start);
        let DeValue::Table(inner) = value.get_ref() else {
            break;
        };
        table = inner;
    }
    found
}

/// The segments of a dotted path; a quoted one may hold dots.
fn dotted(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(path);
    std::iter::from_fn(move || {
        let text = rest?;
        let (segment, after) = match text.strip_prefix('"').and_then(|text| text.split_once('"')) {
            Some((segment, after)) => (segment, after.strip_prefix('.')),
            None => match text.split_once('.') {
                Some((segment, after)) => (segment, Some(after)),
                None => (text, None),
            },
        };
        rest = after;
        Some(segment)
    })
}

/// Where a JSON pointer such as `/actions/3/tool` stands in a JSON text, as far down as it leads.
/// `None` for a pointer to the whole. Of two equal keys, the last.
pub(crate) fn in_json(text: &str, pointer: &str) -> Option<usize> {
    let mut scanner = Scanner { text, at: 0 };
    scanner.blank();
    let mut found = None;
    for segment in pointer.split('/').skip(1).filter(|part| !part.is_empty()) {
        let segment = segment.replace("~1", "/").replace("~0", "~");
        match scanner.step(&segment) {
            Some(at) => found = Some(at),
            None => break,
        }
    }
    found
}

/// Walks JSON text without understanding more of it than where values begin and end.
#[derive(Clone, Copy)]
struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl Scanner<'_> {
    /// Goes to the member or element of that name; says where it begins (a member's key).
    fn step(&mut self, segment: &str) -> Option<usize> {
        match self.peek()? {
            b'{' => self.step_member(segment),
            b'[' => self.step_element(segment.parse().ok()?),
            _ => None,
        }
    }

    fn step_member(&mut self, name: &str) -> Option<usize> {
        let mut found = None;
        self.at += 1;
        loop {
            self.blank();
            if self.peek() != Some(b'"') {
                break;
            }
            let key_at = self.at;
            self.skip_value();
            let key: Option<String> = serde_json::from_str(self.text.get(key_at..self.at)?).ok();
            self.blank();
            self.at += 1; // the colon
            self.blank();
            if key.as_deref() == Some(name) {
                found = Some((key_at, *self));
            }
            self.skip_value();
            self.blank();
            if self.peek() != Some(b',') {
                break;
            }
            self.at += 1;
        }
        let (key_at, value) = found?;
        *self = value;
        Some(key_at)
    }

    fn step_element(&mut self, index: usize) -> Option<usize> {
        self.at += 1;
        for _ in 0..index {
            self.blank();
            self.skip_value();
            self.blank();
            if self.peek()? != b',' {
                return None;
            }
            self.at += 1;
        }
        self.blank();
        (self.peek()? != b']').then_some(self.at)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// Over one value: a string, a scalar, or everything between brackets that belong together.
    fn skip_value(&mut self) {
        let mut depth = 0_usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => self.skip_string(),
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' | b',' | b':' if depth == 0 => return,
                b'}' | b']' => {
                    depth -= 1;
                    self.at += 1;
                }
                _ => self.at += 1,
            }
            if depth == 0 && matches!(byte, b'"' | b'}' | b']') {
                return;
            }
        }
    }

    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_lines_and_characters_from_one() {
        assert_eq!(line_column("ab\nκλ=1\n", 0), (1, 1));
        assert_eq!(line_column("ab\nκλ=1\n", 7), (2, 3));
        assert_eq!(line_column("ab\n", 99), (2, 1));
    }

    #[test]
    fn a_dotted_path_leads_to_its_key_or_the_nearest_table() {
        let text = "[connectors.shop]\nkind = \"http\"\n\
                    [connectors.shop.tools.\"orders.hold\"]\nwindow = \"0s\"\n";
        let line = |path| in_toml(text, path).map(|at| line_column(text, at));
        assert_eq!(
            line("connectors.shop.tools.\"orders.hold\".window"),
            Some((4, 1))
        );
        assert_eq!(line("connectors.shop.kind"), Some((2, 1)));
        assert_eq!(line("elsewhere"), None);
        assert_eq!(line("connectors.shop.base_url"), Some((1, 13)));
    }

    #[test]
    fn a_pointer_leads_to_its_member_or_element() {
        let text = r#"{ "reasoning" : "[,]{\"}",
  "actions": [
    {"a": [1, {"x/y": true}], "b": -1.5e3},
    {"a": null, "c~": {"d": [[], 7]}}
  ] }"#;
        let rest = |pointer| in_json(text, pointer).map(|at| text.get(at..at + 4));
        assert_eq!(rest("/actions/1/c~0/d/1"), Some(Some("7]}}")));
        assert_eq!(rest("/actions/0/a/1/x~1y"), Some(Some("\"x/y")));
        assert_eq!(rest("/actions/0/b"), Some(Some("\"b\":")));
        assert_eq!(rest("/actions/1"), Some(Some("{\"a\"")));
        assert_eq!(rest("/actions/1/nope"), rest("/actions/1"));
        assert_eq!(rest("/actions/9"), rest("/actions"));
        assert_eq!(rest("/"), None);
    }

    #[test]
    fn broken_text_is_walked_without_a_panic() {
        for text in [
            "",
            "{",
            "[",
            "{\"a\"",
            "{\"a\":",
            "[1,",
            "\"\\",
            "{\"a\":[}",
            "{:,}",
        ] {
            let _anything = in_json(text, "/a/0/b");
            let _anything = in_json(text, "/0/1");
        }
    }
}
