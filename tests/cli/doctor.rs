//! `doctor`: what is sound is said to be, what is not is named, and nothing is changed.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::support::{Project, hold, unread};
use crate::vendor::{Answer, Vendor};

/// What failed, as `check: told`.
fn failures(project: &Project) -> Vec<String> {
    let said = project.run(&["doctor", "--json"]);
    let findings: Vec<Value> = said.lines();
    let failed = findings.iter().filter(|one| one["health"] == "failed");
    let failed: Vec<String> = failed
        .map(|one| format!("{}: {}", one["check"], one["told"]))
        .collect();
    assert_eq!(said.code, Some(i32::from(!failed.is_empty())), "{said:#?}");
    failed
}

#[test]
fn the_example_is_sound_before_and_after_its_first_run() {
    let project = Project::example();
    let said = project.run(&["doctor"]).ended(0);
    said.tells("sound");
    assert!(said.stdout.contains("the first run makes it"), "{said:#?}");
    project.is_untouched();
    project.run(&["run", "--once"]).ended(0);
    let said = project.run(&["doctor"]).ended(0);
    said.tells("sound");
    assert!(said.stdout.contains("mode 0600"), "{said:#?}");
    assert_eq!(failures(&project), Vec::<String>::new());
}

/// Makes a sound project unsound.
type Spoil = fn(&Project);

#[test]
fn each_unsound_part_is_named() {
    let spoils: [(Spoil, &str); 9] = [
        (
            |project| {
                let lost = project.path(".operators/store.db");
                std::fs::remove_file(lost).expect("there");
            },
            "store rolled back",
        ),
        (
            |project| project.edit("operators.toml", "tenant", "tenent"),
            "operators.toml:",
        ),
        (
            |project| project.edit("operators.toml", "\"file\"", "\"soap\""),
            "`soap`",
        ),
        (
            |project| project.edit("policies/ship-risk.toml", "ALLOW", "MAYBE"),
            "ship-risk.toml:",
        ),
        (
            |project| project.write("plans/ship-risk.json", "[{}]"),
            "ship-risk.json:1:2",
        ),
        (
            |project| std::fs::remove_file(project.path("plans/ship-risk.json")).expect("there"),
            "plans/ship-risk.json",
        ),
        (
            |project| project.edit("operators.toml", "shop:orders.hold\"", "shop:orders.halt\""),
            "no such tool",
        ),
        (
            |project| {
                let open = std::fs::Permissions::from_mode(0o644);
                std::fs::set_permissions(project.path(".operators/store.db"), open).expect("ours");
            },
            "chmod 600",
        ),
        (
            |project| project.write(".operators/store.db", "no database"),
            "store.db",
        ),
    ];
    for (spoil, words) in spoils {
        let project = Project::example();
        project.run(&["run", "--once"]).ended(0);
        spoil(&project);
        let failed = failures(&project);
        assert!(
            failed.iter().any(|one| one.contains(words)),
            "no `{words}` in {failed:#?}"
        );
        let said = project.run(&["doctor"]).ended(1);
        assert!(said.stdout.contains("✗ failed"), "{said:#?}");
        said.tells("failed");
    }
}

#[test]
fn what_is_allowed_but_risky_is_noted() {
    let vendor = Vendor::always(Answer::Close);
    let project = Project::with(&vendor.config());
    project.plan(&json!([hold("SO-1")])).ended(4);
    project.edit(
        "operators.toml",
        "path = '/hold'\n",
        "path = '/hold'\non_unknown = 'retry'\n",
    );
    let more = "[operators.free]\nplan = 'plan.json'\nevery = '15m'\n";
    project.write("operators.toml", project.read("operators.toml") + more);
    project.write("plan.json", "[]");
    let said = project.run(&["doctor"]).ended(0);
    for words in [
        "`shop:orders.hold` is at-least-once",
        "1 open for tenant `acme`",
        "`free` has no `requires`",
        "the worker is not in this version",
    ] {
        assert!(said.stdout.contains(words), "no `{words}` in {said:#?}");
    }
    assert_eq!(vendor.requests().len(), 1, "nobody was called");
}

/// What a command found out does not depend on whether anybody reads it.
#[test]
fn a_reader_that_left_hides_nothing_from_a_script() {
    let project = Project::example();
    project.run(&["run", "--once"]).ended(0);
    std::fs::remove_file(project.path(".operators/store.db")).expect("there");
    project.write("policies/broken.toml", "policy = ");
    let verify = ["receipts", "verify", "--json"];
    project.run(&verify).ended(5);
    assert_eq!(unread(&mut project.command(&verify)), Some(5));
    for args in [&["doctor"][..], &["doctor", "--json"], &["policy", "check"]] {
        project.run(args).ended(1);
        assert_eq!(unread(&mut project.command(args)), Some(1), "{args:?}");
    }
}
