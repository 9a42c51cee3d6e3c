//! Retention: the texts of a log's oldest receipts go into a file, and a stub of each stays.
//!
//! Owns what a pruning says of itself and what a stub is. The leaf of a stub's receipt stays where it
//! was, so roots and proofs stay too; what is left of the text is what burned keys are held against,
//! and the pruning's own receipt has the root of all its stubs.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::audit::Seen;
use super::fault::LogFault;
use super::tree::LogHash;
use super::{LOG_PAGE_MAX, Log, LogEntry};
use crate::clock::Timestamp;
use crate::durable::StoreError;
use crate::json;
use crate::key::{IdempotencyKey, TenantId};
use crate::receipt::{Receipt, ReceiptKind, ReceiptOutcome};
use crate::text::Text;

/// How a stub begins, and no receipt does.
pub const STUB_START: &str = "{\"pruned\":";

/// The texts of the receipts from one place of a log up to another, taken out of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pruning {
    /// The receipt that tells of it.
    pub by: Text,
    /// `sha256:…` of the file.
    pub digest: String,
    /// The first place, from 0: where the pruning before it ended.
    pub from: u64,
    /// The root that was signed when the log ended at `to`.
    pub root: LogHash,
    /// The file, as whoever pruned named it.
    pub segment: String,
    /// The root over the stubs.
    pub stubs: LogHash,
    /// The first place that is not in it.
    pub to: u64,
}

impl Pruning {
    /// What stands in its receipt.
    pub(crate) fn args(&self) -> Map<String, Value> {
        Map::from_iter([
            ("digest".to_owned(), self.digest.as_str().into()),
            ("from".to_owned(), self.from.into()),
            ("root".to_owned(), self.root.to_string().into()),
            ("segment".to_owned(), self.segment.as_str().into()),
            ("stubs".to_owned(), self.stubs.to_string().into()),
            ("to".to_owned(), self.to.into()),
        ])
    }

    /// As its receipt tells it; nothing if that is no receipt of a pruning.
    pub fn told_by(receipt: &Receipt) -> Option<Self> {
        if receipt.kind != ReceiptKind::Prune {
            return None;
        }
        let args = &receipt.action.args;
        let text = |name: &str| args.get(name)?.as_str();
        Some(Self {
            by: receipt.receipt_id.clone(),
            digest: text("digest")?.to_owned(),
            from: args.get("from")?.as_u64()?,
            root: text("root")?.parse().ok()?,
            segment: text("segment")?.to_owned(),
            stubs: text("stubs")?.parse().ok()?,
            to: args.get("to")?.as_u64()?,
        })
    }

    pub(super) fn mark(&self) -> Mark {
        Mark {
            by: self.by.clone(),
            from: self.from,
            to: self.to,
        }
    }

    /// The stub that stands for this text from now on.
    pub fn stub(&self, body: &str) -> Result<String, String> {
        stub(&self.mark(), body)
    }
}

/// Which pruning a stub is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mark {
    pub(super) by: Text,
    pub(super) from: u64,
    pub(super) to: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stub<'a> {
    pub(super) pruned: Mark,
    #[serde(borrow)]
    pub(super) receipt: Seen<'a>,
}

pub(super) fn stub(mark: &Mark, body: &str) -> Result<String, String> {
    let receipt = serde_json::from_str(body).map_err(|error| error.to_string())?;
    let pruned = mark.clone();
    json::canonical(&Stub { pruned, receipt }).map_err(|error| error.to_string())
}

/// Whether a kept text is a stub and no receipt.
pub fn is_stub(text: &str) -> bool {
    text.starts_with(STUB_START)
}

/// Whether the text of such a receipt stays: later audits read it, those of the prunings before and
/// of the keys that signed.
pub(super) fn is_kept(kind: ReceiptKind) -> bool {
    matches!(kind, ReceiptKind::Prune | ReceiptKind::SigningKey)
}

/// Whether this text would be taken away if its receipt is pruned.
fn is_prunable(text: &str) -> bool {
    let seen = || serde_json::from_str::<Seen<'_>>(text);
    !is_stub(text) && seen().is_ok_and(|seen| !is_kept(seen.kind))
}

/// What a stub still tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pruned {
    /// The receipt of the pruning.
    pub by: Text,
    /// The first place of the segment that the text is in.
    pub from: u64,
    /// The first place after it.
    pub to: u64,
    /// The receipt's key.
    pub key: String,
    /// What it was about.
    pub kind: ReceiptKind,
    /// How it ended.
    pub outcome: Option<ReceiptOutcome>,
}

impl Pruned {
    /// Reads a stub; `None` if that text is none.
    pub fn read(text: &str) -> Option<Self> {
        let stub: Stub<'_> = serde_json::from_str(text).ok()?;
        Some(Self {
            by: stub.pruned.by,
            from: stub.pruned.from,
            to: stub.pruned.to,
            key: stub.receipt.idempotency_key.into_owned(),
            kind: stub.receipt.kind,
            outcome: stub.receipt.outcome,
        })
    }
}

/// The key and the id that a kept text tells, be it a receipt or a stub.
pub(super) fn named(text: &str) -> Option<(IdempotencyKey, String)> {
    let seen: Seen<'_> = if is_stub(text) {
        serde_json::from_str::<Stub<'_>>(text).ok()?.receipt
    } else {
        serde_json::from_str(text).ok()?
    };
    let key = IdempotencyKey::parse(seen.idempotency_key.as_ref()).ok()?;
    Some((key, seen.receipt_id.into_owned()))
}

/// When a receipt was settled, from its text.
pub fn settled_at(body: &str) -> Option<Timestamp> {
    #[derive(Deserialize)]
    struct Settled {
        settled_at: Timestamp,
    }
    let settled: Settled = serde_json::from_str(body).ok()?;
    Some(settled.settled_at)
}

/// Whether this is the stub that a pruning left of that text.
pub fn is_stub_of(text: &str, body: &str) -> bool {
    let found = serde_json::from_str::<Stub<'_>>(text);
    found.is_ok_and(|found| stub(&found.pruned, body).is_ok_and(|stub| stub == text))
}

/// A stub on its way to its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedStub {
    /// The place.
    pub position: u64,
    /// The receipt that stands there.
    pub receipt_id: String,
    /// What stands for its text from now on.
    pub stub: String,
}

/// Takes the texts of a pruning out of the store; those that are gone already are left. To be called
/// once the file was read back and the receipt of the pruning is signed for. Called again after it
/// was cut short, it finishes. Tells how many texts went.
pub async fn erase(
    log: &dyn Log,
    tenant: &TenantId,
    pruning: &Pruning,
) -> Result<Result<u64, LogFault>, StoreError> {
    let mut from = pruning.from;
    let mut erased: u64 = 0;
    while from < pruning.to {
        let page = log.log_entries(tenant, from, LOG_PAGE_MAX).await?;
        let ours = page.iter().filter(|entry| entry.position < pruning.to);
        let stubs = ours.filter_map(|entry| placed(pruning, entry).transpose());
        let stubs: Vec<PlacedStub> = match stubs.collect() {
            Ok(stubs) => stubs,
            Err(fault) => return Ok(Err(fault)),
        };
        let Some(last) = page.last() else {
            let number = from.saturating_add(1);
            let receipt_id = None;
            return Ok(Err(LogFault::Gone { number, receipt_id }));
        };
        from = last.position.saturating_add(1);
        erased = erased.saturating_add(u64::try_from(stubs.len()).unwrap_or(u64::MAX));
        if !stubs.is_empty() {
            log.put_stubs(tenant, stubs).await?;
        }
    }
    Ok(Ok(erased))
}

/// Whether texts are left that this pruning was to take away.
pub async fn is_unfinished(
    log: &dyn Log,
    tenant: &TenantId,
    pruning: &Pruning,
) -> Result<bool, StoreError> {
    let mut from = pruning.from;
    while from < pruning.to {
        let page = log.log_entries(tenant, from, LOG_PAGE_MAX).await?;
        let mut ours = page.iter().filter(|entry| entry.position < pruning.to);
        if ours.any(|entry| entry.body.as_deref().is_some_and(is_prunable)) {
            return Ok(true);
        }
        let Some(last) = page.last() else { break };
        from = last.position.saturating_add(1);
    }
    Ok(false)
}

/// The stub of an entry that has its text still.
fn placed(pruning: &Pruning, entry: &LogEntry) -> Result<Option<PlacedStub>, LogFault> {
    let number = entry.position.saturating_add(1);
    let receipt_id = entry.receipt_id.clone();
    let Some(body) = &entry.body else {
        let receipt_id = Some(receipt_id);
        return Err(LogFault::Gone { number, receipt_id });
    };
    if !is_prunable(body) {
        return Ok(None);
    }
    let stub = pruning.stub(body).map_err(|problem| LogFault::Unreadable {
        number,
        receipt_id: receipt_id.clone(),
        problem,
    })?;
    Ok(Some(PlacedStub {
        position: entry.position,
        receipt_id,
        stub,
    }))
}
