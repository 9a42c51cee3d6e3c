//! One project on every store: moved by its `store.url` alone, with the same answers.

use operators::Disposition::{self, Allow, Dedup};
use operators_tests::dynamodb::{endpoint, fresh_url};
use operators_tests::postgres::{self, Database};

use crate::support::Project;

const CONFIG: &str = "operators.toml";

/// The value of `url` in the example's configuration.
fn url_of(project: &Project) -> String {
    let config = project.read(CONFIG);
    let line = config.lines().find(|line| line.starts_with("url ="));
    let line = line.expect("the example names its store");
    let value = line.split('"').nth(1).expect("a text");
    value.to_owned()
}

/// Points the project at another store, and changes nothing else.
fn move_to(project: &Project, url: &str) {
    project.edit(
        CONFIG,
        &format!("\"{}\"", url_of(project)),
        &format!("\"{url}\""),
    );
}

/// Runs the example's plan; the decisions of its three actions.
fn decisions(project: &Project) -> Vec<Disposition> {
    let said = project.run(&["run", "--once", "--json"]).ended(0);
    said.results()
        .iter()
        .map(|result| result.decision)
        .collect()
}

/// A fresh store of any kind: two effects, then none, a receipt for each of six proposals, no doubt,
/// and nothing that the doctor would mind.
fn runs_the_example(project: &Project, store: &str) {
    let before = project.effects().len();
    assert_eq!(decisions(project), [Allow, Allow, Dedup], "{store}");
    assert_eq!(decisions(project), [Dedup, Dedup, Dedup], "{store}");
    assert_eq!(project.effects().len(), before + 2, "{store}: two effects");
    let receipts = project.receipts();
    assert_eq!(receipts.len(), 6, "{store}: {receipts:#?}");
    assert!(receipts.iter().all(|receipt| receipt.ok), "{store}");
    let listed = project.run(&["receipts", "list"]).ended(0);
    for decision in ["ALLOW", "DEDUP"] {
        assert!(listed.stdout.contains(decision), "{store}: {listed:#?}");
    }
    let shown = project.run(&["receipts", "show", &receipts[0].receipt_id]);
    let key = receipts[0].idempotency_key.as_str();
    assert!(shown.ended(0).stdout.contains(key), "{store}");
    let doubts = project.run(&["doubts", "list", "--json"]).ended(0);
    assert_eq!(doubts.stdout, "", "{store}");
    project.run(&["doctor"]).ended(0).tells("sound");
}

/// By rules 3.1, 5.1, 8.1: the example moves from `SQLite` to Postgres to `DynamoDB` and back by one
/// line of its configuration; each store answers alike and remembers its own.
#[test]
fn the_example_moves_between_stores_by_its_url_alone() {
    let (Some(server), Some(endpoint)) = (postgres::url(), endpoint()) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let database = runtime.block_on(Database::fresh(server));
    let project = Project::example();
    let (config, home) = (project.read(CONFIG), url_of(&project));
    runs_the_example(&project, "sqlite");

    move_to(&project, &database.url());
    // It does not know what was done by way of the first: said before it is sent again.
    let doctor = project.run(&["doctor"]).ended(0);
    assert!(doctor.stdout.contains("is sent again"), "{doctor:#?}");
    let dry = project.run(&["run", "--once", "--dry-run"]).ended(0);
    dry.tells("what was done by way of that one is not known here");
    runs_the_example(&project, "postgres");
    let known = project.run(&["run", "--once"]).ended(0);
    assert!(!known.stderr.contains("not known here"), "{known:#?}");

    move_to(&project, &fresh_url(endpoint));
    // A table is never made in silence.
    let lost = project.run(&["run", "--once"]).ended(1);
    lost.tells("operators doctor --create");
    project.run(&["doctor", "--create"]).ended(0).tells("sound");
    runs_the_example(&project, "dynamodb");

    move_to(&project, &home);
    assert_eq!(project.read(CONFIG), config, "one line changed, and back");
    assert_eq!(decisions(&project), [Dedup, Dedup, Dedup], "it remembers");
    assert_eq!(project.receipts().len(), 9);
}

#[test]
fn a_second_store_is_said_to_know_nothing_of_the_first() {
    let project = Project::example();
    let first = project.run(&["run", "--once"]).ended(0);
    assert!(!first.stderr.contains("not known here"), "{first:#?}");
    move_to(&project, "sqlite:.operators/other.db");
    let moved = project.run(&["run", "--once", "--json"]).ended(0);
    moved.tells("what was done by way of that one is not known here");
    let again = project.run(&["run", "--once"]).ended(0);
    assert!(!again.stderr.contains("not known here"), "{again:#?}");
}
