//! Reading oldest first passes over nobody: a number that was given out may still be on its way.

use std::time::Duration;

use operators_kernel::{Cursor, LedgerEntry, ReceiptFilter, StoreError};
use operators_tests::conformance::desk::{Desk, applied, ask};
use operators_tests::postgres::connect;

use crate::common::{database, desk};
use crate::receipts::try_run;

/// A receipt that is inserted and not committed.
const LATE: &str = "BEGIN; INSERT INTO operators.receipt \
    (settled_at, tenant, receipt_id, idempotency_key, body) \
    SELECT settled_at, tenant, 'rc_late', idempotency_key, replace(body, receipt_id, 'rc_late') \
    FROM operators.receipt LIMIT 1";

async fn all(desk: &Desk, cursor: Cursor) -> Result<Vec<LedgerEntry>, StoreError> {
    let filter = ReceiptFilter::default();
    desk.store.receipts(&desk.tenant, &filter, cursor, 10).await
}

// Rule 5.8.
#[tokio::test]
async fn a_receipt_that_commits_late_is_not_passed_over() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let desk = desk(&url).await;
    desk.run(&ask("e1", "k1"), applied()).await;
    let mut writer = connect(&url).await;
    try_run(&mut writer, LATE).await.expect("runs");
    desk.run(&ask("e2", "k2"), applied()).await;

    let newest = all(&desk, Cursor::Before(u64::MAX)).await.expect("reads");
    assert_eq!(newest.len(), 2, "newest first waits for nobody");
    let reader = desk.clone();
    let mut reading = tokio::spawn(async move { all(&reader, Cursor::After(0)).await });
    let early = tokio::time::timeout(Duration::from_millis(300), &mut reading).await;
    assert!(early.is_err(), "read past a number on its way: {early:?}");
    try_run(&mut writer, "COMMIT").await.expect("runs");
    let found = reading.await.expect("a task").expect("reads");
    let ids: Vec<&str> = found
        .iter()
        .map(|one| one.receipt.receipt_id.as_str())
        .collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert_eq!(ids[1], "rc_late");
    assert!(found.is_sorted_by(|a, b| a.sequence < b.sequence));
}

// Rule 5.8.
#[tokio::test]
async fn a_writer_that_stands_still_is_named_and_not_passed() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let desk = desk(&url).await;
    desk.run(&ask("e1", "k1"), applied()).await;
    let mut writer = connect(&url).await;
    try_run(&mut writer, LATE).await.expect("runs");
    let error = all(&desk, Cursor::After(0)).await.expect_err("it waits");
    assert!(error.is_retryable(), "{error}");
    assert!(error.to_string().contains("pass over"), "{error}");
    try_run(&mut writer, "ROLLBACK").await.expect("runs");
    assert_eq!(all(&desk, Cursor::After(0)).await.expect("reads").len(), 1);
}

// Rule 11.2.
#[tokio::test]
async fn a_receipt_that_commits_late_comes_into_the_log_late() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let desk = desk(&url).await;
    desk.run(&ask("e1", "k1"), applied()).await;
    let mut writer = connect(&url).await;
    try_run(&mut writer, LATE).await.expect("runs");
    // More than one look while it is on its way: none may take its number for one that never comes.
    for (key, size) in [("k2", 2), ("k3", 3), ("k4", 4)] {
        desk.run(&ask("e2", key), applied()).await;
        let seen = desk.store.log().sequence(&desk.tenant).await;
        assert_eq!(seen.expect("looks").head.size(), size, "nobody waits");
    }
    try_run(&mut writer, "COMMIT").await.expect("runs");
    let seen = desk.store.log().sequence(&desk.tenant).await;
    assert_eq!(seen.expect("looks").head.size(), 5);
    let entries = desk.store.log().log_entries(&desk.tenant, 0, 10).await;
    let ids: Vec<String> = entries
        .expect("reads")
        .into_iter()
        .map(|entry| entry.receipt_id)
        .collect();
    assert_eq!(ids.last().map(String::as_str), Some("rc_late"), "{ids:?}");
}

// Rule 11.2.
#[tokio::test]
async fn a_look_at_the_log_begins_where_nothing_can_be_missing() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let desk = desk(&url).await;
    desk.run(&ask("e1", "k1"), applied()).await;
    desk.run(&ask("e2", "k2"), applied()).await;
    let look = async || {
        let seen = desk.store.log().sequence(&desk.tenant).await;
        seen.expect("looks").head.size()
    };
    assert_eq!(look().await, 2);
    let mut connection = connect(&url).await;
    // Nobody writes: all numbers given out are in, and a leaf that goes missing is a stray, not news.
    try_run(
        &mut connection,
        "ALTER TABLE operators.leaf DISABLE TRIGGER ALL; \
         DELETE FROM operators.leaf WHERE position = 0",
    )
    .await
    .expect("runs");
    assert_eq!(look().await, 2);
    let strays = desk.store.log().strays(&desk.tenant).await.expect("looks");
    assert_eq!(strays.len(), 1);
}
