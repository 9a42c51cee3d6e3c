//! A statement on a Postgres server whose process stands still before its commit: it is given up, another
//! process runs the action, and the first does not commit late. Rows are counted at the server.

use std::sync::mpsc::channel;
use std::time::Duration;

use nix::sys::signal::Signal;
use operators_tests::postgres::{self, Database, run};
use operators_tests::proxy::{Fate, Proxy};
use sqlx::Row as _;

use crate::arena::{Arena, Plan, block_on};
use crate::ground::Store;
use crate::process::{Orders, Victim};

const ONE: Plan = Plan {
    actions: 1,
    entities: 1,
    repeats: 1,
};

const LEASE_MS: u64 = 1_000;
const TIMEOUT_MS: u64 = 4_000;
const MAX_LAND_MS: u64 = 4_000;

/// Well above deadline and `max_land`, on a busy machine too.
const INSISTS_MS: u64 = 40_000;

/// A table for effects, in a database of its own.
fn effects() -> Option<Database> {
    let server = postgres::url()?;
    Some(block_on(async {
        let database = Database::fresh(server).await;
        run(&database.url(), "CREATE TABLE effects (line TEXT)").await;
        database
    }))
}

fn count(url: &str, query: &str) -> i64 {
    block_on(run(url, query))[0].get(0)
}

fn orders(arena: &Arena, database: &str) -> Orders {
    arena
        .orders()
        .with("--database", database)
        .with("--lease-ms", LEASE_MS)
        .with("--timeout-ms", TIMEOUT_MS)
        .with("--max-land-ms", MAX_LAND_MS)
}

/// Stops it, but not inside of one of the store's transactions.
fn freeze(arena: &Arena, victim: &Victim) {
    loop {
        victim.signal(Signal::SIGSTOP);
        std::thread::sleep(Duration::from_millis(5));
        if !arena.is_locked() {
            return;
        }
        victim.signal(Signal::SIGCONT);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Another process gives the first one up and runs the action.
fn run_elsewhere(arena: &Arena, database: &str) {
    let orders = orders(arena, database).with("--insist-ms", INSISTS_MS);
    let other = arena.run_whole(&orders);
    let ran = other.results().last().is_some_and(|last| last.ok);
    assert!(ran, "{other:#?}");
    assert_eq!(count(database, "SELECT count(*) FROM effects"), 1);
}

/// By rule 4.6: it stands still at the very call that sends the commit, which the server gets after
/// everybody has given it up.
#[test]
fn a_commit_that_arrives_late_finds_no_transaction() {
    let Some(database) = effects() else {
        return;
    };
    let url = database.url();
    let arena = Arena::new(Store::Sqlite, "sql", ONE);
    let proxy = Proxy::before(&url);
    let ((told, commits), (free, freed)) = (channel(), channel());
    proxy.rule(move |name| {
        // The bound of the commit, and the commit with it.
        if name == "SET" {
            told.send(()).expect("the test waits");
            freed.recv().expect("the test says when");
        }
        Fate::Pass
    });
    let victim = Victim::start(&orders(&arena, proxy.url()));
    commits.recv().expect("it commits");
    freeze(&arena, &victim);
    run_elsewhere(&arena, &url);
    free.send(()).expect("the proxy waits");
    victim.signal(Signal::SIGCONT);
    arena.keep(victim.finish());
    assert_eq!(count(&url, "SELECT count(*) FROM effects"), 1);
}
