//! A hash of what something says: 32 bytes that people read as `sha256:…`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::json::hex_after;

const WORD: &str = "sha256:";

/// SHA-256 of some bytes. Kept as it is, and written out where it is read.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentDigest([u8; 32]);

/// A text that is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not `sha256:` and 64 digits of lower-case hexadecimal")]
pub struct NoDigest(String);

impl ContentDigest {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// What [`bytes`](Self::bytes) gave.
    pub(crate) fn of_digest(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// As text.
    pub fn text(&self) -> String {
        hex_after(WORD, &self.0)
    }
}

impl fmt::Display for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl fmt::Debug for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ContentDigest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Self, NoDigest> {
        let refused = || NoDigest(text.to_owned());
        let digits = text.strip_prefix(WORD).ok_or_else(refused)?.as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != bytes.len() * 2 {
            return Err(refused());
        }
        let nibble = |digit: &u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = match pair {
                [high, low] => nibble(high).zip(nibble(low)),
                _ => None,
            }
            .map(|(high, low)| high << 4 | low)
            .ok_or_else(refused)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for ContentDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for ContentDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_was_written_and_nothing_else_is() {
        let digest = ContentDigest::of(b"abc");
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.text(), text);
        assert_eq!(text.parse(), Ok(digest));
        let (upper, short) = (text.replace('b', "B"), text.replace("ad", ""));
        for other in ["", "sha256:", "sha256:00", &text[7..], &upper, &short] {
            let problem = other.parse::<ContentDigest>().expect_err("no digest");
            assert!(problem.to_string().starts_with(&format!("`{other}`")));
        }
    }
}
