//! `doctor`: what is sound is said to be, what is not is named, and nothing is changed.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::support::{Project, finish, hold, unread};
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

/// It was sound without a credential that every call needs, and was told so by the first call.
#[test]
fn a_credential_that_is_missing_is_named() {
    let vendor = Vendor::always(Answer::well());
    let project = Project::with(&vendor.config());
    project.edit(
        "operators.toml",
        "timeout = '10s'\n",
        "timeout = '10s'\nheaders = { Authorization = 'secret:shop-token' }\n",
    );
    let failed = failures(&project);
    let told = "`connectors.shop` needs it: no secret `shop-token`";
    assert!(failed[0].contains(told), "{failed:?}");
    assert_eq!(failed.len(), 1, "{failed:?}");
    let mut command = project.command(&["doctor"]);
    let said = finish(command.env("OPERATORS_SECRET_SHOP_TOKEN", "hunter22")).ended(0);
    assert!(said.stdout.contains("`shop-token` is there"), "{said:#?}");
    assert!(!format!("{said:?}").contains("hunter22"), "{said:#?}");
    // A stub answers in its place and needs none.
    project.edit(
        "operators.toml",
        "kind = 'http'",
        "kind = 'http'\nmode = 'stub'",
    );
    project.run(&["doctor"]).ended(0);
}

#[test]
fn connectors_are_asked_if_that_is_asked_for() {
    let vendor = Vendor::always(Answer::well());
    let project = Project::with(&vendor.config());
    project.edit(
        "operators.toml",
        "timeout = '10s'",
        "timeout = '10s'\ncheck = '/health'",
    );
    let said = project.run(&["doctor"]).ended(0);
    assert!(said.stdout.contains("no connector was asked"), "{said:#?}");
    assert_eq!(vendor.requests().len(), 0);
    let said = project.run(&["doctor", "--health"]).ended(0);
    assert!(said.stdout.contains("`shop`: "), "{said:#?}");
    assert_eq!(vendor.requests().len(), 1);
    let port = crate::vendor::closed_port();
    let config = crate::vendor::config(port).replace("'10s'", "'10s'\ncheck = '/health'");
    project.write("operators.toml", config);
    project.run(&["doctor", "--health"]).ended(1);
}

/// It did not look at the place that is there for the day when all else was rewritten.
#[test]
fn the_outside_place_must_hold_the_newest_checkpoint() {
    let project = Project::with_file();
    let config = project.read("operators.toml");
    let outside = "[receipts.checkpoint]\nfile = 'outside.txt'\n";
    project.write("operators.toml", config + outside);
    let said = project.run(&["doctor"]).ended(0);
    assert!(
        said.stdout.contains("nothing was signed here yet"),
        "{said:#?}"
    );
    project.plan(&json!([hold("SO-1")])).ended(0);
    let said = project.run(&["doctor"]).ended(0);
    let words = "outside.txt` holds the newest checkpoint, over 1 receipts";
    assert!(said.stdout.contains(words), "{said:#?}");
    let first = project.read("outside.txt");
    project.plan(&json!([hold("SO-2")])).ended(0);
    project.write("outside.txt", first);
    let failed = failures(&project);
    let told = "holds a checkpoint over 1 receipts, and the newest here is over 2";
    assert!(failed[0].contains(told), "{failed:?}");
    std::fs::remove_file(project.path("outside.txt")).expect("there");
    let failed = failures(&project);
    assert!(failed[0].contains("holds none"), "{failed:?}");
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
