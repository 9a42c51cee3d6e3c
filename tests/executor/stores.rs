//! Section 8, the rest: what a store remembers, and what an unusable one stops.

use std::sync::Arc;
use std::time::Duration;

use operators_kernel::{DeterministicExecutor, ExecError, StoreError};
use operators_seams::SqliteStore;
use operators_tests::fakes::{Act, Fault, Op, TestClock};
use operators_tests::fixtures::{World, action, entity, hold, key, tenant};
use serde_json::json;

use crate::failing::started;
use crate::support::{effects, faulty, memory, one, proposals, words};

/// Rule 8.2: "nothing was sent" is not said of an end that the store did not record, after an effect.
#[tokio::test]
async fn a_session_that_does_not_end_is_not_told_as_nothing_sent() {
    let mut world = memory().world;
    let store = faulty(&mut world);
    let executor = world.start().await;
    assert!(one(&executor, &world, hold("e", "k")).await.ok);
    store.next(Op::Close, [Fault::Unusable]);
    let error = executor.stop().await.expect_err("told").to_string();
    assert!(!error.contains("nothing was sent"), "{error}");
    assert!(error.contains("did not end in good order"), "{error}");
}

/// Rule 8.2: what no retry can mend is an error at once; before the call nothing is sent.
#[tokio::test]
async fn a_store_that_cannot_be_used_is_an_error_at_once() {
    let (world, store, executor) = started().await;
    store.next(Op::Claim, [Fault::Unusable]);
    let error = executor.run_action(&world.run(), hold("e", "k")).await;
    let error = error.expect_err("told");
    assert!(
        matches!(error, ExecError::Store(StoreError::Unusable { .. })),
        "{error}"
    );
    assert!(world.connector.calls().is_empty());
    store.next(Op::RedactionKey, [Fault::Unusable]);
    let mut run = world.run();
    run.tenant = operators_tests::fixtures::tenant_named("new");
    // Asked for where there is a secret to hide.
    let secret = action("orders.hold", "e", "k", json!({"token": "t"}));
    let error = executor.run_action(&run, secret).await;
    assert!(matches!(error, Err(ExecError::Store(_))));
    store.next(Op::Record, [Fault::Unusable]);
    let read = action("orders.get", "e", "r", json!({}));
    let error = executor.run_action(&world.run(), read).await;
    assert!(matches!(error, Err(ExecError::Store(_))));
    store.next(Op::Settle, [Fault::Unusable]);
    let error = executor.run_action(&world.run(), hold("e2", "k2")).await;
    let error = error.expect_err("told");
    assert!(
        matches!(
            error,
            ExecError::NotRecorded {
                outcome: "applied",
                ..
            }
        ),
        "{error}"
    );
    // It is tried again all the while, and nobody behind it waits for more than that.
    let next = one(&executor, &world, hold("e2", "k3"));
    let next = tokio::time::timeout(Duration::from_secs(20), next).await;
    assert_eq!(words(&next.expect("not held up")), "ALLOW true -");
    let again = one(&executor, &world, hold("e2", "k2")).await;
    assert_eq!(words(&again), "DEDUP true -");
    assert_eq!(executor.entities_in_flight(), 0);
    store.next(Op::Open, [Fault::Unusable]);
    assert!(
        DeterministicExecutor::start(world.seams(), world.settings.clone())
            .await
            .is_err()
    );
}

/// Rule 7.1: an answer that a record could not be read back with is not kept, and the key is burned
/// all the same.
#[tokio::test]
async fn an_answer_that_is_nested_too_deep_leaves_a_key_that_can_be_read() {
    for (levels, is_kept) in [(64, true), (65, false), (126, false)] {
        let deep = (1..levels).fold(json!([]), |inner, _| json!([inner]));
        let home = crate::support::sqlite();
        let executor = home.world.start().await;
        home.world.connector.then([Act::ApplyWith(deep.clone())]);
        let first = one(&executor, &home.world, hold("e", "k")).await;
        assert_eq!(words(&first), "ALLOW true -", "{levels}");
        let again = one(&executor, &home.world, hold("e", "k")).await;
        assert_eq!(words(&again), "DEDUP true -", "{levels}");
        let original = again.original.expect("an original").result.unpack();
        assert_eq!(original == deep, is_kept, "{levels}");
        assert!(
            is_kept
                || original
                    .as_str()
                    .is_some_and(|told| told.contains("64 levels"))
        );
    }
}

/// Rule 8.2: a plan that meets such a store stops there and says what was done before.
#[tokio::test]
async fn a_plan_stops_where_the_store_fails_and_keeps_what_was_done() {
    let (world, store, executor) = started().await;
    store.next(Op::Claim, [Fault::None, Fault::Unusable]);
    let plan =
        operators_tests::fixtures::plan(vec![hold("e", "k1"), hold("e", "k2"), hold("e", "k3")]);
    let error = executor.run(&world.run(), &plan).await.expect_err("stops");
    assert_eq!(error.completed.len(), 1);
    assert!(error.completed[0].ok);
    assert_eq!(effects(&world), ["k1"]);
}

/// Rule 8.5: a duplicate writes its receipt and no key row.
#[tokio::test]
async fn a_duplicate_changes_nothing_about_its_key() {
    for home in &crate::support::each_store() {
        let world = &home.world;
        let executor = world.start().await;
        assert!(one(&executor, world, hold("e", "k")).await.ok);
        let (owner, name, entity) = (tenant(), key("k"), entity("e"));
        let look = || world.store.glimpse(&owner, &name, &entity);
        let before = look().await.expect("a look");
        world.clock.advance(Duration::from_secs(5));
        assert_eq!(
            words(&one(&executor, world, hold("e", "k")).await),
            "DEDUP true -"
        );
        let after = look().await.expect("a look");
        assert_eq!(
            (before.key, before.entity),
            (after.key, after.entity),
            "{}",
            home.name
        );
        assert_eq!(proposals(world).await.len(), 2);
    }
}

/// Rule 8.1: burned keys, doubts and receipts are there after a restart.
#[tokio::test]
async fn burned_keys_doubts_and_receipts_survive_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let open = || {
        let store = SqliteStore::open(&path).expect("opens");
        World::on(Arc::new(store), Arc::new(TestClock::default()))
    };
    let before = open();
    let executor = before.start().await;
    assert!(one(&executor, &before, hold("e", "k")).await.ok);
    before.connector.then([Act::Unknown]);
    assert!(!one(&executor, &before, hold("e2", "doubt")).await.ok);
    let written = proposals(&before).await;
    executor.stop().await.expect("stops");
    drop(before);
    let after = open();
    let executor = after.start().await;
    assert_eq!(proposals(&after).await, written);
    // The same ids again would be the same proposals.
    after.clock.advance(Duration::from_secs(1));
    for _ in 0..10 {
        after.run();
    }
    assert_eq!(
        words(&one(&executor, &after, hold("e", "k")).await),
        "DEDUP true -"
    );
    assert_eq!(
        words(&one(&executor, &after, hold("e2", "doubt")).await),
        "BLOCK false in_doubt"
    );
    assert_eq!(
        words(&one(&executor, &after, hold("e2", "k3")).await),
        "BLOCK false entity_in_doubt"
    );
    assert!(after.connector.calls().is_empty());
}

/// Rule 2.6: a store that panics ends the action, not the executor: at once, and in the task that goes
/// on with work that had to wait.
#[tokio::test]
async fn a_store_that_panics_leaves_no_held_turn() {
    for waits in [false, true] {
        let (world, store, executor) = started().await;
        let fault = Fault::Then(Arc::new(|| panic!("the store's bug")));
        if waits {
            // The claim is decided after a pause, so the settlement panics in the task.
            store.next(Op::Claim, [Fault::Yield(2)]);
            store.next(Op::Settle, [fault]);
        } else {
            store.next(Op::Claim, [fault]);
        }
        let error = executor.run_action(&world.run(), hold("e", "k")).await;
        let error = error.expect_err("told");
        assert!(matches!(error, ExecError::Invariant(_)), "{error}");
        assert_eq!(executor.entities_in_flight(), 0, "waits: {waits}");
        assert!(one(&executor, &world, hold("e2", "k2")).await.ok);
    }
}
