//! Help: every command explains itself.

use crate::support::Project;

/// Each command, and what its help must speak of.
const COMMANDS: &[(&[&str], &[&str])] = &[
    (
        &[],
        &[
            "init",
            "run",
            "plan",
            "policy",
            "receipts",
            "doubts",
            "keys",
            "approvals",
            "alerts",
            "status",
            "doctor",
            "--project",
            "-C",
            "0  all ok",
            "1  could not run",
            "2  usage",
            "3  something was refused",
            "4  an action failed or is in doubt",
            "operators init demo",
        ],
    ),
    (&["init"], &["example project", "[DIR]"]),
    (
        &["run"],
        &[
            "[NAME]...",
            "--once",
            "--plan <FILE>",
            "`-`",
            "stdin",
            "--tenant",
            "--json",
            "--dry-run",
            "invoke nothing",
            "--stop-on-failure",
        ],
    ),
    (&["plan"], &["check"]),
    (&["plan", "check"], &["<FILE>", "strictly"]),
    (&["policy"], &["check", "eval", "replay", "without running"]),
    (&["policy", "check"], &["[FILE]...", "--strict", "--json"]),
    (
        &["policy", "eval"],
        &[
            "<PLAN>",
            "--operator",
            "--event",
            "--json",
            "invoke",
            "stdin",
        ],
    ),
    (
        &["policy", "replay"],
        &["--policy <DIR>", "--since", "--all", "--json", "past"],
    ),
    (
        &["receipts"],
        &["list", "show", "tail", "export", "audit trail"],
    ),
    (
        &["receipts", "list"],
        &[
            "--operator",
            "--decision",
            "--entity",
            "--key",
            "--correlation",
            "--since",
            "--until",
            "--json",
        ],
    ),
    (&["receipts", "show"], &["<ID>", "--json", "whole story"]),
    (
        &["receipts", "tail"],
        &["--follow", "--json", "--after <CURSOR>", "-n"],
    ),
    (
        &["receipts", "export"],
        &[
            "Every receipt",
            "JSON lines",
            "oldest first",
            "--format",
            "csv",
            "parquet",
            "--raw",
            "--output <FILE>",
            "--limit <N>",
            "--after <CURSOR>",
        ],
    ),
    (
        &["receipts", "report"],
        &["HTML", "--since", "--output <FILE>", "no network"],
    ),
    (&["doubts"], &["list", "resolve", "person"]),
    (&["doubts", "list"], &["in doubt", "--json"]),
    (
        &["doubts", "resolve"],
        &[
            "<KEY>",
            "--applied",
            "--not-applied",
            "--write-off",
            "--wait",
            "--because <TEXT>",
        ],
    ),
    (&["keys"], &["show", "forget", "life"]),
    (&["keys", "show"], &["<KEY>", "receipts"]),
    (
        &["keys", "forget"],
        &["<KEY>", "next generation", "--because"],
    ),
    (&["approvals"], &["list", "approve", "veto"]),
    (
        &["approvals", "approve"],
        &["<RECEIPT_ID>", "--because", "--as"],
    ),
    (&["alerts"], &["list", "ack", "ALERT"]),
    (
        &["alerts", "list"],
        &["--operator", "--tool", "--since", "--all", "--json"],
    ),
    (
        &["alerts", "ack"],
        &["RECEIPT_ID", "--all", "--because", "--as", "$USER"],
    ),
    (&["connectors"], &["list", "test", "accept", "import"]),
    (&["connectors", "accept"], &["<NAME>", "held"]),
    (
        &["connectors", "list"],
        &["effect class", "--health", "--json"],
    ),
    (
        &["connectors", "test"],
        &["<NAME>", "--tool", "never an effect"],
    ),
    (
        &["connectors", "import", "openapi"],
        &["<FILE>", "--connector", "--base-url", "opaque"],
    ),
    (&["status"], &["acts on nothing", "--json", "--tenant"]),
    (&["doctor"], &["sound", "--strict", "--health", "--json"]),
];

#[test]
fn every_command_has_help_that_speaks_of_what_it_does() {
    let nowhere = Project::empty();
    for (command, words) in COMMANDS {
        for flag in ["--help", "-h"] {
            let said = nowhere.run(&[command, &[flag][..]].concat()).ended(0);
            assert_eq!(said.stderr, "", "{command:?}");
            for word in *words {
                assert!(said.stdout.contains(word), "no `{word}` in {said:#?}");
            }
        }
    }
}

#[test]
fn the_version_is_told() {
    let said = Project::empty().run(&["--version"]).ended(0);
    assert_eq!(
        said.stdout,
        format!("operators {}\n", env!("CARGO_PKG_VERSION"))
    );
}
