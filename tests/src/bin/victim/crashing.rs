//! Places to die on the path of an action, and the wrappers of policy and connector that have them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use operators_kernel::{
    Call, Connector, ConnectorError, InvokeOutcome, ProbeOutcome, Ruling, TrustPolicy,
    TrustQuestion, Work,
};
use operators_tests::proxy::{Fate, Proxy};
use operators_tests::sink;

use crate::options::Options;

/// Between two looks at something that is about to happen.
const LOOK_PAUSE: Duration = Duration::from_micros(200);

/// The requests that commit a claim or a settlement, by store: a function of the schema in a
/// statement of its own or at the end of a transaction, and a transaction that is one request.
const COMMITS: [&str; 4] = ["claim", "settle", "write", "TransactWriteItems"];

/// A place on the path of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// The plan is read, nothing was proposed.
    AfterParse,
    /// Its turn in this process came; the store was not asked.
    AfterTurn,
    /// Trust has spoken.
    AfterGate,
    /// The store is about to be asked.
    BeforeClaim,
    /// Some time after the store was asked.
    DuringClaim,
    /// The claim is being written to the disk, or has just been handed to the server.
    InsideClaim,
    /// The intent is durable; nobody knows yet.
    AfterClaim,
    /// The connector is about to be called.
    BeforeSend,
    /// Some time after the connector was called.
    DuringSend,
    /// The request reached the vendor; it has no effect yet.
    AfterSend,
    /// The vendor applied it; no answer came yet.
    AfterApplied,
    /// The answer is there.
    AfterAnswer,
    /// The outcome is about to be recorded.
    BeforeSettle,
    /// Some time after the settlement was handed over.
    DuringSettle,
    /// The settlement is being written to the disk, or has just been handed to the server.
    InsideSettle,
    /// The outcome is recorded; nobody knows yet.
    AfterSettle,
    /// The result is there, nobody was told.
    BeforeReply,
    /// Some time after a heartbeat was handed over.
    DuringHeartbeat,
}

impl Point {
    /// The point of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "after-parse" => Self::AfterParse,
            "after-turn" => Self::AfterTurn,
            "after-gate" => Self::AfterGate,
            "before-claim" => Self::BeforeClaim,
            "during-claim" => Self::DuringClaim,
            "inside-claim" => Self::InsideClaim,
            "after-claim" => Self::AfterClaim,
            "before-send" => Self::BeforeSend,
            "during-send" => Self::DuringSend,
            "after-send" => Self::AfterSend,
            "after-applied" => Self::AfterApplied,
            "after-answer" => Self::AfterAnswer,
            "before-settle" => Self::BeforeSettle,
            "during-settle" => Self::DuringSettle,
            "inside-settle" => Self::InsideSettle,
            "after-settle" => Self::AfterSettle,
            "before-reply" => Self::BeforeReply,
            "during-heartbeat" => Self::DuringHeartbeat,
            _ => return None,
        })
    }
}

/// Which passage of which point ends it.
#[derive(Debug, Clone, Copy)]
pub struct Wire {
    /// The point.
    pub point: Point,
    /// The passage, from 1.
    pub nth: usize,
    /// For points named `during`: how long after.
    pub pause: Duration,
}

/// Where this process dies and where it freezes.
#[derive(Debug)]
pub struct Wires {
    laid: Vec<(Wire, Signal, AtomicUsize)>,
    inside: Inside,
    store_url: String,
}

/// What shows that a commit is under way.
#[derive(Debug)]
enum Inside {
    /// The write-ahead log of a file, which grows.
    Log(PathBuf),
    /// A proxy before a server, which sees the request that commits.
    Wire(Proxy),
    /// Nobody wants to know.
    Unwatched,
}

impl Wires {
    /// As the options say.
    pub fn new(options: &Options) -> Self {
        let crash = options.crash.map(|wire| (wire, Signal::SIGKILL));
        let freeze = options.freeze.map(|wire| (wire, Signal::SIGSTOP));
        let laid: Vec<_> = [crash, freeze]
            .into_iter()
            .flatten()
            .map(|(wire, signal)| (wire, signal, AtomicUsize::new(0)))
            .collect();
        let is_inside = |point: Point| matches!(point, Point::InsideClaim | Point::InsideSettle);
        let inside = if let Some(path) = options.store.strip_prefix("sqlite:") {
            Inside::Log(PathBuf::from(format!("{path}-wal")))
        } else if laid.iter().any(|(wire, ..)| is_inside(wire.point)) {
            Inside::Wire(Proxy::before(&options.store))
        } else {
            Inside::Unwatched
        };
        let store_url = match &inside {
            Inside::Wire(proxy) => proxy.url().to_owned(),
            Inside::Log(_) | Inside::Unwatched => options.store.clone(),
        };
        Self {
            laid,
            inside,
            store_url,
        }
    }

    /// The store's URL, by way of the proxy if there is one.
    pub fn store_url(&self) -> &str {
        &self.store_url
    }

    /// Passes a point, possibly not.
    pub fn pass(&self, point: Point) {
        if let Some((_, signal)) = self.trips(point) {
            raise(signal);
        }
    }

    /// Counts a passage; the wire, if it is the one.
    fn trips(&self, point: Point) -> Option<(Duration, Signal)> {
        let (wire, signal, passed) = self.laid.iter().find(|(wire, ..)| wire.point == point)?;
        let is_it = passed.fetch_add(1, Ordering::SeqCst) + 1 == wire.nth;
        is_it.then_some((wire.pause, *signal))
    }

    /// Dies some time after `work` was handed over, whether or not it is done by then.
    pub async fn pass_during<T>(&self, point: Point, work: impl Future<Output = T>) -> T {
        let Some((pause, signal)) = self.trips(point) else {
            return work.await;
        };
        // A thread sleeps more exactly than a timer of the runtime.
        let over = tokio::task::spawn_blocking(move || std::thread::sleep(pause));
        die_beside(work, over, signal).await
    }

    /// Dies in the middle of a commit: when the store's log grows, or when the server was handed all
    /// of the request that commits and nothing of its answer was read. What the server then does
    /// with it happens after the death.
    pub async fn pass_inside<T>(&self, point: Point, work: impl Future<Output = T>) -> T {
        let Some((_, signal)) = self.trips(point) else {
            return work.await;
        };
        let over = match &self.inside {
            Inside::Log(log) => {
                let log = log.clone();
                let length = move || std::fs::metadata(&log).map_or(0, |found| found.len());
                let before = length();
                tokio::task::spawn_blocking(move || {
                    while length() == before {
                        std::hint::spin_loop();
                    }
                    raise(signal);
                })
            }
            Inside::Wire(proxy) => {
                let mut dies = Some(move || raise(signal));
                proxy.rule(move |name| {
                    let dies = COMMITS.contains(&name).then(|| dies.take()).flatten();
                    dies.map_or(Fate::Pass, |dies| Fate::Then(Box::new(dies)))
                });
                tokio::spawn(std::future::pending())
            }
            Inside::Unwatched => unreachable!("an inside point is watched"),
        };
        die_beside(work, over, signal).await
    }
}

/// Polls `work` and then dies when `over` ends; `work` itself may end before, and dies too.
async fn die_beside<T>(
    work: impl Future<Output = T>,
    over: tokio::task::JoinHandle<()>,
    signal: Signal,
) -> T {
    tokio::pin!(work);
    tokio::select! {
        biased;
        done = &mut work => {
            raise(signal);
            done
        }
        _ = over => {
            raise(signal);
            work.await
        }
    }
}

fn raise(signal: Signal) {
    kill(Pid::this(), signal).expect("one may signal oneself");
    // It takes effect a moment later, on this thread or another; this one must not go on before.
    let moment = Duration::from_millis(if signal == Signal::SIGKILL {
        60_000
    } else {
        20
    });
    std::thread::sleep(moment);
}

/// A policy with places to die around its decision.
#[derive(Debug)]
pub struct CrashingPolicy<P> {
    inner: P,
    wires: Arc<Wires>,
}

impl<P> CrashingPolicy<P> {
    /// Wraps a policy.
    pub fn new(inner: P, wires: Arc<Wires>) -> Self {
        Self { inner, wires }
    }
}

impl<P: TrustPolicy> TrustPolicy for CrashingPolicy<P> {
    fn evaluate(&self, question: &TrustQuestion<'_>) -> Ruling {
        self.wires.pass(Point::AfterTurn);
        let ruling = self.inner.evaluate(question);
        self.wires.pass(Point::AfterGate);
        ruling
    }

    fn evaluate_read(&self, question: &TrustQuestion<'_>) -> Ruling {
        self.inner.evaluate_read(question)
    }
}

/// What a connector changes, to see when it did.
#[derive(Debug, Clone)]
pub enum Outside {
    /// The sink at this port.
    Sink(u16),
    /// A file that grows.
    File(String),
}

/// A connector with places to die around its call.
#[derive(Debug)]
pub struct CrashingConnector {
    inner: Arc<dyn Connector>,
    wires: Arc<Wires>,
    outside: Outside,
}

impl CrashingConnector {
    /// Wraps a connector.
    pub fn new(inner: Arc<dyn Connector>, wires: Arc<Wires>, outside: Outside) -> Self {
        Self {
            inner,
            wires,
            outside,
        }
    }

    /// Makes the call and dies, whatever its answer, once the outside says `word` about it.
    async fn die_when(&self, call: &Call, word: &'static str, signal: Signal) -> InvokeOutcome {
        let key = call.downstream_key.clone();
        let over = match &self.outside {
            Outside::Sink(port) => {
                let port = *port;
                tokio::task::spawn_blocking(move || {
                    let path = format!("/seen?key={key}");
                    let said = format!("\"{word}\":true");
                    while !sink::ask(port, "GET", &path).is_ok_and(|seen| seen.contains(&said)) {
                        std::thread::sleep(LOOK_PAUSE);
                    }
                })
            }
            Outside::File(path) => {
                let path = path.clone();
                let length = move || std::fs::metadata(&path).map_or(0, |found| found.len());
                let before = length();
                tokio::task::spawn_blocking(move || while length() == before {})
            }
        };
        die_beside(self.inner.invoke(call), over, signal).await
    }
}

#[async_trait]
impl Connector for CrashingConnector {
    async fn invoke(&self, call: &Call) -> InvokeOutcome {
        self.wires.pass(Point::BeforeSend);
        let outcome = if let Some((_, signal)) = self.wires.trips(Point::AfterSend) {
            self.die_when(call, "arrived", signal).await
        } else if let Some((_, signal)) = self.wires.trips(Point::AfterApplied) {
            self.die_when(call, "applied", signal).await
        } else {
            let sending = self.inner.invoke(call);
            self.wires.pass_during(Point::DuringSend, sending).await
        };
        self.wires.pass(Point::AfterAnswer);
        outcome
    }

    fn prepare(&self, call: &Call) -> Result<Arc<dyn Work>, ConnectorError> {
        self.wires.pass(Point::BeforeSend);
        let prepared = self.inner.prepare(call);
        self.wires.pass(Point::AfterAnswer);
        prepared
    }

    async fn probe(&self, call: &Call) -> ProbeOutcome {
        self.inner.probe(call).await
    }
}
