//! For the benchmark alone: receipts without a place in the log, so that what the log costs can be
//! measured. No user can ask for it, and no shipped program is built with it.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_UNLOGGED: AtomicBool = AtomicBool::new(false);

/// Whether receipts that `SqliteStore`s of this process write from now on get no place.
pub fn set(is_unlogged: bool) {
    IS_UNLOGGED.store(is_unlogged, Ordering::Relaxed);
}

pub(crate) fn is_set() -> bool {
    IS_UNLOGGED.load(Ordering::Relaxed)
}
