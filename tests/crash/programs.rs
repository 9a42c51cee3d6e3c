//! Programs, MCP servers and databases as connectors, killed around their calls: at most one effect.

use crate::arena::{Arena, Plan};
use crate::ground::{Store, on_every_store};
use crate::pool;
use crate::random::{Random, kills, seed};

const PLAN: Plan = Plan {
    actions: 4,
    entities: 2,
    repeats: 1,
};

/// Places around the call.
const POINTS: [&str; 6] = [
    "after-claim",
    "before-send",
    "during-send",
    "after-answer",
    "inside-settle",
    "after-settle",
];

on_every_store!(
    a_program_has_at_most_one_effect_wherever_its_caller_dies,
    an_mcp_tool_has_at_most_one_effect_wherever_its_caller_dies,
    a_statement_is_committed_at_most_once_wherever_its_caller_dies,
);

/// By rules 1.5, 4.3, 4.4, 4.6: what a program had begun when its caller died may go on, and is a
/// doubt until a person has looked.
fn a_program_has_at_most_one_effect_wherever_its_caller_dies(store: Store) {
    die_everywhere(store, "command");
}

/// The same for a server that speaks on stdin and stdout, and notices that its client is gone.
fn an_mcp_tool_has_at_most_one_effect_wherever_its_caller_dies(store: Store) {
    die_everywhere(store, "mcp");
}

/// The same for a transaction, which the database undoes or has done.
fn a_statement_is_committed_at_most_once_wherever_its_caller_dies(store: Store) {
    die_everywhere(store, "sql");
}

fn die_everywhere(store: Store, effect: &str) {
    let seed = seed(&format!("{effect}, {}", store.name()));
    let trials = kills(1);
    pool::trials(POINTS.len() * trials, |number| {
        let mut random = Random::of_trial(seed, number);
        let point = POINTS[number / trials];
        let crash = format!("{point}:{}:{}", 1 + random.below(4), random.below(5_000));
        let context = format!("{}, {effect}, {crash}", store.name());
        let arena = Arena::new(store, effect, PLAN);
        if effect == "sql" {
            let file = rusqlite::Connection::open(arena.path("effects.jsonl"));
            let made = file.and_then(|file| file.execute_batch("CREATE TABLE effects (line TEXT)"));
            made.expect("a database");
        }
        let ended = arena.run(&arena.orders().with("--crash", &crash));
        assert!(ended.was_killed(), "{context}: {ended:#?}");
        arena.assert_both_or_neither(&context);
        let history = arena.mend(&context);
        assert_eq!(history.hits.len(), PLAN.actions, "{context}: one each");
    });
}
