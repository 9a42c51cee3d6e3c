//! `operators pause` and `operators resume`: the kill switch, for one operator or everything.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use operators_kernel::life::{NoteName, Pauses};
use operators_kernel::{
    Directive, DirectiveAnswer, DurableExec, IdKind, Ledger, OperatorName, Order, TenantId,
    Timestamp,
};
use serde::Serialize;

use crate::args::PauseArgs;
use crate::compose;
use crate::config::StoreUrl;
use crate::exit::Exit;
use crate::output::{data, next, note, shown, warn};
use crate::person::refused;
use crate::project::Project;
use crate::unseen::{self, Unseen};
use crate::words::moment;

pub(crate) async fn pause(args: &PauseArgs, project: Option<&Path>) -> Result<Exit> {
    let project = Project::open(project)?;
    if let Some(name) = &args.operator
        && !project.config.operators.contains_key(name)
    {
        // A name that nobody has would stop nothing, and look as if it did.
        bail!("no operator `{name}` in this project; nothing was paused");
    }
    let (tenant, answer, _) = direct(args, &project, Order::Pause).await?;
    let what = target(args.operator.as_ref());
    let told = if let DirectiveAnswer::PausedBefore(halt) = answer {
        let (by, at) = (shown(&halt.by), moment(halt.at));
        format!("{what} was paused already, by {by} at {at}")
    } else {
        let of = args.operator.as_ref();
        let (of, rest) = of.map_or_else(Default::default, |name| {
            (format!(" of operator `{name}`"), "; others go on")
        });
        format!(
            "nothing new{of} is sent for tenant `{}`, by any process that shares this store; what \
             was claimed before goes on to its end{rest}",
            shown(&tenant)
        )
    };
    note(&told);
    data(&format!("paused: {what}"))?;
    let resume = match &args.operator {
        None => "resume".to_owned(),
        Some(name) => format!("resume --operator {name}"),
    };
    next(&project.command(&resume, &args.whose), "to let it go on");
    Ok(Exit::Ok)
}

pub(crate) async fn resume(args: &PauseArgs, project: Option<&Path>) -> Result<Exit> {
    let project = Project::open(project)?;
    if let Some(refused) = refused(&project) {
        return Ok(refused);
    }
    let (tenant, answer, store) = direct(args, &project, Order::Resume).await?;
    let what = target(args.operator.as_ref());
    let left = standing(&*store, &tenant).await?;
    match answer {
        DirectiveAnswer::Done => data(&format!("resumed: {what}"))?,
        _ => {
            note(&format!("there is no pause of {what} to end"));
        }
    }
    for one in each(&left) {
        note(&format!("still paused: {}", one.told()));
    }
    Ok(match answer {
        DirectiveAnswer::Done => Exit::Ok,
        _ => Exit::Refused,
    })
}

async fn direct(
    args: &PauseArgs,
    project: &Project,
    order: impl Fn(Option<OperatorName>) -> Order,
) -> Result<(TenantId, DirectiveAnswer, std::sync::Arc<dyn DurableExec>)> {
    if project.config.store.url == StoreUrl::Memory {
        bail!("the memory store ends with its process: there is nothing to pause");
    }
    let tenant = project.tenant(&args.whose)?;
    let clock = compose::clock();
    let store = compose::store(project, &clock).await?;
    let directive = Directive {
        order: order(args.operator.clone()),
        by: args.who.person()?,
        note: args.because.clone(),
        receipt_id: clock.id(IdKind::Receipt),
        at: clock.now(),
    };
    // Whether the name is known must not hold up a pause.
    if let Ok(Some(Unseen::Odd(_))) = unseen::of(&*store, &tenant, false).await {
        warn(&format!(
            "tenant `{}` is new to this store, which knows others: this stops nothing of theirs",
            shown(&tenant)
        ));
    }
    let answer = store.direct(&tenant, directive).await;
    let answer = answer.context("whether it took effect may not be known")?;
    Ok((tenant, answer, store))
}

fn target(operator: Option<&OperatorName>) -> String {
    match operator {
        None => "everything".to_owned(),
        Some(name) => format!("operator `{name}`"),
    }
}

/// A pause that stands.
#[derive(Debug, Serialize)]
pub(crate) struct Standing<'a> {
    /// Whose; everybody's where there is none.
    operator: Option<&'a OperatorName>,
    by: &'a str,
    since: Timestamp,
    because: Option<&'a str>,
}

impl Standing<'_> {
    /// What is paused, by whom, since when and why.
    pub(crate) fn told(&self) -> String {
        let because = self.because.map(|because| format!(": {}", shown(because)));
        format!(
            "{}, by {} at {}{}",
            target(self.operator),
            shown(self.by),
            moment(self.since),
            because.unwrap_or_default()
        )
    }
}

/// What is paused of a tenant.
pub(crate) async fn standing(ledger: &dyn Ledger, tenant: &TenantId) -> Result<Pauses> {
    let found = ledger.note(tenant, NoteName::paused()).await?;
    Ok(Pauses::read(found.as_deref())?)
}

/// Each pause of a tenant, that of everything first.
pub(crate) fn each(pauses: &Pauses) -> Vec<Standing<'_>> {
    let everything = pauses.everything.iter().map(|halt| (None, halt));
    let operators = pauses
        .operators
        .iter()
        .map(|(name, halt)| (Some(name), halt));
    let standing = everything.chain(operators);
    let standing = standing.map(|(operator, halt)| Standing {
        operator,
        by: &halt.by,
        since: halt.at,
        because: halt.note.as_deref(),
    });
    standing.collect()
}
