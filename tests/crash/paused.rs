//! A process paused at a system call between its claim and its answer, until it was given up and
//! another process ran its action: when it goes on, it must not have an effect of its own.
//!
//! `OPERATORS_PAUSES=all` pauses at every system call from the claim to the end, one process each,
//! instead of at those of one name. Effects are counted by the sink. Statements are paused in
//! `late_commit`.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use operators_tests::pausing::{self, Place, Watch};

use crate::arena::{Arena, Plan};
use crate::ground::Store;
use crate::pool;
use crate::process::{Orders, Victim};

/// Long enough to attach to a process that has claimed, on a busy machine too.
const LEASE_MS: u64 = 4_000;
const TIMEOUT_MS: u64 = 3_000;
const MAX_LAND_MS: u64 = 200;

/// After a pause of this length the process was given up, and "not applied" is believed.
const PAUSE: Duration = Duration::from_millis(LEASE_MS + MAX_LAND_MS + 300);

/// How long a process may take to its stop or its end.
const PATIENCE: Duration = Duration::from_mins(1);

/// How often a process may be attached to too late, on a very busy machine.
const TRIES_MAX: usize = 10;

const ONE: Plan = Plan {
    actions: 1,
    entities: 1,
    repeats: 1,
};

/// What became of one process.
#[derive(Debug)]
struct Trial {
    is_paused: bool,
    /// The calls it made from its claim to its end.
    calls: Vec<Place>,
    /// Whether its own request had its effect before the pause, or without one.
    has_landed: bool,
}

/// By rules 4.6, 4.12: paused between connecting and its first byte, `http` sends nothing when it
/// goes on after another process has run the action.
#[test]
fn a_paused_call_of_http_is_not_sent_after_it_was_given_up() {
    if pausing::can_be_had() {
        sweep("opaque", "connect");
    }
}

/// By rules 4.6, 4.12: likewise a call of an MCP server, which is found, greeted and asked for its
/// tools first, each over a connection.
#[test]
fn a_paused_call_of_an_mcp_server_is_not_sent_after_it_was_given_up() {
    if pausing::can_be_had() {
        sweep("mcp-web", "connect");
    }
}

/// Pauses at each call of that name, one process each; at every call of the window, if asked to.
fn sweep(effect: &str, name: &str) {
    let whole = paused(effect, None);
    assert!(whole.has_landed, "{whole:#?}");
    let mut places = whole.calls;
    if std::env::var("OPERATORS_PAUSES").as_deref() != Ok("all") {
        places.retain(|place| place.call == name);
    }
    let trials = pool::trials(places.len(), |nth| {
        (nth, paused(effect, Some(&places[nth])))
    });
    let is_before = |trial: &Trial| trial.is_paused && !trial.has_landed;
    let before = trials.iter().filter(|(_, trial)| is_before(trial));
    let before: Vec<&Place> = before.map(|(nth, _)| &places[*nth]).collect();
    let paused = trials.iter().filter(|(_, trial)| trial.is_paused).count();
    println!("{effect}: paused at {paused} of {} calls", places.len());
    println!(
        "{effect}: paused before it sent at {}: {before:?}",
        before.len()
    );
    assert!(!before.is_empty(), "{effect}: never paused before it sent");
}

/// One process, paused at that call, and others that run its action meanwhile. One that was
/// attached to so late that its lease was over by then is no trial, and another is made.
fn paused(effect: &str, place: Option<&Place>) -> Trial {
    let mut tries = (0..TRIES_MAX).filter_map(|_| trial(effect, place));
    tries.next().expect("a process that still has its lease")
}

fn trial(effect: &str, place: Option<&Place>) -> Option<Trial> {
    let arena = Arena::new(Store::Sqlite, effect, ONE);
    let within = |orders: Orders| {
        orders
            .with("--lease-ms", LEASE_MS)
            .with("--timeout-ms", TIMEOUT_MS)
            .with("--max-land-ms", MAX_LAND_MS)
    };
    let orders = within(arena.orders())
        .with("--freeze", "before-send:1")
        .flag("--one-thread");
    let mut victim = Victim::start(&orders);
    victim.wait_until_frozen();
    let log = arena.path("calls");
    let watch = Watch::attach(victim.id(), place, &log);
    victim.signal(Signal::SIGCONT);
    let is_stopped = stops(&mut victim, &watch);
    let context = format!("{effect}, paused {is_stopped} at {place:?}");
    let effects = || arena.history().effects("key-0").count();
    let mut has_landed = true;
    // A process that stops in the middle of a transaction holds up everybody for another reason.
    if is_stopped && !arena.is_locked() {
        std::thread::sleep(PAUSE);
        has_landed = effects() > 0;
        // The other finds the doubt; a person answers it by what the sink knows; it is proposed anew.
        for _ in 0..2 {
            arena.run_whole(&within(arena.orders()));
            arena.resolve_by_the_sinks_truth();
        }
        arena.run_whole(&within(arena.orders()));
        assert_eq!(effects(), 1, "{context}: it was not run meanwhile");
    }
    if is_stopped {
        victim.signal(Signal::SIGCONT);
    }
    let ended = arena.keep(victim.finish());
    drop(watch);
    assert!(ended.status.success(), "{context}: {ended:#?}");
    let history = arena.history();
    history.assert_sound(&context);
    if !is_stopped && effects() == 0 {
        return None;
    }
    assert_eq!(effects(), 1, "{context}: {ended:#?}");
    Some(Trial {
        is_paused: is_stopped,
        calls: pausing::calls(&log),
        has_landed,
    })
}

/// Waits until it is stopped at its call; false if it came to its end.
fn stops(victim: &mut Victim, watch: &Watch) -> bool {
    let start = Instant::now();
    loop {
        if victim.has_ended() {
            return false;
        }
        if watch.has_stopped_it() {
            return true;
        }
        assert!(start.elapsed() < PATIENCE, "neither stopped nor ended");
        std::thread::sleep(Duration::from_millis(2));
    }
}
