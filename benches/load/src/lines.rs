//! What the benchmark and a peer's process say to each other: one JSON line each way per cell.

use std::io::{BufRead, Write};

use serde::{Deserialize, Serialize};

use crate::{Bounds, Cell};

/// Asks for one cell, on a store that nobody used before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Which of the peer's stores or ways of use.
    pub store: String,
    /// The store's file or URL; empty for memory.
    pub place: String,
    /// When its phases end.
    pub bounds: Bounds,
}

/// The answer to one [`Request`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// What was measured.
    Measured(Cell),
    /// Why nothing was.
    Failed(String),
}

/// Answers requests on standard input until it ends.
pub fn serve(measure: impl AsyncFn(Request) -> Result<Cell, String>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    for line in std::io::stdin().lock().lines() {
        let reply = match serde_json::from_str::<Request>(&line?) {
            Ok(request) => match runtime.block_on(measure(request)) {
                Ok(cell) => Reply::Measured(cell),
                Err(problem) => Reply::Failed(problem),
            },
            Err(problem) => Reply::Failed(problem.to_string()),
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&reply)?)?;
        out.flush()?;
    }
    Ok(())
}
