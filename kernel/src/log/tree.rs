//! The Merkle tree of RFC 6962: what a leaf and a node hash to, and a log that only grows.
//!
//! Owns the hashing. It must not know what a leaf says.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What stands before a leaf, a node and a link when it is hashed, so that none passes for another.
const LEAF: u8 = 0;
const NODE: u8 = 1;
const LINK: u8 = 2;

/// A SHA-256 hash in a log; base64 in text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LogHash([u8; 32]);

impl LogHash {
    /// Of a leaf: the canonical text of a receipt.
    pub fn of_leaf(text: &[u8]) -> Self {
        Self::of(LEAF, &[text])
    }

    /// Of two subtrees side by side.
    pub fn of_node(left: &Self, right: &Self) -> Self {
        Self::of(NODE, &[&left.0, &right.0])
    }

    /// Of everything up to and with a leaf, given the same of everything before it. It is no part
    /// of RFC 6962: it names the first receipt that was rewritten together with its hash.
    pub fn of_link(before: &Self, leaf: &Self) -> Self {
        Self::of(LINK, &[&before.0, &leaf.0])
    }

    /// The root of a log with nothing in it.
    pub fn of_nothing() -> Self {
        Self(Sha256::digest([]).into())
    }

    /// As it was kept.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// To be kept.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn of(what: u8, parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update([what]);
        for part in parts {
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for LogHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for LogHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogHash({self})")
    }
}

impl FromStr for LogHash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = STANDARD.decode(text).ok();
        let bytes: Option<[u8; 32]> = bytes.and_then(|bytes| bytes.try_into().ok());
        let bytes = bytes.ok_or_else(|| "a hash is not 32 bytes of base64".to_owned())?;
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for LogHash {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<LogHash> for String {
    fn from(hash: LogHash) -> Self {
        hash.to_string()
    }
}

/// The right edge of a log: all that is needed to append to it and to know its root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    /// The roots of the full subtrees, largest first: one for each bit of the size.
    peaks: Vec<LogHash>,
    link: LogHash,
}

impl Default for Frontier {
    fn default() -> Self {
        Self {
            size: 0,
            peaks: Vec::new(),
            link: LogHash::of_nothing(),
        }
    }
}

impl Frontier {
    /// Appends a leaf; what it is linked to is told.
    pub fn push(&mut self, leaf: LogHash) -> LogHash {
        let mut grown = leaf;
        let mut full = self.size;
        while full & 1 == 1 {
            if let Some(left) = self.peaks.pop() {
                grown = LogHash::of_node(&left, &grown);
            }
            full >>= 1;
        }
        self.peaks.push(grown);
        self.size = self.size.saturating_add(1);
        self.link = LogHash::of_link(&self.link, &leaf);
        self.link
    }

    /// How many leaves it has.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The link of the last leaf.
    pub fn link(&self) -> LogHash {
        self.link
    }

    /// The Merkle tree hash of RFC 6962.
    pub fn root(&self) -> LogHash {
        let mut peaks = self.peaks.iter().rev();
        let Some(smallest) = peaks.next() else {
            return LogHash::of_nothing();
        };
        peaks.fold(*smallest, |right, left| LogHash::of_node(left, &right))
    }

    /// To be kept beside the size: the link, then the peaks.
    pub fn to_bytes(&self) -> Vec<u8> {
        let hashes = std::iter::once(&self.link).chain(&self.peaks);
        hashes.flat_map(|hash| hash.0).collect()
    }

    /// As it was kept; `None` if those bytes are no log of that size.
    pub fn from_bytes(size: u64, bytes: &[u8]) -> Option<Self> {
        let (hashes, rest) = bytes.as_chunks::<32>();
        let (link, peaks) = hashes.split_first()?;
        let bits = usize::try_from(size.count_ones()).ok()?;
        if peaks.len() != bits || !rest.is_empty() {
            return None;
        }
        let frontier = Self {
            size,
            peaks: peaks.iter().copied().map(LogHash).collect(),
            link: LogHash(*link),
        };
        let is_empty = size == 0;
        (!is_empty || frontier == Self::default()).then_some(frontier)
    }
}

/// The root over leaves, as RFC 6962 defines it.
pub(super) fn root_of(leaves: &[LogHash]) -> LogHash {
    let mut frontier = Frontier::default();
    for leaf in leaves {
        frontier.push(*leaf);
    }
    frontier.root()
}

/// The largest power of two below `size`, which is 2 or more.
pub(super) fn split(size: usize) -> usize {
    size.next_power_of_two() / 2
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The definition, word for word: slow and plain.
    fn defined(leaves: &[LogHash]) -> LogHash {
        match leaves {
            [] => LogHash::of_nothing(),
            [one] => *one,
            many => {
                let mut k = 1;
                while k * 2 < many.len() {
                    k *= 2;
                }
                LogHash::of_node(&defined(&many[..k]), &defined(&many[k..]))
            }
        }
    }

    pub(in crate::log) fn leaves(count: usize) -> Vec<LogHash> {
        let leaf = |number: usize| LogHash::of_leaf(format!("receipt {number}").as_bytes());
        (0..count).map(leaf).collect()
    }

    // Rule 11.1: the root is RFC 6962's.
    #[test]
    fn the_root_is_the_one_rfc_6962_defines() {
        let leaves = leaves(300);
        let mut frontier = Frontier::default();
        for size in 0..=leaves.len() {
            assert_eq!(frontier.root(), defined(&leaves[..size]), "of {size}");
            assert_eq!(frontier.size(), size as u64);
            if let Some(leaf) = leaves.get(size) {
                frontier.push(*leaf);
            }
        }
    }

    /// The inputs and roots that Certificate Transparency's own tests use.
    #[test]
    fn known_logs_have_their_known_roots() {
        let inputs: [&[u8]; 8] = [
            b"",
            &[0x00],
            &[0x10],
            &[0x20, 0x21],
            &[0x30, 0x31],
            &[0x40, 0x41, 0x42, 0x43],
            &[0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57],
            &[
                0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d,
                0x6e, 0x6f,
            ],
        ];
        let mut frontier = Frontier::default();
        let hex = |hash: LogHash| crate::json::hex(hash.as_bytes());
        assert!(hex(frontier.root()).starts_with("e3b0c44298fc1c14"));
        for input in inputs {
            frontier.push(LogHash::of_leaf(input));
        }
        let eight = "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328";
        assert_eq!(hex(frontier.root()), eight);
    }

    #[test]
    fn a_log_is_kept_and_found_again() {
        let mut frontier = Frontier::default();
        for leaf in leaves(77) {
            let kept = Frontier::from_bytes(frontier.size(), &frontier.to_bytes());
            assert_eq!(kept.as_ref(), Some(&frontier));
            frontier.push(leaf);
        }
        let bytes = frontier.to_bytes();
        assert_eq!(Frontier::from_bytes(76, &bytes), None);
        assert_eq!(Frontier::from_bytes(77, &bytes[1..]), None);
        assert_eq!(Frontier::from_bytes(0, &[0; 32]), None);
    }

    #[test]
    fn a_hash_is_read_as_it_is_written_and_nothing_else_is() {
        let hash = LogHash::of_leaf(b"x");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        for text in ["", "AAAA", "not base64!", &format!("{hash}A")] {
            assert!(text.parse::<LogHash>().is_err(), "{text}");
        }
    }
}
