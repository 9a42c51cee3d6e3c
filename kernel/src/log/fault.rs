//! What can be wrong with a log, each in words that name the receipt.

use thiserror::Error;

/// The first thing that is wrong with a log. Numbers count receipts from 1, as people do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LogFault {
    /// An entry is not there.
    #[error("receipt {number} of the log is gone: it was deleted{}", before(receipt_id.as_ref()))]
    Gone {
        /// Its number.
        number: u64,
        /// Its id, if the log still tells, else the one that follows.
        receipt_id: Option<String>,
    },
    /// An entry stands where another should.
    #[error(
        "receipt `{receipt_id}` stands at {number} of the log and belongs at {belongs}: receipts were swapped"
    )]
    Moved {
        /// Where it stands.
        number: u64,
        /// Where it says it belongs.
        belongs: u64,
        /// Its id.
        receipt_id: String,
    },
    /// A text does not hash to its leaf.
    #[error("receipt `{receipt_id}` ({number} of the log) was changed after it was written")]
    Changed {
        /// Its number.
        number: u64,
        /// Its id.
        receipt_id: String,
    },
    /// A text is another receipt's.
    #[error("receipt `{receipt_id}` ({number} of the log) has the text of receipt `{says}`")]
    Swapped {
        /// Its number.
        number: u64,
        /// The id it is kept under.
        receipt_id: String,
        /// The id in its text.
        says: String,
    },
    /// A text is no receipt.
    #[error("receipt `{receipt_id}` ({number} of the log) cannot be read: {problem}")]
    Unreadable {
        /// Its number.
        number: u64,
        /// Its id.
        receipt_id: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A receipt of somebody else.
    #[error(
        "receipt `{receipt_id}` ({number} of the log) belongs to tenant `{tenant}`: it is another tenant's"
    )]
    Foreign {
        /// Its number.
        number: u64,
        /// Its id.
        receipt_id: String,
        /// Whose it is.
        tenant: String,
    },
    /// A receipt that never came into the log.
    #[error("receipt `{receipt_id}`, which was to be {number} of the log, is gone: it was deleted")]
    Lost {
        /// Its number.
        number: u64,
        /// Its id.
        receipt_id: String,
    },
    /// A stub that no pruning left.
    #[error(
        "the text of receipt `{receipt_id}` ({number} of the log) is gone, and no receipt tells of its pruning: it was taken away"
    )]
    Stubbed {
        /// Its number.
        number: u64,
        /// Its id.
        receipt_id: String,
    },
    /// Stubs that are not those that were left.
    #[error(
        "what is left of the receipts {first} to {last}, pruned by `{receipt_id}`, is not what that receipt tells: one of them was changed (`--segment` names it)"
    )]
    StubsChanged {
        /// The first of them.
        first: u64,
        /// The last of them.
        last: u64,
        /// The receipt of the pruning.
        receipt_id: String,
    },
    /// A leaf does not follow from the ones before it.
    #[error(
        "receipt `{receipt_id}` ({number} of the log) does not follow the one before it: one of the two was rewritten with its hash, or put in"
    )]
    Unlinked {
        /// Its number.
        number: u64,
        /// Its id.
        receipt_id: String,
    },
    /// The head is about more than is there.
    #[error("the log ends at {found}, and its head says {head}: the last {} receipts are gone", head.saturating_sub(*found))]
    CutOff {
        /// How many there are.
        found: u64,
        /// How many the head is about.
        head: u64,
    },
    /// There is more than the head is about.
    #[error(
        "receipt `{receipt_id}` ({number} of the log) stands behind the log's head: it was put in"
    )]
    BehindHead {
        /// Its number.
        number: u64,
        /// Its id.
        receipt_id: String,
    },
    /// The last entry is not what the head was made of.
    #[error(
        "receipt `{receipt_id}`, the last of the log ({number}), is not the one its head was made of: it was rewritten with its hash"
    )]
    Rewritten {
        /// Its number.
        number: u64,
        /// Its id.
        receipt_id: String,
    },
    /// An attempt that two receipts tell of.
    #[error(
        "receipt `{receipt_id}` ({number} of the log) tells of an attempt at key `{key}` that receipt {earlier} of the log tells of already: what the store kept of the key was deleted or rolled back, and its action ran again"
    )]
    SentTwice {
        /// Its number.
        number: u64,
        /// Its id.
        receipt_id: String,
        /// The key.
        key: String,
        /// The number of the first that tells of it.
        earlier: u64,
    },
    /// The head cannot be of these receipts.
    #[error(
        "the log's head says another root than its {number} receipts have: the head was changed"
    )]
    HeadChanged {
        /// How many there are.
        number: u64,
    },
    /// A signed checkpoint says otherwise.
    #[error(
        "a signed checkpoint over {size} receipts has another root: one of the receipts {first} to {size} was rewritten, with every hash behind it (the first of them is `{receipt_id}` now)"
    )]
    CheckpointDiffers {
        /// How many receipts it is about.
        size: u64,
        /// The first that no earlier checkpoint vouches for.
        first: u64,
        /// The id of that one.
        receipt_id: String,
    },
    /// A signed checkpoint is about more than is there.
    #[error(
        "the log has {found} receipts, and a signed checkpoint speaks of {size}: its end was cut off, or the store was rolled back to an older copy"
    )]
    RolledBack {
        /// How many there are.
        found: u64,
        /// How many the checkpoint is about.
        size: u64,
    },
    /// What stands where a signed log ended is not what it ended with.
    #[error(
        "receipt `{receipt_id}` ({number} of the log) is not the one that was signed there: the store was rolled back to an older copy and grew again, or receipts were rewritten with their hashes"
    )]
    NotAsSigned {
        /// Its number.
        number: u64,
        /// Its id.
        receipt_id: String,
    },
    /// A checkpoint is of another log.
    #[error("a checkpoint is of the log `{origin}`, not of `{expected}`")]
    OtherLog {
        /// Which log it is of.
        origin: String,
        /// Which is looked at.
        expected: String,
    },
    /// No key that is trusted signed a checkpoint.
    #[error("the checkpoint over {size} receipts is not signed by {key}")]
    Unsigned {
        /// How many receipts it is about.
        size: u64,
        /// Who should have.
        key: String,
    },
}

fn before(receipt_id: Option<&String>) -> String {
    match receipt_id {
        Some(id) => format!(" (what stands there now is `{id}`)"),
        None => String::new(),
    }
}
