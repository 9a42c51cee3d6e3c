//! The life of one key: shown, and opened again on purpose.

use operators::ReceiptKind;
use serde_json::{Value, json};

use crate::support::{Project, hold};
use crate::vendor::{self, Answer, Vendor};

fn shown(project: &Project, key: &str) -> Value {
    let said = project.run(&["keys", "show", key, "--json"]).ended(0);
    serde_json::from_str(&said.stdout).expect("JSON")
}

#[test]
fn show_tells_the_phase_the_attempts_and_every_receipt() {
    let project = Project::with(&vendor::config(vendor::closed_port()));
    project.plan(&json!([hold("SO-1")])).ended(4);
    assert_eq!(shown(&project, "SO-1:hold")["phase"], "failed");
    let vendor = Vendor::always(Answer::well());
    project.write("operators.toml", vendor.config());
    project.plan(&json!([hold("SO-1"), hold("SO-1")])).ended(0);

    let key = shown(&project, "SO-1:hold");
    assert_eq!(key["phase"], "applied");
    assert_eq!(key["attempts"], 2);
    assert_eq!(key["generation"], 1);
    assert_eq!(key["receipts"].as_array().map(Vec::len), Some(3));
    let told = project.run(&["keys", "show", "SO-1:hold"]).ended(0);
    for word in [
        "SO-1:hold",
        "applied: burned",
        "shop:orders.hold (opaque)",
        "status",
        "DEDUP",
    ] {
        assert!(told.stdout.contains(word), "no `{word}` in {told:#?}");
    }
}

#[test]
fn a_key_that_was_only_refused_or_never_seen_is_told_so() {
    let project = Project::with_file();
    project.edit("policies/all.toml", "ALLOW", "BLOCK");
    project.plan(&json!([hold("SO-1")])).ended(3);
    let told = project.run(&["keys", "show", "SO-1:hold"]).ended(0);
    told.tells("proposed but never claimed");
    project
        .run(&["keys", "show", "SO-2:hold"])
        .ended(1)
        .tells("no key `SO-2:hold` of tenant `acme`");
    let args = ["keys", "forget", "SO-2:hold", "--because", "x"];
    project.run(&args).ended(1).tells("no key");
}

#[test]
fn forget_opens_the_next_generation_and_the_next_run_is_a_new_effect() {
    // rule 3.6, 3.7
    let project = Project::with_file();
    let plan = json!([hold("SO-1")]);
    project.plan(&plan).ended(0);
    let args = [
        "keys",
        "forget",
        "SO-1:hold",
        "--because",
        "released by hand, hold it again",
    ];
    let said = project.run(&args).ended(0);
    assert_eq!(said.stdout, "SO-1:hold: generation 2\n");
    said.tells("a new effect");
    assert_eq!(project.plan(&plan).ended(0).decisions(), ["ALLOW"]);
    assert_eq!(project.plan(&plan).ended(0).decisions(), ["DEDUP"]);

    let effects = project.effects();
    assert_eq!(effects.len(), 2);
    assert_ne!(effects[0]["downstream_key"], effects[1]["downstream_key"]);
    let receipts = project.receipts();
    let kinds: Vec<_> = receipts.iter().map(|one| one.kind).collect();
    let proposal = ReceiptKind::Proposal;
    assert_eq!(kinds, [proposal, ReceiptKind::Forget, proposal, proposal]);
    assert_eq!(receipts[1].approver.as_deref(), Some("auditor"));
    assert_eq!(
        receipts[1].note.as_deref(),
        Some("released by hand, hold it again")
    );
    assert_eq!(receipts[2].generation, 2);
    assert_eq!(shown(&project, "SO-1:hold")["generation"], 2);
}

#[test]
fn a_key_that_is_not_burned_cannot_be_forgotten() {
    // rule 3.6
    let vendor = Vendor::always(Answer::Close);
    let project = Project::with(&vendor.config());
    project.plan(&json!([hold("SO-1")])).ended(4);
    let said = project
        .run(&["keys", "forget", "SO-1:hold", "--because", "x"])
        .ended(1);
    said.tells("`in_doubt`");
    assert_eq!(project.receipts().len(), 1);
    // One way out of a doubt is not a way round it.
    assert_eq!(project.plan(&json!([hold("SO-1")])).decisions(), ["BLOCK"]);
}
