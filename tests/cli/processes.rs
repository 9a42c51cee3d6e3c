//! Several commands at once, signals, and one that dies.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use operators::{Disposition, ReceiptOutcome};
use operators_tests::postgres::{self, Database};
use serde_json::{Value, json};
use sqlx::Row as _;

use crate::support::{Project, Running, hold};
use crate::vendor::{Answer, Vendor};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

fn start(project: &Project, plan: &Value) -> Running {
    let args = ["run", "--once", "--json", "--plan", "-"];
    Running::start(
        &mut project.command(&args),
        Some(plan.to_string().as_bytes()),
    )
}

fn signal(running: &Running, signal: Signal) {
    let pid = Pid::from_raw(running.child.id().try_into().expect("a process id"));
    kill(pid, signal).expect("a child of ours");
}

#[test]
fn two_runs_at_once_on_one_project_have_each_effect_once() {
    // rule 2.1, 3.8: the vendor counts, and the store is made by whoever comes first.
    let vendor = Vendor::start(|_| {
        std::thread::sleep(Duration::from_millis(20));
        Answer::well()
    });
    let project = Project::with(&vendor.config());
    let orders = ["SO-1", "SO-2", "SO-3", "SO-4", "SO-5", "SO-6"];
    let plan = json!(orders.map(hold));
    let runs = [
        start(&project, &plan),
        start(&project, &plan),
        start(&project, &plan),
    ];
    let mut allowed: BTreeMap<String, usize> = BTreeMap::new();
    for run in runs {
        for result in run.end().ended(0).results() {
            assert!(result.ok);
            let key = result.action.idempotency_key.to_string();
            *allowed.entry(key).or_default() += usize::from(result.decision == Disposition::Allow);
        }
    }
    assert!(allowed.values().all(|count| *count == 1), "{allowed:?}");
    assert_eq!(allowed.len(), orders.len());
    assert_eq!(vendor.requests().len(), orders.len());
    // rule 5.1
    assert_eq!(project.receipts().len(), 3 * orders.len());
}

#[test]
fn two_first_runs_of_the_example_leave_one_line_per_key() {
    let project = Project::example();
    let runs: Vec<Running> = (0..4)
        .map(|_| Running::start(&mut project.command(&["run", "--once", "--json"]), None))
        .collect();
    for run in runs {
        run.end().ended(0);
    }
    assert_eq!(project.effects().len(), 2);
    assert_eq!(project.receipts().len(), 12);
}

#[test]
fn an_interrupt_finishes_the_action_in_flight_and_proposes_no_more() {
    for wish in [Signal::SIGINT, Signal::SIGTERM] {
        let (vendor, gate) = Vendor::gated();
        let project = Project::with(&vendor.config());
        let running = start(&project, &json!([hold("SO-1"), hold("SO-2"), hold("SO-3")]));
        vendor.wait_for(1);
        signal(&running, wish);
        std::thread::sleep(Duration::from_millis(100));
        gate.open();
        let said = running.end().ended(1);
        said.tells("finishing the action in flight");
        said.tells("interrupted: 2 of 3 not proposed");
        assert_eq!(said.decisions(), ["ALLOW"]);
        assert!(said.results()[0].ok);
        assert_eq!(vendor.requests().len(), 1);
        let receipts = project.receipts();
        assert_eq!(receipts.len(), 1);
        assert_eq!(receipts[0].outcome, Some(ReceiptOutcome::Applied));
    }
}

#[test]
fn an_interrupt_during_the_last_action_leaves_nothing_undone() {
    let (vendor, gate) = Vendor::gated();
    let project = Project::with(&vendor.config());
    let running = start(&project, &json!([hold("SO-1")]));
    vendor.wait_for(1);
    signal(&running, Signal::SIGINT);
    std::thread::sleep(Duration::from_millis(100));
    gate.open();
    assert_eq!(running.end().ended(0).decisions(), ["ALLOW"]);
}

#[test]
fn a_second_interrupt_leaves_at_once_and_the_next_run_finds_a_doubt() {
    // rule 4.3: with a receipt for what it did not wait for.
    let (vendor, _gate) = Vendor::gated();
    let mut config = vendor.config();
    config.push_str("[store]\nlease = '1s'\n");
    let project = Project::with(&config);
    let running = start(&project, &json!([hold("SO-1"), hold("SO-2")]));
    vendor.wait_for(1);
    signal(&running, Signal::SIGINT);
    std::thread::sleep(Duration::from_millis(100));
    signal(&running, Signal::SIGINT);
    let said = running.end().ended(1);
    said.tells("`SO-1:hold` was at work: it may be in doubt now");
    let said = project.plan(&json!([hold("SO-1")])).ended(4);
    assert_eq!(said.decisions(), ["BLOCK"]);
    assert_eq!(vendor.requests().len(), 1, "never sent again");
    let outcomes: Vec<_> = project.receipts().iter().map(|one| one.outcome).collect();
    assert_eq!(
        outcomes,
        [Some(ReceiptOutcome::InDoubt), Some(ReceiptOutcome::Refused)]
    );
}

#[test]
fn a_run_that_is_killed_mid_call_leaves_a_doubt_not_a_second_effect() {
    // rule 2.9, 4.3
    let (vendor, _gate) = Vendor::gated();
    let mut config = vendor.config();
    config.push_str("[store]\nlease = '1s'\n");
    let project = Project::with(&config);
    let running = start(&project, &json!([hold("SO-1")]));
    vendor.wait_for(1);
    signal(&running, Signal::SIGKILL);
    assert_eq!(running.end().code, None);
    let said = project.plan(&json!([hold("SO-1")])).ended(4);
    assert_eq!(said.decisions(), ["BLOCK"]);
    assert_eq!(vendor.requests().len(), 1);
    project.run(&["doctor"]).ended(0);
}

/// Waits until a run waits in the store's queue.
fn wait_for_a_waiter(waiters: impl Fn() -> i64) {
    let start = Instant::now();
    while waiters() == 0 {
        assert!(start.elapsed() < PATIENCE, "nobody waits");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Interrupts a run that only waits behind another's call, and holds it to its word.
fn give_up_the_wait(project: &Project, vendor: &Vendor, waiters: impl Fn() -> i64) {
    let waits = start(project, &json!([hold("SO-1"), hold("SO-2")]));
    wait_for_a_waiter(waiters);
    signal(&waits, Signal::SIGINT);
    let said = waits.end().ended(1);
    said.tells(
        "`SO-1:hold` was given up before it was claimed: nothing that has an effect was sent",
    );
    said.tells("interrupted: 2 of 2 not proposed");
    assert!(!said.stderr.contains("finishing"), "{said:#?}");
    assert_eq!(vendor.requests().len(), 1, "{said:#?}");
}

/// Rule 2.7. It said "finishing the action in flight", and waited on.
#[test]
fn an_interrupt_gives_up_an_action_that_only_waits() {
    let (vendor, gate) = Vendor::gated();
    let project = Project::with(&vendor.config());
    let first = start(&project, &json!([hold("SO-1")]));
    vendor.wait_for(1);
    let file = rusqlite::Connection::open(project.path(".operators/store.db"));
    let file = file.expect("the store");
    let waiters = || {
        let counted = file.query_row("SELECT count(*) FROM waiter", [], |row| row.get(0));
        counted.expect("a count")
    };
    give_up_the_wait(&project, &vendor, waiters);
    gate.open();
    assert!(first.end().ended(0).results()[0].ok);
    assert_eq!(waiters(), 0, "its place was given back");
}

/// The same behind a process that was killed, for which Postgres has no other sign than its lease.
#[test]
fn an_interrupt_gives_up_a_wait_for_the_lease_of_the_dead() {
    let Some(server) = postgres::url() else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let database = runtime.block_on(Database::fresh(server));
    let url = database.url();
    let (vendor, _gate) = Vendor::gated();
    let project = Project::with(&format!("{}[store]\nurl = '{url}'\n", vendor.config()));
    let first = start(&project, &json!([hold("SO-1")]));
    vendor.wait_for(1);
    signal(&first, Signal::SIGKILL);
    assert_eq!(first.end().code, None);
    let count = "SELECT count(*) FROM operators.waiter";
    give_up_the_wait(&project, &vendor, || {
        runtime.block_on(postgres::run(&url, count))[0].get(0)
    });
}
