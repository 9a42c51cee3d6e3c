//! Telling somebody, while the run goes on: nothing waits for it and nothing fails by it.
//!
//! Owns the tries, the bounds and the grace at the end. An alert or a question is kept by the store
//! whether or not anybody was told, so what is lost here is lost nowhere else.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use operators_kernel::life::{Alert, Approval, NoteKind, NoteName};
use operators_kernel::{
    ActionResult, Call, ConnectorName, Disposition, DurableExec, EntityKey, IdempotencyKey,
    InvokeOutcome, Reason, SendPermit, TenantId, Text, ToolName,
};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::task::{Id, JoinSet};

use crate::interrupts::Interrupts;
use crate::notice::Notice;
use crate::notify::{Channel, TOOL};
use crate::output::{note, shown, warn};

/// How often one channel is tried with one notice: a deploy of the receiver passes, an outage does
/// not.
const TRIES_MAX: u32 = 3;

/// Before the second try; before the third, four times that.
const PAUSE: Duration = Duration::from_millis(250);

/// How many notices may be on their way or wait for that: far more is nobody's to read.
const QUEUED_MAX: usize = 1_000;

/// How many are on their way at once.
const AT_ONCE: usize = 8;

/// How many undelivered notices are told one by one.
const TOLD_MAX: usize = 5;

/// What a result gives rise to.
#[derive(Debug, Clone)]
struct About {
    tenant: TenantId,
    receipt_id: Text,
    key: IdempotencyKey,
    note: NoteName,
}

/// The notices of one run.
#[derive(Debug)]
pub(crate) struct Deliveries {
    channels: Vec<Arc<Channel>>,
    store: Arc<dyn DurableExec>,
    grace: Duration,
    room: Arc<Semaphore>,
    under_way: JoinSet<Result<(), String>>,
    /// What each of those tells, for whoever has to be told that it did not.
    names: HashMap<Id, String>,
    undelivered: Vec<String>,
}

impl Deliveries {
    pub(crate) fn new(
        channels: Vec<Channel>,
        store: Arc<dyn DurableExec>,
        grace: Duration,
    ) -> Self {
        Self {
            channels: channels.into_iter().map(Arc::new).collect(),
            store,
            grace,
            room: Arc::new(Semaphore::new(AT_ONCE)),
            under_way: JoinSet::new(),
            names: HashMap::new(),
            undelivered: Vec::new(),
        }
    }

    /// Starts telling, if this result gives rise to it; does not wait.
    pub(crate) fn consider(&mut self, tenant: &TenantId, result: &ActionResult) {
        while let Some(ended) = self.under_way.try_join_next_with_id() {
            self.note_end(ended);
        }
        let key = &result.action.idempotency_key;
        let (what, note) = match (result.decision, result.reason) {
            (Disposition::Alert, _) => ("alert", NoteName::alert(&result.receipt_id)),
            (_, Some(Reason::AwaitingApproval)) => ("approval", NoteName::approval(key)),
            _ => return,
        };
        let about = About {
            tenant: tenant.clone(),
            receipt_id: result.receipt_id.clone(),
            key: key.clone(),
            note,
        };
        for channel in &self.channels {
            let name = format!("{}: the {what} of key `{}`", channel.name, shown(key));
            if self.under_way.len() >= QUEUED_MAX {
                self.undelivered
                    .push(format!("{name}: {QUEUED_MAX} others wait"));
                continue;
            }
            let (channel, store) = (Arc::clone(channel), Arc::clone(&self.store));
            let (room, about) = (Arc::clone(&self.room), about.clone());
            let told = self.under_way.spawn(async move {
                let _place = room.acquire().await.map_err(|error| error.to_string())?;
                match notice(&*store, &about).await? {
                    Some(notice) => channel.deliver(&about, notice).await,
                    None => Ok(()),
                }
            });
            self.names.insert(told.id(), name);
        }
    }

    /// Gives what is on its way its grace, or the person who presses Ctrl-C; then says what was not
    /// delivered.
    pub(crate) async fn finish(mut self) {
        let grace = self.grace;
        let all = async {
            while let Some(ended) = self.under_way.join_next_with_id().await {
                self.note_end(ended);
            }
        };
        let all = tokio::time::timeout(grace, all);
        match Interrupts::listen() {
            Ok(mut interrupts) => tokio::select! {
                _ = all => {}
                () = interrupts.next() => {}
            },
            Err(_) => drop(all.await),
        }
        self.under_way.shutdown().await;
        let late = self.names.drain().map(|(_, name)| {
            format!(
                "{name}: no answer within the grace of {}ms",
                grace.as_millis()
            )
        });
        self.undelivered.extend(late);
        for told in self.undelivered.iter().take(TOLD_MAX) {
            warn(&format!("not delivered: {told}"));
        }
        let more = self.undelivered.len().saturating_sub(TOLD_MAX);
        if more > 0 {
            warn(&format!("not delivered: {more} notices more"));
        }
        if !self.undelivered.is_empty() {
            note(
                "nothing is lost: `operators alerts list` and `operators approvals list` have them",
            );
        }
    }

    fn note_end(&mut self, ended: Result<(Id, Result<(), String>), tokio::task::JoinError>) {
        let (id, problem) = match ended {
            Ok((id, Ok(()))) => (id, None),
            Ok((id, Err(problem))) => (id, Some(problem)),
            Err(error) => (error.id(), Some("it panicked".to_owned())),
        };
        let name = self.names.remove(&id);
        if let (Some(name), Some(problem)) = (name, problem) {
            self.undelivered
                .push(format!("{name}: {}", shown(&problem)));
        }
    }
}

/// What is to be told: nothing, if this result raised no alert or asked nothing new.
async fn notice(
    store: &dyn DurableExec,
    about: &About,
) -> Result<Option<Map<String, Value>>, String> {
    let body = store.note(&about.tenant, &about.note).await;
    let body = body.map_err(|error| error.to_string())?;
    let told = if about.note.kind == NoteKind::Approval {
        let asked = Approval::read(body.as_deref()).map_err(|error| error.to_string())?;
        // A question that stood already was told when it was new.
        let new = asked.filter(|asked| asked.proposal.receipt_id == about.receipt_id);
        new.map(|asked| serde_json::to_value(Notice::approval(&asked).named()))
    } else {
        let alert = Alert::read(body.as_deref()).map_err(|error| error.to_string())?;
        alert.map(|alert| serde_json::to_value(Notice::alert(&alert).named()))
    };
    match told.transpose().map_err(|error| error.to_string())? {
        Some(Value::Object(notice)) => Ok(Some(notice)),
        _ => Ok(None),
    }
}

impl Channel {
    /// `command` or `webhook`.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    async fn deliver(&self, about: &About, notice: Map<String, Value>) -> Result<(), String> {
        let named = |problem: &dyn ToString| problem.to_string();
        let mut call = Call {
            tenant: about.tenant.clone(),
            operator: None,
            connector: ConnectorName::parse("notify").map_err(|error| named(&error))?,
            tool: ToolName::parse(TOOL).map_err(|error| named(&error))?,
            args: notice.into(),
            entity_key: EntityKey::parse(about.key.as_str()).map_err(|error| named(&error))?,
            idempotency_key: about.key.clone(),
            downstream_key: about.receipt_id.clone().into(),
            attempt: 1,
            deadline: self.tool.contract.timeout,
            permit: SendPermit::always(),
        };
        loop {
            let problem = match self.tool.connector.invoke(&call).await {
                InvokeOutcome::Applied(_) => return Ok(()),
                InvokeOutcome::NotApplied(error) | InvokeOutcome::Unknown(error) => error.message,
            };
            if call.attempt >= TRIES_MAX {
                return Err(problem);
            }
            tokio::time::sleep(PAUSE * call.attempt.saturating_mul(call.attempt)).await;
            call.attempt += 1;
        }
    }
}
