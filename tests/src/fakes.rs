//! Stand-ins for the seams that a test drives by hand: a clock, a connector, policies.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use operators_kernel::{
    Call, Clock, Connector, ConnectorError, Effect, IdKind, InvokeOutcome, ProbeOutcome, Ruling,
    Text, Timestamp, TrustDecision, TrustPolicy, TrustQuestion,
};
use serde_json::json;
use tokio::sync::Semaphore;

mod faulty;

pub use faulty::{Fault, FaultyExec, Op};

/// What happened, in order, told by all the fakes that share it.
#[derive(Debug, Clone, Default)]
pub struct Trace(Arc<Mutex<Vec<String>>>);

impl Trace {
    /// Writes one line.
    pub fn note(&self, line: impl Into<String>) {
        self.0.lock().expect("trace").push(line.into());
    }

    /// Every line so far, and forgets them.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("trace"))
    }
}

/// A clock that is the runtime's own, which a test may pause: the same run tells the same times.
#[derive(Debug)]
pub struct RuntimeClock {
    start: tokio::time::Instant,
    ids: AtomicU64,
}

impl RuntimeClock {
    /// Starts now.
    pub fn start() -> Self {
        Self {
            start: tokio::time::Instant::now(),
            ids: AtomicU64::new(0),
        }
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        let micros = i64::try_from(self.monotonic().as_micros()).expect("a short test");
        Timestamp::from_micros(1_700_000_000_000_000 + micros)
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn id(&self, kind: IdKind) -> Text {
        numbered(kind, &self.ids)
    }
}

fn numbered(kind: IdKind, ids: &AtomicU64) -> Text {
    let number = ids.fetch_add(1, Ordering::SeqCst) + 1;
    format!("{}{number:06}", kind.prefix()).into()
}

/// A clock that stands still until it is moved, and counts its ids.
#[derive(Debug, Default)]
pub struct TestClock {
    micros: AtomicU64,
    ids: AtomicU64,
}

impl TestClock {
    /// Moves wall and monotonic time forward.
    pub fn advance(&self, span: Duration) {
        let micros = u64::try_from(span.as_micros()).expect("a short span");
        self.micros.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let micros = i64::try_from(self.micros.load(Ordering::SeqCst)).expect("a short test");
        Timestamp::from_micros(1_700_000_000_000_000 + micros)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::SeqCst))
    }

    fn id(&self, kind: IdKind) -> Text {
        numbered(kind, &self.ids)
    }
}

/// What a scripted call does.
#[derive(Debug, Clone)]
pub enum Act {
    /// Takes effect and says so.
    Apply,
    /// Takes effect and answers this.
    ApplyWith(serde_json::Value),
    /// Does nothing and says so.
    Refuse,
    /// Takes effect and says that it does not know.
    ApplyThenUnknown,
    /// Does nothing and says that it does not know.
    Unknown,
    /// Takes effect and panics.
    ApplyThenPanic,
    /// Takes effect and never answers.
    ApplyThenHang,
    /// Waits for a permit of [`ScriptedConnector::gate`], then takes effect.
    Wait,
    /// As `Wait`, and then takes effect only if the call's own permit still says so.
    WaitThenAsk,
}

/// A connector that does as its script says, and counts. Counts are for tests of one process;
/// wherever processes are killed, a sink in another process counts.
#[derive(Debug)]
pub struct ScriptedConnector {
    script: Mutex<VecDeque<Act>>,
    calls: Mutex<Vec<Call>>,
    applied: Mutex<Vec<Call>>,
    probes: Mutex<VecDeque<ProbeOutcome>>,
    inside: AtomicUsize,
    most_inside: AtomicUsize,
    /// Permits for [`Act::Wait`].
    pub gate: Arc<Semaphore>,
}

impl Default for ScriptedConnector {
    fn default() -> Self {
        Self {
            script: Mutex::default(),
            calls: Mutex::default(),
            applied: Mutex::default(),
            probes: Mutex::default(),
            inside: AtomicUsize::new(0),
            most_inside: AtomicUsize::new(0),
            gate: Arc::new(Semaphore::new(0)),
        }
    }
}

impl ScriptedConnector {
    /// What the next calls do, in order; after that every call applies.
    pub fn then(&self, acts: impl IntoIterator<Item = Act>) {
        self.script.lock().expect("script").extend(acts);
    }

    /// What the next probes find, in order; after that they cannot tell.
    pub fn probes_find(&self, found: impl IntoIterator<Item = ProbeOutcome>) {
        self.probes.lock().expect("probes").extend(found);
    }

    /// Every call that arrived, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("calls").clone()
    }

    /// Every call that took effect, in order.
    pub fn applied(&self) -> Vec<Call> {
        self.applied.lock().expect("applied").clone()
    }

    /// The most calls that were inside at once.
    pub fn most_at_once(&self) -> usize {
        self.most_inside.load(Ordering::SeqCst)
    }

    fn apply(&self, call: &Call) {
        self.applied.lock().expect("applied").push(call.clone());
    }
}

/// Counts a call out, also when it panics or is dropped.
struct Inside<'a>(&'a AtomicUsize);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Connector for ScriptedConnector {
    async fn invoke(&self, call: &Call) -> InvokeOutcome {
        let now_inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        let _inside = Inside(&self.inside);
        self.most_inside.fetch_max(now_inside, Ordering::SeqCst);
        self.calls.lock().expect("calls").push(call.clone());
        let act = self.script.lock().expect("script").pop_front();
        // A real call takes a moment: overlap, if any were possible, would show.
        tokio::task::yield_now().await;
        let done = |result: serde_json::Value| InvokeOutcome::Applied(Effect::of(result));
        match act.unwrap_or(Act::Apply) {
            Act::Apply => {
                self.apply(call);
                done(json!({"status": "done"}))
            }
            Act::ApplyWith(result) => {
                self.apply(call);
                done(result)
            }
            Act::Refuse => InvokeOutcome::NotApplied(ConnectorError::new("the vendor said no")),
            Act::ApplyThenUnknown => {
                self.apply(call);
                InvokeOutcome::Unknown(ConnectorError::new("the answer was lost"))
            }
            Act::Unknown => InvokeOutcome::Unknown(ConnectorError::new("the answer was lost")),
            Act::ApplyThenPanic => {
                self.apply(call);
                panic!("scripted panic")
            }
            Act::ApplyThenHang => {
                self.apply(call);
                pending().await
            }
            Act::WaitThenAsk => {
                self.gate.acquire().await.expect("open").forget();
                if let Err(error) = call.permit.confirm().await {
                    return InvokeOutcome::NotApplied(error);
                }
                self.apply(call);
                done(json!({"status": "done"}))
            }
            Act::Wait => {
                self.gate.acquire().await.expect("open").forget();
                self.apply(call);
                done(json!({"status": "done"}))
            }
        }
    }

    async fn probe(&self, _call: &Call) -> ProbeOutcome {
        let found = self.probes.lock().expect("probes").pop_front();
        found.unwrap_or_else(|| ProbeOutcome::Unknown(ConnectorError::new("cannot tell")))
    }
}

/// Lets everything through.
#[derive(Debug, Clone, Copy)]
pub struct AllowAll;

impl TrustPolicy for AllowAll {
    fn evaluate(&self, _question: &TrustQuestion<'_>) -> Ruling {
        ruling(TrustDecision::Allow)
    }

    fn evaluate_read(&self, _question: &TrustQuestion<'_>) -> Ruling {
        Ruling::of(TrustDecision::Allow)
    }
}

/// Answers the same to everything, and counts the questions. The answer can be changed.
#[derive(Debug)]
pub struct Says {
    decision: Mutex<TrustDecision>,
    asked: AtomicUsize,
}

impl Says {
    /// A policy that says this.
    pub fn new(decision: TrustDecision) -> Self {
        Self {
            decision: Mutex::new(decision),
            asked: AtomicUsize::new(0),
        }
    }

    /// From now on it says this.
    pub fn change(&self, decision: TrustDecision) {
        *self.decision.lock().expect("decision") = decision;
    }

    /// How often it was asked.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl TrustPolicy for Says {
    fn evaluate(&self, _question: &TrustQuestion<'_>) -> Ruling {
        self.asked.fetch_add(1, Ordering::SeqCst);
        ruling(*self.decision.lock().expect("decision"))
    }

    fn evaluate_read(&self, _question: &TrustQuestion<'_>) -> Ruling {
        Ruling::of(TrustDecision::Allow)
    }
}

/// Panics at every question.
#[derive(Debug, Clone, Copy)]
pub struct Panics;

impl TrustPolicy for Panics {
    fn evaluate(&self, _question: &TrustQuestion<'_>) -> Ruling {
        panic!("scripted policy panic")
    }

    fn evaluate_read(&self, _question: &TrustQuestion<'_>) -> Ruling {
        panic!("scripted policy panic")
    }
}

fn ruling(decision: TrustDecision) -> Ruling {
    Ruling {
        rule: Some("the test's rule".into()),
        ..Ruling::of(decision)
    }
}
