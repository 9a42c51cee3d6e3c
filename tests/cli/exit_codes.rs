//! 0 all ok · 1 could not run · 2 usage · 3 something was refused · 4 an action failed or is in
//! doubt; and 1 over 4 over 3.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use operators::Reason;
use serde_json::json;

use crate::support::{Project, Running, Said, action, hold};
use crate::vendor::{self, Answer, Vendor};

const BLOCK_REFUNDS: &str =
    "\n[[rule]]\nname = 'no refunds'\ntool = 'orders.refund'\ndecision = 'BLOCK'\n";

/// Refuses `orders.refund`, answers or drops the rest by order: `down-…` is dropped.
fn project(vendor: &Vendor) -> Project {
    let project = Project::with(&vendor.config());
    let policy = project.read("policies/all.toml") + BLOCK_REFUNDS;
    project.write("policies/all.toml", policy);
    project
}

fn fickle() -> Vendor {
    Vendor::start(|request| {
        if request.body.contains("down") {
            Answer::Close
        } else {
            Answer::well()
        }
    })
}

fn refund(order: &str) -> serde_json::Value {
    action("orders.refund", order, json!({ "order": order }))
}

fn reasons(said: &Said) -> Vec<Option<Reason>> {
    said.results().iter().map(|one| one.reason).collect()
}

#[test]
fn zero_when_all_is_ok_reads_and_duplicates_included() {
    let vendor = fickle();
    let project = project(&vendor);
    let read = action("orders.get", "SO-1", json!({}));
    let said = project
        .plan(&json!([hold("SO-1"), hold("SO-1"), read]))
        .ended(0);
    assert_eq!(said.decisions(), ["ALLOW", "DEDUP", "ALLOW"]);
    assert_eq!(vendor.requests().len(), 2);
}

#[test]
fn three_when_trust_refused() {
    // rule 6.1, 1.4: the error is exactly this, and the vendor hears nothing.
    let vendor = fickle();
    let project = project(&vendor);
    let said = project
        .plan(&json!([hold("SO-1"), refund("SO-2")]))
        .ended(3);
    let results = said.results();
    assert_eq!(results[1].error.as_deref(), Some("blocked by trust policy"));
    assert_eq!(results[1].rule.as_deref(), Some("no refunds"));
    assert_eq!(vendor.requests().len(), 1);
}

#[test]
fn three_when_a_key_comes_again_with_other_arguments() {
    // rule 3.2
    let vendor = fickle();
    let project = project(&vendor);
    project.plan(&json!([hold("SO-1")])).ended(0);
    let mut other = hold("SO-1");
    other["args"]["order"] = json!("SO-9");
    let said = project.plan(&json!([other])).ended(3);
    assert_eq!(reasons(&said), [Some(Reason::Conflict)]);
    assert_eq!(said.results()[0].conflict, ["/args/order"]);
}

#[test]
fn four_when_the_vendor_cannot_be_reached_and_the_key_stays_free() {
    let project = Project::with(&vendor::config(vendor::closed_port()));
    let said = project.plan(&json!([hold("SO-1")])).ended(4);
    assert_eq!(reasons(&said), [Some(Reason::Failed)]);
    // rule 3.3: the next proposal is a real attempt.
    let vendor = fickle();
    project.write("operators.toml", vendor.config());
    let said = project.plan(&json!([hold("SO-1")])).ended(0);
    assert_eq!(said.decisions(), ["ALLOW"]);
    assert_eq!(said.results()[0].attempt, 2);
}

#[test]
fn four_when_nobody_knows_what_happened_and_a_later_proposal_is_refused() {
    // rule 4.1, 4.2
    let vendor = fickle();
    let project = project(&vendor);
    let said = project.plan(&json!([hold("down-1")])).ended(4);
    assert_eq!(reasons(&said), [Some(Reason::InDoubt)]);
    assert_eq!(said.decisions(), ["ALLOW"]);
    let other = action("orders.release", "down-1", json!({}));
    let said = project.plan(&json!([other])).ended(3);
    assert_eq!(reasons(&said), [Some(Reason::EntityInDoubt)]);
    assert_eq!(said.decisions(), ["BLOCK"]);
    let said = project.plan(&json!([hold("down-1")]));
    assert_eq!(reasons(&said), [Some(Reason::InDoubt)]);
    assert_eq!(said.decisions(), ["BLOCK"]);
    assert_eq!(
        vendor.requests().len(),
        1,
        "an opaque doubt is never sent again"
    );
}

#[test]
fn four_outweighs_three_in_either_order() {
    let vendor = fickle();
    let project = project(&vendor);
    project
        .plan(&json!([refund("SO-1"), hold("down-1")]))
        .ended(4);
    project
        .plan(&json!([hold("down-2"), refund("SO-1")]))
        .ended(4);
}

#[test]
fn one_outweighs_four() {
    // The first action is in doubt; the run is interrupted in the second, before the third.
    let (vendor, gate) = Vendor::gated();
    let project = Project::with(&vendor.config());
    let late = action("orders.release", "SO-1", json!({}));
    project.write(
        "plan.json",
        json!([late, hold("SO-2"), hold("SO-3")]).to_string(),
    );
    let mut command = project.command(&["run", "--once", "--json", "--plan", "plan.json"]);
    let running = Running::start(&mut command, None);
    vendor.wait_for(2);
    let pid = i32::try_from(running.child.id()).expect("a process id");
    kill(Pid::from_raw(pid), Signal::SIGINT).expect("a child of ours");
    gate.open();
    gate.open();
    let said = running.end().ended(1);
    assert_eq!(reasons(&said), [Some(Reason::InDoubt), None]);
    said.tells("interrupted: 1 of 3 not proposed");
}

#[test]
fn one_when_the_store_cannot_be_used() {
    // rule 8.2, 8.4
    let vendor = fickle();
    let project = project(&vendor);
    project.write(
        ".operators/store.db",
        "this is not a database, and it is long enough to tell",
    );
    let said = project.plan(&json!([hold("SO-1")])).ended(1);
    said.tells("store.db");
    assert_eq!(said.stdout, "");
    assert_eq!(vendor.requests().len(), 0);
}

#[test]
fn two_when_the_command_line_is_wrong() {
    let project = Project::example();
    for args in [
        &["run"][..],
        &["run", "--once", "--nope"],
        &["nope"],
        &[],
        &["run", "--once", "--plan", "x.json", "a", "b"],
        &["receipts", "list", "--decision", "MAYBE"],
        &["receipts", "list", "--since", "yesterday"],
        &["doubts", "resolve", "key", "--because", "x"],
        &["doubts", "resolve", "key", "--applied"],
        &[
            "doubts",
            "resolve",
            "key",
            "--applied",
            "--write-off",
            "--because",
            "x",
        ],
        &[
            "doubts",
            "resolve",
            "key",
            "--write-off",
            "--result",
            "1",
            "--because",
            "x",
        ],
        &["keys", "forget", "key", "--because", "  "],
        &["run", "--once", "--tenant", " acme"],
    ] {
        let said = project.run(args).ended(2);
        assert_eq!(said.stdout, "", "{args:?}");
        said.tells("help");
    }
    project.is_untouched();
}

#[test]
fn stop_on_failure_leaves_the_rest_unproposed_and_keeps_the_code() {
    let vendor = fickle();
    let project = project(&vendor);
    let plan = json!([refund("SO-1"), hold("SO-2")]).to_string();
    let args = [
        "run",
        "--once",
        "--json",
        "--stop-on-failure",
        "--plan",
        "-",
    ];
    let said = project.run_with_stdin(&args, &plan).ended(3);
    assert_eq!(said.decisions(), ["BLOCK"]);
    said.tells("1 of 2 not proposed");
    assert_eq!(project.receipts().len(), 1);
    // rule 1.6: without it the plan goes on.
    let said = project.run_with_stdin(&["run", "--once", "--json", "--plan", "-"], &plan);
    assert_eq!(said.ended(3).decisions(), ["BLOCK", "ALLOW"]);
}
