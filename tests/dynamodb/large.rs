//! What does not fit into an item of 400 KB: rule 7.1 lets arguments be 1 MiB.

use std::sync::Arc;

use operators_kernel::{ARGS_BYTES_MAX, Cursor, RESULT_BYTES_MAX, ReceiptFilter};
use operators_seams::DynamoStore;
use operators_tests::conformance::desk::{Desk, again, applied_with, ask, failed};
use operators_tests::dynamodb::endpoint;
use operators_tests::fakes::{Act, TestClock};
use operators_tests::fixtures::{World, action, object, plan, tenant};
use serde_json::{Value, json};

use crate::common::{onlooker, process, table};
use crate::tables::{asked, name_of};

fn large(tool: &str, name: &str) -> operators_kernel::PlannedAction {
    let text = "x".repeat(ARGS_BYTES_MAX - 100);
    action(
        tool,
        &format!("order:{name}"),
        name,
        json!({ "text": text }),
    )
}

/// Rules 1.6, 5.1: such an action stopped the plan without a receipt, and a read of that size was
/// sent first and failed afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_the_largest_actions_runs_to_its_end() {
    let Some((url, _, _)) = table().await else {
        return;
    };
    let store = DynamoStore::connect(&url).await.expect("connects");
    let world = World::on(Arc::new(store), Arc::new(TestClock::default()));
    let executor = world.start().await;
    world.connector.then([
        Act::ApplyWith(json!({ "body": "y".repeat(1_000_000) })),
        Act::Refuse,
        Act::ApplyThenUnknown,
    ]);
    let actions = vec![
        large("orders.hold", "applied"),
        large("orders.hold", "failed"),
        large("orders.hold", "doubted"),
        large("orders.get", "read"),
        action("orders.hold", "order:small", "small", json!({})),
        large("orders.hold", "applied"),
    ];
    let results = executor.run(&world.run(), &plan(actions)).await;
    let results = results.expect("runs to its end");
    let ok: Vec<bool> = results.iter().map(|result| result.ok).collect();
    assert_eq!(ok, [true, false, false, true, true, true]);
    assert_eq!(world.connector.calls().len(), 5);
    let (owner, all) = (tenant(), ReceiptFilter::default());
    let trail = world.store.receipts(&owner, &all, Cursor::After(0), 9);
    let trail = trail.await.expect("shown");
    assert_eq!(trail.len(), 6, "a receipt each");
    for (result, entry) in results.iter().zip(&trail) {
        assert_eq!(result.receipt_id, entry.receipt.receipt_id);
        assert_eq!(entry.receipt.action.args.unpack(), *result.action.args);
    }
}

/// Rule 7.1: the longest answer that the kernel keeps, with the largest arguments, is one write.
#[tokio::test(flavor = "multi_thread")]
async fn the_longest_answer_is_kept_beside_the_largest_arguments() {
    let Some((url, _, _)) = table().await else {
        return;
    };
    let desk = process(&url).await;
    let mut claim = ask("order:1", "k1");
    let text = "a".repeat(ARGS_BYTES_MAX - 20);
    claim.proposal.action.args = object(json!({ "text": text })).into();
    let answer = Value::from("a".repeat(RESULT_BYTES_MAX - 2));
    desk.run(&claim, applied_with(answer.clone())).await;
    let told = desk.duplicate(&again(&claim)).await.result.unpack();
    assert!(told == answer, "it is another");
}

/// Rule 3.3: the item and its pieces are read one after the other, and the two may be of different
/// attempts; nobody is shown such a text.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_never_sees_half_of_one_text_and_half_of_another() {
    let Some((url, _, _)) = table().await else {
        return;
    };
    let (desk, reader) = (process(&url).await, onlooker(&url).await);
    let writing = async {
        for number in 0..8 {
            let letter = if number % 2 == 0 { "a" } else { "b" };
            let mut claim = ask("order:1", "k1");
            let text = letter.repeat(800_000 - number * 20_000);
            claim.proposal.action.args = object(json!({ "text": text })).into();
            desk.run(&claim, failed()).await;
        }
    };
    let mut reads = 0;
    let reading = async {
        loop {
            if let Some(found) = reader.find("k1").await {
                let args = found.proposal.action.args.unpack();
                let text = args["text"].as_str().expect("a text");
                let first = &text[..1];
                assert!(text.split(first).all(str::is_empty), "mixed");
                reads += 1;
            }
        }
    };
    tokio::select! {
        () = writing => {}
        () = reading => {}
    }
    assert!(reads > 3, "{reads}");
}

async fn layout(url: &str) -> String {
    let body = format!(
        r#"{{"TableName":"{}","ConsistentRead":true,"Key":{{"pk":{{"S":"table"}},"sk":{{"S":"-"}}}}}}"#,
        name_of(url)
    );
    asked(endpoint().expect("a server"), "GetItem", &body).await
}

/// Rule 8.4: a table of the layout before goes on, and an earlier version is told that it cannot read
/// it; by whoever writes, not by whoever looks.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_without_long_texts_is_used_and_says_so_from_the_first_session_on() {
    let Some((url, _, _)) = table().await else {
        return;
    };
    let desk: Desk = process(&url).await;
    desk.run(&ask("order:1", "k1"), applied_with(json!({})))
        .await;
    let body = format!(
        r#"{{"TableName":"{}","Item":{{"pk":{{"S":"table"}},"sk":{{"S":"-"}},"layout":{{"N":"1"}}}}}}"#,
        name_of(&url)
    );
    asked(endpoint().expect("a server"), "PutItem", &body).await;
    let store = DynamoStore::connect(&url).await.expect("connects");
    drop(store);
    assert!(layout(&url).await.contains(r#"{"N":"1"}"#));
    let next = process(&url).await;
    assert!(layout(&url).await.contains(r#"{"N":"2"}"#));
    next.duplicate(&again(&ask("order:1", "k1"))).await;
}
