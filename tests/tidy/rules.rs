//! Every numbered rule of `docs/semantics.md` has a test that cites it, and no test cites another.

use std::collections::{BTreeMap, BTreeSet};

use crate::{files_below, read, top};

/// The numbers of the rules: lines that begin `- **N.M**`.
fn rules() -> BTreeSet<String> {
    let text = read(&top().join("docs/semantics.md"));
    let rules: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("- **")?.split("**").next())
        .map(str::to_owned)
        .collect();
    assert!(rules.len() > 40, "the rules were not found: {rules:?}");
    rules
}

/// Each cited rule (`rule N.M`, or `rules N.M, N.M` on one line) and a file that cites it.
fn citations() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for folder in ["tests", "kernel", "policies", "connectors", "seams", "cli"] {
        for path in files_below(folder, ".rs") {
            if path.ends_with("tidy/rules.rs") {
                continue;
            }
            for line in read(&path).to_lowercase().lines() {
                for (start, word) in line.match_indices("rule") {
                    let rest = line[start + word.len()..].trim_start_matches('s');
                    for number in numbers(rest) {
                        found.insert(number, path.display().to_string());
                    }
                }
            }
        }
    }
    found
}

/// The `N.M` that follow directly, separated by commas, spaces or `and`.
fn numbers(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in text
        .split([' ', ',', ';', ':', ')', '(', '/', '–'])
        .filter(|word| !word.is_empty())
    {
        let word = word.trim_end_matches('.');
        let is_number = word.split_once('.').is_some_and(|(section, rule)| {
            let digits = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
            digits(section) && digits(rule)
        });
        match (is_number, word) {
            (true, _) => found.push(word.to_owned()),
            (false, "and") => {}
            (false, _) => break,
        }
    }
    found
}

#[test]
fn every_rule_is_cited_by_a_test() {
    let cited = citations();
    let missing: Vec<String> = rules()
        .into_iter()
        .filter(|rule| !cited.contains_key(rule))
        .collect();
    assert!(missing.is_empty(), "no test cites {missing:?}");
}

#[test]
fn every_citation_is_of_a_rule_that_exists() {
    let rules = rules();
    for (rule, file) in citations() {
        assert!(
            rules.contains(&rule),
            "{file} cites rule {rule}, which does not exist"
        );
    }
}
