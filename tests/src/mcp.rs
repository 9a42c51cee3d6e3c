//! A real MCP server for tests, got from its registry.
//!
//! `@modelcontextprotocol/server-filesystem` is installed once into `.tools/`. Where it cannot be
//! had (no `npm`, no network), tests that need it are skipped aloud; with `CI` set they fail.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The package and its version; `docs/guides/connectors.md` names the same.
const PACKAGE: &str = "@modelcontextprotocol/server-filesystem";
const VERSION: &str = "2026.8.31";

/// The script to start with `node`; `None`, said aloud, if there is none to be had.
pub fn filesystem_server() -> Option<&'static Path> {
    static SCRIPT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match SCRIPT.get_or_init(installed) {
        Ok(script) => Some(script),
        Err(problem) => {
            assert!(
                std::env::var_os("CI").is_none(),
                "no MCP server to test with: {problem}"
            );
            eprintln!("skipped: no MCP server to test with: {problem}");
            None
        }
    }
}

fn installed() -> Result<PathBuf, String> {
    let in_words = |error: std::io::Error| error.to_string();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/mcp");
    let script = root.join(format!("node_modules/{PACKAGE}/dist/index.js"));
    std::fs::create_dir_all(&root).map_err(in_words)?;
    // One of many test processes installs, the others wait for it.
    let lock = File::create(root.join("lock")).map_err(in_words)?;
    lock.lock().map_err(in_words)?;
    if !script.exists() {
        eprintln!("installing {PACKAGE} {VERSION} into .tools (once)");
        let status = Command::new("npm")
            .args(["install", "--no-audit", "--no-fund", "--ignore-scripts"])
            .args(["--silent", &format!("{PACKAGE}@{VERSION}"), "--prefix"])
            .arg(&root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .map_err(|error| format!("`npm` does not start: {error}"))?;
        if !status.success() || !script.exists() {
            return Err(format!("`npm install {PACKAGE}` failed: {status}"));
        }
    }
    script.canonicalize().map_err(in_words)
}
