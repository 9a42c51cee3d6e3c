//! Statements in the store's own database, killed around their commit: the row, the burn and the
//! receipt are all there or none is, and nobody has to look.

use operators_kernel::life::Phase;
use operators_tests::history::open_store;
use operators_tests::postgres::run;

use crate::arena::{Arena, Plan, block_on};
use crate::ground::{Store, on_every_store};
use crate::pool;
use crate::random::{Random, kills, seed};

const PLAN: Plan = Plan {
    actions: 4,
    entities: 2,
    repeats: 2,
};

/// Every place between the claim and the answer.
const POINTS: [&str; 9] = [
    "after-claim",
    "before-send",
    "after-answer",
    "before-settle",
    "during-settle",
    "inside-settle",
    "after-settle",
    "before-reply",
    "during-heartbeat",
];

on_every_store!(@ sqlite, Sqlite, a_row_is_changed_if_and_only_if_its_key_is_burned);
on_every_store!(@ postgres, Postgres, a_row_is_changed_if_and_only_if_its_key_is_burned);

/// By rules 12.1, 12.2, 12.4: wherever it dies, what happened is burned and receipted, what did not
/// is free, and the same plan completes without anybody's answer.
fn a_row_is_changed_if_and_only_if_its_key_is_burned(store: Store) {
    let seed = seed(&format!("transactional, {}", store.name()));
    let trials = kills(3);
    pool::trials(POINTS.len() * trials, |number| {
        let mut random = Random::of_trial(seed, number);
        let point = POINTS[number / trials];
        let crash = format!("{point}:{}:{}", 1 + random.below(4), random.below(3_000));
        let context = format!("{}, {crash}", store.name());
        let arena = Arena::new(store, "transactional", PLAN);
        make_table(&arena);
        let lease = if point == "during-heartbeat" {
            300
        } else {
            store.lease_ms()
        };
        let orders = arena.orders().with("--crash", &crash);
        let mut orders = orders.with("--lease-ms", lease);
        if random.below(2) == 0 {
            orders = orders.flag("--at-once");
        }
        let ended = arena.run(&orders);
        // A plan of short statements may be over before its second heartbeat.
        assert!(
            ended.was_killed() || point == "during-heartbeat",
            "{context}: {ended:#?}"
        );
        arena.assert_both_or_neither(&context);
        arena.run_whole(&arena.orders());
        let history = arena.history();
        history.assert_sound(&context);
        assert!(history.doubts.is_empty(), "{context}: {history:#?}");
        for (key, record) in &history.keys {
            let effects = history.effects(key.as_str()).count();
            let is_burned = record.phase == Phase::Applied;
            assert_eq!(effects, usize::from(is_burned), "{context}: {record:?}");
        }
        let history = arena.mend(&context);
        assert_eq!(history.hits.len(), PLAN.actions, "{context}: one each");
    });
}

fn make_table(arena: &Arena) {
    const TABLE: &str = "CREATE TABLE effects (line TEXT)";
    let url = arena.store_url();
    // The store makes its file or its schema; the table is somebody else's.
    drop(block_on(open_store(&url)).expect("the store opens"));
    match arena.store {
        Store::Sqlite => {
            let file = rusqlite::Connection::open(arena.path("store.db"));
            let made = file.and_then(|file| file.execute_batch(TABLE));
            made.expect("a table");
        }
        Store::Postgres => drop(block_on(run(&url, TABLE))),
        Store::DynamoDb => unreachable!("it holds no tables of others"),
    }
}
