//! Actions per second side by side with others, measured in one run and told as ratios.
//!
//! What is measured, how it is kept fair and what came out: `docs/benchmarks.md`.

mod floor;
mod growth;
mod log;
mod lone;
mod machine;
mod once;
mod options;
mod ours;
mod peer;
mod place;
mod policy;
mod rates;
mod server;
mod statements;
mod table;
mod targets;

use anyhow::Result;
use clap::Parser;
use serde::Serialize;

use machine::Machine;
use options::{Options, Part, Store};
use place::Places;

/// All that a run found.
#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    rates: Option<rates::Rates>,
    growth: Vec<growth::Growth>,
    statements: Vec<statements::Statements>,
    lone: Vec<lone::Lone>,
    once: Option<once::Once>,
    log: Option<log::LogFigures>,
    policies: Option<policy::Policies>,
    targets: Vec<targets::Target>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let mut report = measure(&options).await?;
    report.targets = targets::judge(&report);
    report.machine.finish();
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", table::render(&report));
    }
    Ok(())
}

async fn measure(options: &Options) -> Result<Report> {
    let machine = Machine::look();
    let mut places = Places::new(options)?;
    let mut report = Report {
        machine,
        rates: None,
        growth: Vec::new(),
        statements: Vec::new(),
        lone: Vec::new(),
        once: None,
        log: None,
        policies: None,
        targets: Vec::new(),
    };
    if options.has_part(Part::Rates) {
        report.rates = Some(rates::measure(options, &mut places).await?);
    }
    if options.has_part(Part::Growth) {
        report.growth = growth::measure(options, &mut places).await?;
    }
    if options.has_part(Part::Statements) && options.has_store(Store::Postgres) {
        report.statements = statements::count(&mut places).await?;
    }
    if options.has_part(Part::Lone) && options.has_store(Store::Postgres) {
        report.lone = lone::measure(options, &mut places).await?;
    }
    if options.has_part(Part::Policies) {
        report.policies = Some(policy::measure(options).await?);
    }
    if options.has_part(Part::Log) {
        report.log = Some(log::measure(options, &mut places).await?);
    }
    if options.has_part(Part::Once) {
        report.once = Some(once::measure(places.dir())?);
    }
    Ok(report)
}

/// Tells how far the run is, on standard error.
fn say(line: &str) {
    eprintln!("{line}");
}

/// The middle one; the lower of the two middle ones of an even number.
fn median(figures: &mut [f64]) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    let middle = figures.len().saturating_sub(1) / 2;
    figures.get(middle).copied().unwrap_or(0.0)
}
