//! What one durable insert costs on the same disk, without any of this: the floor to compare with.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::server::{Server, run_on};

/// As large as a small receipt.
const BODY_BYTES: usize = 300;

/// Single durable inserts.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Floor {
    /// How many a second.
    pub(crate) per_second: f64,
    /// How long half of them took at most.
    pub(crate) p50_us: f64,
}

/// `pgbench` with that many clients, each inserting one row per transaction.
pub(crate) fn pgbench(
    server: &mut Server,
    dir: &Path,
    clients: usize,
    seconds: f64,
) -> Result<Floor> {
    let url = server.fresh_database()?;
    run_on(
        &url,
        "CREATE TABLE durable_insert (id bigserial PRIMARY KEY, body text NOT NULL)",
    )?;
    let script = dir.join("insert.sql");
    let body = "x".repeat(BODY_BYTES);
    fs::write(
        &script,
        format!("INSERT INTO durable_insert (body) VALUES ('{body}');\n"),
    )?;
    let folder = tempfile::tempdir_in(dir)?;
    // Whole seconds are all it knows.
    let whole_seconds = seconds.ceil().max(1.0).to_string();
    let threads = clients.min(std::thread::available_parallelism()?.get());
    let done = Command::new("pgbench")
        .args(["--no-vacuum", "--protocol=prepared", "--log"])
        .args(["--client", &clients.to_string()])
        .args(["--jobs", &threads.to_string()])
        .args(["--time", &whole_seconds, "--file"])
        .arg(&script)
        .arg(&url)
        .current_dir(folder.path())
        .output()
        .context("running pgbench")?;
    let said = String::from_utf8_lossy(&done.stdout);
    if !done.status.success() {
        bail!("pgbench: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    let per_second = said
        .lines()
        .filter(|line| line.contains("without initial connection time"))
        .find_map(|line| line.split_whitespace().nth(2)?.parse().ok())
        .context("pgbench told no rate")?;
    let p50_us = median_of_logs(folder.path())?;
    server.drop_database(&url)?;
    Ok(Floor { per_second, p50_us })
}

/// The third column of pgbench's log is what a transaction took, in microseconds.
fn median_of_logs(folder: &Path) -> Result<f64> {
    let mut taken_us: Vec<f64> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let text = fs::read_to_string(entry?.path())?;
        let column = |line: &str| line.split(' ').nth(2)?.parse::<f64>().ok();
        taken_us.extend(text.lines().filter_map(column));
    }
    Ok(crate::median(&mut taken_us))
}

/// One connection to a SQLite file with the store's own settings, one row per transaction.
pub(crate) fn sqlite(dir: &Path, seconds: f64) -> Result<Floor> {
    let folder = tempfile::tempdir_in(dir)?;
    let connection = rusqlite::Connection::open(folder.path().join("floor.db"))?;
    connection.execute_batch(
        "PRAGMA journal_mode = wal; PRAGMA synchronous = FULL;
         CREATE TABLE durable_insert (id INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;",
    )?;
    let mut insert = connection.prepare("INSERT INTO durable_insert (body) VALUES (?1)")?;
    let body = "x".repeat(BODY_BYTES);
    let (begun, longest) = (Instant::now(), Duration::from_secs_f64(seconds));
    let mut taken_us = Vec::new();
    while begun.elapsed() < longest {
        let asked = Instant::now();
        insert.execute([&body])?;
        taken_us.push(asked.elapsed().as_secs_f64() * 1e6);
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate for people to read")]
    let per_second = taken_us.len() as f64 / begun.elapsed().as_secs_f64();
    Ok(Floor {
        per_second,
        p50_us: crate::median(&mut taken_us),
    })
}
