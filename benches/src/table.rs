//! The run as tables, in Markdown: what is printed is what the documentation holds.

use std::fmt::Write;

use load::Sample;

use crate::Report;
use crate::options::Store;
use crate::rates::{Rate, Rates, Who};

/// All tables.
pub(crate) fn render(report: &Report) -> String {
    let mut text = report.machine.lines();
    if let Some(rates) = &report.rates {
        for store in [
            Store::Memory,
            Store::Sqlite,
            Store::Postgres,
            Store::Dynamodb,
        ] {
            text += &of_store(rates, store);
        }
        text += &inserts(rates);
    }
    text += &growth(report);
    text += &counts(report);
    text += &lone(report);
    text += &policies(report);
    text += &log(report);
    text += &targets(report);
    text
}

fn lone(report: &Report) -> String {
    let row = |one: &crate::lone::Lone| {
        vec![
            format!("{} µs", one.delay_us),
            format!("{:.0} µs", one.insert_p50_us),
            format!("{:.0} µs", one.new_p50_us),
            format!("{:.2} ×", one.new_p50_us / one.insert_p50_us),
        ]
    };
    let rows: Vec<Vec<String>> = report.lone.iter().map(row).collect();
    let head = [
        "more per commit",
        "one insert, p50",
        "a new action, p50",
        "ours ÷ insert",
    ];
    table(
        "### One caller on Postgres, by what a commit costs",
        &head,
        &rows,
    )
}

fn log(report: &Report) -> String {
    let Some(log) = &report.log else {
        return String::new();
    };
    let cost = |cost: &crate::log::Cost| {
        vec![
            cost.store.as_str().to_owned(),
            format!("{:.0}", cost.with),
            format!("{:.0}", cost.without),
            format!("{:.1} %", cost.part() * 100.0),
        ]
    };
    let costs: Vec<Vec<String>> = log.costs.iter().map(cost).collect();
    let head = ["store", "new/s with the log", "without", "it costs"];
    let mut text = table("### the log", &head, &costs);
    let audit = |one: &crate::log::Audited| {
        vec![
            one.store.as_str().to_owned(),
            one.receipts.to_string(),
            if one.against_store { "yes" } else { "no" }.to_owned(),
            format!("{:.2}", one.seconds),
            format!("{:.2}", one.cpu_seconds),
        ]
    };
    let audits: Vec<Vec<String>> = log.audits.iter().map(audit).collect();
    let head = ["audit", "receipts", "keys compared", "s", "s of CPU"];
    text += &table("### audits", &head, &audits);
    text
}

fn policies(report: &Report) -> String {
    let Some(policies) = &report.policies else {
        return String::new();
    };
    let row = |ruled: &crate::policy::Ruled| {
        vec![
            ruled.rules.to_string(),
            ruled.matching.to_string(),
            format!("{:.2}", ruled.micros),
            format!("{:.2} ×", ruled.micros / policies.action_micros),
        ]
    };
    let rows: Vec<Vec<String>> = policies.ruled.iter().map(row).collect();
    let head = ["rules", "for the tool", "µs a ruling", "of a memory action"];
    table("### rulings", &head, &rows)
}

fn table(title: &str, head: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{title}\n\n| {} |\n|", head.join(" | "));
    for (column, _) in head.iter().enumerate() {
        text += if column == 0 { "---|" } else { "---:|" };
    }
    for row in rows {
        // Writing to a string does not fail.
        let _ = write!(text, "\n| {} |", row.join(" | "));
    }
    text + "\n"
}

fn of_store(rates: &Rates, store: Store) -> String {
    let rows: Vec<Vec<String>> = rates
        .rates
        .iter()
        .filter(|rate| rate.store == store)
        .map(|rate| row(rates, rate))
        .collect();
    let mut sorted = rows;
    sorted.sort_by_key(|row| row[1].parse::<usize>().unwrap_or(0));
    table(
        &format!("### {}", store.as_str()),
        &[
            "side",
            "callers",
            "new/s",
            "p50",
            "p99",
            "ours ÷ theirs",
            "duplicates/s",
            "p50",
            "p99",
            "ours ÷ theirs",
        ],
        &sorted,
    )
}

fn row(rates: &Rates, rate: &Rate) -> Vec<String> {
    let ours = rates.find(rate.store, Who::Operators, rate.callers);
    let ratio = |pick: fn(&Rate) -> Sample| match ours {
        Some(ours) if rate.who != Who::Operators => {
            format!("{:.1} ×", pick(ours).per_second / pick(rate).per_second)
        }
        _ => String::new(),
    };
    let mut cells = vec![rate.who.as_str().to_owned(), rate.callers.to_string()];
    cells.extend(figures(&rate.cell.new));
    cells.push(ratio(|rate| rate.cell.new));
    cells.extend(figures(&rate.cell.duplicate));
    cells.push(ratio(|rate| rate.cell.duplicate));
    cells
}

fn figures(sample: &Sample) -> [String; 3] {
    [
        format!("{:.0}", sample.per_second),
        time(sample.p50_us),
        time(sample.p99_us),
    ]
}

fn time(us: f64) -> String {
    if us < 1_000.0 {
        format!("{us:.0} µs")
    } else {
        format!("{:.1} ms", us / 1_000.0)
    }
}

fn inserts(rates: &Rates) -> String {
    let mut rows = Vec::new();
    if let Some(floor) = rates.sqlite_insert {
        rows.push(vec![
            "SQLite, one connection".to_owned(),
            format!("{:.0}", floor.per_second),
            time(floor.p50_us),
        ]);
    }
    for (clients, floor) in &rates.pgbench {
        rows.push(vec![
            format!("pgbench, {clients} clients"),
            format!("{:.0}", floor.per_second),
            time(floor.p50_us),
        ]);
    }
    table(
        "### One durable insert, nothing else",
        &["what", "inserts/s", "p50"],
        &rows,
    )
}

fn growth(report: &Report) -> String {
    let rows: Vec<Vec<String>> = report
        .growth
        .iter()
        .map(|one| {
            vec![
                one.store.as_str().to_owned(),
                one.keys.to_string(),
                format!("{:.0}", one.new.per_second),
                format!("{:.1} µs", 1e6 / one.new.per_second),
                format!("{:.0}", one.duplicate.per_second),
                format!("{:.1} µs", 1e6 / one.duplicate.per_second),
            ]
        })
        .collect();
    table(
        "### Cost per action by burned keys, 64 callers",
        &[
            "store",
            "keys burned",
            "new/s",
            "each",
            "duplicates/s",
            "each",
        ],
        &rows,
    )
}

fn counts(report: &Report) -> String {
    let rows: Vec<Vec<String>> = report
        .statements
        .iter()
        .map(|count| {
            vec![
                count.callers.to_string(),
                format!("{:.2}", count.per_new),
                format!("{:.2}", count.per_duplicate),
            ]
        })
        .collect();
    let mut text = table(
        "### Statements per action on Postgres, from the server's log",
        &["callers", "new", "duplicate"],
        &rows,
    );
    if let Some(once) = &report.once {
        let row = vec![
            format!("{:.1} ms", once.p50_ms),
            format!("{:.1} ms", once.max_ms),
            format!("{:.1} ms", once.duplicate_p50_ms),
        ];
        text += &table(
            "### `operators run --once` of one action, from start to exit",
            &["new, p50", "slowest", "duplicate, p50"],
            &[row],
        );
    }
    text
}

fn targets(report: &Report) -> String {
    let rows: Vec<Vec<String>> = report
        .targets
        .iter()
        .map(|target| {
            vec![
                target.what.clone(),
                target.target.clone(),
                target.measured.clone(),
                if target.ok { "ok" } else { "**short**" }.to_owned(),
            ]
        })
        .collect();
    table("### Targets", &["what", "target", "measured", ""], &rows)
}
