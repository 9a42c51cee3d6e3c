//! The order of the gates, top to bottom, and the task that owns the work.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dashmap::DashMap;
use futures_util::FutureExt;
use tokio::sync::oneshot;
use tracing::Instrument;

use crate::action::{ActionResult, ExecutionPlan, PlannedAction, Reason};
use crate::connector::Tool;
use crate::error::{ExecError, RunError};
use crate::gates::{Claiming, Reply, Turn};
use crate::kernel::{Kernel, in_time};
use crate::key::OperatorName;
use crate::keyless::Keyless;
use crate::lease::{Heartbeat, Lease};
use crate::namespace;
use crate::proposed::Proposed;
use crate::redact::Redaction;
use crate::setup::{OnFailure, Progress, RunContext, Seams, Settings};
use crate::single_flight::{Flights, Overloaded};

/// How often a stopping executor looks whether it is at rest.
const STOP_PAUSE: Duration = Duration::from_millis(2);

/// Disposes of plans: one action at a time per entity, at most one effect per key, only what trust
/// allows, a receipt for everything.
///
/// Must be used inside a tokio runtime, and may outlive it: used from another one, it gives up what
/// ended half-way with the first, as that of a dead process is. Dropping it stops its heartbeat once nothing is in flight;
/// [`stop`](Self::stop) ends its session in good order.
#[derive(Debug)]
pub struct DeterministicExecutor {
    kernel: Arc<Kernel>,
}

impl DeterministicExecutor {
    /// Opens a session in the store and keeps it alive.
    pub async fn start(seams: Seams, settings: Settings) -> Result<Self, ExecError> {
        let opening = Lease::open(
            Arc::clone(&seams.durable),
            Arc::clone(&seams.clock),
            settings.node.clone(),
            settings.lease,
        );
        let lease = in_time(&*seams.durable, settings.store_patience, opening).await?;
        let kernel = Arc::new(Kernel {
            flights: Flights::new(settings.waiters_max),
            seams,
            settings,
            lease: Arc::new(lease),
            redaction_keys: DashMap::default(),
        });
        keep_alive(&kernel.lease);
        Ok(Self { kernel })
    }

    /// Runs a plan's actions in order and awaits each. A failed action does not stop the plan.
    pub async fn run(
        &self,
        context: &RunContext,
        plan: &ExecutionPlan,
    ) -> Result<Vec<ActionResult>, RunError> {
        self.run_watched(context, plan, OnFailure::Continue, &mut |_| {})
            .await
    }

    /// As [`run`](Self::run), telling `watch` what happens.
    pub async fn run_watched(
        &self,
        context: &RunContext,
        plan: &ExecutionPlan,
        on_failure: OnFailure,
        watch: &mut (dyn FnMut(Progress<'_>) + Send),
    ) -> Result<Vec<ActionResult>, RunError> {
        let mut completed = Vec::with_capacity(plan.actions.len());
        if let Err(problem) = plan.check("/actions") {
            let source = problem.into();
            return Err(RunError { completed, source });
        }
        for (index, action) in plan.actions.iter().enumerate() {
            watch(Progress::Begins(index, action));
            match self.run_action(context, action.clone()).await {
                Ok(result) => {
                    watch(Progress::Ended(index, &result));
                    let stops = !result.ok && on_failure == OnFailure::Stop;
                    completed.push(result);
                    if stops {
                        break;
                    }
                }
                Err(source) => return Err(RunError { completed, source }),
            }
        }
        Ok(completed)
    }

    /// Runs one action through the gates.
    ///
    /// Dropping the future before its turn costs nothing. Once its turn has come the work belongs
    /// to the executor and goes on to its receipt, whoever still listens.
    pub async fn run_action(
        &self,
        context: &RunContext,
        action: PlannedAction,
    ) -> Result<ActionResult, ExecError> {
        let span = span_of(context, &action);
        let outcome = self
            .through_the_gates(context, action)
            .instrument(span.clone())
            .await;
        span.in_scope(|| match &outcome {
            Ok(result) => {
                span.record("attempt", result.attempt);
                span.record("decision", result.decision.as_str());
                let reason = result.reason.map(Reason::as_str);
                tracing::info!(ok = result.ok, reason, receipt_id = %result.receipt_id, "disposed");
            }
            Err(error) => tracing::warn!(%error, "not disposed"),
        });
        outcome.map(|result| *result)
    }

    async fn through_the_gates(
        &self,
        context: &RunContext,
        action: PlannedAction,
    ) -> Result<Box<ActionResult>, ExecError> {
        action.check()?;
        let kernel = &self.kernel;
        // Looked up once, so that no two gates see different tools.
        let tool = kernel
            .seams
            .connectors
            .tool(&action.connector, &action.tool);
        let context = namespace::of(tool.as_ref(), context, &action)?;
        let lane = (context.tenant.clone(), action.entity_key.clone());
        let is_read = tool.as_ref().is_some_and(Tool::is_read);
        // Arrival order is the order of these two calls: nothing is awaited before them.
        let following = is_read.then(|| kernel.flights.follow(&lane)).transpose();
        let arrival = (!is_read)
            .then(|| Flights::arrive(kernel, lane))
            .transpose();
        let marked = Tool::secret_args(tool.as_ref());
        let key = kernel.redaction_key(&context.tenant);
        let redaction = Redaction::of(&action.args, marked, key).await?;
        let proposed = Proposed::new(&kernel.seams, context, action, tool, redaction);
        match (following, arrival) {
            (Err(full), _) | (_, Err(full)) => {
                let refused = Box::new(Keyless::new(Arc::clone(kernel), proposed));
                owned(kernel, move |reply| {
                    dispose(Step::Refuse(refused, full), reply)
                })
                .await
            }
            (Ok(Some(following)), Ok(_)) => {
                following.pass().await;
                kernel.mend().await;
                let read = Box::new(Keyless::new(Arc::clone(kernel), proposed));
                owned(kernel, move |reply| dispose(Step::Read(read), reply)).await
            }
            (Ok(None), Ok(Some(arrival))) => {
                let place = arrival.turn().await;
                kernel.mend().await;
                let turn = Box::new(Turn::new(proposed, place));
                owned(kernel, move |reply| dispose(Step::Act(turn), reply)).await
            }
            (Ok(None), Ok(None)) => Err(ExecError::Invariant("neither read nor act".to_owned())),
        }
    }

    /// How many entities have somebody at work or waiting in this process; 0 at rest.
    pub fn entities_in_flight(&self) -> usize {
        self.kernel.flights.len()
    }

    /// Waits until nothing is in flight, `stop_grace` at the longest, and ends the session. What is
    /// still in flight then becomes a doubt; its own late answer still settles it.
    pub async fn stop(self) -> Result<(), ExecError> {
        let rest = async {
            // Whoever owns an action holds the kernel, and may do so for longer than its place in the
            // queue: a claim whose answer never came is asked for until it is known.
            while Arc::strong_count(&self.kernel) > 1 {
                tokio::time::sleep(STOP_PAUSE).await;
            }
        };
        if tokio::time::timeout(self.kernel.settings.stop_grace, rest)
            .await
            .is_err()
        {
            tracing::warn!("stopped with actions in flight; see `operators doubts list`");
        }
        let mut patience = self.kernel.patience();
        let closing = async {
            loop {
                match self.kernel.lease.close().await {
                    Err(error) if error.is_retryable() && !patience.pause().await.is_over() => {}
                    closed => return closed,
                }
            }
        };
        let closed = self.kernel.in_time(closing).await;
        closed.map_err(ExecError::NotEnded)
    }
}

/// Who, what and on what; never arguments or results.
fn span_of(context: &RunContext, action: &PlannedAction) -> tracing::Span {
    tracing::info_span!(
        "action",
        tenant = %context.tenant,
        operator = context.operator.as_ref().map(OperatorName::as_str),
        event_id = context.event.as_ref().map(|event| event.event_id.as_str()),
        entity_key = %action.entity_key,
        dedupe_key = %action.idempotency_key,
        route = %format_args!("{}:{}", action.connector, action.tool),
        attempt = tracing::field::Empty,
        decision = tracing::field::Empty,
    )
}

enum Step {
    Refuse(Box<Keyless>, Overloaded),
    Read(Box<Keyless>),
    Act(Box<Turn>),
}

/// The gates after the turn, in order. All branching is here; the helpers do not branch on it.
///
/// Each step is boxed by itself: an allocator is quick with pieces below a kilobyte, and slow with one
/// that holds them all.
async fn dispose(step: Step, mut reply: Reply) {
    let outcome = async {
        let turn = match step {
            Step::Refuse(refused, full) => {
                return Box::pin(refused.refuse_overloaded(full, &mut reply)).await;
            }
            Step::Read(read) => return Box::pin(read.read(&mut reply)).await, // 2 read
            Step::Act(turn) => turn, //                                     1 turn
        };
        let weighed = turn.weigh()?; //                                     4 trust, travels with 3
        let claimed = match Box::pin(weighed.claim(&mut reply)).await? {
            Claiming::Ended(result) => return Ok(result), //                3 dedup, 4 refused
            Claiming::Granted(claimed) => claimed,        //               5 intent durable
        };
        let answered = Box::pin(claimed.invoke()).await; //                 5 invoke
        Box::pin(answered.settle(&mut reply)).await //                      6 settle
    }
    .await;
    reply.end(outcome);
}

/// Runs the work so that a caller who gives up cannot part claim and settle: as far as it comes
/// without waiting right here, where nobody can give up, and the rest in a task of its own.
async fn owned<W, F>(kernel: &Arc<Kernel>, work: W) -> Result<Box<ActionResult>, ExecError>
where
    W: FnOnce(Reply) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    let span = tracing::Span::current();
    let work = work(Reply::new(sender, &kernel.lease));
    // Boxed: the runtime moves a task's future several times before it runs.
    let mut work = Box::pin(AssertUnwindSafe(work)).catch_unwind();
    let begun = poll_fn(|context| Poll::Ready(work.poll_unpin(context))).await;
    if begun.is_pending() {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one task that owns an action; its end is awaited through the reply"
        )]
        drop(tokio::spawn(work.instrument(span)));
    }
    receiver.await.unwrap_or_else(|_| {
        // The work panicked (a bug here, not in a connector) or its runtime ended. Its guards freed
        // the turn; what was claimed is found as a doubt.
        Err(ExecError::Invariant(
            "the work on the action ended without an answer, by a panic or with its runtime; what \
             was sent is in doubt"
                .to_owned(),
        ))
    })
}

impl Kernel {
    /// Makes good what ended with the runtime that the executor was used from before. A store that
    /// fails meanwhile is asked again by the next who comes, and by the heartbeat.
    pub(crate) async fn mend(&self) {
        if !self.lease.is_broken() {
            return;
        }
        keep_alive(&self.lease);
        if let Err(error) = Box::pin(self.lease.replace_if_left()).await {
            tracing::warn!(%error, "what ended half-way is not given up yet");
        }
    }
}

/// Sends heartbeats for as long as anybody, a caller or work in flight, holds the kernel, and the
/// runtime of the caller lasts.
fn keep_alive(lease: &Arc<Lease>) {
    let Some(heartbeat) = Heartbeat::of(lease) else {
        return;
    };
    let interval = lease.beat_interval();
    let beats = async move {
        loop {
            tokio::time::sleep(interval).await;
            let Some(lease) = heartbeat.lease() else {
                return;
            };
            if let Err(error) = lease.beat().await {
                tracing::warn!(%error, "heartbeat failed; no call is sent once the lease is over");
            }
        }
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "the heartbeat runs beside everything else and ends with the kernel"
    )]
    drop(tokio::spawn(beats));
}
