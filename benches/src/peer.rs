//! A peer in a process of its own: built from its own workspace, asked one line per cell.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use load::{Bounds, Cell, Reply, Request};

/// The folder of this program's own sources.
pub(crate) fn home() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A running peer. It ends when its standard input does.
#[derive(Debug)]
pub(crate) struct Peer {
    child: Child,
    /// `None` only while it is being dropped.
    requests: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
}

impl Peer {
    /// Builds the peer of that name and starts it.
    pub(crate) fn start(name: &str) -> Result<Self> {
        let workspace = home().join("peers").join(name);
        let target = home().join("target").join("peers");
        build(&workspace, &target, &[])?;
        let program = target.join("release").join(format!("peer-{name}"));
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let requests = child.stdin.take();
        let replies = child.stdout.take().context("a peer without an output")?;
        Ok(Self {
            child,
            requests,
            replies: BufReader::new(replies),
        })
    }

    /// Has it measure one cell.
    pub(crate) fn measure(&mut self, store: &str, place: &str, bounds: Bounds) -> Result<Cell> {
        let request = Request {
            store: store.to_owned(),
            place: place.to_owned(),
            bounds,
        };
        let requests = self.requests.as_mut().context("the peer is gone")?;
        writeln!(requests, "{}", serde_json::to_string(&request)?)?;
        requests.flush()?;
        let mut line = String::new();
        self.replies.read_line(&mut line)?;
        match serde_json::from_str(&line).context("the peer ended")? {
            Reply::Measured(cell) => Ok(cell),
            Reply::Failed(problem) => bail!("{problem}"),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.requests = None;
        // It has nothing left to do; how it ends changes no figure.
        drop(self.child.wait());
    }
}

/// Builds a workspace for release, its progress on standard error.
pub(crate) fn build(workspace: &Path, target: &Path, arguments: &[&str]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "--locked", "--manifest-path"])
        .arg(workspace.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .args(arguments)
        .stdout(std::io::stderr())
        .status()
        .context("running cargo")?;
    if !built.success() {
        bail!("{} did not build", workspace.display());
    }
    Ok(())
}
