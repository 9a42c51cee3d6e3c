//! How the file is named, who may write it, and what lies beside it: by rule 8.4 whatever could let two
//! processes work on two stores, or lose one in silence, is refused by name.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use nix::unistd::{Uid, setfsuid};
use operators_kernel::{DurableExec, Ledger, StoreError};
use operators_seams::SqliteStore;
use operators_tests::conformance::desk::{Desk, LONG, applied, ask};
use operators_tests::stores::SqliteBench;
use rusqlite::Connection;

fn refusal(path: &Path) -> String {
    let error = SqliteStore::open(path).expect_err("refused");
    assert!(matches!(error, StoreError::Unusable { .. }), "{error:?}");
    let message = error.to_string();
    let name = format!("`{}`", path.display());
    assert!(message.contains(&name), "does not name the file: {message}");
    message
}

fn says(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
}

/// `SQLite` read `file:store.db` as the address of `store.db`. Its lock file and its log were looked
/// for beside another file, so that two processes took each other for dead (rule 2.9), and an older
/// copy over it was never noticed (rule 8.6).
#[tokio::test]
async fn a_path_that_looks_like_an_address_is_a_path() {
    let folder = tempfile::Builder::new()
        .prefix("file:")
        .tempdir_in(".")
        .expect("a folder");
    let path = Path::new(folder.path().file_name().expect("a name")).join("store.db");
    let store = SqliteStore::open(&path).expect("opens");
    let session = store.open_session("test", LONG).await.expect("a session");
    let mut names: Vec<_> = fs::read_dir(path.parent().expect("a folder"))
        .expect("lists")
        .map(|file| file.expect("an entry").file_name())
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["store.db", "store.db-alive", "store.db-shm", "store.db-wal"]
    );
    assert!(fs::metadata(&path).expect("asks").len() > 0);
    assert!(store.check().await.expect("looks").is_empty());
    fs::rename(&path, path.with_extension("away")).expect("moves");
    let beat = store.heartbeat(session).await.expect_err("refused");
    says(&beat.to_string(), &["store rolled back"]);
}

/// By rule 2.1 as well: each name has a log of its own, so two processes were both granted one key.
#[tokio::test]
async fn a_file_with_two_names_is_refused_until_it_has_one() {
    let bench = SqliteBench::fresh();
    let desk = Desk::open(&bench).await;
    desk.run(&ask("e1", "k1"), applied()).await;
    let other = bench.folder().join("other.db");
    fs::hard_link(bench.path(), &other).expect("links");
    for path in [&other, &bench.path()] {
        says(&refusal(path), &["2 names", "remove the others", "copies"]);
    }
    assert!(!bench.folder().join("other.db-wal").exists());
    desk.run(&ask("e2", "k2"), applied()).await;
    fs::remove_file(&other).expect("removes");
    bench.store();
}

/// `SQLite` takes an empty file for a new one and removes the log beside it: every key of a process
/// that was killed was forgotten, and its actions ran again.
#[tokio::test]
async fn a_log_whose_file_is_empty_or_gone_is_refused_and_left_alone() {
    for is_gone in [true, false] {
        let bench = SqliteBench::fresh();
        let desk = Desk::open(&bench).await;
        desk.run(&ask("e1", "k1"), applied()).await;
        let killed = bench.folder().join("killed");
        fs::create_dir(&killed).expect("a folder");
        let (path, log) = (killed.join("store.db"), killed.join("store.db-wal"));
        fs::copy(bench.folder().join("store.db-wal"), &log).expect("copies");
        if !is_gone {
            fs::write(&path, "").expect("writes");
        }
        let before = fs::read(&log).expect("reads");
        assert!(!before.is_empty());
        let message = refusal(&path);
        says(&message, &["store.db-wal`", "restore both", "start anew"]);
        assert_eq!(fs::read(&log).expect("reads"), before);
        assert_eq!(path.exists(), !is_gone);
        // As the message says.
        fs::rename(&log, killed.join("away")).expect("moves");
        SqliteStore::open(&path).expect("starts anew");
    }
}

#[test]
fn a_link_to_nothing_is_refused() {
    let bench = SqliteBench::fresh();
    symlink("/nowhere/store.db", bench.path()).expect("a link");
    says(
        &refusal(&bench.path()),
        &["link to `/nowhere/store.db`", "not there"],
    );
}

/// `SQLite` opens for reading what it may not write, so it was found out by the first action, and
/// `doctor` found nothing wrong.
#[tokio::test]
async fn a_file_that_may_not_be_written_is_refused() {
    let bench = SqliteBench::fresh();
    let store = bench.store();
    store.open_session("test", LONG).await.expect("a session");
    drop(store);
    let everybody = fs::Permissions::from_mode(0o777);
    fs::set_permissions(bench.folder(), everybody).expect("sets");
    fs::set_permissions(bench.path(), fs::Permissions::from_mode(0o444)).expect("sets");
    // Of this thread alone; who is not root stays who it is.
    let before = setfsuid(Uid::from_raw(65_534));
    let refused = SqliteStore::open(&bench.path());
    setfsuid(before);
    let message = refused.expect_err("refused").to_string();
    says(
        &message,
        &["store.db`", "read-only", "must be able to write"],
    );
}

/// What is wrong with a row lies within sound pages; it was told of nothing but the action that met it.
#[tokio::test]
async fn records_that_cannot_be_read_or_disagree_are_found() {
    for (damage, found) in [
        (
            "UPDATE key SET fingerprint = CAST(X'FF' AS TEXT)",
            "key `k1`: a key's row cannot be read",
        ),
        (
            "UPDATE key SET proposal = '{}'",
            "key `k1`: a key's proposal cannot be read",
        ),
        (
            "UPDATE key SET application = CAST(X'FF' AS TEXT)",
            "key `k1`: a key's row cannot be read",
        ),
        (
            "UPDATE entity SET holder = 424242",
            "entity `e1` is held by session 424242, which is dead",
        ),
        (
            "DROP TRIGGER receipt_no_delete; DELETE FROM receipt",
            "key `k1` is burned but its receipt is gone",
        ),
        (
            "UPDATE key SET phase = 'in_doubt'",
            "key `k1` is in doubt but does not hold its entity",
        ),
    ] {
        let bench = SqliteBench::fresh();
        let desk = Desk::open(&bench).await;
        desk.run(&ask("e1", "k1"), applied()).await;
        assert!(desk.store.check().await.expect("checks").is_empty());
        let by_hand = Connection::open(bench.path()).expect("opens");
        by_hand.execute_batch(damage).expect("damages");
        let problems = desk.store.check().await.expect("checks");
        assert_eq!(problems.len(), 1, "{problems:?}");
        says(&problems[0], &[found]);
        if found.contains("cannot be read") {
            let refused = desk.try_ask(&ask("e1", "k1")).await.expect_err("refused");
            assert!(!refused.is_retryable(), "{refused}");
            says(&refused.to_string(), &["store.db`", "restore the file"]);
        }
    }
}
