//! The order of receipts, which no single item keeps.

use std::collections::BTreeSet;

use operators_kernel::{Cursor, LedgerEntry, ReceiptFilter};
use operators_tests::conformance::desk::{Desk, applied, ask};
use tokio::task::JoinSet;

use crate::common::{onlooker, process, table};

async fn page(desk: &Desk, cursor: Cursor, limit: usize) -> Vec<LedgerEntry> {
    let all = ReceiptFilter::default();
    let page = desk.store.receipts(&desk.tenant, &all, cursor, limit).await;
    page.expect("the store shows")
}

/// Rule 5.1: a reader that goes on from its last number misses nothing, whoever writes meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_follows_the_trail_misses_nothing() {
    const EACH: usize = 60;
    let Some((url, _, _)) = table().await else {
        return;
    };
    let mut writers = JoinSet::new();
    for process_number in 0..3 {
        let desk = process(&url).await;
        for lane in 0..4 {
            let desk = desk.clone();
            writers.spawn(async move {
                for number in 0..EACH / 4 {
                    let name = format!("{process_number}:{lane}:{number}");
                    desk.run(&ask(&format!("order:{name}"), &name), applied())
                        .await;
                }
            });
        }
    }
    let (one, two) = (onlooker(&url).await, onlooker(&url).await);
    let mut last = 0;
    let mut seen = Vec::new();
    while seen.len() < 3 * EACH {
        // Two readers at once, so that they also race for the pages.
        let (found, _) = tokio::join!(
            page(&one, Cursor::After(last), 50),
            page(&two, Cursor::After(0), 1_000)
        );
        last = found.last().map_or(last, |entry| entry.sequence);
        seen.extend(found);
    }
    while let Some(done) = writers.join_next().await {
        done.expect("no writer panics");
    }
    let numbers: Vec<u64> = seen.iter().map(|entry| entry.sequence).collect();
    assert_eq!(numbers, (1..=180).collect::<Vec<u64>>());
    let ids: BTreeSet<&str> = seen.iter().map(|e| e.receipt.receipt_id.as_str()).collect();
    assert_eq!(ids.len(), 180);
    assert_eq!(
        page(&two, Cursor::After(0), 1_000).await,
        seen,
        "the same for all"
    );
    let mut backwards = page(&two, Cursor::Before(u64::MAX), 1_000).await;
    backwards.reverse();
    assert_eq!(backwards, seen);
    for entry in seen.iter().step_by(37) {
        let filter = ReceiptFilter {
            receipt_id: Some(entry.receipt.receipt_id.clone()),
            ..ReceiptFilter::default()
        };
        let found = one
            .store
            .receipts(&one.tenant, &filter, Cursor::After(0), 9)
            .await;
        assert_eq!(found.expect("shows"), vec![entry.clone()]);
    }
}
