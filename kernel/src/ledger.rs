//! The reading half of a store: what people and auditors ask. It changes nothing.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;

use crate::action::{Disposition, Reason};
use crate::clock::Timestamp;
use crate::durable::{StoreError, StoreTime};
use crate::key::{EntityKey, IdempotencyKey, OperatorName, TenantId, ToolName};
use crate::life::{EntityRecord, KeyRecord, NoteKind, NoteName};
use crate::log::Log;
use crate::receipt::{Receipt, ReceiptOutcome};
use crate::text::Text;

/// The most receipts one page holds; a reader asks again from its cursor.
pub const PAGE_MAX: usize = 1_000;

/// A receipt and its place in the tenant's trail.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerEntry {
    /// Grows with every receipt of the store; a stable cursor.
    pub sequence: u64,
    /// The receipt.
    pub receipt: Receipt,
}

/// Which way to read, and from where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cursor {
    /// Oldest first, starting after this sequence number.
    After(u64),
    /// Newest first, starting before this sequence number.
    Before(u64),
}

/// What to look for; `None` means anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReceiptFilter {
    /// This very receipt.
    pub receipt_id: Option<Text>,
    /// Proposed by this operator.
    pub operator: Option<OperatorName>,
    /// With this decision.
    pub decision: Option<Disposition>,
    /// With this outcome.
    pub outcome: Option<ReceiptOutcome>,
    /// With this reason.
    pub reason: Option<Reason>,
    /// On this tool.
    pub tool: Option<ToolName>,
    /// On this entity.
    pub entity_key: Option<EntityKey>,
    /// On this key.
    pub idempotency_key: Option<IdempotencyKey>,
    /// In this thread.
    pub correlation_id: Option<String>,
    /// In this run.
    pub run_id: Option<String>,
    /// Settled at or after.
    pub since: Option<Timestamp>,
    /// Settled before.
    pub until: Option<Timestamp>,
}

impl ReceiptFilter {
    /// Whether a receipt is what was looked for; stores may use it or do the same in their query.
    pub fn admits(&self, receipt: &Receipt) -> bool {
        fn fits<T: PartialEq + ?Sized>(wanted: Option<&T>, found: Option<&T>) -> bool {
            wanted.is_none_or(|wanted| found == Some(wanted))
        }
        fits(self.receipt_id.as_ref(), Some(&receipt.receipt_id))
            && fits(self.operator.as_ref(), receipt.operator.as_ref())
            && fits(self.decision.as_ref(), receipt.decision.as_ref())
            && fits(self.outcome.as_ref(), receipt.outcome.as_ref())
            && fits(self.reason.as_ref(), receipt.reason.as_ref())
            && fits(self.tool.as_ref(), Some(&receipt.action.tool))
            && fits(self.entity_key.as_ref(), Some(&receipt.entity_key))
            && fits(
                self.idempotency_key.as_ref(),
                Some(&receipt.idempotency_key),
            )
            && fits(
                self.correlation_id.as_deref(),
                Some(&*receipt.correlation_id),
            )
            && fits(self.run_id.as_deref(), Some(&*receipt.run_id))
            && self.since.is_none_or(|since| receipt.settled_at >= since)
            && self.until.is_none_or(|until| receipt.settled_at < until)
    }
}

/// A key, its entity and the store's time, all of one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Glimpse {
    /// The key, if anybody ever claimed it.
    pub key: Option<KeyRecord>,
    /// Its entity.
    pub entity: EntityRecord,
    /// The store's clock then.
    pub now: StoreTime,
}

/// Whether the process that owns a session is still there, as far as its store can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerState {
    /// The store sees it at this moment, and its lease runs.
    Alive,
    /// Its process ended, or its lease is over: it may be declared dead at any time.
    Gone,
    /// The store cannot tell before the lease is over.
    NotKnownYet,
}

impl OwnerState {
    /// The word in listings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Gone => "gone",
            Self::NotKnownYet => "not_known_yet",
        }
    }
}

/// An attempt whose intent is recorded and whose end is not: it may be on its way at this moment.
#[derive(Debug, Clone, PartialEq)]
pub struct InFlight {
    /// The key, an intent of the session that is in its record.
    pub key: KeyRecord,
    /// What the process of that session calls itself.
    pub node: String,
    /// How long one sign of life of that session counts.
    pub lease: Duration,
    /// Until when its last sign of life counts, as far as this process knows of it.
    pub lease_until: StoreTime,
    /// Whether that process is still there.
    pub owner: OwnerState,
}

/// What a store has ever held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TenantHistory {
    /// Keys or receipts of the tenant.
    Known,
    /// Something, and nothing of the tenant.
    OnlyOthers,
    /// Nothing at all.
    EmptyStore,
}

/// Shows what a store remembers, never another tenant's, never stale: what `Ok` shows was true at
/// one moment during the call. An `Err` or a dropped future changes nothing.
#[async_trait]
pub trait Ledger: fmt::Debug + Send + Sync + 'static {
    /// Which store this is, with its place, for messages: ``sqlite store `x.db` ``.
    fn describe(&self) -> String;

    /// One key and its entity, in one look.
    async fn glimpse(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
        entity: &EntityKey,
    ) -> Result<Glimpse, StoreError>;

    /// One key, whatever its entity.
    async fn key(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<KeyRecord>, StoreError>;

    /// Every key in doubt, oldest first, with the store's time.
    async fn doubts(&self, tenant: &TenantId) -> Result<(Vec<KeyRecord>, StoreTime), StoreError>;

    /// Every attempt that is in flight, oldest first, with the store's time. On a store whose index
    /// may lag, one that began a moment ago may be missing.
    async fn in_flight(&self, tenant: &TenantId) -> Result<(Vec<InFlight>, StoreTime), StoreError>;

    /// Whether the store ever held anything of a tenant: a look at what is there, never a scan.
    async fn history_of(&self, tenant: &TenantId) -> Result<TenantHistory, StoreError>;

    /// At most `limit` (and [`PAGE_MAX`]) receipts that `filter` admits, from `cursor` on.
    async fn receipts(
        &self,
        tenant: &TenantId,
        filter: &ReceiptFilter,
        cursor: Cursor,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>, StoreError>;

    /// What one note says.
    async fn note(&self, tenant: &TenantId, name: &NoteName) -> Result<Option<String>, StoreError>;

    /// Every note of a kind, by name, with what it says.
    async fn notes(
        &self,
        tenant: &TenantId,
        kind: NoteKind,
    ) -> Result<Vec<(String, String)>, StoreError>;

    /// The tamper-evident log that its receipts are kept in.
    fn log(&self) -> &dyn Log;

    /// Looks the whole store over, for `doctor`: every problem found, in words.
    async fn check(&self) -> Result<Vec<String>, StoreError>;
}
