//! What the dead left open, when there is much of it or some of it cannot be had.

use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::AttributeValue;
use operators_kernel::life::Phase;
use operators_kernel::{Beat, SessionId};
use operators_tests::conformance::desk::{Desk, ask};
use operators_tests::dynamodb::admin;
use operators_tests::proxy::Fate;

use crate::common::{process, process_lasting, table};

const WRITE: &str = "TransactWriteItems";

async fn beats(desk: &Desk) {
    let beat = desk.store.heartbeat(desk.session).await;
    assert_eq!(beat.expect("beats"), Beat::Alive);
}

async fn doubts(desk: &Desk) -> Vec<String> {
    let (found, _) = desk.store.doubts(&desk.tenant).await.expect("shown");
    let names = found
        .iter()
        .map(|key| key.proposal.idempotency_key.as_str());
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    names
}

/// Says that a session is dead, in its place; what it left is open still.
async fn declare_dead(url: &str, session: SessionId) {
    let (client, name) = admin(url);
    let dead = client.update_item().table_name(&name);
    let pk = format!("session|{}:{session}", session.to_string().len());
    let dead = dead.key("pk", AttributeValue::S(pk));
    let dead = dead.key("sk", AttributeValue::S("-".to_owned()));
    let dead = dead.update_expression("SET dead = :yes");
    let dead = dead.expression_attribute_values(":yes", AttributeValue::Bool(true));
    dead.send().await.expect("updates");
}

/// Rules 2.9, 4.3: one intent that nobody can read kept all others from becoming doubts, and every
/// process from starting.
#[tokio::test(flavor = "multi_thread")]
async fn an_intent_that_cannot_be_read_holds_up_no_other() {
    let Some((url, _, _)) = table().await else {
        return;
    };
    let (gone, watcher) = (process(&url).await, process(&url).await);
    for number in 1..=8 {
        let name = format!("k{number}");
        gone.take(&ask(&format!("order:{name}"), &name)).await;
    }
    let (client, name) = admin(&url);
    let put = |item| {
        client
            .put_item()
            .table_name(&name)
            .set_item(Some(item))
            .send()
    };
    let mut whole = Vec::new();
    // Two, so that one of them is in the way wherever a sweep begins.
    for key in ["k2", "k6"] {
        let found = client.get_item().table_name(&name);
        let found = found.key("pk", AttributeValue::S(format!("key|4:acme|2:{key}")));
        let found = found.key("sk", AttributeValue::S("-".to_owned()));
        let item = found.send().await.expect("answers").item.expect("a key");
        let mut damaged = item.clone();
        damaged.insert("fence".to_owned(), AttributeValue::S("?".to_owned()));
        put(damaged).await.expect("puts");
        whole.push(item);
    }
    declare_dead(&url, gone.session).await;
    beats(&watcher).await;
    assert_eq!(doubts(&watcher).await, ["k1", "k3", "k4", "k5", "k7", "k8"]);
    // Nor does it keep anybody from starting.
    let newcomer = process(&url).await;
    newcomer.take(&ask("order:9", "k9")).await;
    // They are not forgotten either.
    for item in whole {
        put(item).await.expect("puts");
    }
    beats(&watcher).await;
    assert_eq!(doubts(&watcher).await.len(), 8);
}

/// Rule 2.9: whoever makes doubts of very much must not be taken for dead meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_does_not_wait_for_all_that_the_dead_left() {
    const MANY: usize = 30;
    let lease = Duration::from_secs(3);
    let Some((url, proxied, proxy)) = table().await else {
        return;
    };
    let gone = process(&url).await;
    for number in 0..MANY {
        let name = format!("k{number:02}");
        gone.take(&ask(&format!("order:{name}"), &name)).await;
    }
    let watcher = process_lasting(&proxied, lease).await;
    declare_dead(&url, gone.session).await;
    proxy.rule(|operation| match operation {
        WRITE => Fate::Delay(Duration::from_millis(200)),
        _ => Fate::Pass,
    });
    let mut rounds = 0;
    while doubts(&watcher).await.len() < MANY {
        let begun = Instant::now();
        beats(&watcher).await;
        assert!(begun.elapsed() < lease, "{:?}", begun.elapsed());
        rounds += 1;
        assert!(rounds < 40, "no end");
    }
    assert!(rounds > 1, "all at once");
}

/// Rule 4.3: a claim that was under way when its process closed may land afterwards; its session was
/// off the list by then, and nobody found it who did not want its entity.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_lands_after_the_close_is_found() {
    let Some((url, proxied, proxy)) = table().await else {
        return;
    };
    let (desk, watcher) = (process(&proxied).await, process(&url).await);
    proxy.next(WRITE, [Fate::Delay(Duration::from_millis(700))]);
    let late = desk.clone();
    let late = tokio::spawn(async move { late.try_ask(&ask("order:1", "k1")).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    desk.close().await;
    assert!(watcher.find("k1").await.is_none(), "not yet");
    drop(late.await.expect("no panic"));
    assert_eq!(watcher.key("k1").await.phase, Phase::Intent);
    for _ in 0..20 {
        beats(&watcher).await;
        if doubts(&watcher).await == ["k1"] {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never found");
}
