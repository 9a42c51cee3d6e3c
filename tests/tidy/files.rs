//! What every file owes its reader.

use std::collections::BTreeMap;

use crate::{files_below, read, top};

/// Every folder that holds source of ours.
const ROOMS: [&str; 7] = [
    "kernel",
    "sql",
    "seams",
    "connectors",
    "policies",
    "cli",
    "tests",
];

#[test]
fn every_source_file_says_what_it_owns() {
    for folder in ROOMS {
        for path in files_below(folder, ".rs") {
            let text = read(&path);
            let start = text.trim_start_matches("#![").trim_start();
            assert!(
                start.starts_with("//!"),
                "{} has no `//!` header",
                path.display()
            );
        }
    }
}

/// A file in no module is never compiled, and says so nowhere: its tests pass because none runs.
#[test]
fn every_source_file_is_in_a_module() {
    for folder in ROOMS {
        for path in files_below(folder, ".rs") {
            let name = path.file_stem().expect("a name").to_string_lossy();
            let beside = path.parent().expect("a folder");
            let above = beside.file_name().expect("a name").to_string_lossy();
            let is_root = ["lib", "main"].contains(&&*name);
            if is_root || ["bin", "examples"].contains(&&*above) {
                continue;
            }
            let (name, folder) = if name == "mod" {
                (above, beside.parent().expect("a folder"))
            } else {
                (name, beside)
            };
            let declared = [
                folder.join("mod.rs"),
                folder.with_extension("rs"),
                folder.join("lib.rs"),
                folder.join("main.rs"),
            ];
            let line = format!("mod {name};");
            let mut declared = declared.iter().filter(|file| file.exists());
            assert!(
                declared.any(|file| read(file).contains(&line)),
                "{} is in no module",
                path.display()
            );
        }
    }
}

#[test]
fn nothing_is_left_open_in_the_code() {
    let marks = [
        ["to", "do!("].concat(),
        ["unimple", "mented!("].concat(),
        ["FIX", "ME"].concat(),
    ];
    for folder in ROOMS {
        for path in files_below(folder, ".rs") {
            let text = read(&path);
            for mark in &marks {
                assert!(!text.contains(mark), "{} has {mark}", path.display());
            }
            let ignored = ["#[ign", "ore"].concat();
            assert!(
                !text.contains(&ignored),
                "{} skips a test in silence",
                path.display()
            );
        }
    }
}

#[test]
fn every_function_of_the_postgres_schema_stands_in_one_place() {
    let opening = read(&top().join("seams/src/postgres/open.rs"));
    let mut places = BTreeMap::new();
    for path in files_below("seams/migrations/postgres", ".sql") {
        let text = read(&path);
        let file = path.file_name().expect("a name").to_string_lossy();
        assert!(
            text.starts_with("-- "),
            "{file} does not say what it is for"
        );
        assert!(opening.contains(&*file), "{file} is never run");
        let made = text.lines().filter_map(|line| line.strip_prefix("CREATE "));
        for made in made.filter(|made| made.contains("FUNCTION ")) {
            let Some(name) = made.strip_prefix("OR REPLACE FUNCTION operators.") else {
                panic!("{file} cannot run twice: {made}");
            };
            let name = name.split('(').next().unwrap_or_default();
            let other = places.insert(name.to_owned(), file.clone().into_owned());
            assert_eq!(other, None, "{name} stands in {file} too");
        }
    }
    assert!(
        places.len() > 30,
        "the functions were not found: {places:?}"
    );
}

#[test]
fn every_decision_record_is_in_the_index() {
    let index = read(&top().join("docs/adr/README.md"));
    for path in files_below("docs/adr", ".md") {
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        if name != "README.md" {
            assert!(index.contains(&name), "{name} is not in docs/adr/README.md");
        }
    }
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut documents = files_below("docs", ".md");
    documents.extend([top().join("README.md"), top().join("CHANGELOG.md")]);
    for document in documents {
        let text = read(&document);
        let folder = document.parent().expect("a folder");
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            assert!(
                folder.join(target).exists(),
                "{}: {link}",
                document.display()
            );
        }
    }
}

#[test]
fn the_gate_runs_the_readme_s_test_command() {
    let readme = read(&top().join("README.md"));
    let command = "cargo test --workspace";
    assert!(readme.contains(command), "README.md");
    assert!(read(&top().join(".ci/run")).contains(command), ".ci/run");
}
