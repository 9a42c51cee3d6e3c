//! smoke
use operators_kernel::Disposition;
use operators_tests::fixtures::{World, hold, plan};

#[tokio::test]
async fn the_same_hold_twice_is_one_effect() {
    let world = World::in_memory();
    let executor = world.start().await;
    let twice = plan(vec![
        hold("order:1", "order:1:hold"),
        hold("order:1", "order:1:hold"),
    ]);
    let results = executor.run(&world.run(), &twice).await.expect("runs");
    println!("{}", serde_json::to_string_pretty(&results).unwrap());
    assert_eq!(results[0].decision, Disposition::Allow);
    assert_eq!(results[1].decision, Disposition::Dedup);
    assert_eq!(world.connector.applied().len(), 1);
    assert_eq!(executor.entities_in_flight(), 0);
}

#[tokio::test]
async fn the_same_hold_twice_is_one_effect_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let clock = std::sync::Arc::new(operators_tests::fakes::TestClock::default());
    let store = operators_seams::SqliteStore::open(&dir.path().join("s.db")).unwrap();
    let world = World::on(std::sync::Arc::new(store), clock);
    let executor = world.start().await;
    let twice = plan(vec![
        hold("order:1", "order:1:hold"),
        hold("order:1", "order:1:hold"),
    ]);
    let results = executor.run(&world.run(), &twice).await.expect("runs");
    println!("{}", serde_json::to_string_pretty(&results).unwrap());
    assert_eq!(results[0].decision, Disposition::Allow);
    assert_eq!(results[1].decision, Disposition::Dedup);
    assert_eq!(world.connector.applied().len(), 1);
    executor.stop().await.unwrap();
}
