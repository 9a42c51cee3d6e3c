//! What an executor is started with, and what a plan runs under.

use std::sync::Arc;
use std::time::Duration;

use crate::action::{ActionResult, PlannedAction};
use crate::clock::{Clock, IdKind};
use crate::connector::ToolRegistry;
use crate::durable::DurableExec;
use crate::envelope::EventEnvelope;
use crate::key::{OperatorName, TenantId};
use crate::shared::Shared;
use crate::text::Text;
use crate::trust::TrustPolicy;

/// Waiters on one entity before new ones are refused: far above an honest burst, far below what a
/// runaway loop would hold in memory.
pub const WAITERS_MAX: usize = 1_024;

/// How long a store may fail before a caller is told. Long enough for a restart, short enough for
/// a person.
const STORE_PATIENCE: Duration = Duration::from_secs(10);

/// How long a stopping executor waits for what is in flight: as long as an ordinary call may take.
const STOP_GRACE: Duration = Duration::from_secs(30);

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
    /// How long a stopping executor waits for what is in flight.
    pub stop_grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            node: "operators".to_owned(),
            lease: Duration::from_secs(30),
            waiters_max: WAITERS_MAX,
            store_patience: STORE_PATIENCE,
            stop_grace: STOP_GRACE,
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
    pub event: Option<Shared<EventEnvelope>>,
    /// The run.
    pub run_id: Text,
    /// The plan.
    pub plan_id: Text,
    /// The thread through sense, reason and act.
    pub correlation_id: Text,
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
