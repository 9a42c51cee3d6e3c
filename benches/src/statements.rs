//! Statements per action on Postgres, counted by the server itself in its log.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use load::{Bounds, Numbers};
use serde::Serialize;

use crate::options::Store;
use crate::ours::Ours;
use crate::place::Places;
use crate::server::Server;

/// Actions per caller that are counted.
const ACTIONS: u64 = 50;

/// What the server was asked per action.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Statements {
    pub(crate) callers: usize,
    pub(crate) per_new: f64,
    pub(crate) per_duplicate: f64,
}

/// Counts with one caller, where each batch is one action, and with many.
pub(crate) async fn count(places: &mut Places) -> Result<Vec<Statements>> {
    if places.server()?.log().is_none() {
        crate::say("statements are counted on a server of our own only");
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for callers in [1, 64] {
        found.push(with(places, callers).await?);
    }
    Ok(found)
}

async fn with(places: &mut Places, callers: usize) -> Result<Statements> {
    let place = places.fresh(Store::Postgres)?;
    let name = place.name.rsplit('/').next().unwrap_or_default().to_owned();
    let server = places.server()?;
    server.run(&format!("ALTER DATABASE {name} SET log_statement = 'all'"))?;
    let ours = Arc::new(Ours::start(place.open().await?).await?);
    let bounds = Bounds {
        callers,
        seconds: 60.0,
        actions: ACTIONS * callers as u64,
    };
    let said = |problem: String| anyhow!(problem);
    load::phase(&ours, bounds, |_| Numbers::warm_up())
        .await
        .map_err(said)?;
    let before = logged(places.server()?, &name)?;
    let (new, _) = load::phase(&ours, bounds, |_| Numbers::fresh())
        .await
        .map_err(said)?;
    let between = logged(places.server()?, &name)?;
    let (duplicate, _) = load::phase(&ours, bounds, |_| Numbers::again(ACTIONS))
        .await
        .map_err(said)?;
    let after = logged(places.server()?, &name)?;
    ours.stop().await?;
    places.remove(place)?;
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people to read")]
    let per = |statements: usize, actions: u64| statements as f64 / actions as f64;
    Ok(Statements {
        callers,
        per_new: per(between - before, new.answered),
        per_duplicate: per(after - between, duplicate.answered),
    })
}

/// How many statements the server logged for a database; a statement's further lines begin with a
/// tab and are not counted.
fn logged(server: &Server, database: &str) -> Result<usize> {
    let log = server.log().context("the server's log")??;
    let mine = format!("{database}|LOG:  ");
    Ok(log
        .lines()
        .filter_map(|line| line.strip_prefix(&mine))
        .filter(|said| said.starts_with("execute ") || said.starts_with("statement: "))
        .count())
}
