//! Which crate may know which, as `docs/ARCHITECTURE.md` says.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::{read, top};

/// Each crate and those of ours that it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("operators-kernel", &[]),
    ("operators-sql", &["operators-kernel"]),
    ("operators-seams", &["operators-kernel", "operators-sql"]),
    (
        "operators-connectors",
        &["operators-kernel", "operators-sql"],
    ),
    ("operators-policies", &["operators-kernel"]),
    (
        "operators",
        &[
            "operators-kernel",
            "operators-seams",
            "operators-connectors",
            "operators-policies",
        ],
    ),
];

/// What the kernel must never reach, directly or not: databases, networks, command lines.
const FORBIDDEN_IN_KERNEL: &[&str] = &[
    "sqlx",
    "sqlx-core",
    "rusqlite",
    "libsqlite3-sys",
    "aws-sdk-dynamodb",
    "aws-config",
    "clap",
    "reqwest",
    "hyper",
    "rustls",
    "uuid",
    "rand",
    "getrandom",
    "chrono",
    "anyhow",
];

/// What nothing may bring in: one TLS stack, and none that needs a C library of its own; and no
/// client that embedders have too, whose features ours would be joined with.
const FORBIDDEN_ANYWHERE: &[&str] = &[
    "openssl-sys",
    "aws-lc-rs",
    "aws-lc-sys",
    "native-tls",
    "reqwest",
];

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--all-features"])
        .current_dir(top())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

fn names(metadata: &Value) -> BTreeMap<String, String> {
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| {
            let text = |field: &str| package[field].as_str().expect("text").to_owned();
            (text("id"), text("name"))
        })
        .collect()
}

/// The normal (not dev) dependencies of every package, by name.
fn dependencies(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let names = names(metadata);
    let nodes = metadata["resolve"]["nodes"].as_array().expect("nodes");
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in nodes {
        let name = names[node["id"].as_str().expect("id")].clone();
        let reached = edges.entry(name).or_default();
        for dependency in node["deps"].as_array().expect("deps") {
            let kinds = dependency["dep_kinds"].as_array().expect("kinds");
            if kinds.iter().any(|kind| kind["kind"].is_null()) {
                reached.insert(names[dependency["pkg"].as_str().expect("pkg")].clone());
            }
        }
    }
    edges
}

#[test]
fn crates_depend_only_on_whom_they_may_know() {
    let edges = dependencies(&metadata());
    for (name, allowed) in ALLOWED {
        let ours: Vec<&String> = edges[*name]
            .iter()
            .filter(|other| other.starts_with("operators"))
            .collect();
        for other in ours {
            assert!(
                allowed.contains(&other.as_str()),
                "{name} must not know {other}"
            );
        }
    }
}

#[test]
fn the_kernel_reaches_no_database_no_network_and_no_command_line() {
    let edges = dependencies(&metadata());
    let mut reached = BTreeSet::new();
    let mut open = vec!["operators-kernel".to_owned()];
    while let Some(name) = open.pop() {
        for next in &edges[&name] {
            if reached.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    for forbidden in FORBIDDEN_IN_KERNEL {
        assert!(
            !reached.contains(*forbidden),
            "the kernel reaches {forbidden}"
        );
    }
    assert!(reached.contains("tokio"), "the search itself works");
}

#[test]
fn one_tls_stack_and_no_openssl() {
    let lock = read(&top().join("Cargo.lock"));
    for forbidden in FORBIDDEN_ANYWHERE {
        let line = format!("name = \"{forbidden}\"");
        assert!(!lock.contains(&line), "{forbidden} is in Cargo.lock");
    }
}

#[test]
fn every_crate_but_the_tests_takes_the_workspace_lints() {
    for folder in ["kernel", "sql", "seams", "connectors", "policies", "cli"] {
        let manifest = read(&top().join(folder).join("Cargo.toml"));
        assert!(manifest.contains("[lints]\nworkspace = true"), "{folder}");
    }
}
