//! Checkpoints that a long run makes on the way.

use serde_json::{Value, json};

use crate::support::Project;

/// Two tools: one is quick; the other ends well once the outside place has a checkpoint, and not
/// otherwise. So a run of both shows whether one was made while it went on.
fn project(outside: &str) -> Project {
    let project = Project::with(&format!(
        "tenant = 'acme'\n[receipts.checkpoint]\nevery = '1s'\n{outside}\n\
         [connectors.shop]\nkind = 'command'\ntimeout = '30s'\n\
         [connectors.shop.tools.quick]\nargv = ['true']\n\
         [connectors.shop.tools.waits]\nargv = ['sh', 'wait.sh']\n"
    ));
    project.write(
        "wait.sh",
        "i=0\nwhile [ $i -lt 200 ]; do\n  test -e outside && cp outside seen && exit 0\n  \
         sleep 0.1; i=$((i+1))\ndone\nexit 1\n",
    );
    project
}

fn plan() -> Value {
    let action = |tool: &str| {
        json!({ "connector": "shop", "tool": tool, "args": {}, "entity_key": tool,
            "idempotency_key": tool })
    };
    json!([action("quick"), action("waits")])
}

/// By rule 11.8.
#[test]
fn a_long_run_is_signed_while_it_goes_on() {
    let project = project("file = 'outside'");
    project.plan(&plan()).ended(0);
    let seen = project.read("seen");
    assert!(seen.starts_with("operators/acme\n1\n"), "{seen}");
    let last = project.read("outside");
    assert!(last.starts_with("operators/acme\n2\n"), "{last}");
    let said = project.run(&["receipts", "verify"]).ended(0);
    assert!(said.stdout.contains("agree: 2"), "{said:#?}");
}

/// By rule 11.8: a place that cannot be reached is told of, and the run goes on.
#[test]
fn a_checkpoint_that_cannot_be_handed_over_holds_no_run_up() {
    let project = project("command = ['sh', '-c', 'touch outside; exit 3']");
    let said = project.plan(&plan()).ended(0);
    said.tells("`receipts.checkpoint.command` failed");
    assert!(project.path("seen").exists(), "{said:#?}");
}

#[test]
fn a_schedule_that_never_rests_is_refused() {
    let project = project("");
    project.edit("operators.toml", "'1s'", "'10ms'");
    project.plan(&plan()).ended(1).tells("too often");
}
