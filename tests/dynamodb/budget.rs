//! Requests per action, counted on the wire.

use operators_kernel::{ClaimAnswer, Clearance, Reason, Refusal};
use operators_tests::conformance::desk::{again, applied, ask};

use crate::common::{process, table};

const WRITE: &str = "TransactWriteItems";
const READ: &str = "TransactGetItems";

#[tokio::test(flavor = "multi_thread")]
async fn a_new_action_is_two_requests() {
    let Some((_, url, proxy)) = table().await else {
        return;
    };
    let desk = process(&url).await;
    // Finds the end of a lane, once per process and tenant.
    desk.run(&ask("order:0", "k0"), applied()).await;
    proxy.take();
    desk.run(&ask("order:1", "k1"), applied()).await;
    assert_eq!(proxy.take(), [WRITE, WRITE], "an entity nobody touched");
    desk.run(&ask("order:1", "k2"), applied()).await;
    assert_eq!(proxy.take(), [WRITE, WRITE], "an entity touched before");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entity_that_another_process_touched_costs_one_more_once() {
    let Some((_, url, proxy)) = table().await else {
        return;
    };
    let (desk, other) = (process(&url).await, process(&url).await);
    desk.run(&ask("order:0", "k0"), applied()).await;
    other.run(&ask("order:1", "k1"), applied()).await;
    proxy.take();
    desk.run(&ask("order:1", "k2"), applied()).await;
    assert_eq!(proxy.take(), [WRITE, WRITE, WRITE]);
    desk.run(&ask("order:1", "k3"), applied()).await;
    assert_eq!(proxy.take(), [WRITE, WRITE]);
}

/// Rule 8.5 too: the refused write changed nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_is_one_request_and_its_share_of_a_batch_of_receipts() {
    let Some((_, url, proxy)) = table().await else {
        return;
    };
    let desk = process(&url).await;
    let claims: Vec<_> = (0..60)
        .map(|n| ask(&format!("order:{n}"), &format!("k{n}")))
        .collect();
    for claim in &claims {
        desk.run(claim, applied()).await;
    }
    proxy.take();
    desk.duplicate(&again(&claims[0])).await;
    assert_eq!(proxy.take(), [WRITE, WRITE], "alone, its batch is its own");
    let before = desk.key("k7").await;
    proxy.take();
    let repeats = claims.iter().map(|claim| desk.filled(&again(claim)));
    let answers = desk.store.claim(&desk.tenant, repeats.collect()).await;
    let answers = answers.expect("the store answers");
    assert!(
        answers
            .iter()
            .all(|a| matches!(a, ClaimAnswer::Duplicate { .. }))
    );
    let seen = proxy.take();
    println!("60 duplicates at once: {} requests", seen.len());
    assert!(seen.iter().all(|operation| operation == WRITE), "{seen:?}");
    assert!(seen.len() < 60 + 30, "{} requests", seen.len());
    assert_eq!(desk.key("k7").await, before);
    assert_eq!(desk.trail().await.len(), 60 + 1 + 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_one_request_and_its_share_of_a_batch_of_receipts() {
    let Some((_, url, proxy)) = table().await else {
        return;
    };
    let desk = process(&url).await;
    desk.run(&ask("order:0", "k0"), applied()).await;
    let mut blocked = ask("order:1", "k1");
    blocked.clearance = Clearance::Refused(Refusal::new(Reason::Policy, "no"));
    proxy.take();
    desk.refused_as(Reason::Policy, &blocked).await;
    assert_eq!(proxy.take(), [READ, WRITE]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_contended_turn_costs_two_more() {
    let Some((url, proxied, proxy)) = table().await else {
        return;
    };
    let (holder, desk) = (process(&url).await, process(&proxied).await);
    desk.run(&ask("order:0", "k0"), applied()).await;
    let held = holder.take(&ask("order:1", "k1")).await;
    proxy.take();
    let mut claim = ask("order:1", "k2");
    claim.ticket = Some(desk.queue(&claim).await);
    let queued = proxy.take();
    assert_eq!(queued, [WRITE, "GetItem", WRITE], "refused, looked, queued");
    holder.end(&held, applied()).await;
    let attempt = desk.take(&claim).await;
    assert_eq!(proxy.take(), [READ, WRITE], "its turn");
    desk.end(&attempt, applied()).await;
    assert_eq!(proxy.take(), [WRITE]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_is_a_beat_and_a_look_at_the_others() {
    let Some((_, url, proxy)) = table().await else {
        return;
    };
    let desk = process(&url).await;
    proxy.take();
    desk.store.heartbeat(desk.session).await.expect("beats");
    assert_eq!(proxy.take(), ["UpdateItem", "GetItem", "BatchGetItem"]);
}
