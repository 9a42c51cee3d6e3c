//! A store that lost what was signed of it is refused before anything runs there, whatever was
//! written to it since.

use std::path::Path;

use operators_tests::postgres::{self, Database};
use serde_json::{Value, json};

use crate::log::by_hand;
use crate::support::{Project, hold};

const OWN: &str = ".operators";
const STORE: &str = ".operators/store.db";

fn holds(orders: &[&str]) -> Value {
    orders.iter().map(|order| hold(order)).collect()
}

/// Another project of the same tenant on the store of this one, with a shop of its own.
fn neighbour(project: &Project) -> Project {
    project_on(&format!("sqlite:{}", project.path(STORE).display()))
}

/// A project whose store is there.
fn project_on(url: &str) -> Project {
    let project = Project::with_file();
    let config = project.read("operators.toml");
    let store = format!("[store]\nurl = '{url}'\n");
    project.write("operators.toml", format!("{config}\n{store}"));
    project
}

/// Puts a file or a folder back as it was.
fn restore(kept: &Path, place: &Path) {
    for beside in ["store.db-wal", "store.db-shm"] {
        drop(std::fs::remove_file(place.with_file_name(beside)));
    }
    drop(std::fs::remove_dir_all(place));
    let done = std::process::Command::new("cp")
        .arg("-a")
        .args([kept, place])
        .status();
    assert!(done.expect("cp starts").success());
}

/// Doctor, dry run and run refuse with those words, and nothing happens.
#[track_caller]
fn all_refuse(project: &Project, plan: &Value, words: &str) {
    let effects = project.effects().len();
    let doctor = project.run(&["doctor"]).ended(1);
    assert!(doctor.stdout.contains(words), "{doctor:#?}");
    let args = ["run", "--once", "--json", "--dry-run", "--plan", "-"];
    let dry = project.run_with_stdin(&args, plan.to_string()).ended(1);
    dry.tells(words);
    assert_eq!(dry.stdout, "");
    let run = project.plan(plan).ended(1);
    run.tells(words);
    run.tells("nothing was run");
    assert_eq!(project.effects().len(), effects, "nothing is done again");
}

/// Rules 8.6, 11.5: the number of receipts alone tells nothing. Six were signed, an older copy with
/// three was put back, and another project wrote there: `doctor` said that all is held that was
/// signed, and the run repeated three burned actions.
#[test]
fn a_store_that_grew_again_is_refused() {
    let orders = ["A", "B", "C", "D"];
    for added in 2..=4 {
        let project = Project::with_file();
        let kept = project.path("older.db");
        project.plan(&holds(&["SO-1", "SO-2", "SO-3"])).ended(0);
        restore(&project.path(STORE), &kept);
        let late = holds(&["SO-4", "SO-5", "SO-6"]);
        project.plan(&late).ended(0);
        assert_eq!(project.effects().len(), 6);
        std::fs::remove_file(project.path(STORE)).expect("ours");
        restore(&kept, &project.path(STORE));
        let other = neighbour(&project);
        other.plan(&holds(&orders[..added])).ended(0);
        all_refuse(&project, &late, "store rolled back");
        project.run(&["receipts", "verify"]).ended(5);
        // What the other signed is all there.
        other.run(&["doctor"]).ended(0);
        other.plan(&holds(&orders[..added])).ended(0);
    }
}

/// Rules 8.6, 11.5: what another project appended behind what was signed is no fault.
#[test]
fn a_store_that_others_write_to_is_not_refused() {
    let project = Project::with_file();
    let other = neighbour(&project);
    for round in ["1", "2", "3"] {
        project.plan(&holds(&[round])).ended(0);
        other.plan(&holds(&[round, "A"])).ended(0);
    }
    project.run(&["doctor"]).ended(0);
    project.run(&["receipts", "verify"]).ended(0);
}

/// Rules 8.6, 11.5: the newest receipts are gone and the log's head is still about them. `verify` said
/// so, and the run went on.
#[test]
fn receipts_that_are_gone_from_the_end_are_missed_by_all() {
    for is_signed in [true, false] {
        let project = Project::with_file();
        let plan = holds(&["SO-1", "SO-2"]);
        project.plan(&plan).ended(0);
        if !is_signed {
            neighbour(&project).plan(&holds(&["A", "B"])).ended(0);
        }
        let newest = "DELETE FROM receipt WHERE sequence = (SELECT max(sequence) FROM receipt)";
        by_hand(&project, newest);
        all_refuse(&project, &plan, "is gone");
        project.run(&["receipts", "verify"]).ended(5);
    }
}

/// Rules 8.6, 11.5: where the edge of what was signed is lost, the whole log is read instead.
#[test]
fn without_its_edge_the_whole_log_is_compared() {
    let project = Project::with_file();
    let plan = holds(&["SO-1", "SO-2"]);
    project.plan(&plan).ended(0);
    let older = project.path("older.db");
    restore(&project.path(STORE), &older);
    let lose_the_edge = || {
        let folder = std::fs::read_dir(project.path(".operators/checkpoints"));
        let files = folder
            .expect("a folder")
            .map(|one| one.expect("one").path());
        let edges = files.filter(|file| file.extension().is_some_and(|it| it == "edge"));
        let lost = edges.map(|file| std::fs::remove_file(file).expect("ours"));
        assert_eq!(lost.count(), 1);
    };
    lose_the_edge();
    project.plan(&plan).ended(0);
    lose_the_edge();
    std::fs::remove_file(project.path(STORE)).expect("ours");
    restore(&older, &project.path(STORE));
    neighbour(&project).plan(&holds(&["A", "B", "C"])).ended(0);
    all_refuse(&project, &plan, "store rolled back");
}

/// Rules 8.6, 11.5: the project's own checkpoints went back together with the store they lie beside;
/// the outside place remembers.
#[test]
fn the_outside_checkpoint_is_compared_too() {
    let project = Project::with_file();
    let config = project.read("operators.toml");
    let outside = "[receipts.checkpoint]\nfile = 'outside.txt'\n";
    project.write("operators.toml", format!("{config}\n{outside}"));
    let plan = holds(&["SO-1", "SO-2"]);
    project.plan(&plan).ended(0);
    let older = project.path("older");
    restore(&project.path(OWN), &older);
    let late = holds(&["SO-3", "SO-4"]);
    project.plan(&late).ended(0);
    let first = project.read("outside.txt");
    restore(&older, &project.path(OWN));
    all_refuse(&project, &late, "store rolled back");
    // Grown again, by others who sign for themselves.
    neighbour(&project).plan(&holds(&["A", "B", "C"])).ended(0);
    all_refuse(&project, &late, "store rolled back");
    project.write("outside.txt", "nothing");
    project.plan(&late).ended(1).tells("is no checkpoint");
    // A checkpoint that this project did not sign proves nothing, and that is said.
    let strange = neighbour(&project);
    strange.run(&["receipts", "head"]).ended(0);
    let head = strange.run(&["receipts", "head"]).ended(0).stdout;
    project.write("outside.txt", head);
    let said = project.plan(&plan).ended(0);
    said.tells("no key of this project signed");
    assert_ne!(project.read("outside.txt"), first);
}

/// A project that moves to another store has another log there: the outside checkpoint of the first
/// one says nothing about it.
#[test]
fn an_outside_checkpoint_of_another_store_refuses_nothing() {
    let project = Project::with_file();
    let config = project.read("operators.toml");
    let outside = "[receipts.checkpoint]\nfile = 'outside.txt'\n";
    let on = |store: &str| {
        let store = format!("[store]\nurl = 'sqlite:.operators/{store}.db'\n");
        project.write("operators.toml", format!("{config}\n{outside}\n{store}"));
    };
    on("first");
    project.plan(&holds(&["SO-1", "SO-2"])).ended(0);
    on("second");
    project.plan(&json!([hold("SO-3")])).ended(0);
    on("first");
    project.plan(&holds(&["SO-1", "SO-2"])).ended(0);
    project.run(&["doctor"]).ended(0);
}

/// A database on the shared server, and what runs SQL there.
fn database() -> Option<(Database, impl Fn(&str, &str))> {
    let server = postgres::url()?;
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let database = runtime.block_on(Database::fresh(server));
    let by_hand = move |url: &str, sql: &str| {
        runtime.block_on(postgres::run(url, sql));
    };
    Some((database, by_hand))
}

/// Rules 8.6, 11.5: the same on Postgres, where an older copy took the store's place.
#[test]
fn a_postgres_store_that_grew_again_is_refused() {
    let Some((database, by_hand)) = database() else {
        return;
    };
    let (server, url) = (postgres::url().expect("a server"), database.url());
    let place = url.split('?').next().expect("a place");
    let (_, name) = place.rsplit_once('/').expect("a database");
    let project = project_on(&url);
    project.plan(&holds(&["SO-1", "SO-2", "SO-3"])).ended(0);
    by_hand(
        server,
        &format!("CREATE DATABASE {name}_older TEMPLATE {name}"),
    );
    let late = holds(&["SO-4", "SO-5", "SO-6"]);
    project.plan(&late).ended(0);
    by_hand(server, &format!("DROP DATABASE {name} WITH (FORCE)"));
    by_hand(
        server,
        &format!("ALTER DATABASE {name}_older RENAME TO {name}"),
    );
    all_refuse(&project, &late, "store rolled back");
    let other = project_on(&url);
    other.plan(&holds(&["A", "B", "C", "D"])).ended(0);
    all_refuse(&project, &late, "store rolled back");
    project.run(&["receipts", "verify"]).ended(5);
    // What the other signed is all there.
    other.run(&["doctor"]).ended(0);
    other.plan(&holds(&["A", "B", "C", "D"])).ended(0);
}

/// Rules 8.6, 11.5: the same on Postgres; with the receipt's leaf, and with its leaf alone.
#[test]
fn receipts_that_are_gone_from_the_end_of_a_postgres_log_are_missed_by_all() {
    let newest = |table: &str, by: &str| {
        format!(
            "DELETE FROM operators.{table} WHERE {by} = (SELECT max({by}) FROM operators.{table})"
        )
    };
    let (receipt, leaf) = (newest("receipt", "sequence"), newest("leaf", "position"));
    for deeds in [vec![&receipt], vec![&receipt, &leaf], vec![&leaf]] {
        for is_signed in [true, false] {
            let Some((database, by_hand)) = database() else {
                return;
            };
            let url = database.url();
            let project = project_on(&url);
            let plan = holds(&["SO-1", "SO-2"]);
            project.plan(&plan).ended(0);
            if !is_signed {
                project_on(&url).plan(&holds(&["A", "B"])).ended(0);
            }
            for deed in &deeds {
                by_hand(
                    &url,
                    &format!("SET session_replication_role = replica; {deed}"),
                );
            }
            all_refuse(&project, &plan, "is gone");
            project.run(&["receipts", "verify"]).ended(5);
        }
    }
}
