//! What an action costs when 10^4, 10^5 and 10^6 keys are burned already.
//!
//! The stores are filled through the executor, so every row is a real one; then they are measured
//! in turn, so that the machine's moods hit all sizes alike. Duplicates are of keys spread over all
//! that are burned, not of those just written.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use load::{Bounds, EffectName, Numbers, Sample, Side};
use serde::Serialize;

use crate::options::{Options, Store};
use crate::ours::Ours;
use crate::place::{Place, Places};
use crate::rates::median_sample;

/// Enough at once that a commit's cost is shared, and no more than a busy service has.
const CALLERS: usize = 64;

/// How many fill a store.
const FILLERS: usize = 512;

/// Fillers are numbered from here on, so that measuring proposes no filled key by chance.
const FIRST_FILLER: usize = 1_000;

/// One size of one store.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Growth {
    pub(crate) store: Store,
    /// How many keys were burned before.
    pub(crate) keys: u64,
    pub(crate) new: Sample,
    pub(crate) duplicate: Sample,
}

/// A filled store.
struct Filled {
    place: Place,
    keys: u64,
    ours: Arc<Ours>,
    new: Vec<Sample>,
    duplicate: Vec<Sample>,
}

/// Measures SQLite and Postgres.
pub(crate) async fn measure(options: &Options, places: &mut Places) -> Result<Vec<Growth>> {
    let mut found = Vec::new();
    for store in [Store::Sqlite, Store::Postgres] {
        if options.has_store(store) {
            found.extend(of_store(options, places, store).await?);
        }
    }
    Ok(found)
}

async fn of_store(options: &Options, places: &mut Places, store: Store) -> Result<Vec<Growth>> {
    let mut filled = Vec::new();
    for keys in options.sizes() {
        crate::say(&format!("burning {keys} keys on {}", store.as_str()));
        filled.push(fill(places, store, keys).await?);
    }
    if store == Store::Postgres {
        // What a server does by itself in quiet hours, so that it does not do it between two sizes.
        for one in &filled {
            crate::server::run_on(&one.place.name, "VACUUM ANALYZE")?;
        }
        places.server()?.run("CHECKPOINT")?;
    }
    for round in 0..options.repeats() {
        crate::say(&format!(
            "growth on {}, round {}",
            store.as_str(),
            round + 1
        ));
        for one in &mut filled {
            one.measure(round, options.bounds(CALLERS)).await?;
        }
    }
    let mut found = Vec::new();
    for one in filled {
        found.push(Growth {
            store,
            keys: one.keys,
            new: median_sample(one.new.into_iter()),
            duplicate: median_sample(one.duplicate.into_iter()),
        });
        one.ours.stop().await?;
        places.remove(one.place)?;
    }
    Ok(found)
}

async fn fill(places: &mut Places, store: Store, keys: u64) -> Result<Filled> {
    let place = places.fresh(store)?;
    let ours = Arc::new(Ours::start(place.open().await?).await?);
    let fillers = Arc::new(Filler(Arc::clone(&ours)));
    let bounds = Bounds {
        callers: FILLERS,
        seconds: f64::from(u32::MAX),
        actions: keys,
    };
    let (sample, _) = load::phase(&fillers, bounds, |_| Numbers::fresh())
        .await
        .map_err(|problem| anyhow!(problem))?;
    Ok(Filled {
        place,
        keys: sample.answered,
        ours,
        new: Vec::new(),
        duplicate: Vec::new(),
    })
}

impl Filled {
    async fn measure(&mut self, round: usize, bounds: Bounds) -> Result<()> {
        let fresh = Arc::new(Shifted {
            ours: Arc::clone(&self.ours),
            callers: round * CALLERS,
        });
        let (new, _) = load::phase(&fresh, bounds, |_| Numbers::fresh())
            .await
            .map_err(|problem| anyhow!(problem))?;
        self.new.push(new);
        let before = self.ours.effects.count();
        let spread = Arc::new(Spread {
            ours: Arc::clone(&self.ours),
            keys: self.keys,
        });
        let (duplicate, _) = load::phase(&spread, bounds, |_| Numbers::fresh())
            .await
            .map_err(|problem| anyhow!(problem))?;
        self.duplicate.push(duplicate);
        if self.ours.effects.count() != before {
            return Err(anyhow!("a burned key had an effect"));
        }
        Ok(())
    }
}

/// Burns keys under names of their own.
struct Filler(Arc<Ours>);

impl Side for Filler {
    async fn propose(&self, effect: EffectName) -> Result<(), String> {
        let caller = FIRST_FILLER + effect.caller;
        self.0.propose(EffectName { caller, ..effect }).await
    }
}

/// Proposes effects that no earlier round proposed.
struct Shifted {
    ours: Arc<Ours>,
    callers: usize,
}

impl Side for Shifted {
    async fn propose(&self, effect: EffectName) -> Result<(), String> {
        let caller = self.callers + effect.caller;
        self.ours.propose(EffectName { caller, ..effect }).await
    }
}

/// Proposes keys that were burned before, all over the place.
struct Spread {
    ours: Arc<Ours>,
    keys: u64,
}

impl Side for Spread {
    async fn propose(&self, effect: EffectName) -> Result<(), String> {
        // A multiplicative hash: the same every run, and no two neighbours near each other.
        let seed = (effect.caller as u64) << 32 | effect.number;
        let place = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let one = place % self.keys;
        let fillers = FILLERS as u64;
        let name = EffectName {
            caller: FIRST_FILLER + usize::try_from(one % fillers).unwrap_or(0),
            number: one / fillers,
        };
        self.ours.propose(name).await
    }
}
