//! `operators alerts`: what ran under `ALERT`, and that a person has seen it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use operators_kernel::life::{Alert, NoteKind};
use operators_kernel::{
    Directive, DirectiveAnswer, DurableExec, IdKind, Order, ReceiptOutcome, TenantId,
};
use tokio::task::JoinSet;

use crate::args::{AckArgs, AlertsCommand, AlertsListArgs, Whose};
use crate::compose;
use crate::exit::Exit;
use crate::notice::Notice;
use crate::output::{JsonLines, data, next, note, shown};
use crate::person::refused;
use crate::project::Project;
use crate::table::{Column, ID_END, Table, Text, id_end, receipt_id, terminal_width};
use crate::unseen;
use crate::words::moment;

/// How many acknowledgements are under way at once: a store writes those together.
const AT_ONCE: usize = 32;

pub(crate) async fn run(command: AlertsCommand, project: Option<&Path>) -> Result<Exit> {
    let project = Project::open(project)?;
    match command {
        AlertsCommand::List(args) => list(&project, args).await,
        AlertsCommand::Ack(args) => ack(&project, args).await,
    }
}

/// The alerts of a kind, oldest first.
pub(crate) async fn alerts(
    store: &dyn DurableExec,
    tenant: &TenantId,
    kind: NoteKind,
) -> Result<Vec<Alert>> {
    let mut alerts = Vec::new();
    for (_, body) in store.notes(tenant, kind).await? {
        alerts.extend(Alert::read(Some(&body))?);
    }
    alerts.sort_by_key(|alert| alert.raised_at);
    Ok(alerts)
}

async fn list(project: &Project, args: AlertsListArgs) -> Result<Exit> {
    let tenant = project.tenant(&args.whose)?;
    let clock = compose::clock();
    let store = compose::store_to_read(project, &clock).await?;
    let mut found = alerts(&*store, &tenant, NoteKind::Alert).await?;
    if args.all {
        found.extend(alerts(&*store, &tenant, NoteKind::Acknowledged).await?);
        found.sort_by_key(|alert| alert.raised_at);
    }
    if found.is_empty() {
        unseen::warn_of_nothing(&*store, &tenant).await;
    }
    let since = args.since.map(|since| since.resolve(clock.now()));
    found.retain(|alert| {
        let proposal = &*alert.proposal;
        let (operator, tool) = (&args.operator, &args.tool);
        (operator.is_none() || proposal.operator == *operator)
            && tool
                .as_ref()
                .is_none_or(|tool| proposal.action.tool == *tool)
            && since.is_none_or(|since| alert.raised_at >= since)
    });
    if args.json {
        let mut lines = JsonLines::new();
        for alert in &found {
            lines.line(&Notice::alert(alert).with_args())?;
        }
        lines.flush()?;
        return Ok(Exit::Ok);
    }
    let Some(oldest) = found.iter().find(|alert| alert.acknowledged.is_none()) else {
        note(&format!(
            "no alert of tenant `{}` waits to be acknowledged",
            shown(&tenant)
        ));
        if !found.is_empty() {
            data(&table(&found))?;
        }
        return Ok(Exit::Ok);
    };
    data(&table(&found))?;
    note("");
    let id = id_end(&oldest.proposal.receipt_id);
    let command = format!("alerts ack {} --because 'seen'", shown(id));
    next(&project.command(&command, &args.whose), "or --all");
    Ok(Exit::Ok)
}

fn table(alerts: &[Alert]) -> String {
    let width = terminal_width();
    let mut table = Table::new(&[
        Column::fixed("raised"),
        Column::yielding("tool", 10),
        Column::yielding("key", 14),
        Column::yielding("rule", 8),
        Column::fixed("outcome"),
        Column::yielding("acknowledged", 6),
        Column::fixed("receipt"),
    ]);
    for alert in alerts {
        let proposal = &*alert.proposal;
        let action = &*proposal.action;
        let seen = alert.acknowledged.as_ref();
        table.row([
            Text::plain(&moment(alert.raised_at)),
            Text::plain(&format!("{}:{}", action.connector, action.tool)),
            Text::plain(&proposal.idempotency_key),
            Text::plain(proposal.rule.as_deref().unwrap_or("-")),
            outcome(alert.outcome),
            Text::plain(seen.map_or("-", |seen| seen.by.as_str())),
            Text::plain(&receipt_id(&proposal.receipt_id, width)),
        ]);
    }
    table.render(width)
}

fn outcome(outcome: ReceiptOutcome) -> Text {
    let word = outcome.as_str();
    match outcome {
        ReceiptOutcome::Failed | ReceiptOutcome::InDoubt | ReceiptOutcome::Refused => {
            Text::coloured(word, comfy_table::Color::Red)
        }
        ReceiptOutcome::Applied | ReceiptOutcome::Deduplicated => Text::plain(word),
    }
}

async fn ack(project: &Project, args: AckArgs) -> Result<Exit> {
    if let Some(refused) = refused(project) {
        return Ok(refused);
    }
    let by = args.decided.who.person()?;
    let tenant = project.tenant(&args.whose)?;
    let clock = compose::clock();
    let store = compose::store_to_read(project, &clock).await?;
    let open = alerts(&*store, &tenant, NoteKind::Alert).await?;
    let open = open
        .into_iter()
        .map(|alert| alert.proposal.receipt_id.clone().into());
    let mut wanted: Vec<String> = open.collect();
    if !args.all {
        let seen = store.notes(&tenant, NoteKind::Acknowledged).await?;
        let known: Vec<String> = wanted
            .into_iter()
            .chain(seen.into_iter().map(|s| s.0))
            .collect();
        let ids = args.ids.iter().map(|id| find(&known, id, &tenant));
        wanted = ids.collect::<Result<_>>()?;
    }
    if wanted.is_empty() {
        note(&format!(
            "no alert of tenant `{}` waits to be acknowledged",
            shown(&tenant)
        ));
        return Ok(Exit::Ok);
    }
    let order = |receipt_id: String| Directive {
        order: Order::Acknowledge(receipt_id),
        by: by.clone(),
        note: Some(args.decided.because.clone()),
        receipt_id: clock.id(IdKind::Receipt),
        at: clock.now(),
    };
    let orders = wanted.into_iter().map(order).collect();
    let count = direct_all(&store, &tenant, orders).await?;
    let whose = Whose {
        tenant: args.whose.tenant,
    };
    if count > 0 {
        let alerts = if count == 1 { "alert" } else { "alerts" };
        data(&format!("acknowledged: {count} {alerts}"))?;
        next(
            &project.command("alerts list --all", &whose),
            "who saw what",
        );
    }
    Ok(Exit::Ok)
}

/// The receipt of that id, or the one whose id ends so.
fn find(known: &[String], id: &str, tenant: &TenantId) -> Result<String> {
    let end = id.trim_start_matches('…');
    let is_it = |one: &&String| *one == id || (end.len() >= ID_END && one.ends_with(end));
    let mut found = known.iter().filter(is_it);
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one.clone()),
        (Some(_), Some(_)) => bail!(
            "several alerts end in `{}`; give more of the id; nothing was acknowledged",
            shown(end)
        ),
        (None, _) => bail!(
            "receipt `{}` of tenant `{}` raised no alert; nothing was acknowledged",
            shown(id),
            shown(tenant)
        ),
    }
}

/// Gives every order; how many did something. Whatever was acknowledged before is told.
async fn direct_all(
    store: &Arc<dyn DurableExec>,
    tenant: &TenantId,
    orders: Vec<Directive>,
) -> Result<usize> {
    let mut done = 0;
    let mut orders = orders.into_iter();
    let mut under_way = JoinSet::new();
    loop {
        while under_way.len() < AT_ONCE
            && let Some(order) = orders.next()
        {
            let (store, tenant) = (Arc::clone(store), tenant.clone());
            under_way.spawn(async move {
                let about = order.order.clone();
                (about, store.direct(&tenant, order).await)
            });
        }
        let Some(ended) = under_way.join_next().await else {
            return Ok(done);
        };
        let (about, answer) = ended.context("an acknowledgement was lost; ask again")?;
        let Order::Acknowledge(receipt_id) = about else {
            continue;
        };
        let receipt_id = shown(&receipt_id);
        let answer = answer.with_context(|| {
            format!("alert `{receipt_id}`; {done} were acknowledged, ask again for the others")
        })?;
        match answer {
            DirectiveAnswer::Done => done += 1,
            DirectiveAnswer::AcknowledgedBefore(before) => note(&format!(
                "`{receipt_id}` was acknowledged before, by {} at {}",
                shown(&before.by),
                moment(before.at)
            )),
            DirectiveAnswer::NotRaised
            | DirectiveAnswer::NotAsked
            | DirectiveAnswer::AskedAnew(_)
            | DirectiveAnswer::AnsweredBefore(_)
            | DirectiveAnswer::NotPaused
            | DirectiveAnswer::PrunedElsewhere(_)
            | DirectiveAnswer::PausedBefore(_) => note(&format!("`{receipt_id}` raised no alert")),
        }
    }
}
