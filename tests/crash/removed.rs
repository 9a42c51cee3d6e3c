//! The files beside a store are removed while processes have it open (`rm store.db-*`, a cleaner of
//! temporary files): by rules 3.1, 8.1 and 8.6 no key is forgotten, whoever starts, is killed or ends.

use std::fs;
use std::path::Path;
use std::process::Command;

use operators_kernel::Disposition;
use operators_tests::history::Line;
use rusqlite::Connection;

use crate::arena::{Arena, Plan};
use crate::ground::Store;
use crate::process::{Ended, Victim};

const PLAN: Plan = Plan {
    actions: 40,
    entities: 2,
    repeats: 1,
};
/// What may be removed, each by itself and all at once; the last takes the locks of the living as well.
const REMOVED: [&[&str]; 4] = [
    &["-shm"],
    &["-wal"],
    &["-wal", "-shm"],
    &["-wal", "-shm", "-alive"],
];

fn remove(arena: &Arena, ends: &[&str]) {
    for end in ends {
        let file = arena.path(&format!("store.db{end}"));
        fs::remove_file(file).expect("it is there");
    }
}

fn results(lines: &[Line]) -> usize {
    let is_result = |line: &&Line| matches!(line, Line::Result(_));
    lines.iter().filter(is_result).count()
}

/// What every action came to when the whole plan is run by a process that starts now.
fn dispositions(arena: &Arena) -> Vec<Disposition> {
    let ended = arena.run_whole(&arena.orders());
    ended.results().iter().map(|one| one.decision).collect()
}

fn was_refused(ended: &Ended) -> bool {
    !ended.status.success() && !ended.was_killed()
}

/// A process has the store open; its index is removed; a second one burns all keys of the plan and is
/// killed. The first refuses, and took the log of the second with it as it left: all of it ran again.
#[test]
fn a_process_that_leaves_takes_nobody_elses_keys_with_it() {
    for ends in REMOVED {
        let arena = Arena::new(Store::Sqlite, "opaque", PLAN);
        let other = arena.orders_without_plan();
        let mut first = Victim::start(&other.with("--generate", "1:1:1:other").flag("--wait"));
        first.wait_until_ready();
        remove(&arena, ends);
        let mut second = Victim::start(&arena.orders());
        second.wait_until_result_or_end(PLAN.actions);
        arena.keep(second.killed());
        first.go();
        assert!(was_refused(&first.finish()), "{ends:?}: nothing is sent");
        let burned = arena.sink.wait_until_idle().len();
        let repeated = dispositions(&arena);
        assert_eq!(arena.sink.wait_until_idle().len(), PLAN.actions, "{ends:?}");
        let again = repeated.iter().filter(|one| **one == Disposition::Dedup);
        assert_eq!(again.count(), burned, "{ends:?}: what was burned stays so");
        arena
            .history()
            .assert_sound("removed beside a living process");
    }
}

/// What a process had burned before its log was removed is in no file any more but those it has open.
#[test]
fn a_process_whose_log_was_removed_puts_it_back_as_it_ends() {
    a_removed_log_is_put_back(|_| ());
}

/// Whoever opens the file makes an empty log in the place of one that was removed: a process that was
/// starting, another connection of one that runs, `sqlite3`. The removed one was lost by it, with every
/// key in it, in 7 of 25 removals while processes of ours were starting.
#[test]
fn an_empty_log_in_the_place_of_a_removed_one_changes_nothing() {
    a_removed_log_is_put_back(|arena| {
        let opened = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(arena.path("store.db-wal"));
        drop(opened.expect("opens"));
    });
}

fn a_removed_log_is_put_back(after: impl Fn(&Arena)) {
    for ends in REMOVED {
        let arena = Arena::new(Store::Sqlite, "opaque", PLAN);
        let slow = arena.orders().with("--behave", "before=20");
        let mut first = Victim::start(&slow);
        first.wait_until("some keys", |lines| results(lines) >= 10);
        remove(&arena, ends);
        after(&arena);
        let first = arena.keep(first.finish());
        assert!(was_refused(&first), "{ends:?}: nothing more is sent");
        let recorded = results(&first.lines);
        assert!(
            (10..PLAN.actions).contains(&recorded),
            "{ends:?}: {recorded}"
        );
        let known = dispositions(&arena);
        let known = known.iter().filter(|one| **one == Disposition::Dedup);
        assert!(known.count() >= recorded, "{ends:?}: a key was forgotten");
        arena.resolve_by_the_sinks_truth();
        arena.mend("its log was removed");
    }
}

/// A program that knows nothing of the rule opens the file without its index, writes, and ends. The
/// process that was there before knows less of the log, and folded that into the file as it ended.
#[test]
fn what_another_program_wrote_by_an_index_of_its_own_is_kept() {
    let arena = Arena::new(Store::Sqlite, "sql", PLAN);
    let file = arena.path("store.db");
    let wait = arena
        .orders_without_plan()
        .with("--generate", "1:1:1:other");
    arena.run(&wait);
    let make = "CREATE TABLE effects (line TEXT)";
    let by_hand = Connection::open(&file).expect("opens");
    by_hand.execute_batch(make).expect("makes");
    drop(by_hand);
    let mut first = Victim::start(&wait.flag("--wait"));
    first.wait_until_ready();
    remove(&arena, &["-shm"]);
    if !wrote_rows(&file) {
        return;
    }
    first.go();
    assert!(was_refused(&first.finish()), "nothing is sent");
    let file = Connection::open(&file).expect("opens");
    let rows = file.query_row("SELECT count(*) FROM effects", [], |row| row.get(0));
    assert_eq!(rows, Ok(ROWS));
    let sound = file.query_row("PRAGMA integrity_check", [], |row| row.get(0));
    assert_eq!(sound, Ok("ok".to_owned()));
}

const ROWS: i64 = 40;

/// Writes rows by a program with a `SQLite` of its own; `false` where there is none.
fn wrote_rows(file: &Path) -> bool {
    let insert = "INSERT INTO effects VALUES (hex(randomblob(2000)));";
    let insert = insert.repeat(usize::try_from(ROWS).expect("a few"));
    let script = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])";
    let mut python = Command::new("python3");
    match python.args(["-c", script]).arg(file).arg(insert).status() {
        Ok(status) => {
            assert!(status.success());
            true
        }
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "no python3: {error}");
            println!("skipped: no python3: {error}");
            false
        }
    }
}
