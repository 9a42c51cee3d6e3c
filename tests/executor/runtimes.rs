//! Section 2, a runtime that ends under an executor: nothing waits for what ended with it.

use std::sync::Arc;

use operators_kernel::DurableExec;
use operators_seams::{MemoryStore, SqliteStore, SystemClock};
use operators_tests::runtimes::{
    a_place_in_the_queue_ends_with_its_runtime, an_executor_outlives_its_runtime,
};

fn in_memory() -> Arc<dyn DurableExec> {
    Arc::new(MemoryStore::new(Arc::new(SystemClock::new())))
}

/// Rules 2.10 and 4.3.
#[test]
fn in_memory_an_executor_outlives_its_runtime() {
    an_executor_outlives_its_runtime(async { in_memory() });
}

/// Rules 2.10 and 4.3.
#[test]
fn on_sqlite_an_executor_outlives_its_runtime() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(&folder.path().join("store.db")).expect("opens");
    an_executor_outlives_its_runtime(async { Arc::new(store) as Arc<dyn DurableExec> });
}

/// Rule 2.10.
#[test]
fn in_memory_a_place_in_the_queue_ends_with_its_runtime() {
    a_place_in_the_queue_ends_with_its_runtime(async { in_memory() });
}

/// Rule 2.10.
#[test]
fn on_sqlite_a_place_in_the_queue_ends_with_its_runtime() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(&folder.path().join("store.db")).expect("opens");
    a_place_in_the_queue_ends_with_its_runtime(async { Arc::new(store) as Arc<dyn DurableExec> });
}
