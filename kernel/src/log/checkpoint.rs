//! Checkpoints: what a log was at one moment, as text that a key signs (the C2SP forms of a
//! checkpoint and of a signed note).
//!
//! Owns the text and the signatures. It must not know where keys are kept; it draws no randomness.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _};
use sha2::{Digest, Sha256};

use super::tree::LogHash;
use crate::json::hex;
use crate::key::TenantId;

/// The kind of signature in a note's key id: Ed25519.
const ED25519: u8 = 1;

/// What begins the line of a signature.
const SIGNATURE: &str = "\u{2014} ";

/// The size and root of one tenant's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Which log: `operators/` and the tenant, percent-encoded.
    pub origin: String,
    /// How many receipts it has.
    pub size: u64,
    /// Its root.
    pub root: LogHash,
}

/// The name of a tenant's log: no space and no plus can be in it, as a note's key name wants it.
pub fn origin_of(tenant: &TenantId) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let written = |byte: u8| {
        if plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    let tenant: String = tenant.as_str().bytes().map(written).collect();
    format!("operators/{tenant}")
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}\n{}", self.origin, self.size, self.root)
    }
}

/// What signs checkpoints. Its bytes are a secret and never shown.
#[derive(Clone)]
pub struct SigningKey(ed25519_dalek::SigningKey);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public())
    }
}

impl SigningKey {
    /// From 32 bytes that nobody can guess.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(ed25519_dalek::SigningKey::from_bytes(seed))
    }

    /// What its signatures are checked with.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }
}

/// What signatures are checked with; `ed25519:` and base64 in text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(ed25519_dalek::VerifyingKey);

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ed25519:{}", STANDARD.encode(self.0.as_bytes()))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || "a public key is `ed25519:` and 32 bytes of base64".to_owned();
        let text = text.trim().strip_prefix("ed25519:").ok_or_else(refused)?;
        let bytes = STANDARD.decode(text).map_err(|_| refused())?;
        let bytes: [u8; 32] = bytes.try_into().map_err(|_| refused())?;
        let key = ed25519_dalek::VerifyingKey::from_bytes(&bytes);
        Ok(Self(key.map_err(|_| refused())?))
    }
}

impl PublicKey {
    /// The name under which a note's signature line stands: four bytes of a hash.
    fn id(&self, name: &str) -> [u8; 4] {
        let mut hasher = Sha256::new();
        hasher.update(name.as_bytes());
        hasher.update([b'\n', ED25519]);
        hasher.update(self.0.as_bytes());
        let hash: [u8; 32] = hasher.finalize().into();
        let [a, b, c, d, ..] = hash;
        [a, b, c, d]
    }

    /// As other tools for signed notes want it: `name+id+key`.
    pub fn note_key(&self, origin: &str) -> String {
        let bytes = [&[ED25519], self.0.as_bytes().as_slice()].concat();
        let id = hex(&self.id(origin));
        format!("{origin}+{id}+{}", STANDARD.encode(bytes))
    }
}

/// A checkpoint with the signatures under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedCheckpoint {
    /// What is signed.
    pub checkpoint: Checkpoint,
    signatures: Vec<NoteSignature>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct NoteSignature {
    name: String,
    id: [u8; 4],
    bytes: Vec<u8>,
}

impl SignedCheckpoint {
    /// Signs with every one of these keys.
    pub fn sign(checkpoint: Checkpoint, keys: &[&SigningKey]) -> Self {
        let text = checkpoint.to_string();
        let sign = |key: &&SigningKey| NoteSignature {
            name: checkpoint.origin.clone(),
            id: key.public().id(&checkpoint.origin),
            bytes: key.0.sign(text.as_bytes()).to_bytes().to_vec(),
        };
        let signatures = keys.iter().map(sign).collect();
        Self {
            checkpoint,
            signatures,
        }
    }

    /// Whether this key signed it.
    pub fn is_signed_by(&self, key: &PublicKey) -> bool {
        let text = self.checkpoint.to_string();
        let id = key.id(&self.checkpoint.origin);
        let ours = self
            .signatures
            .iter()
            .filter(|one| one.id == id && one.name == self.checkpoint.origin);
        ours.filter_map(|one| Signature::from_slice(&one.bytes).ok())
            .any(|signature| key.0.verify_strict(text.as_bytes(), &signature).is_ok())
    }

    /// Reads every checkpoint of a text, one after the other.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, String> {
        let mut found = Vec::new();
        let mut lines = text.lines().peekable();
        while lines.peek().is_some() {
            let mut line = |what: &str| lines.next().ok_or(format!("it ends before its {what}"));
            let origin = line("origin")?.to_owned();
            let size = line("size")?;
            let root = line("root")?.parse()?;
            if origin.is_empty() {
                return Err("its origin is empty".to_owned());
            }
            let is_plain = size.bytes().all(|byte| byte.is_ascii_digit());
            let has_zero = size.len() > 1 && size.starts_with('0');
            let number = size.parse().ok().filter(|_| is_plain && !has_zero);
            let size = number.ok_or_else(|| format!("its size is `{size}`"))?;
            if !line("empty line")?.is_empty() {
                return Err("it says more than an origin, a size and a root".to_owned());
            }
            let mut signatures = Vec::new();
            while let Some(line) = lines.next_if(|line| line.starts_with(SIGNATURE)) {
                signatures.push(NoteSignature::parse(line)?);
            }
            if signatures.is_empty() {
                return Err("nobody signed it".to_owned());
            }
            let checkpoint = Checkpoint { origin, size, root };
            found.push(Self {
                checkpoint,
                signatures,
            });
        }
        Ok(found)
    }
}

impl NoteSignature {
    fn parse(line: &str) -> Result<Self, String> {
        let refused = || "a signature line cannot be read".to_owned();
        let line = line.strip_prefix(SIGNATURE).ok_or_else(refused)?;
        let (name, text) = line.split_once(' ').ok_or_else(refused)?;
        let bytes = STANDARD.decode(text).map_err(|_| refused())?;
        let (id, bytes) = bytes.split_first_chunk::<4>().ok_or_else(refused)?;
        Ok(Self {
            name: name.to_owned(),
            id: *id,
            bytes: bytes.to_vec(),
        })
    }
}

impl fmt::Display for SignedCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.checkpoint)?;
        for one in &self.signatures {
            let bytes = [one.id.as_slice(), &one.bytes].concat();
            writeln!(f, "{SIGNATURE}{} {}", one.name, STANDARD.encode(bytes))?;
        }
        Ok(())
    }
}

impl FromStr for SignedCheckpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Self::parse_all(text)?;
        match (all.pop(), all.is_empty()) {
            (Some(one), true) => Ok(one),
            (Some(_), false) => Err("there is more than one".to_owned()),
            (None, _) => Err("it is empty".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed(&[seed; 32])
    }

    fn checkpoint() -> Checkpoint {
        Checkpoint {
            origin: origin_of(&TenantId::parse("acme & söhne").expect("a tenant")),
            size: 12,
            root: LogHash::of_leaf(b"root"),
        }
    }

    // Rule 11.3
    #[test]
    fn a_signed_checkpoint_is_believed_as_it_was_signed_and_no_other() {
        let (ours, next, other) = (key(1), key(2), key(3));
        let signed = SignedCheckpoint::sign(checkpoint(), &[&ours, &next]);
        assert!(signed.is_signed_by(&ours.public()) && signed.is_signed_by(&next.public()));
        assert!(!signed.is_signed_by(&other.public()));
        let text = signed.to_string();
        assert!(
            text.starts_with("operators/acme%20%26%20s%C3%B6hne\n12\n"),
            "{text}"
        );
        assert_eq!(text.parse().as_ref(), Ok(&signed));
        let larger: SignedCheckpoint = text.replace("\n12\n", "\n13\n").parse().expect("reads");
        assert!(!larger.is_signed_by(&ours.public()));
        let renamed: SignedCheckpoint = text.replace("acme", "emca").parse().expect("reads");
        assert!(!renamed.is_signed_by(&ours.public()));
    }

    #[test]
    fn several_checkpoints_follow_each_other_in_one_text() {
        let one = SignedCheckpoint::sign(checkpoint(), &[&key(1)]);
        let text = format!("{one}{one}");
        let all = SignedCheckpoint::parse_all(&text);
        assert_eq!(all, Ok(vec![one.clone(), one.clone()]));
        assert!(text.parse::<SignedCheckpoint>().is_err());
        assert_eq!(SignedCheckpoint::parse_all(""), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_checkpoint_is_refused() {
        let text = SignedCheckpoint::sign(checkpoint(), &[&key(1)]).to_string();
        let unsigned = text.split(SIGNATURE).next().unwrap_or_default();
        for bad in [
            "",
            "operators/a\n",
            "operators/a\nten\nAAAA\n",
            unsigned,
            &text.replace("\n12\n", "\n012\n"),
            &text.replace("\n12\n", "\n+12\n"),
            &text.replace("\n\n", "\nmore\n\n"),
            &text.replace(SIGNATURE, "\u{2014}"),
        ] {
            assert!(bad.parse::<SignedCheckpoint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_public_key_is_read_as_it_is_written() {
        let public = key(7).public();
        assert_eq!(public.to_string().parse(), Ok(public));
        assert!("ed25519:AAAA".parse::<PublicKey>().is_err());
        assert!(!format!("{:?}", key(7)).contains("seed"));
        let note = public.note_key("operators/acme");
        assert!(note.starts_with("operators/acme+"), "{note}");
    }
}
