//! The crash matrix: every place to die × every kind of vendor, then a restart, then the judge.

use std::collections::{BTreeMap, BTreeSet};

use operators_kernel::life::Phase;

use crate::arena::{Arena, Plan};
use crate::ground::{Store, on_every_store};
use crate::pool;
use crate::random::{Random, kills, seed};

const PLAN: Plan = Plan {
    actions: 4,
    entities: 2,
    repeats: 1,
};

on_every_store!(
    opaque_actions_happen_once_or_are_doubts_wherever_it_dies,
    keyed_actions_happen_once_wherever_it_dies,
    probeable_actions_happen_once_wherever_it_dies,
);

/// What dying at a point means for the action that died there, when nothing else ran beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaves {
    /// Nothing was claimed, or everything is settled: no doubt.
    NoDoubt,
    /// The intent is durable and nobody knows the outcome: a doubt, always.
    Doubt,
    /// It depends on the microsecond.
    Either,
}

/// Every point, what it leaves, and how the sink is asked to treat the requests meanwhile.
const POINTS: &[(&str, Leaves, &str)] = &[
    ("after-parse", Leaves::NoDoubt, ""),
    ("after-turn", Leaves::NoDoubt, ""),
    ("after-gate", Leaves::NoDoubt, ""),
    ("before-claim", Leaves::NoDoubt, ""),
    ("during-claim", Leaves::Either, ""),
    ("inside-claim", Leaves::Either, ""),
    ("after-claim", Leaves::Doubt, ""),
    ("before-send", Leaves::Doubt, ""),
    ("during-send", Leaves::Either, "before=400"),
    ("after-send", Leaves::Doubt, "before=400"),
    ("after-applied", Leaves::Doubt, "after=100"),
    ("after-answer", Leaves::Doubt, ""),
    ("before-settle", Leaves::Doubt, ""),
    ("during-settle", Leaves::Either, ""),
    ("inside-settle", Leaves::Either, ""),
    ("after-settle", Leaves::NoDoubt, ""),
    ("before-reply", Leaves::NoDoubt, ""),
    ("during-heartbeat", Leaves::Either, "before=120"),
];

/// What became of the keys of all trials at a point, once a fresh process had looked.
#[derive(Debug, Default, Clone)]
struct Tally {
    kills: usize,
    applied: usize,
    in_doubt: usize,
    free: usize,
    resent: usize,
}

/// By rules 1.5, 2.9, 4.3, 4.4, 4.6, 5.1, 5.2, 8.1: wherever it dies, an opaque action happened or is
/// a listed doubt, and once a person has answered, each happened once.
fn opaque_actions_happen_once_or_are_doubts_wherever_it_dies(store: Store) {
    let tallies = matrix(store, "opaque");
    let resent: usize = tallies.values().map(|tally| tally.resent).sum();
    assert_eq!(resent, 0, "an opaque action was sent twice");
}

/// By rules 3.7, 4.5: with a vendor that honours keys, each happened once after restarts alone.
fn keyed_actions_happen_once_wherever_it_dies(store: Store) {
    let tallies = matrix(store, "keyed");
    let resent: usize = tallies.values().map(|tally| tally.resent).sum();
    assert!(resent > 0, "no doubt was ever sent again");
}

/// By rules 4.6, 4.13: with a vendor that can be asked, each happened once after restarts alone.
fn probeable_actions_happen_once_wherever_it_dies(store: Store) {
    matrix(store, "probeable");
}

fn matrix(store: Store, effect: &'static str) -> BTreeMap<&'static str, Tally> {
    let trials = kills(2);
    let seed = seed(&format!("crash matrix, {}, {effect}", store.name()));
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    for (point, seen) in pool::trials(POINTS.len() * trials, |number| {
        let (point, leaves, behave) = POINTS[number / trials];
        let mut random = Random::of_trial(seed, number);
        (
            point,
            trial(store, effect, point, leaves, behave, &mut random),
        )
    }) {
        tallies.entry(point).or_default().add(&seen);
    }
    println!(
        "{:18} kills  applied  in doubt  free  resent   (keys after the first restart)",
        format!("{}, {effect}", store.name())
    );
    for (point, leaves, _) in POINTS {
        let tally = &tallies[point];
        println!(
            "{point:18} {:5} {:8} {:9} {:5} {:7}",
            tally.kills, tally.applied, tally.in_doubt, tally.free, tally.resent
        );
        assert_eq!(tally.kills, trials, "{point}");
        if effect == "opaque" && *leaves == Leaves::Doubt {
            assert!(tally.in_doubt >= trials, "{point} left too few doubts");
        }
    }
    tallies
}

fn trial(
    store: Store,
    effect: &str,
    point: &str,
    leaves: Leaves,
    behave: &str,
    random: &mut Random,
) -> Tally {
    let arena = Arena::new(store, effect, PLAN);
    let is_beat = point == "during-heartbeat";
    // Slow requests are there to be still under way after the restart; one of them is enough.
    let nth = if behave.is_empty() {
        1 + random.below(4)
    } else {
        1
    };
    let crash = format!("{point}:{nth}:{}", random.below(2_500));
    let at_once = random.below(2) == 0;
    let dies_again = random.below(3) == 0;
    let context = format!("{}, {effect}, {crash}, at once: {at_once}", store.name());
    let mut orders = arena
        .orders()
        .with("--crash", &crash)
        .with("--behave", behave)
        .with("--lease-ms", if is_beat { 300 } else { store.lease_ms() });
    if at_once {
        orders = orders.flag("--at-once");
    }
    let ended = arena.run(&orders);
    assert!(ended.was_killed(), "{context}: {ended:#?}");
    arena.assert_both_or_neither(&context);
    // One restart in three dies as well, wherever it happens to be.
    if dies_again {
        let (again, ..) = random.choose(POINTS);
        let again = format!("{again}:{}:{}", 1 + random.below(3), random.below(2_500));
        arena.run(&arena.orders().with("--crash", again));
        arena.assert_both_or_neither(&context);
    }
    arena.run_whole(&arena.orders());
    let history = arena.history();
    history.assert_sound(&context);
    let count = |phase| history.keys.values().filter(|r| r.phase == phase).count();
    let sent: BTreeSet<&str> = history.hits.iter().map(|hit| hit.key.as_str()).collect();
    let seen = Tally {
        kills: 1,
        applied: count(Phase::Applied),
        in_doubt: count(Phase::InDoubt),
        free: PLAN.actions - count(Phase::Applied) - count(Phase::InDoubt),
        resent: history.hits.len() - sent.len(),
    };
    if !at_once && !dies_again {
        seen.assert_as_expected(effect, leaves, &context);
    }
    arena.mend(&context);
    seen
}

impl Tally {
    fn add(&mut self, more: &Self) {
        self.kills += more.kills;
        self.applied += more.applied;
        self.in_doubt += more.in_doubt;
        self.free += more.free;
        self.resent += more.resent;
    }

    /// One action at a time and one death: what is left is known exactly.
    fn assert_as_expected(&self, effect: &str, leaves: Leaves, context: &str) {
        match (effect, leaves) {
            ("keyed", _) | (_, Leaves::NoDoubt) => {
                assert_eq!(self.applied, PLAN.actions, "{context}: {self:?}");
            }
            ("opaque", Leaves::Doubt) => assert_eq!(self.in_doubt, 1, "{context}: {self:?}"),
            _ => {}
        }
    }
}
