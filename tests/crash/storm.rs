//! Three processes on shared entities with a moody vendor, killed at random, over and over.

use std::path::PathBuf;
use std::time::Duration;

use operators_kernel::{ReceiptKind, ReceiptOutcome};
use operators_tests::fixtures;
use serde_json::json;

use crate::arena::{Arena, Plan};
use crate::ground::{Store, on_every_store};
use crate::process::Victim;
use crate::random::{Random, kills, seed};

on_every_store!(
    opaque_actions_survive_a_storm_of_kills,
    keyed_actions_survive_a_storm_of_kills,
    probeable_actions_survive_a_storm_of_kills,
);

/// New actions in each round; everybody proposes them, and those of the round before again.
const NEW: usize = 18;

const ENTITIES: usize = 6;

/// The moods of the vendor, one per life of a process. It never lands later than was declared.
const MOODS: [&str; 8] = [
    "",
    "before=20",
    "after=30",
    "before=150",
    "then=close",
    "status=422",
    "status=500",
    "before=10,after=40",
];

/// Storms of one test at the most.
const STORMS_MAX: u64 = 4;

/// Later than this a process has usually done all it had to do.
fn moment_ms_max(store: Store) -> u64 {
    match store {
        Store::Sqlite => 100,
        Store::Postgres | Store::DynamoDb => 300,
    }
}

/// By rules 2.1, 3.1, 4.2, 4.4, 5.1 under random kills; a vendor that knows nothing of keys.
fn opaque_actions_survive_a_storm_of_kills(store: Store) {
    storm(store, "opaque");
}

/// By rules 3.7, 4.5, 4.7 under random kills; a vendor that honours keys.
fn keyed_actions_survive_a_storm_of_kills(store: Store) {
    storm(store, "keyed");
}

/// By rules 4.6, 4.13 under random kills; a vendor that can be asked.
fn probeable_actions_survive_a_storm_of_kills(store: Store) {
    storm(store, "probeable");
}

/// Storms until enough actions were met in the middle: on a busy machine a process may be killed
/// before it has begun, over and over, and that would show nothing.
fn storm(store: Store, effect: &str) {
    let name = format!("storm, {}, {effect}", store.name());
    let seed = seed(&name);
    let rounds = kills(if store == Store::Sqlite { 8 } else { 4 });
    let storms = (0..STORMS_MAX).map(|number| one_storm(store, effect, seed + number, rounds));
    let doubts: usize = storms
        .scan(0, |all, doubts| {
            let go_on = *all < rounds / 4;
            *all += doubts;
            go_on.then_some(doubts)
        })
        .sum();
    assert!(doubts >= rounds / 4, "hardly anything was in the middle");
}

/// One storm, and how many doubts it left.
fn one_storm(store: Store, effect: &str, seed: u64, rounds: usize) -> usize {
    let name = format!("storm, {}, {effect}, seed {seed}", store.name());
    let mut random = Random::new(seed);
    let arena = Arena::new(
        store,
        effect,
        Plan {
            actions: NEW * rounds,
            entities: ENTITIES,
            repeats: 1,
        },
    );
    let mut killed = 0;
    for round in 0..rounds {
        let mut victims: Vec<(u64, Victim)> = (0..3)
            .map(|_| {
                let plan = plan_of(round, &arena, &mut random);
                let mut orders = arena
                    .orders_without_plan()
                    .with("--plan", plan.display())
                    .with("--behave", random.choose(&MOODS));
                if random.below(3) > 0 {
                    orders = orders.flag("--at-once");
                }
                (
                    5 + random.below(moment_ms_max(store)),
                    Victim::start(&orders.flag("--wait")),
                )
            })
            .collect();
        victims.sort_by_key(|(moment, _)| *moment);
        for (_, victim) in &mut victims {
            victim.wait_until_ready();
        }
        for (_, victim) in &mut victims {
            victim.go();
        }
        let mut now = 0;
        for (moment, victim) in victims {
            std::thread::sleep(Duration::from_millis(moment - now));
            now = moment;
            let ended = arena.keep(victim.killed());
            killed += usize::from(ended.was_killed());
        }
        arena.assert_both_or_neither(&format!("{name}, round {round}"));
        if effect == "opaque" && random.below(2) == 0 {
            arena.run_whole(&arena.orders());
            arena.resolve_by_the_sinks_truth();
        }
    }
    let history = arena.mend(&name);
    let doubts = history.receipts.iter().filter(|receipt| {
        let is_proposal = receipt.kind == ReceiptKind::Proposal;
        is_proposal && receipt.outcome == Some(ReceiptOutcome::InDoubt)
    });
    let doubts = doubts.count();
    println!(
        "{name}: {killed} killed, {} requests, {} receipts, {doubts} of them doubts",
        history.hits.len(),
        history.receipts.len(),
    );
    assert!(killed >= rounds, "hardly anything was killed");
    let is_blocked = |key: &str| key.contains("blocked");
    assert!(!history.hits.iter().any(|hit| is_blocked(&hit.key)));
    assert!(history.keys.keys().all(|key| !is_blocked(key.as_str())));
    doubts
}

/// The actions of this round and the one before in some order, and one per entity that trust
/// blocks: nothing of those may ever be seen (rule 1.4).
fn plan_of(round: usize, arena: &Arena, random: &mut Random) -> PathBuf {
    let numbers = NEW * round.saturating_sub(1)..NEW * (round + 1);
    let mut actions: Vec<_> = numbers
        .map(|n| arena.action(n))
        .chain((0..ENTITIES).map(|n| {
            let entity = format!("order-{n}");
            fixtures::action("orders.hold", &entity, &format!("blocked-{n}"), json!({}))
        }))
        .collect();
    random.shuffle(&mut actions);
    let path = arena.path(&format!("plan-{}.json", random.next()));
    std::fs::write(&path, serde_json::to_string(&actions).expect("JSON")).expect("a file");
    path
}
