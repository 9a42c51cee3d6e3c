//! One store, one sink, and victims on them: how a trial is run, mended and judged.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use operators_kernel::life::Phase;
use operators_kernel::{
    Clock, DurableExec, Effect, IdKind, IdempotencyKey, PlannedAction, ReceiptKind, Resolution,
    ResolveAnswer, Resolver, Verdict, json,
};
use operators_seams::SystemClock;
use operators_tests::fixtures;
use operators_tests::history::{History, Line, open_store};
use operators_tests::postgres;
use operators_tests::sink::{Hit, Sink};
use sqlx::Row as _;
use tempfile::TempDir;

use crate::ground::{Ground, Store};
use crate::process::{Ended, Orders, Victim};

/// The deadline of a call: far above what an honest one takes, even on a busy machine.
const TIMEOUT_MS: u64 = 1_500;

/// How long after it an abandoned call may land; the sink is never told to take that long.
const MAX_LAND_MS: u64 = 200;

/// How long a victim proposes again what is in doubt. "Not applied" is believed after less than two
/// seconds, counted by a process that has seen nothing before where the store tells no time.
const INSISTS_MS: u64 = 4_000;

/// What was under way at a server when its client died may still be done, for about this long.
const LANDED_WITHIN: Duration = Duration::from_secs(2);

/// How long mending may take, many doubts one after the other included.
const MENDED_WITHIN: Duration = Duration::from_mins(1);

/// One store, one sink (or a file), and what was printed so far.
#[derive(Debug)]
pub struct Arena {
    pub sink: Sink,
    pub store: Store,
    ground: Ground,
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
    pub fn new(store: Store, effect: &str, plan: Plan) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self {
            store,
            ground: Ground::fresh(store, &folder),
            folder,
            sink: Sink::start(Path::new(env!("CARGO_BIN_EXE_operators-sink"))),
            effect: effect.to_owned(),
            plan,
            lines: Mutex::default(),
            started: AtomicUsize::new(0),
        }
    }

    /// The store, by URL.
    pub fn store_url(&self) -> String {
        self.ground.url()
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
            .with("--lease-ms", self.store.lease_ms())
            .with("--timeout-ms", TIMEOUT_MS);
        if self.effect == "file" {
            return orders.with("--file", self.path("effects.jsonl").display());
        }
        if self.is_local() {
            return orders
                .with("--file", self.path("effects.jsonl").display())
                .with("--effect", &self.effect)
                .with("--max-land-ms", MAX_LAND_MS);
        }
        // What an MCP server was accepted as is kept beside the file.
        orders
            .with("--file", self.path("effects.jsonl").display())
            .with("--sink", self.sink.port())
            .with("--effect", &self.effect)
            .with("--max-land-ms", MAX_LAND_MS)
    }

    /// Whether effects are lines in a file of this machine, and not requests to the sink.
    fn is_local(&self) -> bool {
        matches!(
            self.effect.as_str(),
            "file" | "command" | "mcp" | "sql" | "transactional"
        )
    }

    /// Whether only a person can close a doubt.
    fn is_opaque(&self) -> bool {
        let resolves_itself = matches!(self.effect.as_str(), "file" | "transactional");
        self.is_local() && !resolves_itself || matches!(self.effect.as_str(), "opaque" | "mcp-web")
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

    /// Whether a process that is stopped now would hold up everybody for another reason than its
    /// turn: it is in the middle of a transaction. To `DynamoDB` a transaction is one request, which
    /// is done whether or not its sender still runs.
    pub fn is_locked(&self) -> bool {
        match self.store {
            Store::Sqlite => {
                let file = rusqlite::Connection::open(self.path("store.db"));
                let file = file.expect("the file opens");
                let pause = file.busy_timeout(Duration::from_millis(20));
                pause.expect("a pause");
                file.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_err()
            }
            Store::Postgres => {
                let open = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() \
                            AND state LIKE 'idle in transaction%'";
                !block_on(postgres::run(&self.store_url(), open)).is_empty()
            }
            Store::DynamoDb => false,
        }
    }

    /// What the world saw: the sink's log, or the lines of the file.
    pub fn hits(&self) -> Vec<Hit> {
        if !self.is_local() {
            return self.sink.hits();
        }
        match (self.effect.as_str(), self.store) {
            ("sql", _) => return rows(&self.path("effects.jsonl")),
            ("transactional", Store::Sqlite) => return rows(&self.path("store.db")),
            ("transactional", _) => return block_on(rows_beside(&self.store_url())),
            _ => {}
        }
        let text = std::fs::read_to_string(self.path("effects.jsonl")).unwrap_or_default();
        text.lines().zip(0..).map(hit_of_line).collect()
    }

    /// What there is to judge now.
    pub fn history(&self) -> History {
        let lines = self.lines.lock().expect("lines").clone();
        let (tenant, keys, hits) = (fixtures::tenant(), self.keys(), self.hits());
        block_on(async {
            let store = open_store(&self.store_url()).await;
            let store = store.expect("the store opens");
            let taken = History::take(&*store, &tenant, &keys, hits, lines).await;
            taken.expect("the store tells")
        })
    }

    /// Right after a kill: what a call records and its receipt are both there or neither. A history
    /// is read in several steps, and a server may still be doing what the dead one asked for: only a
    /// half that stays is one.
    pub fn assert_both_or_neither(&self, context: &str) {
        let start = Instant::now();
        loop {
            let halves = halves(&self.history());
            if halves.is_empty() {
                return;
            }
            assert!(start.elapsed() < LANDED_WITHIN, "{context}: {halves:#?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Closes every doubt by what the sink knows; says how many.
    pub fn resolve_by_the_sinks_truth(&self) -> usize {
        block_on(async {
            let store = open_store(&self.store_url()).await;
            self.resolve_on(&*store.expect("the store opens")).await
        })
    }

    async fn resolve_on(&self, store: &dyn DurableExec) -> usize {
        let (tenant, clock) = (fixtures::tenant(), SystemClock::new());
        let doubts = store.doubts(&tenant).await.expect("the store tells").0;
        for doubt in &doubts {
            let start = Instant::now();
            loop {
                let key = doubt.proposal.idempotency_key.clone();
                let hits = if self.is_local() {
                    self.hits()
                } else {
                    self.sink.wait_until_idle()
                };
                let took_effect = hits
                    .iter()
                    .any(|hit| hit.key == key.as_str() && hit.is_effect());
                let result = serde_json::json!({"told by": "the sink"});
                let resolution = Resolution {
                    key,
                    generation: doubt.generation,
                    attempt: doubt.attempt,
                    result_digest: Some(json::digest(&result).expect("a digest")),
                    verdict: if took_effect {
                        Verdict::Applied(Effect::of(result))
                    } else {
                        Verdict::NotApplied
                    },
                    by: Resolver::Person("the test".into()),
                    note: None,
                    receipt_id: clock.id(IdKind::Receipt),
                    at: clock.now(),
                };
                let resolved = store.resolve(&tenant, resolution).await;
                match resolved.expect("the store resolves") {
                    ResolveAnswer::Resolved(_) => break,
                    ResolveAnswer::MayStillLand(wait) => tokio::time::sleep(wait).await,
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
            let orders = self.orders();
            self.run_whole(&if self.is_opaque() {
                orders
            } else {
                orders.with("--insist-ms", INSISTS_MS)
            });
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
            if self.is_opaque() {
                self.resolve_by_the_sinks_truth();
            }
        }
    }
}

/// The effects of the sql connector, which are rows: in the form of the lines of the others.
fn rows(file: &Path) -> Vec<Hit> {
    let file = rusqlite::Connection::open(file).expect("the database opens");
    let mut found = file
        .prepare("SELECT line FROM effects ORDER BY rowid")
        .expect("a query");
    let found = found.query_map([], |row| row.get(0)).expect("rows");
    let lines: Vec<String> = found.map(|line| line.expect("a text")).collect();
    lines
        .iter()
        .map(String::as_str)
        .zip(0..)
        .map(hit_of_line)
        .collect()
}

/// The same rows, kept beside the store on a server.
async fn rows_beside(url: &str) -> Vec<Hit> {
    let found = postgres::run(url, "SELECT line FROM effects").await;
    let lines: Vec<String> = found.iter().map(|row| row.get(0)).collect();
    lines
        .iter()
        .map(String::as_str)
        .zip(0..)
        .map(hit_of_line)
        .collect()
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

/// Every record without its receipt, and every receipt without its record (rule 5.2), in words.
pub fn halves(history: &History) -> Vec<String> {
    let receipts = &history.receipts;
    let mut halves = Vec::new();
    for (name, record) in &history.keys {
        let own = &record.proposal.receipt_id;
        let has_receipt = receipts
            .iter()
            .any(|r| r.receipt_id == *own && r.kind == ReceiptKind::Proposal);
        let is_open = record.phase == Phase::Intent;
        if has_receipt == is_open {
            halves.push(format!("`{name}`, receipt {has_receipt}: {record:?}"));
        }
        if let Some(application) = &record.application {
            let cited = &application.original.receipt_id;
            let is_there = receipts.iter().any(|r| r.receipt_id == *cited);
            if !is_there {
                halves.push(format!("`{name}` cites `{cited}`"));
            }
        }
    }
    halves
}

/// Waits for a question to the store.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(future)
}
