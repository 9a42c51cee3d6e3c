//! Doubts, and a person's answer to them.

use operators::{ReceiptKind, ReceiptOutcome};
use operators_tests::dynamodb::{endpoint, fresh_url};
use serde_json::{Value, json};

use crate::support::{Project, Said, action, hold};
use crate::vendor::{Answer, Vendor};

/// A shop that drops the first request and answers the rest.
fn forgetful() -> Vendor {
    let first = std::sync::atomic::AtomicBool::new(true);
    Vendor::start(move |_| {
        if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            Answer::Close
        } else {
            Answer::well()
        }
    })
}

/// `orders.release` on SO-1: opaque, and lands within 100 ms or never.
fn release() -> Value {
    action("orders.release", "SO-1", json!({"order": "SO-1"}))
}

const KEY: &str = "SO-1:release";

pub fn in_doubt() -> (Project, Vendor) {
    let vendor = forgetful();
    let project = Project::with(&vendor.config());
    project.plan(&json!([release()])).ended(4);
    (project, vendor)
}

fn resolve(project: &Project, answer: &[&str]) -> Said {
    let because = ["--because", "asked the vendor"];
    project.run(&[&["doubts", "resolve", KEY], answer, &because].concat())
}

#[test]
fn a_doubt_is_listed_with_the_command_that_answers_it() {
    let (project, _vendor) = in_doubt();
    let said = project.run(&["doubts", "list"]).ended(0);
    for word in [KEY, "SO-1", "shop:orders.release"] {
        assert!(said.stdout.contains(word), "no `{word}` in {said:#?}");
    }
    said.tells("operators doubts resolve SO-1:release --applied --because");
    let doubts: Vec<Value> = project.run(&["doubts", "list", "--json"]).ended(0).lines();
    assert_eq!(doubts[0]["effect"], "opaque");
    assert_eq!(
        doubts[0]["receipt_id"],
        json!(project.receipts()[0].receipt_id)
    );
    let other = project
        .run(&["doubts", "list", "--tenant", "another"])
        .ended(0);
    other.tells("no doubts");
}

#[test]
fn a_run_that_ends_in_doubt_says_what_to_do_next() {
    let vendor = forgetful();
    let project = Project::with(&vendor.config());
    let plan = json!([release(), action("orders.refund", "SO-1", json!({}))]).to_string();
    let said = project
        .run_with_stdin(&["run", "--once", "--plan", "-"], plan)
        .ended(4);
    said.tells("2 actions: 1 refused, 1 in doubt");
    said.tells("find out at the vendor whether it happened, and say so");
    said.tells("operators doubts list");
    said.tells("operators doubts resolve 'SO-1:release' --applied --because");
}

#[test]
fn applied_burns_the_key_with_the_answer_given() {
    let (project, vendor) = in_doubt();
    let said = resolve(&project, &["--applied", "--result", r#"{"id": 7}"#]).ended(0);
    assert_eq!(said.stdout, "SO-1:release: applied\n");
    said.tells("`SO-1` is free again");
    let said = project.plan(&json!([release(), hold("SO-1")])).ended(0);
    assert_eq!(said.decisions(), ["DEDUP", "ALLOW"]);
    let original = said.results()[0].original.clone().expect("the application");
    assert_eq!(original.result, json!({"id": 7}));
    assert_eq!(vendor.requests().len(), 2, "it was never sent again");
    // rule 5.7: a new receipt that cites the first, with who and why.
    let receipts = project.receipts();
    let correction = &receipts[1];
    assert_eq!(correction.kind, ReceiptKind::Correction);
    assert_eq!(correction.outcome, Some(ReceiptOutcome::Applied));
    assert_eq!(
        correction.original_receipt_id.as_deref(),
        Some(receipts[0].receipt_id.as_str())
    );
    assert_eq!(correction.approver.as_deref(), Some("auditor"));
    assert_eq!(correction.note.as_deref(), Some("asked the vendor"));
    assert_eq!(
        receipts[0].outcome,
        Some(ReceiptOutcome::InDoubt),
        "nothing is edited"
    );
}

#[test]
fn not_applied_frees_the_key_once_nothing_can_land() {
    // rule 4.6
    let (project, vendor) = in_doubt();
    std::thread::sleep(std::time::Duration::from_millis(150));
    let said = resolve(&project, &["--not-applied", "--as", "ops"]).ended(0);
    assert_eq!(said.stdout, "SO-1:release: failed\n");
    said.tells("proposing it again sends it");
    let said = project.plan(&json!([release()])).ended(0);
    assert_eq!(said.decisions(), ["ALLOW"]);
    assert_eq!(vendor.requests().len(), 2);
    assert_eq!(project.receipts()[1].approver.as_deref(), Some("ops"));
}

/// Rule 4.6: a command that begins to watch says so, and by when at the latest it is believed; it was
/// refused with the same two seconds for five minutes.
#[test]
fn on_dynamodb_it_is_told_by_when_not_applied_is_believed_and_waited_for() {
    let Some(endpoint) = endpoint() else { return };
    let vendor = forgetful();
    let url = fresh_url(endpoint);
    let project = Project::with(&format!("{}[store]\nurl = '{url}'\n", vendor.config()));
    project.run(&["doctor", "--create"]).ended(0);
    project.plan(&json!([release()])).ended(4);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let said = resolve(&project, &["--not-applied"]).ended(3);
    said.tells("may still land for 1 s");
    said.tells("from its own first look");
    said.tells("in 6m at the latest");
    let said = resolve(&project, &["--not-applied", "--wait"]).ended(0);
    said.tells("waiting for 1 s");
    assert_eq!(said.stdout, "SO-1:release: failed\n");
}

#[test]
fn not_applied_is_not_believed_while_the_request_may_still_land() {
    // rule 4.6: `orders.hold` may land for its deadline and 30 s more.
    let vendor = forgetful();
    let project = Project::with(&vendor.config());
    project.plan(&json!([hold("SO-1")])).ended(4);
    let args = [
        "doubts",
        "resolve",
        "SO-1:hold",
        "--not-applied",
        "--because",
        "it looks so",
    ];
    let said = project.run(&args).ended(3);
    said.tells("may still land for");
    said.tells("say it again then");
    assert_eq!(said.stdout, "");
    assert_eq!(project.receipts().len(), 1);
    let said = project.plan(&json!([hold("SO-1")])).ended(4);
    assert_eq!(said.decisions(), ["BLOCK"]);
    assert_eq!(vendor.requests().len(), 1);
}

#[test]
fn write_off_never_runs_it_again_and_frees_the_entity() {
    // rule 4.11
    let (project, vendor) = in_doubt();
    std::thread::sleep(std::time::Duration::from_millis(150));
    let said = resolve(&project, &["--write-off"]).ended(0);
    said.tells("`SO-1` is free again; it is never run again");
    let said = project.plan(&json!([release(), hold("SO-1")])).ended(0);
    assert_eq!(said.decisions(), ["DEDUP", "ALLOW"]);
    assert!(
        said.results()[0]
            .original
            .as_ref()
            .expect("the original")
            .written_off
    );
    let told = project.run_with_stdin(
        &["run", "--once", "--plan", "-"],
        json!([release()]).to_string(),
    );
    assert!(told.stdout.contains("written off"), "{told:#?}");
    assert_eq!(vendor.requests().len(), 2);
}

#[test]
fn a_write_off_does_not_call_free_what_the_request_may_still_reach() {
    // It said "is free again" at once, while the entity was held for as long as the abandoned
    // request could land.
    let vendor = forgetful();
    let project = Project::with(&vendor.config());
    project.plan(&json!([hold("SO-1")])).ended(4);
    let args = [
        "doubts",
        "resolve",
        "SO-1:hold",
        "--write-off",
        "--because",
        "nobody knows",
    ];
    let said = project.run(&args).ended(0);
    said.tells("`SO-1` is held for ");
    said.tells("while the request may still land; it is never run again");
    let said = project.plan(&json!([release()])).ended(3);
    assert_eq!(
        said.results()[0].reason,
        Some(operators::Reason::EntityInDoubt)
    );
    assert_eq!(vendor.requests().len(), 1);
}

#[test]
fn what_is_not_in_doubt_cannot_be_resolved() {
    let (project, _vendor) = in_doubt();
    let args = [
        "doubts",
        "resolve",
        "SO-9:hold",
        "--applied",
        "--because",
        "x",
    ];
    project
        .run(&args)
        .ended(1)
        .tells("no doubt: key `SO-9:hold` of tenant `acme` was never claimed");
    resolve(&project, &["--applied"]).ended(0);
    resolve(&project, &["--write-off"])
        .ended(1)
        .tells("nothing was changed");
    let said = resolve(&project, &["--applied", "--result", "{\"a\":1,\"a\":2}"]).ended(1);
    said.tells("`--result` is not JSON");
    assert_eq!(project.receipts().len(), 2);
}

#[test]
fn who_decides_is_whoever_the_system_says_when_nobody_says_more() {
    let (project, _vendor) = in_doubt();
    let args = ["doubts", "resolve", KEY, "--applied", "--because", "x"];
    let mut command = project.command(&args);
    crate::support::finish(command.env_remove("USER").env_remove("LOGNAME")).ended(0);
    let id = std::process::Command::new("id").arg("-un").output();
    let login = String::from_utf8(id.expect("id").stdout).expect("text");
    let receipts = project.receipts();
    let decided = receipts.iter().find_map(|one| one.approver.as_deref());
    assert_eq!(decided, Some(login.trim()));
}

#[test]
fn a_keyed_doubt_is_sent_again_with_the_same_key() {
    // rule 4.5, 3.7
    let vendor = forgetful();
    let project = Project::with(&vendor.config());
    let refund = action("orders.refund", "SO-1", json!({}));
    project.plan(&json!([refund])).ended(4);
    let said = project.plan(&json!([refund])).ended(0);
    assert_eq!(said.decisions(), ["ALLOW"]);
    assert_eq!(said.results()[0].attempt, 2);
    let sent = vendor.requests();
    let keys: Vec<_> = sent
        .iter()
        .map(|one| one.header("idempotency-key"))
        .collect();
    assert!(keys[0].is_some_and(|key| key.len() >= 32), "{keys:?}");
    assert_eq!(keys[0], keys[1]);
}
