//! `operators status`: what stands in the way and what is open at this moment. Acts on nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use operators_kernel::life::{Alert, Approval, KeyRecord, NoteKind};
use operators_kernel::{
    Clock, Cursor, Ledger, PAGE_MAX, Reason, ReceiptFilter, TenantId, Timestamp,
};
use serde::Serialize;

use crate::args::StatusArgs;
use crate::command::doubts::Doubt;
use crate::command::pause::{self, Standing};
use crate::command::{alerts, approvals};
use crate::compose;
use crate::exit::Exit;
use crate::notary::Notary;
use crate::notice::Notice;
use crate::open_ends::{Flight, OpenEnds};
use crate::output::{self, data, hanging, shown, unless_gone};
use crate::project::Project;
use crate::table::terminal_width;
use crate::unseen;
use crate::words::{ago, moment};

/// How far back refusals of limits are told.
const LIMITS_WINDOW: Duration = Duration::from_hours(1);

/// How many pages of receipts are read for them.
const PAGES_MAX: usize = 20;

/// How many keys are named in a line.
const NAMED_MAX: usize = 3;

/// All of it, as `--json` shows it.
#[derive(Debug, Serialize)]
struct Status<'a> {
    tenant_id: &'a TenantId,
    store: String,
    looked_at: Timestamp,
    paused: Vec<Standing<'a>>,
    in_flight: Vec<Flight<'a>>,
    in_doubt: Vec<Doubt<'a>>,
    awaiting_approval: Vec<Notice<'a>>,
    alerts: Vec<Notice<'a>>,
    limits: Limits,
    log: Head,
}

/// What limits refused lately.
#[derive(Debug, Serialize)]
struct Limits {
    since: Timestamp,
    /// Whether all receipts since then were looked at.
    is_complete: bool,
    refused: Vec<Refused>,
}

/// What one rule's limit refused.
#[derive(Debug, Serialize)]
struct Refused {
    rule: String,
    count: usize,
    last_at: Timestamp,
    last_error: String,
}

/// The log's head, and up to where it is signed.
#[derive(Debug, Serialize)]
struct Head {
    size: u64,
    root: String,
    signed: Option<u64>,
}

pub(crate) async fn run(args: &StatusArgs, project: Option<&Path>) -> Result<Exit> {
    let project = Project::open(project)?;
    let tenant = project.tenant(&args.whose)?;
    let clock = compose::clock();
    let store = compose::store_to_read(&project, &clock).await?;
    let now = clock.now();
    let pauses = pause::standing(&*store, &tenant).await?;
    let open = OpenEnds::of(&*store, &tenant).await?;
    let questions = approvals::standing(&*store, &tenant, now).await?;
    let raised = alerts::alerts(&*store, &tenant, NoteKind::Alert).await?;
    let limits = refused_by_limits(&*store, &tenant, &*clock).await?;
    let head = store.log().head(&tenant).await?;
    if head.size() == 0 && open.is_empty() {
        unseen::warn_of_nothing(&*store, &tenant).await;
    }
    let signed = Notary::of(&project, &tenant, Arc::clone(&store)).history()?;
    let flights = open.in_flight.iter();
    let doubts = open.doubts.iter();
    let status = Status {
        tenant_id: &tenant,
        store: store.describe(),
        looked_at: now,
        paused: pause::each(&pauses),
        in_flight: flights.map(|one| Flight::new(one, open.now)).collect(),
        in_doubt: doubts.map(|one| Doubt::new(one, open.now)).collect(),
        awaiting_approval: questions.iter().map(Notice::approval).collect(),
        alerts: raised.iter().map(Notice::alert).collect(),
        limits,
        log: Head {
            size: head.size(),
            root: head.root().to_string(),
            signed: signed.last().map(|last| last.checkpoint.size),
        },
    };
    if args.json {
        unless_gone(output::json(&status, true))?;
        return Ok(Exit::Ok);
    }
    let lines = lines(&status, &open, &questions, &raised, now);
    unless_gone(lines.iter().try_for_each(|(what, told)| line(what, told)))?;
    Ok(Exit::Ok)
}

fn line(what: &str, told: &str) -> std::io::Result<()> {
    let mark = format!("{what:<12}");
    data(&hanging(&mark, &mark, &shown(told), terminal_width()))
}

/// What each part says; every "nothing" names what was looked at.
fn lines(
    status: &Status<'_>,
    open: &OpenEnds,
    questions: &[Approval],
    raised: &[Alert],
    now: Timestamp,
) -> Vec<(&'static str, String)> {
    let mut lines = vec![(
        "looked at",
        format!("{}, tenant `{}`", status.store, status.tenant_id),
    )];
    if status.paused.is_empty() {
        lines.push((
            "paused",
            "nothing: no pause of the tenant stands".to_owned(),
        ));
    }
    for one in &status.paused {
        lines.push(("paused", one.told()));
    }
    lines.push((
        "in flight",
        match open.in_flight.as_slice() {
            [] => "nothing: no attempt at a key of the tenant is without an end".to_owned(),
            some => {
                let names = keys(some.iter().map(|one| &one.key));
                let told = open.in_flight_in_words();
                format!("{told}: {names}; see `operators doubts list`")
            }
        },
    ));
    lines.push((
        "in doubt",
        counted(&open.doubts, "no key of the tenant is in doubt", |all| {
            format!("{}; see `operators doubts list`", keys(all.iter()))
        }),
    ));
    lines.push((
        "approvals",
        counted(questions, "no question of the tenant is open", |all| {
            let names = keys_of(all.iter().map(|one| one.proposal.idempotency_key.as_str()));
            format!("{names} wait for a person; see `operators approvals list`")
        }),
    ));
    lines.push((
        "alerts",
        counted(raised, "no alert of the tenant is unacknowledged", |all| {
            let names = keys_of(all.iter().map(|one| one.proposal.idempotency_key.as_str()));
            format!("{names} stand; see `operators alerts list`")
        }),
    ));
    let limits = &status.limits;
    if limits.refused.is_empty() {
        let since = moment(limits.since);
        let told = format!("none refused anything: no receipt since {since} says so");
        lines.push(("limits", told));
    }
    for one in &limits.refused {
        let at_least = if limits.is_complete { "" } else { "at least " };
        let told = format!(
            "rule `{}` refused {at_least}{} in the last hour, the last {}: {}",
            one.rule,
            one.count,
            ago(now, one.last_at),
            one.last_error
        );
        lines.push(("limits", told));
    }
    let log = &status.log;
    let signed = match log.signed {
        Some(signed) => format!("the last checkpoint signed here is over {signed}"),
        None => "no checkpoint was signed here".to_owned(),
    };
    let head = format!("{} receipts, root {}; {signed}", log.size, log.root);
    lines.push(("log", head));
    lines
}

/// `none` with what was looked at, or what there is.
fn counted<T>(all: &[T], none: &str, some: impl Fn(&[T]) -> String) -> String {
    if all.is_empty() {
        format!("nothing: {none}")
    } else {
        format!("{}: {}", all.len(), some(all))
    }
}

fn keys<'a>(records: impl Iterator<Item = &'a KeyRecord>) -> String {
    keys_of(records.map(|one| one.proposal.idempotency_key.as_str()))
}

/// The first few.
fn keys_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    let first: Vec<&str> = names.iter().take(NAMED_MAX).map(String::as_str).collect();
    match names.len().saturating_sub(NAMED_MAX) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// What limits refused in the last hour, by rule.
async fn refused_by_limits(
    ledger: &dyn Ledger,
    tenant: &TenantId,
    clock: &dyn Clock,
) -> Result<Limits> {
    let window = i64::try_from(LIMITS_WINDOW.as_micros()).unwrap_or(i64::MAX);
    let since = Timestamp::from_micros(clock.now().as_micros().saturating_sub(window));
    let filter = ReceiptFilter {
        reason: Some(Reason::Limit),
        since: Some(since),
        ..ReceiptFilter::default()
    };
    let mut refused: BTreeMap<String, Refused> = BTreeMap::new();
    let mut end = i64::MAX.unsigned_abs();
    let mut is_complete = false;
    for _ in 0..PAGES_MAX {
        let cursor = Cursor::Before(end);
        let page = ledger.receipts(tenant, &filter, cursor, PAGE_MAX).await?;
        for entry in &page {
            let receipt = &entry.receipt;
            let rule = receipt.rule.as_deref().unwrap_or("-").to_owned();
            // Newest first: the first of a rule is its last.
            let of_rule = refused.entry(rule.clone()).or_insert_with(|| Refused {
                rule,
                count: 0,
                last_at: receipt.settled_at,
                last_error: receipt.error.clone().unwrap_or_default(),
            });
            of_rule.count += 1;
        }
        match page.last() {
            Some(last) if page.len() == PAGE_MAX => end = last.sequence,
            _ => {
                is_complete = true;
                break;
            }
        }
    }
    Ok(Limits {
        since,
        is_complete,
        refused: refused.into_values().collect(),
    })
}
