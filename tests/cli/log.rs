//! `receipts verify`, `head`, `prove`, `verify-proof` and `rotate-key`, from outside.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use rusqlite::Connection;
use serde_json::Value;

use crate::support::{Project, top};

const STORE: &str = ".operators/store.db";

/// The example, run once: three receipts.
fn ran() -> Project {
    let project = Project::example();
    project.run(&["run", "--once"]).ended(0);
    project
}

fn key(project: &Project) -> String {
    let keys = project.read(".operators/signing.pub");
    keys.lines().last().expect("a key").to_owned()
}

pub fn by_hand(project: &Project, statement: &str) {
    let file = Connection::open(project.path(STORE)).expect("opens");
    file.execute_batch("DROP TRIGGER receipt_no_update; DROP TRIGGER receipt_no_delete")
        .expect("an owner can");
    let changed = file.execute(statement, []).expect("runs");
    assert!(changed > 0, "{statement}");
}

/// By rules 11.1, 11.2: a run leaves a signed, sound log.
#[test]
fn a_run_leaves_a_sound_and_signed_log() {
    let project = ran();
    project.run(&["run", "--once"]).ended(0);
    let said = project
        .run(&["receipts", "verify", "--against-store"])
        .ended(0);
    assert!(said.stdout.starts_with("sound: 6 receipts"), "{said:#?}");
    assert!(
        said.stdout.contains("checkpoints that agree: 2"),
        "{said:#?}"
    );
    assert!(
        said.stdout.contains("burned keys that agree: 2"),
        "{said:#?}"
    );
    let mode = std::fs::metadata(project.path(".operators/signing.key"));
    assert_eq!(mode.expect("a key").permissions().mode() & 0o777, 0o600);
    let json = project.run(&["receipts", "verify", "--json"]).ended(0);
    let told: Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!((&told["sound"], &told["size"]), (&true.into(), &6.into()));
}

/// By rule 11.5: what was tampered with is named, and the exit code says so.
#[test]
fn a_tampered_log_is_named_and_ends_with_five() {
    let project = ran();
    let id = project.receipts()[1].receipt_id.clone();
    by_hand(
        &project,
        &format!(
            "UPDATE receipt SET body = replace(body, 'ALLOW', 'BLOCK') WHERE receipt_id = '{id}'"
        ),
    );
    let said = project.run(&["receipts", "verify"]).ended(5);
    said.tells(&id);
    said.tells("was changed");
    let json = project.run(&["receipts", "verify", "--json"]).ended(5);
    let told: Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!(told["sound"], false);
}

/// By rule 11.5: a burned key is deleted and its action runs again. From then on keys and receipts
/// agree; the log alone tells, to both verifiers.
#[test]
fn an_action_that_ran_again_is_found_in_the_log_alone() {
    let project = ran();
    let against = ["receipts", "verify", "--against-store"];
    project.run(&against).ended(0);
    project.run(&["doctor"]).ended(0);
    let receipts = project.receipts();
    let burned = receipts.iter().find(|one| one.ok && one.fence.is_some());
    let burned = burned.expect("a burn").clone();
    let key = &burned.idempotency_key;
    by_hand(
        &project,
        &format!("DELETE FROM key WHERE idempotency_key = '{key}'"),
    );
    project.run(&against).ended(5).tells(&burned.receipt_id);
    let doctor = project.run(&["doctor"]).ended(1);
    assert!(
        doctor.stdout.contains("does not have it burned"),
        "{doctor:#?}"
    );

    project.run(&["run", "--once"]).ended(0);
    let again = project.receipts();
    let is_same = |one: &&operators::Receipt| one.idempotency_key == *key && one.fence.is_some();
    let again = again.iter().rfind(is_same).expect("it ran again");
    assert_ne!(again.receipt_id, burned.receipt_id);
    for verify in [&against[..], &["receipts", "verify"]] {
        let said = project.run(verify).ended(5);
        said.tells(&again.receipt_id);
        said.tells("its action ran again");
    }
    let doctor = project.run(&["doctor"]).ended(1);
    assert!(
        doctor.stdout.contains("its action ran again"),
        "{doctor:#?}"
    );
    let head = project.run(&["receipts", "head", "--with-log", "log.jsonl"]);
    project.write("head.txt", head.ended(0).stdout);
    let key = self::key(&project);
    python(&project, &["log", "log.jsonl", "head.txt", &key], 5);
}

/// By rule 11.5: what was not looked at is said.
#[test]
fn an_audit_that_stopped_says_what_it_looked_at() {
    let project = ran();
    let id = project.receipts()[1].receipt_id.clone();
    let edit = format!("UPDATE receipt SET body = body || ' ' WHERE receipt_id = '{id}'");
    by_hand(&project, &edit);
    let said = project.run(&["receipts", "verify"]).ended(5);
    said.tells("1 of 3 receipts were looked at, and the audit stopped");
    let json = project.run(&["receipts", "verify", "--json"]).ended(5);
    let told: Value = serde_json::from_str(&json.stdout).expect("JSON");
    let looked = (&told["size"], &told["head"], &told["stopped"]);
    assert_eq!(looked, (&1.into(), &3.into(), &true.into()));
}

/// By rule 11.3: without a key that is trusted nothing is found out, which is no fault of the log.
#[test]
fn a_checkpoint_without_a_trusted_key_is_no_fault_of_the_log() {
    let project = ran();
    let head = project.run(&["receipts", "head"]).ended(0);
    project.write("head.txt", head.stdout);
    std::fs::remove_file(project.path(".operators/signing.pub")).expect("there");
    let verify = ["receipts", "verify", "--head", "head.txt"];
    let said = project.run(&verify).ended(1);
    said.tells("no key is trusted here");
    let other = "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
    project
        .run(&[&verify[..], &["--key", other]].concat())
        .ended(5);
}

/// By rule 11.3: checkpoints that were deleted are missed where the key that signed them is.
#[test]
fn deleted_checkpoints_are_told_as_missing() {
    let project = ran();
    std::fs::remove_dir_all(project.path(".operators/checkpoints")).expect("there");
    let said = project.run(&["receipts", "verify"]).ended(0);
    said.tells("the checkpoints of this log are missing");
    let doctor = project.run(&["doctor"]).ended(0);
    let told = "the checkpoints of this log are missing";
    assert!(doctor.stdout.contains(told), "{doctor:#?}");
    assert!(!doctor.stdout.contains("the store holds"), "{doctor:#?}");
    // Without the keys nothing tells that anything was ever signed, and nothing was compared.
    for name in ["signing.key", "signing.pub"] {
        std::fs::remove_file(project.path(&format!(".operators/{name}"))).expect("there");
    }
    let doctor = project.run(&["doctor"]).ended(0);
    assert!(
        doctor.stdout.contains("nothing was compared"),
        "{doctor:#?}"
    );
    assert!(!doctor.stdout.contains("the store holds"), "{doctor:#?}");
}

/// By rule 11.5: an older copy of the store is refused before anything runs there.
#[test]
fn an_older_copy_of_the_store_runs_nothing() {
    let project = ran();
    let older = std::fs::read(project.path(STORE)).expect("reads");
    project.run(&["run", "--once"]);
    let effects = project.effects().len();
    std::fs::write(project.path(STORE), older).expect("writes");
    for file in ["store.db-wal", "store.db-shm"] {
        drop(std::fs::remove_file(project.path(".operators").join(file)));
    }
    let said = project.run(&["run", "--once"]).ended(1);
    said.tells("store rolled back");
    assert_eq!(project.effects().len(), effects);
    let said = project.run(&["receipts", "verify"]).ended(5);
    said.tells("speaks of 6");
}

/// By rules 11.3, 11.4: a proof convinces whoever has the key, with nothing else at hand.
#[test]
fn a_proof_is_checked_with_the_key_alone() {
    let project = ran();
    let first = project.run(&["receipts", "head"]).ended(0).stdout;
    project.run(&["run", "--once"]).ended(0);
    let id = project.receipts()[1].receipt_id.clone();
    let inclusion = project.run(&["receipts", "prove", &id]).ended(0).stdout;
    project.write("first.txt", &first);
    let consistency = project.run(&["receipts", "prove", "--from", "first.txt"]);
    let consistency = consistency.ended(0).stdout;
    let log = project.path("log.jsonl").display().to_string();
    let head = project
        .run(&["receipts", "head", "--with-log", &log])
        .ended(0);
    project.write("head.txt", &head.stdout);
    let nowhere = Project::empty();
    let key = key(&project);
    let other = "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
    for (name, proof) in [("inclusion", &inclusion), ("consistency", &consistency)] {
        nowhere.write(name, proof);
        let check = |key: &str| nowhere.run(&["receipts", "verify-proof", name, "--key", key]);
        assert!(check(&key).ended(0).stdout.starts_with("holds: "), "{name}");
        check(other).ended(5).tells("not signed");
        // Of a receipt another text, of a log another name.
        let forged = match name {
            "inclusion" => proof.replace("ALLOW", "BLOCK"),
            _ => proof.replace("/demo", "/omed"),
        };
        assert_ne!(&forged, proof);
        nowhere.write("forged", forged);
        let said = nowhere.run(&["receipts", "verify-proof", "forged", "--key", &key]);
        said.ended(5);
        python(&nowhere, &["proof", name, &key], 0);
        python(&nowhere, &["proof", name, other], 1);
        python(
            &nowhere,
            &["proof", "forged", &key],
            if name == "inclusion" { 5 } else { 1 },
        );
    }
    assert!(inclusion.contains(id.as_str()));
    python(&project, &["log", "log.jsonl", "head.txt", &key], 0);
    let log = project.read("log.jsonl");
    project.write("log.jsonl", log.replacen("ALLOW", "BLOCK", 1));
    python(&project, &["log", "log.jsonl", "head.txt", &key], 5);
}

fn python(project: &Project, args: &[&str], code: i32) {
    let script = top().join("docs/verify.py");
    let run = Command::new("python3")
        .arg(script)
        .args(args)
        .current_dir(project.dir())
        .output();
    match run {
        Ok(said) => assert_eq!(said.status.code(), Some(code), "{args:?}: {said:?}"),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "no python3: {error}");
            println!("skipped: no python3: {error}");
        }
    }
}

/// By rule 11.3: both keys are in the trail, and whoever trusts either can go on.
#[test]
fn a_replaced_key_is_in_the_trail_with_the_old_one() {
    let project = ran();
    let old = key(&project);
    let args = [
        "receipts",
        "rotate-key",
        "--because",
        "a year is over",
        "--as",
        "ada",
    ];
    let said = project.run(&args).ended(0);
    let new = key(&project);
    assert_ne!(old, new);
    assert!(
        said.stdout.contains(&old) && said.stdout.contains(&new),
        "{said:#?}"
    );
    let receipts = project.receipts();
    let change = receipts
        .iter()
        .find(|receipt| receipt.action.args.contains_key("new"));
    let change = change.expect("a receipt");
    assert_eq!(change.approver.as_deref(), Some("ada"));
    assert_eq!(change.action.args["old"], old.as_str());
    project.run(&["run", "--once"]).ended(0);
    for args in [
        &["receipts", "verify"][..],
        &["receipts", "verify", "--key", &old],
    ] {
        project.run(args).ended(0);
    }
    let head = project.run(&["receipts", "head"]).ended(0).stdout;
    project.write("head.txt", head);
    let args = ["receipts", "verify", "--head", "head.txt", "--key"];
    project.run(&[&args[..], &[&new]].concat()).ended(0);
    let said = project.run(&[&args[..], &[&old]].concat()).ended(5);
    said.tells("not signed by");
}

/// By rule 11.3: checkpoints go where the configuration says, and are believed from there.
#[test]
fn checkpoints_are_kept_outside_too() {
    let project = Project::example();
    let config = project.read("operators.toml");
    let outside = "[receipts.checkpoint]\nfile = \"outside.txt\"\n\
        command = [\"sh\", \"-c\", \"cat >> told.txt\"]\n";
    project.write("operators.toml", format!("{config}\n{outside}"));
    project.run(&["run", "--once"]).ended(0);
    let first = project.read("outside.txt");
    assert!(first.contains("\n3\n"), "{first}");
    assert_eq!(project.read("told.txt"), first);
    project
        .run(&["receipts", "verify", "--head", "outside.txt"])
        .ended(0);
    project.write("outside.txt", first.replace("\n3\n", "\n2\n"));
    let said = project.run(&["receipts", "verify", "--head", "outside.txt"]);
    said.ended(5).tells("not signed by");
    project.write("outside.txt", "nothing");
    let said = project.run(&["receipts", "verify", "--head", "outside.txt"]);
    said.ended(1).tells("is no checkpoint");
}
