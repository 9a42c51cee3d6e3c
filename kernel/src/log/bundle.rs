//! Proofs as small files: what an auditor is handed, and how it is checked with nothing else.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::checkpoint::{PublicKey, SignedCheckpoint};
use super::proof::{verify_consistency, verify_inclusion};
use super::tree::LogHash;

/// A proof and the signed checkpoints it is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "proof", rename_all = "snake_case", deny_unknown_fields)]
pub enum Bundle {
    /// That a receipt is in a log.
    Inclusion {
        /// The signed checkpoint of that log.
        checkpoint: String,
        /// The receipt's place, from 0.
        position: u64,
        /// Its canonical text, byte for byte what is hashed.
        receipt: String,
        /// The siblings from the leaf to the root.
        path: Vec<LogHash>,
    },
    /// That a log only grew from one checkpoint to another.
    Consistency {
        /// The older checkpoint.
        from: String,
        /// The newer one.
        to: String,
        /// The hashes that lead from one to the other.
        path: Vec<LogHash>,
    },
}

/// What a bundle proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proved {
    /// This receipt is in the log.
    Inclusion {
        /// The receipt's text.
        receipt: String,
        /// The log.
        checkpoint: SignedCheckpoint,
    },
    /// The log only grew.
    Consistency {
        /// From here.
        from: SignedCheckpoint,
        /// To here.
        to: SignedCheckpoint,
    },
}

/// Why a bundle proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BundleError {
    /// A checkpoint in it is none.
    #[error("its checkpoint cannot be read: {0}")]
    Checkpoint(String),
    /// The key did not sign.
    #[error("its checkpoint over {size} receipts is not signed by {key}")]
    Unsigned {
        /// How many receipts it is about.
        size: u64,
        /// Who should have signed.
        key: String,
    },
    /// The hashes do not lead there.
    #[error("its receipt is not in the log of its checkpoint: the hashes lead elsewhere")]
    NotIncluded,
    /// The older log is no beginning of the newer one.
    #[error("its older checkpoint is no beginning of its newer one: history was rewritten")]
    NotConsistent,
    /// Two logs.
    #[error("its checkpoints are of different logs, `{0}` and `{1}`")]
    OtherLog(String, String),
}

impl Bundle {
    /// Checks it against one of these keys, which must have signed every checkpoint in it.
    pub fn verify(&self, keys: &[PublicKey]) -> Result<Proved, BundleError> {
        match self {
            Self::Inclusion {
                checkpoint,
                position,
                receipt,
                path,
            } => {
                let checkpoint = signed(checkpoint, keys)?;
                let log = &checkpoint.checkpoint;
                let leaf = LogHash::of_leaf(receipt.as_bytes());
                if !verify_inclusion(&leaf, *position, log.size, path, &log.root) {
                    return Err(BundleError::NotIncluded);
                }
                Ok(Proved::Inclusion {
                    receipt: receipt.clone(),
                    checkpoint,
                })
            }
            Self::Consistency { from, to, path } => {
                let (from, to) = (signed(from, keys)?, signed(to, keys)?);
                let (old, new) = (&from.checkpoint, &to.checkpoint);
                if old.origin != new.origin {
                    let (old, new) = (old.origin.clone(), new.origin.clone());
                    return Err(BundleError::OtherLog(old, new));
                }
                if !verify_consistency((old.size, &old.root), (new.size, &new.root), path) {
                    return Err(BundleError::NotConsistent);
                }
                Ok(Proved::Consistency { from, to })
            }
        }
    }
}

fn signed(text: &str, keys: &[PublicKey]) -> Result<SignedCheckpoint, BundleError> {
    let checkpoint: SignedCheckpoint = text.parse().map_err(BundleError::Checkpoint)?;
    if keys.iter().any(|key| checkpoint.is_signed_by(key)) {
        return Ok(checkpoint);
    }
    let keys: Vec<String> = keys.iter().map(PublicKey::to_string).collect();
    Err(BundleError::Unsigned {
        size: checkpoint.checkpoint.size,
        key: keys.join(" or "),
    })
}
