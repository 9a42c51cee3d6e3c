//! Which kinds of value a part of an expression can have, as far as its text tells.
//!
//! Owns the tables of which operator takes what, so that a mix that can never be judged is refused
//! where it is written and not found out when it blocks. It must not know how values look.

use std::fmt;

use serde_json::Value;

/// A set of kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kinds(u8);

impl Kinds {
    pub(super) const NONE: Self = Self(0);
    pub(super) const BOOL: Self = Self(1);
    pub(super) const INT: Self = Self(1 << 1);
    pub(super) const DOUBLE: Self = Self(1 << 2);
    pub(super) const TEXT: Self = Self(1 << 3);
    pub(super) const NULL: Self = Self(1 << 4);
    pub(super) const LIST: Self = Self(1 << 5);
    pub(super) const MAP: Self = Self(1 << 6);
    /// Whatever JSON holds: its numbers are doubles, as CEL maps JSON.
    pub(super) const JSON: Self = Self(0b111_1101);
    pub(super) const ANY: Self = Self(0b111_1111);
    pub(super) const NUMBER: Self = Self(0b110);

    const NAMED: [(Self, &str); 7] = [
        (Self::BOOL, "a bool"),
        (Self::INT, "an int"),
        (Self::DOUBLE, "a double"),
        (Self::TEXT, "a string"),
        (Self::NULL, "null"),
        (Self::LIST, "a list"),
        (Self::MAP, "a map"),
    ];

    pub(super) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether a value of one could equal a value of the other: ints and doubles are compared as
    /// numbers.
    pub(super) fn may_equal(self, other: Self) -> bool {
        let widened = |kinds: Self| {
            if kinds.meets(Self::NUMBER) {
                kinds.or(Self::NUMBER)
            } else {
                kinds
            }
        };
        widened(self).meets(widened(other))
    }

    /// The kinds that a JSON Schema's `type` allows; anything when it says nothing.
    fn of_schema(schema: &Value) -> Self {
        let of_word = |word: &Value| match word.as_str() {
            Some("boolean") => Self::BOOL,
            Some("integer" | "number") => Self::DOUBLE,
            Some("string") => Self::TEXT,
            Some("null") => Self::NULL,
            Some("array") => Self::LIST,
            Some("object") => Self::MAP,
            _ => Self::JSON,
        };
        match schema.get("type") {
            Some(Value::Array(words)) => words.iter().map(of_word).fold(Self::NONE, Self::or),
            Some(word) => of_word(word),
            None => Self::JSON,
        }
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ANY || *self == Self::JSON {
            return f.write_str("a JSON value");
        }
        let mut first = true;
        for (kind, name) in Self::NAMED {
            if self.meets(kind) {
                let or = if first { "" } else { " or " };
                write!(f, "{or}{name}")?;
                first = false;
            }
        }
        Ok(())
    }
}

/// What is known of a value before there is one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape<'s> {
    pub(super) kinds: Kinds,
    /// What it holds, where it is a list.
    pub(super) items: Kinds,
    /// The JSON Schema it fits, if there is one.
    pub(super) schema: Option<&'s Value>,
}

impl<'s> Shape<'s> {
    pub(super) fn of(kinds: Kinds) -> Self {
        Self {
            kinds,
            items: Kinds::JSON,
            schema: None,
        }
    }

    pub(super) fn list(items: Kinds) -> Self {
        Self {
            kinds: Kinds::LIST,
            items,
            schema: None,
        }
    }

    pub(super) fn of_schema(schema: &'s Value) -> Self {
        Self {
            kinds: Kinds::of_schema(schema),
            items: Kinds::JSON,
            schema: Some(schema),
        }
    }

    /// The shape of a field; `None` when the schema says that there never is one.
    pub(super) fn field(&self, name: &str) -> Option<Self> {
        let Some(schema) = self.schema else {
            return Some(Self::of(Kinds::JSON));
        };
        // A schema that is put together from others may declare the field in any of them.
        let composed = ["allOf", "anyOf", "oneOf", "$ref", "if", "patternProperties"];
        if composed.iter().any(|word| schema.get(word).is_some()) {
            return Some(Self::of(Kinds::JSON));
        }
        match schema.get("properties").and_then(|all| all.get(name)) {
            Some(field) => Some(Self::of_schema(field)),
            None if schema.get("additionalProperties") == Some(&Value::Bool(false)) => None,
            None => Some(Self::of(Kinds::JSON)),
        }
    }

    /// The shape of what a comprehension's variable stands for: an item, or a map's key.
    pub(super) fn item(&self) -> Self {
        let items = self.schema.and_then(|schema| schema.get("items"));
        let mut item = match items {
            Some(items) if items.is_object() => Self::of_schema(items),
            _ => Self::of(self.items),
        };
        if self.kinds.meets(Kinds::MAP) {
            item.kinds = item.kinds.or(Kinds::TEXT);
        }
        item
    }
}

/// An operator between two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

impl Operator {
    pub(super) fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
        }
    }

    /// What comes out; none when it takes no such pair.
    pub(super) fn result(self, left: Kinds, right: Kinds) -> Kinds {
        let both = |kind: Kinds| left.meets(kind) && right.meets(kind);
        let alike = |kinds: &[Kinds]| {
            let fitting = kinds.iter().filter(|kind| both(**kind));
            fitting.fold(Kinds::NONE, |result, kind| result.or(*kind))
        };
        match self {
            Self::Add => alike(&[Kinds::INT, Kinds::DOUBLE, Kinds::TEXT, Kinds::LIST]),
            Self::Subtract | Self::Multiply | Self::Divide => alike(&[Kinds::INT, Kinds::DOUBLE]),
            Self::Remainder => alike(&[Kinds::INT]),
            Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual => {
                let ordered = [Kinds::NUMBER, Kinds::TEXT, Kinds::BOOL];
                if ordered.into_iter().any(both) {
                    Kinds::BOOL
                } else {
                    Kinds::NONE
                }
            }
            Self::Equal | Self::NotEqual if left.may_equal(right) => Kinds::BOOL,
            Self::Equal | Self::NotEqual => Kinds::NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_everything_but_an_int() {
        assert!(!Kinds::JSON.meets(Kinds::INT));
        assert_eq!(Kinds::JSON.or(Kinds::INT), Kinds::ANY);
        assert_eq!(Kinds::TEXT.or(Kinds::NULL).to_string(), "a string or null");
    }

    #[test]
    fn a_schema_narrows_what_a_field_can_be() {
        let schema = json!({
            "type": "object",
            "properties": {"n": {"type": ["integer", "null"]}, "list": {
                "type": "array", "items": {"type": "string"}}},
            "additionalProperties": false,
        });
        let args = Shape::of_schema(&schema);
        let field = |name: &str| args.field(name).map(|shape| shape.kinds);
        assert_eq!(field("n"), Some(Kinds::DOUBLE.or(Kinds::NULL)));
        assert_eq!(field("m"), None);
        let list = args.field("list").expect("there");
        assert_eq!(list.item().kinds, Kinds::TEXT);
        let open = json!({"type": "object", "allOf": [], "additionalProperties": false});
        let field = Shape::of_schema(&open).field("m").expect("anything");
        assert_eq!(field.kinds, Kinds::JSON);
    }
}
