//! Texts that were sent and must not come back: a vendor that echoes a credential is not quoted.
//!
//! Owns what is blanked out of answers and messages.

use std::fmt;

use serde_json::Value;

/// What stands where a hidden text was.
const BLANK: &str = "…";

/// Shorter texts are left alone: blanking every `1` would only garble the answer.
const HIDDEN_CHARS_MIN: usize = 4;

/// The hidden texts of one call.
#[derive(Clone, Default)]
pub(crate) struct Hidden {
    texts: Vec<String>,
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden(…)")
    }
}

impl Hidden {
    /// Hides a text, and the token in `Bearer TOKEN`.
    pub(crate) fn add(&mut self, text: &str) {
        for text in [Some(text), text.rsplit(' ').next()].into_iter().flatten() {
            if text.chars().count() >= HIDDEN_CHARS_MIN {
                self.texts.push(text.to_owned());
            }
        }
    }

    /// Hides every scalar inside an argument.
    pub(crate) fn add_value(&mut self, value: &Value) {
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => self.add(&number.to_string()),
            Value::String(text) => self.add(text),
            Value::Array(items) => items.iter().for_each(|item| self.add_value(item)),
            Value::Object(fields) => fields.values().for_each(|field| self.add_value(field)),
        }
    }

    /// The text without what is hidden.
    pub(crate) fn blank(&self, text: &str) -> String {
        self.texts
            .iter()
            .fold(text.to_owned(), |text, hidden| text.replace(hidden, BLANK))
    }

    /// The value without what is hidden, object keys included.
    pub(crate) fn blank_value(&self, value: Value) -> Value {
        if self.texts.is_empty() {
            return value;
        }
        match value {
            Value::Null | Value::Bool(_) => value,
            Value::Number(number) => {
                let text = number.to_string();
                let blanked = self.blank(&text);
                if blanked == text {
                    Value::Number(number)
                } else {
                    Value::String(blanked)
                }
            }
            Value::String(text) => Value::String(self.blank(&text)),
            Value::Array(items) => items
                .into_iter()
                .map(|item| self.blank_value(item))
                .collect(),
            Value::Object(fields) => fields
                .into_iter()
                .map(|(name, field)| (self.blank(&name), self.blank_value(field)))
                .collect(),
        }
    }
}
