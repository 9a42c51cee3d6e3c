//! The hands of somebody with the file.

use async_trait::async_trait;
use operators_kernel::Receipt;
use operators_kernel::log::{Frontier, LogEntry};
use operators_tests::stores::SqliteBench;
use rusqlite::{Connection, Params};
use std::path::PathBuf;

use crate::hands::{Forged, Hands, OTHER, text_of};

struct File {
    path: PathBuf,
}

impl File {
    fn of(bench: &SqliteBench) -> std::future::Ready<Self> {
        std::future::ready(Self { path: bench.path() })
    }

    fn open(&self) -> Connection {
        let connection = Connection::open(&self.path).expect("opens");
        connection
            .execute_batch(
                "DROP TRIGGER IF EXISTS receipt_no_update; DROP TRIGGER IF EXISTS receipt_no_delete",
            )
            .expect("no trigger stops an owner");
        connection
    }

    fn run(&self, statement: &str, params: impl Params) {
        let changed = self.open().execute(statement, params);
        assert!(changed.expect(statement) > 0, "{statement} changed nothing");
    }
}

#[async_trait]
impl Hands for File {
    async fn set_body(&self, receipt_id: &str, body: &str) {
        let set = "UPDATE receipt SET body = ?2 WHERE receipt_id = ?1";
        self.run(set, (receipt_id, body));
    }

    async fn delete(&self, receipt_id: &str) {
        self.run("DELETE FROM receipt WHERE receipt_id = ?1", [receipt_id]);
    }

    async fn cut_off(&self, entries: &[LogEntry]) {
        for entry in entries {
            self.delete(&entry.receipt_id).await;
        }
    }

    async fn rewrite(&self, forged: &Forged) {
        let set = "UPDATE receipt SET body = ?2, leaf = ?3, link = ?4 WHERE receipt_id = ?1";
        let (leaf, link) = (forged.leaf.as_bytes(), forged.link.as_bytes());
        self.run(set, (&forged.receipt_id, &forged.body, leaf, link));
    }

    async fn set_head(&self, head: &Frontier) {
        let size = i64::try_from(head.size()).expect("small");
        let set = "UPDATE log SET size = ?1, frontier = ?2";
        self.run(set, (size, head.to_bytes()));
    }

    async fn delete_everything(&self) {
        self.run("DELETE FROM receipt", []);
        self.run("DELETE FROM log", []);
    }

    async fn delete_key(&self, key: &str) {
        self.run("DELETE FROM key WHERE idempotency_key = ?1", [key]);
    }

    async fn free_key(&self, key: &str) {
        let free = "UPDATE key SET phase = 'failed' WHERE idempotency_key = ?1";
        self.run(free, [key]);
    }

    async fn insert(&self, receipt: &Receipt) {
        let insert = "INSERT INTO receipt (receipt_id, tenant, idempotency_key, settled_at, body) \
            VALUES (?1, ?2, ?3, ?4, ?5)";
        let tenant = receipt.tenant_id.as_str();
        let key = receipt.idempotency_key.as_str();
        let at = receipt.settled_at.to_string();
        self.run(
            insert,
            (
                receipt.receipt_id.as_str(),
                tenant,
                key,
                at,
                text_of(receipt),
            ),
        );
    }

    async fn swap_tenants(&self) {
        for table in ["receipt", "log"] {
            for (old, new) in [("acme", "?"), (OTHER, "acme"), ("?", OTHER)] {
                let set = format!("UPDATE {table} SET tenant = ?2 WHERE tenant = ?1");
                self.run(&set, (old, new));
            }
        }
    }

    async fn copy(&self) {
        let to = self.path.with_extension("old").display().to_string();
        self.open().execute("VACUUM INTO ?1", [to]).expect("copied");
    }

    async fn restore(&self) {
        let from = self.path.with_extension("old");
        for ending in ["db-wal", "db-shm"] {
            drop(std::fs::remove_file(self.path.with_extension(ending)));
        }
        std::fs::rename(from, &self.path).expect("moves");
    }
}

crate::tamperings!(SqliteBench::fresh(), File::of);
