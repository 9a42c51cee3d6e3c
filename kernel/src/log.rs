//! The tamper-evident log: each tenant's receipts as the leaves of a Merkle tree, what signs it, and
//! what an auditor checks.
//!
//! Everything but the trait is pure: hashes, proofs, checkpoints, and the judgement over what a
//! store shows. `Log` is how a store shows it.

mod attempts;
mod audit;
mod bundle;
mod burns;
mod checkpoint;
mod fault;
mod inspect;
mod key_change;
mod proof;
mod pruning;
mod segment;
mod standing;
mod stubs;
mod tree;

use std::fmt;

use async_trait::async_trait;

use crate::durable::StoreError;
use crate::key::{IdempotencyKey, TenantId};

pub use audit::Auditor;
pub use bundle::{Bundle, BundleError, Proved};
pub use burns::{BurnFault, Burns};
pub use checkpoint::{Checkpoint, PublicKey, SignedCheckpoint, SigningKey, origin_of};
pub use fault::LogFault;
pub use inspect::{Audit, Fault, Findings, follow, inspect};
pub use key_change::KeyChange;
pub use proof::{prove_consistency, prove_inclusion, verify_consistency, verify_inclusion};
pub use pruning::{
    PlacedStub, Pruned, Pruning, STUB_START, erase, is_stub, is_stub_of, is_unfinished, settled_at,
};
pub use segment::{Segment, SegmentError, SegmentHeader};
pub use standing::still_holds;
pub use tree::{Frontier, LogHash};

/// The most entries that one look at a log gives.
pub const LOG_PAGE_MAX: usize = 1_000;

/// One receipt in a tenant's log, as the store shows it; nothing about it is believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Its place, from 0.
    pub position: u64,
    /// The id it is kept under.
    pub receipt_id: String,
    /// The hash of its text, as it was when it was appended.
    pub leaf: LogHash,
    /// What links it to the one before.
    pub link: LogHash,
    /// Its text, or the stub that stands for it since it was pruned; `None` if it is gone.
    pub body: Option<String>,
}

/// How far a log has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequenced {
    /// The log's right edge.
    pub head: Frontier,
    /// There are receipts that could not be appended yet: somebody's transaction is still open.
    pub is_behind: bool,
    /// A receipt that was acknowledged and is gone: neither it nor what follows could be appended.
    pub lost: Option<String>,
}

/// A key that the store holds for burned or written off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Burned {
    /// The key.
    pub key: IdempotencyKey,
    /// Its generation.
    pub generation: u32,
    /// The receipt that it says burned it.
    pub receipt_id: String,
}

/// A page of burned keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BurnedPage {
    /// The keys.
    pub keys: Vec<Burned>,
    /// Where to go on; `None` at the end.
    pub next: Option<String>,
}

/// Keeps every receipt of a tenant as a leaf of one log, in an order that never changes: what was
/// appended stays at its place, and the log's head is made of all of it.
#[async_trait]
pub trait Log: fmt::Debug + Send + Sync {
    /// The head, without appending anything.
    ///
    /// - *Atomic*: one look. *After `Err` or dropped half-way*: nothing changed.
    async fn head(&self, tenant: &TenantId) -> Result<Frontier, StoreError>;

    /// Appends every receipt that was acknowledged before the call, and tells the head after that.
    ///
    /// - *Atomic*: some receipts with the head over them; several such steps may be taken.
    /// - *After `Ok`*: durable; what is told to be behind is not in the head yet.
    /// - *After `Err` or dropped half-way*: some may have been appended.
    async fn sequence(&self, tenant: &TenantId) -> Result<Sequenced, StoreError>;

    /// At most `limit` (and [`LOG_PAGE_MAX`]) entries in their order, from this place on. An entry
    /// that is gone is left out: the places tell.
    async fn log_entries(
        &self,
        tenant: &TenantId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<LogEntry>, StoreError>;

    /// Puts stubs in the place of texts that were pruned, and refuses every other change.
    ///
    /// - *Atomic*: each of them, in their order. A stub is taken only below the end of the tenant's
    ///   last pruning, which its note tells, and only where a text stands; the leaf, the link and the
    ///   id stay.
    /// - *After `Ok`*: durable; those that were there before are left as they are.
    /// - *After `Err` or dropped half-way*: the first of them may be there.
    async fn put_stubs(&self, tenant: &TenantId, stubs: Vec<PlacedStub>) -> Result<(), StoreError>;

    /// The stub that stands for this receipt's text; `None` if it was not pruned, or is not there.
    async fn stub(&self, tenant: &TenantId, receipt_id: &str)
    -> Result<Option<String>, StoreError>;

    /// Ids of receipts that are in no log though they should be; some of them, if there are many.
    async fn strays(&self, tenant: &TenantId) -> Result<Vec<String>, StoreError>;

    /// A page of the burned keys, in an order of the store's, from where the one before said.
    async fn burned(
        &self,
        tenant: &TenantId,
        after: Option<&str>,
    ) -> Result<BurnedPage, StoreError>;
}
