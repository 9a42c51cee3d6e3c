//! `receipts prune`: texts leave the store behind a checked file and a signed checkpoint, from outside.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::every_store::on_every_store;
use crate::support::{Project, hold, top};
use crate::{alerts, approvals, doubts};

const BECAUSE: [&str; 2] = ["--because", "older than we keep"];

/// `receipts prune` of everything until now into that file.
fn prune(project: &Project, file: &str) -> crate::support::Said {
    let args = ["receipts", "prune", "--before", "0s", "--export", file];
    project.run(&[&args[..], &BECAUSE].concat())
}

/// Runs a plan that holds these orders.
fn run(project: &Project, orders: &[&str]) {
    let plan: Vec<Value> = orders.iter().map(|order| hold(order)).collect();
    project.plan(&json!(plan)).ended(0);
}

fn verified(project: &Project, more: &[&str]) -> crate::support::Said {
    let args = ["receipts", "verify", "--against-store"];
    project.run(&[&args[..], more].concat())
}

/// By rules 11.6, 11.7, on every store.
#[test]
fn pruned_receipts_are_in_a_file_that_the_log_still_proves() {
    on_every_store(|project, store| {
        run(project, &["o1", "o2", "o3"]);
        let gone = project.receipts()[1].receipt_id.clone();
        let old = project.run(&["receipts", "prove", &gone]).ended(0).stdout;
        let said = prune(project, "one.jsonl").ended(0);
        assert!(
            said.stdout.contains("receipts 1 to 3"),
            "{store}: {said:#?}"
        );
        // The proof that was made before still holds.
        project.write("old.json", &old);
        let keys = project.read(".operators/signing.pub");
        let proof = ["receipts", "verify-proof", "old.json", "--key", keys.trim()];
        project.run(&proof).ended(0);
        let said = project.run(&["receipts", "export"]).ended(0);
        said.tells("3 pruned");
        assert_eq!(said.stdout.lines().count(), 1, "{store}: {said:#?}");
        project
            .run(&["receipts", "list"])
            .ended(0)
            .tells("3 pruned");
        let shown = project.run(&["receipts", "show", &gone]).ended(1);
        shown.tells("was pruned");
        shown.tells("one.jsonl");
        // A duplicate is still one, and the log goes on.
        let said = project.plan(&json!([hold("o2"), hold("o4")])).ended(0);
        assert_eq!(said.decisions(), ["DEDUP", "ALLOW"], "{store}");
        assert_eq!(project.effects().len(), 4, "{store}");
        let said = prune(project, "two.jsonl").ended(0);
        assert!(
            said.stdout.contains("receipts 4 to 6"),
            "{store}: {said:#?}"
        );
        let said = verified(
            project,
            &["--segment", "one.jsonl", "--segment", "two.jsonl"],
        );
        let said = said.ended(0);
        for told in [
            "sound: 7 receipts",
            "left: 5",
            "segments that agree: 2",
            "agree: 4",
        ] {
            assert!(
                said.stdout.contains(told),
                "{store}: no {told} in {said:#?}"
            );
        }
        second_opinion(project, &["one.jsonl", "two.jsonl"], keys.trim());
        // What is left still has proofs, and the report says what it does not count.
        let left = project.receipts().pop().expect("one").receipt_id;
        project.run(&["receipts", "prove", &left]).ended(0);
        let report = project.run(&["receipts", "report"]).ended(0).stdout;
        assert!(report.contains("6 older ones were pruned"), "{store}");
    });
}

/// The other verifier agrees, and finds what was changed.
fn second_opinion(project: &Project, files: &[&str], key: &str) {
    let script = top().join("docs/verify.py");
    let check = |file: PathBuf| {
        let mut python = Command::new("python3");
        let python = python.arg(&script).arg("segment").arg(file).arg(key);
        python.output().expect("python3 runs")
    };
    for file in files {
        let said = check(project.path(file));
        assert!(said.status.success(), "{file}: {said:?}");
        project.write("edited", project.read(file).replace("ALLOW", "BLOCK"));
        assert_eq!(
            check(project.path("edited")).status.code(),
            Some(5),
            "{file}"
        );
    }
}

/// By rule 11.7: a segment that was edited is named, and so is the receipt.
#[test]
fn an_edited_segment_is_named() {
    let project = Project::with_file();
    run(&project, &["o1", "o2", "o3"]);
    let id = project.receipts()[1].receipt_id.clone();
    prune(&project, "one.jsonl").ended(0);
    let whole = project.read("one.jsonl");
    project.write("one.jsonl", whole.replace("\"o2\"", "\"o9\""));
    let said = verified(&project, &["--segment", "one.jsonl"]).ended(5);
    said.tells(&id);
    said.tells("was changed");
    let cut: Vec<&str> = whole.lines().take(3).collect();
    project.write("one.jsonl", cut.join("\n") + "\n");
    let said = verified(&project, &["--segment", "one.jsonl"]).ended(5);
    said.tells("it has 2 receipts, and its header says 3");
    // What is no segment at all is a mistake, not a finding.
    project.write("one.jsonl", "{}\n");
    verified(&project, &["--segment", "one.jsonl"])
        .ended(5)
        .tells("no header");
    verified(&project, &["--segment", "nowhere"]).ended(1);
}

/// By rule 11.6: what is not ready to be pruned is refused, with the reason.
#[test]
fn what_must_stay_is_refused() {
    let project = Project::with_file();
    run(&project, &["o1", "o2"]);
    let nothing = [
        "receipts",
        "prune",
        "--before",
        "1d",
        "--export",
        "one.jsonl",
    ];
    let said = project.run(&[&nothing[..], &BECAUSE].concat()).ended(0);
    said.tells("nothing was settled before");
    assert!(!project.path("one.jsonl").exists());
    project.write("one.jsonl", "mine\n");
    prune(&project, "one.jsonl").ended(1).tells("there already");
    assert_eq!(project.read("one.jsonl"), "mine\n");
    project
        .run(&["receipts", "prune", "--before", "0s", "--export", "x"])
        .ended(2);
    assert_eq!(project.receipts().len(), 2);
}

/// Is refused because of `what`, and goes through once `close` has dealt with that.
fn waits_for(project: &Project, what: &str, close: &[&str]) {
    let before = project.receipts().len();
    let said = prune(project, "one.jsonl").ended(1);
    said.tells(what);
    assert!(!project.path("one.jsonl").exists(), "{what}");
    assert_eq!(project.receipts().len(), before, "{what}");
    let because = ["--because", "dealt with"];
    project.run(&[close, &because].concat()).ended(0);
    prune(project, "one.jsonl").ended(0);
}

/// By rule 11.6: what something open is about stays until that is closed.
#[test]
fn what_something_open_is_about_stays() {
    let alerting = alerts::project();
    run(&alerting, &["SO-1", "SO-2"]);
    let ack = ["alerts", "ack", "--all"];
    waits_for(&alerting, "the alert about key `SO-1:hold`", &ack);

    let asking = approvals::project();
    asking.plan(&json!([hold("SO-1")])).ended(3);
    let id = approvals::question(&asking);
    let veto = ["approvals", "veto", &id];
    waits_for(&asking, "the question about key `SO-1:hold`", &veto);

    let (in_doubt, _vendor) = doubts::in_doubt();
    let resolve = ["doubts", "resolve", "SO-1:release", "--applied"];
    waits_for(&in_doubt, "the doubt about key `SO-1:release`", &resolve);
}

/// By rule 11.6: a segment ends at a signed checkpoint, never between two.
#[test]
fn a_segment_ends_at_a_checkpoint() {
    let project = Project::with_file();
    run(&project, &["o1", "o2"]);
    run(&project, &["o3", "o4"]);
    let before = |number: usize, file: &str| {
        let moment = project.receipts()[number].settled_at.to_string();
        let args = ["receipts", "prune", "--before", &moment, "--export", file];
        project.run(&[&args[..], &BECAUSE].concat())
    };
    let said = before(1, "one.jsonl").ended(1);
    said.tells("no signed checkpoint ends among them");
    assert!(!project.path("one.jsonl").exists());
    // The third is old enough too, and the checkpoint before it is where it ends.
    let said = before(3, "one.jsonl").ended(0);
    assert!(said.stdout.contains("receipts 1 to 2"), "{said:#?}");
    verified(&project, &["--segment", "one.jsonl"]).ended(0);
}

/// By rule 11.6: the outside place must have the checkpoint first.
#[test]
fn nothing_is_pruned_that_the_outside_place_does_not_know() {
    let project = Project::with_file();
    run(&project, &["o1", "o2"]);
    let config = project.read("operators.toml");
    let outsides = [
        ("file = 'nowhere/at/all'", "cannot be written"),
        // Its end of the pipe may be gone before the checkpoint is in it. That was taken for a reader
        // of ours who had seen enough: nothing was pruned, nothing was said, exit code 0.
        (
            "command = ['sh', '-c', 'exit 3']",
            "ended with exit status: 3",
        ),
    ];
    for (outside, why) in outsides {
        let outside = format!("\n[receipts.checkpoint]\n{outside}\n");
        project.write("operators.toml", format!("{config}{outside}"));
        let said = prune(&project, "one.jsonl").ended(1);
        said.tells("the outside place does not have the checkpoint");
        said.tells(why);
        assert!(!project.path("one.jsonl").exists());
    }
    project.write("operators.toml", config);
    assert_eq!(project.receipts().len(), 2);
}

/// By rule 11.6: a log that does not hold is not pruned.
#[test]
fn a_log_that_does_not_hold_is_not_pruned() {
    let project = Project::with_file();
    run(&project, &["o1", "o2"]);
    let file = rusqlite::Connection::open(project.path(".operators/store.db")).expect("opens");
    file.execute_batch(
        "DROP TRIGGER receipt_no_update; UPDATE receipt SET body = replace(body, 'o2', 'o9')",
    )
    .expect("an owner can");
    let said = prune(&project, "one.jsonl").ended(5);
    said.tells("nothing was pruned");
    assert!(!project.path("one.jsonl").exists());
}

/// Keeps what the project has of its own, to be put back.
fn copied(project: &Project) -> PathBuf {
    let copy = project.path("copy");
    let done = Command::new("cp")
        .arg("-r")
        .arg(project.path(".operators"))
        .arg(&copy)
        .status();
    assert!(done.expect("cp runs").success());
    copy
}

/// By rule 11.6: killed after the file and before the receipt of it, a second try uses that file.
#[test]
fn a_prune_killed_after_its_file_is_taken_up_again() {
    let project = Project::with_file();
    run(&project, &["o1", "o2"]);
    let copy = copied(&project);
    prune(&project, "one.jsonl").ended(0);
    let file = project.read("one.jsonl");
    std::fs::remove_dir_all(project.path(".operators")).expect("goes");
    std::fs::rename(copy, project.path(".operators")).expect("comes back");
    // More has happened since, which that file is not about.
    run(&project, &["o3"]);
    assert_eq!(project.receipts().len(), 3);
    let said = prune(&project, "one.jsonl").ended(0);
    assert!(said.stdout.contains("receipts 1 to 2"), "{said:#?}");
    assert_eq!(project.read("one.jsonl"), file);
    verified(&project, &["--segment", "one.jsonl"]).ended(0);
}

/// By rule 11.6: killed after the receipt of the pruning and before its texts are gone, nothing but
/// that very file lets a second try go on.
#[test]
fn a_prune_killed_before_its_texts_are_gone_is_finished_with_its_file() {
    on_every_store(|project, store| {
        run(project, &["o1", "o2", "o3"]);
        let config = project.read("operators.toml");
        // The second checkpoint is the one over the receipt of the pruning: it kills whoever hands it.
        let deadly = "\n[receipts.checkpoint]\ncommand = ['sh', '-c', \
            'cat > seen; test -e once && kill -9 $PPID; touch once']\n";
        project.write("operators.toml", format!("{config}{deadly}"));
        let killed = prune(project, "one.jsonl");
        assert_eq!(killed.code, None, "{store}: {killed:#?}");
        project.write("operators.toml", &config);
        assert_eq!(project.receipts().len(), 4, "{store}: nothing is gone");
        verified(project, &[]).ended(0);
        let said = prune(project, "other.jsonl").ended(1);
        said.tells("one.jsonl");
        let whole = project.read("one.jsonl");
        project.write("one.jsonl", whole.replace("ALLOW", "BLOCK"));
        prune(project, "one.jsonl").ended(1);
        assert_eq!(project.receipts().len(), 4, "{store}: nothing is gone");
        project.write("one.jsonl", whole);
        let said = prune(project, "one.jsonl").ended(0);
        assert!(
            said.stdout.contains("receipts 1 to 3"),
            "{store}: {said:#?}"
        );
        assert_eq!(project.receipts().len(), 1, "{store}");
        let said = verified(project, &["--segment", "one.jsonl"]).ended(0);
        assert!(said.stdout.contains("left: 3"), "{store}: {said:#?}");
    });
}
