//! Random programs of several clients, run on a store and on a model beside it, call by call.
//!
//! The model keeps plain maps and decides turns and deaths on its own; what a call does to a key is
//! the kernel's `life`. After every call the answers, and every key, entity and receipt, must be
//! the same, and the model's own invariants must hold. `OPERATORS_PROGRAMS` says how many programs,
//! `OPERATORS_SEED` which one to begin with.

mod client;
mod dice;
mod model;
mod seen;

use operators_tests::dynamodb::DynamoBench;
use operators_tests::postgres::PgBench;
use operators_tests::stores::{Bench, MemoryBench, SqliteBench};

use client::{Client, Detail};
use dice::Dice;
use seen::Seen;

/// Calls in one program.
const CALLS: usize = 120;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is no number: {text}")),
    )
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    let first = number("OPERATORS_SEED").unwrap_or(1);
    first..first + number("OPERATORS_PROGRAMS").unwrap_or(count)
}

/// By rules 2.1, 2.2, 2.4, 2.7, 2.9, 3.1, 3.2, 3.3, 3.4, 3.5, 3.6, 4.1, 4.2, 4.3, 4.4, 4.5, 4.6, 4.7,
/// and rules 4.8, 4.9, 4.10, 4.11, 5.1, 5.7, 8.3, 8.5.
#[tokio::test]
async fn random_programs_end_alike_in_memory_and_in_the_model() {
    let mut seen = Seen::default();
    for seed in seeds(400) {
        let bench = MemoryBench::fresh();
        let mut client = Client::start(&bench, Detail::Exact, Dice::new(seed)).await;
        for call in 0..CALLS {
            bench.clock().advance(model::STEP);
            run(&mut client, "memory", seed, call).await;
        }
        client.audit(&format!("seed {seed}")).await;
        seen.add(&client.seen);
    }
    seen.show("memory");
    if seeds(400).count() >= 400 {
        seen.is_not_vacuous();
    }
}

/// By rule 8.1, and the same on one file through two handles, one of which is dropped now and then.
#[tokio::test]
async fn random_programs_end_alike_in_a_file_and_in_the_model() {
    let mut seen = Seen::default();
    for seed in seeds(12) {
        let bench = SqliteBench::fresh();
        let mut client = Client::start(&bench, Detail::Timeless, Dice::new(seed)).await;
        for call in 0..CALLS {
            run(&mut client, "sqlite", seed, call).await;
        }
        client.audit(&format!("seed {seed}")).await;
        seen.add(&client.seen);
    }
    seen.show("sqlite");
}

/// By rule 8.1, and the same on a server through two handles.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_programs_end_alike_in_postgres_and_in_the_model() {
    remotely("postgres", 6, PgBench::fresh).await;
}

/// By rule 8.1, and the same on a table through two handles.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_programs_end_alike_in_dynamodb_and_in_the_model() {
    remotely("dynamodb", 6, DynamoBench::fresh).await;
}

async fn remotely<B: Bench>(store: &str, count: u64, fresh: impl Fn() -> B) {
    let mut seen = Seen::default();
    for seed in seeds(count) {
        let bench = fresh();
        if let Some(why) = bench.missing() {
            println!("skipped: {why}");
            return;
        }
        println!("{store}: seed {seed}");
        let mut client = Client::start(&bench, Detail::Leased, Dice::new(seed)).await;
        for call in 0..CALLS {
            run(&mut client, store, seed, call).await;
        }
        client.audit(&format!("seed {seed}")).await;
        seen.add(&client.seen);
    }
    seen.show(store);
}

async fn run(client: &mut Client<'_>, store: &str, seed: u64, call: usize) {
    let place = format!("{store}, seed {seed}, call {call}");
    client.step(&place).await;
    client.check(&place);
    if call % 6 == 5 || call + 1 == CALLS {
        client.compare(&place).await;
    }
}
