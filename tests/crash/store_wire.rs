//! A bad wire before the store: it is asked again and keeps one answer, nobody waits past what he was
//! promised, and nothing is sent that was not recorded.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use operators_kernel::Disposition;
use operators_tests::history::Line;
use operators_tests::proxy::{Fate, Proxy};

use crate::arena::{Arena, Plan};
use crate::ground::{Store, on_every_server};
use crate::pool;
use crate::process::Victim;
use crate::random::{Random, kills, seed};

on_every_server!(
    a_store_on_a_bad_wire_is_asked_again_and_keeps_one_answer,
    a_storm_of_mishaps_before_the_store_loses_and_doubles_nobody,
);

/// How long a caller waits for a store that says nothing, and what a busy machine adds to it.
const STORE_PATIENCE: Duration = Duration::from_secs(10);
const SLACK: Duration = Duration::from_secs(4);

/// The requests that commit a claim or a settlement.
const COMMITS: [&str; 4] = ["claim", "settle", "write", "TransactWriteItems"];

/// Mishaps that show at once, and those that only patience ends.
const MISHAPS: [fn() -> Fate; 6] = [
    || Fate::Delay(Duration::from_millis(300)),
    || Fate::LoseRequest,
    || Fate::HangUp,
    || Fate::LoseAnswer,
    || Fate::Silence,
    || Fate::Void,
];
const AT_ONCE: usize = 4;

/// By rules 1.5, 5.1, 8.2, 8.3: whatever becomes of a claim or a settlement or its answer on the
/// way, the caller hears in time, the action happens at most once, and its key is burned, free, or a
/// listed doubt.
fn a_store_on_a_bad_wire_is_asked_again_and_keeps_one_answer(store: Store) {
    let one = Plan {
        actions: 1,
        entities: 1,
        repeats: 1,
    };
    let steps = ["claim", "settle"];
    pool::trials(steps.len() * MISHAPS.len(), |number| {
        let (step, which) = (number % steps.len(), number / steps.len());
        let mishap = MISHAPS[which];
        let context = format!("{}, {}, {:?}", store.name(), steps[step], mishap());
        let arena = Arena::new(store, "opaque", one);
        let proxy = Proxy::before(&arena.store_url());
        let orders = arena.orders().with("--store", proxy.url()).flag("--wait");
        let mut victim = Victim::start(&orders);
        victim.wait_until_ready();
        let mut seen = 0;
        proxy.rule(move |name| {
            let is_commit = COMMITS.contains(&name);
            seen += usize::from(is_commit);
            if is_commit && seen == step + 1 {
                mishap()
            } else {
                Fate::Pass
            }
        });
        let start = Instant::now();
        victim.go();
        let is_told = |line: &Line| matches!(line, Line::Result(_) | Line::Error(_));
        victim.wait_until("an answer", |lines| lines.iter().any(is_told));
        let took = start.elapsed();
        assert!(took < STORE_PATIENCE + SLACK, "{context}: {took:?}");
        let ended = arena.keep(victim.finish());
        assert!(ended.status.success(), "{context}: {ended:#?}");
        if which < AT_ONCE {
            let [result] = ended.results()[..] else {
                panic!("{context}: {ended:#?}");
            };
            let is_applied = result.ok && result.decision == Disposition::Allow;
            assert!(is_applied, "{context}: {ended:#?}");
        }
        let sent = arena.sink.hits().len();
        let is_unsent =
            |line: &Line| matches!(line, Line::Error(why) if why.starts_with("nothing was sent"));
        if ended.lines.iter().any(is_unsent) {
            assert_eq!(sent, 0, "{context}: {ended:#?}");
        }
        println!("{context}: answered after {took:?}, {sent} sent");
        // A process that ends while a silent store is still being asked may leave its claim behind;
        // the next to look makes a doubt of it.
        arena.run_whole(&arena.orders());
        arena.history().assert_sound(&context);
        arena.mend(&context);
    });
}

/// By rules 2.1, 3.1, 5.1, 8.2, 8.3: two processes whose every tenth question meets some mishap.
fn a_storm_of_mishaps_before_the_store_loses_and_doubles_nobody(store: Store) {
    let seed = seed(&format!("a storm before {}", store.name()));
    let rounds = kills(2);
    let plan = Plan {
        actions: 30,
        entities: 6,
        repeats: 1,
    };
    let mishaps: usize = pool::trials(rounds, |number| {
        let context = format!("{}, seed {seed}, trial {number}", store.name());
        let arena = Arena::new(store, "opaque", plan);
        let proxy = Proxy::before(&arena.store_url());
        let orders = arena
            .orders()
            .with("--store", proxy.url())
            .with("--lease-ms", 5_000)
            .flag("--at-once")
            .flag("--wait");
        let mut victims = [Victim::start(&orders), Victim::start(&orders)];
        for victim in &mut victims {
            victim.wait_until_ready();
        }
        let mut random = Random::of_trial(seed, number);
        let count = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&count);
        proxy.rule(move |_| {
            if random.below(10) > 0 {
                return Fate::Pass;
            }
            *counted.lock().expect("count") += 1;
            random.choose(&MISHAPS[..AT_ONCE])()
        });
        for victim in &mut victims {
            victim.go();
        }
        for victim in victims {
            let ended = arena.keep(victim.finish());
            assert!(ended.status.success(), "{context}: {ended:#?}");
        }
        arena.history().assert_sound(&context);
        let mended = arena.mend(&context);
        let effects = mended.hits.iter().filter(|hit| hit.is_effect());
        assert_eq!(effects.count(), plan.actions, "{context}");
        *count.lock().expect("count")
    })
    .into_iter()
    .sum();
    println!("{mishaps} mishaps before {}", store.name());
    // A tenth of the questions, whose number depends on how many calls share one.
    assert!(mishaps >= 4 * rounds, "hardly any mishap");
}
