//! Signs of life on `SQLite` are locks in a file beside the store: by rule 2.9 a process that shows one
//! keeps its turns, whatever happens to that file and however the store is named.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use operators_kernel::{Beat, DurableExec, SessionId};
use operators_seams::SqliteStore;
use operators_tests::conformance::desk::LONG;
use operators_tests::stores::SqliteBench;

/// A process that came to stay.
async fn begun(store: SqliteStore) -> (SqliteStore, SessionId) {
    let session = store.open_session("test", LONG).await.expect("a session");
    (store, session)
}

/// Every session beats, twice: the second beat shows whether the first of another buried it.
async fn all_alive(sessions: &[(SqliteStore, SessionId)]) {
    for _ in 0..2 {
        for (store, session) in sessions {
            let beat = store.heartbeat(*session).await.expect("beats");
            assert_eq!(beat, Beat::Alive, "{session:?}");
        }
    }
}

/// A store through a link had a lock file of its own beside the link: both took each other for dead at
/// every heartbeat.
#[tokio::test]
async fn a_store_opened_through_a_link_is_seen_alive() {
    let bench = SqliteBench::fresh();
    let straight = bench.store();
    let folder = bench.folder().join("elsewhere");
    fs::create_dir(&folder).expect("a folder");
    symlink(bench.path(), folder.join("link.db")).expect("a link");
    symlink(bench.folder(), bench.folder().join("folder")).expect("a link");
    let linked = SqliteStore::open(&folder.join("link.db")).expect("opens");
    let inside = SqliteStore::open(&bench.folder().join("folder/store.db")).expect("opens");
    let mut sessions = Vec::new();
    for store in [straight, linked, inside] {
        sessions.push(begun(store).await);
    }
    all_alive(&sessions).await;
    assert!(!folder.join("link.db-alive").exists());
}

/// A lock file that is gone made everybody who came after invisible to those who were
/// there.
#[tokio::test]
async fn a_lock_file_that_was_removed_or_replaced_buries_nobody() {
    for replaced in [false, true] {
        let bench = SqliteBench::fresh();
        let lock_file = bench.folder().join("store.db-alive");
        let mut sessions = Vec::new();
        for _ in 0..2 {
            sessions.push(begun(bench.store()).await);
        }
        fs::remove_file(&lock_file).expect("removes");
        if replaced {
            fs::write(&lock_file, "").expect("writes");
        }
        all_alive(&sessions).await;
        sessions.push(begun(bench.store()).await);
        all_alive(&sessions).await;
    }
}

/// Whoever started before the others had noticed found none of their locks in the file
/// it made, and took them for dead. Only their leases are there to go by.
#[tokio::test]
async fn a_process_that_starts_with_another_lock_file_buries_nobody() {
    let bench = SqliteBench::fresh();
    let lock_file = bench.folder().join("store.db-alive");
    let mut sessions = Vec::new();
    for round in 0..3 {
        sessions.push(begun(bench.store()).await);
        if round < 2 {
            fs::remove_file(&lock_file).expect("removes");
        }
    }
    all_alive(&sessions).await;
    // By now all have their locks in the new file: whoever ends is missed at once.
    let (ended, session) = sessions.remove(0);
    drop(ended);
    let store = bench.store();
    store.open_session("test", LONG).await.expect("a session");
    let beat = store.heartbeat(session).await.expect("beats");
    assert_eq!(beat, Beat::Dead);
    all_alive(&sessions).await;
}

/// Whoever ended before it could notice is dead when its lease is over.
#[tokio::test]
async fn a_lock_file_that_is_gone_keeps_nobody_alive_for_ever() {
    let bench = SqliteBench::fresh();
    let short = Duration::from_millis(400);
    let ended = bench.store();
    let session = ended.open_session("test", short).await.expect("a session");
    drop(ended);
    fs::remove_file(bench.folder().join("store.db-alive")).expect("removes");
    let store = bench.store();
    store.open_session("test", LONG).await.expect("a session");
    tokio::time::sleep(short).await;
    store.open_session("test", LONG).await.expect("a session");
    let beat = store.heartbeat(session).await.expect("beats");
    assert_eq!(beat, Beat::Dead);
}
