//! Alerts: raised by what ran, listed without a search, acknowledged by a person.

use operators::{Receipt, ReceiptKind};
use serde_json::{Value, json};

use crate::support::{Project, finish, hold};

const ALERTING: &str = r#"
policy = "alerting"
version = 1
[[rule]]
name = "look at it"
decision = "ALERT"
"#;

pub fn project() -> Project {
    let project = Project::with_file();
    project.write("policies/all.toml", ALERTING);
    project
}

fn listed(project: &Project, options: &[&str]) -> Vec<Value> {
    let args = [&["alerts", "list", "--json"], options].concat();
    project.run(&args).ended(0).lines()
}

fn acknowledgements(project: &Project) -> Vec<Receipt> {
    let all = project.receipts().into_iter();
    all.filter(|one| one.kind == ReceiptKind::Acknowledge)
        .collect()
}

#[test]
fn an_alert_stands_until_a_person_has_seen_it() {
    // rules 9.11, 9.12
    let project = project();
    let plan = json!([hold("SO-1"), hold("SO-2")]);
    assert_eq!(project.plan(&plan).ended(0).decisions(), ["ALERT", "ALERT"]);
    // A duplicate raises nothing again.
    assert_eq!(project.plan(&plan).ended(0).decisions(), ["DEDUP", "DEDUP"]);
    let alerts = listed(&project, &[]);
    let keys: Vec<&str> = alerts
        .iter()
        .map(|alert| alert["idempotency_key"].as_str().expect("a key"))
        .collect();
    assert_eq!(keys, ["SO-1:hold", "SO-2:hold"]);
    assert_eq!(alerts[0]["outcome"], "applied");
    assert_eq!(alerts[0]["rule"], "look at it");
    assert_eq!(alerts[0]["args"]["order"], "SO-1");
    assert_eq!(alerts[0]["acknowledged"], Value::Null);

    let shown = project.run(&["alerts", "list"]).ended(0);
    assert!(shown.stdout.contains("shop:orders.hold"), "{shown:?}");
    // What it tells to type next can be typed.
    let next = shown
        .stderr
        .lines()
        .find(|line| line.contains("alerts ack"));
    let next = next.expect("a next command").split("  #").next();
    let next = next.expect("a command").trim();
    let next = next.strip_prefix("operators ").expect("our command");
    let mut shell = std::process::Command::new("sh");
    let program = crate::support::programs().operators.display().to_string();
    shell.args(["-c", &format!("{program} {next}")]);
    shell.current_dir(project.dir()).env("USER", "auditor");
    let acked = finish(&mut shell).ended(0);
    assert_eq!(acked.stdout, "acknowledged: 1 alert\n");

    assert_eq!(listed(&project, &[]).len(), 1);
    let [receipt] = acknowledgements(&project).try_into().expect("one receipt");
    assert_eq!(receipt.approver.as_deref(), Some("auditor"));
    assert_eq!(receipt.note.as_deref(), Some("seen"));
    let first = alerts[0]["receipt_id"].as_str();
    assert_eq!(receipt.original_receipt_id.as_deref(), first);
    let all = listed(&project, &["--all"]);
    assert_eq!(all.len(), 2);
    assert_eq!(all[0]["acknowledged"]["by"], "auditor");
}

#[test]
fn acknowledging_twice_is_once_and_all_means_all_that_stands() {
    // rule 9.12
    let project = project();
    let orders: Vec<Value> = (0..40).map(|n| hold(&format!("SO-{n}"))).collect();
    project.plan(&Value::from(orders)).ended(0);
    let alerts = listed(&project, &[]);
    assert_eq!(alerts.len(), 40);
    let id = alerts[0]["receipt_id"].as_str().expect("an id");
    let ack = |args: &[&str]| {
        let args = [
            &["alerts", "ack", "--because", "checked", "--as", "grace"],
            args,
        ]
        .concat();
        project.run(&args)
    };
    assert_eq!(ack(&[id]).ended(0).stdout, "acknowledged: 1 alert\n");
    let again = ack(&[id]).ended(0);
    assert_eq!(again.stdout, "");
    again.tells("was acknowledged before, by grace");
    ack(&["rc_nothing"]).ended(1).tells("raised no alert");
    assert_eq!(ack(&["--all"]).ended(0).stdout, "acknowledged: 39 alerts\n");
    ack(&["--all"]).ended(0).tells("no alert of tenant `acme`");
    assert_eq!(listed(&project, &[]), Vec::<Value>::new());
    assert_eq!(acknowledgements(&project).len(), 40);
    ack(&[]).ended(2);
    ack(&["--all", id]).ended(2);
    project.run(&["alerts", "ack", "--all"]).ended(2);
}

#[test]
fn a_list_is_narrowed_by_operator_tool_and_time() {
    let project = project();
    project.edit(
        "operators.toml",
        "[connectors.shop]\n",
        "[operators.night]\nplan = 'night.json'\n[connectors.shop]\n",
    );
    project.write("night.json", json!([hold("SO-1")]).to_string());
    project.run(&["run", "night", "--once"]).ended(0);
    project.plan(&json!([hold("SO-2")])).ended(0);
    let keys = |options: &[&str]| -> Vec<String> {
        let alerts = listed(&project, options).into_iter();
        let key = |alert: Value| alert["entity_key"].as_str().map(str::to_owned);
        alerts.filter_map(key).collect()
    };
    assert_eq!(keys(&["--operator", "night"]), ["SO-1"]);
    assert_eq!(keys(&["--operator", "day"]), [""; 0]);
    assert_eq!(keys(&["--tool", "orders.hold"]), ["SO-1", "SO-2"]);
    assert_eq!(keys(&["--tool", "orders.release"]), [""; 0]);
    assert_eq!(keys(&["--since", "1h"]), ["SO-1", "SO-2"]);
    assert_eq!(keys(&["--since", "2999-01-01"]), [""; 0]);
    assert_eq!(keys(&["--tenant", "other"]), [""; 0]);
}

#[test]
fn a_project_that_asks_first_asks_about_every_alert_that_does_not_say_otherwise() {
    // rules 6.6, 9.7
    let project = project();
    project.edit(
        "operators.toml",
        "tenant = 'acme'\n",
        "tenant = 'acme'\n[trust]\nalert = 'approve'\n",
    );
    let plan = json!([hold("SO-1")]);
    let run = project.plan(&plan).ended(3);
    let reason = run.results()[0].reason.map(operators::Reason::as_str);
    assert_eq!(reason, Some("awaiting_approval"));
    assert_eq!(listed(&project, &[]), Vec::<Value>::new());
    project.edit(
        "policies/all.toml",
        "decision = \"ALERT\"\n",
        "decision = \"ALERT\"\nalert = \"notify\"\n",
    );
    assert_eq!(project.plan(&plan).ended(0).decisions(), ["ALERT"]);
    assert_eq!(listed(&project, &[]).len(), 1);
}

#[test]
fn a_person_is_known_by_the_system_where_the_shell_does_not_say() {
    let project = project();
    project.plan(&json!([hold("SO-1")])).ended(0);
    let args = ["alerts", "ack", "--all", "--because", "seen"];
    let mut command = project.command(&args);
    command.env_remove("USER").env_remove("LOGNAME");
    let said = finish(&mut command);
    let name = finish(std::process::Command::new("id").arg("-un"));
    if name.code == Some(0) {
        said.ended(0);
        let [receipt] = acknowledgements(&project).try_into().expect("one receipt");
        assert_eq!(receipt.approver.as_deref(), Some(name.stdout.trim()));
    } else {
        said.ended(1).tells("--as 'YOUR NAME'");
    }
}
