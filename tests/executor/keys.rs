//! Section 3: what counts as the same action, and what becomes of its key.

use std::sync::Arc;

use operators_kernel::life::{self, Phase};
use operators_kernel::{Forget, ForgetAnswer, PlannedAction, ReceiptKind};
use operators_tests::fakes::Act;
use operators_tests::fixtures::{World, action, hold, key, tenant, tenant_named};
use serde_json::{Number, Value, json};

use crate::support::{
    Home, begin, each_store, effects, held_inside, let_others_run, memory, now, one, phase,
    proposals, receipts, words,
};

/// Rule 3.1: every later proposal is a duplicate with the original receipt and result.
#[tokio::test]
async fn a_burned_key_dedups_with_the_original_receipt_and_result() {
    for Home { world, name, .. } in &each_store() {
        let executor = world.start().await;
        let answer = json!({"order": "SO-1", "n": 1.5, "none": null});
        world.connector.then([Act::ApplyWith(answer.clone())]);
        let first = one(&executor, world, hold("e", "k")).await;
        assert_eq!(first.result.as_deref(), Some(&answer));
        for _ in 0..3 {
            let again = one(&executor, world, hold("e", "k")).await;
            assert_eq!(words(&again), "DEDUP true -", "{name}");
            assert_eq!((again.result, again.attempt), (None, 1), "{name}");
            let original = again.original.expect("cited");
            assert_eq!(original.receipt_id, first.receipt_id, "{name}");
            assert_eq!(original.result, answer, "{name}");
            assert_eq!(original.applied_at, now(world), "{name}");
        }
        // Another executor of the same store, too.
        let other = world.start().await;
        assert_eq!(
            words(&one(&other, world, hold("e", "k")).await),
            "DEDUP true -"
        );
        assert_eq!(world.connector.calls().len(), 1, "{name}");
    }
}

/// Rule 3.1: an answer that is no object, and one with numbers beyond what plans may hold, burn
/// the key all the same.
#[tokio::test]
async fn whatever_the_vendor_answers_burns_the_key() {
    for Home { world, name, .. } in &each_store() {
        let executor = world.start().await;
        let answers = [
            Value::Null,
            json!("text"),
            json!([]),
            json!({"id": u64::MAX, "low": i64::MIN, "tiny": 5e-324, "": {"": 0.1}}),
            json!({"text": "\u{0}\u{1b}[2J\u{202e}\u{fffd}"}),
        ];
        for (n, answer) in answers.into_iter().enumerate() {
            let name_of_key = format!("k{n}");
            world.connector.then([Act::ApplyWith(answer.clone())]);
            let result = one(&executor, world, hold("e", &name_of_key)).await;
            assert_eq!(result.result.as_deref(), Some(&answer), "{name}");
            let again = one(&executor, world, hold("e", &name_of_key)).await;
            assert_eq!(again.original.expect("cited").result, answer, "{name}");
        }
    }
}

fn changed(change: impl Fn(&mut PlannedAction)) -> PlannedAction {
    let mut action = hold("e", "k");
    change(&mut action);
    action
}

/// Rule 3.2: whatever differs, the path is named, nothing is sent and the original stays.
#[tokio::test]
async fn the_same_key_with_other_arguments_is_a_conflict_with_the_paths() {
    for Home { world, name, .. } in &each_store() {
        let executor = world.start().await;
        assert!(one(&executor, world, hold("e", "k")).await.ok);
        let cases = [
            (
                changed(|a| a.args = operators_tests::fixtures::object(json!({"order": "SO-2"}))),
                vec!["/args/order"],
            ),
            (
                changed(|a| drop(a.args.insert("extra".to_owned(), json!(1)))),
                vec!["/args/extra"],
            ),
            (
                changed(|a| drop(a.args.remove("order"))),
                vec!["/args/order"],
            ),
            (changed(|a| a.value = Some(Number::from(3))), vec!["/value"]),
            (
                changed(|a| {
                    a.tool = operators_kernel::ToolName::parse("orders.release").expect("a name");
                }),
                vec!["/tool"],
            ),
            (
                changed(|a| {
                    a.connector = operators_kernel::ConnectorName::parse("shop2").expect("a name");
                }),
                vec!["/connector"],
            ),
            (
                changed(|a| a.entity_key = operators_tests::fixtures::entity("e2")),
                vec!["/entity_key"],
            ),
        ];
        for (other, paths) in cases {
            let result = one(&executor, world, other).await;
            assert_eq!(words(&result), "BLOCK false conflict", "{name} {paths:?}");
            assert_eq!(result.conflict, paths, "{name}");
            assert_eq!(result.original, None);
            let receipt = proposals(world).await.pop().expect("a receipt");
            assert_eq!(receipt.reason, Some(operators_kernel::Reason::Conflict));
        }
        // What is not part of what the action does may differ.
        let same = changed(|a| {
            a.source_id = Some("elsewhere".to_owned());
            a.index_hash = Some("other".to_owned());
        });
        assert_eq!(words(&one(&executor, world, same).await), "DEDUP true -");
        assert_eq!(world.connector.calls().len(), 1, "{name}");
    }
}

/// Rule 3.2: from the first intent on, also while the first is still at it and on another entity.
#[tokio::test]
async fn a_key_in_flight_conflicts_with_its_use_on_another_entity() {
    let world = memory().world;
    let executor = Arc::new(world.start().await);
    let first = held_inside(&executor, &world, hold("e", "k")).await;
    let elsewhere = one(&executor, &world, hold("e2", "k")).await;
    assert_eq!(words(&elsewhere), "BLOCK false conflict");
    assert_eq!(elsewhere.conflict, ["/entity_key"]);
    // On the same entity it waits for the outcome, which decides.
    let other = action("orders.hold", "e", "k", json!({"order": "SO-2"}));
    let waiting = begin(&executor, &world, other).await;
    let_others_run().await;
    assert!(!waiting.is_finished());
    world.connector.gate.add_permits(1);
    assert!(first.await.expect("joins").expect("a result").ok);
    let waited = waiting.await.expect("joins").expect("a result");
    assert_eq!(words(&waited), "BLOCK false conflict");
    assert_eq!(effects(&world), ["k"]);
}

/// Rule 3.3: a definite failure leaves the key unburned; the retry is a real attempt, corrected
/// arguments included.
#[tokio::test]
async fn a_definite_failure_leaves_the_key_unburned() {
    for Home { world, name, .. } in &each_store() {
        let executor = world.start().await;
        world.connector.then([Act::Refuse, Act::Refuse]);
        let failed = one(&executor, world, hold("e", "k")).await;
        assert_eq!(words(&failed), "ALLOW false failed", "{name}");
        assert_eq!(failed.error.as_deref(), Some("the vendor said no"));
        assert_eq!(phase(world, "k").await, Some(Phase::Failed));
        let again = one(&executor, world, hold("e", "k")).await;
        assert_eq!(
            (words(&again).as_str(), again.attempt),
            ("ALLOW false failed", 2)
        );
        let corrected = action("orders.release", "e2", "k", json!({"order": "SO-9"}));
        let third = one(&executor, world, corrected.clone()).await;
        assert_eq!(
            (words(&third).as_str(), third.attempt),
            ("ALLOW true -", 3),
            "{name}"
        );
        assert_eq!(world.connector.applied()[0].args["order"], "SO-9");
        assert_eq!(
            words(&one(&executor, world, corrected).await),
            "DEDUP true -"
        );
        let old = one(&executor, world, hold("e", "k")).await;
        assert_eq!(
            words(&old),
            "BLOCK false conflict",
            "{name}: the corrected one binds now"
        );
    }
}

/// Rule 3.4: the same key of two tenants is two keys, with two downstream keys (3.7).
#[tokio::test]
async fn the_same_key_of_two_tenants_is_two_keys() {
    for Home { world, name, .. } in &each_store() {
        let executor = world.start().await;
        assert!(one(&executor, world, hold("e", "k")).await.ok);
        let mut theirs = world.run();
        theirs.tenant = tenant_named("other");
        let result = executor
            .run_action(&theirs, hold("e", "k"))
            .await
            .expect("a result");
        assert_eq!(words(&result), "ALLOW true -", "{name}");
        let calls = world.connector.calls();
        assert_ne!(calls[0].downstream_key, calls[1].downstream_key, "{name}");
        // Parts that would meet if they were joined by a colon.
        for (tenant, key) in [("a", "b:c"), ("a:b", "c")] {
            theirs.tenant = tenant_named(tenant);
            let result = executor.run_action(&theirs, hold("e", key)).await;
            assert_eq!(words(&result.expect("a result")), "ALLOW true -", "{name}");
        }
        let ours = receipts(world).await;
        assert_eq!(ours.len(), 1, "{name}: another tenant's receipts are seen");
    }
}

fn revised(key: &str, revision: u64) -> PlannedAction {
    let mut action = action("orders.tag", "e", key, json!({"revision": revision}));
    action.revision = Some(revision);
    action
}

/// Rule 3.5: 1, 3, 2 ends at 3.
#[tokio::test]
async fn revisions_1_3_2_end_at_3() {
    for Home { world, name, .. } in &each_store() {
        let executor = world.start().await;
        assert!(one(&executor, world, revised("r1", 1)).await.ok);
        assert!(one(&executor, world, revised("r3", 3)).await.ok);
        let stale = one(&executor, world, revised("r2", 2)).await;
        assert_eq!(words(&stale), "BLOCK false stale_revision", "{name}");
        assert_eq!(phase(world, "r2").await, None, "{name}");
        // The same revision again is not older, an old duplicate is a duplicate, and no revision
        // at all is not compared.
        assert!(one(&executor, world, revised("r3b", 3)).await.ok, "{name}");
        assert_eq!(
            words(&one(&executor, world, revised("r1", 1)).await),
            "DEDUP true -"
        );
        assert!(
            one(&executor, world, hold("e", "unrevised")).await.ok,
            "{name}"
        );
        assert_eq!(effects(world), ["r1", "r3", "r3b", "unrevised"], "{name}");
    }
}

/// Rule 3.5: only an applied revision counts; a failed one does not stand in anybody's way.
#[tokio::test]
async fn a_revision_that_failed_makes_no_other_stale() {
    let world = memory().world;
    let executor = world.start().await;
    world.connector.then([Act::Refuse]);
    assert!(!one(&executor, &world, revised("r9", 9)).await.ok);
    assert!(one(&executor, &world, revised("r2", 2)).await.ok);
}

async fn forget(world: &World, name: &str) -> ForgetAnswer {
    let wish = Forget {
        key: key(name),
        by: "jenny".into(),
        note: Some("hold it again".to_owned()),
        receipt_id: format!("rc_forget_{name}_{}", receipts(world).await.len()).into(),
        at: now(world),
    };
    world
        .store
        .forget(&tenant(), wish)
        .await
        .expect("an answer")
}

/// Rules 3.6 and 3.7: forgotten on purpose, the key runs again as generation 2 with another
/// downstream key, and both facts have receipts.
#[tokio::test]
async fn forget_opens_the_next_generation_of_a_burned_key() {
    for Home { world, name, .. } in &each_store() {
        let executor = world.start().await;
        assert_eq!(
            forget(world, "k").await,
            ForgetAnswer::NotBurned(None),
            "{name}"
        );
        world.connector.then([Act::Refuse]);
        assert!(!one(&executor, world, hold("e", "k")).await.ok);
        assert_eq!(
            forget(world, "k").await,
            ForgetAnswer::NotBurned(Some(Phase::Failed))
        );
        assert!(one(&executor, world, hold("e", "k")).await.ok);
        assert_eq!(
            forget(world, "k").await,
            ForgetAnswer::Forgotten(2),
            "{name}"
        );
        let again = one(&executor, world, hold("e", "k")).await;
        assert_eq!(
            (words(&again).as_str(), again.attempt),
            ("ALLOW true -", 1),
            "{name}"
        );
        assert_eq!(
            words(&one(&executor, world, hold("e", "k")).await),
            "DEDUP true -"
        );
        let keys: Vec<_> = world
            .connector
            .calls()
            .iter()
            .map(|call| call.downstream_key.clone())
            .collect();
        assert_eq!(
            keys[0], keys[1],
            "{name}: one generation, one downstream key"
        );
        assert_ne!(keys[1], keys[2], "{name}: another generation, another");
        assert_eq!(keys[2], life::downstream_key(&tenant(), &key("k"), 2));
        let left = receipts(world).await;
        let wish = left
            .iter()
            .find(|receipt| receipt.kind == ReceiptKind::Forget);
        let wish = wish.expect("receipted");
        assert_eq!(wish.approver.as_deref(), Some("jenny"));
        assert_eq!(wish.note.as_deref(), Some("hold it again"));
        assert_eq!(left.last().expect("the duplicate").generation, 2, "{name}");
    }
}
