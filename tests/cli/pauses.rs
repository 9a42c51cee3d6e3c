//! The kill switch, as a person types it, and as other processes meet it.

use operators::ReceiptKind;
use serde_json::json;

use crate::support::{Project, hold};

const TWO_OPERATORS: &str = "
[operators.ship-risk]
plan = \"plans/ship-risk.json\"
[operators.billing]
plan = \"plans/billing.json\"
";

fn project() -> Project {
    let project = Project::with_file();
    let config = project.read("operators.toml");
    project.write("operators.toml", config + TWO_OPERATORS);
    project.write("plans/ship-risk.json", json!([hold("SO-1")]).to_string());
    project.write("plans/billing.json", json!([hold("SO-2")]).to_string());
    project
}

#[test]
fn pause_stops_every_run_until_resume_and_says_who_when_and_how() {
    // rule 9.1, 9.2
    let project = project();
    project.plan(&json!([hold("SO-0")])).ended(0);
    let said = project
        .run(&["pause", "--because", "too many holds"])
        .ended(0);
    assert_eq!(said.stdout, "paused: everything\n");
    said.tells("resume");

    let run = project.plan(&json!([hold("SO-0"), hold("SO-1")])).ended(3);
    assert_eq!(run.decisions(), ["DEDUP", "BLOCK"]);
    let results = run.results();
    let error = results[1].error.as_deref().expect("an error");
    for told in ["paused by auditor since 20", "too many holds"] {
        assert!(error.contains(told), "no `{told}` in `{error}`");
    }
    // rule 9.14
    assert!(!error.contains("operators "), "{error}");
    let hint = results[1].hint.as_deref().expect("a hint");
    assert!(hint.contains("`operators resume`"), "{hint}");
    let reason = results[1].reason.map(operators::Reason::as_str);
    assert_eq!(reason, Some("paused"));
    project
        .run(&["run", "--once", "ship-risk"])
        .ended(3)
        .tells("operators resume");
    // A dry run shows it and writes nothing.
    let receipts = project.receipts().len();
    let args = ["run", "--once", "--dry-run", "--json", "ship-risk"];
    let dry = project.run(&args).ended(3);
    assert!(dry.stdout.contains("\"paused\""), "{dry:#?}");
    assert_eq!(project.receipts().len(), receipts);

    project
        .run(&["pause"])
        .ended(0)
        .tells("paused already, by auditor");
    assert_eq!(
        project.run(&["resume"]).ended(0).stdout,
        "resumed: everything\n"
    );
    project
        .run(&["resume"])
        .ended(3)
        .tells("there is no pause of everything to end");
    let run = project.plan(&json!([hold("SO-1")])).ended(0);
    assert_eq!(run.decisions(), ["ALLOW"]);
    let receipts = project.receipts();
    let pause = receipts.iter().find(|one| one.kind == ReceiptKind::Pause);
    let pause = pause.expect("a receipt of the pause");
    assert_eq!(pause.approver.as_deref(), Some("auditor"));
    assert_eq!(pause.note.as_deref(), Some("too many holds"));
    let resumed = receipts
        .iter()
        .filter(|one| one.kind == ReceiptKind::Resume);
    assert_eq!(resumed.count(), 1);
    let listed = project.run(&["receipts", "list"]).ended(0);
    assert!(listed.stdout.contains("operators:pause"), "{listed:#?}");
}

#[test]
fn pause_of_one_operator_leaves_the_others() {
    // rule 9.1
    let project = project();
    let said = project.run(&["pause", "--operator", "ship-risk"]).ended(0);
    said.tells("nothing new of operator `ship-risk` is sent");
    said.tells("others go on");
    let run = project
        .run(&["run", "--once", "--json", "billing"])
        .ended(0);
    assert_eq!(run.decisions(), ["ALLOW"]);
    let run = project.run(&["run", "--once", "ship-risk"]).ended(3);
    run.tells("operators resume --operator ship-risk");
    // A plan run by hand is nobody's.
    project.plan(&json!([hold("SO-3")])).ended(0);
    project
        .run(&["resume"])
        .ended(3)
        .tells("still paused: operator `ship-risk`");
    project.run(&["resume", "--operator", "ship-risk"]).ended(0);
    let run = project
        .run(&["run", "--once", "--json", "ship-risk"])
        .ended(0);
    assert_eq!(run.decisions(), ["ALLOW"]);
}

#[test]
fn what_cannot_be_paused_is_refused_by_name() {
    let project = project();
    project
        .run(&["pause", "--operator", "shiprisk"])
        .ended(1)
        .tells("no operator `shiprisk` in this project; nothing was paused");
    project.run(&["pause", "--operator", "Ship Risk"]).ended(2);
    project.write(
        "operators.toml",
        "tenant = \"acme\"\n[store]\nurl = \"memory:\"\n",
    );
    project.run(&["pause"]).ended(1).tells("nothing to pause");
}

#[test]
fn a_pause_before_the_first_run_holds() {
    // rule 9.1
    let project = project();
    project.run(&["pause"]).ended(0);
    assert_eq!(
        project.plan(&json!([hold("SO-1")])).ended(3).decisions(),
        ["BLOCK"]
    );
    assert!(project.effects().is_empty());
}
