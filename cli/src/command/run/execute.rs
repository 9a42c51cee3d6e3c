//! Walks the plans through an executor, with a live line, and ends in good order on Ctrl-C.

use std::time::Duration;

use anyhow::{Context as _, Result};
use operators_kernel::{
    ActionResult, DeterministicExecutor, ExecError, IdempotencyKey, PlannedAction, RunContext,
    Seams, Settings,
};

use crate::command::run::Job;
use crate::interrupts::Interrupts;
use crate::notify::Deliveries;
use crate::output::{Live, note, shown, warn};

/// How long the session's end may take; after that it dies by its lease.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

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
    let executor = DeterministicExecutor::start(seams, settings)
        .await
        .context("no action was run")?;
    let mut results = Vec::with_capacity(jobs.len());
    let mut stopped = None;
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
            let one = act(&executor, &job.context, action, &mut interrupts, &mut asked).await;
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
                break;
            }
        }
        results.push(done);
        if stopped.is_some() {
            break;
        }
    }
    drop(live);
    match tokio::time::timeout(STOP_PATIENCE, executor.stop()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn(&format!(
            "the session did not end in good order: {}",
            shown(&error)
        )),
        Err(_) => warn("the session did not end in time; it ends by itself after its lease"),
    }
    Ok(Executed { results, stopped })
}

/// One action. The first Ctrl-C lets it finish, the second leaves it in doubt.
async fn act(
    executor: &DeterministicExecutor,
    context: &RunContext,
    action: &PlannedAction,
    interrupts: &mut Interrupts,
    asked: &mut bool,
) -> Result<ActionResult, Stopped> {
    let mut work = Box::pin(executor.run_action(context, action.clone()));
    loop {
        tokio::select! {
            result = &mut work => return result.map_err(Stopped::Error),
            () = interrupts.next() => {
                if std::mem::replace(asked, true) {
                    return Err(Stopped::Abandoned(action.idempotency_key.clone()));
                }
                note("finishing the action in flight; Ctrl-C again leaves it in doubt");
            }
        }
    }
}
