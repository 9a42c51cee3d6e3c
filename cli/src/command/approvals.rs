//! `operators approvals`: what waits for a person, and that person's answer.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use operators_kernel::life::{Approval, NoteKind};
use operators_kernel::{
    Cursor, Directive, DirectiveAnswer, IdKind, Ledger, Order, QuestionRef, ReceiptFilter,
    TenantId, Timestamp,
};

use crate::args::{AnswerArgs, ApprovalsCommand, Whose};
use crate::compose;
use crate::exit::Exit;
use crate::notice::Notice;
use crate::output::{JsonLines, data, json_text, next, note, quoted, shown};
use crate::person::refused;
use crate::project::Project;
use crate::table::{Column, ID_END, Table, Text, receipt_id, terminal_width};
use crate::unseen;
use crate::words::moment;

pub(crate) async fn run(command: ApprovalsCommand, project: Option<&Path>) -> Result<Exit> {
    let project = Project::open(project)?;
    match command {
        ApprovalsCommand::List { json, whose } => list(&project, json, &whose).await,
        ApprovalsCommand::Approve(args) => answer(&project, args, &APPROVE).await,
        ApprovalsCommand::Veto(args) => answer(&project, args, &VETO).await,
    }
}

/// What can be answered now, oldest first.
pub(crate) async fn standing(
    store: &dyn Ledger,
    tenant: &TenantId,
    now: Timestamp,
) -> Result<Vec<Approval>> {
    let mut asked = Vec::new();
    for (_, body) in store.notes(tenant, NoteKind::Approval).await? {
        let approval = Approval::read(Some(&body))?;
        asked.extend(approval.filter(|one| one.is_open(now)));
    }
    asked.sort_by_key(|one| one.asked_at);
    Ok(asked)
}

async fn list(project: &Project, as_json: bool, whose: &Whose) -> Result<Exit> {
    let tenant = project.tenant(whose)?;
    let clock = compose::clock();
    let store = compose::store_to_read(project, &clock).await?;
    let asked = standing(&*store, &tenant, clock.now()).await?;
    if asked.is_empty() {
        unseen::warn_of_nothing(&*store, &tenant).await;
    }
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
    let id = &oldest.proposal.receipt_id;
    let command = format!("approvals approve {id} --because 'checked'");
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

/// An answer, in words.
struct Verb {
    word: &'static str,
    done: &'static str,
    order: fn(QuestionRef) -> Order,
    after: &'static str,
}

const APPROVE: Verb = Verb {
    word: "approve",
    done: "approved",
    order: Order::Approve,
    after: "it runs when it is proposed again, if the policy still allows it",
};

const VETO: Verb = Verb {
    word: "veto",
    done: "vetoed",
    order: Order::Veto,
    after: "this proposal never runs; another one of the key is asked about anew",
};

async fn answer(project: &Project, args: AnswerArgs, verb: &Verb) -> Result<Exit> {
    if let Some(refused) = refused(project) {
        return Ok(refused);
    }
    let by = args.decided.who.person()?;
    let tenant = project.tenant(&args.whose)?;
    let clock = compose::clock();
    let store = compose::store_to_read(project, &clock).await?;
    let asked = standing(&*store, &tenant, clock.now()).await?;
    let given = shown(&args.receipt_id);
    let meant = asked
        .iter()
        .filter(|one| is_only_meant(one, &args.receipt_id));
    let meant: Vec<String> = meant.map(|one| told(project, &args, verb, one)).collect();
    if !meant.is_empty() {
        bail!(
            "`{given}` is no question's whole receipt id, so nothing was {}; asked now: {}",
            verb.done,
            meant.join("; ")
        );
    }
    let none = || {
        let (done, tenant) = (verb.done, shown(&tenant));
        anyhow!("no question `{given}` of tenant `{tenant}` waits; nothing was {done}")
    };
    let question = named(&*store, &tenant, &args.receipt_id).await?;
    let question = question.ok_or_else(none)?;
    let key = shown(&question.key);
    let directive = Directive {
        order: (verb.order)(question),
        by,
        note: Some(args.decided.because.clone()),
        receipt_id: clock.id(IdKind::Receipt),
        at: clock.now(),
    };
    let answer = store.direct(&tenant, directive).await;
    match answer.with_context(|| format!("key `{key}`"))? {
        DirectiveAnswer::Done => {
            data(&format!("{key}: {}", verb.done))?;
            note(verb.after);
            Ok(Exit::Ok)
        }
        DirectiveAnswer::AnsweredBefore(before) => bail!(
            "question `{given}` about key `{key}` was {} already, by {} at {}",
            if before.approved {
                "approved"
            } else {
                "vetoed"
            },
            shown(&before.by),
            moment(before.at)
        ),
        DirectiveAnswer::AskedAnew(now) => {
            let asked = standing(&*store, &tenant, clock.now()).await?;
            let now = asked.iter().find(|one| one.proposal.receipt_id == now);
            let now = now.map(|one| told(project, &args, verb, one));
            bail!(
                "key `{key}` is asked about anew since `{given}`, so nothing was {}; asked now: {}",
                verb.done,
                now.as_deref().unwrap_or("see `operators approvals list`")
            )
        }
        DirectiveAnswer::NotAsked
        | DirectiveAnswer::NotRaised
        | DirectiveAnswer::AcknowledgedBefore(_)
        | DirectiveAnswer::NotPaused
        | DirectiveAnswer::PrunedElsewhere(_)
        | DirectiveAnswer::PausedBefore(_) => Err(none()),
    }
}

/// Whether this question is not named, but surely meant. A planner chooses keys, and the end of an
/// id comes again if one asks often enough: neither tells which question a person has seen.
fn is_only_meant(one: &Approval, given: &str) -> bool {
    let id = one.proposal.receipt_id.as_str();
    let end = given.trim_start_matches('…');
    let is_end = end.len() >= ID_END && id.ends_with(end);
    id != given && (is_end || one.proposal.idempotency_key.as_str() == given)
}

/// The question of that receipt, as far as the receipt tells: the store knows whether it stands.
async fn named(store: &dyn Ledger, tenant: &TenantId, id: &str) -> Result<Option<QuestionRef>> {
    let filter = ReceiptFilter {
        receipt_id: Some(id.into()),
        ..ReceiptFilter::default()
    };
    let mut found = store.receipts(tenant, &filter, Cursor::After(0), 1).await?;
    Ok(found.pop().map(|entry| QuestionRef {
        key: entry.receipt.idempotency_key,
        receipt_id: entry.receipt.receipt_id,
    }))
}

/// What is asked, whole, and the command that answers it.
fn told(project: &Project, args: &AnswerArgs, verb: &Verb, one: &Approval) -> String {
    let (proposal, action) = (&*one.proposal, &*one.proposal.action);
    let because = quoted(&args.decided.because);
    let mut command = format!(
        "approvals {} {} --because {because}",
        verb.word, proposal.receipt_id
    );
    if let Some(name) = &args.decided.who.named {
        command.push_str(" --as ");
        command.push_str(&quoted(name));
    }
    let value = proposal.value.as_ref();
    let value = value.map_or_else(String::new, |value| format!(", value {value}"));
    format!(
        "{}:{} on `{}` with {}{value}; to {} that, type `{}`",
        action.connector,
        action.tool,
        shown(&proposal.entity_key),
        shown(&json_text(&action.args, false).unwrap_or_default()),
        verb.word,
        project.command(&command, &args.whose)
    )
}
