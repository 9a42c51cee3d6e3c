//! What depends on us keeps its own HTTP client as it is: features of a crate that both use are
//! joined, so a choice of ours would be theirs too.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::top;

/// Written for the embedder: the profile is the workspace's, so that what is built is shared.
fn manifest() -> String {
    let top = top();
    let top = top.display();
    format!(
        r#"
[package]
name = "embedder"
version = "0.0.0"
edition = "2024"
publish = false

[workspace]

[dependencies]
operators-connectors = {{ path = "{top}/connectors", default-features = false }}
operators-kernel = {{ path = "{top}/kernel" }}
reqwest = {{ version = "0.13", default-features = false }}
rustls = {{ version = "0.23", default-features = false }}
serde_json = "1"
tokio = {{ version = "1", features = ["macros", "rt"] }}

[profile.dev]
debug = "line-tables-only"
"#
    )
}

fn run(folder: &Path, target: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO"))
        .args(["run", "--quiet"])
        .args(more)
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", target)
        .output()
        .expect("cargo runs")
}

/// A program that has `reqwest` without TLS made a client of it panic by depending on us: our
/// features were joined with its own, and we set the process's provider besides.
#[test]
fn an_embedders_own_client_works_unchanged() {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = scratch.join("embedder");
    let target = scratch.parent().expect("it is in the target folder");
    fs::create_dir_all(folder.join("src")).expect("a folder");
    fs::write(folder.join("Cargo.toml"), manifest()).expect("written");
    let program = include_str!("embedder/main.rs");
    fs::write(folder.join("src/main.rs"), program).expect("written");
    // The same versions as ours, and what is missing in addition.
    fs::copy(top().join("Cargo.lock"), folder.join("Cargo.lock")).expect("copied");
    let mut ran = run(&folder, target, &["--offline"]);
    let mut said = String::from_utf8_lossy(&ran.stderr).into_owned();
    if said.contains("--offline") {
        ran = run(&folder, target, &[]);
        said = String::from_utf8_lossy(&ran.stderr).into_owned();
    }
    if said.contains("failed to download") || said.contains("failed to get `reqwest`") {
        assert!(std::env::var_os("CI").is_none(), "no `reqwest`: {said}");
        eprintln!("skipped: no `reqwest` to be had: {said}");
        return;
    }
    assert!(ran.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "unchanged\n");
}
