//! `--json`: the stable form. stdout is data and nothing else.

use operators::Receipt;
use serde_json::Value;

use crate::support::{Project, hold};
use crate::vendor::{Answer, Vendor};

#[test]
fn a_run_prints_one_array_of_results_that_the_kernels_own_type_reads_back() {
    let project = Project::example();
    let said = project.run(&["run", "--once", "--json"]).ended(0);
    assert_eq!(said.decisions(), ["ALLOW", "ALLOW", "DEDUP"]);
    let results = said.results();
    let written: Value = serde_json::from_str(&said.stdout).expect("JSON");
    assert_eq!(
        serde_json::to_value(&results).expect("JSON"),
        written,
        "nothing is lost"
    );
    // Each result cites its receipt, and there is no other.
    let cited: Vec<operators::Text> = results.into_iter().map(|one| one.receipt_id).collect();
    let kept: Vec<operators::Text> = project
        .receipts()
        .into_iter()
        .map(|one| one.receipt_id)
        .collect();
    assert_eq!(cited, kept);
}

#[test]
fn nothing_but_data_is_on_stdout_even_in_trouble() {
    let vendor = Vendor::always(Answer::Close);
    let project = Project::with(&vendor.config());
    let said = project
        .plan(&serde_json::json!([hold("SO-1"), hold("SO-1")]))
        .ended(4);
    assert_eq!(said.results().len(), 2);
    for (args, code) in [
        (
            &["run", "--once", "--json", "--plan", "nowhere.json"][..],
            1,
        ),
        (&["run", "--json"], 2),
        (&["receipts", "show", "nothing-like-it", "--json"], 1),
        (&["keys", "show", "nothing-like-it", "--json"], 1),
    ] {
        let said = project.run(args).ended(code);
        assert_eq!(said.stdout, "", "{args:?}");
        assert!(!said.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn a_dry_run_an_empty_plan_and_several_operators_are_one_array_too() {
    let project = Project::example();
    let forecast = project
        .run(&["run", "--once", "--dry-run", "--json"])
        .ended(0);
    let forecast: Vec<Value> = serde_json::from_str(&forecast.stdout).expect("one array");
    assert_eq!(forecast.len(), 3);
    assert!(forecast.iter().all(|one| one.get("receipt_id").is_none()));

    let empty = project.plan(&serde_json::json!([])).ended(0);
    assert_eq!(empty.results().len(), 0);

    let second = "\n[operators.another]\nplan = 'plans/ship-risk.json'\n";
    project.write("operators.toml", project.read("operators.toml") + second);
    let both = project.run(&["run", "--once", "--json"]);
    assert_eq!(both.results().len(), 6);
}

#[test]
fn lists_are_json_lines_and_agree_with_what_people_see() {
    let vendor = Vendor::start(|request| {
        if request.body.contains("SO-1") {
            Answer::well()
        } else {
            Answer::Close
        }
    });
    let project = Project::with(&vendor.config());
    project
        .plan(&serde_json::json!([
            hold("SO-1"),
            hold("SO-1"),
            hold("SO-2")
        ]))
        .ended(4);

    let told = project.run(&["receipts", "list"]).ended(0);
    let receipts: Vec<Receipt> = project
        .run(&["receipts", "list", "--json"])
        .ended(0)
        .lines();
    assert_eq!(receipts.len(), 3);
    let rows: Vec<&str> = told.stdout.lines().skip(1).collect();
    for (row, receipt) in rows.iter().zip(&receipts) {
        assert!(row.contains(receipt.receipt_id.as_str()), "{row}");
        assert!(row.contains(receipt.idempotency_key.as_str()), "{row}");
        assert!(
            row.contains(receipt.decision.expect("a decision").as_str()),
            "{row}"
        );
    }
    assert_eq!(rows.len(), receipts.len());

    let doubts: Vec<Value> = project.run(&["doubts", "list", "--json"]).ended(0).lines();
    assert_eq!(doubts.len(), 1);
    assert_eq!(doubts[0]["idempotency_key"], "SO-2:hold");
    let told = project.run(&["doubts", "list"]).ended(0);
    assert_eq!(told.stdout.lines().count(), 2, "{told:#?}");
    assert!(told.stdout.contains("SO-2:hold"), "{told:#?}");

    let checks: Vec<Value> = project.run(&["doctor", "--json"]).ended(0).lines();
    let told = project.run(&["doctor"]).ended(0);
    assert_eq!(told.stdout.lines().count(), checks.len(), "{told:#?}");
    let key: Value = {
        let said = project
            .run(&["keys", "show", "SO-2:hold", "--json"])
            .ended(0);
        serde_json::from_str(&said.stdout).expect("JSON")
    };
    assert_eq!(key["phase"], "in_doubt");
}

#[test]
fn a_person_and_a_program_are_told_the_same_about_a_run() {
    let (one, other) = (Project::example(), Project::example());
    let told = one.run(&["run", "--once"]).ended(0);
    let results = other.run(&["run", "--once", "--json"]).ended(0).results();
    let rows: Vec<&str> = told.stdout.lines().skip(2).collect();
    assert_eq!(rows.len(), results.len(), "{told:#?}");
    for (row, result) in rows.iter().zip(results) {
        let action = &result.action;
        for word in [
            result.decision.as_str(),
            if result.ok { " yes " } else { " no " },
            action.tool.as_str(),
            action.entity_key.as_str(),
            action.idempotency_key.as_str(),
        ] {
            assert!(row.contains(word), "no `{word}` in {row}");
        }
    }
}

#[test]
fn a_full_disk_behind_stdout_is_an_error_that_says_what_ran() {
    let project = Project::example();
    for (args, words) in [
        (
            &["run", "--once", "--json"][..],
            "the plan ran, but its results cannot be shown",
        ),
        (
            &["run", "--once"],
            "the plan ran, but its results cannot be shown",
        ),
        (&["receipts", "export"], "stdout cannot be written"),
        (&["receipts", "list"], "stdout cannot be written"),
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let mut command = project.command(args);
        let said = command
            .stdout(full.expect("a device"))
            .output()
            .expect("it starts");
        let stderr = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(words), "{stderr}");
    }
    assert_eq!(project.effects().len(), 2);
}

#[test]
fn a_reader_that_leaves_early_changes_no_exit_code() {
    let project = Project::example();
    for _ in 0..4 {
        project.run(&["run", "--once"]).ended(0);
    }
    let program = crate::support::programs().operators.display().to_string();
    let pipe = |command: &str| {
        let mut shell = std::process::Command::new("bash");
        shell.args([
            "-c",
            &format!("set -o pipefail; '{program}' {command} | head -c 10"),
        ]);
        crate::support::finish(shell.current_dir(project.dir())).ended(0)
    };
    pipe("receipts export");
    pipe("run --once --json");
    pipe("run --once");
}
