//! `operators approvals`: what waits for a person, and that person's answer.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use operators_kernel::life::{Approval, NoteKind};
use operators_kernel::{Directive, DirectiveAnswer, IdKind, IdempotencyKey, Order};

use crate::args::{AnswerArgs, ApprovalsCommand, Whose};
use crate::compose;
use crate::exit::Exit;
use crate::notice::Notice;
use crate::output::{JsonLines, data, json_text, next, note, quoted, shown};
use crate::project::Project;
use crate::table::{Column, Table, Text, receipt_id, terminal_width};
use crate::words::moment;

pub(crate) async fn run(command: ApprovalsCommand, project: Option<&Path>) -> Result<Exit> {
    let project = Project::open(project)?;
    match command {
        ApprovalsCommand::List { json, whose } => list(&project, json, &whose).await,
        ApprovalsCommand::Approve(args) => answer(&project, args, Order::Approve, "approved").await,
        ApprovalsCommand::Veto(args) => answer(&project, args, Order::Veto, "vetoed").await,
    }
}

async fn list(project: &Project, as_json: bool, whose: &Whose) -> Result<Exit> {
    let tenant = project.tenant(whose)?;
    let clock = compose::clock();
    let store = compose::store_to_read(project, &clock).await?;
    let now = clock.now();
    let mut asked = Vec::new();
    for (_, body) in store.notes(&tenant, NoteKind::Approval).await? {
        let approval = Approval::read(Some(&body))?;
        asked.extend(approval.filter(|one| one.answer.is_none() && !one.is_over(now)));
    }
    asked.sort_by_key(|one| one.asked_at);
    if as_json {
        let mut lines = JsonLines::new();
        for one in &asked {
            lines.line(&Notice::approval(one).with_args())?;
        }
        lines.flush()?;
        return Ok(Exit::Ok);
    }
    let Some(oldest) = asked.first() else {
        note(&format!(
            "nothing of tenant `{}` waits for a person",
            shown(&tenant)
        ));
        return Ok(Exit::Ok);
    };
    data(&table(&asked))?;
    note("");
    let key = quoted(oldest.proposal.idempotency_key.as_str());
    let command = format!("approvals approve {key} --because 'checked'");
    next(
        &project.command(&command, whose),
        "or veto; then propose it again",
    );
    Ok(Exit::Ok)
}

fn table(pending: &[Approval]) -> String {
    let width = terminal_width();
    let mut table = Table::new(&[
        Column::yielding("key", 14),
        Column::yielding("tool", 10),
        Column::yielding("args", 10),
        Column::yielding("rule", 8),
        Column::fixed("until"),
        Column::fixed("receipt"),
    ]);
    for one in pending {
        let (proposal, action) = (&*one.proposal, &*one.proposal.action);
        let args = json_text(&action.args, false).unwrap_or_default();
        table.row([
            Text::plain(&proposal.idempotency_key),
            Text::plain(&format!("{}:{}", action.connector, action.tool)),
            Text::plain(&args),
            Text::plain(proposal.rule.as_deref().unwrap_or("-")),
            Text::plain(&moment(one.expires_at)),
            Text::plain(&receipt_id(&proposal.receipt_id, width)),
        ]);
    }
    table.render(width)
}

async fn answer(
    project: &Project,
    args: AnswerArgs,
    order: impl Fn(IdempotencyKey) -> Order,
    done: &str,
) -> Result<Exit> {
    let tenant = project.tenant(&args.whose)?;
    let clock = compose::clock();
    let store = compose::store_to_read(project, &clock).await?;
    let key = shown(&args.key);
    let directive = Directive {
        order: order(args.key.clone()),
        by: args.decided.who.name()?,
        note: Some(args.decided.because),
        receipt_id: clock.id(IdKind::Receipt),
        at: clock.now(),
    };
    let answer = store.direct(&tenant, directive).await;
    match answer.with_context(|| format!("key `{key}`"))? {
        DirectiveAnswer::Done => {
            data(&format!("{key}: {done}"))?;
            note(match done {
                "approved" => "it runs when it is proposed again, if the policy still allows it",
                _ => "this proposal never runs; another one of the key is asked about anew",
            });
            Ok(Exit::Ok)
        }
        DirectiveAnswer::AnsweredBefore(before) => bail!(
            "key `{key}` was {} already, by {} at {}",
            if before.approved {
                "approved"
            } else {
                "vetoed"
            },
            shown(&before.by),
            moment(before.at)
        ),
        DirectiveAnswer::NotAsked
        | DirectiveAnswer::NotRaised
        | DirectiveAnswer::AcknowledgedBefore(_)
        | DirectiveAnswer::NotPaused
        | DirectiveAnswer::PrunedElsewhere(_)
        | DirectiveAnswer::PausedBefore(_) => {
            bail!(
                "nothing waits under key `{key}` of tenant `{}`",
                shown(&tenant)
            )
        }
    }
}
