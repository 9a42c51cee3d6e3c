//! A few words of somebody else's text, made safe to show.
//!
//! Owns how much is quoted and what is escaped. It must not know where the text comes from, and is
//! reached only by way of [`Hidden::quote`](super::Hidden::quote): half a secret is not recognised
//! by anybody.

/// How much of a vendor's message is quoted.
const SNIPPET_CHARS_MAX: usize = 200;

/// At most [`SNIPPET_CHARS_MAX`] characters, on one line, with nothing a terminal would obey.
pub(super) fn snippet(text: &str) -> String {
    let mut short = String::new();
    for character in text.chars() {
        let escaped: String = match character {
            '`' => "'".to_owned(),
            '"' | '\'' => character.to_string(),
            other => other.escape_debug().collect(),
        };
        if short.chars().count() + escaped.chars().count() >= SNIPPET_CHARS_MAX {
            short.push('…');
            break;
        }
        short.push_str(&escaped);
    }
    short
}
