//! Receipts by their ids, for the few who ask: claims whose answer was lost, and receipts that are
//! written again.
//!
//! What is kept last is entered when somebody asks: a proposal that nobody asks about pays for no
//! place in a table.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use operators_kernel::Slip;

use super::Entry;
use crate::page::Table;

/// Every receipt, by its id.
#[derive(Debug)]
pub(super) struct ByIds {
    entered: Table<ById, ()>,
    waiting: Vec<Arc<Entry>>,
}

impl ByIds {
    pub(super) fn new() -> Self {
        Self {
            entered: Table::large(),
            waiting: Vec::new(),
        }
    }

    /// Adds a receipt unless there is one of its id; whether there was none.
    pub(super) fn add(&mut self, entry: &Arc<Entry>) -> bool {
        match &entry.slip {
            // The end of an intent, which has one, and of a claim that was not asked before.
            Slip::Applied { .. } | Slip::Duplicate { .. } => {
                self.waiting.push(Arc::clone(entry));
                true
            }
            Slip::Written(_) => {
                self.enter_all();
                self.entered.insert_new(ById(Arc::clone(entry)), ())
            }
        }
    }

    /// The receipt of this id.
    pub(super) fn find(&mut self, receipt_id: &str) -> Option<&Entry> {
        self.enter_all();
        self.entered.key(receipt_id).map(|found| &*found.0)
    }

    fn enter_all(&mut self) {
        for entry in self.waiting.drain(..) {
            self.entered.insert_new(ById(entry), ());
        }
    }
}

/// A receipt that is found by its id.
#[derive(Debug)]
struct ById(Arc<Entry>);

impl Borrow<str> for ById {
    fn borrow(&self) -> &str {
        self.0.slip.receipt_id()
    }
}

impl Hash for ById {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.slip.receipt_id().hash(state);
    }
}

impl PartialEq for ById {
    fn eq(&self, other: &Self) -> bool {
        self.0.slip.receipt_id() == other.0.slip.receipt_id()
    }
}

impl Eq for ById {}
