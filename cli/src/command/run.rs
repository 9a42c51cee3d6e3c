//! `operators run --once`: operators, or one plan, through the gates and onto the terminal.
//!
//! Everything that can be wrong (configuration, policies, connectors, every plan) is found before
//! the first action runs.

mod ending;
mod execute;
mod hints;
mod seal;
mod show;
mod stubs;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use operators_kernel::{
    EventEnvelope, ExecutionPlan, OperatorName, RunContext, TenantId, forecast,
};
use serde_json::Map;

use crate::args::RunArgs;
use crate::command::run::ending::Ending;
use crate::command::run::execute::{Executed, Stopped};
use crate::compose::{self, Parts};
use crate::config::{OperatorConfig, StoreUrl};
use crate::exit::Exit;
use crate::notify::{self, Deliveries};
use crate::output::{self, shown, warn};
use crate::planner;
use crate::project::Project;

pub(crate) use show::decision;

/// One plan to run, and on whose behalf.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) context: RunContext,
    pub(crate) goal: Option<String>,
    pub(crate) plan: ExecutionPlan,
}

pub(crate) async fn run(args: &RunArgs, project: Option<&Path>) -> Result<Exit> {
    let project = Project::open(project)?;
    let tenant = project.tenant(&args.whose)?;
    let parts = Parts::load(&project)?;
    let channels = notify::channels(&project)?;
    if parts.trust.policies.is_empty() {
        let told = match project.config.trust.policies.as_slice() {
            [] => "`trust.policies` is empty".to_owned(),
            patterns => format!("no policy file fits `{}`", shown(&patterns.join("`, `"))),
        };
        warn(&format!("{told}, so every action is blocked"));
    }
    let mut jobs = Vec::new();
    for (operator, source) in sources(args, &project)? {
        jobs.push(job(&project, &parts, &tenant, operator, source).await?);
    }
    stubs::tell(&project, &parts, &tenant, &jobs);
    if args.dry_run {
        return rehearse(args, &project, &parts, &tenant, &jobs).await;
    }
    if project.config.store.url == StoreUrl::Memory {
        warn("the store is `memory:`, so every key is forgotten when this command ends");
    }
    let store = compose::store(&project, &parts.clock).await?;
    let started = parts.clock.monotonic();
    let settings = compose::settings(&project);
    let notary = seal::begin(&project, &tenant, &store).await?;
    let grace = notify::grace(&project);
    let mut deliveries = Deliveries::new(channels, Arc::clone(&store), grace);
    let seams = parts.seams(store);
    let every = project.config.receipts.checkpoint.every.get();
    let work = execute::execute(
        seams,
        settings,
        &jobs,
        args.stop_on_failure,
        &mut deliveries,
    );
    let executed = seal::meanwhile(notary.as_ref(), every, work).await?;
    let spent = parts.clock.monotonic().saturating_sub(started);
    let exit = tell(args, &project, &parts, &jobs, &executed, spent);
    deliveries.finish().await;
    Ok(exit.worst(seal::end(notary.as_ref()).await))
}

/// Where an operator's plan comes from.
enum Source<'a> {
    File(PathBuf),
    Command(&'a [String]),
}

/// Who runs, with which plan: nothing is read yet.
fn sources<'a>(
    args: &RunArgs,
    project: &'a Project,
) -> Result<Vec<(Option<&'a OperatorName>, Source<'a>)>> {
    let operators = &project.config.operators;
    let find = |name: &String| {
        let found = operators.iter().find(|(known, _)| known.as_str() == name);
        found.with_context(|| {
            let known: Vec<&str> = operators.keys().map(OperatorName::as_str).collect();
            let known = match known.as_slice() {
                [] => "the project has none".to_owned(),
                known => format!("there are: {}", known.join(", ")),
            };
            format!("no operator `{}`; {known}", shown(name))
        })
    };
    let chosen: Vec<_> = args.names.iter().map(find).collect::<Result<_>>()?;
    if let Some(plan) = &args.plan {
        let operator = chosen.first().map(|(name, _)| *name);
        return Ok(vec![(operator, Source::File(plan.clone()))]);
    }
    let chosen = if chosen.is_empty() {
        operators.iter().collect()
    } else {
        chosen
    };
    if chosen.is_empty() {
        bail!(
            "the project has no operators; add one to `{}`, or run a plan with `--plan FILE`",
            shown(&project.config_file().display())
        );
    }
    let source = |(name, operator): (&'a OperatorName, &'a OperatorConfig)| {
        let source = match (&operator.plan, &operator.command) {
            (Some(plan), _) => Source::File(project.path(plan)),
            (None, Some(command)) => Source::Command(command),
            (None, None) => bail!(
                "operator `{name}` has neither `plan` nor `command`; add one, or pass `--plan FILE`"
            ),
        };
        Ok((Some(name), source))
    };
    chosen.into_iter().map(source).collect()
}

async fn job(
    project: &Project,
    parts: &Parts,
    tenant: &TenantId,
    operator: Option<&OperatorName>,
    source: Source<'_>,
) -> Result<Job> {
    let clock = &*parts.clock;
    let event = EventEnvelope::new(
        clock,
        tenant.clone(),
        "cli",
        "operator.run",
        Map::new(),
        None,
    );
    let plan = match source {
        Source::File(file) => planner::from_file(&file),
        Source::Command(argv) => {
            let secrets = compose::secrets(project)?;
            planner::from_command(argv, project.dir(), &event, &secrets).await
        }
    };
    let plan = match operator {
        Some(name) => plan.with_context(|| format!("nothing was run: operator `{name}`"))?,
        None => plan.context("nothing was run")?,
    };
    let known = operator.and_then(|name| project.config.operators.get(name));
    Ok(Job {
        context: RunContext {
            operator: operator.cloned(),
            correlation_id: event.correlation_id.as_str().into(),
            event: Some(event.into()),
            ..RunContext::new(clock, tenant.clone())
        },
        goal: known.and_then(|operator| operator.goal.clone()),
        plan,
    })
}

/// `--dry-run`: what each action would become against the store as it is.
async fn rehearse(
    args: &RunArgs,
    project: &Project,
    parts: &Parts,
    tenant: &TenantId,
    jobs: &[Job],
) -> Result<Exit> {
    let store = compose::store_to_read(project, &parts.clock).await?;
    // What a run refuses to begin on has nothing to say about what a run would do.
    seal::begin(project, tenant, &store).await?;
    let seams = parts.seams(Arc::clone(&store));
    let mut forecasts = Vec::new();
    for job in jobs {
        forecasts.push(forecast(&seams, &job.context, &job.plan).await?);
    }
    let endings: Vec<Vec<Ending<'_>>> = forecasts
        .iter()
        .map(|forecasts| forecasts.iter().map(Ending::from).collect())
        .collect();
    if args.json {
        output::unless_gone(output::json(&forecasts.concat(), true))?;
    } else {
        output::unless_gone(show::tables(parts, jobs, &endings))?;
        show::dry_summary(&endings);
        hints::troubles(project, parts, jobs, &endings);
    }
    Ok(exit_of(&endings))
}

fn tell(
    args: &RunArgs,
    project: &Project,
    parts: &Parts,
    jobs: &[Job],
    executed: &Executed,
    spent: std::time::Duration,
) -> Exit {
    let endings: Vec<Vec<Ending<'_>>> = executed
        .results
        .iter()
        .map(|results| results.iter().map(Ending::from).collect())
        .collect();
    let told = if args.json {
        output::unless_gone(output::json(&executed.results.concat(), true))
    } else {
        output::unless_gone(show::tables(parts, jobs, &endings))
    };
    // What happened has happened; whoever cannot be told here finds it in the receipts.
    let mut exit = exit_of(&endings);
    if let Err(error) = told {
        let ran = "the plan ran, but its results cannot be shown";
        output::error(&anyhow!(error).context(ran));
        exit = exit.worst(Exit::CouldNotRun);
    }
    if !args.json {
        show::summary(parts, jobs, &endings, spent);
    }
    if let Some(stopped) = &executed.stopped {
        let planned = jobs.iter().map(|job| job.plan.actions.len()).sum();
        exit = exit.worst(tell_stopped(
            stopped,
            endings.iter().flatten().count(),
            planned,
        ));
    }
    if !args.json {
        let abandoned = matches!(executed.stopped, Some(Stopped::Abandoned(_)));
        hints::tell(args, project, parts, jobs, &endings, abandoned);
    }
    exit
}

/// Why not everything was proposed, and what that means for the exit code.
fn tell_stopped(stopped: &Stopped, done: usize, planned: usize) -> Exit {
    let left = planned.saturating_sub(done);
    let error = match stopped {
        Stopped::OnFailure => {
            output::note(&format!(
                "stopped on failure: {left} of {planned} not proposed"
            ));
            return Exit::Ok;
        }
        Stopped::Interrupted | Stopped::GivenUp(_) => {
            anyhow!("interrupted: {left} of {planned} not proposed")
        }
        Stopped::Abandoned(key) => {
            anyhow!("interrupted while key `{key}` was at work: it may be in doubt now")
        }
        Stopped::Error(error) => anyhow!("action {} of {planned}: {error}", done + 1),
    };
    output::error(&error);
    Exit::CouldNotRun
}

fn exit_of(endings: &[Vec<Ending<'_>>]) -> Exit {
    endings
        .iter()
        .flatten()
        .map(|ending| Exit::of_reason(ending.reason))
        .fold(Exit::Ok, Exit::worst)
}
