//! A newcomer's first minutes: `init`, two runs, and what README says about them.

use std::collections::BTreeSet;

use operators::{ActionResult, Disposition};
use serde_json::{Value, json};

use crate::support::{Project, finish, operators, operators_after, programs, top, unread};

fn decision_column(stdout: &str) -> Vec<&str> {
    let rows = stdout
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    rows.map(|row| row.split_whitespace().nth(1).expect("a decision"))
        .collect()
}

#[test]
fn init_in_an_empty_folder_makes_a_project_that_runs_and_the_second_run_is_only_dedup() {
    let project = Project::empty();
    let wrote = project.run(&["init"]).ended(0);
    for file in [
        "operators.toml",
        "policies/ship-risk.toml",
        "plans/ship-risk.json",
    ] {
        assert!(wrote.stdout.contains(file), "{wrote:#?}");
        assert!(project.path(file).is_file(), "{file}");
    }
    wrote.tells("operators run --once");

    let first = project.run(&["run", "--once"]).ended(0);
    assert_eq!(decision_column(&first.stdout), ["ALLOW", "ALLOW", "DEDUP"]);
    first.tells("3 actions: 2 applied, 1 deduplicated");
    first.tells("operators receipts list");

    // rule 3.1: a burned key is DEDUP from then on, and nothing reaches the connector.
    for _ in 0..3 {
        let again = project.run(&["run", "--once"]).ended(0);
        assert_eq!(decision_column(&again.stdout), ["DEDUP", "DEDUP", "DEDUP"]);
        again.tells("3 actions: 3 deduplicated");
    }
    let effects = project.effects();
    let keys: BTreeSet<&str> = effects
        .iter()
        .map(|line| line["idempotency_key"].as_str().expect("a key"))
        .collect();
    assert_eq!(effects.len(), 2, "{effects:#?}");
    assert_eq!(keys.len(), 2, "one line per key: {effects:#?}");
}

#[test]
fn init_again_changes_nothing() {
    let project = Project::example();
    project.edit("operators.toml", "demo", "mine");
    let before = project.read("operators.toml");
    let again = project.run(&["init"]).ended(0);
    again.tells("nothing was changed");
    assert_eq!(again.stdout, "");
    assert_eq!(project.read("operators.toml"), before);
}

/// `init` used to write between two lines of output: a reader that left, or a full disk, made it stop
/// half-way, with exit code 0, and half a project stood in the way of the next try.
#[test]
fn init_writes_all_of_it_or_nothing() {
    let project = Project::empty();
    assert_eq!(unread(&mut project.command(&["init"])), Some(0));
    project.run(&["run", "--once"]).ended(0);

    let project = Project::empty();
    let full = operators_after("exec > /dev/full", project.dir(), &["init"]);
    let said = finish(&mut { full }).ended(1);
    said.tells("the project was written, but that cannot be told");
    project.run(&["run", "--once"]).ended(0);

    // Its last file cannot be written, and the first two go again.
    let project = Project::empty();
    let shut = format!("ulimit -f 0; trap '' XFSZ; cd {}", project.dir().display());
    let said = finish(&mut operators_after(&shut, project.dir(), &["init"])).ended(1);
    said.tells("cannot be written");
    assert!(!project.path("policies/ship-risk.toml").exists());
    project.run(&["init"]).ended(0);
}

#[test]
fn init_overwrites_no_file_that_was_there() {
    let project = Project::empty();
    project.write("plans/ship-risk.json", "mine");
    project.run(&["init"]).ended(1).tells("nothing was written");
    assert_eq!(project.read("plans/ship-risk.json"), "mine");
    assert!(!project.path("operators.toml").exists());
}

#[test]
fn a_project_is_found_from_any_folder_below_it() {
    let project = Project::example();
    project.write("deep/er/here", "");
    let below = finish(&mut operators(&project.path("deep/er"), &["run", "--once"])).ended(0);
    assert_eq!(decision_column(&below.stdout), ["ALLOW", "ALLOW", "DEDUP"]);
    assert_eq!(project.effects().len(), 2);

    let nowhere = Project::empty();
    let lost = nowhere.run(&["run", "--once"]).ended(1);
    lost.tells("operators init");
    let lost = nowhere.run(&["-C", "elsewhere", "run", "--once"]).ended(1);
    lost.tells("operators init elsewhere");
}

/// The commands of README's block number `index`, each without its remark.
fn commands_of_readme(index: usize) -> Vec<String> {
    let text = std::fs::read_to_string(top().join("README.md")).expect("a README");
    let block = text.split("```sh\n").nth(index + 1).expect("a block");
    let block = block.split("```").next().expect("its end");
    let commands = block.lines().flat_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        line.split("&&")
            .map(|command| command.trim().to_owned())
            .collect::<Vec<_>>()
    });
    commands.filter(|command| !command.is_empty()).collect()
}

#[test]
fn the_first_command_of_the_readme_does_what_it_says() {
    let halves = commands_of_readme(0);
    let [init, run] = halves.as_slice() else {
        panic!("two halves: {halves:?}");
    };
    let arguments = |half: &str| -> Vec<String> {
        let rest = half
            .strip_prefix("cargo run -p operators -- ")
            .expect("runs the command");
        rest.split(' ').map(str::to_owned).collect()
    };
    let folder = Project::empty();
    let half = |half: &str| {
        let arguments = arguments(half);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        folder.run(&arguments).ended(0)
    };
    half(init);
    let first = half(run);
    assert_eq!(decision_column(&first.stdout), ["ALLOW", "ALLOW", "DEDUP"]);
    // "twice if you like: the second time every action is DEDUP"
    half(init).tells("nothing was changed");
    let second = half(run);
    assert_eq!(decision_column(&second.stdout), ["DEDUP", "DEDUP", "DEDUP"]);
    let shop = folder.read("demo/shop.jsonl");
    assert_eq!(shop.lines().count(), 2, "{shop}");
}

#[test]
fn every_other_command_of_the_readme_works() {
    let project = Project::example();
    let plan = project.read("plans/ship-risk.json");
    project.write("plan.json", plan);
    let commands = commands_of_readme(2);
    assert!(commands.len() >= 6, "{commands:?}");
    for command in commands {
        let arguments = command.strip_prefix("operators ").expect("our command");
        let arguments: Vec<&str> = arguments.split(' ').collect();
        project.run(&arguments).ended(0);
    }
}

#[test]
fn the_embedding_example_prints_the_two_results_of_one_hold_proposed_twice() {
    let folder = Project::empty();
    let mut example = std::process::Command::new(&programs().hold_order);
    let said = finish(example.current_dir(folder.dir()).env_clear()).ended(0);
    let results = said.results();
    let [first, second] = results.as_slice() else {
        panic!("two results: {said:#?}");
    };
    assert_eq!(first.decision, Disposition::Allow);
    assert_eq!(
        first.result,
        Some(json!({"status": "holded", "order": "SO-10884"}).into())
    );
    assert_eq!(second.decision, Disposition::Dedup);
    assert_eq!(second.result, None);
    assert!(first.ok && second.ok);
    for ActionResult { action, .. } in [first, second] {
        let action = serde_json::to_value(action).expect("JSON");
        assert_eq!(
            action,
            json!({
                "connector": "magento",
                "tool": "orders.hold",
                "args": {"order": "SO-10884", "reason": "ship-risk-review"},
                "entity_key": "ship-risk:SO-10884",
                "idempotency_key": "ship-risk:SO-10884:hold",
            })
        );
    }
    let second: Value = serde_json::to_value(second).expect("JSON");
    assert_eq!(second["original"]["receipt_id"], json!(first.receipt_id));
}

#[test]
fn another_engine_stands_at_the_gate() {
    let folder = Project::empty();
    let mut example = std::process::Command::new(&programs().own_engine);
    let said = finish(example.current_dir(folder.dir()).env_clear()).ended(0);
    assert_eq!(
        said.stdout,
        "score 10, tagged true: Allow by the rules, Allow by both\n\
         score 10, tagged false: Block by the rules, Block by both\n\
         score 95, tagged true: Allow by the rules, Block by both\n"
    );
}
