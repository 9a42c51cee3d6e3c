//! Identifiers: what each may look like is decided here once, at the edge.
//!
//! Owns the newtypes and their checks. It must not know what an identifier is used for.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};
use unicode_normalization::is_nfc;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

use crate::text::Text;

/// The longest key or tenant id, in bytes. Postgres refuses index entries over 2,704 bytes and
/// `DynamoDB` key parts over 2,048: 512 leaves room for two of them and a prefix.
pub const KEY_BYTES_MAX: usize = 512;

/// The longest connector, tool or operator name, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Why a text is not the identifier it was offered as.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentifierError {
    /// Nothing was given.
    #[error("{what} is empty")]
    Empty {
        /// Which identifier.
        what: &'static str,
    },
    /// Longer than its bound.
    #[error("{what} is {bytes} bytes long, at most {max} are allowed")]
    TooLong {
        /// Which identifier.
        what: &'static str,
        /// How long it was.
        bytes: usize,
        /// How long it may be.
        max: usize,
    },
    /// A character that is not allowed where it stands.
    #[error("{what} has {problem} at byte {at}")]
    Character {
        /// Which identifier.
        what: &'static str,
        /// What is wrong there, in words.
        problem: String,
        /// The byte offset.
        at: usize,
    },
    /// Two texts that look alike would be two keys.
    #[error("{what} is not in Unicode normal form NFC; normalise it where it is made")]
    NotNormalised {
        /// Which identifier.
        what: &'static str,
    },
}

/// Characters that people cannot see or compare, and how to name them.
const UNSEEN: &[(GeneralCategory, &str)] = &[
    (GeneralCategory::Control, "a control character"),
    (
        GeneralCategory::Format,
        "an invisible format or direction character",
    ),
    (GeneralCategory::LineSeparator, "a line break"),
    (GeneralCategory::ParagraphSeparator, "a line break"),
    (GeneralCategory::Unassigned, "an unassigned character"),
    (GeneralCategory::PrivateUse, "a private-use character"),
];

fn check_key(what: &'static str, text: &str) -> Result<(), IdentifierError> {
    check_length(what, text, KEY_BYTES_MAX)?;
    if text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(()); // What nearly every key is; all below holds for it.
    }
    for (at, character) in text.char_indices() {
        let category = character.general_category();
        let Some((_, problem)) = UNSEEN.iter().find(|(unseen, _)| *unseen == category) else {
            continue;
        };
        let problem = format!("{problem} (U+{:04X})", u32::from(character));
        return Err(IdentifierError::Character { what, problem, at });
    }
    if text.starts_with(char::is_whitespace) {
        return Err(IdentifierError::Character {
            what,
            problem: "a leading space".into(),
            at: 0,
        });
    }
    if text.ends_with(char::is_whitespace) {
        let at = text.trim_end().len();
        return Err(IdentifierError::Character {
            what,
            problem: "a trailing space".into(),
            at,
        });
    }
    if !is_nfc(text) {
        return Err(IdentifierError::NotNormalised { what });
    }
    Ok(())
}

fn check_name(what: &'static str, text: &str) -> Result<(), IdentifierError> {
    check_length(what, text, NAME_BYTES_MAX)?;
    let allowed = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '.' | '_' | '-');
    match text.char_indices().find(|(_, c)| !allowed(*c)) {
        None => Ok(()),
        Some((at, character)) => {
            let problem = format!("{character:?}, which is not one of a-z, 0-9, `.`, `_` and `-`,");
            Err(IdentifierError::Character { what, problem, at })
        }
    }
}

fn check_length(what: &'static str, text: &str, max: usize) -> Result<(), IdentifierError> {
    if text.is_empty() {
        return Err(IdentifierError::Empty { what });
    }
    if text.len() > max {
        return Err(IdentifierError::TooLong {
            what,
            bytes: text.len(),
            max,
        });
    }
    Ok(())
}

/// Writes one identifier type: a private text, made only by `parse`, read by serde through the
/// same check.
macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:ident) => {
        $(#[$doc])*
        ///
        /// Cheap to clone: one action hands its identifiers to many records.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Text);

        impl $name {
            /// Checks `text` and takes it as it is; nothing is trimmed or folded.
            pub fn parse(text: impl Into<String>) -> Result<Self, IdentifierError> {
                let text = text.into();
                $check($what, &text)?;
                Ok(Self(text.into()))
            }

            /// The text, byte for byte as it was given.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdentifierError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::parse(text)
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.0.into()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
    };
}

identifier! {
    /// Whose key, entity or receipt this is: 1–512 bytes of NFC text without control, format or
    /// direction characters, no space at either end; compared byte for byte.
    TenantId, "the tenant id", check_key
}
identifier! {
    /// What must not be touched by two actions at once: 1–512 bytes of NFC text without control,
    /// format or direction characters, no space at either end; compared byte for byte.
    EntityKey, "the entity key", check_key
}
identifier! {
    /// What counts as the same action: 1–512 bytes of NFC text without control, format or
    /// direction characters, no space at either end; compared byte for byte.
    IdempotencyKey, "the idempotency key", check_key
}
identifier! {
    /// A configured connector: `[a-z0-9._-]{1,64}`, compared byte for byte.
    ConnectorName, "the connector name", check_name
}
identifier! {
    /// A tool of a connector: `[a-z0-9._-]{1,64}`, compared byte for byte.
    ToolName, "the tool name", check_name
}
identifier! {
    /// Who proposes: `[a-z0-9._-]{1,64}`, compared byte for byte.
    OperatorName, "the operator name", check_name
}

/// What the tenant of stubbed tools ends with.
const STUB_SUFFIX: &str = "~stub";

impl TenantId {
    /// The tenant under which its stubbed tools keep keys and receipts; of such a tenant, itself.
    pub fn stub(&self) -> Result<Self, IdentifierError> {
        if self.is_stub() {
            return Ok(self.clone());
        }
        Self::parse(format!("{self}{STUB_SUFFIX}"))
    }

    /// Whether only stubbed tools keep anything under it.
    pub fn is_stub(&self) -> bool {
        // The suffix alone names nobody's stubs.
        let live = self.0.strip_suffix(STUB_SUFFIX);
        live.is_some_and(|live| !live.is_empty())
    }

    /// The tenant whose stubs these are; of any other, itself.
    #[must_use]
    pub fn live(&self) -> Self {
        match self.0.strip_suffix(STUB_SUFFIX) {
            Some(live) if !live.is_empty() => Self(live.into()),
            Some(_) | None => self.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_takes_what_people_write() {
        for text in [
            "a",
            "order:SO-10884",
            "ship-risk:SO-10884:hold",
            "κλειδί",
            "a b",
            "日本",
        ] {
            assert!(IdempotencyKey::parse(text).is_ok(), "{text}");
        }
        assert!(EntityKey::parse("x".repeat(512)).is_ok());
    }

    #[test]
    fn a_key_refuses_what_cannot_be_seen_or_compared() {
        let cases = [
            "",
            " a",
            "a ",
            "a\u{0}b",
            "a\nb",
            "a\u{202e}b",
            "a\u{200b}b",
            "e\u{301}",
            "\u{feff}a",
            "a\u{2028}b",
            "a\u{e000}",
            "\u{a0}a",
        ];
        for text in cases {
            assert!(IdempotencyKey::parse(text).is_err(), "{text:?}");
        }
        assert!(EntityKey::parse("x".repeat(513)).is_err());
    }

    #[test]
    fn a_tenant_and_its_stubs_name_each_other() {
        let acme = TenantId::parse("acme").expect("tenant");
        let stub = acme.stub().expect("room for it");
        assert_eq!((stub.as_str(), stub.is_stub()), ("acme~stub", true));
        assert_eq!(stub.live(), acme);
        assert_eq!(stub.stub().expect("itself"), stub);
        assert_eq!((acme.live(), acme.is_stub()), (acme.clone(), false));
        let odd = TenantId::parse("~stub").expect("tenant");
        assert_eq!((odd.live(), odd.is_stub()), (odd.clone(), false));
        assert!(
            TenantId::parse("x".repeat(512))
                .expect("tenant")
                .stub()
                .is_err()
        );
    }

    #[test]
    fn a_name_is_plain_ascii_and_exact() {
        for text in ["shop", "orders.hold", "a-b_c.9"] {
            assert!(ToolName::parse(text).is_ok(), "{text}");
        }
        let homoglyph = "\u{43e}rders.hold";
        for text in [
            "",
            "Orders.hold",
            "orders hold",
            homoglyph,
            "orders.hold\u{200b}",
            "a/b",
        ] {
            assert!(ToolName::parse(text).is_err(), "{text:?}");
        }
        assert!(ToolName::parse("x".repeat(65)).is_err());
    }
}
