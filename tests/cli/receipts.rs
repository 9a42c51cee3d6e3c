//! The audit trail: list, show, tail, export, and the filters of all of them.

use operators::{Disposition, Receipt, ReceiptOutcome};
use serde_json::{Value, json};

use crate::support::{Project, hold};
use crate::vendor::{self, Answer, Vendor};

/// Five receipts: applied, duplicate, blocked, failed, in doubt.
fn project() -> (Project, Vendor) {
    let vendor = Vendor::start(|request| match &request.body {
        body if body.contains("down") => Answer::Close,
        body if body.contains("bad") => Answer::Text(422, "no such order".to_owned()),
        _ => Answer::well(),
    });
    let project = Project::with(&vendor.config());
    let block = "\n[[rule]]\nname = 'dear'\ndecision = 'ALLOW'\nmax_value = 10\n";
    project.write(
        "policies/all.toml",
        project.read("policies/all.toml") + block,
    );
    let mut plan = ["SO-1", "SO-1", "dear", "bad", "down"].map(hold);
    for (action, value) in plan.iter_mut().zip([1, 1, 11, 1, 1]) {
        action["value"] = json!(value);
    }
    project.plan(&json!(plan)).ended(4);
    (project, vendor)
}

const OUTCOMES: [ReceiptOutcome; 5] = [
    ReceiptOutcome::Applied,
    ReceiptOutcome::Deduplicated,
    ReceiptOutcome::Refused,
    ReceiptOutcome::Failed,
    ReceiptOutcome::InDoubt,
];

fn outcomes(receipts: &[Receipt]) -> Vec<ReceiptOutcome> {
    receipts
        .iter()
        .map(|one| one.outcome.expect("an outcome"))
        .collect()
}

#[test]
fn export_is_every_receipt_oldest_first_one_json_object_a_line() {
    // rule 5.1, 5.3
    let (project, _vendor) = project();
    let said = project.run(&["receipts", "export"]).ended(0);
    assert_eq!(said.stderr, "");
    let receipts: Vec<Receipt> = said.lines();
    assert_eq!(outcomes(&receipts), OUTCOMES);
    for (line, receipt) in said.lines::<Value>().iter().zip(&receipts) {
        assert_eq!(line, &serde_json::to_value(receipt).expect("JSON"));
        let fields = line.as_object().expect("an object");
        for field in FIELDS {
            assert!(fields.contains_key(field), "no `{field}` in {line}");
        }
    }
}

/// DESIGN §10: all always present, null when empty.
const FIELDS: [&str; 34] = [
    "receipt_id",
    "tenant_id",
    "reseller_id",
    "operator",
    "run_id",
    "plan_id",
    "event_id",
    "correlation_id",
    "action",
    "value",
    "entity_key",
    "idempotency_key",
    "generation",
    "attempt",
    "revision",
    "source_id",
    "index_hash",
    "decision",
    "rule",
    "policy",
    "ok",
    "outcome",
    "reason",
    "error",
    "hint",
    "result_digest",
    "effect_id",
    "original_receipt_id",
    "approver",
    "known_by",
    "session",
    "proposed_at",
    "settled_at",
    "version",
];

#[test]
fn export_goes_on_beyond_one_page() {
    let project = Project::with_file();
    let plan = json!(vec![hold("SO-1"); 1_100]);
    project.plan(&plan).ended(0);
    let receipts = project.receipts();
    assert_eq!(receipts.len(), 1_100);
    assert_eq!(receipts[0].decision, Some(Disposition::Allow));
    assert!(
        receipts
            .windows(2)
            .all(|pair| pair[0].settled_at <= pair[1].settled_at)
    );
    let listed: Vec<Receipt> = project
        .run(&["receipts", "list", "--json", "--limit", "1050"])
        .ended(0)
        .lines();
    assert_eq!(listed.len(), 1_050);
    assert_eq!(listed.first(), receipts.last());
}

#[test]
fn list_is_the_newest_first_and_tail_the_last_in_order() {
    let (project, _vendor) = project();
    let listed: Vec<Receipt> = project
        .run(&["receipts", "list", "--json", "--limit", "2"])
        .ended(0)
        .lines();
    assert_eq!(
        outcomes(&listed),
        [ReceiptOutcome::InDoubt, ReceiptOutcome::Failed]
    );
    let tail: Vec<Receipt> = project
        .run(&["receipts", "tail", "--json", "-n", "2"])
        .ended(0)
        .lines();
    assert_eq!(
        outcomes(&tail),
        [ReceiptOutcome::Failed, ReceiptOutcome::InDoubt]
    );
    let told = project.run(&["receipts", "tail"]).ended(0);
    assert_eq!(told.stdout.lines().count(), 5, "{told:#?}");
}

#[test]
fn filters_choose_and_combine() {
    let (project, _vendor) = project();
    let all = project.receipts();
    let run_id = &all[0].run_id;
    let correlation = &all[0].correlation_id;
    let cases: [(&[&str], usize); 19] = [
        (&["--decision", "BLOCK"], 1),
        (&["--decision", "allow"], 3),
        (&["--outcome", "in_doubt"], 1),
        (&["--outcome", "refused"], 1),
        (&["--reason", "policy"], 1),
        (&["--reason", "failed"], 1),
        (&["--tool", "orders.hold"], 5),
        (&["--tool", "orders.release"], 0),
        (&["--entity", "SO-1"], 2),
        (&["--key", "SO-1:hold"], 2),
        (&["--key", "SO-1:hold", "--decision", "DEDUP"], 1),
        (&["--run", run_id], 5),
        (&["--run", "another"], 0),
        (&["--correlation", correlation], 5),
        (&["--operator", "nobody"], 0),
        (&["--since", "1h"], 5),
        (&["--until", "1h"], 0),
        (
            &["--since", "2001-01-01", "--until", "2001-01-02T00:00:00Z"],
            0,
        ),
        (&["--tenant", "another"], 0),
    ];
    for (filter, count) in cases {
        for command in [&["receipts", "export"][..], &["receipts", "list", "--json"]] {
            let said = project.run(&[command, filter].concat()).ended(0);
            assert_eq!(said.lines::<Receipt>().len(), count, "{filter:?}");
        }
    }
    let none = project
        .run(&["receipts", "list", "--operator", "nobody"])
        .ended(0);
    none.tells("no receipts of tenant `acme` fit");
    assert_eq!(none.stdout, "");
}

#[test]
fn show_tells_all_of_one_by_its_id_or_the_end_of_it() {
    let (project, _vendor) = project();
    let failed = &project.receipts()[3];
    let id = failed.receipt_id.as_str();
    let said = project.run(&["receipts", "show", id, "--json"]).ended(0);
    let shown: Value = serde_json::from_str(&said.stdout).expect("JSON");
    assert_eq!(
        shown["receipt"],
        serde_json::to_value(failed).expect("JSON")
    );
    assert_eq!(shown["attempts"]["count"], 1);
    let end = &id[id.len() - 6..];
    for wanted in [id, end, &format!("…{end}")] {
        let told = project.run(&["receipts", "show", wanted]).ended(0);
        for word in [id, "bad:hold", "failed", "no such order", "dear", "acme"] {
            assert!(told.stdout.contains(word), "no `{word}` in {told:#?}");
        }
    }
    for unknown in ["zzzzzz", "x", ""] {
        project
            .run(&["receipts", "show", unknown])
            .ended(1)
            .tells("no receipt");
    }
    // Another tenant's receipt is not there.
    project
        .run(&["receipts", "show", id, "--tenant", "another"])
        .ended(1)
        .tells("no receipt");
}

#[test]
fn looking_makes_no_store() {
    let project = Project::with(&vendor::config(vendor::closed_port()));
    for args in [
        &["receipts", "list"][..],
        &["receipts", "tail"],
        &["receipts", "export"],
        &["doubts", "list"],
        &["doctor"],
    ] {
        let said = project.run(args).ended(0);
        assert!(!said.stdout.contains('{'), "{said:#?}");
    }
    project
        .run(&["keys", "show", "SO-1:hold"])
        .ended(1)
        .tells("no key");
    project
        .run(&["receipts", "show", "abcdef"])
        .ended(1)
        .tells("no receipt");
    assert!(!project.path(".operators").exists());
}
