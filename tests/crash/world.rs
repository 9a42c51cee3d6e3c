//! The stage itself: a store that several processes make at once, and a sink that does as it is told.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::Duration;

use operators_kernel::life::Phase;
use operators_kernel::{ActionResult, Reason};
use operators_tests::fixtures;
use operators_tests::history::{Line, open_store};
use operators_tests::sink::{Hit, Sink};

use crate::arena::{Arena, Plan, block_on};
use crate::ground::Store;
use crate::pool;
use crate::process::Victim;
use crate::random::{Random, kills, seed};

const ONE: Plan = Plan {
    actions: 1,
    entities: 1,
    repeats: 1,
};

/// By rule 8.4: a fresh file is nobody else's. Those who made one together used to see it half made:
/// the tables of a migration without its mark ("another program's database"), or the switch to a
/// write-ahead log, for which `SQLite` does not wait ("database is locked").
#[test]
fn a_store_made_by_many_at_once_opens_for_all() {
    for _ in 0..30 {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite:{}", folder.path().join("store.db").display());
        let start = Barrier::new(6);
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    start.wait();
                    block_on(open_store(&url)).expect("it opens for everybody");
                });
            }
        });
    }
}

/// By rules 8.1, 8.4: killed while it makes the store, at any moment, the next one finds nothing or
/// the whole of it.
#[test]
fn a_store_whose_making_was_killed_opens_for_the_next() {
    let seed = seed("making a store");
    let reached = pool::trials(10 * kills(3), |number| {
        let mut random = Random::of_trial(seed, number);
        let arena = Arena::new(Store::Sqlite, "opaque", ONE);
        let victim = Victim::start(&arena.orders().flag("--wait"));
        std::thread::sleep(Duration::from_micros(random.below(40_000)));
        let was_there = arena.path("store.db").exists();
        let ended = arena.keep(victim.killed());
        assert!(ended.was_killed(), "{ended:#?}");
        arena.mend("killed while it made the store");
        (was_there, ended.lines.contains(&Line::Ready))
    });
    let midway = reached.iter().filter(|(made, ready)| *made && !*ready);
    println!(
        "{} of {} died with a store half made",
        midway.count(),
        reached.len()
    );
}

/// Runs one action against a sink that behaves like this.
fn one_call(behave: &str) -> (Arena, ActionResult, Vec<Hit>) {
    let arena = Arena::new(Store::Sqlite, "opaque", ONE);
    let orders = arena
        .orders()
        .with("--behave", behave)
        .with("--timeout-ms", 250);
    let ended = arena.run_whole(&orders);
    let result = ended.results()[0].clone();
    let hits = arena.sink.wait_until_idle();
    arena.history().assert_sound(behave);
    (arena, result, hits)
}

/// By rules 3.3, 4.1, 4.2: what the vendor's answer, or the lack of one, leaves behind.
#[test]
fn an_answer_decides_and_its_lack_is_a_doubt() {
    for (behave, reason, phase, takes_effect) in [
        ("", None, Phase::Applied, true),
        ("before=20,after=20", None, Phase::Applied, true),
        ("status=422", Some(Reason::Failed), Phase::Failed, false),
        ("status=500", Some(Reason::Failed), Phase::Failed, false),
        ("then=hang", Some(Reason::InDoubt), Phase::InDoubt, true),
        ("then=close", Some(Reason::InDoubt), Phase::InDoubt, true),
        ("before=600", Some(Reason::InDoubt), Phase::InDoubt, true),
        (
            "status=422,then=close",
            Some(Reason::InDoubt),
            Phase::InDoubt,
            false,
        ),
        ("status=503", Some(Reason::InDoubt), Phase::InDoubt, false),
    ] {
        let (arena, result, hits) = one_call(behave);
        assert_eq!(result.reason, reason, "{behave}: {result:?}");
        let history = arena.history();
        let record = &history.keys[&fixtures::key("key-0")];
        assert_eq!(record.phase, phase, "{behave}");
        assert_eq!(hits.len(), 1, "{behave}");
        assert_eq!(hits[0].is_effect(), takes_effect, "{behave}: {hits:?}");
        arena.mend(behave);
    }
}

#[test]
fn the_sink_behaves_as_told_for_the_next_requests_and_keeps_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log.jsonl");
    let program = Path::new(env!("CARGO_BIN_EXE_operators-sink"));
    let sink = Sink::start_with(program, Some(&log));
    sink.behave(2, "status=422");
    for expected in ["the sink was told", "the sink was told", "held"] {
        let said = operators_tests::sink::ask(sink.port(), "POST", "/apply/x");
        assert!(said.expect("an answer").contains(expected));
    }
    let hits = sink.hits();
    let effects: Vec<bool> = hits.iter().map(Hit::is_effect).collect();
    assert_eq!(effects, [false, false, true]);
    let text = std::fs::read_to_string(&log).expect("a log");
    let last = text.lines().last().expect("a line");
    assert_eq!(serde_json::from_str::<Hit>(last).expect("a hit"), hits[2]);
}

#[test]
fn the_sink_ends_with_its_test() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_operators-sink"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the sink starts");
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
}
