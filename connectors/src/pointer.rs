//! JSON pointers into answers, and the id of an effect, which every kind takes in the same way.
//!
//! Owns what a pointer may look like and which values are ids. It must not know whose answer it is.

use serde_json::Value;

use crate::registry::{Place, RegistryError};

/// Where most vendors put the id of what they made.
const EFFECT_ID_DEFAULT: &str = "/id";

/// The longest id taken over from an answer.
const EFFECT_ID_CHARS_MAX: usize = 256;

/// A place in a JSON value.
#[derive(Debug, Clone)]
pub(crate) struct Pointer(String);

impl Pointer {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let escapes_are_whole = text
            .split('~')
            .skip(1)
            .all(|after| after.starts_with(['0', '1']));
        if (text.is_empty() || text.starts_with('/')) && escapes_are_whole {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "`{}` is not a JSON pointer; write it like `/data/0/id`",
            text.escape_debug()
        ))
    }

    /// What stands there.
    pub(crate) fn find<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        value.pointer(&self.0)
    }
}

/// Where the id of an effect stands.
#[derive(Debug, Clone)]
pub(crate) struct EffectIdAt(Pointer);

impl EffectIdAt {
    /// Compiles an `effect_id`; `/id` when nothing is said.
    pub(crate) fn compile(text: Option<&str>, place: &Place) -> Result<Self, RegistryError> {
        Pointer::parse(text.unwrap_or(EFFECT_ID_DEFAULT))
            .map(Self)
            .map_err(|problem| place.refuse("effect_id", problem))
    }

    /// The id, if what stands there can be one. The effect happened either way.
    pub(crate) fn take(&self, result: &Value) -> Option<String> {
        match self.0.find(result)? {
            Value::String(id) if id.chars().count() <= EFFECT_ID_CHARS_MAX => Some(id.clone()),
            Value::Number(id) => Some(id.to_string()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use operators_kernel::ConnectorName;

    #[test]
    fn an_id_is_a_short_text_or_a_number_and_nothing_else() {
        let place = Place::connector(&ConnectorName::parse("shop").expect("a name"));
        let at = |text: Option<&str>| EffectIdAt::compile(text, &place);
        let longest = "x".repeat(EFFECT_ID_CHARS_MAX);
        let default = at(None).expect("the default");
        for (answer, id) in [
            (json!({"id": "a-1"}), Some("a-1".to_owned())),
            (json!({"id": 7}), Some("7".to_owned())),
            (json!({"id": longest}), Some(longest.clone())),
            (json!({"id": format!("{longest}x")}), None),
            (json!({"id": null}), None),
            (json!({"id": {"a": 1}}), None),
            (json!({}), None),
            (json!("text"), None),
        ] {
            assert_eq!(default.take(&answer), id, "{answer}");
        }
        let inner = at(Some("/data/0/no")).expect("a pointer");
        assert_eq!(
            inner.take(&json!({"data": [{"no": 3}]})),
            Some("3".to_owned())
        );
        for bad in ["id", "data/id", "/a~2"] {
            let error = at(Some(bad)).expect_err(bad).to_string();
            assert!(error.contains("effect_id: "), "{error}");
            assert!(error.contains("is not a JSON pointer"), "{error}");
        }
    }
}
