//! A receipt before anybody reads it.
//!
//! Nearly every receipt repeats its proposal and adds how it ended. A store that only keeps it need
//! not write it out: it keeps the two, and whoever reads it has it written.

use crate::clock::Timestamp;
use crate::content_digest::ContentDigest;
use crate::receipt::{AttemptMark, Ending, Proposal, Receipt};
use crate::shared::Shared;
use crate::text::Text;

/// What a receipt will say. The same slip gives the same receipt, whenever it is written.
#[derive(Debug, Clone, PartialEq)]
pub enum Slip {
    /// The effect happened.
    Applied {
        /// What was proposed.
        proposal: Shared<Proposal>,
        /// Which attempt.
        mark: AttemptMark,
        /// Of the result.
        result_digest: Option<ContentDigest>,
        /// The vendor's id for it.
        effect_id: Option<String>,
        /// When its end was recorded.
        at: Timestamp,
    },
    /// It was applied before.
    Duplicate {
        /// What was proposed.
        proposal: Shared<Proposal>,
        /// The attempts its key has had.
        mark: AttemptMark,
        /// The receipt of that application.
        original_receipt_id: Text,
        /// When its end was recorded.
        at: Timestamp,
    },
    /// Everything else, written out.
    Written(Box<Receipt>),
}

impl Slip {
    /// The receipt's id.
    pub fn receipt_id(&self) -> &str {
        match self {
            Self::Applied { proposal, .. } | Self::Duplicate { proposal, .. } => {
                &proposal.receipt_id
            }
            Self::Written(receipt) => &receipt.receipt_id,
        }
    }

    /// Whose receipt it is.
    pub fn tenant_id(&self) -> &crate::key::TenantId {
        match self {
            Self::Applied { proposal, .. } | Self::Duplicate { proposal, .. } => {
                &proposal.tenant_id
            }
            Self::Written(receipt) => &receipt.tenant_id,
        }
    }

    /// The receipt, written out.
    pub fn receipt(&self) -> Receipt {
        match self {
            Self::Applied {
                proposal,
                mark,
                result_digest,
                effect_id,
                at,
            } => {
                let ending = Ending::Applied {
                    result_digest: *result_digest,
                    effect_id: effect_id.clone(),
                };
                proposal.receipt(mark, &ending, *at)
            }
            Self::Duplicate {
                proposal,
                mark,
                original_receipt_id,
                at,
            } => {
                let ending = Ending::Duplicate {
                    original_receipt_id,
                };
                proposal.receipt(mark, &ending, *at)
            }
            Self::Written(receipt) => (**receipt).clone(),
        }
    }

    /// The receipt, without a copy if it was written out.
    pub fn into_receipt(self) -> Receipt {
        match self {
            Self::Written(receipt) => *receipt,
            unwritten @ (Self::Applied { .. } | Self::Duplicate { .. }) => unwritten.receipt(),
        }
    }
}

impl From<Receipt> for Slip {
    fn from(receipt: Receipt) -> Self {
        Self::Written(Box::new(receipt))
    }
}

impl From<Box<Receipt>> for Slip {
    fn from(receipt: Box<Receipt>) -> Self {
        Self::Written(receipt)
    }
}
