//! What the log of receipts costs, and how long an audit of a million of them takes.
//!
//! "Without" is what only this benchmark can ask for: on SQLite a store that gives receipts no place
//! (a cargo feature of its own), on Postgres a table without the column and the index that the
//! sequencer looks at, elsewhere a sequencer that is not run. "With" counts the time in which
//! everything that was written is put into the log, too. The two take turns, so that the machine's
//! moods hit both alike.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use load::{Bounds, Numbers};
use operators_kernel::log::{Audit, Checkpoint, inspect, origin_of};
use operators_kernel::{DurableExec, TenantId};
use operators_seams::unlogged;
use serde::Serialize;

use crate::machine::cpu_seconds;
use crate::options::{Options, Store};
use crate::ours::Ours;
use crate::place::Places;

/// Enough at once that a commit's cost is shared, and no more than a busy service has.
const CALLERS: usize = 64;

/// How many fill a store.
const FILLERS: usize = 512;

/// Everything about the log.
#[derive(Debug, Serialize)]
pub(crate) struct LogFigures {
    pub(crate) costs: Vec<Cost>,
    pub(crate) audits: Vec<Audited>,
}

/// New actions per second, with and without the log.
#[derive(Debug, Serialize)]
pub(crate) struct Cost {
    pub(crate) store: Store,
    pub(crate) with: f64,
    pub(crate) without: f64,
}

impl Cost {
    /// The part of the throughput that the log takes.
    pub(crate) fn part(&self) -> f64 {
        1.0 - self.with / self.without
    }
}

/// One audit of a whole log.
#[derive(Debug, Serialize)]
pub(crate) struct Audited {
    pub(crate) store: Store,
    pub(crate) receipts: u64,
    pub(crate) against_store: bool,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
}

/// Measures every store that was chosen.
pub(crate) async fn measure(options: &Options, places: &mut Places) -> Result<LogFigures> {
    let mut costs = Vec::new();
    for store in [
        Store::Memory,
        Store::Sqlite,
        Store::Postgres,
        Store::Dynamodb,
    ] {
        if options.has_store(store) {
            costs.push(cost(options, places, store).await?);
        }
    }
    let mut audits = Vec::new();
    for store in [Store::Sqlite, Store::Postgres] {
        if options.has_store(store) {
            audits.extend(audit(options, places, store).await?);
        }
    }
    Ok(LogFigures { costs, audits })
}

async fn cost(options: &Options, places: &mut Places, store: Store) -> Result<Cost> {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..options.repeats() {
        let name = store.as_str();
        crate::say(&format!("the log's cost on {name}, round {}", round + 1));
        // Whoever is second in one round is first in the next.
        for is_logged in [round % 2 == 0, round % 2 != 0] {
            let rate = rate(options, places, store, is_logged).await?;
            if is_logged { &mut with } else { &mut without }.push(rate);
        }
    }
    let cost = Cost {
        store,
        with: crate::median(&mut with),
        without: crate::median(&mut without),
    };
    // Told at once: the audits that follow take their time.
    let (name, percent) = (store.as_str(), cost.part() * 100.0);
    crate::say(&format!("the log costs {percent:.1} % on {name}"));
    Ok(cost)
}

async fn rate(
    options: &Options,
    places: &mut Places,
    store: Store,
    is_logged: bool,
) -> Result<f64> {
    let place = places.fresh(store)?;
    unlogged::set(!is_logged && store == Store::Sqlite);
    let opened = place.open().await?;
    if !is_logged && store == Store::Sqlite {
        // A receipt without a place costs an entry there, which one with a place does not.
        let file = rusqlite::Connection::open(&place.name)?;
        file.execute_batch("DROP INDEX receipt_stray")?;
    }
    let ours = Arc::new(Ours::start(Arc::clone(&opened)).await?);
    let started = Instant::now();
    let bounds = options.bounds(CALLERS);
    let (sample, _) = load::phase(&ours, bounds, |_| Numbers::fresh())
        .await
        .map_err(|problem| anyhow!(problem))?;
    let worked = started.elapsed();
    let mut spent = worked;
    if is_logged {
        let head = opened.log().sequence(&tenant()?).await?.head;
        spent = started.elapsed();
        anyhow::ensure!(head.size() >= sample.answered, "not all is in the log");
    }
    ours.stop().await?;
    unlogged::set(false);
    drop(opened);
    places.remove(place)?;
    // What the phase itself counts as its time, and the sequencer's on top.
    let own = seconds_of(sample.answered, sample.per_second);
    Ok(per_second(
        sample.answered,
        own + spent.checked_sub(worked).unwrap_or_default(),
    ))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of a benchmark are small"
)]
fn per_second(count: u64, spent: Duration) -> f64 {
    count as f64 / spent.as_secs_f64()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of a benchmark are small"
)]
fn seconds_of(count: u64, rate: f64) -> Duration {
    Duration::from_secs_f64(count as f64 / rate.max(1.0))
}

fn tenant() -> Result<TenantId> {
    TenantId::parse("acme").context("a tenant")
}

async fn audit(options: &Options, places: &mut Places, store: Store) -> Result<Vec<Audited>> {
    let [.., keys] = options.sizes();
    crate::say(&format!("writing {keys} receipts on {}", store.as_str()));
    let place = places.fresh(store)?;
    let opened = place.open().await?;
    let ours = Arc::new(Ours::start(Arc::clone(&opened)).await?);
    let bounds = Bounds {
        callers: FILLERS,
        seconds: f64::from(u32::MAX),
        actions: keys,
    };
    load::phase(&ours, bounds, |_| Numbers::fresh())
        .await
        .map_err(|problem| anyhow!(problem))?;
    ours.stop().await?;
    let tenant = tenant()?;
    let head = opened.log().sequence(&tenant).await?.head;
    let checkpoint = Checkpoint {
        origin: origin_of(&tenant),
        size: head.size(),
        root: head.root(),
    };
    let mut found = Vec::new();
    for against_store in [false, true] {
        let audit = Audit {
            checkpoints: vec![checkpoint.clone()],
            is_against_store: against_store,
        };
        found.push(audited(&opened, store, audit).await?);
    }
    drop(opened);
    places.remove(place)?;
    Ok(found)
}

async fn audited(store: &Arc<dyn DurableExec>, which: Store, audit: Audit) -> Result<Audited> {
    let against_store = audit.is_against_store;
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let found = inspect(store.log(), &tenant()?, audit, &mut |_, _| {}).await?;
    anyhow::ensure!(found.faults.is_empty(), "{:?}", found.faults);
    Ok(Audited {
        store: which,
        receipts: found.size,
        against_store,
        seconds: started.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu,
    })
}
