//! Many actions in one commit, killed in the middle of it: each is there with its receipt, or not.

use operators_kernel::life::Phase;

use crate::arena::{Arena, Plan};
use crate::ground::{Store, on_every_store};
use crate::pool;
use crate::random::{Random, kills, seed};

on_every_store!(a_kill_inside_a_group_commit_loses_and_doubles_nobody);

const PLAN: Plan = Plan {
    actions: 60,
    entities: 60,
    repeats: 1,
};

/// By rules 5.1, 5.2, 8.1: a commit of many is whole or nothing, and nobody is lost with it.
fn a_kill_inside_a_group_commit_loses_and_doubles_nobody(store: Store) {
    let seed = seed(&format!("group commit, {}", store.name()));
    let cases = [
        ("inside-claim", "keyed"),
        ("inside-claim", "opaque"),
        ("inside-settle", "keyed"),
        ("inside-settle", "opaque"),
    ];
    let open = pool::trials(cases.len() * kills(2), |number| {
        let mut random = Random::of_trial(seed, number);
        let (point, effect) = cases[number % cases.len()];
        let arena = Arena::new(store, effect, PLAN);
        let crash = format!("{point}:{}", 1 + random.below(50));
        let context = format!("{effect}, {crash}");
        let orders = arena.orders().flag("--at-once").with("--crash", &crash);
        let ended = arena.run(&orders);
        assert!(ended.was_killed(), "{context}: {ended:#?}");
        arena.assert_both_or_neither(&context);
        let history = arena.history();
        let records = history.keys.values();
        let open = records.filter(|record| record.phase == Phase::Intent);
        let open = (point, open.count());
        let mended = arena.mend(&context);
        let effects = mended.hits.iter().filter(|hit| hit.is_effect());
        assert_eq!(effects.count(), PLAN.actions, "{context}");
        open
    });
    println!(
        "{}, intents that were open when it died: {open:?}",
        store.name()
    );
    let in_settles = open.iter().filter(|(point, _)| *point == "inside-settle");
    let together: usize = in_settles.map(|(_, open)| open).sum();
    assert!(together >= 10, "hardly any group: {open:?}");
}
