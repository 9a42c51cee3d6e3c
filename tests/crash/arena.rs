//! One store, one sink, and victims on them: how a trial is run, mended and judged.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use operators_kernel::life::Phase;
use operators_kernel::{
    Clock, Effect, IdKind, IdempotencyKey, PlannedAction, ReceiptKind, Resolution, ResolveAnswer,
    Resolver, Verdict, json,
};
use operators_seams::SystemClock;
use operators_tests::fixtures;
use operators_tests::history::{History, Line, open_store};
use operators_tests::sink::{Hit, Sink};
use tempfile::TempDir;

use crate::process::{Ended, Orders, Victim};

/// The deadline of a call: far above what an honest one takes, even on a busy machine.
const TIMEOUT_MS: u64 = 1_500;

/// How long after it an abandoned call may land; the sink is never told to take that long.
const MAX_LAND_MS: u64 = 200;

/// How long mending may take: a doubt is believed "not applied" after less than two seconds.
const MENDED_WITHIN: Duration = Duration::from_mins(1);

/// One store, one sink (or a file), and what was printed so far.
#[derive(Debug)]
pub struct Arena {
    pub sink: Sink,
    effect: String,
    plan: Plan,
    lines: Mutex<Vec<Line>>,
    started: AtomicUsize,
    // Last, so that nothing still writes into it when it goes.
    folder: TempDir,
}

/// A generated plan.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub actions: usize,
    pub entities: usize,
    pub repeats: usize,
}

impl Arena {
    /// A fresh store and a fresh sink.
    pub fn new(effect: &str, plan: Plan) -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            sink: Sink::start(Path::new(env!("CARGO_BIN_EXE_operators-sink"))),
            effect: effect.to_owned(),
            plan,
            lines: Mutex::default(),
            started: AtomicUsize::new(0),
        }
    }

    /// The store, by URL.
    pub fn store_url(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("store.db").display())
    }

    /// A path in the arena's folder.
    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// A victim's orders without a plan.
    pub fn orders_without_plan(&self) -> Orders {
        let number = self.started.fetch_add(1, Ordering::SeqCst);
        let orders = Orders::new()
            .with("--store", self.store_url())
            .with("--process", format!("victim-{number}"))
            .with("--timeout-ms", TIMEOUT_MS);
        if self.effect == "file" {
            return orders.with("--file", self.path("effects.jsonl").display());
        }
        orders
            .with("--sink", self.sink.port())
            .with("--effect", &self.effect)
            .with("--max-land-ms", MAX_LAND_MS)
    }

    /// A victim's orders to run the whole plan.
    pub fn orders(&self) -> Orders {
        let Plan {
            actions,
            entities,
            repeats,
        } = self.plan;
        let shape = format!("{actions}:{entities}:{repeats}:key");
        self.orders_without_plan().with("--generate", shape)
    }

    /// Every key of the plan.
    pub fn keys(&self) -> Vec<IdempotencyKey> {
        (0..self.plan.actions)
            .map(|n| fixtures::key(&format!("key-{n}")))
            .collect()
    }

    /// An action of the plan, as a victim makes it.
    pub fn action(&self, n: usize) -> PlannedAction {
        let entity = format!("order-{}", n % self.plan.entities);
        let args = serde_json::json!({"order": n});
        fixtures::action("orders.hold", &entity, &format!("key-{n}"), args)
    }

    /// Runs a victim to its end.
    pub fn run(&self, orders: &Orders) -> Ended {
        self.keep(Victim::start(orders).finish())
    }

    /// Keeps what a victim printed.
    pub fn keep(&self, ended: Ended) -> Ended {
        let mut lines = self.lines.lock().expect("lines");
        lines.extend(ended.lines.iter().cloned());
        drop(lines);
        ended
    }

    /// Runs a victim that must come to its end by itself.
    pub fn run_whole(&self, orders: &Orders) -> Ended {
        let ended = self.run(orders);
        assert!(ended.status.success(), "{ended:#?}");
        ended
    }

    /// What the world saw: the sink's log, or the lines of the file.
    pub fn hits(&self) -> Vec<Hit> {
        if self.effect != "file" {
            return self.sink.hits();
        }
        let text = std::fs::read_to_string(self.path("effects.jsonl")).unwrap_or_default();
        text.lines().zip(0..).map(hit_of_line).collect()
    }

    /// What there is to judge now.
    pub fn history(&self) -> History {
        let store = open_store(&self.store_url()).expect("the store opens");
        let lines = self.lines.lock().expect("lines").clone();
        let (tenant, keys, hits) = (fixtures::tenant(), self.keys(), self.hits());
        let taken = History::take(&*store, &tenant, &keys, hits, lines);
        block_on(taken).expect("the store tells")
    }

    /// Right after a kill: what a call records and its receipt are both there or neither.
    pub fn assert_both_or_neither(&self, context: &str) {
        assert_both_or_neither(&self.history(), context);
    }

    /// Closes every doubt by what the sink knows; says how many.
    pub fn resolve_by_the_sinks_truth(&self) -> usize {
        let store = open_store(&self.store_url()).expect("the store opens");
        let (tenant, clock) = (fixtures::tenant(), SystemClock::new());
        let doubts = block_on(store.doubts(&tenant)).expect("the store tells").0;
        for doubt in &doubts {
            let start = Instant::now();
            loop {
                let key = doubt.proposal.idempotency_key.clone();
                let hits = self.sink.wait_until_idle();
                let took_effect = hits
                    .iter()
                    .any(|hit| hit.key == key.as_str() && hit.is_effect());
                let result = serde_json::json!({"told by": "the sink"});
                let resolution = Resolution {
                    key,
                    attempt: doubt.attempt,
                    result_digest: json::digest(&result).expect("a digest"),
                    verdict: if took_effect {
                        Verdict::Applied(Effect {
                            result,
                            effect_id: None,
                        })
                    } else {
                        Verdict::NotApplied
                    },
                    by: Resolver::Person("the test".to_owned()),
                    note: None,
                    receipt_id: clock.id(IdKind::Receipt),
                    at: clock.now(),
                };
                match block_on(store.resolve(&tenant, resolution)).expect("the store resolves") {
                    ResolveAnswer::Resolved(_) => break,
                    ResolveAnswer::MayStillLand(wait) => std::thread::sleep(wait),
                    answer @ ResolveAnswer::NotInDoubt(_) => panic!("{answer:?}: {doubt:?}"),
                }
                assert!(start.elapsed() < MENDED_WITHIN, "not resolved: {doubt:?}");
            }
        }
        doubts.len()
    }

    /// Proposes everything again, and resolves what only a person can, until every key is burned.
    /// Then every key has had its one effect.
    pub fn mend(&self, context: &str) -> History {
        let start = Instant::now();
        loop {
            self.run_whole(&self.orders());
            let history = self.history();
            history.assert_sound(context);
            let is_burned = |key: &IdempotencyKey| {
                history
                    .keys
                    .get(key)
                    .is_some_and(|record| record.phase == Phase::Applied)
            };
            if self.keys().iter().all(is_burned) {
                for key in self.keys() {
                    assert_eq!(history.effects(key.as_str()).count(), 1, "{context}: {key}");
                }
                assert!(history.doubts.is_empty(), "{context}: {history:#?}");
                return history;
            }
            assert!(start.elapsed() < MENDED_WITHIN, "{context}: {history:#?}");
            if self.effect == "opaque" {
                self.resolve_by_the_sinks_truth();
            } else {
                // A probe's "not applied" is believed after a while; nobody need decide anything.
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    }
}

/// A line of the embedded connector's file as a request that came, took effect and left at once.
fn hit_of_line((line, sequence): (&str, u64)) -> Hit {
    let line: serde_json::Value = serde_json::from_str(line).expect("a whole line");
    let text = |name: &str| line[name].as_str().expect("a text").to_owned();
    Hit {
        sequence,
        tenant: text("tenant"),
        entity: text("entity_key"),
        key: text("idempotency_key"),
        downstream_key: text("downstream_key"),
        process: String::new(),
        arrived_ns: sequence,
        applied_ns: Some(sequence),
        is_replay: false,
        left_ns: Some(sequence),
        status: Some(200),
    }
}

/// What a call records and its receipt are both there or neither (rule 5.2).
pub fn assert_both_or_neither(history: &History, context: &str) {
    let receipts = &history.receipts;
    for (name, record) in &history.keys {
        let own = &record.proposal.receipt_id;
        let has_receipt = receipts
            .iter()
            .any(|r| r.receipt_id == *own && r.kind == ReceiptKind::Proposal);
        let is_open = record.phase == Phase::Intent;
        assert_eq!(has_receipt, !is_open, "{context}: `{name}`: {record:#?}");
        if let Some(application) = &record.application {
            let cited = &application.original.receipt_id;
            let is_there = receipts.iter().any(|r| r.receipt_id == *cited);
            assert!(is_there, "{context}: `{name}` cites `{cited}`");
        }
    }
}

/// Waits for a question to the store.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(future)
}
