//! A file of an earlier schema is taken on as it is, by rules 8.1 and 8.4.

use operators_kernel::{Cursor, Ledger, ReceiptFilter};
use operators_seams::SqliteStore;
use operators_tests::conformance::desk::{Desk, applied, ask};
use operators_tests::fixtures::{key, tenant};
use operators_tests::stores::SqliteBench;
use rusqlite::Connection;

/// Every schema there was before this one, oldest first.
const EARLIER: &[&str] = &[
    include_str!("../../seams/migrations/sqlite/0001_first.sql"),
    include_str!("../../seams/migrations/sqlite/0002_askers.sql"),
    include_str!("../../seams/migrations/sqlite/0003_notes.sql"),
    include_str!("../../seams/migrations/sqlite/0004_log.sql"),
    include_str!("../../seams/migrations/sqlite/0005_log_sealed.sql"),
    include_str!("../../seams/migrations/sqlite/0006_retention.sql"),
    include_str!("../../seams/migrations/sqlite/0007_itself.sql"),
    include_str!("../../seams/migrations/sqlite/0008_shelves.sql"),
];

/// Takes the receipts over from a file of today.
const COPY: &str = "INSERT INTO receipt (sequence, receipt_id, tenant, idempotency_key, settled_at, \
    body) SELECT sequence, receipt_id, tenant, idempotency_key, settled_at, body FROM today.receipt";

/// A file of an earlier schema, with the receipts of another in it.
fn of_schema(version: usize, today: &SqliteBench) -> SqliteBench {
    let bench = SqliteBench::fresh();
    let connection = Connection::open(bench.path()).expect("opens");
    for script in EARLIER.iter().take(version) {
        connection.execute_batch(script).expect("makes");
    }
    let path = today.path().to_str().expect("a path").to_owned();
    connection
        .execute("ATTACH ?1 AS today", [path])
        .expect("attaches");
    connection.execute(COPY, []).expect("copies");
    connection
        .execute_batch("DETACH today; PRAGMA application_id = 0x6f707273")
        .expect("sets");
    connection
        .pragma_update(None, "user_version", i64::try_from(version).expect("few"))
        .expect("sets");
    bench
}

/// What a file is made of.
fn made_of(bench: &SqliteBench) -> Vec<(String, Option<String>)> {
    let connection = Connection::open(bench.path()).expect("opens");
    let mut parts = connection
        .prepare("SELECT name, sql FROM sqlite_schema ORDER BY name")
        .expect("asks");
    let parts = parts.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    parts
        .expect("shows")
        .map(|part| part.expect("a part"))
        .collect()
}

async fn receipts_of_k1(store: &SqliteStore) -> Vec<(u64, String)> {
    let filter = ReceiptFilter {
        idempotency_key: Some(key("k1")),
        ..ReceiptFilter::default()
    };
    let tenant = tenant();
    let page = store.receipts(&tenant, &filter, Cursor::After(0), 100);
    let page = page.await.expect("shows").into_iter();
    let named = page.map(|entry| (entry.sequence, entry.receipt.receipt_id.as_str().to_owned()));
    named.collect()
}

#[tokio::test]
async fn a_file_of_any_earlier_schema_becomes_what_a_new_one_is() {
    let today = SqliteBench::fresh();
    let desk = Desk::open(&today).await;
    desk.run(&ask("e1", "k1"), applied()).await;
    desk.run(&ask("e2", "k2"), applied()).await;
    desk.duplicate(&ask("e1", "k1")).await;
    let expected = receipts_of_k1(&SqliteStore::open(&today.path()).expect("opens")).await;
    assert_eq!(expected.len(), 2);
    for version in 1..=EARLIER.len() {
        let bench = of_schema(version, &today);
        let store = SqliteStore::open(&bench.path()).expect("upgrades");
        assert_eq!(made_of(&bench), made_of(&today), "from {version}");
        assert_eq!(receipts_of_k1(&store).await, expected, "from {version}");
        let desk = Desk::open(&bench).await;
        desk.run(&ask("e1", "k1"), applied()).await;
        let numbers = receipts_of_k1(&store).await;
        let numbers: Vec<_> = numbers.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [1, 3, 4], "from {version}");
        assert!(store.check().await.expect("checks").is_empty(), "{version}");
    }
}
