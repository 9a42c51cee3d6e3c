//! A bad wire before the vendor: nothing happens twice, no call waits past its deadline, and what
//! nobody can know is listed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use operators_kernel::{ActionResult, Reason, Receipt};
use operators_tests::fixtures;
use operators_tests::history::History;
use operators_tests::proxy::{Fate, Proxy};
use operators_tests::sink::Hit;

use crate::arena::{Arena, Plan};
use crate::ground::Store;
use crate::pool;
use crate::process::Orders;
use crate::random::{Random, kills, seed};

/// The request that has an effect.
const APPLY: &str = "POST /apply/hold";

const EFFECTS: [&str; 3] = ["opaque", "keyed", "probeable"];

/// The call's deadline, and how long after it an abandoned call may land.
const TIMEOUT_MS: u64 = 600;
const MAX_LAND_MS: u64 = 600;

/// Longer than the deadline, and landed before the abandoned call no longer can.
const LATE: Duration = Duration::from_millis(900);

/// What a busy machine may add to a deadline.
const SLACK: Duration = Duration::from_secs(2);

/// What can happen to a call that nobody hears of again, and whether it takes effect.
const MISHAPS: [(fn() -> Fate, bool); 6] = [
    (|| Fate::LoseRequest, false),
    (|| Fate::Void, false),
    (|| Fate::HangUp, true),
    (|| Fate::LoseAnswer, true),
    (|| Fate::Silence, true),
    (|| Fate::Delay(LATE), true),
];

fn through(arena: &Arena, orders: Orders) -> (Orders, Proxy) {
    let proxy = Proxy::before(&format!("http://127.0.0.1:{}", arena.sink.port()));
    let orders = orders
        .with("--sink", proxy.port())
        .with("--timeout-ms", TIMEOUT_MS)
        .with("--max-land-ms", MAX_LAND_MS);
    (orders, proxy)
}

/// Every call ended by its deadline.
fn assert_nothing_waited(history: &History, context: &str) {
    let took = |receipt: &Receipt| {
        let micros = receipt.settled_at.as_micros() - receipt.proposed_at.as_micros();
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    };
    for receipt in history.receipts.iter().filter(|r| r.session.is_some()) {
        let most = Duration::from_millis(TIMEOUT_MS) + SLACK;
        assert!(took(receipt) < most, "{context}: {receipt:#?}");
    }
}

/// By rules 4.1, 4.2, 4.4: whatever becomes of a call or its answer on the way, it is a doubt that
/// holds its entity and is listed; once the wire is whole, it has happened once.
#[test]
fn a_call_on_a_bad_wire_is_a_doubt_and_happens_at_most_once() {
    let plan = Plan {
        actions: 2,
        entities: 1,
        repeats: 1,
    };
    pool::trials(EFFECTS.len() * MISHAPS.len(), |number| {
        let effect = EFFECTS[number / MISHAPS.len()];
        let (mishap, takes_effect) = MISHAPS[number % MISHAPS.len()];
        let context = format!("{effect}, {:?}", mishap());
        let arena = Arena::new(Store::Sqlite, effect, plan);
        let (orders, proxy) = through(&arena, arena.orders());
        proxy.next(APPLY, [mishap()]);
        let ended = arena.run_whole(&orders);
        let reasons: Vec<Option<Reason>> = ended.results().iter().map(|r| r.reason).collect();
        let expected = [Some(Reason::InDoubt), Some(Reason::EntityInDoubt)];
        assert_eq!(reasons, expected, "{context}: {ended:#?}");
        if takes_effect {
            arena
                .sink
                .wait_for("the call", |hits| hits.iter().any(Hit::is_effect));
        }
        let history = arena.history();
        history.assert_sound(&context);
        assert_nothing_waited(&history, &context);
        assert_eq!(history.doubts, [fixtures::key("key-0")].into(), "{context}");
        let effects = history.effects("key-0").count();
        assert_eq!(effects, usize::from(takes_effect), "{context}");
        arena.mend(&context);
    });
}

/// By rule 3.1: a wire that is only slow changes nothing.
#[test]
fn a_call_on_a_slow_wire_is_only_slow() {
    let plan = Plan {
        actions: 3,
        entities: 1,
        repeats: 1,
    };
    let arena = Arena::new(Store::Sqlite, "opaque", plan);
    let (orders, proxy) = through(&arena, arena.orders());
    proxy.rule(|_| Fate::Delay(Duration::from_millis(100)));
    let ended = arena.run_whole(&orders);
    assert!(ended.results().iter().all(|result| result.ok), "{ended:#?}");
    arena.history().assert_sound("a slow wire");
}

/// By rules 2.1, 3.1, 4.1, 4.5, 4.13, 5.1: two processes whose every second call meets some mishap.
#[test]
fn calls_in_a_storm_of_mishaps_happen_at_most_once() {
    let seed = seed("a storm before the vendor");
    let rounds = kills(2);
    let plan = Plan {
        actions: 24,
        entities: 12,
        repeats: 1,
    };
    let met = Mutex::new((0, 0));
    pool::trials(EFFECTS.len() * rounds, |number| {
        let effect = EFFECTS[number % EFFECTS.len()];
        let context = format!("{effect}, seed {seed}, trial {number}");
        let arena = Arena::new(Store::Sqlite, effect, plan);
        let (orders, proxy) = through(&arena, arena.orders().flag("--at-once"));
        let mut random = Random::of_trial(seed, number);
        let count = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&count);
        proxy.rule(move |name| {
            if name != APPLY || random.below(2) == 0 {
                return Fate::Pass;
            }
            *counted.lock().expect("count") += 1;
            random.choose(&MISHAPS).0()
        });
        for _ in 0..2 {
            let ended = arena.run_whole(&orders);
            let is_explained = |result: &&&ActionResult| result.ok || result.reason.is_some();
            assert!(
                ended.results().iter().all(|r| is_explained(&r)),
                "{context}"
            );
            arena.sink.wait_until_idle();
            let history = arena.history();
            history.assert_sound(&context);
            assert_nothing_waited(&history, &context);
            let mut met = met.lock().expect("met");
            met.1 += history.doubts.len();
        }
        met.lock().expect("met").0 += *count.lock().expect("count");
        // What is still delayed lands, or never will.
        std::thread::sleep(LATE);
        arena.mend(&context);
    });
    let (mishaps, doubts) = met.into_inner().expect("met");
    println!("{mishaps} mishaps before the vendor, {doubts} doubts listed");
    assert!(
        mishaps >= 20 * rounds && doubts >= 10 * rounds,
        "hardly any mishap"
    );
}
