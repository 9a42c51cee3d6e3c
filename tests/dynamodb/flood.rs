//! Rule 3.8 between processes: 657 proposals, one effect.

use std::sync::Arc;

use operators_kernel::{Cursor, Disposition, DurableExec, PAGE_MAX, ReceiptFilter};
use operators_seams::DynamoStore;
use operators_tests::fakes::TestClock;
use operators_tests::fixtures::{World, hold, tenant};
use tokio::task::JoinSet;

use crate::common::table;

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_657_from_three_stores_sends_once() {
    let Some((url, _, _)) = table().await else {
        return;
    };
    let clock = Arc::new(TestClock::default());
    let mut worlds: Vec<World> = Vec::new();
    for _ in 0..3 {
        let store = DynamoStore::connect(&url).await.expect("connects");
        let mut world = World::on(Arc::new(store), Arc::clone(&clock));
        if let Some(first) = worlds.first() {
            world.connector = Arc::clone(&first.connector);
            world.registry = Arc::clone(&first.registry);
        }
        worlds.push(world);
    }
    let mut callers = JoinSet::new();
    for world in &worlds {
        let executor = Arc::new(world.start().await);
        for _ in 0..219 {
            let (executor, run) = (Arc::clone(&executor), world.run());
            callers.spawn(async move {
                let result = executor.run_action(&run, hold("order:1", "k1")).await;
                result.expect("a result")
            });
        }
    }
    let results = callers.join_all().await;
    let count = |wanted| results.iter().filter(|r| r.decision == wanted).count();
    assert_eq!(count(Disposition::Allow), 1);
    assert_eq!(count(Disposition::Dedup), 656);
    assert!(results.iter().all(|result| result.ok));
    assert_eq!(worlds[0].connector.applied().len(), 1);
    let store: &dyn DurableExec = &*worlds[2].store;
    let all = ReceiptFilter::default();
    let trail = store
        .receipts(&tenant(), &all, Cursor::After(0), PAGE_MAX)
        .await;
    assert_eq!(trail.expect("shows").len(), 657);
}
