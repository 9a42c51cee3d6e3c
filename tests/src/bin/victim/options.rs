//! What a victim is told on its command line.

use std::time::Duration;

use operators_kernel::{ExecutionPlan, PlannedAction};
use operators_tests::fixtures;
use serde_json::json;

use crate::crashing::{Point, Wire};

/// The tool of every action.
pub const TOOL: &str = "orders.hold";

/// Everything a victim is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// The store's URL.
    pub store: String,
    /// The sink's port; without one, effects go to `file`.
    pub sink: Option<u16>,
    /// The file of the embedded connector.
    pub file: Option<String>,
    /// Where rows of the effect `sql` go instead of a file: a Postgres database.
    pub database: Option<String>,
    /// `opaque`, `keyed` or `probeable`; or the kind of another connector.
    pub effect: String,
    /// The name under which the store and the sink know this process.
    pub process: String,
    /// Whose plan it is.
    pub tenant: String,
    /// The plan's file.
    pub plan: Option<String>,
    /// `ACTIONS:ENTITIES:REPEATS:PREFIX`, a plan without a file.
    pub generate: Option<String>,
    /// All actions proposed at once, not one after the other.
    pub at_once: bool,
    /// Runs on the main thread alone, but for what a store does beside it.
    pub one_thread: bool,
    /// Waits for `go`.
    pub waits: bool,
    /// Proposes all at once and returns from `main` after this, whatever is in flight by then.
    pub leaves_after: Option<Duration>,
    /// The session's lease.
    pub lease: Duration,
    /// The call's deadline.
    pub timeout: Duration,
    /// How long an abandoned call may still land.
    pub max_land: Duration,
    /// For how long what is in doubt is proposed again.
    pub insist: Duration,
    /// What the sink is asked to do with every request.
    pub behave: String,
    /// Where to die.
    pub crash: Option<Wire>,
    /// Where to freeze.
    pub freeze: Option<Wire>,
}

impl Options {
    /// Reads `--name value` pairs; panics at anything else.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Self {
        let mut options = Self {
            store: String::new(),
            sink: None,
            file: None,
            database: None,
            effect: "opaque".to_owned(),
            process: std::process::id().to_string(),
            tenant: "acme".to_owned(),
            plan: None,
            generate: None,
            at_once: false,
            one_thread: false,
            waits: false,
            leaves_after: None,
            lease: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            max_land: Duration::ZERO,
            insist: Duration::ZERO,
            behave: String::new(),
            crash: None,
            freeze: None,
        };
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().expect("a value");
            match name.as_str() {
                "--store" => options.store = value(),
                "--sink" => options.sink = Some(value().parse().expect("a port")),
                "--file" => options.file = Some(value()),
                "--database" => options.database = Some(value()),
                "--effect" => options.effect = value(),
                "--process" => options.process = value(),
                "--tenant" => options.tenant = value(),
                "--plan" => options.plan = Some(value()),
                "--generate" => options.generate = Some(value()),
                "--at-once" => options.at_once = true,
                "--one-thread" => options.one_thread = true,
                "--wait" => options.waits = true,
                "--leave-after-ms" => options.leaves_after = Some(millis(&value())),
                "--lease-ms" => options.lease = millis(&value()),
                "--timeout-ms" => options.timeout = millis(&value()),
                "--max-land-ms" => options.max_land = millis(&value()),
                "--insist-ms" => options.insist = millis(&value()),
                "--behave" => options.behave = value(),
                "--crash" => options.crash = Some(wire(&value())),
                "--freeze" => options.freeze = Some(wire(&value())),
                other => panic!("unknown option `{other}`"),
            }
        }
        options
    }

    /// The plan's actions.
    pub fn actions(&self) -> Vec<PlannedAction> {
        if let Some(path) = &self.plan {
            let text = std::fs::read_to_string(path).expect("a plan file");
            return ExecutionPlan::parse(&text).expect("a valid plan").actions;
        }
        let shape = self.generate.as_deref().expect("--plan or --generate");
        let parts: Vec<&str> = shape.split(':').collect();
        let [actions, entities, repeats, prefix] = parts[..] else {
            panic!("not ACTIONS:ENTITIES:REPEATS:PREFIX: `{shape}`")
        };
        let number = |text: &str| text.parse::<usize>().expect("a number");
        let (actions, entities) = (number(actions), number(entities));
        let one = |n: usize| {
            let (entity, key) = (format!("order-{}", n % entities), format!("{prefix}-{n}"));
            fixtures::action(TOOL, &entity, &key, json!({"order": n}))
        };
        (0..number(repeats))
            .flat_map(|_| (0..actions).map(one))
            .collect()
    }
}

fn millis(text: &str) -> Duration {
    Duration::from_millis(text.parse().expect("milliseconds"))
}

/// `POINT:N` or `POINT:N:MICROS`.
fn wire(text: &str) -> Wire {
    let mut parts = text.split(':');
    let point = parts.next().and_then(Point::from_word);
    let nth = parts.next().and_then(|nth| nth.parse().ok());
    let micros = parts.next().map_or(Some(0), |micros| micros.parse().ok());
    Wire {
        point: point.unwrap_or_else(|| panic!("no such point: `{text}`")),
        nth: nth.expect("which passage"),
        pause: Duration::from_micros(micros.expect("microseconds")),
    }
}
