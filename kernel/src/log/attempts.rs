//! Attempts that the log tells of twice: a key's record was deleted, and its action run again.
//!
//! An attempt that was sent leaves one receipt of its proposal; whatever becomes known later is a
//! correction, and refusals and duplicates, which tell attempts again, hold no fence. So two such
//! receipts of one key, generation and attempt are a fault, and the log alone shows it. A stub has
//! no attempt, but it says that its proposal was applied, and a generation has one such proposal:
//! where another attempt took effect as well, a correction tells of one of the two.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::audit::Seen;
use super::fault::LogFault;
use crate::receipt::{ReceiptKind, ReceiptOutcome};

/// The most that are told; whoever finds so many looks at the store itself.
const FAULTS_MAX: usize = 20;

/// An attempt, as sixteen bytes of its hash.
type Short = [u8; 16];

/// What an audit knows about attempts so far: some fifty bytes for each that was sent.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// Where in the log, counted from 1, the text is that tells of it.
    told: HashMap<Short, u64>,
    /// Where the stubs are of what was applied, by key and generation.
    pruned: HashMap<Short, u64>,
    faults: Vec<LogFault>,
}

impl Attempts {
    /// Takes a receipt, or the stub of one.
    pub(super) fn take(&mut self, seen: &Seen<'_>, number: u64, is_stub: bool) {
        let is_sent = seen.kind == ReceiptKind::Proposal && seen.fence.is_some();
        let is_applied = match seen.outcome {
            Some(ReceiptOutcome::Applied) => true,
            Some(ReceiptOutcome::Failed | ReceiptOutcome::InDoubt) => false,
            Some(ReceiptOutcome::Refused | ReceiptOutcome::Deduplicated) | None => return,
        };
        if !is_sent {
            return;
        }
        let earlier = if is_stub {
            is_applied.then(|| note(&mut self.pruned, seen, 0, number))
        } else {
            let stub = self.applied_before_it_was_pruned(seen, is_applied);
            let told = seen
                .attempt
                .map(|it| note(&mut self.told, seen, it, number));
            Some(stub.or(told.flatten()))
        };
        if let Some(Some(earlier)) = earlier
            && self.faults.len() < FAULTS_MAX
        {
            self.faults.push(LogFault::SentTwice {
                number,
                receipt_id: seen.receipt_id.clone().into_owned(),
                key: seen.idempotency_key.clone().into_owned(),
                earlier,
            });
        }
    }

    fn applied_before_it_was_pruned(&self, seen: &Seen<'_>, is_applied: bool) -> Option<u64> {
        if !is_applied || self.pruned.is_empty() {
            return None;
        }
        self.pruned.get(&short(seen, 0)).copied()
    }

    /// Every attempt that is told of twice.
    pub(super) fn faults(&self) -> &[LogFault] {
        &self.faults
    }
}

/// Notes an attempt, and tells where it was noted before.
fn note(map: &mut HashMap<Short, u64>, seen: &Seen<'_>, attempt: u32, number: u64) -> Option<u64> {
    match map.entry(short(seen, attempt)) {
        std::collections::hash_map::Entry::Occupied(before) => Some(*before.get()),
        std::collections::hash_map::Entry::Vacant(place) => {
            place.insert(number);
            None
        }
    }
}

fn short(seen: &Seen<'_>, attempt: u32) -> Short {
    let mut hash = Sha256::new();
    hash.update(seen.generation.to_be_bytes());
    hash.update(attempt.to_be_bytes());
    hash.update(seen.idempotency_key.as_bytes());
    let hash: [u8; 32] = hash.finalize().into();
    let mut short = Short::default();
    short.copy_from_slice(hash.first_chunk::<16>().unwrap_or(&[0; 16]));
    short
}
