//! A statement on a Postgres server whose process stands still before its commit: it is given up, another
//! process runs the action, and the first does not commit late. Rows are counted at the server.

use std::sync::mpsc::channel;
use std::time::Duration;

use nix::sys::signal::Signal;
use operators_tests::pausing::{self, Place, Watch};
use operators_tests::postgres::{self, Database, run};
use operators_tests::proxy::{Fate, Proxy};
use sqlx::Row as _;

use crate::arena::{Arena, Plan, block_on};
use crate::ground::Store;
use crate::paused::stops;
use crate::pool;
use crate::process::{Orders, Victim};

const ONE: Plan = Plan {
    actions: 1,
    entities: 1,
    repeats: 1,
};

/// Long enough to attach to a process that has claimed, on a busy machine too.
const LEASE_MS: u64 = 4_000;
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

/// By rules 4.6, 4.12: paused anywhere between its claim and its answer, it does not commit after
/// another process has run the action. The gate pauses it with the statement's answer in its hands;
/// with `OPERATORS_PAUSES=all` at every system call, one process each.
#[test]
fn a_paused_statement_does_not_commit_after_it_was_given_up() {
    if !pausing::can_be_had() || postgres::url().is_none() {
        return;
    }
    let (_, calls) = paused(None);
    let numbered = calls.iter().enumerate();
    let sent: Vec<usize> = numbered
        .filter(|(_, place)| place.call == "sendto")
        .map(|(at, _)| at)
        .collect();
    // The last one is a farewell, the one before it the commit.
    let [.., commit, _farewell] = sent[..] else {
        panic!("{calls:?}");
    };
    if std::env::var("OPERATORS_PAUSES").as_deref() != Ok("all") {
        let (is_paused, _) = paused(Some(&calls[commit - 1]));
        assert!(is_paused, "{calls:?}");
        return;
    }
    let trials = pool::trials(calls.len(), |nth| paused(Some(&calls[nth])).0);
    let is_paused = trials.iter().filter(|is_paused| **is_paused).count();
    println!(
        "sql on postgres: paused at {is_paused} of {} calls",
        calls.len()
    );
}

/// One process, paused at that call while another runs its action; whether it was, and the calls that
/// it made from its claim to its end. There is one row, whatever was done.
fn paused(place: Option<&Place>) -> (bool, Vec<Place>) {
    let database = effects().expect("a server");
    let url = database.url();
    let arena = Arena::new(Store::Sqlite, "sql", ONE);
    let orders = orders(&arena, &url)
        .with("--freeze", "before-send:1")
        .flag("--one-thread");
    let mut victim = Victim::start(&orders);
    victim.wait_until_frozen();
    let log = arena.path("calls");
    let watch = Watch::attach(victim.id(), place, &log);
    victim.signal(Signal::SIGCONT);
    let is_stopped = stops(&mut victim, &watch);
    // A process that stops in the middle of a transaction holds up everybody for another reason.
    if is_stopped && !arena.is_locked() {
        run_elsewhere(&arena, &url);
    }
    if is_stopped {
        victim.signal(Signal::SIGCONT);
    }
    arena.keep(victim.finish());
    drop(watch);
    let rows = count(&url, "SELECT count(*) FROM effects");
    assert_eq!(rows, 1, "paused {is_stopped} at {place:?}");
    (is_stopped, pausing::calls(&log))
}
