//! `receipts show`: one action's whole story, as a tree and as JSON.

use serde_json::{Value, json};

use crate::approvals;
use crate::support::{Project, Said, hold};
use crate::vendor::{Answer, Vendor};

/// The tree with ids numbered in the order in which they appear, and times and digests left out.
fn plain(tree: &str) -> String {
    let mut seen: Vec<String> = Vec::new();
    let mut lines = Vec::new();
    for line in tree.lines() {
        let words = line.split(' ').map(|word| plain_word(word, &mut seen));
        let line = words.collect::<Vec<_>>().join(" ");
        // A moment is two words.
        lines.push(line.replace("DATE TIME", "TIME"));
    }
    lines.join("\n")
}

fn plain_word(word: &str, seen: &mut Vec<String>) -> String {
    let digits = word.chars().filter(char::is_ascii_digit).count();
    if word.starts_with("sha256:") {
        return "sha256:…".to_owned();
    }
    for kind in ["rc", "pl", "run", "ev", "co"] {
        let Some(rest) = word.strip_prefix(&format!("{kind}_")) else {
            continue;
        };
        if rest.len() < 20 {
            continue;
        }
        let known = seen.iter().position(|one| one == word);
        let number = known.unwrap_or_else(|| {
            seen.push(word.to_owned());
            seen.len() - 1
        });
        return format!("{kind}_{number}");
    }
    match word {
        _ if word.starts_with("20") && word.contains('T') && word.ends_with('Z') => "TIME".into(),
        _ if word.starts_with("20") && digits == 8 && word.len() == 10 => "DATE".into(),
        _ if digits == 6 && word.len() == 9 && word.ends_with('Z') => "TIME".into(),
        _ => word.to_owned(),
    }
}

fn shown(project: &Project, index: usize) -> Said {
    let id = project.receipts()[index].receipt_id.clone();
    project.run(&["receipts", "show", &id]).ended(0)
}

#[test]
fn a_story_goes_from_the_event_to_the_duplicates() {
    // Fails once, is applied at the second try, is proposed twice more.
    let vendor = Vendor::start(|request| match &request.body {
        body if body.contains("wrong") => Answer::Text(422, "no such order".to_owned()),
        _ => Answer::Json(200, json!({"id": "effect-1"}).to_string()),
    });
    let project = Project::with(&vendor.config());
    let mut wrong = hold("SO-1");
    wrong["args"]["order"] = json!("wrong");
    project.plan(&json!([wrong])).ended(4);
    let plan = json!([hold("SO-1"), hold("SO-1"), hold("SO-1")]);
    project.plan(&plan).ended(0);
    let told = shown(&project, 1);
    let told = plain(told.stdout.trim_end());
    assert!(told == APPLIED, "{told}");

    let id = project.receipts()[3].receipt_id.clone();
    let said = project.run(&["receipts", "show", &id, "--json"]).ended(0);
    let story: Value = serde_json::from_str(&said.stdout).expect("JSON");
    assert_eq!(story["receipt"]["decision"], "DEDUP");
    assert_eq!(story["attempts"]["count"], 2);
    assert_eq!(story["attempts"]["receipts"][0]["outcome"], "failed");
    assert_eq!(story["duplicates"]["count"], 2);
    assert_eq!(story["refusals"]["receipts"], json!([]));
    assert_eq!(story["phase"], "applied");
}

const APPLIED: &str = "\
shop:orders.hold  SO-1:hold  applied
├─ event
│  ├─ event id         ev_0
│  ├─ correlation      co_1
│  └─ tenant           acme
├─ plan
│  ├─ plan id          pl_2
│  ├─ run              run_3
│  └─ proposed at      TIME
├─ action
│  ├─ tool             shop:orders.hold
│  ├─ args             {\"order\":\"SO-1\"}
│  ├─ entity key       SO-1
│  ├─ idempotency key  SO-1:hold
│  └─ generation       1
├─ trust
│  ├─ decision         ALLOW
│  ├─ rule             everything
│  ├─ policy           all version 1
│  └─ policy digest    sha256:…
├─ attempts: 2
│  ├─ TIME  failed  rc_4
│  │  ├─ attempt          1
│  │  └─ error            `POST /hold` answered 422: `no such order`
│  └─ TIME  applied  rc_5  (this one)
│     ├─ attempt          2
│     └─ effect id        effect-1
├─ outcome: applied
│  ├─ receipt          rc_5
│  ├─ kind             proposal
│  ├─ ok               yes
│  ├─ result digest    sha256:…
│  ├─ effect id        effect-1
│  ├─ attempt          2
│  ├─ session          2
│  ├─ fence            2
│  ├─ settled at       TIME
│  └─ version          2
├─ duplicates that collapsed into it: 2
│  ├─ TIME  deduplicated  rc_6
│  └─ TIME  deduplicated  rc_7
└─ the key is now applied";

#[test]
fn a_story_tells_what_people_decided_about_it() {
    let vendor = Vendor::always(Answer::Close);
    let project = Project::with(&vendor.config());
    project.plan(&json!([hold("SO-1")])).ended(4);
    project.plan(&json!([hold("SO-1")])).ended(4);
    let resolve = [
        "doubts",
        "resolve",
        "SO-1:hold",
        "--write-off",
        "--because",
        "nobody\u{1b}[2J knows",
    ];
    project.run(&resolve).ended(0);
    let told = plain(shown(&project, 0).stdout.trim_end());
    let wanted = "\
├─ stopped before the connector: 1
│  └─ TIME  refused: in_doubt  rc_5
│     └─ error ";
    assert!(told.contains(wanted), "{told}");
    let wanted = "\
├─ afterwards: 1
│  └─ TIME  corrected: in_doubt  rc_6
│     ├─ by               auditor
│     ├─ because          nobody\\u{1b}[2J knows
│     ├─ cites            rc_4
";
    assert!(told.contains(wanted), "{told}");
    assert!(told.ends_with("└─ the key is now written_off"), "{told}");
    // The correction's own story is the same action's.
    let told = shown(&project, 2).stdout;
    assert!(told.contains("attempts: 1"), "{told}");
}

#[test]
fn a_story_keeps_generations_apart_and_finds_what_an_approval_speaks_of() {
    let project = Project::with_file();
    project.edit("policies/all.toml", "'ALLOW'", "'ALERT'\nalert = 'approve'");
    for generation in 1..=2 {
        project.plan(&json!([hold("SO-1")])).ended(3);
        let id = approvals::question(&project);
        let answer = ["approvals", "approve", &id, "--because", "fine"];
        project.run(&answer).ended(0);
        project.plan(&json!([hold("SO-1")])).ended(0);
        let approval = project.receipts().len() - 2;
        for index in [approval, approval + 1] {
            let told = plain(&shown(&project, index).stdout);
            assert!(told.contains("attempts: 1\n"), "{generation}: {told}");
            assert!(told.contains("before the connector: 1\n"), "{told}");
            assert!(told.contains("afterwards: 1\n"), "{generation}: {told}");
        }
        let forget = ["keys", "forget", "SO-1:hold", "--because", "again"];
        project.run(&forget).ended(0);
    }
}

#[test]
fn a_story_of_many_duplicates_counts_them_and_shows_a_few() {
    let project = Project::with_file();
    project.plan(&json!(vec![hold("SO-1"); 657])).ended(0);
    let said = shown(&project, 0);
    assert!(said.stdout.contains("collapsed into it: 656"), "{said:#?}");
    assert!(said.stdout.contains("… and 636 more"), "{said:#?}");
    said.tells("receipts export --key SO-1:hold");
}

#[test]
fn a_pause_has_a_story_of_its_own() {
    let project = Project::with_file();
    project.plan(&json!([hold("SO-1")])).ended(0);
    project.run(&["pause", "--because", "lunch"]).ended(0);
    let told = shown(&project, 1).stdout;
    for word in ["afterwards: 1", "paused", "lunch", "auditor"] {
        assert!(told.contains(word), "no `{word}` in {told}");
    }
}
