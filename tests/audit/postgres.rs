//! The hands of a superuser.

use async_trait::async_trait;
use operators_kernel::Receipt;
use operators_kernel::json::hex;
use operators_kernel::log::{Frontier, LogEntry};
use operators_tests::postgres::{PgBench, run};

use crate::hands::{Forged, Hands, OTHER, text_of};

struct Superuser {
    url: String,
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

impl Superuser {
    async fn of(bench: &PgBench) -> Self {
        Self {
            url: bench.url().await,
        }
    }

    /// No trigger and no row-level security stops a superuser.
    async fn run(&self, sql: &str) {
        let sql = format!("SET session_replication_role = replica; {sql}");
        run(&self.url, &sql).await;
    }
}

#[async_trait]
impl Hands for Superuser {
    async fn set_body(&self, receipt_id: &str, body: &str) {
        let (id, body) = (quoted(receipt_id), quoted(body));
        let set = format!("UPDATE operators.receipt SET body = {body} WHERE receipt_id = {id}");
        self.run(&set).await;
    }

    async fn delete(&self, receipt_id: &str) {
        let id = quoted(receipt_id);
        self.run(&format!(
            "DELETE FROM operators.receipt WHERE receipt_id = {id}"
        ))
        .await;
    }

    async fn cut_off(&self, entries: &[LogEntry]) {
        for entry in entries {
            self.delete(&entry.receipt_id).await;
            let id = quoted(&entry.receipt_id);
            self.run(&format!(
                "DELETE FROM operators.leaf WHERE receipt_id = {id}"
            ))
            .await;
        }
    }

    async fn rewrite(&self, forged: &Forged) {
        self.set_body(&forged.receipt_id, &forged.body).await;
        let (leaf, link) = (hex(forged.leaf.as_bytes()), hex(forged.link.as_bytes()));
        let position = forged.position;
        self.run(&format!(
            "UPDATE operators.leaf SET leaf = '\\x{leaf}', link = '\\x{link}' \
             WHERE position = {position}"
        ))
        .await;
    }

    async fn set_head(&self, head: &Frontier) {
        let (size, frontier) = (head.size(), hex(&head.to_bytes()));
        self.run(&format!(
            "UPDATE operators.log SET size = {size}, frontier = '\\x{frontier}'"
        ))
        .await;
    }

    async fn delete_everything(&self) {
        self.run(
            "DELETE FROM operators.receipt; DELETE FROM operators.leaf; DELETE FROM operators.log",
        )
        .await;
    }

    async fn delete_key(&self, key: &str) {
        let key = quoted(key);
        self.run(&format!(
            "DELETE FROM operators.key WHERE idempotency_key = {key}"
        ))
        .await;
    }

    async fn free_key(&self, key: &str) {
        let key = quoted(key);
        self.run(&format!(
            "UPDATE operators.key SET phase = 'failed' WHERE idempotency_key = {key}"
        ))
        .await;
    }

    async fn insert(&self, receipt: &Receipt) {
        let values = [
            quoted(receipt.tenant_id.as_str()),
            quoted(receipt.idempotency_key.as_str()),
            quoted(&receipt.receipt_id),
            "0".to_owned(),
            quoted(&text_of(receipt)),
        ];
        self.run(&format!(
            "INSERT INTO operators.receipt (tenant, idempotency_key, receipt_id, settled_at, body) \
             VALUES ({})",
            values.join(", ")
        ))
        .await;
    }

    async fn swap_tenants(&self) {
        for table in ["receipt", "leaf", "log"] {
            for (old, new) in [("acme", "?"), (OTHER, "acme"), ("?", OTHER)] {
                self.run(&format!(
                    "UPDATE operators.{table} SET tenant = '{new}' WHERE tenant = '{old}'"
                ))
                .await;
            }
        }
    }

    async fn copy(&self) {
        self.run("CREATE SCHEMA older").await;
        for table in ["receipt", "leaf", "log", "key", "entity"] {
            self.run(&format!(
                "CREATE TABLE older.{table} AS TABLE operators.{table}"
            ))
            .await;
        }
    }

    async fn restore(&self) {
        for table in ["receipt", "leaf", "log", "key", "entity"] {
            self.run(&format!(
                "DELETE FROM operators.{table}; INSERT INTO operators.{table} \
                 OVERRIDING SYSTEM VALUE SELECT * FROM older.{table}"
            ))
            .await;
        }
    }
}

crate::tamperings!(PgBench::fresh(), Superuser::of);
