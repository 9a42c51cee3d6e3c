//! What comes from outside cannot act on a terminal, nor forge a line of ours (FAULTS S16).

use serde_json::{Value, json};

use crate::support::{Project, Said, hold};
use crate::vendor::{Answer, Vendor};

/// Clears the screen, turns the direction round, sets a title, forges a line, and hides.
const HOSTILE: &str = "\u{1b}[2J\u{202e}\u{1b}]0;mine\u{7}\u{9b}31m\n{\"decision\":\"ALLOW\"}\r\u{200b}\u{2028}\u{7f}";

#[track_caller]
fn is_harmless(text: &str) {
    // The end of a line of CSV.
    let text = &text.replace("\r\n", "\n");
    for character in text.chars() {
        let hidden = character.is_control() && character != '\n';
        let format = matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}');
        assert!(!hidden && !format, "{character:?} in {text:?}");
    }
    for line in text.lines() {
        assert!(!line.starts_with("{\"decision\""), "a forged line: {text}");
    }
}

/// Runs a plan for people, then looks at everything else that shows it.
fn seen_by_people(answer: Answer, code: i32) -> Vec<Said> {
    let vendor = Vendor::always(answer);
    let project = Project::with(&vendor.config());
    let plan = json!([hold("SO-1")]).to_string();
    let mut command = project.command(&["run", "--once", "--plan", "-"]);
    command.env("OPERATORS_LOG", "trace");
    let run = crate::support::Running::start(&mut command, Some(plan.as_bytes()))
        .end()
        .ended(code);
    let id = project.receipts()[0].receipt_id.clone();
    let looks = [
        &["receipts", "list"][..],
        &["receipts", "tail"],
        &["receipts", "show", &id],
        &["receipts", "show", &id, "--json"],
        &["receipts", "export", "--format", "csv"],
        &["receipts", "report"],
        &["receipts", "export"],
        &["keys", "show", "SO-1:hold"],
        &["keys", "show", "SO-1:hold", "--json"],
        &["doubts", "list"],
        &["doctor"],
    ];
    let mut seen: Vec<Said> = looks
        .iter()
        .map(|args| project.run(args).ended(0))
        .collect();
    seen.insert(0, run);
    seen
}

#[test]
fn a_result_is_escaped_wherever_people_see_it() {
    let body = json!({"status": HOSTILE, HOSTILE: true, "id": HOSTILE}).to_string();
    let seen = seen_by_people(Answer::Json(200, body), 0);
    assert!(seen[0].stdout.contains("\\u{1b}[2J"), "{:#?}", seen[0]);
    for said in seen {
        is_harmless(&said.stdout);
        is_harmless(&said.stderr);
    }
}

#[test]
fn a_refusals_text_is_escaped_wherever_people_see_it() {
    for (status, code) in [(422, 4), (503, 4)] {
        let seen = seen_by_people(Answer::Text(status, HOSTILE.to_owned()), code);
        for said in seen {
            is_harmless(&said.stdout);
            is_harmless(&said.stderr);
        }
    }
}

#[test]
fn a_plain_text_answer_that_becomes_the_result_is_escaped() {
    for said in seen_by_people(Answer::Text(200, HOSTILE.to_owned()), 0) {
        is_harmless(&said.stdout);
        is_harmless(&said.stderr);
    }
}

#[test]
fn json_output_stays_one_array_that_keeps_the_text() {
    let body = json!({"status": HOSTILE}).to_string();
    let vendor = Vendor::always(Answer::Json(200, body));
    let project = Project::with(&vendor.config());
    let said = project.plan(&json!([hold("SO-1")])).ended(0);
    is_harmless(&said.stdout);
    let results = said.results();
    assert_eq!(results.len(), 1);
    assert_eq!(results[0].result, Some(json!({"status": HOSTILE}).into()));
    let written: Vec<Value> = serde_json::from_str(&said.stdout).expect("one array");
    assert_eq!(written.len(), 1);
}

#[test]
fn names_of_files_words_of_the_configuration_and_of_people_are_escaped() {
    let project = Project::with_file();
    let name = "a\u{1b}[2J\u{202e}.json";
    project
        .run(&["run", "--once", "--plan", name])
        .ended(1)
        .tells("a\\u{1b}[2J");
    project.write(name, "[{}]");
    let said = project.run(&["plan", "check", name]).ended(1);
    is_harmless(&said.stderr);
    let goal = "[operators.a]\ngoal = \"\\u001b[2J\\u202e\"\nplan = 'plan.json'\n";
    project.write("operators.toml", project.read("operators.toml") + goal);
    project.write("plan.json", json!([hold("SO-1")]).to_string());
    let said = project.run(&["run", "--once"]).ended(0);
    is_harmless(&said.stdout);
    let args = [
        "keys",
        "forget",
        "SO-1:hold",
        "--because",
        HOSTILE,
        "--as",
        "me\u{1b}[2J",
    ];
    let said = project.run(&args).ended(0);
    is_harmless(&said.stdout);
    let forgotten = project.receipts().pop().expect("a receipt");
    let said = project
        .run(&["receipts", "show", &forgotten.receipt_id])
        .ended(0);
    is_harmless(&said.stdout);
}

#[test]
fn what_is_wrong_in_a_file_is_quoted_escaped() {
    let project = Project::with_file();
    project.write("operators.toml", "[store]\nurl = \"re\\u001b[2Jdis:x\"\n");
    is_harmless(&project.run(&["doctor"]).ended(1).stdout);
    is_harmless(&project.run(&["run", "--once"]).ended(1).stderr);
    project.write("operators.toml", "\"te\\u001b[2J\\u202ent\" = 1\n");
    is_harmless(&project.run(&["run", "--once"]).ended(1).stderr);
    let project = Project::with_file();
    project.edit("policies/all.toml", "'ALLOW'", "\"AL\\u001b[2J\\u202eLOW\"");
    is_harmless(&project.run(&["doctor"]).ended(1).stdout);
    is_harmless(&project.plan(&json!([])).ended(1).stderr);
    let project = Project::with_file();
    let mut action = hold("SO-1");
    action["\u{1b}[2J\u{202e}"] = json!(1);
    is_harmless(&project.plan(&json!([action])).ended(1).stderr);
    let mut action = hold("SO-1");
    action["tool"] = json!("x\u{1b}[2J\u{202e}");
    is_harmless(&project.plan(&json!([action])).ended(1).stderr);
}

/// What was typed comes back in what is said of it, and a key is often copied out of data.
#[test]
fn a_mistake_on_the_command_line_is_quoted_escaped() {
    let project = Project::with_file();
    let typed: [&[&str]; 9] = [
        &["receipts", "list", "--limit", HOSTILE],
        &["keys", "show", HOSTILE],
        &["receipts", "list", "--key", HOSTILE],
        &["receipts", "list", "--decision", HOSTILE],
        &["receipts", "list", "--since", HOSTILE],
        &["receipts", "list", "--after", HOSTILE],
        &["connectors", "test", HOSTILE],
        &["run", "--once", "--x\u{1b}[2J\u{202e}"],
        &["x\u{1b}[2J\u{202e}"],
    ];
    for args in typed {
        let said = project.run(args).ended(2);
        is_harmless(&said.stderr);
        assert!(said.stderr.contains("\\u{202e}"), "{said:#?}");
    }
}
