//! `status`: what stands in the way and what is open, without acting.

use serde_json::{Value, json};

use crate::support::{Project, action, hold};
use crate::vendor::{Answer, Vendor};

const RULES: &str = "policy = 'all'
version = 1
[[rule]]
name = 'holds'
tool = 'orders.hold'
decision = 'ALLOW'
limit = { max = 1, per = '1h', by = 'tenant' }
[[rule]]
name = 'refunds'
tool = 'orders.refund'
decision = 'ALERT'
[[rule]]
name = 'releases'
tool = 'orders.release'
decision = 'ALERT'
alert = 'approve'
";

fn status(project: &Project) -> Value {
    let said = project.run(&["status", "--json"]).ended(0);
    serde_json::from_str(&said.stdout).expect("one object")
}

/// There was no way to ask whether anything is paused but to pause it.
#[test]
fn everything_that_stands_is_told_and_stays_as_it_is() {
    let vendor = Vendor::always(Answer::Close);
    let project = Project::with(&vendor.config());
    project.write("policies/all.toml", RULES);
    let plan = json!([
        hold("SO-1"),
        hold("SO-2"),
        action("orders.refund", "SO-3", json!({})),
        action("orders.release", "SO-4", json!({})),
    ]);
    project.plan(&plan).ended(4);
    project.run(&["pause", "--because", "incident-42"]).ended(0);
    let receipts = project.receipts();
    let found = status(&project);
    assert_eq!(found["tenant_id"], "acme");
    assert_eq!(found["paused"][0]["because"], "incident-42");
    assert_eq!(found["paused"][0]["by"], "auditor");
    assert_eq!(found["paused"][0]["operator"], Value::Null);
    let keys = |part: &str| -> Vec<Value> {
        let all = found[part].as_array().expect("a list").iter();
        all.map(|one| one["idempotency_key"].clone()).collect()
    };
    assert_eq!(keys("in_flight"), Vec::<Value>::new());
    assert_eq!(keys("in_doubt"), ["SO-1:hold", "SO-3:refund"]);
    assert_eq!(keys("awaiting_approval"), ["SO-4:release"]);
    assert_eq!(keys("alerts"), ["SO-3:refund"]);
    let limits = &found["limits"];
    assert_eq!(limits["refused"][0]["rule"], "holds");
    assert_eq!(limits["refused"][0]["count"], 1);
    assert_eq!(limits["is_complete"], true);
    assert_eq!(found["log"]["size"], json!(receipts.len()));
    let said = project.run(&["status"]).ended(0);
    for words in [
        "everything, by auditor at ",
        ": incident-42",
        "2: `SO-1:hold`, `SO-3:refund`",
        "see `operators doubts list`",
        "1: `SO-4:release` wait for a person",
        "1: `SO-3:refund` stand",
        "rule `holds` refused 1 in the last hour",
        "the last checkpoint signed here is over",
    ] {
        assert!(said.stdout.contains(words), "no `{words}` in {said:#?}");
    }
    // It acts on nothing: not even the trail grew.
    assert_eq!(project.receipts(), receipts);
    let doctor = project.run(&["doctor"]).ended(0);
    let words = "paused: everything, by auditor at ";
    assert!(doctor.stdout.contains(words), "{doctor:#?}");
    project.run(&["resume"]).ended(0);
    assert_eq!(status(&project)["paused"], json!([]));
    let doctor = project.run(&["doctor"]).ended(0);
    let words = "nothing of tenant `acme` is paused";
    assert!(doctor.stdout.contains(words), "{doctor:#?}");
}

#[test]
fn every_nothing_names_what_was_looked_at() {
    let project = Project::with_file();
    let said = project.run(&["status"]).ended(0);
    said.tells("is not there yet");
    project.is_untouched();
    project.plan(&json!([hold("SO-1")])).ended(0);
    let said = project.run(&["status"]).ended(0);
    for words in [
        "store.db`, tenant `acme`",
        "nothing: no pause of the tenant stands",
        "nothing: no attempt at a key of the tenant is without an end",
        "nothing: no key of the tenant is in doubt",
        "nothing: no question of the tenant is open",
        "nothing: no alert of the tenant is unacknowledged",
        "none refused anything: no receipt since ",
        "1 receipts, root ",
        "the last checkpoint signed here is over 1",
    ] {
        assert!(said.stdout.contains(words), "no `{words}` in {said:#?}");
    }
}
