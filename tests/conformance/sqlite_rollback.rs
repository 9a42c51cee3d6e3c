//! A file that is put back to what it was, or exchanged for another, while a process has it open: by
//! rule 8.6 nothing more is granted, settled or run there.
//!
//! Files are copied and moved by programs of their own, as a person would: to open and close a file in
//! the process that has it open as a database takes that database's locks away.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use operators_kernel::{ClaimAnswer, DurableExec, EffectClass, StoreError};
use operators_seams::SqliteStore;
use operators_tests::conformance::desk::{Desk, LONG, again, applied, ask, ask_as};
use operators_tests::conformance::transactional::taken;
use operators_tests::fixtures::tenant;
use operators_tests::stores::SqliteBench;
use rusqlite::Connection;
use serde_json::json;

fn run(program: &str, paths: &[&Path]) {
    let ran = Command::new(program).args(paths).status();
    assert!(ran.expect("starts").success(), "{program} {paths:?}");
}

/// Folds the log back into the file, and lets the next commit begin it anew.
fn fold(by_hand: &Connection) {
    by_hand
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
            assert_eq!(row.get::<_, i64>(0)?, 0, "nobody is in its way");
            Ok(())
        })
        .expect("folds");
}

/// A desk with one burned key, and a copy of its file as it was then.
struct Copied {
    bench: SqliteBench,
    desk: Desk,
    by_hand: Connection,
    older: PathBuf,
}

impl Copied {
    async fn now() -> Self {
        let bench = SqliteBench::fresh();
        let desk = Desk::open(&bench).await;
        desk.run(&ask("e1", "k1"), applied()).await;
        let by_hand = Connection::open(bench.path()).expect("opens");
        fold(&by_hand);
        let older = bench.folder().join("older.db");
        run("cp", &[&bench.path(), &older]);
        Self {
            bench,
            desk,
            by_hand,
            older,
        }
    }

    fn log(&self) -> PathBuf {
        self.bench.folder().join("store.db-wal")
    }

    fn index(&self) -> PathBuf {
        self.bench.folder().join("store.db-shm")
    }
}

fn is_rolled_back(error: &StoreError) {
    assert!(matches!(error, StoreError::Unusable { .. }), "{error:?}");
    assert!(!error.is_retryable());
    let said = error.to_string();
    for words in ["cannot be used: store rolled back:", "then restart"] {
        assert!(said.contains(words), "{said}");
    }
}

/// Whatever is asked, and however often.
async fn refuses_everything(desk: &Desk) {
    for _ in 0..2 {
        for (entity, key) in [("e2", "k2"), ("e3", "k3")] {
            let asked = desk.try_ask(&ask(entity, key)).await;
            is_rolled_back(&asked.expect_err("refused"));
        }
        let beat = desk.store.heartbeat(desk.session).await;
        is_rolled_back(&beat.expect_err("refused"));
        let opened = desk.store.open_session("test", LONG).await;
        is_rolled_back(&opened.expect_err("refused"));
    }
}

/// `k2` was burned, and the older copy does not know. What was sent and not settled stays so.
#[tokio::test]
async fn an_older_copy_over_the_file_is_refused() {
    for case in ["folded", "used since", "without its log"] {
        let copied = Copied::now().await;
        let attempt = copied.desk.take(&ask("e9", "k9")).await;
        copied.desk.run(&ask("e2", "k2"), applied()).await;
        match case {
            "folded" => fold(&copied.by_hand),
            "used since" => {
                fold(&copied.by_hand);
                let beat = copied.desk.store.heartbeat(copied.desk.session).await;
                beat.expect("the newest receipt is in its memory from here on");
            }
            _ => run("rm", &[&copied.log(), &copied.index()]),
        }
        run("cp", &[&copied.older, &copied.bench.path()]);
        refuses_everything(&copied.desk).await;
        let settled = copied.desk.store.settle(&tenant(), vec![attempt]).await;
        is_rolled_back(&settled.expect_err("refused"));
    }
}

/// What `SQLite` has in its log looked like a store that is whole, the newest receipt included: a key that
/// was burned between the copy and the log was free.
#[tokio::test]
async fn an_older_copy_under_a_log_that_went_on_is_refused() {
    let copied = Copied::now().await;
    let burn = async |letter: &str, many: u32| {
        for number in 0..many {
            let name = format!("{letter}{number:03}");
            copied.desk.run(&ask(&name, &name), applied()).await;
        }
    };
    burn("b", 200).await;
    fold(&copied.by_hand);
    run("cp", &[&copied.bench.path(), &copied.older]);
    burn("c", 100).await;
    fold(&copied.by_hand);
    burn("d", 20).await;
    run("cp", &[&copied.older, &copied.bench.path()]);
    let asked = copied.desk.try_ask(&ask("c050", "c050")).await;
    is_rolled_back(&asked.expect_err("not granted a second time"));
    refuses_everything(&copied.desk).await;
}

/// Two processes would work on two stores.
#[tokio::test]
async fn a_path_that_leads_to_another_file_is_refused() {
    for through_a_link in [false, true] {
        let copied = Copied::now().await;
        if !through_a_link {
            run("mv", &[&copied.older, &copied.bench.path()]);
            refuses_everything(&copied.desk).await;
            continue;
        }
        let link = copied.bench.folder().join("link.db");
        symlink(copied.bench.path(), &link).expect("a link");
        let store = SqliteStore::open(&link).expect("opens");
        let session = store.open_session("test", LONG).await.expect("a session");
        let other = copied.bench.folder().join("other.db");
        symlink(&copied.older, &other).expect("a link");
        run("mv", &[&other, &link]);
        let beat = store.heartbeat(session).await;
        is_rolled_back(&beat.expect_err("refused"));
        let asked = copied.desk.try_ask(&ask("e2", "k2")).await;
        asked.expect("who came straight has the same file");
    }
}

/// Another store has receipts and sessions of its own, as many or more; whoever was told nothing yet
/// does not miss any.
#[tokio::test]
async fn another_store_over_the_file_is_refused() {
    for told in [true, false] {
        let other = Copied::now().await;
        let bench = SqliteBench::fresh();
        let desk = Desk::open(&bench).await;
        if told {
            desk.run(&ask("e1", "k1"), applied()).await;
        }
        fold(&Connection::open(bench.path()).expect("opens"));
        run("cp", &[&other.older, &bench.path()]);
        refuses_everything(&desk).await;
    }
}

/// What is put back through `SQLite` itself changes no file behind its back; a receipt is gone all the
/// same, also if others have written as many since.
#[tokio::test]
async fn a_receipt_that_is_gone_is_missed_whatever_comes_next() {
    for refilled in [false, true] {
        for next in ["claim", "settle", "statement"] {
            let Copied { desk, by_hand, .. } = &Copied::now().await;
            by_hand
                .execute_batch("CREATE TABLE account (name TEXT)")
                .expect("makes");
            let attempt = desk.take(&ask("e9", "k9")).await;
            let claim = ask_as(EffectClass::Transactional, "account:ada", "k8");
            let insert = "INSERT INTO account VALUES ($1)";
            let performance = taken(desk, &claim, insert, json!(["ada"])).await;
            desk.run(&ask("e2", "k2"), applied()).await;
            by_hand
                .execute_batch(
                    "DROP TRIGGER receipt_no_delete;
                     DELETE FROM receipt WHERE sequence = (SELECT max(sequence) FROM receipt);",
                )
                .expect("deletes");
            if refilled {
                by_hand
                    .execute_batch(
                        "UPDATE sqlite_sequence SET seq = seq - 1 WHERE name = 'receipt';
                         INSERT INTO receipt (receipt_id, tenant, idempotency_key, settled_at, body)
                         VALUES ('rc_other', 'acme', 'k3', '', '{}')",
                    )
                    .expect("writes");
            }
            let error = match next {
                "claim" => desk.try_ask(&ask("e3", "k3")).await.expect_err(next),
                "settle" => {
                    let settled = desk.store.settle(&tenant(), vec![attempt]).await;
                    settled.expect_err(next)
                }
                _ => {
                    let performed = desk.store.perform(&desk.tenant, performance).await;
                    performed.expect_err(next)
                }
            };
            is_rolled_back(&error);
            refuses_everything(desk).await;
            let rows: i64 = by_hand
                .query_row("SELECT count(*) FROM account", [], |row| row.get(0))
                .expect("counts");
            assert_eq!(rows, 0, "{next}: nothing is run");
        }
    }
}

/// What happens to a file that is in use is no reason to refuse it.
#[tokio::test]
async fn a_file_that_is_looked_after_goes_on() {
    let copied = Copied::now().await;
    let Copied { desk, by_hand, .. } = &copied;
    by_hand
        .execute_batch("CREATE TABLE account (name TEXT)")
        .expect("makes");
    for (number, care) in [
        "fold",
        "touch",
        "vacuum",
        "copy",
        "other",
        "link",
        "statement",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("n{number}");
        desk.run(&ask(&name, &name), applied()).await;
        match care {
            "fold" => fold(by_hand),
            "touch" => run("touch", &[&copied.bench.path()]),
            "vacuum" => by_hand.execute_batch("VACUUM").expect("vacuums"),
            "copy" => run("cp", &[&copied.bench.path(), &copied.older]),
            "link" => run(
                "ln",
                &[&copied.bench.path(), &copied.older.with_extension("2")],
            ),
            "other" => drop(Desk::open(&copied.bench).await),
            _ => {
                let claim = ask_as(EffectClass::Transactional, "account:ada", "k8");
                let insert = "INSERT INTO account VALUES ($1)";
                let performance = taken(desk, &claim, insert, json!(["ada"])).await;
                let performed = desk.store.perform(&desk.tenant, performance).await;
                performed.expect("runs");
            }
        }
        let repeated = desk.try_ask(&again(&ask(&name, &name))).await;
        let repeated = repeated.unwrap_or_else(|error| panic!("{care}: {error}"));
        assert!(matches!(repeated, ClaimAnswer::Duplicate { .. }), "{care}");
    }
}
