//! The embedded `file` connector, killed around its append: one line per key after a restart.

use crate::arena::{Arena, Plan};
use crate::ground::Store;
use crate::pool;
use crate::random::{Random, kills, seed};

const PLAN: Plan = Plan {
    actions: 4,
    entities: 2,
    repeats: 1,
};

/// Places around the append; `after-applied` dies as soon as the file has grown.
const POINTS: [&str; 8] = [
    "after-claim",
    "before-send",
    "during-send",
    "after-applied",
    "after-answer",
    "before-settle",
    "inside-settle",
    "after-settle",
];

/// By rules 4.3, 4.6, 4.13: what it appended before it died is found and not appended again.
#[test]
fn a_file_has_one_line_per_key_wherever_it_dies() {
    let seed = seed("file");
    let trials = kills(3);
    let found_by_probe: usize = pool::trials(POINTS.len() * trials, |number| {
        let mut random = Random::of_trial(seed, number);
        let point = POINTS[number / trials];
        let crash = format!("{point}:{}:{}", 1 + random.below(4), random.below(3_000));
        let arena = Arena::new(Store::Sqlite, "file", PLAN);
        let mut orders = arena.orders().with("--crash", &crash);
        if random.below(2) == 0 {
            orders = orders.flag("--at-once");
        }
        let ended = arena.run(&orders);
        assert!(ended.was_killed(), "{crash}: {ended:#?}");
        arena.assert_both_or_neither(&crash);
        let history = arena.mend(&crash);
        assert_eq!(history.hits.len(), PLAN.actions, "{crash}: one line each");
        let asked = Some("the connector was asked");
        let receipts = history.receipts.iter();
        receipts.filter(|r| r.note.as_deref() == asked).count()
    })
    .into_iter()
    .sum();
    println!("{found_by_probe} doubts were closed by asking the file");
    assert!(
        found_by_probe >= trials,
        "hardly any doubt: {found_by_probe}"
    );
}
