//! The receipts of one key lie on shelves by their numbers: all of them are found, in their order, by
//! rule 5.8.

use operators_kernel::{Cursor, Ledger, ReceiptFilter};
use operators_seams::SqliteStore;
use operators_tests::conformance::desk::{Desk, applied, ask};
use operators_tests::fixtures::{key, tenant};
use operators_tests::stores::SqliteBench;
use rusqlite::Connection;

/// A key's receipts on the first, second, third and fifth shelf, others' between them.
async fn four_shelves(bench: &SqliteBench) -> Vec<u64> {
    let desk = Desk::open(bench).await;
    let by_hand = Connection::open(bench.path()).expect("opens");
    desk.run(&ask("e1", "k1"), applied()).await;
    desk.run(&ask("e2", "k2"), applied()).await;
    let mut numbers = vec![1];
    for last in [510_u32, 515, 1_250, 2_187] {
        by_hand
            .execute(
                "UPDATE sqlite_sequence SET seq = ?1 WHERE name = 'receipt'",
                [last],
            )
            .expect("leaves numbers out");
        for name in ["k1", "k2", "k1"] {
            desk.duplicate(&ask(if name == "k1" { "e1" } else { "e2" }, name))
                .await;
        }
        numbers.extend([last + 1, last + 3].map(u64::from));
    }
    numbers
}

async fn page(store: &SqliteStore, cursor: Cursor, limit: usize) -> Vec<u64> {
    let filter = ReceiptFilter {
        idempotency_key: Some(key("k1")),
        ..ReceiptFilter::default()
    };
    let page = store.receipts(&tenant(), &filter, cursor, limit).await;
    let page = page.expect("the store shows");
    assert!(page.len() <= limit, "{} of {limit}", page.len());
    page.into_iter().map(|entry| entry.sequence).collect()
}

/// All pages, one after the other.
async fn pages(store: &SqliteStore, start: u64, next: fn(u64) -> Cursor, limit: usize) -> Vec<u64> {
    let mut found = Vec::new();
    let mut cursor = next(start);
    loop {
        let numbers = page(store, cursor, limit).await;
        let Some(last) = numbers.last() else {
            return found;
        };
        cursor = next(*last);
        found.extend(numbers);
    }
}

#[tokio::test]
async fn receipts_of_a_key_are_found_on_every_shelf_in_their_order() {
    let bench = SqliteBench::fresh();
    let numbers = four_shelves(&bench).await;
    let mut backwards = numbers.clone();
    backwards.reverse();
    let store = SqliteStore::open(&bench.path()).expect("opens");
    for limit in [1, 2, 3, 100] {
        let found = pages(&store, 0, Cursor::After, limit).await;
        assert_eq!(found, numbers, "by {limit}");
        let found = pages(&store, u64::MAX, Cursor::Before, limit).await;
        assert_eq!(found, backwards, "by {limit}, backwards");
    }
    assert!(page(&store, Cursor::After(0), 0).await.is_empty());
}
