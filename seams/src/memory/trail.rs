//! Receipts in memory, in the order in which they were kept, and by their ids.

mod merge;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use hashbrown::{HashMap, HashSet};
use operators_kernel::{
    Cursor, Folded, LedgerEntry, PAGE_MAX, Receipt, ReceiptFilter, Slip, TenantId, Text,
};

use super::locked;
use crate::page::{Called, Table};

/// As many as threads that keep receipts at the same time, mostly; few enough to take all of them.
const SHEETS: usize = 8;

thread_local! {
    /// The sheet of this thread, given out in turn.
    static SHEET: usize = {
        static GIVEN: AtomicUsize = AtomicUsize::new(0);
        GIVEN.fetch_add(1, Ordering::Relaxed) % SHEETS
    };
}

/// How often a sheet is tried for before a thread sleeps for it: longer than it takes to keep a
/// receipt, shorter than a look at a page of them.
const TRIES_MAX: u32 = 256;

/// A receipt as it is kept; written out when somebody reads it.
#[derive(Debug, Clone)]
pub(super) enum Paper {
    /// In one piece of memory, with the key that it tells of if it is one.
    Folded(Folded),
    /// Written out: what few receipts are.
    Written(Arc<Receipt>),
}

/// A receipt that was kept and cannot be read: a defect, of which nothing is guessed.
#[derive(Debug, thiserror::Error)]
#[error("a receipt that was kept cannot be read again")]
pub(super) struct Torn;

/// A receipt in its place.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) sequence: u64,
    pub(super) paper: Paper,
}

/// Every receipt. Each thread keeps its receipts on a sheet of its own, numbered in one row over all
/// of them.
#[derive(Debug)]
pub(super) struct Trail {
    sheets: Box<[Sheet]>,
    /// How many were kept. Counted with a sheet in hand, so that who has all of them in hand sees
    /// every receipt up to some number and none after it.
    written: Counter,
    // Taken before any sheet.
    listing: Mutex<Listing>,
    /// Whether [`Listing::asked_again`] says anything, told without a lock.
    has_asked_again: AtomicBool,
}

/// Alone in its line of memory, for which threads compete.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// What one thread has kept, or a few of them. Held for as long as it takes to add a receipt, or to
/// read a page; taken by those who hold halls, and never the other way round.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Sheet(Mutex<Records>);

#[derive(Debug, Default)]
struct Records {
    /// In order.
    by_tenant: HashMap<TenantId, Vec<Entry>>,
    /// Those after this number are not found by their ids yet. Few are ever asked for so, by a claim
    /// whose answer was lost; a proposal that nobody asks about pays for no place in a table.
    listed: u64,
    /// Whose those are.
    unlisted: Vec<TenantId>,
}

type Hold<'a> = MutexGuard<'a, Records>;

/// Receipts by their ids.
#[derive(Debug, Default)]
struct Listing {
    by_id: Table<Paper>,
    /// The receipts of proposals that were asked more than once: only one of these can be told to be
    /// kept twice.
    asked_again: HashSet<Text>,
}

impl Default for Trail {
    fn default() -> Self {
        Self {
            sheets: (0..SHEETS).map(|_| Sheet::default()).collect(),
            written: Counter::default(),
            listing: Mutex::default(),
            has_asked_again: AtomicBool::new(false),
        }
    }
}

impl Trail {
    /// Keeps a receipt, unless there is one of its id.
    pub(super) fn keep(&self, tenant: &TenantId, paper: Paper) {
        let is_new = match &paper {
            Paper::Folded(_) => !self.has_asked_again.load(Ordering::Relaxed),
            Paper::Written(_) => false,
        };
        if is_new {
            self.add(tenant, paper);
            return;
        }
        // Held until it is there, so that no two of one id find none.
        let mut listing = locked(&self.listing);
        let may_be_there = match &paper {
            Paper::Folded(folded) => listing.asked_again.contains(folded.receipt_id()),
            Paper::Written(_) => true,
        };
        if may_be_there {
            listing.list_all(self);
        }
        if !may_be_there || listing.by_id.get(paper.receipt_id()).is_none() {
            self.add(tenant, paper);
        }
    }

    /// As [`keep`](Self::keep), folded if it can be.
    pub(super) fn keep_slip(&self, slip: Slip) {
        let tenant = slip.tenant_id().clone();
        self.keep(&tenant, slip.into());
    }

    fn add(&self, tenant: &TenantId, paper: Paper) {
        let Some(sheet) = SHEET.with(|number| self.sheets.get(*number)) else {
            return; // There is one for every number.
        };
        let sheet = &mut *sheet.hold();
        let sequence = 1 + self.written.0.fetch_add(1, Ordering::Relaxed);
        let entries = sheet.by_tenant.entry_ref(tenant).or_default();
        let last = entries.last().map(|entry| entry.sequence);
        if last.is_none_or(|last| last <= sheet.listed) {
            sheet.unlisted.push(tenant.clone());
        }
        entries.push(Entry { sequence, paper });
    }

    /// A proposal is asked another time: because it waited, or because its answer was lost.
    pub(super) fn ask_again(&self, receipt_id: &Text) {
        let mut listing = locked(&self.listing);
        listing.asked_again.insert(receipt_id.clone());
        self.has_asked_again.store(true, Ordering::Relaxed);
    }

    /// The receipt of this id.
    pub(super) fn find(&self, receipt_id: &str) -> Result<Option<Receipt>, Torn> {
        let mut listing = locked(&self.listing);
        listing.list_all(self);
        let found = listing.by_id.get(receipt_id);
        found.map(Paper::receipt).transpose()
    }

    /// Whether nothing was ever kept.
    pub(super) fn is_empty(&self) -> bool {
        self.written.0.load(Ordering::Relaxed) == 0
    }

    /// Whether anything was ever kept of a tenant.
    pub(super) fn has(&self, tenant: &TenantId) -> bool {
        let mut sheets = self.all().into_iter();
        sheets.any(|sheet| sheet.by_tenant.contains_key(tenant))
    }

    /// A tenant's receipts that were kept after the one of this number.
    pub(super) fn after(&self, tenant: &TenantId, last: u64) -> Vec<Entry> {
        let sheets = self.all();
        merge::after(&sheets, tenant, last).cloned().collect()
    }

    /// Takes receipts out of a tenant's trail. What a claim whose answer was lost asks by its id
    /// stays: nothing else of it is shown.
    pub(super) fn drop_those(&self, tenant: &TenantId, is_gone: impl Fn(&str) -> bool) {
        let mut listing = locked(&self.listing);
        listing.list_all(self);
        for mut sheet in self.all() {
            if let Some(entries) = sheet.by_tenant.get_mut(tenant) {
                entries.retain(|entry| !is_gone(entry.paper.receipt_id()));
            }
        }
    }

    /// One page of a tenant's receipts.
    pub(super) fn page(
        &self,
        tenant: &TenantId,
        filter: &ReceiptFilter,
        cursor: Cursor,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>, Torn> {
        let limit = limit.min(PAGE_MAX);
        let sheets = self.all();
        let written = |entry: &Entry| {
            let sequence = entry.sequence;
            match entry.paper.receipt() {
                Ok(receipt) if filter.admits(&receipt) => {
                    Some(Ok(LedgerEntry { sequence, receipt }))
                }
                Ok(_) => None,
                Err(torn) => Some(Err(torn)),
            }
        };
        match cursor {
            Cursor::After(start) => {
                let rest = merge::after(&sheets, tenant, start);
                rest.filter_map(written).take(limit).collect()
            }
            Cursor::Before(end) => {
                let rest = merge::before(&sheets, tenant, end);
                rest.filter_map(written).take(limit).collect()
            }
        }
    }

    /// Every sheet, so that nothing is added meanwhile.
    fn all(&self) -> Vec<Hold<'_>> {
        self.sheets.iter().map(Sheet::hold).collect()
    }
}

impl Sheet {
    fn hold(&self) -> Hold<'_> {
        for _ in 0..TRIES_MAX {
            match self.0.try_lock() {
                Ok(records) => return records,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        locked(&self.0)
    }
}

impl Listing {
    /// Lets every receipt be found by its id.
    fn list_all(&mut self, trail: &Trail) {
        for sheet in &trail.sheets {
            let sheet = &mut *sheet.hold();
            for tenant in sheet.unlisted.drain(..) {
                let entries = sheet.by_tenant.get(&tenant).map(Vec::as_slice);
                let entries = entries.unwrap_or_default();
                let known = entries.partition_point(|entry| entry.sequence <= sheet.listed);
                for Entry { paper, .. } in entries.iter().skip(known) {
                    self.by_id.insert_new(paper.receipt_id(), paper.clone());
                }
            }
            // Whatever comes on this sheet is counted later.
            sheet.listed = trail.written.0.load(Ordering::Relaxed);
        }
    }
}

impl Paper {
    pub(super) fn receipt_id(&self) -> &str {
        match self {
            Self::Folded(folded) => folded.receipt_id(),
            Self::Written(receipt) => &receipt.receipt_id,
        }
    }

    /// The receipt, written out.
    pub(super) fn receipt(&self) -> Result<Receipt, Torn> {
        match self {
            Self::Folded(folded) => folded.slip().map(Slip::into_receipt).ok_or(Torn),
            Self::Written(receipt) => Ok((**receipt).clone()),
        }
    }
}

impl From<Slip> for Paper {
    fn from(slip: Slip) -> Self {
        match Folded::receipt(&slip) {
            Some(folded) => Self::Folded(folded),
            None => Self::Written(Arc::new(slip.into_receipt())),
        }
    }
}

impl Called<str> for Paper {
    fn is_called(&self, name: &str) -> bool {
        self.receipt_id() == name
    }
}

#[cfg(test)]
mod tests;
