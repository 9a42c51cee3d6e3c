//! Texts that were sent and must not come back: a vendor that echoes a credential is not quoted.
//!
//! Owns what is blanked out of answers and messages, and with it all cutting: no text is shortened
//! but by [`Hidden::quote`], which blanks first.

mod snippet;

use std::fmt;

use serde_json::Value;
use url::Url;

use operators_kernel::{Call, SecretText};

use crate::template::{lookup, split};
use snippet::snippet;

/// What stands where a hidden text was.
const BLANK: &str = "…";

/// Shorter texts are left alone: blanking every `1` would only garble the answer.
const HIDDEN_CHARS_MIN: usize = 4;

/// Shorter pieces at the end of a text are met by chance, and tell little.
const PIECE_CHARS_MIN: usize = 8;

/// The hidden texts of one call.
#[derive(Clone)]
pub(crate) struct Hidden {
    /// Credentials and marked arguments: nothing that is shown holds them.
    texts: Vec<SecretText>,
    /// The other secret arguments. The kernel puts a hash in the place of each that it finds whole,
    /// so they are blanked only in what is cut.
    in_quotes: Vec<SecretText>,
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden(…)")
    }
}

impl Hidden {
    /// Hides the secret arguments of a call: those that its tool marks, by dotted paths, and those
    /// that the kernel knows by their names.
    pub(crate) fn of(call: &Call, marked: &[String]) -> Self {
        let mut hidden = Self::without_call();
        for path in marked {
            if let Some(value) = lookup(call, &split(path)) {
                hidden.add_value(value);
            }
        }
        for text in call.secret_texts(marked) {
            add_text(&text, &mut hidden.in_quotes);
        }
        hidden
    }

    /// Hides nothing yet: there is no call whose arguments could come back.
    pub(crate) fn without_call() -> Self {
        Self {
            texts: Vec::new(),
            in_quotes: Vec::new(),
        }
    }

    /// Hides a text, and the token in `Bearer TOKEN`.
    pub(crate) fn add(&mut self, text: &str) {
        for text in [Some(text), text.rsplit(' ').next()].into_iter().flatten() {
            add_text(text, &mut self.texts);
        }
    }

    /// Hides the path and the query of an address, and every piece of them that is long enough to be
    /// what makes them secret.
    pub(crate) fn add_path(&mut self, url: &Url) {
        let whole = match url.query() {
            None => url.path().to_owned(),
            Some(query) => format!("{}?{query}", url.path()),
        };
        let pieces = whole.split(['/', '?', '&', '=']);
        let pieces = pieces.filter(|piece| piece.chars().nth(PIECE_CHARS_MIN - 1).is_some());
        for text in [whole.as_str(), url.path()].into_iter().chain(pieces) {
            add_text(text, &mut self.texts);
        }
    }

    /// Hides what another does, too.
    #[cfg(feature = "mcp")]
    pub(crate) fn add_all(&mut self, other: &Self) {
        self.texts.extend_from_slice(&other.texts);
        self.in_quotes.extend_from_slice(&other.in_quotes);
    }

    /// What this hides, and another.
    #[cfg(feature = "mcp")]
    pub(crate) fn with(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.add_all(other);
        both
    }

    /// Hides every scalar inside an argument.
    fn add_value(&mut self, value: &Value) {
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => self.add(&number.to_string()),
            Value::String(text) => self.add(text),
            Value::Array(items) => items.iter().for_each(|item| self.add_value(item)),
            Value::Object(fields) => fields.values().for_each(|field| self.add_value(field)),
        }
    }

    /// A few words of somebody else's text, without what is hidden, made safe to show. What was cut
    /// out of a longer text may hold the end of a hidden one at its start, or the start of one at its
    /// end; these are no less hidden.
    pub(crate) fn quote(&self, text: &str) -> String {
        let all: Vec<&SecretText> = self.texts.iter().chain(&self.in_quotes).collect();
        let text = blank(&all, text);
        // A character that was cut in half is no part of anything.
        let is_outside = |c: char| c.is_whitespace() || c == char::REPLACEMENT_CHARACTER;
        let mut rest = text.trim_matches(is_outside);
        let begins = all.iter();
        let begins = begins.map(|hidden| hidden.end_begins(rest, PIECE_CHARS_MIN));
        let begins = begins.max().unwrap_or(0);
        rest = rest.get(begins..).unwrap_or_default();
        let ends = all.iter();
        let ends = ends.map(|hidden| hidden.start_ends(rest, PIECE_CHARS_MIN));
        let ends = ends.max().unwrap_or(0);
        rest = rest.get(..rest.len() - ends).unwrap_or_default();
        let mark = |cut: usize| if cut > 0 { BLANK } else { "" };
        snippet(&format!("{}{rest}{}", mark(begins), mark(ends)))
    }

    /// The value without what is hidden, object keys included.
    pub(crate) fn blank_value(&self, value: Value) -> Value {
        if self.texts.is_empty() {
            return value;
        }
        let texts: Vec<&SecretText> = self.texts.iter().collect();
        blank_value(&texts, value)
    }
}

fn add_text(text: &str, texts: &mut Vec<SecretText>) {
    if text.chars().count() >= HIDDEN_CHARS_MIN {
        texts.push(SecretText::new(text));
    }
}

fn blank(hidden: &[&SecretText], text: &str) -> String {
    let mut longest_first = hidden.to_vec();
    // So that no text is left in halves by a shorter one inside it.
    longest_first.sort_by_key(|hidden| std::cmp::Reverse(hidden.as_str().len()));
    let whole = text.to_owned();
    longest_first
        .into_iter()
        .fold(whole, |text, hidden| hidden.replace_in(text, BLANK))
}

fn blank_value(hidden: &[&SecretText], value: Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) => value,
        Value::Number(number) => {
            let text = number.to_string();
            let blanked = blank(hidden, &text);
            if blanked == text {
                Value::Number(number)
            } else {
                Value::String(blanked)
            }
        }
        Value::String(text) => Value::String(blank(hidden, &text)),
        Value::Array(items) => items
            .into_iter()
            .map(|item| blank_value(hidden, item))
            .collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, field)| (blank(hidden, &name), blank_value(hidden, field)))
            .collect(),
    }
}
