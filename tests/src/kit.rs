//! For those who write a connector in Rust: a vendor that misbehaves, and the contract to keep.
//!
//! Owns the truth a connector is held to: it may say "it happened" only if it did, "it did not"
//! only if it did not and never will, and it sends a request once. The vendor is the [`Sink`], a
//! process of its own that takes `POST /apply…` and counts effects; `GET /seen?key=KEY` tells
//! whether a request with that `x-downstream-key` took effect.

use std::time::Duration;

use operators_kernel::{
    Call, Connector, ConnectorName, EntityKey, IdempotencyKey, InvokeOutcome, ProbeOutcome,
    SendPermit, TenantId, ToolName,
};
use serde_json::{Map, Value};

use crate::sink::{Hit, Sink};

/// What a connector may say about a behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It happened.
    Applied,
    /// Provably, it did not.
    NotApplied,
    /// Nobody can know.
    Unknown,
}

/// One thing a vendor may do, how the sink is told to do it, and what must be made of it.
#[derive(Debug, Clone, Copy)]
pub struct Trial {
    /// What happens, in words.
    pub name: &'static str,
    /// In the sink's words.
    pub behaviour: &'static str,
    /// The one right answer.
    pub verdict: Verdict,
    /// Whether the world changes.
    pub takes_effect: bool,
}

const fn trial(
    name: &'static str,
    behaviour: &'static str,
    verdict: Verdict,
    takes_effect: bool,
) -> Trial {
    Trial {
        name,
        behaviour,
        verdict,
        takes_effect,
    }
}

/// Everything a vendor may do to a request that reached it.
pub const TRIALS: [Trial; 15] = [
    trial("answers", "", Verdict::Applied, true),
    trial("answers late", "after=20", Verdict::Applied, true),
    trial("refuses", "status=422", Verdict::NotApplied, false),
    trial(
        "fails by its own word",
        "status=500",
        Verdict::NotApplied,
        false,
    ),
    trial(
        "a proxy gives up on it",
        "status=504",
        Verdict::Unknown,
        false,
    ),
    trial(
        "hangs before applying",
        "status=503,then=hang",
        Verdict::Unknown,
        false,
    ),
    trial("hangs after applying", "then=hang", Verdict::Unknown, true),
    trial(
        "resets before applying",
        "status=503,then=reset",
        Verdict::Unknown,
        false,
    ),
    trial(
        "resets after applying",
        "then=reset",
        Verdict::Unknown,
        true,
    ),
    trial(
        "closes after applying",
        "then=close",
        Verdict::Unknown,
        true,
    ),
    trial(
        "truncates its answer",
        "then=truncate",
        Verdict::Unknown,
        true,
    ),
    trial(
        "sends no JSON in a 200",
        "then=garble",
        Verdict::Unknown,
        true,
    ),
    trial("redirects", "then=redirect", Verdict::Unknown, true),
    trial("dribbles", "then=dribble", Verdict::Unknown, true),
    trial("floods", "then=flood", Verdict::Unknown, true),
];

/// A call of that tool whose keys are the trial's own.
pub fn call(tool: &str, trial: &Trial, deadline: Duration) -> Call {
    let word = trial.name.replace(' ', "-");
    Call {
        tenant: TenantId::parse("kit").expect("a tenant"),
        operator: None,
        connector: ConnectorName::parse("kit").expect("a name"),
        tool: ToolName::parse(tool).expect("a name"),
        args: Map::from_iter([("order".to_owned(), Value::from("SO-1"))]).into(),
        entity_key: EntityKey::parse("order:SO-1").expect("a key"),
        idempotency_key: IdempotencyKey::parse(&word).expect("a key"),
        downstream_key: format!("{tool}-{word}"),
        attempt: 1,
        deadline,
        permit: SendPermit::always(),
    }
}

/// Holds a connector to the contract on every trial, and lists what it got wrong.
///
/// `tool` is one that calls the sink's `/apply`. A connector that can probe is asked after each
/// trial as well; it may not know, but it must not be wrong, and asking must change nothing.
pub async fn contract(
    sink: &Sink,
    connector: &dyn Connector,
    tool: &str,
    deadline: Duration,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let tenant = TenantId::parse("kit").expect("a tenant");
    let before = sink.hits().len();
    drop(connector.check(&tenant).await);
    if sink.hits().len() != before {
        wrong.push("a check reached the vendor as an effect".to_owned());
    }
    for trial in &TRIALS {
        let call = call(tool, trial, deadline);
        let before = sink.hits().len();
        sink.behave(1, trial.behaviour);
        // The executor gives up at the deadline and takes that for unknown.
        let outcome = tokio::time::timeout(deadline * 2, connector.invoke(&call)).await;
        let said = match outcome {
            Ok(InvokeOutcome::Applied(_)) => Verdict::Applied,
            Ok(InvokeOutcome::NotApplied(_)) => Verdict::NotApplied,
            Ok(InvokeOutcome::Unknown(_)) | Err(_) => Verdict::Unknown,
        };
        let hits = idle(sink).await;
        let name = trial.name;
        if said != trial.verdict {
            wrong.push(format!(
                "{name}: said {said:?}, right is {:?}",
                trial.verdict
            ));
        }
        if hits.len() != before + 1 {
            wrong.push(format!("{name}: {} requests", hits.len() - before));
        }
        let effects = hits
            .iter()
            .skip(before)
            .filter(|hit| hit.is_effect())
            .count();
        if effects != usize::from(trial.takes_effect) {
            wrong.push(format!("{name}: {effects} effects"));
        }
        match connector.probe(&call).await {
            ProbeOutcome::Applied(_) if !trial.takes_effect => {
                wrong.push(format!("{name}: the probe found what never happened"));
            }
            ProbeOutcome::NotApplied if trial.takes_effect => {
                wrong.push(format!("{name}: the probe missed what happened"));
            }
            ProbeOutcome::Applied(_) | ProbeOutcome::NotApplied | ProbeOutcome::Unknown(_) => {}
        }
        if sink.hits().len() != hits.len() {
            wrong.push(format!("{name}: the probe was an effect"));
        }
    }
    wrong
}

/// Waits until no request is under way, and lets the connector's own tasks run meanwhile: a
/// connection that was given up is closed by one of them.
async fn idle(sink: &Sink) -> Vec<Hit> {
    for _ in 0..2_000 {
        let hits = sink.hits();
        if hits.iter().all(|hit| hit.left_ns.is_some()) {
            return hits;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!(
        "the connector never let go of its request: {:#?}",
        sink.hits()
    );
}
