//! A table that forgot what it acknowledged is refused while the process runs (R9, rule 8.6).

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use operators_kernel::{Beat, Claim, StoreError};
use operators_seams::DynamoStore;
use operators_tests::conformance::desk::{Desk, again, applied, ask};
use operators_tests::dynamodb::admin;

use crate::common::{process, process_lasting, table};

type Item = HashMap<String, AttributeValue>;

/// Somebody who copies the table, and puts the copy back.
struct Backup {
    client: Client,
    table: String,
    items: Vec<Item>,
}

impl Backup {
    async fn of(url: &str) -> Self {
        let (client, table) = admin(url);
        let items = all(&client, &table).await;
        Self {
            client,
            table,
            items,
        }
    }

    /// The table is what it was, item by item.
    async fn restore(&self) {
        for item in all(&self.client, &self.table).await {
            let delete = self.client.delete_item().table_name(&self.table);
            let delete = delete.key("pk", item["pk"].clone());
            let deleted = delete.key("sk", item["sk"].clone()).send().await;
            deleted.expect("deletes");
        }
        for item in self.items.clone() {
            let put = self.client.put_item().table_name(&self.table);
            put.set_item(Some(item)).send().await.expect("puts");
        }
    }

    /// The table goes, and an empty one of its name comes.
    async fn make_anew(&self, url: &str) {
        let delete = self.client.delete_table().table_name(&self.table);
        delete.send().await.expect("deletes");
        DynamoStore::create_table(url).await.expect("makes");
    }
}

async fn all(client: &Client, table: &str) -> Vec<Item> {
    let scanned = client.scan().table_name(table).consistent_read(true).send();
    let scanned = scanned.await.expect("scans");
    assert!(scanned.last_evaluated_key.is_none(), "a small table");
    scanned.items.unwrap_or_default()
}

fn is_rolled_back(error: &StoreError) -> bool {
    matches!(error, StoreError::Unusable { .. }) && error.to_string().contains("store rolled back")
}

async fn is_refused(desk: &Desk, claim: &Claim) {
    let error = desk.try_ask(claim).await.expect_err("refused");
    assert!(is_rolled_back(&error), "{error}");
}

/// Rule 8.6: the key was burned and looks free; nothing is sent, now or later.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_applied_after_the_copy_is_not_sent_again() {
    let Some((url, proxied, proxy)) = table().await else {
        return;
    };
    let desk = process(&proxied).await;
    desk.run(&ask("e1", "k1"), applied()).await;
    let backup = Backup::of(&url).await;
    let burned = ask("e2", "k2");
    desk.run(&burned, applied()).await;
    backup.restore().await;
    is_refused(&desk, &again(&burned)).await;
    proxy.take();
    // From now on without a look: nothing that the table says counts.
    is_refused(&desk, &ask("e3", "k3")).await;
    let error = desk
        .store
        .heartbeat(desk.session)
        .await
        .expect_err("refused");
    assert!(is_rolled_back(&error), "{error}");
    let error = desk
        .store
        .open_session("test", Duration::from_secs(9))
        .await;
    assert!(is_rolled_back(&error.expect_err("refused")));
    assert_eq!(proxy.take(), Vec::<String>::new());
}

/// Rule 8.6: whatever this process was told last is what it misses, also where the key that looks
/// free is another process's, on an entity this one never touched.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_another_process_burned_after_the_copy_is_not_sent_again() {
    for told in ["a beat", "a receipt", "a session"] {
        let Some((url, _, _)) = table().await else {
            return;
        };
        let mut desk = process(&url).await;
        let other = process(&url).await;
        desk.run(&ask("e1", "k1"), applied()).await;
        let backup = Backup::of(&url).await;
        let burned = ask("e2", "k2");
        other.run(&burned, applied()).await;
        match told {
            "a beat" => {
                let beat = desk.store.heartbeat(desk.session).await;
                assert_eq!(beat.expect("beats"), Beat::Alive);
            }
            "a receipt" => {
                desk.duplicate(&again(&ask("e1", "k1"))).await;
            }
            _ => {
                let opened = desk.store.open_session("test", Duration::from_secs(99));
                desk.session = opened.await.expect("opens");
            }
        }
        backup.restore().await;
        is_refused(&desk, &again(&burned)).await;
        is_refused(&other, &again(&burned)).await;
    }
}

/// Rule 8.6: nor by a process whose session is gone with the rest: it is not dead, it never was.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_gone_is_not_taken_for_one_that_was_buried() {
    const LEASE: Duration = Duration::from_millis(600);
    let Some((url, _, _)) = table().await else {
        return;
    };
    let backup = Backup::of(&url).await;
    for by in ["a claim", "a heartbeat", "another session"] {
        let desk = process_lasting(&url, LEASE).await;
        desk.run(&ask("e1", by), applied()).await;
        backup.restore().await;
        // Nothing vouches for it any more: it has to look.
        tokio::time::sleep(LEASE * 2).await;
        let error = match by {
            "a claim" => desk.try_ask(&ask("e2", "k2")).await.expect_err("refused"),
            "a heartbeat" => {
                let beat = desk.store.heartbeat(desk.session).await;
                beat.expect_err("refused")
            }
            _ => {
                let opened = desk.store.open_session("test", LEASE).await;
                opened.expect_err("refused")
            }
        };
        assert!(is_rolled_back(&error), "{by}: {error}");
    }
}

/// Rule 8.6: an attempt that is over and whose intent is gone ends nowhere, and is a sign as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_finds_out_too() {
    let Some((url, _, _)) = table().await else {
        return;
    };
    let desk = process(&url).await;
    let backup = Backup::of(&url).await;
    let attempt = desk.take(&ask("e1", "k1")).await;
    backup.restore().await;
    let settled = desk.store.settle(&desk.tenant, vec![attempt]).await;
    let error = settled.expect_err("refused");
    assert!(is_rolled_back(&error), "{error}");
    is_refused(&desk, &ask("e2", "k2")).await;
}

/// Rule 8.6: an empty table under the same name.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_made_anew_under_its_name_is_refused() {
    let Some((url, _, _)) = table().await else {
        return;
    };
    let desk = process(&url).await;
    desk.run(&ask("e1", "k1"), applied()).await;
    Backup::of(&url).await.make_anew(&url).await;
    // Somebody else uses it already, and its sessions are counted from one again.
    let newcomer = process(&url).await;
    newcomer.run(&ask("e1", "other"), applied()).await;
    is_refused(&desk, &again(&ask("e1", "k1"))).await;
}

/// Rule 8.6: and one with all that was in the old one. What was acknowledged is there, so a session
/// goes on; a process that needs another one begins anew.
#[tokio::test(flavor = "multi_thread")]
async fn another_table_with_the_same_items_is_known_for_another() {
    let Some((url, _, _)) = table().await else {
        return;
    };
    let desk = process(&url).await;
    desk.run(&ask("e1", "k1"), applied()).await;
    let backup = Backup::of(&url).await;
    backup.make_anew(&url).await;
    backup.restore().await;
    desk.duplicate(&again(&ask("e1", "k1"))).await;
    desk.run(&ask("e1", "k2"), applied()).await;
    let opened = desk.store.open_session("test", Duration::from_secs(9));
    let error = opened.await.expect_err("refused");
    assert!(is_rolled_back(&error), "{error}");
    assert!(error.to_string().contains("another table"), "{error}");
    is_refused(&desk, &ask("e1", "k3")).await;
}

/// Rule 2.9: burial by others is what it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_others_buried_is_dead_and_the_process_goes_on() {
    const LEASE: Duration = Duration::from_millis(600);
    let Some((url, _, _)) = table().await else {
        return;
    };
    let mut desk = process_lasting(&url, LEASE).await;
    desk.run(&ask("e1", "k1"), applied()).await;
    let watcher = process(&url).await;
    tokio::time::sleep(LEASE * 2).await;
    let beat = watcher.store.heartbeat(watcher.session).await;
    assert_eq!(beat.expect("beats"), Beat::Alive);
    let error = desk.try_ask(&ask("e1", "k2")).await.expect_err("dead");
    assert!(matches!(error, StoreError::SessionDead { .. }), "{error}");
    let beat = desk.store.heartbeat(desk.session).await;
    assert_eq!(beat.expect("beats"), Beat::Dead);
    let opened = desk.store.open_session("test", Duration::from_secs(99));
    desk.session = opened.await.expect("opens");
    desk.run(&ask("e1", "k2"), applied()).await;
}
