//! Hostile plans: refused whole, with the place, before anything runs (rules 1.7 and 7.1).

use std::fmt::Write as _;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Project, Said, hold};

/// A good action, as text.
fn good() -> String {
    hold("SO-1").to_string()
}

/// Runs `[GOOD, BAD]`, which must be refused for the second action's sake.
#[track_caller]
fn refused_second(bad: &str, place: &str, words: &str) {
    let text = format!("[{},\n{bad}]", good());
    refused_text(&text, place, words);
}

/// Both ways in, `run` and `plan check`, refuse the text at that place.
#[track_caller]
fn refused_text(text: &str, place: &str, words: &str) {
    let project = Project::with_file();
    project.write("plan.json", text);
    for args in [
        &["run", "--once", "--json", "--plan", "plan.json"][..],
        &["run", "--once", "--dry-run", "--plan", "plan.json"],
        &["plan", "check", "plan.json"],
    ] {
        let said = project.run(args);
        is_refusal(said, "plan.json", place, words);
    }
    let args = ["run", "--once", "--plan", "-"];
    is_refusal(project.run_with_stdin(&args, text), "stdin", place, words);
    project.is_untouched();
}

#[track_caller]
fn is_refusal(said: Said, name: &str, place: &str, words: &str) {
    let said = said.ended(1);
    assert_eq!(said.stdout, "");
    said.tells(&format!("{name}:{place}"));
    said.tells(words);
    assert!(
        said.stderr.len() < 2_000,
        "the plan is not repeated: {said:#?}"
    );
}

/// A good action with one field replaced.
fn with(field: &str, value: Value) -> String {
    let mut action = hold("SO-2");
    action[field] = value;
    action.to_string()
}

#[test]
fn a_duplicate_json_key_is_refused_at_any_depth() {
    let twice = good().replacen("\"tool\":", "\"tool\":\"orders.release\",\"tool\":", 1);
    refused_second(&twice, "2:", "tool");
    let deeper = with("args", json!({"a": {"b": 1}})).replace("\"b\":1", "\"b\":1,\"b\":2");
    refused_second(&deeper, "2:", "/1/args/a/b");
}

#[test]
fn a_field_that_nobody_knows_is_refused() {
    refused_second(&with("approved", json!(true)), "2:", "approved");
    refused_text(r#"{"actions": [], "decision": "ALLOW"}"#, "1:", "decision");
}

#[test]
fn a_field_that_is_missing_or_of_another_kind_is_refused() {
    refused_second(r#"{"connector": "shop"}"#, "2:", "missing field");
    refused_second(&with("args", json!([])), "2:", "/1/args");
    refused_second(&with("value", json!("500")), "2:", "/1/value");
    refused_second(&with("revision", json!(-1)), "2:", "/1/revision");
    refused_text("", "1:1: ", "EOF");
    refused_text("null", "1:", "");
    refused_text("{\"actions\": [\n  nope", "2:", "");
}

#[test]
fn control_characters_and_lookalikes_in_keys_are_refused() {
    // rule 7.2
    for bad in [
        "a\u{0}b",
        "a\u{1b}[2Jb",
        "a\nb",
        "a\u{202e}b",
        "a\u{200b}b",
        " a",
        "a ",
        "",
    ] {
        refused_second(&with("entity_key", json!(bad)), "2:", "/1/entity_key");
        refused_second(
            &with("idempotency_key", json!(bad)),
            "2:",
            "/1/idempotency_key",
        );
    }
    refused_second(&with("entity_key", json!("x".repeat(513))), "2:", "512");
    // The same text in another form of Unicode would be another key.
    refused_second(
        &with("entity_key", json!("e\u{301}")),
        "2:",
        "/1/entity_key",
    );
    refused_second(&with("tool", json!("Orders.Hold")), "2:", "/1/tool");
    refused_second(&with("connector", json!("shop\u{0}")), "2:", "/1/connector");
}

#[test]
fn numbers_that_two_readers_read_differently_are_refused() {
    for bad in ["9007199254740993", "1e400", "-9007199254740993"] {
        let action = with("args", json!({"n": 7})).replace('7', bad);
        refused_second(&action, "2:", "");
    }
    let surrogate = with("args", json!({"n": "s"})).replace("\"s\"", r#""\ud800""#);
    refused_second(&surrogate, "2:", "");
}

#[test]
fn a_plan_a_hundred_thousand_deep_is_refused_without_a_crash() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    refused_second(
        &with("args", json!({"d": "D"})).replace("\"D\"", &deep),
        "2:",
        "64",
    );
}

#[test]
fn a_plan_of_ten_thousand_and_one_actions_is_refused() {
    let mut text = String::from("[");
    for number in 0..=10_000 {
        let comma = if number == 0 { "" } else { "," };
        write!(text, "{comma}{}", hold(&format!("SO-{number}"))).expect("a string");
    }
    text.push(']');
    refused_text(&text, "1:", "10001 actions, at most 10000");
}

#[test]
fn a_plan_over_sixteen_mebibytes_is_refused() {
    let project = Project::with_file();
    let text = format!("[{}]{}", good(), " ".repeat(16 << 20));
    project.write("plan.json", &text);
    let said = project
        .run(&["run", "--once", "--plan", "plan.json"])
        .ended(1);
    said.tells("plan.json");
    said.tells("16777216");
    let said = project
        .run_with_stdin(&["run", "--once", "--plan", "-"], &text)
        .ended(1);
    said.tells("stdin");
    said.tells("16777216");
    project.is_untouched();
}

#[test]
fn arguments_over_one_mebibyte_are_refused() {
    let big = with("args", json!({"text": "x".repeat(1 << 20)}));
    refused_second(&big, "2:", "at most 1048576");
}

#[test]
fn what_is_no_ordinary_file_is_refused_at_once() {
    // FAULTS S18: a fifo would wait for its writer, a device would never end.
    let project = Project::with_file();
    std::fs::create_dir(project.path("folder")).expect("a folder");
    let made = Command::new("mkfifo").arg(project.path("pipe")).status();
    assert!(made.expect("mkfifo").success());
    std::os::unix::fs::symlink("/dev/zero", project.path("link")).expect("a link");
    for file in ["folder", "pipe", "/dev/zero", "link", "/dev/null"] {
        for args in [
            &["run", "--once", "--plan", file][..],
            &["plan", "check", file],
        ] {
            let said = project.run(args).ended(1);
            said.tells(&format!("`{file}` is not a regular file"));
        }
    }
    for file in ["nowhere.json", "../../nowhere.json", &"n".repeat(300)] {
        let said = project.run(&["run", "--once", "--plan", file]).ended(1);
        said.tells(&format!("`{file}` cannot be read"));
    }
    project.is_untouched();
}

#[test]
fn bytes_that_are_not_text_are_refused() {
    let project = Project::with_file();
    project.write("plan.json", b"[\xff]");
    let said = project
        .run(&["run", "--once", "--plan", "plan.json"])
        .ended(1);
    said.tells("not UTF-8 at byte 1");
    project.is_untouched();
}

#[test]
fn one_bad_plan_among_several_operators_stops_them_all() {
    // rule 1.7, over all that was asked for.
    let project = Project::example();
    let second = "\n[operators.zeta]\nplan = 'plans/zeta.json'\n";
    project.write("operators.toml", project.read("operators.toml") + second);
    project.write("plans/zeta.json", "[{}]");
    let said = project.run(&["run", "--once"]).ended(1);
    said.tells("nothing was run: operator `zeta`");
    said.tells("plans/zeta.json:1:2");
    project.is_untouched();
    project.run(&["run", "--once", "ship-risk"]).ended(0);
}

#[test]
fn a_good_plan_is_checked_from_a_file_and_from_stdin_without_a_project() {
    let folder = Project::empty();
    let text = json!({"reasoning": "why", "actions": [hold("SO-1"), hold("SO-1"), hold("SO-2")]});
    folder.write("plan.json", text.to_string());
    let said = folder.run(&["plan", "check", "plan.json"]).ended(0);
    let verdict = "valid, 3 actions on 2 entities with 2 idempotency keys\n";
    assert_eq!(said.stdout, format!("plan.json: {verdict}"));
    let said = folder
        .run_with_stdin(&["plan", "check", "-"], text.to_string())
        .ended(0);
    assert_eq!(said.stdout, format!("stdin: {verdict}"));
}

#[test]
fn a_plan_from_stdin_runs() {
    let project = Project::with_file();
    let said = project.plan(&json!([hold("SO-1"), hold("SO-1")])).ended(0);
    assert_eq!(said.decisions(), ["ALLOW", "DEDUP"]);
    assert_eq!(project.effects().len(), 1);
}
