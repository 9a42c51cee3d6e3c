//! `mode = "stub"`: a rehearsal that reaches nothing and burns nothing real.

use operators::Receipt;
use serde_json::json;

use crate::support::{Project, hold};

const LIVE: &str = "kind = 'file'";
const STUB: &str = "kind = 'file'\nmode = 'stub'";

/// Rule 10.1, from outside: rehearsed first, then run in earnest.
#[test]
fn a_rehearsal_says_so_and_the_real_run_still_happens() {
    let project = Project::with_file();
    project.edit("operators.toml", LIVE, STUB);
    let plan = json!([hold("SO-1")]);
    let said = project.plan(&plan).ended(0);
    said.tells("a rehearsal of 1 action (`shop`)");
    said.tells("under `acme~stub`");
    assert_eq!(said.decisions(), ["ALLOW"]);
    assert!(project.effects().is_empty());
    assert!(project.receipts().is_empty());
    let export = ["receipts", "export", "--tenant", "acme~stub"];
    let receipts: Vec<Receipt> = project.run(&export).ended(0).lines();
    let effect_id = receipts[0].effect_id.as_deref().expect("an id");
    assert!(effect_id.starts_with("stub:"), "{effect_id}");

    let table = project.run_with_stdin(&["run", "--once", "--plan", "-"], plan.to_string());
    let told = table.ended(0).stdout;
    assert!(told.contains("stub: done"), "{told}");

    project.edit("operators.toml", STUB, LIVE);
    let said = project.plan(&plan).ended(0);
    assert_eq!(said.decisions(), ["ALLOW"]);
    assert!(!said.stderr.contains("rehearsal"), "{said:#?}");
    let real = project.receipts();
    assert_eq!((project.effects().len(), real.len()), (1, 1));
    // Structurally the same: every field is there, in both.
    let fields = |receipt: &Receipt| {
        let value = serde_json::to_value(receipt).expect("JSON");
        let fields = value.as_object().expect("an object");
        fields.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(fields(&receipts[0]), fields(&real[0]));
}

#[test]
fn answers_come_from_a_file_and_may_be_bad_news() {
    let project = Project::with_file();
    project.edit(
        "operators.toml",
        LIVE,
        &format!("{STUB}\nanswers = 'stubs/shop.json'"),
    );
    let answer = |text: &str| project.write("stubs/shop.json", text);
    answer(r#"{"orders.hold": {"result": {"status": "held"}, "effect_id": "ho-7"}}"#);
    let said = project.plan(&json!([hold("SO-1")])).ended(0);
    let results = said.results();
    assert_eq!(results[0].result, Some(json!({"status": "held"}).into()));
    answer(r#"{"orders.hold": {"outcome": "not_applied", "error": "sold out"}}"#);
    let said = project.plan(&json!([hold("SO-2")])).ended(4);
    assert!(said.stdout.contains("sold out"), "{said:#?}");
    answer(r#"{"orders.hold": {"outcome": "unknown"}}"#);
    let said = project.plan(&json!([hold("SO-3")])).ended(4);
    assert_eq!(
        said.results()[0].reason.map(operators::Reason::as_str),
        Some("in_doubt")
    );
    let doubts = project.run(&["doubts", "list", "--json", "--tenant", "acme~stub"]);
    assert_eq!(doubts.ended(0).stdout.lines().count(), 1);
    let real = project.run(&["doubts", "list", "--json"]).ended(0);
    assert_eq!(real.stdout, "");

    answer(r#"{"orders.sell": {}}"#);
    let said = project.plan(&json!([hold("SO-4")])).ended(1);
    said.tells("the connector has no tool `orders.sell`");
    answer(r#"{"orders.hold": {"outcome": "perhaps"}}"#);
    project.plan(&json!([hold("SO-4")])).ended(1);
    project.edit("operators.toml", "mode = 'stub'\n", "");
    let said = project.plan(&json!([hold("SO-4")])).ended(1);
    said.tells("only a stub answers from a file");
}

/// Rule 10.1: the command to type next looks where the stub's doubt is kept.
#[test]
fn the_way_out_of_a_stubs_doubt_names_its_tenant() {
    let project = Project::with_file();
    let answers = format!("{STUB}\nanswers = 'shop.json'");
    project.edit("operators.toml", LIVE, &answers);
    project.write("shop.json", r#"{"orders.hold": {"outcome": "unknown"}}"#);
    let plan = json!([hold("SO-1")]).to_string();
    let said = project.run_with_stdin(&["run", "--once", "--plan", "-"], plan);
    let said = said.ended(4);
    said.tells("operators doubts list --tenant 'acme~stub'");
    said.tells("--because '…' --tenant 'acme~stub'");
}
