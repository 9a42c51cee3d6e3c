//! A tenant or a store that was mistyped: said before what it does not know is done again.

use serde_json::{Value, json};

use crate::every_store::on_every_store;
use crate::support::{Project, Said, hold};

const NEW_TENANT: &str = "is new to this store, which knows others";
const ELSEWHERE: &str = "another store of this project does";
const EMPTY: &str = "holds nothing yet";

fn plan() -> Value {
    json!([hold("SO-1")])
}

/// A run or a forecast of the plan, for this tenant.
fn asked(project: &Project, tenant: &str, is_dry: bool) -> Said {
    let mut args = vec!["run", "--once", "--json", "--plan", "-", "--tenant", tenant];
    args.extend(is_dry.then_some("--dry-run"));
    project.run_with_stdin(&args, plan().to_string()).ended(0)
}

/// Whether it says one of these, and none of the others.
#[track_caller]
fn says(said: &Said, words: Option<&str>) {
    for known in [NEW_TENANT, ELSEWHERE, EMPTY] {
        let is_said = said.stderr.contains(known);
        assert_eq!(is_said, words == Some(known), "`{known}`: {said:#?}");
    }
}

fn use_store(project: &Project, url: &str) {
    let config = project.read("operators.toml");
    let config = config.split("[store]").next().expect("a start").to_owned();
    project.write(
        "operators.toml",
        format!("{config}[store]\nurl = '{url}'\n"),
    );
}

/// Rule 8.7: `--tenant acne` repeated what had been done for `acme`, without a word.
#[test]
fn a_tenant_that_the_store_never_saw_is_warned_about() {
    on_every_store(|project, store| {
        let first = asked(project, "acme", false);
        says(&first, Some(EMPTY));
        assert!(!first.stderr.contains("warning"), "{store}: {first:#?}");
        says(&asked(project, "acme", true), None);
        for is_dry in [true, false] {
            let said = asked(project, "acne", is_dry);
            says(&said, Some(NEW_TENANT));
            said.tells("warning: tenant `acne`");
        }
        assert_eq!(project.effects().len(), 2, "{store}: done again, and said");
        for tenant in ["acme", "acne"] {
            says(&asked(project, tenant, false), None);
        }
        let doctor = project.run(&["doctor", "--tenant", "acne2"]).ended(0);
        assert!(doctor.stdout.contains(NEW_TENANT), "{store}: {doctor:#?}");
        let doctor = project.run(&["doctor"]).ended(0);
        assert!(!doctor.stdout.contains(NEW_TENANT), "{store}: {doctor:#?}");
    });
}

/// Rule 8.7: a path that was mistyped is a new store.
#[test]
fn a_store_that_the_project_never_used_is_warned_about() {
    let project = Project::with_file();
    for is_dry in [true, false] {
        let said = asked(&project, "acme", is_dry);
        says(&said, (!is_dry).then_some(EMPTY));
    }
    // Not there, then empty.
    use_store(&project, "sqlite:.operators/stroe.db");
    says(&asked(&project, "acme", true), Some(ELSEWHERE));
    says(&asked(&project, "acme", false), Some(ELSEWHERE));
    says(&asked(&project, "acme", false), None);
    // There, and others'.
    let other = Project::with_file();
    asked(&other, "globex", false);
    let theirs = other.path(".operators/store.db");
    use_store(&project, &format!("sqlite:{}", theirs.display()));
    says(&asked(&project, "acme", true), Some(ELSEWHERE));
    // The first one knows.
    use_store(&project, "sqlite:.operators/store.db");
    let said = asked(&project, "acme", false);
    says(&said, None);
    assert_eq!(said.decisions(), ["DEDUP"]);
}

/// Rules 8.7, 10.1: whoever rehearsed under a name means that name.
#[test]
fn a_tenant_that_was_rehearsed_is_no_stranger() {
    let project = Project::with_file();
    project.edit("operators.toml", "'file'", "'file'\nmode = 'stub'");
    says(&asked(&project, "acme", false), Some(EMPTY));
    project.edit("operators.toml", "'file'\nmode = 'stub'", "'file'");
    says(&asked(&project, "acme", false), None);
    assert_eq!(project.effects().len(), 1);
}

/// Rule 8.7: a pause of a tenant that nobody has looked as if everything stood still.
#[test]
fn a_pause_of_an_unknown_tenant_says_that_it_stops_nobody() {
    let project = Project::with_file();
    asked(&project, "acme", false);
    let pause = |tenant| project.run(&["pause", "--because", "now", "--tenant", tenant]);
    pause("acne").ended(0).tells("stops nothing of theirs");
    let said = pause("acme").ended(0);
    assert!(!said.stderr.contains("is new to"), "{said:#?}");
}

/// Rule 8.7: nothing of a mistyped name is no news of the one that was meant, whoever looks.
#[test]
fn a_look_that_finds_nothing_of_a_tenant_says_that_it_is_new() {
    on_every_store(|project, store| {
        asked(project, "acme", false);
        for look in [
            "doubts list",
            "alerts list",
            "approvals list",
            "receipts list",
            "receipts verify",
            "status",
        ] {
            let look: Vec<&str> = look.split(' ').collect();
            let of = |tenant| {
                project
                    .run(&[&look[..], &["--tenant", tenant]].concat())
                    .ended(0)
            };
            assert!(of("acne").stderr.contains(NEW_TENANT), "{store}: {look:?}");
            assert!(!of("acme").stderr.contains(NEW_TENANT), "{store}: {look:?}");
        }
    });
}
