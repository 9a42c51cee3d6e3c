//! The hands of somebody with every right to the table.

use std::collections::HashMap;
use std::sync::Mutex;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use operators_kernel::Receipt;
use operators_kernel::log::{Frontier, LogEntry};
use operators_tests::conformance::desk::{Desk, applied, ask};
use operators_tests::dynamodb::{DynamoBench, admin};
use operators_tests::stores::Bench as _;

use crate::hands::{Forged, Hands, OTHER, says, text_of, told};

type Item = HashMap<String, AttributeValue>;

struct Admin {
    client: Client,
    table: String,
    older: Mutex<Vec<Item>>,
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn name(item: &Item) -> &str {
    item["pk"].as_s().expect("a name")
}

impl Admin {
    async fn of(bench: &DynamoBench) -> Self {
        let (client, table) = admin(bench.url().await);
        Self {
            client,
            table,
            older: Mutex::new(Vec::new()),
        }
    }

    async fn all(&self) -> Vec<Item> {
        let scanned = self.client.scan().table_name(&self.table).send().await;
        let scanned = scanned.expect("scans");
        assert!(scanned.last_evaluated_key.is_none(), "a small table");
        scanned.items.unwrap_or_default()
    }

    async fn put(&self, item: Item) {
        let put = self.client.put_item().table_name(&self.table);
        put.set_item(Some(item)).send().await.expect("puts");
    }

    async fn remove(&self, item: &Item) {
        let delete = self.client.delete_item().table_name(&self.table);
        let delete = delete
            .key("pk", item["pk"].clone())
            .key("sk", item["sk"].clone());
        delete.send().await.expect("deletes");
    }

    async fn find(&self, kind: &str, ending: &str) -> Item {
        let all = self.all().await;
        let found = all.into_iter().find(|item| {
            name(item).starts_with(&format!("{kind}|")) && name(item).ends_with(ending)
        });
        found.unwrap_or_else(|| panic!("no {kind} {ending}"))
    }
}

#[async_trait]
impl Hands for Admin {
    async fn set_body(&self, receipt_id: &str, body: &str) {
        let mut item = self.find("receipt", receipt_id).await;
        item.insert("body".to_owned(), text(body));
        self.put(item).await;
    }

    async fn delete(&self, receipt_id: &str) {
        self.remove(&self.find("receipt", receipt_id).await).await;
    }

    async fn cut_off(&self, entries: &[LogEntry]) {
        let mut page = self.find("log", "acme").await;
        for entry in entries {
            self.delete(&entry.receipt_id).await;
        }
        let kept = usize::try_from(entries[0].position).expect("small");
        let ids = page["ids"].as_l().expect("ids")[..kept].to_vec();
        page.insert("ids".to_owned(), AttributeValue::L(ids));
        let hashes = page["hashes"].as_b().expect("hashes").as_ref()[..kept * 64].to_vec();
        page.insert("hashes".to_owned(), AttributeValue::B(Blob::new(hashes)));
        self.put(page).await;
    }

    async fn rewrite(&self, forged: &Forged) {
        self.set_body(&forged.receipt_id, &forged.body).await;
        let mut page = self.find("log", "acme").await;
        let mut hashes = page["hashes"].as_b().expect("hashes").as_ref().to_vec();
        let start = usize::try_from(forged.position).expect("small") * 64;
        hashes[start..start + 32].copy_from_slice(forged.leaf.as_bytes());
        hashes[start + 32..start + 64].copy_from_slice(forged.link.as_bytes());
        page.insert("hashes".to_owned(), AttributeValue::B(Blob::new(hashes)));
        self.put(page).await;
    }

    async fn set_head(&self, head: &Frontier) {
        let mut item = self.find("loghead", "acme").await;
        let frontier = AttributeValue::B(Blob::new(head.to_bytes()));
        item.insert("frontier".to_owned(), frontier);
        let size = AttributeValue::N(head.size().to_string());
        item.insert("size".to_owned(), size);
        self.put(item).await;
    }

    async fn delete_everything(&self) {
        for item in self.all().await {
            let kind = name(&item).split('|').next().unwrap_or_default();
            if ["receipt", "log", "loghead", "pages", "lane"].contains(&kind) {
                self.remove(&item).await;
            }
        }
    }

    async fn delete_key(&self, key: &str) {
        self.remove(&self.find("key", &format!(":{key}")).await)
            .await;
    }

    async fn free_key(&self, key: &str) {
        let mut item = self.find("key", &format!(":{key}")).await;
        item.insert("phase".to_owned(), text("failed"));
        self.put(item).await;
    }

    async fn insert(&self, receipt: &Receipt) {
        let (tenant, id) = (receipt.tenant_id.as_str(), &receipt.receipt_id);
        let name = format!("receipt|{}:{tenant}|{}:{id}", tenant.len(), id.len());
        self.put(HashMap::from([
            ("pk".to_owned(), text(&name)),
            ("sk".to_owned(), text("-")),
            ("body".to_owned(), text(&text_of(receipt))),
            ("lane".to_owned(), AttributeValue::N("0".to_owned())),
            ("number".to_owned(), AttributeValue::N("1".to_owned())),
        ]))
        .await;
    }

    async fn swap_tenants(&self) {
        let all = self.all().await;
        let kinds = ["receipt|", "log|", "loghead|", "pages|", "lane|"];
        let ours = |item: &&Item| kinds.iter().any(|kind| name(item).starts_with(kind));
        let mut swapped = Vec::new();
        for item in all.iter().filter(ours) {
            let (acme, other) = ("|4:acme".to_owned(), format!("|4:{OTHER}"));
            let renamed = if name(item).contains(&acme) {
                name(item).replace(&acme, &other)
            } else {
                name(item).replace(&other, &acme)
            };
            self.remove(item).await;
            let mut item = item.clone();
            item.insert("pk".to_owned(), text(&renamed));
            swapped.push(item);
        }
        for item in swapped {
            self.put(item).await;
        }
    }

    async fn copy(&self) {
        let all = self.all().await;
        *self.older.lock().expect("one thread") = all;
    }

    async fn restore(&self) {
        for item in self.all().await {
            self.remove(&item).await;
        }
        let older = std::mem::take(&mut *self.older.lock().expect("one thread"));
        for item in older {
            self.put(item).await;
        }
    }
}

/// By rule 11.5: a receipt that was deleted before anybody put it into the log is named, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_deleted_before_it_is_in_the_log() {
    let bench = DynamoBench::fresh();
    if let Some(why) = bench.missing() {
        println!("skipped: {why}");
        return;
    }
    let admin = Admin::of(&bench).await;
    let desk = Desk::open(&bench).await;
    desk.run(&ask("e1", "k1"), applied()).await;
    let gone = desk.run(&ask("e2", "k2"), applied()).await;
    desk.run(&ask("e3", "k3"), applied()).await;
    let id = &gone.proposal.receipt_id;
    admin.delete(id).await;
    let told = told(&bench, &desk, Vec::new()).await;
    says(&told, &[id, "2 of the log", "deleted"]);
}

crate::tamperings!(DynamoBench::fresh(), Admin::of);
