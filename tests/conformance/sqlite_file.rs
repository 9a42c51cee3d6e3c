//! What the `SQLite` file promises besides the rules of every store: what it refuses, who may read
//! it, and that several handles share it (8.1, 8.4, 5.4, 2.1).

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::stat::{Mode, umask};
use operators_kernel::life::Phase;
use operators_kernel::{ClaimAnswer, DurableExec, EffectClass, Ledger, StoreError};
use operators_seams::SqliteStore;
use operators_tests::conformance::desk::{Desk, LONG, applied, ask, ask_as};
use operators_tests::conformance::transactional::taken;
use operators_tests::fixtures::tenant;
use operators_tests::stores::{Bench, SqliteBench};
use rusqlite::Connection;
use serde_json::json;

/// Opens what must be refused; the message, which names the file.
fn refusal(path: &Path) -> String {
    let error = SqliteStore::open(path).expect_err("refused");
    assert!(matches!(error, StoreError::Unusable { .. }), "{error:?}");
    let message = error.to_string();
    let name = format!("`{}`", path.display());
    assert!(message.contains(&name), "does not name the file: {message}");
    message
}

fn says(message: &str, words: &str) {
    assert!(message.contains(words), "{message}");
}

/// A file with one burned key in it, closed.
async fn used(bench: &SqliteBench) {
    let desk = Desk::open(bench).await;
    desk.run(&ask("order:1", "k1"), applied()).await;
    drop(desk);
    closed(bench).await;
}

/// The writing thread ends a moment after its handle, and takes the write-ahead log with it.
async fn closed(bench: &SqliteBench) {
    let log = bench.folder().join("store.db-wal");
    for _ in 0..400 {
        if !log.exists() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the store does not close");
}

/// By rule 8.4.
#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let bench = SqliteBench::fresh();
    used(&bench).await;
    let connection = Connection::open(bench.path()).expect("opens");
    connection
        .pragma_update(None, "user_version", 99)
        .expect("sets");
    drop(connection);
    let message = refusal(&bench.path());
    says(&message, "newer version");
    says(&message, "99");
    let connection = Connection::open(bench.path()).expect("opens");
    let version: i64 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .expect("shows");
    assert_eq!(version, 99);
}

/// By rules 8.1, 8.4: a file of the first schema is taken on as it is, its queue included.
#[tokio::test]
async fn a_file_of_an_older_schema_is_upgraded() {
    let bench = SqliteBench::fresh();
    let connection = Connection::open(bench.path()).expect("opens");
    let first = include_str!("../../seams/migrations/sqlite/0001_first.sql");
    connection.execute_batch(first).expect("makes");
    connection
        .execute_batch(
            "PRAGMA application_id = 0x6f707273; PRAGMA user_version = 1;
             INSERT INTO session (node, lease_us, alive_until) VALUES ('old', 1, 1);
             INSERT INTO waiter (tenant, entity_key, session_id) VALUES ('acme', 'order:1', 1);",
        )
        .expect("writes");
    drop(connection);
    let desk = Desk::open(&bench).await;
    desk.run(&ask("order:1", "k1"), applied()).await;
    desk.duplicate(&ask("order:1", "k1")).await;
}

/// By rule 8.4.
#[test]
fn another_programs_database_is_refused_and_left_alone() {
    let bench = SqliteBench::fresh();
    let connection = Connection::open(bench.path()).expect("opens");
    connection
        .execute_batch("CREATE TABLE bookmark (url TEXT); INSERT INTO bookmark VALUES ('x')")
        .expect("writes");
    drop(connection);
    let before = fs::read(bench.path()).expect("reads");
    says(&refusal(&bench.path()), "another program's database");
    assert_eq!(fs::read(bench.path()).expect("reads"), before);

    let bench = SqliteBench::fresh();
    let connection = Connection::open(bench.path()).expect("opens");
    connection
        .pragma_update(None, "application_id", 7)
        .expect("sets");
    drop(connection);
    says(&refusal(&bench.path()), "another program's database");
}

/// By rule 8.4.
#[test]
fn what_is_no_database_is_refused_and_left_alone() {
    let bench = SqliteBench::fresh();
    let garbage: Vec<u8> = (0..=u8::MAX).cycle().skip(77).take(8_192).collect();
    fs::write(bench.path(), &garbage).expect("writes");
    says(&refusal(&bench.path()), "not a SQLite file, or is damaged");
    assert_eq!(fs::read(bench.path()).expect("reads"), garbage);
}

/// By rule 8.4.
#[test]
fn a_folder_is_refused() {
    let bench = SqliteBench::fresh();
    fs::create_dir(bench.path()).expect("a folder");
    says(&refusal(&bench.path()), "not a regular file");
}

/// By rule 8.4.
#[test]
fn a_folder_that_cannot_be_made_is_refused() {
    let bench = SqliteBench::fresh();
    fs::write(bench.path(), "a file").expect("writes");
    refusal(&bench.path().join("inside/store.db"));
}

/// By rule 8.4: a page overwritten behind our back is found by a look-over, or at once.
#[tokio::test]
async fn a_damaged_page_is_found() {
    let bench = SqliteBench::fresh();
    let desk = Desk::open(&bench).await;
    for number in 0..200 {
        let name = format!("k{number}");
        desk.run(&ask(&name, &name), applied()).await;
    }
    assert!(desk.store.check().await.expect("checks").is_empty());
    drop(desk);
    closed(&bench).await;
    let pages = fs::metadata(bench.path()).expect("asks").len() / 4_096;
    let mut found = 0;
    for page in 2..pages.min(14) {
        let copy = bench.folder().join(format!("copy{page}.db"));
        fs::copy(bench.path(), &copy).expect("copies");
        let mut file = fs::OpenOptions::new()
            .write(true)
            .open(&copy)
            .expect("opens");
        file.seek(SeekFrom::Start(page * 4_096)).expect("seeks");
        file.write_all(&[0xAA; 4_096]).expect("writes");
        drop(file);
        match SqliteStore::open(&copy) {
            Err(error) => says(&error.to_string(), "copy"),
            Ok(store) => match store.check().await {
                Ok(problems) => assert!(!problems.is_empty(), "page {page} is not missed"),
                Err(error) => says(&error.to_string(), "copy"),
            },
        }
        found += 1;
    }
    assert!(found > 5, "the file has only {pages} pages");
}

/// By rule 8.4: half a file.
#[tokio::test]
async fn a_truncated_file_is_found() {
    let bench = SqliteBench::fresh();
    used(&bench).await;
    let length = fs::metadata(bench.path()).expect("asks").len();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(bench.path())
        .expect("opens");
    file.set_len(length / 2 / 4_096 * 4_096).expect("truncates");
    drop(file);
    match SqliteStore::open(&bench.path()) {
        Err(error) => says(&error.to_string(), "store.db"),
        Ok(store) => match store.check().await {
            Ok(problems) => assert!(!problems.is_empty()),
            Err(error) => says(&error.to_string(), "store.db"),
        },
    }
}

/// By rule 5.5: only their owner reads the files, whatever the process's mask says.
#[tokio::test]
async fn the_files_are_their_owners_alone() {
    let bench = SqliteBench::fresh();
    let before = umask(Mode::empty());
    let path = bench.folder().join("var/deep/store.db");
    let store = SqliteStore::open(&path);
    let opened = store.as_ref().map(|store| store.open_session("test", LONG));
    opened.expect("opens").await.expect("a session");
    umask(before);
    let mode = |path: &Path| {
        let found = fs::metadata(path).expect("asks");
        found.permissions().mode() & 0o777
    };
    assert_eq!(mode(&bench.folder().join("var")), 0o700);
    assert_eq!(mode(&bench.folder().join("var/deep")), 0o700);
    let mut names = Vec::new();
    for file in fs::read_dir(path.parent().expect("a folder")).expect("lists") {
        let file = file.expect("an entry").path();
        assert_eq!(mode(&file), 0o600, "{}", file.display());
        names.push(file.file_name().expect("a name").to_os_string());
    }
    assert!(names.len() >= 3, "{names:?}");
    drop(store);
}

/// By rules 8.2, 8.4: what is written to a file that is gone would be lost with it.
#[tokio::test]
async fn a_file_that_was_removed_or_replaced_is_written_no_more() {
    for replaced in [false, true] {
        let bench = SqliteBench::fresh();
        let desk = Desk::open(&bench).await;
        let attempt = desk.take(&ask("order:1", "k1")).await;
        fs::rename(bench.path(), bench.folder().join("away.db")).expect("moves");
        if replaced {
            fs::copy(bench.folder().join("away.db"), bench.path()).expect("copies");
        }
        for _ in 0..2 {
            let refused = desk.try_ask(&ask("order:2", "k2")).await;
            let error = refused.expect_err("refused");
            assert!(matches!(error, StoreError::Unusable { .. }), "{error:?}");
            assert!(!error.is_retryable());
            says(&error.to_string(), "removed or replaced");
        }
        let settled = desk.store.settle(&tenant(), vec![attempt.clone()]).await;
        settled.expect_err("refused too");
        if !replaced {
            fs::rename(bench.folder().join("away.db"), bench.path()).expect("moves back");
            desk.try_ask(&ask("order:2", "k2"))
                .await
                .expect_err("what happened meanwhile is not known");
        }
    }
}

/// A statement of others on a file that something happens to in between: what the statement heard, and
/// what the next call hears, which must be that nothing more is written.
async fn fails_under_a_statement(happens: impl FnOnce(&SqliteBench, &Connection)) -> String {
    let bench = SqliteBench::fresh();
    let desk = Desk::open(&bench).await;
    let by_hand = Connection::open(bench.path()).expect("opens");
    by_hand
        .execute_batch("CREATE TABLE account (name TEXT); INSERT INTO account VALUES ('ada')")
        .expect("writes");
    let claim = ask_as(EffectClass::Transactional, "account:ada", "k1");
    let insert = "INSERT INTO account VALUES ($1)";
    let performance = taken(&desk, &claim, insert, json!(["bob"])).await;
    happens(&bench, &by_hand);
    let performed = desk.store.perform(&desk.tenant, performance).await;
    let heard = performed.expect_err("not told as the statement's own failure");
    assert!(!heard.is_retryable(), "{heard}");
    let refused = desk.try_ask(&ask("order:1", "k2")).await;
    let error = refused.expect_err("refused");
    assert!(!error.is_retryable(), "{error}");
    says(&error.to_string(), "nothing more is written");
    heard.to_string()
}

/// By rule 8.4: what a statement of others meets of a failing disk is no answer of the database to
/// that statement, and nothing more is written into such a file.
#[tokio::test]
async fn a_disk_that_fails_under_a_statement_of_others_ends_all_writing() {
    let heard = fails_under_a_statement(|bench, by_hand| {
        let find = "SELECT rootpage FROM sqlite_schema WHERE name = 'account'";
        let page: u32 = by_hand.query_row(find, [], |row| row.get(0)).expect("page");
        by_hand
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .expect("folds the log back");
        let file = fs::OpenOptions::new().write(true).open(bench.path());
        let mut file = file.expect("opens");
        file.seek(SeekFrom::Start(u64::from(page - 1) * 4_096))
            .expect("seeks");
        file.write_all(&[0xAA; 4_096]).expect("writes");
    });
    says(&heard.await, "malformed");
}

/// By rule 12.3: a trigger may say whatever it likes, also what a failing disk would; that is the
/// database's answer to the statement, and nobody else's trouble.
#[tokio::test]
async fn a_trigger_that_speaks_of_the_disk_refuses_its_statement_alone() {
    let bench = SqliteBench::fresh();
    let desk = Desk::open(&bench).await;
    let by_hand = Connection::open(bench.path()).expect("opens");
    by_hand
        .execute_batch(
            "CREATE TABLE account (name TEXT);
             CREATE TRIGGER failing BEFORE INSERT ON account
               BEGIN SELECT RAISE (ROLLBACK, 'disk I/O error'); END",
        )
        .expect("makes");
    let claim = ask_as(EffectClass::Transactional, "account:ada", "k1");
    let insert = "INSERT INTO account VALUES ($1)";
    let performance = taken(&desk, &claim, insert, json!(["bob"])).await;
    let performed = desk.store.perform(&desk.tenant, performance).await;
    let answer = performed.expect("settled").answer;
    assert_eq!(answer.phase, Phase::Failed);
    says(&answer.error.expect("its words"), "disk I/O error");
    desk.run(&ask("order:1", "k2"), applied()).await;
}

/// By rule 5.4: not even by hand.
#[tokio::test]
async fn a_receipt_can_be_neither_changed_nor_deleted() {
    let bench = SqliteBench::fresh();
    let desk = Desk::open(&bench).await;
    desk.run(&ask("order:1", "k1"), applied()).await;
    let before = desk.entries().await;
    let by_hand = Connection::open(bench.path()).expect("opens");
    for statement in [
        "UPDATE receipt SET body = '{}'",
        "UPDATE receipt SET sequence = sequence + 1",
        "DELETE FROM receipt",
        "UPDATE OR REPLACE receipt SET tenant = 'globex'",
    ] {
        let error = by_hand.execute(statement, []).expect_err(statement);
        says(&error.to_string(), "append-only");
    }
    for (sequence, receipt_id) in [("sequence", "'rc_x'"), ("sequence + 9", "receipt_id")] {
        let replace = format!(
            "INSERT OR REPLACE INTO receipt (sequence, receipt_id, tenant, idempotency_key, \
             settled_at, body) SELECT {sequence}, {receipt_id}, tenant, idempotency_key, \
             settled_at, '{{}}' FROM receipt"
        );
        assert_eq!(by_hand.execute(&replace, []).expect("ignored"), 0);
    }
    assert_eq!(desk.entries().await, before);
}

/// By rules 2.1, 3.8: three handles, as three processes would have, on a few entities.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn three_handles_never_grant_one_turn_twice() {
    const HANDLES: usize = 3;
    const CLAIMS: usize = 200;
    let bench = SqliteBench::fresh();
    let inside: Arc<Vec<std::sync::atomic::AtomicUsize>> =
        Arc::new((0..4).map(|_| 0.into()).collect());
    let mut working = Vec::new();
    for handle in 0..HANDLES {
        let desk = Desk::open(&bench).await;
        let inside = Arc::clone(&inside);
        working.push(tokio::spawn(async move {
            let mut granted = 0;
            for number in 0..CLAIMS {
                let place = (number + handle) % inside.len();
                // Every key is proposed by all three.
                let mut claim = ask(
                    &format!("order:{place}"),
                    &format!("k{place}-{}", number / 4),
                );
                for asked in 0.. {
                    match desk.ask(&claim).await {
                        ClaimAnswer::Wait(ticket) => {
                            claim.ticket = Some(ticket);
                            let entity = &claim.proposal.entity_key;
                            desk.store.wait(&tenant(), entity, ticket, asked).await;
                        }
                        ClaimAnswer::Duplicate { .. } => break,
                        ClaimAnswer::Claimed(_) => {
                            use std::sync::atomic::Ordering::SeqCst;
                            assert_eq!(inside[place].fetch_add(1, SeqCst), 0, "two at once");
                            let attempt = desk.take(&claim).await;
                            assert_eq!(inside[place].fetch_sub(1, SeqCst), 1, "two at once");
                            desk.end(&attempt, applied()).await;
                            granted += 1;
                            break;
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            granted
        }));
    }
    let mut granted = 0;
    for worker in working {
        granted += worker.await.expect("no panic");
    }
    let desk = Desk::open(&bench).await;
    assert_eq!(granted, CLAIMS, "each key once");
    let entries = desk.entries().await;
    assert_eq!(entries.len(), HANDLES * CLAIMS, "each proposal its receipt");
    assert!(desk.store.check().await.expect("checks").is_empty());
}

/// By rule 8.1: a handle that was never used left nothing half-made for the next.
#[tokio::test]
async fn opening_at_the_same_time_makes_one_file() {
    let bench = Arc::new(SqliteBench::fresh());
    let opening: Vec<_> = (0..4)
        .map(|_| {
            let bench = Arc::clone(&bench);
            tokio::task::spawn_blocking(move || bench.store())
        })
        .collect();
    let mut sessions = Vec::new();
    for store in opening {
        let store = store.await.expect("opens");
        sessions.push(store.open_session("test", LONG).await.expect("a session"));
    }
    sessions.sort();
    sessions.dedup();
    assert_eq!(sessions.len(), 4);
    let desk = Desk::open(&*bench).await;
    assert!(desk.store.check().await.expect("checks").is_empty());
    assert!(bench.unit() > Duration::ZERO);
}
