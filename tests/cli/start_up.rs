//! What a run needs of its machine: no home, no network, no open file modes.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::support::{Project, finish, hold, operators_after, programs};
use crate::vendor::{Answer, Vendor};

#[test]
fn under_an_open_umask_the_store_is_its_owners_alone() {
    // FAULTS S28
    let project = Project::empty();
    finish(&mut operators_after("umask 000", project.dir(), &["init"])).ended(0);
    finish(&mut operators_after(
        "umask 000",
        project.dir(),
        &["run", "--once"],
    ))
    .ended(0);
    let other = Project::with_file();
    finish(&mut operators_after(
        "umask 000",
        other.dir(),
        &["receipts", "tail"],
    ))
    .ended(0);
    other.write("plan.json", json!([hold("SO-1")]).to_string());
    let run = ["run", "--once", "--plan", "plan.json"];
    finish(&mut operators_after("umask 000", other.dir(), &run)).ended(0);
    for project in [project, other] {
        let store = project.path(".operators");
        let mode =
            |path: &std::path::Path| path.metadata().expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&store), 0o700, "{}", store.display());
        for entry in std::fs::read_dir(&store).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path
                .extension()
                .is_none_or(|extension| extension != "gitignore")
            {
                let open = mode(&path) & 0o077;
                let ours = path.ends_with(".gitignore");
                assert!(open == 0 || ours, "{} is {:o}", path.display(), mode(&path));
            }
        }
        assert_eq!(mode(&project.path(".operators/store.db")), 0o600);
    }
}

#[test]
fn the_files_a_running_store_keeps_are_its_owners_alone_too() {
    let (vendor, gate) = Vendor::gated();
    let project = Project::with(&vendor.config());
    project.write("plan.json", json!([hold("SO-1")]).to_string());
    let run = ["run", "--once", "--plan", "plan.json"];
    let mut command = operators_after("umask 000", project.dir(), &run);
    let running = crate::support::Running::start(&mut command, None);
    vendor.wait_for(1);
    for entry in std::fs::read_dir(project.path(".operators")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let mode = path.metadata().expect("there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", path.display());
    }
    gate.open();
    running.end().ended(0);
}

#[test]
fn an_empty_environment_is_enough() {
    let project = Project::example();
    for args in [
        &["run", "--once"][..],
        &["receipts", "list"],
        &["doctor"],
        &["doubts", "list"],
    ] {
        let mut bare = std::process::Command::new(&programs().operators);
        finish(bare.args(args).current_dir(project.dir()).env_clear()).ended(0);
    }
    assert_eq!(project.effects().len(), 2);
}

#[test]
fn a_home_that_cannot_be_used_is_not_missed() {
    let project = Project::example();
    let mut command = project.command(&["run", "--once"]);
    command
        .env("HOME", "/nonexistent")
        .env("XDG_CONFIG_HOME", "/nonexistent");
    command.env("TMPDIR", "/nonexistent");
    finish(&mut command).ended(0);
}

#[test]
fn nobody_is_called_before_an_action_needs_it() {
    let vendor = Vendor::always(Answer::well());
    let file =
        "[connectors.log]\nkind = 'file'\npath = 'shop.jsonl'\n[connectors.log.tools.note]\n";
    let nowhere = "[connectors.nowhere]\nkind = 'http'\nbase_url = 'https://nowhere.invalid'\n\
                   [connectors.nowhere.tools.call]\npath = '/'\n";
    let project = Project::with(&format!("{}{file}{nowhere}", vendor.config()));
    let mut note = hold("SO-1");
    note["connector"] = json!("log");
    note["tool"] = json!("note");
    project.plan(&json!([note])).ended(0);
    project.run(&["doctor"]).ended(0);
    assert_eq!(vendor.requests().len(), 0);
    assert_eq!(project.effects().len(), 1);
}

#[test]
fn a_proxy_in_the_environment_is_not_obeyed() {
    // FAULTS S28: the environment must not redirect what carries credentials.
    let (vendor, thief) = (
        Vendor::always(Answer::well()),
        Vendor::always(Answer::well()),
    );
    let project = Project::with(&vendor.config());
    project.write("plan.json", json!([hold("SO-1")]).to_string());
    let mut command = project.command(&["run", "--once", "--plan", "plan.json"]);
    let config = thief.config();
    let url = config
        .split('\'')
        .find(|part| part.starts_with("http:"))
        .expect("a url");
    for name in [
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
        "all_proxy",
        "HTTPS_PROXY",
    ] {
        command.env(name, url);
    }
    finish(&mut command).ended(0);
    assert_eq!(thief.requests().len(), 0);
    assert_eq!(vendor.requests().len(), 1);
}

#[test]
fn a_memory_store_says_that_it_forgets() {
    let project = Project::with_file();
    project.write(
        "operators.toml",
        project.read("operators.toml") + "[store]\nurl = 'memory:'\n",
    );
    let plan = json!([hold("SO-1"), hold("SO-1")]);
    let said = project.plan(&plan).ended(0);
    said.tells("warning: the store is `memory:`");
    assert_eq!(said.decisions(), ["ALLOW", "DEDUP"]);
    assert_eq!(project.plan(&plan).ended(0).decisions()[0], "ALLOW");
    assert!(!project.path(".operators").exists());
}

#[test]
fn a_file_is_no_project_and_nobody_is_told_to_make_one_of_it() {
    let project = Project::with_file();
    let args = ["-C", "operators.toml", "run", "--once"];
    let said = project.run(&args).ended(1);
    said.tells("`operators.toml` is a file, and a project is a folder");
    assert!(!said.stderr.contains("operators init"), "{said:#?}");
}

/// Whoever may not look into `.operators` used to hear that the store is not there yet: no receipts,
/// no doubts, a sound set-up, a sound log. A link that leads to itself fails as a folder does that
/// belongs to somebody else, whoever runs the tests.
#[test]
fn a_store_that_cannot_be_looked_at_is_not_taken_for_one_that_is_not_there() {
    let looks: [&[&str]; 9] = [
        &["receipts", "list"],
        &["receipts", "export"],
        &["receipts", "verify"],
        &["doubts", "list"],
        &["approvals", "list"],
        &["alerts", "list"],
        &["keys", "show", "SO-1:hold"],
        &["run", "--once", "--dry-run", "--plan", "plan.json"],
        &["run", "--once", "--plan", "plan.json"],
    ];
    for lost in [".operators/store.db", ".operators"] {
        let project = Project::with_file();
        project.write("plan.json", json!([hold("SO-1")]).to_string());
        let run = ["run", "--once", "--plan", "plan.json"];
        project.run(&run).ended(0);
        std::fs::rename(project.path(lost), project.path("elsewhere")).expect("ours");
        std::os::unix::fs::symlink(project.path(lost), project.path(lost)).expect("ours");
        for args in looks {
            let said = project.run(args).ended(1);
            assert_eq!(said.stdout, "", "{said:#?}");
            assert!(!said.stderr.contains("not there yet"), "{said:#?}");
        }
        let said = project.run(&["doctor"]).ended(1);
        assert!(
            said.stdout.contains("whether it is there is not known"),
            "{said:#?}"
        );
        assert_eq!(project.effects().len(), 1);
    }
}

/// Rule 11.5: checkpoints that cannot be looked at used to count as none, so an older store passed.
#[test]
fn checkpoints_that_cannot_be_looked_at_are_not_taken_for_none() {
    let project = Project::with_file();
    let plan = json!([hold("SO-1")]);
    project.plan(&plan).ended(0);
    let kept = project.path(".operators/checkpoints");
    std::fs::remove_dir_all(&kept).expect("ours");
    std::os::unix::fs::symlink(&kept, &kept).expect("ours");
    let said = project.run(&["receipts", "verify"]).ended(1);
    said.tells("cannot be looked at");
    project.plan(&plan).ended(1).tells("cannot be looked at");
}
