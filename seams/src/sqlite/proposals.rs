//! Proposals this process wrote, by their text: what settles was claimed a moment ago, and reading
//! its proposal back costs more than finding its row.
//!
//! Keyed by the text in the row, so that whoever changed a row, whatever is found is what it says.

use std::cell::RefCell;

use hashbrown::HashMap;
use operators_kernel::{Proposal, Shared};

/// How many are kept; beyond that all are forgotten, which costs one reading each.
const KEPT_MAX: usize = 2_048;

/// Proposals by their text.
#[derive(Debug, Default)]
pub(super) struct Proposals {
    by_text: RefCell<HashMap<String, Shared<Proposal>>>,
}

impl Proposals {
    /// What that text says, if it was written here lately.
    pub(super) fn find(&self, text: &str) -> Option<Shared<Proposal>> {
        self.by_text.borrow().get(text).cloned()
    }

    /// Keeps a proposal with its text.
    pub(super) fn keep(&self, text: String, proposal: &Shared<Proposal>) {
        let mut by_text = self.by_text.borrow_mut();
        if by_text.len() >= KEPT_MAX {
            by_text.clear();
        }
        by_text.insert(text, proposal.clone());
    }
}
