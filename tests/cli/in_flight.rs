//! Attempts in flight: looking tells what is so and writes nothing, and an answer waits for its
//! owner's end.

use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

use operators::{Reason, ReceiptOutcome};
use serde_json::{Value, json};

use crate::every_store::on_every_store;
use crate::support::{Project, Running, Said, action};
use crate::vendor::{Gate, Vendor};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

const KEY: &str = "SO-1:release";

/// `orders.release` on SO-1: opaque, and lands within 100 ms or never.
fn release() -> Value {
    action("orders.release", "SO-1", json!({"order": "SO-1"}))
}

/// Any other action on the entity.
fn refund() -> Value {
    action("orders.refund", "SO-1", json!({}))
}

/// The configuration of a shop whose calls may take as long as a test needs.
fn config(vendor: &Vendor) -> String {
    vendor.config().replace("'100ms'", "'60s'")
}

/// A run whose request reached the vendor, which does not answer.
fn in_mid_call(project: &Project, vendor: &Vendor) -> Running {
    let args = ["run", "--once", "--json", "--plan", "-"];
    let plan = json!([release()]).to_string();
    let running = Running::start(&mut project.command(&args), Some(plan.as_bytes()));
    vendor.wait_for(1);
    running
}

/// The same, killed.
fn left_behind(config: impl Fn(&Vendor) -> String) -> (Project, Vendor, Gate) {
    let (vendor, gate) = Vendor::gated();
    let project = Project::with(&config(&vendor));
    kill_in_mid_call(&project, &vendor);
    (project, vendor, gate)
}

fn kill_in_mid_call(project: &Project, vendor: &Vendor) {
    let mut running = in_mid_call(project, vendor);
    running.child.kill().expect("a child of ours");
    assert_eq!(running.end().code, None);
}

fn resolve(project: &Project, answer: &str) -> Said {
    let because = ["--because", "asked the vendor"];
    project.run(&[&["doubts", "resolve", KEY, answer][..], &because].concat())
}

/// What `doubts list --json` shows, one attempt in flight.
fn flight(project: &Project) -> Value {
    let mut found: Vec<Value> = project.run(&["doubts", "list", "--json"]).ended(0).lines();
    assert_eq!(found.len(), 1, "{found:#?}");
    found.remove(0)
}

fn forecast(project: &Project, plan: &Value) -> Said {
    let args = ["run", "--once", "--dry-run", "--json", "--plan", "-"];
    project.run_with_stdin(&args, plan.to_string())
}

fn forecasts(said: &Said) -> Vec<Value> {
    serde_json::from_str(&said.stdout).expect("one array")
}

/// What the doctor found about doubts.
fn doubts_by_the_doctor(project: &Project) -> Vec<String> {
    let findings: Vec<Value> = project.run(&["doctor", "--json"]).ended(0).lines();
    let doubts = findings.iter().filter(|one| one["check"] == "doubts");
    let text = |field: &Value| field.as_str().expect("text").to_owned();
    let told = doubts.map(|one| format!("{}: {}", text(&one["health"]), text(&one["told"])));
    told.collect()
}

/// Rule 4.14. It said "every outcome of tenant `acme` is known" until somebody ran again.
#[test]
fn what_a_killed_run_left_is_shown_by_looking_alone() {
    let (project, _vendor, _gate) = left_behind(Vendor::config);
    let said = project.run(&["doubts", "list"]).ended(0);
    for words in [KEY, "shop:orders.release", "owner gone"] {
        assert!(said.stdout.contains(words), "no `{words}` in {said:#?}");
    }
    said.tells("1 in flight (1 owner gone)");
    said.tells("a doubt that lacks only its record");
    said.tells("operators doubts resolve SO-1:release --applied --because");
    let found = flight(&project);
    assert_eq!(found["state"], "in_flight");
    assert_eq!(found["owner"], "gone");
    assert_eq!(
        doubts_by_the_doctor(&project),
        ["note: 1 in flight (1 owner gone) for tenant `acme`; see `operators doubts list`"]
    );
    // A forecast takes it for the doubt that it is.
    let said = forecast(&project, &json!([release()])).ended(4);
    assert_eq!(forecasts(&said)[0]["reason"], "in_doubt");
    let said = forecast(&project, &json!([refund()])).ended(3);
    assert_eq!(forecasts(&said)[0]["reason"], "entity_in_doubt");
    // Nothing of that wrote anything.
    assert_eq!(project.receipts(), []);
    let said = project.run(&["keys", "show", KEY, "--json"]).ended(0);
    assert!(said.stdout.contains("\"phase\": \"intent\""), "{said:#?}");
}

/// Rule 4.14: the run after it does what the forecast said.
#[test]
fn a_forecast_of_what_a_killed_run_left_comes_true() {
    let (project, vendor, _gate) = left_behind(Vendor::config);
    let plan = json!([release(), refund()]);
    let reasons: Vec<Value> = forecasts(&forecast(&project, &plan).ended(4))
        .iter()
        .map(|one| one["reason"].clone())
        .collect();
    assert_eq!(reasons, ["in_doubt", "entity_in_doubt"]);
    let done = project.plan(&plan).ended(4).results();
    let done: Vec<_> = done.iter().map(|one| one.reason).collect();
    assert_eq!(done, [Some(Reason::InDoubt), Some(Reason::EntityInDoubt)]);
    assert_eq!(vendor.requests().len(), 1);
}

/// Rule 4.14: nobody had to run anything in between.
#[test]
fn what_a_killed_run_left_can_be_answered_at_once() {
    let (project, vendor, _gate) = left_behind(Vendor::config);
    let said = resolve(&project, "--applied").ended(0);
    assert_eq!(said.stdout, "SO-1:release: applied\n");
    said.tells("is gone: it is recorded as a doubt now");
    let outcomes: Vec<_> = project.receipts().iter().map(|one| one.outcome).collect();
    assert_eq!(
        outcomes,
        [Some(ReceiptOutcome::InDoubt), Some(ReceiptOutcome::Applied)]
    );
    let said = project.plan(&json!([release()])).ended(0);
    assert_eq!(said.decisions(), ["DEDUP"]);
    assert_eq!(vendor.requests().len(), 1);
    let said = project.run(&["doubts", "list"]).ended(0);
    said.tells("nothing is in flight and nothing in doubt in sqlite store");
    said.tells("every outcome of tenant `acme` is known");
}

/// Rules 4.14, 4.6: that its owner is dead does not mean that its request cannot land.
#[test]
fn not_applied_is_believed_no_sooner_of_a_killed_run() {
    let (project, vendor, _gate) = left_behind(config);
    let said = resolve(&project, "--not-applied").ended(3);
    said.tells("may still land for");
    let outcomes: Vec<_> = project.receipts().iter().map(|one| one.outcome).collect();
    assert_eq!(outcomes, [Some(ReceiptOutcome::InDoubt)]);
    assert_eq!(vendor.requests().len(), 1);
}

/// Rule 4.14: who is at work is asked for nothing, and nothing is taken from it.
#[test]
fn what_is_at_work_is_in_flight_and_cannot_be_answered() {
    let (vendor, gate) = Vendor::gated();
    let project = Project::with(&config(&vendor));
    let running = in_mid_call(&project, &vendor);
    let found = flight(&project);
    assert_eq!(found["owner"], "alive");
    let node = format!("operators:{}", running.child.id());
    assert_eq!(found["node"], json!(node));
    let said = project.run(&["doubts", "list"]).ended(0);
    said.tells("its process is at work and will say how it ended");
    assert!(!said.stderr.contains("doubts resolve"), "{said:#?}");
    let said = resolve(&project, "--applied").ended(3);
    said.tells("refused: key `SO-1:release` is in flight");
    said.tells(&format!("`{node}`, which made it, is alive"));
    let told = doubts_by_the_doctor(&project);
    assert!(told[0].contains("1 owner alive"), "{told:?}");
    for plan in [json!([release()]), json!([refund()])] {
        let said = forecast(&project, &plan).ended(0);
        let waits_for = &forecasts(&said)[0]["waits_for"];
        assert_eq!(waits_for["idempotency_key"], KEY);
        assert_eq!(waits_for["owner"], "alive");
    }
    let args = ["run", "--once", "--dry-run", "--plan", "-"];
    let said = project.run_with_stdin(&args, json!([refund()]).to_string());
    said.tells("0 would be sent, 0 deduplicated, 0 refused, 1 would wait for what is in flight");
    assert_eq!(project.receipts(), []);
    gate.open();
    assert_eq!(running.end().ended(0).decisions(), ["ALLOW"]);
    is_all_known(&project);
}

#[track_caller]
fn is_all_known(project: &Project) {
    let found: Vec<Value> = project.run(&["doubts", "list", "--json"]).ended(0).lines();
    assert_eq!(found, Vec::<Value>::new());
}

/// Rule 4.14: it was silent for as long as the other took.
#[test]
fn a_run_says_what_it_waits_for() {
    let (vendor, gate) = Vendor::gated();
    let project = Project::with(&config(&vendor));
    let first = in_mid_call(&project, &vendor);
    project.write("refund.json", json!([refund()]).to_string());
    let told = project.path("told");
    let args = ["run", "--once", "--plan", "refund.json"];
    let second = project
        .command(&args)
        .stdout(Stdio::null())
        .stderr(File::create(&told).expect("writable"))
        .spawn();
    let mut second = second.expect("the command starts");
    let words = "`SO-1:refund` waits for key `SO-1:release`, in flight for ";
    let start = Instant::now();
    while !project.read("told").contains(words) {
        assert!(start.elapsed() < PATIENCE, "{}", project.read("told"));
        std::thread::sleep(Duration::from_millis(50));
    }
    let node = format!("`operators:{}`, which made it, is alive", first.child.id());
    assert!(project.read("told").contains(&node));
    gate.open();
    gate.open();
    first.end().ended(0);
    assert!(second.wait().expect("a child of ours").success());
    assert_eq!(vendor.requests().len(), 2);
}

/// Rule 4.14, on every store: gone where it can be told, and not known yet where it cannot.
#[test]
fn on_every_store_looking_tells_what_is_so() {
    on_every_store(|project, name| {
        let (vendor, _gate) = Vendor::gated();
        let store = project.read("operators.toml");
        let store = store.split_once("[store]").map_or("", |(_, store)| store);
        let config = vendor.config();
        let config = format!("{config}[store]{store}\nlease = '3s'\n");
        project.write("operators.toml", config);
        kill_in_mid_call(project, &vendor);
        let mut found = flight(project);
        if name == "dynamodb" {
            assert_eq!(found["owner"], "not_known_yet", "{name}: {found:#?}");
            let said = project.run(&["doubts", "list"]).ended(0);
            assert!(said.stdout.contains("owner not known yet"), "{said:#?}");
            // The next command counts the lease anew: it said "1s left" for five minutes.
            said.tells("at the latest five minutes after it");
            let said = resolve(project, "--applied").ended(3);
            said.tells("is gone is not known before its lease ends, in ");
            said.tells("at the latest, once the dates of the store's answers show it");
            said.tells("`--wait` goes on looking until then");
            let said = forecast(project, &json!([refund()])).ended(0);
            let refund = &forecasts(&said)[0];
            assert_eq!(refund["ok"], false, "{said:#?}");
            assert_eq!(refund["waits_for"]["owner"], "not_known_yet");
            assert_eq!(project.receipts(), []);
            return;
        }
        let start = Instant::now();
        while found["owner"] != "gone" {
            assert_eq!(found["owner"], "not_known_yet", "{name}: {found:#?}");
            assert!(start.elapsed() < PATIENCE, "{name}: {found:#?}");
            found = flight(project);
        }
        assert_eq!(project.receipts(), [], "{name}");
        forecast(project, &json!([release()])).ended(4);
        resolve(project, "--applied").ended(0);
        is_all_known(project);
    });
}
