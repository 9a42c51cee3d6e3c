//! The order of the gates, top to bottom, and the task that owns the work.

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::action::{ActionResult, ExecutionPlan, PlannedAction};
use crate::clock::{Clock, IdKind};
use crate::connector::ToolRegistry;
use crate::durable::DurableExec;
use crate::envelope::EventEnvelope;
use crate::error::{ExecError, RunError};
use crate::gates::{Claiming, Reply, Turn};
use crate::kernel::Kernel;
use crate::key::{OperatorName, TenantId};
use crate::keyless::Keyless;
use crate::lease::Lease;
use crate::proposed::Proposed;
use crate::single_flight::Flights;
use crate::trust::TrustPolicy;

/// Waiters on one entity before new ones are refused: far above an honest burst, far below what a
/// runaway loop would hold in memory.
pub const WAITERS_MAX: usize = 1_024;

/// How long a store may fail before a caller is told. Long enough for a restart, short enough for
/// a person.
const STORE_PATIENCE: Duration = Duration::from_secs(10);

/// Everything the executor reaches the world through. A forgotten seam does not compile.
#[derive(Debug, Clone)]
pub struct Seams {
    /// What is remembered.
    pub durable: Arc<dyn DurableExec>,
    /// What can be reached.
    pub connectors: Arc<dyn ToolRegistry>,
    /// What may run.
    pub policy: Arc<dyn TrustPolicy>,
    /// Time and ids.
    pub clock: Arc<dyn Clock>,
}

/// The bounds an executor keeps.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The name of this process in the store's list of sessions.
    pub node: String,
    /// How long the store waits for a sign of life before this process counts as dead.
    pub lease: Duration,
    /// Waiters on one entity before new ones are refused.
    pub waiters_max: usize,
    /// How long the store may fail before a caller is told.
    pub store_patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            node: "operators".to_owned(),
            lease: Duration::from_secs(30),
            waiters_max: WAITERS_MAX,
            store_patience: STORE_PATIENCE,
        }
    }
}

/// On whose behalf, and in which thread, a plan runs. One per plan.
#[derive(Debug, Clone, PartialEq)]
pub struct RunContext {
    /// Whose plan it is.
    pub tenant: TenantId,
    /// Who proposes it.
    pub operator: Option<OperatorName>,
    /// The event behind it.
    pub event: Option<EventEnvelope>,
    /// The run.
    pub run_id: String,
    /// The plan.
    pub plan_id: String,
    /// The thread through sense, reason and act.
    pub correlation_id: String,
}

impl RunContext {
    /// A fresh run of a fresh plan, for `tenant`, proposed by nobody in particular.
    pub fn new(clock: &dyn Clock, tenant: TenantId) -> Self {
        Self {
            tenant,
            operator: None,
            event: None,
            run_id: clock.id(IdKind::Run),
            plan_id: clock.id(IdKind::Plan),
            correlation_id: clock.id(IdKind::Correlation),
        }
    }
}

/// What to do after an action that is not ok.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// Go on with the next action.
    #[default]
    Continue,
    /// Leave the rest of the plan unproposed.
    Stop,
}

/// Something a watcher of a run may want to show.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    /// The action at this index begins.
    Begins(usize, &'a PlannedAction),
    /// The action at this index ended.
    Ended(usize, &'a ActionResult),
}

/// Disposes of plans: one action at a time per entity, at most one effect per key, only what trust
/// allows, a receipt for everything.
///
/// Must be used inside a tokio runtime. Dropping it stops its heartbeat once nothing is in flight;
/// [`stop`](Self::stop) ends its session in good order.
#[derive(Debug)]
pub struct DeterministicExecutor {
    kernel: Arc<Kernel>,
    heartbeat: JoinHandle<()>,
}

impl DeterministicExecutor {
    /// Opens a session in the store and keeps it alive.
    pub async fn start(seams: Seams, settings: Settings) -> Result<Self, ExecError> {
        let lease = Lease::open(
            Arc::clone(&seams.durable),
            Arc::clone(&seams.clock),
            settings.node.clone(),
            settings.lease,
        )
        .await?;
        let flights = Arc::new(Flights::new(settings.waiters_max));
        let kernel = Arc::new(Kernel {
            seams,
            settings,
            flights,
            lease,
            redaction_keys: DashMap::new(),
        });
        let heartbeat = keep_alive(&kernel);
        Ok(Self { kernel, heartbeat })
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
        let kernel = &self.kernel;
        let lane = (context.tenant.clone(), action.entity_key.clone());
        let is_read = kernel.is_read(&action);
        // Arrival order is the order of these two calls: nothing is awaited before them.
        let following = is_read.then(|| kernel.flights.follow(&lane)).transpose();
        let arrival = (!is_read).then(|| kernel.flights.arrive(lane)).transpose();
        let key = kernel.redaction_key(&context.tenant).await?;
        let run = Arc::new(context.clone());
        let proposed = Proposed::new(&kernel.seams, run, action, &key);
        let kernel = Arc::clone(kernel);
        match (following, arrival) {
            (Err(full), _) | (_, Err(full)) => {
                Keyless::new(kernel, proposed).refuse_overloaded(full).await
            }
            (Ok(Some(following)), Ok(_)) => {
                following.pass().await;
                let read = Keyless::new(kernel, proposed);
                owned(move |reply| dispose(Step::Read(Box::new(read)), reply)).await
            }
            (Ok(None), Ok(Some(arrival))) => {
                let place = arrival.turn().await;
                let turn = Turn::new(kernel, proposed, place);
                owned(move |reply| dispose(Step::Act(Box::new(turn)), reply)).await
            }
            (Ok(None), Ok(None)) => Err(ExecError::Invariant("neither read nor act".to_owned())),
        }
    }

    /// How many entities have somebody at work or waiting in this process; 0 at rest.
    pub fn entities_in_flight(&self) -> usize {
        self.kernel.flights.len()
    }

    /// Ends the session in good order. Call it when nothing is in flight: what is becomes a doubt.
    pub async fn stop(self) -> Result<(), ExecError> {
        Ok(self.kernel.lease.close().await?)
    }
}

impl Drop for DeterministicExecutor {
    fn drop(&mut self) {
        self.heartbeat.abort();
    }
}

enum Step {
    Read(Box<Keyless>),
    Act(Box<Turn>),
}

/// The gates after the turn, in order. All branching is here; the helpers do not branch on it.
async fn dispose(step: Step, mut reply: Reply) {
    let outcome = async {
        let turn = match step {
            Step::Read(read) => return read.read(&reply).await, // 2 read
            Step::Act(turn) => turn,                            // 1 turn
        };
        let weighed = turn.weigh()?; //                                     4 trust, travels with 3
        let claimed = match weighed.claim(&mut reply).await? {
            Claiming::Ended(result) => return Ok(*result), //               3 dedup, 4 refused
            Claiming::Granted(claimed) => claimed,         //               5 intent durable
        };
        let answered = claimed.invoke().await; //                           5 invoke
        answered.settle(&mut reply).await //                                6 settle
    }
    .await;
    reply.answer(outcome);
}

/// Runs the work in a task of its own, so that a caller who gives up cannot part claim and settle.
async fn owned<W, F>(work: W) -> Result<ActionResult, ExecError>
where
    W: FnOnce(Reply) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    let span = tracing::Span::current();
    let future = tracing::Instrument::instrument(work(Reply::new(sender)), span);
    #[expect(
        clippy::disallowed_methods,
        reason = "the one task that owns an action; its end is awaited through the reply"
    )]
    drop(tokio::spawn(future));
    receiver.await.unwrap_or_else(|_| {
        // The task panicked (a bug here, not in a connector) or the runtime is shutting down. Its
        // guards freed the turn; what was claimed is found as a doubt.
        Err(ExecError::Invariant(
            "the task that owned the action ended without an answer".to_owned(),
        ))
    })
}

fn keep_alive(kernel: &Arc<Kernel>) -> JoinHandle<()> {
    let kernel = Arc::clone(kernel);
    #[expect(
        clippy::disallowed_methods,
        reason = "the heartbeat runs beside everything else and is aborted with the executor"
    )]
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(kernel.lease.beat_interval()).await;
            if let Err(error) = kernel.lease.beat().await {
                tracing::warn!(%error, "heartbeat failed; no call is sent once the lease is over");
            }
        }
    })
}
