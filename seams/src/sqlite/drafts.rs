//! What a call will most likely write, written out by its caller before the call queues.
//!
//! One thread writes for everybody, and what it does besides writing keeps all others waiting. A draft
//! is a guess and never an answer: the transaction decides as ever, and a draft of anything but what
//! came out is thrown away.

use operators_kernel::log::LogHash;
use operators_kernel::{
    Claim, IdempotencyKey, Proposal, SettledOutcome, Settlement, Shared, Slip, TenantId, Text, json,
};

use super::records::{RowError, meaning, to_json};

/// The drafts of one call; none where there is nothing to guess.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// What was proposed, and its text: an intent keeps it.
    proposal: Option<(Shared<Proposal>, String)>,
    /// What the receipt will say, and its row.
    receipt: Option<(Slip, Sheet)>,
}

/// A receipt as its row has it, but for its place in the log.
#[derive(Debug)]
pub(super) struct Sheet {
    pub(super) receipt_id: Text,
    pub(super) tenant: TenantId,
    pub(super) idempotency_key: IdempotencyKey,
    pub(super) settled_at: String,
    pub(super) body: String,
    /// What it hashes to in the log, unless it gets no place there.
    pub(super) leaf: Option<LogHash>,
}

impl Draft {
    /// A claim is granted, as a rule: what it proposes is what the key's row will say.
    pub(super) fn of_claim(claim: &Claim) -> Self {
        // Whatever cannot be written is found out again where it must be, and told there.
        let text = to_json("a proposal", &claim.proposal).ok();
        Self {
            proposal: text.map(|text| (claim.proposal.clone(), text)),
            receipt: None,
        }
    }

    /// A settlement is on time, as a rule, and the first that tells of an effect.
    pub(super) fn of_settlement(settlement: &Settlement) -> Self {
        let SettledOutcome::Applied(effect) = &settlement.outcome else {
            return Self::default();
        };
        let slip = Slip::Applied {
            proposal: settlement.proposal.clone(),
            mark: settlement.mark.clone(),
            result_digest: settlement.result_digest,
            effect_id: effect.effect_id.clone(),
            at: settlement.at,
        };
        let sheet = Sheet::of(slip.clone()).ok();
        Self {
            proposal: None,
            receipt: sheet.map(|sheet| (slip, sheet)),
        }
    }

    /// The text of this proposal: the very one that was drafted, for an approver may have been added,
    /// and to compare what two say takes longer than to write it.
    pub(super) fn take_text(&mut self, proposal: &Shared<Proposal>) -> Option<String> {
        let (_, text) = self
            .proposal
            .take_if(|(drafted, _)| drafted.is_same(proposal))?;
        Some(text)
    }

    /// The row of this receipt.
    pub(super) fn take_sheet(&mut self, receipt: &Slip) -> Option<Sheet> {
        let (_, sheet) = self
            .receipt
            .take_if(|(drafted, _)| is_same(drafted, receipt))?;
        Some(sheet)
    }
}

fn is_same(drafted: &Slip, receipt: &Slip) -> bool {
    match (drafted, receipt) {
        (
            Slip::Applied {
                proposal,
                mark,
                result_digest,
                effect_id,
                at,
            },
            Slip::Applied {
                proposal: its_proposal,
                mark: its_mark,
                result_digest: its_digest,
                effect_id: its_effect,
                at: its_time,
            },
        ) => {
            proposal.is_same(its_proposal)
                && mark == its_mark
                && result_digest == its_digest
                && effect_id == its_effect
                && at == its_time
        }
        _ => false,
    }
}

impl Sheet {
    /// Writes a receipt out and hashes it.
    pub(super) fn of(receipt: Slip) -> Result<Self, RowError> {
        let receipt = receipt.into_receipt();
        let body = json::canonical(&receipt).map_err(|e| meaning("a receipt", &e.to_string()))?;
        Ok(Self {
            leaf: (!is_unlogged()).then(|| LogHash::of_leaf(body.as_bytes())),
            body,
            settled_at: receipt.settled_at.to_string(),
            receipt_id: receipt.receipt_id,
            tenant: receipt.tenant_id,
            idempotency_key: receipt.idempotency_key,
        })
    }
}

/// Whether the benchmark asked for receipts without a place.
fn is_unlogged() -> bool {
    #[cfg(feature = "unlogged")]
    {
        crate::unlogged::is_set()
    }
    #[cfg(not(feature = "unlogged"))]
    {
        false
    }
}

#[cfg(test)]
mod tests;
