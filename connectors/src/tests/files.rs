//! The file connector: one line per effect, and an honest answer to "did it happen?".

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use operators_kernel::{Call, ProbeOutcome};

use super::{applied, build_in, call, connector, invoke, not_applied};
use crate::Registry;

const CONFIG: &str = "[connectors.shop]\nkind = \"file\"\npath = \"effects.jsonl\"\n\
    [connectors.shop.tools.note]\n[connectors.shop.tools.list]\neffect = \"read\"\n";

fn project() -> (TempDir, Registry) {
    let folder = TempDir::new().expect("a folder");
    let registry = build_in(CONFIG, folder.path()).expect("config");
    (folder, registry)
}

fn noted(key: &str) -> Call {
    let mut call = call("note", json!({"text": "a\nb"}));
    key.clone_into(&mut call.downstream_key);
    call
}

async fn probe(registry: &Registry, call: &Call) -> ProbeOutcome {
    connector(registry, "note").probe(call).await
}

fn lines(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("effects.jsonl")).expect("the file");
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn an_effect_is_one_line_with_its_keys() {
    let (folder, registry) = project();
    let outcome = applied(invoke(&registry, &noted("dk-1")).await);
    let result = json!({"appended": true, "file": "effects.jsonl"});
    assert_eq!(outcome, (result.clone(), Some("dk-1".to_owned())));
    applied(invoke(&registry, &noted("dk-2")).await);
    let lines = lines(folder.path());
    assert_eq!(lines.len(), 2);
    let line: Value = serde_json::from_str(&lines[0]).expect("JSON");
    assert_eq!(
        line,
        json!({"downstream_key": "dk-1", "tenant": "acme", "idempotency_key": "order:SO-1:hold",
            "entity_key": "order:SO-1", "tool": "note", "args": {"text": "a\nb"}})
    );
    let metadata = fs::metadata(folder.path().join("effects.jsonl")).expect("metadata");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);

    match probe(&registry, &noted("dk-2")).await {
        ProbeOutcome::Applied(effect) => {
            assert_eq!(
                (effect.result.into_inner(), effect.effect_id),
                (result, Some("dk-2".to_owned()))
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        probe(&registry, &noted("dk-3")).await,
        ProbeOutcome::NotApplied
    );
}

#[tokio::test]
async fn a_file_that_does_not_exist_holds_no_effect() {
    let (_folder, registry) = project();
    assert_eq!(
        probe(&registry, &noted("dk-1")).await,
        ProbeOutcome::NotApplied
    );
    let read = applied(invoke(&registry, &call("list", json!({}))).await);
    assert_eq!(read, (json!([]), None));
}

#[tokio::test]
async fn a_torn_line_is_no_effect_now_or_later() {
    let (folder, registry) = project();
    applied(invoke(&registry, &noted("dk-1")).await);
    let path = folder.path().join("effects.jsonl");
    // Cut at every length, the last new-line alone included: a crash, or a full disk.
    let whole = fs::read(&path).expect("the file");
    for length in 1..whole.len() {
        fs::write(&path, &whole[..length]).expect("torn");
        assert_eq!(
            probe(&registry, &noted("dk-1")).await,
            ProbeOutcome::NotApplied
        );
        applied(invoke(&registry, &noted("dk-2")).await);
        assert_eq!(
            probe(&registry, &noted("dk-1")).await,
            ProbeOutcome::NotApplied
        );
        assert!(matches!(
            probe(&registry, &noted("dk-2")).await,
            ProbeOutcome::Applied(_)
        ));
        assert_eq!(lines(folder.path()).len(), 2);
    }
}

#[tokio::test]
async fn missing_folders_are_made_for_the_owner_only() {
    let folder = TempDir::new().expect("a folder");
    let config = CONFIG.replace("effects.jsonl", "a/b/effects.jsonl");
    let registry = build_in(&config, folder.path()).expect("config");
    applied(invoke(&registry, &noted("dk-1")).await);
    for made in ["a", "a/b"] {
        let metadata = fs::metadata(folder.path().join(made)).expect("made");
        assert_eq!(metadata.permissions().mode() & 0o777, 0o700, "{made}");
    }
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_is_a_definite_failure() {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("a"), "a file").expect("written");
    let config = CONFIG.replace("effects.jsonl", "a/effects.jsonl");
    let registry = build_in(&config, folder.path()).expect("config");
    let message = not_applied(invoke(&registry, &noted("dk-1")).await);
    assert!(
        message.starts_with("file `a/effects.jsonl`: cannot be opened: "),
        "{message}"
    );
    assert!(matches!(
        probe(&registry, &noted("dk-1")).await,
        ProbeOutcome::Unknown(_)
    ));
}

#[tokio::test]
async fn only_a_regular_file_of_that_very_name_is_taken() {
    let (folder, registry) = project();
    let path = folder.path().join("effects.jsonl");
    let elsewhere = folder.path().join("elsewhere");

    for target in [&elsewhere, &folder.path().join("missing")] {
        fs::write(&elsewhere, "").expect("written");
        symlink(target, &path).expect("linked");
        let message = not_applied(invoke(&registry, &noted("dk-1")).await);
        assert!(
            message.ends_with("is a symbolic link; name the file itself"),
            "{message}"
        );
        assert!(matches!(
            probe(&registry, &noted("dk-1")).await,
            ProbeOutcome::Unknown(_)
        ));
        not_applied(invoke(&registry, &call("list", json!({}))).await);
        assert_eq!(fs::read(&elsewhere).expect("untouched"), b"");
        fs::remove_file(&path).expect("unlinked");
    }

    fs::create_dir(&path).expect("a folder");
    not_applied(invoke(&registry, &noted("dk-1")).await);
    assert!(matches!(
        probe(&registry, &noted("dk-1")).await,
        ProbeOutcome::Unknown(_)
    ));
    fs::remove_dir(&path).expect("removed");

    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let message = not_applied(invoke(&registry, &noted("dk-1")).await);
    assert!(message.ends_with("is not a regular file"), "{message}");
}

#[tokio::test]
async fn a_disk_that_takes_nothing_is_a_definite_failure() {
    let (folder, registry) = project();
    let path = folder.path().join("effects.jsonl");
    fs::write(&path, "").expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).expect("read-only");
    // A superuser may write anyway; then there is nothing to see.
    if fs::OpenOptions::new().append(true).open(&path).is_err() {
        not_applied(invoke(&registry, &noted("dk-1")).await);
        assert_eq!(
            probe(&registry, &noted("dk-1")).await,
            ProbeOutcome::NotApplied
        );
    }
}

#[tokio::test]
async fn what_is_not_ours_in_the_file_is_no_effect() {
    let (folder, registry) = project();
    let path = folder.path().join("effects.jsonl");
    let foreign = "\n[]\n{\"downstream_key\":\"dk-1\"}\nnot json dk-1\n\u{0}\n";
    fs::write(path, foreign).expect("written");
    assert_eq!(
        probe(&registry, &noted("dk-1")).await,
        ProbeOutcome::NotApplied
    );
    let read = applied(invoke(&registry, &call("list", json!({}))).await);
    assert_eq!(read.0, json!([]));
}

#[tokio::test]
async fn a_read_answers_with_the_entitys_last_lines() {
    let (folder, registry) = project();
    let mut other = noted("other");
    other.tenant = operators_kernel::TenantId::parse("globex").expect("tenant");
    applied(invoke(&registry, &other).await);
    let mut elsewhere = noted("elsewhere");
    elsewhere.entity_key = operators_kernel::EntityKey::parse("order:SO-2").expect("entity");
    applied(invoke(&registry, &elsewhere).await);
    applied(invoke(&registry, &noted("dk")).await);
    let (result, _) = applied(invoke(&registry, &call("list", json!({}))).await);
    let found = result.as_array().expect("an array");
    assert_eq!(
        found.len(),
        1,
        "neither another tenant's nor another entity's"
    );
    assert_eq!(found[0]["downstream_key"], "dk");

    let path = folder.path().join("effects.jsonl");
    let seed = fs::read_to_string(&path).expect("the file");
    let ours = seed.lines().next_back().expect("a line");
    let mut text = String::new();
    for nth in 0..1_003 {
        text.push_str(&ours.replace("\"dk\"", &format!("\"dk-{nth}\"")));
        text.push('\n');
    }
    fs::write(path, seed + &text).expect("written");
    let (result, _) = applied(invoke(&registry, &call("list", json!({}))).await);
    let found = result.as_array().expect("an array");
    assert_eq!(found.len(), 1_000);
    assert_eq!(found[0]["downstream_key"], "dk-3");
    assert_eq!(found[999]["downstream_key"], "dk-1002");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once_leave_whole_lines() {
    let (folder, registry) = project();
    let registry = Arc::new(registry);
    let mut tasks = tokio::task::JoinSet::new();
    for nth in 0..64 {
        let registry = Arc::clone(&registry);
        tasks.spawn(async move { invoke(&registry, &noted(&format!("dk-{nth}"))).await });
    }
    while let Some(outcome) = tasks.join_next().await {
        applied(outcome.expect("no panic"));
    }
    let lines = lines(folder.path());
    assert_eq!(lines.len(), 64);
    for line in lines {
        assert!(serde_json::from_str::<Value>(&line).is_ok(), "{line}");
    }
}

/// An abandoned call must not write its line after a probe has said that it is not there.
#[tokio::test]
async fn nothing_lands_after_the_deadline() {
    let (folder, registry) = project();
    let path = folder.path().join("effects.jsonl");
    let holder = fs::File::create(&path).expect("the file");
    holder.lock().expect("locked by somebody else");

    // Gave up by itself: nothing was written.
    let mut call = noted("dk-1");
    call.deadline = Duration::from_millis(40);
    let message = not_applied(invoke(&registry, &call).await);
    assert!(
        message.ends_with("another program holds its lock"),
        "{message}"
    );

    // Dropped by its caller long before its own deadline.
    call.deadline = Duration::from_mins(1);
    let dropped = tokio::time::timeout(Duration::from_millis(40), invoke(&registry, &call)).await;
    assert!(dropped.is_err());

    // A look cannot be had while somebody may be writing.
    call.deadline = Duration::from_millis(40);
    assert!(matches!(
        probe(&registry, &call).await,
        ProbeOutcome::Unknown(_)
    ));

    drop(holder);
    tokio::time::sleep(Duration::from_millis(40)).await;
    assert_eq!(
        probe(&registry, &noted("dk-1")).await,
        ProbeOutcome::NotApplied
    );
    assert_eq!(fs::read(&path).expect("the file"), b"");
}

#[tokio::test]
async fn a_deadline_that_is_over_writes_nothing() {
    let (folder, registry) = project();
    let mut call = noted("dk-1");
    call.deadline = Duration::ZERO;
    not_applied(invoke(&registry, &call).await);
    assert_eq!(lines(folder.path()), Vec::<String>::new());
}

#[tokio::test]
async fn an_unknown_tool_is_a_definite_failure() {
    let (_folder, registry) = project();
    let runner = connector(&registry, "note");
    let message = not_applied(runner.invoke(&call("other", json!({}))).await);
    assert_eq!(message, "file `effects.jsonl`: no tool `other`");
}
