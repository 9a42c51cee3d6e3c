//! Secrets that other arguments repeat: a token in a note is no less secret there.
//!
//! A key is bound to its arguments as they are shown, so what differs must be shown to differ.

use serde_json::{Map, Number, Value};

use super::names::is_secret_name;
use super::{Redaction, RedactionKey, is_found_inside};

/// Shorter secrets are met in names by chance: nobody names a field after a good one.
const IN_NAME_BYTES_MIN: usize = 8;

impl Redaction {
    /// Takes the secrets out of the other arguments too, names of fields included.
    pub(super) fn without_repetitions(
        &self,
        shown: Map<String, Value>,
        args: &Map<String, Value>,
        key: &RedactionKey,
    ) -> Map<String, Value> {
        let without = |(name, mut value): (String, Value)| {
            if let Some(said) = args.get(&name) {
                self.scrub_what_is_plain(&mut value, said, key);
            }
            // The whole name at once, so that no two become one.
            let name = if self.is_in_name(&name) {
                key.hash(&Value::String(name))
            } else {
                name
            };
            (name, value)
        };
        shown.into_iter().map(without).collect()
    }

    /// Scrubs what is shown as it was said, and leaves hashes as they are.
    fn scrub_what_is_plain(&self, shown: &mut Value, said: &Value, key: &RedactionKey) {
        match (shown, said) {
            (Value::Object(shown), Value::Object(said)) => {
                *shown = self.without_repetitions(std::mem::take(shown), said, key);
            }
            (Value::Array(shown), Value::Array(said)) => {
                for (value, said) in shown.iter_mut().zip(said) {
                    self.scrub_what_is_plain(value, said, key);
                }
            }
            (shown, said) if shown == said => {
                *shown = if self.is_number_or_its_text(said) {
                    // As itself: 1234 is not "1234", and whoever says the one has not said the other.
                    Value::String(key.hash(said))
                } else {
                    self.scrub(shown.take())
                };
            }
            _ => {}
        }
    }

    /// Whether this is a secret that may be repeated as a number and as a text.
    fn is_number_or_its_text(&self, said: &Value) -> bool {
        let text = match said {
            Value::Number(number) => number.to_string(),
            Value::String(text) if text.parse::<Number>().is_ok() => text.clone(),
            Value::String(_)
            | Value::Null
            | Value::Bool(_)
            | Value::Array(_)
            | Value::Object(_) => {
                return false;
            }
        };
        self.hidden
            .iter()
            .any(|(secret, _)| secret.as_str() == text)
    }

    /// Whether a field's name gives a secret away. One that is nothing but the name of such a field,
    /// `password` say, is none.
    fn is_in_name(&self, name: &str) -> bool {
        self.hidden.iter().any(|(secret, _)| {
            is_found_inside(secret.as_str())
                && secret
                    .places_in(name)
                    .iter()
                    .any(|place| place.len() >= IN_NAME_BYTES_MIN)
                && !(name == secret.as_str() && is_secret_name(name))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{redaction, shown};
    use super::*;

    #[test]
    fn a_secret_is_taken_out_of_the_arguments_that_repeat_it() {
        let secrets = redaction(
            &json!({
                "password": "hmac-sha256",
                "note": "log in with hmac-sha256",
                "deep": [{"again": "hmac-sha256", "count": 3}],
            }),
            &[],
        );
        let shown = shown(&secrets);
        let hash = shown.get("password").and_then(Value::as_str);
        let hash = hash.expect("a hash").to_owned();
        assert!(hash.starts_with("hmac-sha256:"), "a hash stays as it is");
        let expected = json!({
            "password": hash,
            "note": format!("log in with {hash}"),
            "deep": [{"again": hash, "count": 3}],
        });
        assert_eq!(shown, expected);
    }

    /// What a key is bound to is what is shown, so what differs must be shown to differ (3.2).
    #[test]
    fn other_arguments_are_shown_as_others_however_much_is_hidden() {
        let differ = |one: Value, other: Value| {
            let [seen, other_seen] = [&one, &other].map(|args| shown(&redaction(args, &[])));
            assert_ne!(seen, other_seen, "{one} and {other}");
            for text in [seen, other_seen].map(|shown| shown.to_string()) {
                assert!(!text.contains("1234") && !text.contains("aaaa"), "{text}");
            }
        };
        for pin in [json!("1234"), json!(1234)] {
            differ(
                json!({"pin": pin, "note": 1234}),
                json!({"pin": pin, "note": "1234"}),
            );
            differ(
                json!({"pin": [pin, "bbbb"], "deep": [{"note": 1234}]}),
                json!({"pin": [pin, "bbbb"], "deep": [{"note": "1234"}]}),
            );
        }
        for (one, other) in [("aaaa", "bbbb"), ("to aaaa", "to bbbb")] {
            let tokens = json!(["aaaa", "bbbb"]);
            differ(
                json!({"token": tokens, "note": one}),
                json!({"token": tokens, "note": other}),
            );
        }
    }

    /// Keys that were burned before stay so: a secret that is repeated as it is has its own hash.
    #[test]
    fn a_repeated_secret_is_shown_as_where_it_is_hidden() {
        for secret in [json!("1234"), json!(1234), json!("hunter22")] {
            let shown = shown(&redaction(&json!({"pin": secret, "note": secret}), &[]));
            assert_eq!(shown.get("pin"), shown.get("note"), "{secret}");
        }
    }

    #[test]
    fn a_secret_is_taken_out_of_the_names_of_fields() {
        let args = json!({
            "token": "hunter2222",
            "hunter2222": 1,
            "seen": [{"by hunter2222": 2, "aHVudGVyMjIyMg==": 3}],
            "password": "password",
            "pin": "seen",
        });
        let shown = shown(&redaction(&args, &[]));
        let text = shown.to_string();
        assert!(
            !text.contains("hunter2222") && !text.contains("aHVudGVy"),
            "{text}"
        );
        let seen = shown.get("seen").and_then(|seen| seen.get(0));
        let seen = seen.and_then(Value::as_object).expect("an object");
        assert_eq!(seen.len(), 2, "two names are two names: {text}");
        assert!(shown.get("password").is_some(), "{text}");
    }
}
