//! `command`: a program that prints a plan.

use serde_json::{Value, json};

use crate::support::{Project, hold};

/// A project whose operator `thinker` is this shell script.
fn planned_by(script: &str) -> Project {
    let project = Project::with_file();
    let operator = "[operators.thinker]\ncommand = ['sh', 'planner.sh', 'it is', '$HOME']\n";
    project.write("operators.toml", project.read("operators.toml") + operator);
    project.write("planner.sh", script);
    project
}

fn printing(plan: &Value) -> String {
    format!("cat > envelope.json; env > env.txt; cat <<'PLAN'\n{plan}\nPLAN\n")
}

#[test]
fn it_gets_the_envelope_of_ten_fields_and_its_plan_runs() {
    let project = planned_by(&printing(&json!({"actions": [hold("SO-1")]})));
    let said = project.run(&["run", "--once", "--json"]).ended(0);
    assert_eq!(said.decisions(), ["ALLOW"]);
    assert_eq!(project.effects().len(), 1);

    let envelope: Value = serde_json::from_str(&project.read("envelope.json")).expect("JSON");
    let mut fields: Vec<&String> = envelope.as_object().expect("an object").keys().collect();
    fields.sort();
    let expected = [
        "agent_id",
        "correlation_id",
        "event_id",
        "event_type",
        "payload",
        "reseller_id",
        "session_id",
        "source",
        "tenant_id",
        "workspace_id",
    ];
    assert_eq!(fields, expected, "null, but never missing");
    assert_eq!(envelope["tenant_id"], "acme");

    // The receipts can be traced back to what the planner was told.
    let receipts = project.receipts();
    assert_eq!(json!(receipts[0].event_id), envelope["event_id"]);
    assert_eq!(
        json!(receipts[0].correlation_id),
        envelope["correlation_id"]
    );
    assert_eq!(
        receipts[0].operator.as_ref().expect("an operator").as_str(),
        "thinker"
    );
}

#[test]
fn it_runs_without_a_shell_between_and_in_the_projects_folder() {
    let project = planned_by("printf '%s|' \"$@\" > args.txt; pwd > cwd.txt; echo '[]'");
    let elsewhere = Project::empty();
    let dir = project.dir().display().to_string();
    elsewhere.run(&["-C", &dir, "run", "--once"]).ended(0);
    assert_eq!(project.read("args.txt"), "it is|$HOME|");
    let folder = std::fs::canonicalize(project.dir()).expect("a folder");
    assert_eq!(project.read("cwd.txt").trim(), folder.display().to_string());
}

#[test]
fn credentials_are_not_in_its_environment() {
    let project = planned_by(&printing(&json!([])));
    let mut command = project.command(&["run", "--once"]);
    command
        .env("OPERATORS_SECRET_SHOP_TOKEN", "hunter2")
        .env("OTHER", "kept");
    crate::support::finish(&mut command).ended(0);
    let env = project.read("env.txt");
    assert!(!env.contains("hunter2"), "{env}");
    assert!(env.contains("OTHER=kept"), "{env}");
}

#[test]
fn one_that_fails_is_quoted_and_nothing_runs() {
    let plan = json!([hold("SO-1")]);
    let project = planned_by(&format!("echo 'out of tokens' >&2; echo '{plan}'; exit 3"));
    let said = project.run(&["run", "--once", "--json"]).ended(1);
    said.tells("nothing was run: operator `thinker`");
    said.tells("exit code 3");
    said.tells("| out of tokens");
    assert_eq!(said.stdout, "");
    project.is_untouched();

    let project = planned_by(&format!("echo '{plan}'; kill -9 $$"));
    project.run(&["run", "--once"]).ended(1).tells("was ended");
    project.is_untouched();
}

#[test]
fn one_that_prints_no_plan_is_an_error_with_its_place() {
    for (script, words) in [
        ("echo Sure! Here is your plan:", "stdout of sh:1:"),
        ("true", "stdout of sh:1:"),
        ("echo '[]'; echo '[]'", "stdout of sh:2:"),
        ("printf '[\\377]'", "not UTF-8"),
        ("cat /dev/zero", "more than 16777216 bytes"),
    ] {
        let project = planned_by(script);
        let said = project.run(&["run", "--once"]).ended(1);
        said.tells("nothing was run: operator `thinker`");
        said.tells(words);
        project.is_untouched();
    }
}

#[test]
fn one_that_does_not_start_is_named() {
    let project = Project::with("[operators.thinker]\ncommand = ['no-such-planner']\n");
    let said = project.run(&["run", "--once"]).ended(1);
    said.tells("`no-such-planner` does not start");
    project.is_untouched();
}

#[test]
fn one_that_ignores_its_envelope_or_talks_a_lot_is_fine() {
    let project = planned_by("exec <&-; yes noise | head -c 300000 >&2; echo '[]'");
    project.run(&["run", "--once"]).ended(0);
}

#[test]
fn what_it_says_cannot_forge_lines_of_ours() {
    let script = "printf 'bye\\n\\033[2J\\rerror: all is well\\n' >&2; exit 1";
    let said = planned_by(script).run(&["run", "--once"]).ended(1);
    said.tells("| \\u{1b}[2J\\rerror: all is well");
    assert!(!said.stderr.contains('\u{1b}'), "{said:#?}");
}
