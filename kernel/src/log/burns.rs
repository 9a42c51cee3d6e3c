//! What receipts say about keys, held against the keys a store has: a burn without a receipt and a
//! receipt without a burn are both found.
//!
//! Owns which receipts burn a key and which open it again. Keys are kept as hashes, so that a
//! million of them are a few dozen megabytes.

use std::collections::HashMap;

use sha2::{Digest, Sha256};
use thiserror::Error;

use super::Burned;
use super::audit::Seen;
use crate::key::IdempotencyKey;
use crate::life::{KeyRecord, Phase};
use crate::receipt::{ReceiptKind, ReceiptOutcome};

/// A key, or a receipt's id, as sixteen bytes of its hash.
type Short = [u8; 16];

fn short(text: &str) -> Short {
    let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    let mut short = Short::default();
    short.copy_from_slice(hash.first_chunk::<16>().unwrap_or(&[0; 16]));
    short
}

/// What the receipts of one key come to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Burn {
    generation: u32,
    /// Where in the log the receipt is that burned it first; `None` once it was forgotten.
    burned_at: Option<u64>,
    /// The receipts that say so. More than one is rare: a late answer, or two effects.
    receipts: Vec<Short>,
    is_seen: bool,
}

/// What the receipts of a log say about keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Burns {
    keys: HashMap<Short, Burn>,
}

/// Where keys and receipts disagree.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BurnFault {
    /// The store has a burn of which no receipt tells.
    #[error(
        "key `{key}` is burned by receipt `{receipt_id}`, but no such receipt in the log burns it: the key was put in, or changed"
    )]
    NoReceipt {
        /// The key.
        key: IdempotencyKey,
        /// The receipt it cites.
        receipt_id: String,
    },
    /// A receipt tells of a burn that the store does not have.
    #[error(
        "receipt `{receipt_id}` burned key `{key}`, but the store does not have it burned: the key was deleted or changed, or the receipt was forged"
    )]
    NoBurn {
        /// The key.
        key: IdempotencyKey,
        /// The receipt.
        receipt_id: String,
    },
}

impl Burns {
    /// Takes a receipt at its place in the log.
    pub(super) fn receipt(&mut self, seen: &Seen<'_>, position: u64) {
        let burns = match (seen.kind, seen.outcome) {
            // A read has no turn and burns nothing.
            (ReceiptKind::Proposal, Some(ReceiptOutcome::Applied)) => seen.fence.is_some(),
            // One that stays in doubt is a write-off.
            (ReceiptKind::Correction, Some(ReceiptOutcome::Applied | ReceiptOutcome::InDoubt)) => {
                true
            }
            (ReceiptKind::Forget, _) => false,
            _ => return,
        };
        if !burns && seen.kind != ReceiptKind::Forget {
            return;
        }
        let fresh = || Burn {
            generation: seen.generation,
            burned_at: None,
            receipts: Vec::new(),
            is_seen: false,
        };
        let burn = self.keys.entry(short(&seen.idempotency_key));
        let burn = burn.or_insert_with(fresh);
        if seen.generation < burn.generation {
            // A late answer about a generation that was forgotten: it moves nothing.
            return;
        }
        if seen.generation > burn.generation {
            *burn = fresh();
        }
        if burns {
            burn.burned_at.get_or_insert(position);
            burn.receipts.push(short(&seen.receipt_id));
        }
    }

    /// Before the keys are gone through, once more perhaps.
    pub(super) fn begin(&mut self) {
        for burn in self.keys.values_mut() {
            burn.is_seen = false;
        }
    }

    /// Holds a key of the store against the receipts.
    pub(super) fn burned(&mut self, burned: &Burned) -> Result<(), BurnFault> {
        let told = self.keys.get_mut(&short(burned.key.as_str()));
        let told = told.filter(|told| {
            told.generation == burned.generation
                && told.receipts.contains(&short(&burned.receipt_id))
        });
        match told {
            Some(told) => {
                told.is_seen = true;
                Ok(())
            }
            None => Err(BurnFault::NoReceipt {
                key: burned.key.clone(),
                receipt_id: burned.receipt_id.clone(),
            }),
        }
    }

    /// After all keys: where in the log the receipts are whose burns the store does not have, in
    /// their order.
    pub(super) fn missing(&self) -> Vec<u64> {
        let unseen = self.keys.values().filter(|burn| !burn.is_seen);
        let mut missing: Vec<u64> = unseen.filter_map(|burn| burn.burned_at).collect();
        missing.sort_unstable();
        missing
    }
}

impl Burned {
    /// What a store's key says, if it is burned: where its phase is another, its action would run
    /// again, whatever else the record has.
    pub fn of(record: &KeyRecord) -> Option<Self> {
        if !matches!(record.phase, Phase::Applied | Phase::WrittenOff) {
            return None;
        }
        let application = record.application.as_ref()?;
        Some(Self {
            key: record.proposal.idempotency_key.clone(),
            generation: record.generation,
            receipt_id: application.original.receipt_id.clone().into(),
        })
    }
}
