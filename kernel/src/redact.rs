//! Secret arguments: the keyed hash that stands for them everywhere but in the connector's hands.

mod names;
mod repetitions;
mod spellings;

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Map, Value};
use sha2::Sha256;

use crate::admission::check_size;
use crate::connector::Call;
use crate::json;
use crate::shared::Shared;
use names::is_secret_name;

pub use spellings::SecretText;

/// Shorter secrets are replaced only where they are a whole value: replacing `1` everywhere in an
/// answer would garble it and hide nothing.
const SUBSTRING_BYTES_MIN: usize = 4;

/// The key of a tenant's hashes: made once, kept in the store, never exported.
#[derive(Clone, PartialEq, Eq)]
pub struct RedactionKey([u8; 32]);

impl RedactionKey {
    /// From 32 random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for the store that keeps them.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn hash(&self, value: &Value) -> String {
        let text = json::canonical(value).unwrap_or_else(|_| value.to_string());
        match Hmac::<Sha256>::new_from_slice(&self.0) {
            Ok(mut mac) => {
                mac.update(text.as_bytes());
                json::hex_after("hmac-sha256:", &mac.finalize().into_bytes())
            }
            // HMAC takes keys of any length; were that ever to change, show nothing at all.
            Err(_) => "hmac-sha256:unavailable".to_owned(),
        }
    }
}

impl fmt::Debug for RedactionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedactionKey(…)")
    }
}

/// One action's arguments as they may be shown, and what must be taken out of every answer.
#[derive(Clone, Default)]
pub(crate) struct Redaction {
    /// `None` if they are shown as they are.
    shown: Option<Shared<Map<String, Value>>>,
    /// Each secret with its hash.
    hidden: Vec<(SecretText, String)>,
}

impl fmt::Debug for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redaction")
            .field("hidden", &self.hidden.len())
            .finish_non_exhaustive()
    }
}

impl Redaction {
    /// Finds the secrets of `args`: the marked ones, and those whose names give them away. Mostly
    /// there are none, and then the key is not asked for.
    pub(crate) async fn of<E>(
        args: &Map<String, Value>,
        marked: &[String],
        key: impl Future<Output = Result<RedactionKey, E>>,
    ) -> Result<Self, E> {
        if holds_secret(args, "", marked) {
            Ok(Self::with(args, marked, &key.await?))
        } else {
            Ok(Self::default())
        }
    }

    fn with(args: &Map<String, Value>, marked: &[String], key: &RedactionKey) -> Self {
        let mut hidden = Vec::new();
        let shown = redact_object(args, "", marked, &|value| key.hash(value), &mut hidden);
        // Longest first, so that no secret is left in halves by a shorter one inside it.
        hidden.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.cmp(b)));
        hidden.dedup();
        let hidden = hidden.into_iter();
        let hidden = hidden.map(|(text, hash)| (SecretText::new(&text), hash));
        let hidden = hidden.collect();
        let mut redaction = Self {
            shown: None,
            hidden,
        };
        let shown = redaction.without_repetitions(shown, args, key);
        redaction.shown = Some(bounded(shown, || key.hash(&Value::Object(args.clone()))).into());
        redaction
    }

    /// The arguments as they may be shown, if that is not as they are.
    pub(crate) fn shown(&self) -> Option<&Shared<Map<String, Value>>> {
        self.shown.as_ref()
    }

    /// Takes every secret out of a sentence that holds it whole, however it is spelled.
    pub(crate) fn scrub_text(&self, text: String) -> String {
        self.hidden.iter().fold(text, |text, (secret, hash)| {
            if text == secret.as_str() {
                hash.clone()
            } else if is_found_inside(secret.as_str()) {
                secret.replace_in(text, hash)
            } else {
                text
            }
        })
    }

    /// Whether there is a secret to look for.
    pub(crate) fn hides_something(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// Takes every secret out of an answer, names of fields included.
    pub(crate) fn scrub(&self, value: Value) -> Value {
        if self.hidden.is_empty() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.scrub_text(text)),
            Value::Number(number) => {
                let text = number.to_string();
                match self
                    .hidden
                    .iter()
                    .find(|(secret, _)| secret.as_str() == text)
                {
                    Some((_, hash)) => Value::String(hash.clone()),
                    None => Value::Number(number),
                }
            }
            Value::Array(items) => Value::Array(items.into_iter().map(|v| self.scrub(v)).collect()),
            Value::Object(object) => Value::Object(
                object
                    .into_iter()
                    .map(|(k, v)| (self.scrub_text(k), self.scrub(v)))
                    .collect(),
            ),
            Value::Null | Value::Bool(_) => value,
        }
    }
}

impl Call {
    /// The texts of its secret arguments: those that its tool marks, by dotted paths, and those whose
    /// names give them away.
    ///
    /// An answer that is handed on whole needs no care: the executor takes them out of it. It does not
    /// know the half of one, so whoever cuts an answer hides these first, each as a [`SecretText`].
    pub fn secret_texts(&self, marked: &[String]) -> Vec<String> {
        let mut hidden = Vec::new();
        if holds_secret(&self.args, "", marked) {
            redact_object(&self.args, "", marked, &|_| String::new(), &mut hidden);
        }
        hidden.into_iter().map(|(text, _)| text).collect()
    }
}

/// A hash is longer than many a secret: where that makes the arguments longer than any may be, which
/// nothing that keeps them is made for, one hash stands for all of them.
fn bounded(shown: Map<String, Value>, hash: impl Fn() -> String) -> Map<String, Value> {
    if check_size(&shown).is_ok() {
        return shown;
    }
    Map::from_iter([("args".to_owned(), Value::String(hash()))])
}

/// Whether a secret is also looked for in the middle of a text.
fn is_found_inside(secret: &str) -> bool {
    secret.len() >= SUBSTRING_BYTES_MIN
}

fn redact_object(
    object: &Map<String, Value>,
    path: &str,
    marked: &[String],
    hash: &dyn Fn(&Value) -> String,
    hidden: &mut Vec<(String, String)>,
) -> Map<String, Value> {
    let mut shown = Map::new();
    for (name, value) in object {
        let here = path_of(path, name, marked);
        let value = if marked.contains(&here) || is_secret_name(name) {
            let hashed = hash(value);
            remember(value, hash, hidden);
            Value::String(hashed)
        } else {
            redact_value(value, &here, marked, hash, hidden)
        };
        shown.insert(name.clone(), value);
    }
    shown
}

fn path_of(path: &str, name: &str, marked: &[String]) -> String {
    match (marked.is_empty(), path.is_empty()) {
        (true, _) => String::new(), // Nothing is looked up by its path.
        (false, true) => name.to_owned(),
        (false, false) => format!("{path}.{name}"),
    }
}

/// Whether anything is to be hidden. Nearly always nothing is, and then nothing is copied.
fn holds_secret(object: &Map<String, Value>, path: &str, marked: &[String]) -> bool {
    object.iter().any(|(name, value)| {
        let here = path_of(path, name, marked);
        marked.contains(&here) || is_secret_name(name) || is_secret_inside(value, &here, marked)
    })
}

fn is_secret_inside(value: &Value, path: &str, marked: &[String]) -> bool {
    match value {
        Value::Object(object) => holds_secret(object, path, marked),
        Value::Array(items) => items
            .iter()
            .any(|item| is_secret_inside(item, path, marked)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn redact_value(
    value: &Value,
    path: &str,
    marked: &[String],
    hash: &dyn Fn(&Value) -> String,
    hidden: &mut Vec<(String, String)>,
) -> Value {
    match value {
        Value::Object(object) => Value::Object(redact_object(object, path, marked, hash, hidden)),
        // Items of a list share its path, so `cards.number` reaches every card.
        Value::Array(items) => Value::Array(
            items
                .iter()
                .map(|item| redact_value(item, path, marked, hash, hidden))
                .collect(),
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Every scalar inside a secret is a secret, with a hash of its own: where one is repeated, it is not
/// taken for another.
fn remember(value: &Value, hash: &dyn Fn(&Value) -> String, hidden: &mut Vec<(String, String)>) {
    match value {
        Value::String(text) if !text.is_empty() => hidden.push((text.clone(), hash(value))),
        Value::Number(number) => hidden.push((number.to_string(), hash(value))),
        Value::Array(items) => items.iter().for_each(|item| remember(item, hash, hidden)),
        Value::Object(object) => object
            .values()
            .for_each(|item| remember(item, hash, hidden)),
        Value::String(_) | Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    pub(super) fn redaction(args: &Value, marked: &[&str]) -> Redaction {
        let marked: Vec<String> = marked.iter().map(|m| (*m).to_owned()).collect();
        let args = args.as_object().expect("object");
        Redaction::with(args, &marked, &RedactionKey::new([7; 32]))
    }

    pub(super) fn shown(redaction: &Redaction) -> Value {
        let shown = redaction.shown().expect("something is hidden");
        Value::Object((**shown).clone())
    }

    #[tokio::test]
    async fn the_key_is_asked_for_only_if_there_is_something_to_hide() {
        let asked = async || Err::<RedactionKey, _>("asked");
        let plain = json!({"order": "SO-1", "deep": [{"max_tokens": 3}]});
        let plain = plain.as_object().expect("object");
        let found = Redaction::of(plain, &[], asked()).await;
        assert!(found.expect("not asked").shown().is_none());
        let marked = ["order".to_owned()];
        assert_eq!(
            Redaction::of(plain, &marked, asked()).await.err(),
            Some("asked")
        );
        let secret = json!({"deep": [{"token": "t"}]});
        let secret = secret.as_object().expect("object");
        assert_eq!(
            Redaction::of(secret, &[], asked()).await.err(),
            Some("asked")
        );
    }

    #[test]
    fn names_that_give_a_secret_away_are_found_at_any_depth() {
        for name in [
            "password",
            "user_password",
            "Authorization",
            "accessToken",
            "API_KEY",
            "apiKey",
            "set-cookie",
            "client_secret",
            "token",
            "x-api-key",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "max_tokens",
            "token_count",
            "order",
            "keyboard",
            "pinned",
            "monkey",
            "key",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
        let hidden = redaction(&json!({"a": [{"b": {"password": "hunter22"}}]}), &[]);
        let text = shown(&hidden).to_string();
        assert!(
            !text.contains("hunter22") && text.contains("hmac-sha256:"),
            "{text}"
        );
    }

    #[test]
    fn a_secret_is_taken_out_of_answers_and_errors() {
        let secrets = redaction(&json!({"card": {"number": "4111-1111"}}), &["card.number"]);
        let answer = json!({"echo": ["card 4111-1111 ok"], "4111-1111": 1});
        assert!(!secrets.scrub(answer).to_string().contains("4111-1111"));
        assert!(
            !secrets
                .scrub_text("refused 4111-1111".to_owned())
                .contains("4111-1111")
        );
    }

    #[test]
    fn a_secret_is_found_however_it_is_spelled() {
        let secrets = redaction(&json!({"password": "a\"b\\c1\n/x"}), &[]);
        let said = secrets.shown().and_then(|shown| shown.get("password"));
        let hash = said.and_then(Value::as_str).expect("a hash");
        for (echo, scrubbed) in [
            (r#"{"p":"a\"b\\c1\n/x"}"#, r#"{"p":"HASH"}"#),
            (r#"said `a"b\\c1\n/x`"#, "said `HASH`"),
            ("/log?p=a%22b%5Cc1%0A%2Fx&q", "/log?p=HASH&q"),
            ("/log/a%22b%5cc1%0A/x/q", "/log/HASH/q"),
            ("a\"b\\c1\n/x, again", "HASH, again"),
        ] {
            let expected = scrubbed.replace("HASH", hash);
            assert_eq!(secrets.scrub_text(echo.to_owned()), expected);
        }
        let named = json!({"a%22b%5Cc1%0A%2Fx": ["YTphImJcYzEKL3g="]});
        let text = secrets.scrub(named).to_string();
        assert!(
            !text.contains("%22b") && !text.contains("ImJcYzEKL3"),
            "{text}"
        );
    }

    #[test]
    fn a_short_secret_has_no_spellings() {
        let secrets = redaction(&json!({"pin": "a\"1"}), &[]);
        let said = r#"{"x":"a\"1"}"#;
        assert_eq!(secrets.scrub_text(said.to_owned()), said);
        assert_ne!(secrets.scrub_text("a\"1".to_owned()), "a\"1");
    }

    #[test]
    fn hashes_do_not_make_arguments_longer_than_any_may_be() {
        let long = |secret: &str| {
            let args = serde_json::json!({"password": secret, "note": secret.repeat(200_000)});
            shown(&redaction(&args, &[]))
        };
        let one = long("aaaa");
        let text = one.to_string();
        assert!(
            text.starts_with(r#"{"args":"hmac-sha256:"#),
            "{}",
            text.len()
        );
        assert_eq!(one, long("aaaa"));
        assert_ne!(one, long("aaab"));
    }

    #[test]
    fn the_same_secret_has_the_same_hash_and_another_has_another() {
        let one = redaction(&json!({"token": "aaaa"}), &[]);
        let same = redaction(&json!({"token": "aaaa"}), &[]);
        let other = redaction(&json!({"token": "aaab"}), &[]);
        assert_eq!(one.shown(), same.shown());
        assert_ne!(one.shown(), other.shown());
    }

    #[test]
    fn a_short_secret_does_not_garble_an_answer() {
        let secrets = redaction(&json!({"pin": "1"}), &[]);
        let answer = json!({"order": "SO-11", "seen": "1"});
        let scrubbed = secrets.scrub(answer);
        assert_eq!(scrubbed.get("order"), Some(&Value::from("SO-11")));
        assert_ne!(scrubbed.get("seen"), Some(&Value::from("1")));
    }
}
