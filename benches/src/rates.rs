//! New and duplicate actions per second at each number of callers, all sides in turn.
//!
//! A round measures every side once, on a store nobody used before; rounds are repeated and the
//! medians told, so that whatever else the machine does hurts all sides alike.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use load::{Bounds, Cell, Sample};
use serde::Serialize;

use crate::floor::{self, Floor};
use crate::options::{Options, Store};
use crate::ours;
use crate::peer::Peer;
use crate::place::Places;

/// Who is measured on a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Who {
    /// This project.
    Operators,
    /// The crate `agent-effects`.
    AgentEffects,
    /// The crate `dbos`, the effect in a step, as its documentation asks.
    Dbos,
    /// The crate `dbos`, the effect in the workflow's own body: less is written, less is promised.
    DbosBare,
}

impl Who {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Operators => "operators",
            Self::AgentEffects => "agent-effects",
            Self::Dbos => "dbos",
            Self::DbosBare => "dbos, no step",
        }
    }
}

/// The sides of each store.
const SIDES: &[(Store, Who)] = &[
    (Store::Memory, Who::Operators),
    (Store::Memory, Who::AgentEffects),
    (Store::Sqlite, Who::Operators),
    (Store::Sqlite, Who::AgentEffects),
    (Store::Postgres, Who::Operators),
    (Store::Postgres, Who::AgentEffects),
    (Store::Postgres, Who::Dbos),
    (Store::Postgres, Who::DbosBare),
    (Store::Dynamodb, Who::Operators),
];

/// One side of one store at one number of callers: the medians of all rounds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Rate {
    pub(crate) store: Store,
    pub(crate) who: Who,
    pub(crate) callers: usize,
    #[serde(flatten)]
    pub(crate) cell: Cell,
}

/// Everything of this part.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Rates {
    pub(crate) rates: Vec<Rate>,
    /// Single durable inserts by `pgbench`, by number of clients.
    pub(crate) pgbench: BTreeMap<usize, Floor>,
    /// Single durable inserts into a SQLite file.
    pub(crate) sqlite_insert: Option<Floor>,
}

impl Rates {
    pub(crate) fn find(&self, store: Store, who: Who, callers: usize) -> Option<&Rate> {
        self.rates
            .iter()
            .find(|rate| (rate.store, rate.who, rate.callers) == (store, who, callers))
    }
}

/// The clients `pgbench` is run with: one for latency, 32 for the rate.
pub(crate) const PGBENCH_CLIENTS: [usize; 2] = [1, 32];

/// Measures every side.
pub(crate) async fn measure(options: &Options, places: &mut Places) -> Result<Rates> {
    let sides: Vec<(Store, Who)> = SIDES
        .iter()
        .copied()
        .filter(|(store, who)| {
            options.has_store(*store) && (*who == Who::Operators || !options.no_peers)
        })
        .collect();
    let mut peers = Peers::start(&sides)?;
    let mut cells: BTreeMap<(Store, Who, usize), Vec<Cell>> = BTreeMap::new();
    let mut inserts: BTreeMap<usize, Vec<Floor>> = BTreeMap::new();
    let mut sqlite_inserts = Vec::new();
    for round in 1..=options.repeats() {
        for callers in options.callers() {
            for (store, who) in &sides {
                crate::say(&format!(
                    "round {round}: {} on {}, {callers} callers",
                    who.as_str(),
                    store.as_str()
                ));
                let bounds = options.bounds(*callers);
                let cell = one(&mut peers, places, *store, *who, bounds)
                    .await
                    .with_context(|| format!("{} on {}", who.as_str(), store.as_str()))?;
                cells
                    .entry((*store, *who, *callers))
                    .or_default()
                    .push(cell);
            }
        }
        if options.has_store(Store::Sqlite) {
            sqlite_inserts.push(floor::sqlite(places.dir(), options.seconds())?);
        }
        if options.has_store(Store::Postgres) {
            for clients in PGBENCH_CLIENTS {
                let dir = places.dir().to_owned();
                let server = places.server()?;
                let floor = floor::pgbench(server, &dir, clients, options.seconds())?;
                inserts.entry(clients).or_default().push(floor);
            }
        }
    }
    Ok(Rates {
        rates: cells.iter().map(median_rate).collect(),
        pgbench: inserts
            .iter()
            .map(|(clients, floors)| (*clients, median_floor(floors)))
            .collect(),
        sqlite_insert: (!sqlite_inserts.is_empty()).then(|| median_floor(&sqlite_inserts)),
    })
}

/// The processes of the peers that are needed.
struct Peers {
    agent_effects: Option<Peer>,
    dbos: Option<Peer>,
}

impl Peers {
    fn start(sides: &[(Store, Who)]) -> Result<Self> {
        let needs = |wanted: &[Who]| sides.iter().any(|(_, who)| wanted.contains(who));
        let start = |needed: bool, name| needed.then(|| Peer::start(name)).transpose();
        Ok(Self {
            agent_effects: start(needs(&[Who::AgentEffects]), "agent-effects")?,
            dbos: start(needs(&[Who::Dbos, Who::DbosBare]), "dbos")?,
        })
    }
}

/// One side, once.
async fn one(
    peers: &mut Peers,
    places: &mut Places,
    store: Store,
    who: Who,
    bounds: Bounds,
) -> Result<Cell> {
    let place = places.fresh(store)?;
    let cell = match who {
        Who::Operators => ours::measure(place.open().await?, bounds).await,
        Who::AgentEffects => ask(
            &mut peers.agent_effects,
            store.as_str(),
            &place.name,
            bounds,
        ),
        Who::Dbos => ask(&mut peers.dbos, "step", &place.name, bounds),
        Who::DbosBare => ask(&mut peers.dbos, "bare", &place.name, bounds),
    };
    places.remove(place)?;
    cell
}

fn ask(peer: &mut Option<Peer>, store: &str, place: &str, bounds: Bounds) -> Result<Cell> {
    let peer = peer.as_mut().context("a peer that was not started")?;
    peer.measure(store, place, bounds)
}

fn median_rate((side, cells): (&(Store, Who, usize), &Vec<Cell>)) -> Rate {
    let (store, who, callers) = *side;
    Rate {
        store,
        who,
        callers,
        cell: Cell {
            new: median_sample(cells.iter().map(|cell| cell.new)),
            duplicate: median_sample(cells.iter().map(|cell| cell.duplicate)),
        },
    }
}

/// Each figure's own median.
pub(crate) fn median_sample(samples: impl Iterator<Item = Sample>) -> Sample {
    let samples: Vec<Sample> = samples.collect();
    let of = |pick: fn(&Sample) -> f64| {
        let mut figures: Vec<f64> = samples.iter().map(pick).collect();
        crate::median(&mut figures)
    };
    Sample {
        answered: samples.iter().map(|sample| sample.answered).sum(),
        per_second: of(|sample| sample.per_second),
        p50_us: of(|sample| sample.p50_us),
        p99_us: of(|sample| sample.p99_us),
    }
}

fn median_floor(floors: &[Floor]) -> Floor {
    let of = |pick: fn(&Floor) -> f64| {
        let mut figures: Vec<f64> = floors.iter().map(pick).collect();
        crate::median(&mut figures)
    };
    Floor {
        per_second: of(|floor| floor.per_second),
        p50_us: of(|floor| floor.p50_us),
    }
}
