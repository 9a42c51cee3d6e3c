//! What a run measures, and for how long.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use load::Bounds;
use serde::Serialize;

/// New and duplicate actions per second on each store, side by side with others, as ratios.
#[derive(Debug, Clone, Parser)]
#[command(name = "operators-benches")]
pub(crate) struct Options {
    /// A smoke test: seconds, not minutes; its figures say little.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these stores; may be given more than once.
    #[arg(long, value_name = "STORE")]
    only: Vec<Store>,
    /// Only these parts; may be given more than once.
    #[arg(long, value_name = "PART")]
    part: Vec<Part>,
    /// How many callers propose at once, in turn.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256])]
    callers: Vec<usize>,
    /// The longest one phase takes.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// The most actions of one phase, over all callers.
    #[arg(long, default_value_t = 1_000_000)]
    actions: u64,
    /// How often everything is measured; the medians are told.
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// Leave the peers out: nothing but this project and what the databases do by themselves.
    #[arg(long)]
    pub(crate) no_peers: bool,
    /// A Postgres to use (a role that may create databases) instead of starting one.
    #[arg(long, value_name = "URL")]
    pub(crate) postgres: Option<String>,
    /// A DynamoDB to use: `dynamodb:TABLE?region=…&endpoint=…`; left out otherwise. Tables `TABLE-1`,
    /// `TABLE-2`, … are made there, and stay.
    #[arg(long, value_name = "URL")]
    pub(crate) dynamodb: Option<String>,
    /// Where data folders are made and removed; decides which disk is measured.
    #[arg(long, value_name = "DIR", default_value = "/tmp")]
    pub(crate) dir: PathBuf,
    /// JSON instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where actions are remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Store {
    Memory,
    Sqlite,
    Postgres,
    Dynamodb,
}

impl Store {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Dynamodb => "dynamodb",
        }
    }
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Rates and latencies at each number of callers, with the peers.
    Rates,
    /// Cost per action at 10^4, 10^5 and 10^6 burned keys.
    Growth,
    /// Statements per action, from the server's own log.
    Statements,
    /// One caller on Postgres, by what a commit costs.
    Lone,
    /// What one ruling costs as rules grow.
    Policies,
    /// What the log of receipts costs, and how long an audit of a million takes.
    Log,
    /// Wall time of `operators run --once` of one action.
    Once,
}

impl Options {
    pub(crate) fn has_store(&self, store: Store) -> bool {
        let wanted = self.only.is_empty() || self.only.contains(&store);
        wanted && (store != Store::Dynamodb || self.dynamodb.is_some())
    }

    pub(crate) fn has_part(&self, part: Part) -> bool {
        self.part.is_empty() || self.part.contains(&part)
    }

    pub(crate) fn callers(&self) -> &[usize] {
        if self.quick { &[1, 64] } else { &self.callers }
    }

    pub(crate) fn repeats(&self) -> usize {
        if self.quick { 1 } else { self.repeats.max(1) }
    }

    pub(crate) fn seconds(&self) -> f64 {
        if self.quick { 0.3 } else { self.seconds }
    }

    pub(crate) fn bounds(&self, callers: usize) -> Bounds {
        Bounds {
            callers,
            seconds: self.seconds(),
            actions: self.actions,
        }
    }

    /// How many keys are burned before each measurement of growth.
    pub(crate) fn sizes(&self) -> [u64; 3] {
        if self.quick {
            [1_000, 3_000, 10_000]
        } else {
            [10_000, 100_000, 1_000_000]
        }
    }
}
