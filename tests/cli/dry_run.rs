//! `--dry-run`: what would happen, without anything happening.

use std::collections::BTreeMap;

use operators::Disposition;
use serde_json::{Value, json};

use crate::support::{Project, Said, action, hold};
use crate::vendor::{Answer, Vendor};

const DRY: [&str; 6] = ["run", "--once", "--dry-run", "--json", "--plan", "-"];

fn forecast(project: &Project, plan: &Value) -> Said {
    project.run_with_stdin(&DRY, plan.to_string())
}

fn decisions(said: &Said) -> Vec<String> {
    let forecasts: Vec<Value> = serde_json::from_str(&said.stdout).expect("one array");
    let decision = |one: &Value| one["decision"].as_str().expect("a word").to_owned();
    forecasts.iter().map(decision).collect()
}

#[test]
fn it_makes_no_store_and_asks_no_vendor() {
    let vendor = Vendor::always(Answer::well());
    let project = Project::with(&vendor.config());
    let read = action("orders.get", "SO-1", json!({}));
    let said = forecast(&project, &json!([hold("SO-1"), hold("SO-1"), read])).ended(0);
    assert_eq!(decisions(&said), ["ALLOW", "DEDUP", "ALLOW"]);
    // Each says that it is no result.
    let forecasts: Vec<Value> = serde_json::from_str(&said.stdout).expect("one array");
    assert!(
        forecasts.iter().all(|one| one["dry_run"] == true),
        "{said:#?}"
    );
    assert_eq!(vendor.requests().len(), 0);
    assert!(!project.path(".operators").exists());
}

#[test]
fn it_leaves_an_existing_store_as_it_was() {
    let project = Project::with_file();
    project.plan(&json!([hold("SO-1")])).ended(0);
    let (receipts, effects) = (project.receipts(), project.effects());
    // Also for a tenant the store has never seen.
    let mut other = DRY.to_vec();
    other.extend(["--tenant", "another"]);
    let plan = json!([hold("SO-1"), hold("SO-2")]);
    let said = forecast(&project, &plan).ended(0);
    assert_eq!(decisions(&said), ["DEDUP", "ALLOW"]);
    let said = project.run_with_stdin(&other, plan.to_string()).ended(0);
    // rule 3.4: another tenant's keys are its own.
    assert_eq!(decisions(&said), ["ALLOW", "ALLOW"]);
    assert_eq!(project.receipts(), receipts);
    assert_eq!(project.effects(), effects);
    project.run(&["keys", "show", "SO-2:hold"]).ended(1);
}

#[test]
fn it_shows_refusals_conflicts_and_doubts_with_their_exit_code() {
    let vendor = Vendor::always(Answer::Close);
    let project = Project::with(&vendor.config());
    project.plan(&json!([hold("SO-1")])).ended(4);
    let held = forecast(
        &project,
        &json!([action("orders.refund", "SO-1", json!({}))]),
    )
    .ended(3);
    assert!(held.stdout.contains("entity_in_doubt"), "{held:#?}");
    let mut changed = hold("SO-1");
    changed["args"] = json!({"order": "SO-9"});
    let conflict = forecast(&project, &json!([changed])).ended(3);
    assert!(conflict.stdout.contains("/args/order"), "{conflict:#?}");
    project.edit("policies/all.toml", "ALLOW", "BLOCK");
    let blocked = forecast(&project, &json!([hold("SO-2")])).ended(3);
    assert_eq!(decisions(&blocked), ["BLOCK"]);
    assert_eq!(vendor.requests().len(), 1);
    assert_eq!(project.receipts().len(), 1);
}

#[test]
fn what_it_forecasts_is_what_a_run_then_does() {
    let project = Project::example();
    let mut large = hold("SO-9");
    large["args"] = json!({"order": "SO-9", "reason": "x"});
    large["value"] = json!(9_000);
    let mut plan: Value =
        serde_json::from_str(&project.read("plans/ship-risk.json")).expect("JSON");
    plan["actions"].as_array_mut().expect("actions").push(large);
    project.write("plans/ship-risk.json", plan.to_string());
    for _ in 0..2 {
        let forecast = project
            .run(&["run", "--once", "--dry-run", "--json"])
            .ended(3);
        let done = project.run(&["run", "--once", "--json"]).ended(3);
        assert_eq!(decisions(&forecast), done.decisions());
        assert_eq!(done.results()[3].decision, Disposition::Block);
    }
}

#[test]
fn people_are_told_what_would_be_sent_and_what_is_done_already() {
    let project = Project::with_file();
    project.plan(&json!([hold("SO-1")])).ended(0);
    let plan = json!([hold("SO-1"), hold("SO-2"), hold("SO-2")]).to_string();
    let said = project
        .run_with_stdin(&["run", "--once", "--dry-run", "--plan", "-"], plan)
        .ended(0);
    let rows: BTreeMap<&str, &str> = said
        .stdout
        .lines()
        .filter_map(|line| line.split_once(' '))
        .collect();
    assert!(
        rows["1"].contains("DEDUP") && rows["1"].contains("done "),
        "{said:#?}"
    );
    assert!(
        rows["2"].contains("ALLOW") && rows["2"].contains("would be sent"),
        "{said:#?}"
    );
    assert!(
        rows["3"].contains("DEDUP") && rows["3"].contains("done by action 2"),
        "{said:#?}"
    );
    said.tells("3 actions, dry run: 1 would be sent, 2 deduplicated, 0 refused");
}

/// It used to name the receipt of a question that only a run would write, and the command to answer it.
#[test]
fn it_names_no_question_that_nobody_asked() {
    // rule 9.8
    let project = crate::approvals::project();
    let plan = json!([hold("SO-1")]);
    let said = forecast(&project, &plan).ended(3);
    let forecasts: Value = serde_json::from_str(&said.stdout).expect("JSON");
    assert_eq!(forecasts[0]["reason"], "awaiting_approval");
    assert_eq!(forecasts[0]["error"], "a person would be asked first");
    assert_eq!(forecasts[0]["rule"], "ask first");
    // One that stands can be answered, and is named.
    project.plan(&plan).ended(3);
    let said = forecast(&project, &plan).ended(3);
    assert!(
        said.stdout.contains(&crate::approvals::question(&project)),
        "{said:#?}"
    );
}

/// What a run refuses to begin on, a dry run does not forecast for.
#[test]
fn a_store_that_was_lost_is_refused() {
    let project = Project::with_file();
    let plan = json!([hold("SO-1")]);
    project.plan(&plan).ended(0);
    for file in ["store.db", "store.db-wal", "store.db-shm"] {
        // Not all of them are there at rest.
        drop(std::fs::remove_file(
            project.path(&format!(".operators/{file}")),
        ));
    }
    let said = forecast(&project, &plan).ended(1);
    said.tells("store rolled back");
    assert_eq!(said.stdout, "");
    project.plan(&plan).ended(1).tells("store rolled back");
}
