//! Receipts in memory, in the order in which they were kept, and by their ids.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use hashbrown::{HashMap, HashSet};
use operators_kernel::{
    Cursor, LedgerEntry, PAGE_MAX, Receipt, ReceiptFilter, Slip, TenantId, Text,
};

use crate::page::{Called, Table};

/// How often the trail is tried for before a thread sleeps for it: longer than it takes to keep a
/// receipt, shorter than a look at a page of them.
const TRIES_MAX: u32 = 256;

/// A receipt in its place; written out when somebody reads it.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) sequence: u64,
    // Shared: a growing list of them moves pointers, not receipts.
    pub(super) slip: Arc<Slip>,
}

/// Every receipt.
#[derive(Debug, Default)]
pub(super) struct Trail {
    // Held for as long as it takes to add one, or to read a page; taken by those who hold halls, and
    // never the other way round.
    records: Mutex<Box<Records>>,
}

#[derive(Debug, Default)]
struct Records {
    by_tenant: HashMap<TenantId, Vec<Entry>>,
    written: u64,
    by_id: Table<Arc<Slip>>,
    /// Not yet found by their ids. Few are ever asked for so, by a claim whose answer was lost; a
    /// proposal that nobody asks about pays for no place in a table.
    unlisted: Vec<Arc<Slip>>,
    /// The receipts of proposals that were asked more than once: only one of these can be told to be
    /// kept twice.
    asked_again: HashSet<Text>,
}

impl Trail {
    fn records(&self) -> MutexGuard<'_, Box<Records>> {
        for _ in 0..TRIES_MAX {
            match self.records.try_lock() {
                Ok(records) => return records,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        let records = self.records.lock();
        records.unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a receipt, unless there is one of its id.
    pub(super) fn keep(&self, slip: Slip) {
        let slip = Arc::new(slip);
        let mut records = self.records();
        if !records.list(&slip) {
            return;
        }
        records.written += 1;
        let sequence = records.written;
        let trail = records.by_tenant.entry_ref(slip.tenant_id()).or_default();
        trail.push(Entry { sequence, slip });
    }

    /// A proposal is asked another time: because it waited, or because its answer was lost.
    pub(super) fn ask_again(&self, receipt_id: &Text) {
        self.records().asked_again.insert(receipt_id.clone());
    }

    /// The receipt of this id.
    pub(super) fn find(&self, receipt_id: &str) -> Option<Receipt> {
        let mut records = self.records();
        records.list_all();
        let found = records.by_id.get(receipt_id);
        found.map(|found| found.receipt())
    }

    /// A tenant's receipts that were kept after the one of this number.
    pub(super) fn after(&self, tenant: &TenantId, last: u64) -> Vec<Entry> {
        let records = self.records();
        let trail = records.by_tenant.get(tenant).map(Vec::as_slice);
        let trail = trail.unwrap_or_default();
        let known = trail.partition_point(|entry| entry.sequence <= last);
        trail.iter().skip(known).cloned().collect()
    }

    /// Takes receipts out of a tenant's trail. What a claim whose answer was lost asks by its id
    /// stays: nothing else of it is shown.
    pub(super) fn drop_those(&self, tenant: &TenantId, is_gone: impl Fn(&str) -> bool) {
        if let Some(trail) = self.records().by_tenant.get_mut(tenant) {
            trail.retain(|entry| !is_gone(entry.slip.receipt_id()));
        }
    }

    /// One page of a tenant's receipts.
    pub(super) fn page(
        &self,
        tenant: &TenantId,
        filter: &ReceiptFilter,
        cursor: Cursor,
        limit: usize,
    ) -> Vec<LedgerEntry> {
        let limit = limit.min(PAGE_MAX);
        let records = self.records();
        let trail = records.by_tenant.get(tenant).map(Vec::as_slice);
        let trail = trail.unwrap_or_default();
        let written = |entry: &Entry| {
            let (sequence, receipt) = (entry.sequence, entry.slip.receipt());
            let is_admitted = filter.admits(&receipt);
            is_admitted.then_some(LedgerEntry { sequence, receipt })
        };
        match cursor {
            Cursor::After(start) => {
                let from = trail.partition_point(|entry| entry.sequence <= start);
                let rest = trail.iter().skip(from);
                rest.filter_map(written).take(limit).collect()
            }
            Cursor::Before(end) => {
                let to = trail.partition_point(|entry| entry.sequence < end);
                let rest = trail.iter().take(to).rev();
                rest.filter_map(written).take(limit).collect()
            }
        }
    }
}

impl Records {
    /// Lists a receipt by its id, now or later; whether there was none of this id.
    fn list(&mut self, slip: &Arc<Slip>) -> bool {
        let may_be_there = match **slip {
            Slip::Applied { .. } | Slip::Duplicate { .. } => {
                !self.asked_again.is_empty() && self.asked_again.contains(slip.receipt_id())
            }
            Slip::Written(_) => true,
        };
        if may_be_there {
            self.list_all();
            self.by_id.insert_new(slip.receipt_id(), Arc::clone(slip))
        } else {
            self.unlisted.push(Arc::clone(slip));
            true
        }
    }

    fn list_all(&mut self) {
        for slip in self.unlisted.drain(..) {
            self.by_id.insert_new(slip.receipt_id(), Arc::clone(&slip));
        }
    }
}

impl Called<str> for Arc<Slip> {
    fn is_called(&self, name: &str) -> bool {
        self.receipt_id() == name
    }
}
