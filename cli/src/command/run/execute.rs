//! Walks the plans through an executor, with a live line, and ends in good order on Ctrl-C.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use operators_kernel::{
    ActionResult, DeterministicExecutor, DurableExec, ExecError, IdempotencyKey, OwnerState,
    PlannedAction, RunContext, Seams, Settings,
};

use crate::command::run::Job;
use crate::interrupts::Interrupts;
use crate::notify::Deliveries;
use crate::open_ends::owner_in_words;
use crate::output::{Live, note, shown, warn};
use crate::words::duration;

/// How long the session's end may take; after that it dies by its lease.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// How often it is looked up what an action waits for: seldom enough to cost a store nothing, and
/// before a person wonders.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// What was done, and why no more.
#[derive(Debug)]
pub(crate) struct Executed {
    /// The results of each job, as far as it came.
    pub(crate) results: Vec<Vec<ActionResult>>,
    pub(crate) stopped: Option<Stopped>,
}

/// Why not everything was proposed.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// An action was not ok, and `--stop-on-failure` was asked for.
    OnFailure,
    /// Ctrl-C; what was in flight is finished.
    Interrupted,
    /// Ctrl-C while this key waited for its turn; it was given up.
    GivenUp(IdempotencyKey),
    /// Ctrl-C twice; this key was in flight.
    Abandoned(IdempotencyKey),
    /// The executor could not say what happened.
    Error(ExecError),
}

pub(crate) async fn execute(
    seams: Seams,
    settings: Settings,
    jobs: &[Job],
    stop_on_failure: bool,
    deliveries: &mut Deliveries,
) -> Result<Executed> {
    let mut interrupts = Interrupts::listen()?;
    let mut asked = false;
    let store = Arc::clone(&seams.durable);
    let executor = DeterministicExecutor::start(seams, settings)
        .await
        .context("no action was run")?;
    let mut results = Vec::with_capacity(jobs.len());
    let (mut stopped, mut last) = (None, None);
    let live = Live::start();
    let total: usize = jobs.iter().map(|job| job.plan.actions.len()).sum();
    let mut number = 0;
    for job in jobs {
        let mut done = Vec::with_capacity(job.plan.actions.len());
        for action in &job.plan.actions {
            number += 1;
            live.say(format!(
                "{number}/{total}  {}:{}  {}",
                action.connector,
                action.tool,
                shown(&action.idempotency_key)
            ));
            let looking = Looking {
                store: &*store,
                context: &job.context,
                action,
            };
            let work = executor.run_action(&job.context, action.clone());
            let one = act(work, looking, &mut interrupts, &mut asked).await;
            stopped = match one {
                Ok(result) => {
                    let failed = !result.ok && stop_on_failure;
                    deliveries.consider(&job.context.tenant, &result);
                    done.push(result);
                    match (asked, failed) {
                        (true, _) if number < total => Some(Stopped::Interrupted),
                        (_, true) => Some(Stopped::OnFailure),
                        (_, false) => None,
                    }
                }
                Err(reason) => Some(reason),
            };
            if stopped.is_some() {
                last = Some(looking);
                break;
            }
        }
        results.push(done);
        if stopped.is_some() {
            break;
        }
    }
    drop(live);
    stop(executor).await;
    if let (Some(Stopped::GivenUp(key)), Some(last)) = (&stopped, last) {
        stopped = Some(last.given_up(key).await);
    }
    Ok(Executed { results, stopped })
}

async fn stop(executor: DeterministicExecutor) {
    match tokio::time::timeout(STOP_PATIENCE, executor.stop()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn(&shown(&error)),
        Err(_) => warn("the session did not end in time; it ends by itself after its lease"),
    }
}

/// Where an action is, as the store has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing of it is recorded: it waits for its turn, or only reads.
    Waits,
    /// It was claimed by this run.
    Works,
    /// The store does not say.
    NotKnown,
}

/// What of an action can be seen in the store meanwhile.
#[derive(Clone, Copy)]
struct Looking<'a> {
    store: &'a dyn DurableExec,
    context: &'a RunContext,
    action: &'a PlannedAction,
}

/// One action. The first Ctrl-C lets it finish if its turn has come, and gives it up if not; the second
/// leaves it in doubt.
async fn act(
    work: impl Future<Output = Result<ActionResult, ExecError>>,
    looking: Looking<'_>,
    interrupts: &mut Interrupts,
    asked: &mut bool,
) -> Result<ActionResult, Stopped> {
    let (mut work, mut waiting) = (Box::pin(work), Box::pin(looking.wait()));
    let key = &looking.action.idempotency_key;
    let mut stage = None;
    loop {
        tokio::select! {
            result = &mut work => return result.map_err(Stopped::Error),
            never = &mut waiting => match never {},
            () = interrupts.next() => {
                if std::mem::replace(asked, true) {
                    return Err(Stopped::Abandoned(key.clone()));
                }
                stage = Some(Box::pin(looking.stage()));
            }
            found = found(&mut stage) => {
                stage = None;
                match found {
                    Stage::Waits => return Err(Stopped::GivenUp(key.clone())),
                    Stage::Works => {
                        note("finishing the action in flight; Ctrl-C again leaves it in doubt");
                    }
                    Stage::NotKnown => note(
                        "the store does not say whether the action is in flight, so its end is \
                         awaited; Ctrl-C again leaves it, perhaps in doubt",
                    ),
                }
            }
        }
    }
}

/// What a look finds; never, without one.
async fn found<F: Future + Unpin>(look: &mut Option<F>) -> F::Output {
    match look {
        Some(look) => look.await,
        None => std::future::pending().await,
    }
}

impl Looking<'_> {
    /// What became of an action that was given up and whose executor has stopped: its turn may have
    /// come in that very moment.
    async fn given_up(&self, key: &IdempotencyKey) -> Stopped {
        match self.stage().await {
            Stage::Waits => {
                let key = shown(key);
                note(&format!(
                    "`{key}` was given up before it was claimed: nothing that has an effect was sent for it"
                ));
                Stopped::Interrupted
            }
            Stage::Works | Stage::NotKnown => Stopped::Abandoned(key.clone()),
        }
    }

    /// Where the action is.
    async fn stage(&self) -> Stage {
        let tenant = &self.context.tenant;
        let key = self.store.key(tenant, &self.action.idempotency_key).await;
        match key {
            Ok(Some(record)) if record.proposal.run_id == self.context.run_id => Stage::Works,
            Ok(_) => Stage::Waits,
            Err(_) => Stage::NotKnown,
        }
    }

    /// Says what the action waits for that takes long: an attempt of another run on its key or
    /// entity. Each is told once, and again when something else is known of its owner.
    async fn wait(&self) -> Infallible {
        let Self {
            store,
            context,
            action,
        } = *self;
        let mut told: Option<(IdempotencyKey, OwnerState)> = None;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            // The run itself says what is wrong with the store.
            let Ok((in_flight, now)) = store.in_flight(&context.tenant).await else {
                continue;
            };
            let before = in_flight.iter().find(|one| {
                let proposal = &one.key.proposal;
                let is_before = proposal.entity_key == action.entity_key
                    || proposal.idempotency_key == action.idempotency_key;
                is_before && proposal.run_id != context.run_id
            });
            let Some(before) = before else { continue };
            let key = &before.key.proposal.idempotency_key;
            let seen = (key.clone(), before.owner);
            if told.as_ref() == Some(&seen) {
                continue;
            }
            note(&format!(
                "`{}` waits for key `{}`, in flight for {}: {}",
                shown(&action.idempotency_key),
                shown(key),
                duration(before.key.first_intent_at.until(now)),
                owner_in_words(before, now)
            ));
            told = Some(seen);
        }
    }
}
