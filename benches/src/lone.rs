//! One caller on Postgres beside one durable insert, on disks of different speed.
//!
//! Two commits are never less than two inserts; what is added to them is the server's own work, which
//! does not depend on the disk. So the ratio does: the slower a commit, the nearer it is to two. Slower
//! disks are had by letting the server wait before each flush (`commit_delay`), for both sides alike.

use anyhow::Result;
use load::Bounds;
use serde::Serialize;

use crate::floor;
use crate::options::{Options, Store};
use crate::ours;
use crate::place::Places;

/// What is added to a commit: nothing, about what a network disk adds, and about what one that
/// replicates does.
const DELAYS_US: [u32; 4] = [0, 500, 1_000, 4_000];

/// Both sides on a disk whose commits take so much longer.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Lone {
    /// What the server waits before each flush.
    pub(crate) delay_us: u32,
    /// Half of the inserts took at most this long.
    pub(crate) insert_p50_us: f64,
    /// Half of the new actions did.
    pub(crate) new_p50_us: f64,
}

/// Measures both sides in turn, as often as everything is repeated.
pub(crate) async fn measure(options: &Options, places: &mut Places) -> Result<Vec<Lone>> {
    let mut found = Vec::new();
    for delay_us in DELAYS_US {
        set_delay(places, delay_us)?;
        let (mut inserts, mut actions) = (Vec::new(), Vec::new());
        for round in 1..=options.repeats() {
            crate::say(&format!(
                "round {round}: one caller, {delay_us} µs more per commit"
            ));
            let dir = places.dir().to_owned();
            let insert = floor::pgbench(places.server()?, &dir, 1, options.seconds())?;
            inserts.push(insert.p50_us);
            let place = places.fresh(Store::Postgres)?;
            let bounds = Bounds {
                callers: 1,
                ..options.bounds(1)
            };
            let cell = ours::measure(place.open().await?, bounds).await;
            places.remove(place)?;
            actions.push(cell?.new.p50_us);
        }
        found.push(Lone {
            delay_us,
            insert_p50_us: crate::median(&mut inserts),
            new_p50_us: crate::median(&mut actions),
        });
    }
    set_delay(places, 0)?;
    Ok(found)
}

/// For every commit from now on, with others or alone.
fn set_delay(places: &mut Places, delay_us: u32) -> Result<()> {
    let server = places.server()?;
    server.run("ALTER SYSTEM SET commit_siblings = 0")?;
    server.run(&format!("ALTER SYSTEM SET commit_delay = {delay_us}"))?;
    server.run("SELECT pg_reload_conf()")?;
    Ok(())
}
