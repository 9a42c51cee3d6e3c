//! `main` returns while calls are in flight and without a `stop`: the process ends all the same, and
//! what it leaves behind is what a kill leaves behind.

use crate::arena::{Arena, Plan};
use crate::ground::{Store, on_every_store};
use crate::pool;
use crate::process::Victim;
use crate::random::{Random, kills, seed};

on_every_store!(a_process_whose_main_returns_ends);

/// Many, so that a worker is in the middle of a call at the store whenever `main` returns.
const PLAN: Plan = Plan {
    actions: 64,
    entities: 32,
    repeats: 1,
};

/// Later than this the plan has usually run through.
const LEAVES_AFTER_MS_MAX: u64 = 120;

/// The story: `main` returned, and the runtime dropped the task that was just being spawned where it
/// was spawned, under the lock that the task's own end takes. The worker waited for itself, and the
/// process for the worker; on Postgres 4 of 12 never ended. By rules 2.6, 4.3.
fn a_process_whose_main_returns_ends(store: Store) {
    let seed = seed(&format!("main returns, {}", store.name()));
    pool::trials(kills(12), |number| {
        let mut random = Random::of_trial(seed, number);
        let after = 1 + random.below(LEAVES_AFTER_MS_MAX);
        let context = format!("{}, main returns after {after} ms", store.name());
        let arena = Arena::new(store, "opaque", PLAN);
        let orders = arena.orders().with("--leave-after-ms", after);
        // Fails if it hangs.
        let ended = arena.keep(Victim::start(&orders).finish());
        assert!(ended.status.success(), "{context}: {ended:#?}");
        arena.assert_both_or_neither(&context);
        arena.run_whole(&arena.orders());
        arena.mend(&context);
    });
}
