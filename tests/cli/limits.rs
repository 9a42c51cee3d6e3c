//! Limits, kept by commands that know nothing of each other but the store.

use operators::{Disposition, ReceiptOutcome};
use operators_tests::dynamodb::{endpoint, fresh_url};
use operators_tests::postgres::{self, Database};
use serde_json::{Value, json};

use crate::support::{Project, Running, hold};

const LIMITED: &str = r#"
policy = "limited"
version = 1
[[rule]]
name = "25 an hour"
decision = "ALLOW"
limit = { max = 25, per = "1h", by = "tenant" }
"#;

fn orders(from: usize, count: usize) -> Value {
    let orders = (from..from + count).map(|n| hold(&format!("SO-{n}")));
    Value::Array(orders.collect())
}

fn start(project: &Project, plan: &Value) -> Running {
    let args = ["run", "--once", "--json", "--plan", "-"];
    Running::start(
        &mut project.command(&args),
        Some(plan.to_string().as_bytes()),
    )
}

/// Two processes want 40 effects at once and get 25; one that starts later gets none; another tenant
/// has 25 of its own.
fn keeps_to_25_an_hour(store: &str, url: &str) {
    let project = Project::with_file();
    project.write("policies/all.toml", LIMITED);
    let config = project.read("operators.toml");
    project.write(
        "operators.toml",
        format!("{config}[store]\nurl = \"{url}\"\n"),
    );
    if url.starts_with("dynamodb:") {
        project.run(&["doctor", "--create"]).ended(0);
    }
    let runs = [
        start(&project, &orders(0, 20)),
        start(&project, &orders(20, 20)),
    ];
    let results: Vec<_> = runs
        .into_iter()
        .flat_map(|run| run.end().results())
        .collect();
    let allowed = results.iter().filter(|one| one.ok).count();
    assert_eq!((allowed, results.len()), (25, 40), "{store}");
    assert_eq!(project.effects().len(), 25, "{store}");

    // A process of its own, later: the store remembers.
    let late = project.plan(&json!([hold("SO-99")])).ended(3);
    let late = &late.results()[0];
    assert_eq!(late.decision, Disposition::Block);
    assert_eq!(late.rule.as_deref(), Some("25 an hour"));
    let error = late.error.as_deref().expect("an error");
    for told in ["`25 an hour` allows 25 in", "25 are taken", "free at 20"] {
        assert!(error.contains(told), "{store}: no `{told}` in `{error}`");
    }
    let reason = late.reason.map(operators::Reason::as_str);
    assert_eq!(reason, Some("limit"), "{store}");
    let receipts = project.receipts();
    let refused = receipts
        .iter()
        .filter(|one| one.outcome == Some(ReceiptOutcome::Refused))
        .all(|one| one.rule.as_deref() == Some("25 an hour") && one.policy.is_some());
    assert!(refused, "{store}: every refusal cites the limit's rule");

    let args = [
        "run", "--once", "--json", "--tenant", "other", "--plan", "-",
    ];
    let other = project.run_with_stdin(&args, orders(0, 26).to_string());
    let other = other.ended(3).results();
    let allowed = other.iter().filter(|one| one.ok).count();
    assert_eq!(allowed, 25, "{store}: the other tenant's own");
    assert!(!other[25].ok, "{store}: the 26th");
    // A duplicate is no effect.
    let again = project.run_with_stdin(&args, orders(0, 1).to_string());
    assert_eq!(again.ended(0).decisions(), ["DEDUP"], "{store}");
}

/// By rules 9.4, 9.6.
#[test]
fn a_limit_of_25_blocks_the_26th_across_processes_and_restarts_on_sqlite() {
    keeps_to_25_an_hour("sqlite", "sqlite:.operators/store.db");
}

/// By rules 9.4, 9.6.
#[test]
fn a_limit_of_25_blocks_the_26th_across_processes_and_restarts_on_postgres() {
    let Some(server) = postgres::url() else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let database = runtime.block_on(Database::fresh(server));
    keeps_to_25_an_hour("postgres", &database.url());
}

/// By rules 9.4, 9.6.
#[test]
fn a_limit_of_25_blocks_the_26th_across_processes_and_restarts_on_dynamodb() {
    let Some(endpoint) = endpoint() else {
        return;
    };
    keeps_to_25_an_hour("dynamodb", &fresh_url(endpoint));
}

/// By rule 9.4: a dry run counts what the plan itself would take, and takes nothing.
#[test]
fn a_dry_run_foresees_the_limit() {
    let project = Project::with_file();
    project.write("policies/all.toml", LIMITED.replace("max = 25", "max = 2"));
    let args = ["run", "--once", "--json", "--dry-run", "--plan", "-"];
    for _ in 0..2 {
        let dry = project
            .run_with_stdin(&args, orders(0, 3).to_string())
            .ended(3);
        let told: Vec<Value> = serde_json::from_str(&dry.stdout).expect("JSON");
        let reasons: Vec<_> = told.iter().map(|one| one["reason"].as_str()).collect();
        assert_eq!(reasons, [None, None, Some("limit")]);
    }
}
