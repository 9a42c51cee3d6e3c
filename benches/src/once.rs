//! How long `operators run --once` of a plan of one action takes, from start to exit.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::peer;

/// Runs that are timed, and runs before that are not.
const RUNS: usize = 30;
const WARM_UP: usize = 3;

/// The operator of the example project, whose own policy lets the action run.
const OPERATOR: &str = "ship-risk";

/// Wall time of one command.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Once {
    /// Half of the runs took at most this long.
    pub(crate) p50_ms: f64,
    /// The slowest.
    pub(crate) max_ms: f64,
    /// The same for a duplicate.
    pub(crate) duplicate_p50_ms: f64,
}

/// Measures on an example project that exists already, on its SQLite file.
pub(crate) fn measure(dir: &Path) -> Result<Once> {
    let program = build()?;
    let project = dir.join("once");
    let made = Command::new(&program)
        .arg("init")
        .arg(&project)
        .output()
        .context("running operators init")?;
    if !made.status.success() {
        bail!("operators init: {}", String::from_utf8_lossy(&made.stderr));
    }
    let mut taken_ms = Vec::new();
    for run in 0..WARM_UP + RUNS {
        let ms = run_once(&program, &project, run)?;
        if run >= WARM_UP {
            taken_ms.push(ms);
        }
    }
    let duplicates: Result<Vec<f64>> = (0..RUNS)
        .map(|run| run_once(&program, &project, run))
        .collect();
    Ok(Once {
        max_ms: taken_ms.iter().copied().fold(0.0, f64::max),
        p50_ms: crate::median(&mut taken_ms),
        duplicate_p50_ms: crate::median(&mut duplicates?),
    })
}

fn run_once(program: &Path, project: &Path, number: usize) -> Result<f64> {
    let plan = project.join("plans").join("one.json");
    let action = format!(
        r#"[{{"connector": "shop", "tool": "orders.hold", "value": 180,
             "args": {{"order": "SO-{number}", "reason": "ship-risk-review"}},
             "entity_key": "order:SO-{number}", "idempotency_key": "order:SO-{number}:hold"}}]"#
    );
    std::fs::write(&plan, action)?;
    let begun = Instant::now();
    let done = Command::new(program)
        .arg("-C")
        .arg(project)
        .args(["run", OPERATOR, "--once", "--plan"])
        .arg(&plan)
        .output()?;
    let taken_ms = begun.elapsed().as_secs_f64() * 1e3;
    if !done.status.success() {
        bail!("operators run: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(taken_ms)
}

/// The release binary of this tree.
fn build() -> Result<PathBuf> {
    let root = peer::home().join("..");
    let target = root.join("target");
    peer::build(&root, &target, &["--package", "operators"])?;
    Ok(target.join("release").join("operators"))
}
