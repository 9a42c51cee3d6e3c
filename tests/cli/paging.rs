//! Pages of the trail: one command after the other, while others write.

use std::collections::BTreeSet;

use operators::Receipt;
use serde_json::{Value, json};

use crate::every_store::on_every_store;
use crate::support::{Project, Said, hold};

/// The cursor that a page left on stderr.
#[track_caller]
fn next(said: &Said) -> Option<String> {
    let line = said.stderr.lines().find(|line| line.starts_with('{'))?;
    let told: Value = serde_json::from_str(line).expect("JSON");
    Some(told["next"].as_str().expect("a cursor").to_owned())
}

/// Every page that `command` gives from `after` on, while somebody writes between them.
fn pages(
    project: &Project,
    command: &[&str],
    after: Option<String>,
    writes: usize,
) -> Vec<Receipt> {
    let mut found: Vec<Receipt> = Vec::new();
    let mut cursor = after;
    for turn in 0..100 {
        let mut args = command.to_vec();
        if let Some(cursor) = &cursor {
            args.extend(["--after", cursor]);
        }
        let said = project.run(&args).ended(0);
        let page: Vec<Receipt> = said.lines();
        let is_last = page.is_empty();
        found.extend(page);
        match next(&said) {
            Some(next) if !is_last => cursor = Some(next),
            _ => return found,
        }
        if turn < writes {
            let other = format!("meanwhile-{turn}");
            project.plan(&json!([hold(&other), hold("SO-1")])).ended(0);
        }
    }
    panic!("it never ends");
}

fn ids(receipts: &[Receipt]) -> Vec<&str> {
    receipts.iter().map(|one| one.receipt_id.as_str()).collect()
}

#[test]
fn pages_neither_skip_nor_repeat_while_others_write_on_every_store() {
    // rule 5.8
    on_every_store(|project, store| {
        let orders: Vec<Value> = (0..7).map(|n| hold(&format!("SO-{n}"))).collect();
        project.plan(&json!(orders)).ended(0);
        let before = project.receipts();
        assert_eq!(before.len(), 7, "{store}");

        // Newest first: what came after the first page is not in it, and moves nothing.
        let list = ["receipts", "list", "--json", "--limit", "3"];
        let mut listed = pages(project, &list, None, 2);
        listed.reverse();
        assert_eq!(ids(&listed), ids(&before), "{store}");

        // Oldest first: what came meanwhile comes last.
        let export = ["receipts", "export", "--limit", "3"];
        let exported = pages(project, &export, None, 2);
        assert_eq!(ids(&exported[..7]), ids(&before), "{store}");
        assert_eq!(ids(&exported), ids(&project.receipts()), "{store}");
        let once: BTreeSet<&str> = ids(&exported).into_iter().collect();
        assert_eq!(once.len(), exported.len(), "{store}");

        // A filter pages like everything else.
        let some = ["receipts", "export", "--limit", "1", "--decision", "DEDUP"];
        let mut duplicates = exported.clone();
        duplicates.retain(|one| one.decision.is_some_and(|word| word.as_str() == "DEDUP"));
        assert_eq!(
            ids(&pages(project, &some, None, 0)),
            ids(&duplicates),
            "{store}"
        );
    });
}

#[test]
fn an_export_goes_on_where_the_last_one_ended() {
    let project = Project::with_file();
    project.plan(&json!([hold("SO-1"), hold("SO-2")])).ended(0);
    let first = project
        .run(&["receipts", "export", "--after", "newer:0"])
        .ended(0);
    assert_eq!(first.lines::<Receipt>().len(), 2);
    let cursor = next(&first).expect("a cursor, at the end too");
    let nothing = project
        .run(&["receipts", "export", "--after", &cursor])
        .ended(0);
    assert_eq!(
        (nothing.stdout.as_str(), next(&nothing)),
        ("", Some(cursor.clone()))
    );
    project.plan(&json!([hold("SO-3")])).ended(0);
    let second = project
        .run(&["receipts", "export", "--after", &cursor])
        .ended(0);
    assert_eq!(second.lines::<Receipt>(), project.receipts()[2..]);
    let tail = project
        .run(&["receipts", "tail", "--json", "--after", &cursor])
        .ended(0);
    assert_eq!(tail.stdout, second.stdout);
}

#[test]
fn the_next_page_is_one_command_that_can_be_copied() {
    let project = Project::with_file();
    let plan: Vec<Value> = (0..3).map(|n| hold(&format!("SO {n}'s"))).collect();
    project.plan(&json!(plan)).ended(0);
    let mut args = vec![
        "receipts",
        "list",
        "--limit",
        "1",
        "--since",
        "1h",
        "--tool",
        "orders.hold",
    ];
    args.extend(["--tenant", "acme", "--decision", "allow"]);
    let said = project.run(&args).ended(0);
    let line = said.stderr.lines().find(|line| line.contains("--after"));
    let line = line.unwrap_or_else(|| panic!("no next page in {said:#?}"));
    for word in [
        "--limit 1",
        "--tool orders.hold",
        "--tenant acme",
        "--decision ALLOW",
        "--since 20",
    ] {
        assert!(line.contains(word), "no `{word}` in {line}");
    }
    // As a shell would run it.
    let command = line.split("  #").next().expect("a command").trim();
    let program = crate::support::programs().operators.display().to_string();
    let command = command.replacen("operators", &program, 1);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &command]).current_dir(project.dir());
    let copied = crate::support::finish(&mut shell).ended(0);
    assert!(copied.stdout.contains("SO 1's:hold"), "{copied:#?}");
    assert!(!copied.stdout.contains("SO 2's:hold"), "{copied:#?}");
}

#[test]
fn a_cursor_of_the_other_way_is_a_mistake_on_the_command_line() {
    let project = Project::with_file();
    for (command, cursor) in [("list", "newer:1"), ("export", "older:1"), ("tail", "7")] {
        let said = project
            .run(&["receipts", command, "--after", cursor])
            .ended(2);
        said.tells("is no cursor of");
    }
    project.run(&["receipts", "list", "--limit", "0"]).ended(2);
}
