//! A runtime that ends under an executor, with the connections that it drove.

use std::sync::Arc;

use operators_kernel::DurableExec;
use operators_seams::PgStore;
use operators_tests::postgres::Database;
use operators_tests::runtimes::{
    a_place_in_the_queue_ends_with_its_runtime, an_executor_outlives_its_runtime,
};
use tokio::runtime::Runtime;

use crate::common::database;

/// A database, and a runtime that outlasts the test, for it to be taken away on.
fn fresh() -> Option<(Runtime, Database)> {
    let runtime = Runtime::new().expect("a runtime");
    let database = runtime.block_on(database())?;
    Some((runtime, database))
}

async fn store(url: String) -> Arc<dyn DurableExec> {
    Arc::new(PgStore::connect(&url).await.expect("connects"))
}

/// Rules 2.10 and 4.3.
#[test]
fn on_postgres_an_executor_outlives_its_runtime() {
    let Some((_runtime, database)) = fresh() else {
        return;
    };
    an_executor_outlives_its_runtime(store(database.url()));
}

/// Rule 2.10.
#[test]
fn on_postgres_a_place_in_the_queue_ends_with_its_runtime() {
    let Some((_runtime, database)) = fresh() else {
        return;
    };
    a_place_in_the_queue_ends_with_its_runtime(store(database.url()));
}
