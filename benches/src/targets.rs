//! What was promised, what was measured, and whether that is enough.

use serde::Serialize;

use crate::Report;
use crate::log::{Cost, LogFigures};
use crate::options::Store;
use crate::policy::Policies;
use crate::rates::{Rates, Who};

/// Cost per action may differ by this much between the fewest keys and the most.
const FLAT: f64 = 0.20;

/// One promise.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) target: String,
    pub(crate) measured: String,
    pub(crate) ok: bool,
}

impl Target {
    fn at_least(what: &str, target: f64, measured: f64) -> Self {
        Self {
            what: what.to_owned(),
            target: format!("≥ {target} ×"),
            measured: format!("{measured:.2} ×"),
            ok: measured >= target,
        }
    }

    fn at_most(what: &str, target: f64, unit: &str, measured: f64) -> Self {
        Self {
            what: what.to_owned(),
            target: format!("≤ {target} {unit}"),
            measured: format!("{measured:.2} {unit}"),
            ok: measured <= target,
        }
    }
}

/// A ruling of 100 rules is quick, and rules for other tools cost it nothing.
fn rulings(policies: &Policies) -> Vec<Target> {
    let mut found = Vec::new();
    for ruled in policies.ruled.iter().filter(|ruled| ruled.rules == 100) {
        let what = format!("a ruling of 100 rules, {} for the tool", ruled.matching);
        found.push(Target::at_most(&what, 20.0, "µs", ruled.micros));
        let what = format!("{what}, of the memory store's action");
        let part = ruled.micros / policies.action_micros;
        found.push(Target::at_most(&what, 1.0, "×", part));
    }
    if let (Some(few), Some(many)) = (
        policies.ruled.first(),
        policies.ruled.iter().max_by_key(|ruled| ruled.rules),
    ) {
        let what = "a ruling with 10,000 rules for other tools, of one without";
        found.push(Target::at_most(
            what,
            1.0 + FLAT,
            "×",
            many.micros / few.micros,
        ));
    }
    found
}

/// The log is nearly free, and a million receipts are audited while one waits.
fn log(figures: &LogFigures) -> Vec<Target> {
    let cost = |cost: &Cost| {
        let what = format!("the log's part of new actions, {}", cost.store.as_str());
        Target::at_most(&what, 15.0, "%", cost.part() * 100.0)
    };
    let mut found: Vec<Target> = figures.costs.iter().map(cost).collect();
    for one in figures.audits.iter().filter(|one| !one.against_store) {
        let what = format!(
            "an audit of {} receipts, {}",
            one.receipts,
            one.store.as_str()
        );
        found.push(Target::at_most(&what, 10.0, "s", one.seconds));
    }
    found
}

/// Every promise this run can say something about.
pub(crate) fn judge(report: &Report) -> Vec<Target> {
    let mut found = Vec::new();
    if let Some(rates) = &report.rates {
        found.extend(embedded(rates));
        found.extend(against_dbos(rates));
        found.extend(against_inserts(rates));
    }
    found.extend(flatness(report));
    for count in report.statements.iter().filter(|count| count.callers == 1) {
        let what = "statements for a batch of new actions";
        found.push(Target::at_most(what, 2.0, "", count.per_new));
        let what = "statements for a batch of duplicates";
        found.push(Target::at_most(what, 1.0, "", count.per_duplicate));
    }
    if let Some(policies) = &report.policies {
        found.extend(rulings(policies));
    }
    if let Some(figures) = &report.log {
        found.extend(log(figures));
    }
    if let Some(once) = &report.once {
        let what = "`operators run --once` of one action, p50";
        found.push(Target::at_most(what, 50.0, "ms", once.p50_ms));
    }
    found
}

/// How many times as many new, and duplicate, actions a second as `other`.
fn ratios(rates: &Rates, store: Store, other: Who, callers: usize) -> Option<(f64, f64)> {
    let ours = rates.find(store, Who::Operators, callers)?.cell;
    let theirs = rates.find(store, other, callers)?.cell;
    Some((
        ours.new.per_second / theirs.new.per_second,
        ours.duplicate.per_second / theirs.duplicate.per_second,
    ))
}

fn embedded(rates: &Rates) -> Vec<Target> {
    let mut found = Vec::new();
    if let Some((new, _)) = ratios(rates, Store::Sqlite, Who::AgentEffects, 64) {
        let what = "SQLite, new, 64 callers, to agent-effects";
        found.push(Target::at_least(what, 20.0, new));
    }
    for callers in [1, 16, 64, 256] {
        if let Some((new, _)) = ratios(rates, Store::Memory, Who::AgentEffects, callers) {
            let what = format!("memory, new, {callers} callers, to agent-effects");
            found.push(Target::at_least(&what, 3.0, new));
        }
    }
    found
}

fn against_dbos(rates: &Rates) -> Vec<Target> {
    let mut found = Vec::new();
    for (callers, new_target, duplicate_target) in [
        (1, 1.0, 1.0),
        (16, 2.0, 1.0),
        (64, 1.0, 1.0),
        (256, 5.0, 10.0),
    ] {
        if let Some((new, duplicate)) = ratios(rates, Store::Postgres, Who::Dbos, callers) {
            let what = format!("Postgres, new, {callers} callers, to dbos");
            found.push(Target::at_least(&what, new_target, new));
            let what = format!("Postgres, duplicates, {callers} callers, to dbos");
            found.push(Target::at_least(&what, duplicate_target, duplicate));
        }
    }
    found
}

fn against_inserts(rates: &Rates) -> Vec<Target> {
    let mut found = Vec::new();
    let ours = |callers| rates.find(Store::Postgres, Who::Operators, callers);
    if let (Some(ours), Some(inserts)) = (ours(256), rates.pgbench.get(&32)) {
        let what = "Postgres, new, 256 callers, to pgbench's inserts with 32 clients";
        let ratio = ours.cell.new.per_second / inserts.per_second;
        found.push(Target::at_least(what, 0.5, ratio));
    }
    if let (Some(ours), Some(inserts)) = (ours(1), rates.pgbench.get(&1)) {
        let what = "Postgres, new, 1 caller, p50 to one durable insert's";
        let ratio = ours.cell.new.p50_us / inserts.p50_us;
        found.push(Target::at_most(what, 2.5, "×", ratio));
    }
    found
}

/// The costs at the most keys as a part of those at the fewest.
fn flatness(report: &Report) -> Vec<Target> {
    let mut found = Vec::new();
    for store in [Store::Sqlite, Store::Postgres] {
        let sizes: Vec<_> = report
            .growth
            .iter()
            .filter(|one| one.store == store)
            .collect();
        let (Some(few), Some(many)) = (sizes.first(), sizes.last()) else {
            continue;
        };
        let costs = [
            ("new", few.new.per_second / many.new.per_second),
            (
                "duplicates",
                few.duplicate.per_second / many.duplicate.per_second,
            ),
        ];
        for (which, cost) in costs {
            found.push(Target {
                what: format!(
                    "{}, {which}, cost at {} keys to that at {}",
                    store.as_str(),
                    many.keys,
                    few.keys
                ),
                target: "1 ± 0.20".to_owned(),
                measured: format!("{cost:.2}"),
                // Cheaper with more keys is no promise broken.
                ok: cost <= 1.0 + FLAT,
            });
        }
    }
    found
}
