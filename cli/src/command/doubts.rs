//! `operators doubts`: what nobody knows the outcome of, what is in flight, and a person's answer.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use operators_kernel::life::{KeyRecord, Phase};
use operators_kernel::{
    Clock, DurableExec, Effect, EffectClass, IdKind, OnUnknown, OwnerState, Resolution,
    ResolveAnswer, Resolver, StoreTime, TenantId, Verdict, json,
};
use serde::Serialize;
use serde_json::Value;

use crate::args::{DoubtsCommand, ResolveArgs, Whose};
use crate::compose;
use crate::config::StoreUrl;
use crate::exit::Exit;
use crate::open_ends::{Flight, OpenEnds, owner, owner_in_words, seconds_up};
use crate::output::{JsonLines, data, next, note, quoted, shown};
use crate::person::refused;
use crate::project::Project;
use crate::table::{Column, Table, Text, receipt_id, terminal_width};
use crate::unseen;
use crate::words::duration;

/// How much longer than what may still land the dates of `DynamoDB`'s answers must be apart.
const DATES_APART: Duration = Duration::from_secs(305);

/// A little more than what is left, so that it is over then.
const WATCH_MARGIN: Duration = Duration::from_millis(100);

pub(crate) async fn run(command: DoubtsCommand, project: Option<&Path>) -> Result<Exit> {
    let project = Project::open(project)?;
    match command {
        DoubtsCommand::List { json, whose } => list(&project, json, &whose).await,
        DoubtsCommand::Resolve(args) => resolve(&project, args).await,
    }
}

/// A doubt, as `--json` shows it. Spans, not times: the store's clock compares with itself alone.
#[derive(Debug, Serialize)]
pub(crate) struct Doubt<'a> {
    state: &'static str,
    idempotency_key: &'a str,
    entity_key: &'a str,
    connector: &'a str,
    tool: &'a str,
    effect: &'static str,
    generation: u32,
    attempt: u32,
    proposed_at: String,
    in_doubt_for_seconds: u64,
    may_land_for_seconds: u64,
    receipt_id: &'a str,
}

impl<'a> Doubt<'a> {
    pub(crate) fn new(record: &'a KeyRecord, now: StoreTime) -> Self {
        let proposal = &record.proposal;
        Self {
            state: "in_doubt",
            idempotency_key: proposal.idempotency_key.as_str(),
            entity_key: proposal.entity_key.as_str(),
            connector: proposal.action.connector.as_str(),
            tool: proposal.action.tool.as_str(),
            effect: record.effect.as_str(),
            generation: record.generation,
            attempt: record.attempt,
            proposed_at: proposal.proposed_at.to_string(),
            in_doubt_for_seconds: record.first_intent_at.until(now).as_secs(),
            may_land_for_seconds: seconds_up(now.until(record.open_until)),
            receipt_id: &proposal.receipt_id,
        }
    }
}

/// What was looked at where nothing is open.
fn tell_of_nothing(project: &Project, store: &str, tenant: &TenantId) {
    let lagging = match &project.config.store.url {
        StoreUrl::DynamoDb(_) => "; an attempt that began a moment ago may not show yet",
        StoreUrl::Sqlite(_) | StoreUrl::Postgres(_) | StoreUrl::Memory => "",
    };
    note(&format!(
        "no doubts: nothing is in flight and nothing in doubt in {}, so every outcome of tenant `{}` \
         is known{lagging}",
        shown(&store),
        shown(tenant)
    ));
}

async fn list(project: &Project, as_json: bool, whose: &Whose) -> Result<Exit> {
    let tenant = project.tenant(whose)?;
    let clock = compose::clock();
    let store = compose::store_to_read(project, &clock).await?;
    let open = OpenEnds::of(&*store, &tenant).await?;
    if open.is_empty() {
        unseen::warn_of_nothing(&*store, &tenant).await;
    }
    let doubts: Vec<Doubt<'_>> = open
        .doubts
        .iter()
        .map(|record| Doubt::new(record, open.now))
        .collect();
    let flights: Vec<Flight<'_>> = open
        .in_flight
        .iter()
        .map(|attempt| Flight::new(attempt, open.now))
        .collect();
    if as_json {
        let mut lines = JsonLines::new();
        for doubt in &doubts {
            lines.line(doubt)?;
        }
        for flight in &flights {
            lines.line(flight)?;
        }
        lines.flush()?;
        return Ok(Exit::Ok);
    }
    if open.is_empty() {
        tell_of_nothing(project, &store.describe(), &tenant);
        return Ok(Exit::Ok);
    }
    let left_by_the_gone = open
        .in_flight
        .iter()
        .find(|one| one.owner == OwnerState::Gone);
    if !doubts.is_empty() {
        data(&table(&doubts))?;
        note("");
    }
    if !flights.is_empty() {
        note(&format!("{}:", open.in_flight_in_words()));
        data(&flight_table(&flights))?;
        note("");
        for told in flights_mean(&open) {
            note(told);
        }
    }
    let left_by_the_gone = left_by_the_gone.map(|one| &one.key);
    if let Some(told) = counted_anew(project, &open, &doubts) {
        note(told);
    }
    if let Some(oldest) = open.doubts.first().or(left_by_the_gone) {
        note(way_out(oldest));
        let key = quoted(oldest.proposal.idempotency_key.as_str());
        let command = format!("doubts resolve {key} --applied --because '…'");
        next(
            &project.command(&command, whose),
            "or --not-applied, --write-off",
        );
    }
    Ok(Exit::Ok)
}

/// What the spans shown mean where each command counts them anew.
fn counted_anew(project: &Project, open: &OpenEnds, doubts: &[Doubt<'_>]) -> Option<&'static str> {
    let is_any = doubts.iter().any(|doubt| doubt.may_land_for_seconds > 0)
        || open.owned(OwnerState::NotKnownYet) > 0;
    (is_any && counts_from_its_own_look(project)).then_some(COUNTED_ANEW)
}

const COUNTED_ANEW: &str = "DynamoDB tells no time to go by: how much of a lease is left, and for how \
    long a request may land, each command counts from its own first look. The next look soon shows the \
    same again, and the end at the latest five minutes after it; a run, or `doubts resolve` with \
    `--wait`, goes on looking and sees it sooner";

/// What follows from what is in flight, one line per kind of owner.
fn flights_mean(open: &OpenEnds) -> Vec<&'static str> {
    let kinds = [
        (
            OwnerState::Gone,
            "owner gone: a doubt that lacks only its record; a run or an answer writes it",
        ),
        (
            OwnerState::NotKnownYet,
            "owner not known yet: its lease is not over; then it is a doubt, unless the process shows \
             that it is alive",
        ),
        (
            OwnerState::Alive,
            "owner alive: its process is at work and will say how it ended",
        ),
    ];
    let there = kinds.into_iter().filter(|(kind, _)| open.owned(*kind) > 0);
    there.map(|(_, told)| told).collect()
}

fn way_out(record: &KeyRecord) -> &'static str {
    match (record.effect, record.on_unknown) {
        (EffectClass::Keyed { .. } | EffectClass::Idempotent, _) | (_, OnUnknown::Retry) => {
            "a keyed or idempotent one is re-sent with the same key when its plan runs again; \
             for the others find out what happened, and say so:"
        }
        (EffectClass::Probeable, OnUnknown::Hold) => {
            "a probeable one is asked about when its plan runs again; \
             for the others find out what happened, and say so:"
        }
        (EffectClass::Opaque | EffectClass::Transactional | EffectClass::Read, OnUnknown::Hold) => {
            "find out at the vendor what happened, and say so:"
        }
    }
}

fn table(doubts: &[Doubt<'_>]) -> String {
    let width = terminal_width();
    let mut table = Table::new(&[
        Column::yielding("key", 14),
        Column::yielding("entity", 10),
        Column::yielding("tool", 10),
        Column::fixed("attempt"),
        Column::fixed("since"),
        Column::fixed("may land"),
        Column::fixed("receipt"),
    ]);
    for doubt in doubts {
        let seconds = Duration::from_secs;
        let landing = match doubt.may_land_for_seconds {
            0 => "no more".to_owned(),
            left => format!("for {}", duration(seconds(left))),
        };
        table.row([
            Text::plain(doubt.idempotency_key),
            Text::plain(doubt.entity_key),
            Text::plain(&format!("{}:{}", doubt.connector, doubt.tool)),
            Text::plain(&doubt.attempt),
            Text::plain(&duration(seconds(doubt.in_doubt_for_seconds))),
            Text::plain(&landing),
            Text::plain(&receipt_id(doubt.receipt_id, width)),
        ]);
    }
    table.render(width)
}

fn flight_table(flights: &[Flight<'_>]) -> String {
    let mut table = Table::new(&[
        Column::yielding("key", 14),
        Column::yielding("entity", 10),
        Column::yielding("tool", 10),
        Column::fixed("attempt"),
        Column::fixed("since"),
        Column::fixed("may land"),
        Column::fixed("lease"),
        Column::fixed("owner"),
    ]);
    let seconds = |count: u64| duration(Duration::from_secs(count));
    for flight in flights {
        let landing = match flight.may_land_for_seconds {
            0 => "no more".to_owned(),
            left => format!("for {}", seconds(left)),
        };
        let lease = match flight.lease_left_seconds {
            0 => "over".to_owned(),
            left => format!("{} left", seconds(left)),
        };
        table.row([
            Text::plain(flight.idempotency_key),
            Text::plain(flight.entity_key),
            Text::plain(&format!("{}:{}", flight.connector, flight.tool)),
            Text::plain(&flight.attempt),
            Text::plain(&seconds(flight.in_flight_for_seconds)),
            Text::plain(&landing),
            Text::plain(&lease),
            Text::plain(owner(flight.owner)),
        ]);
    }
    table.render(terminal_width())
}

async fn resolve(project: &Project, args: ResolveArgs) -> Result<Exit> {
    if let Some(refused) = refused(project) {
        return Ok(refused);
    }
    let tenant = project.tenant(&args.whose)?;
    let result = match &args.result {
        Some(text) => match json::parse(text) {
            Ok(result) => result,
            Err(error) => bail!("`--result` is not JSON: {error}"),
        },
        None => Value::Null,
    };
    let clock = compose::clock();
    let store = compose::store_to_read(project, &clock).await?;
    let key = shown(&args.key);
    let Some(record) = store.key(&tenant, &args.key).await? else {
        bail!(
            "no doubt: key `{key}` of tenant `{}` was never claimed",
            shown(&tenant)
        );
    };
    // A mistake of the caller's is found before anything is written.
    args.decided.who.person()?;
    let record = match record.phase {
        Phase::Intent => match after_its_owner(project, &*store, &args, record).await? {
            Owned::Over(record) => *record,
            Owned::Settled(exit) => return Ok(exit),
        },
        Phase::Applied | Phase::Failed | Phase::InDoubt | Phase::WrittenOff | Phase::Forgotten => {
            record
        }
    };
    let answer = loop {
        let resolution = resolution(&args, &record, result.clone(), &*clock)?;
        match store.resolve(&tenant, resolution).await? {
            ResolveAnswer::MayStillLand(left) if args.wait => watch(left).await,
            answer => break answer,
        }
    };
    match answer {
        ResolveAnswer::Resolved(phase) => {
            data(&format!("{key}: {}", phase.as_str()))?;
            let entity = &record.proposal.entity_key;
            let look = store.glimpse(&tenant, &args.key, entity).await;
            // The answer stands, whether or not this look succeeds.
            let held = look.map_or(Duration::ZERO, |seen| {
                seen.now.until(seen.entity.landing_until)
            });
            note(&consequence(phase, &record, held));
            Ok(Exit::Ok)
        }
        ResolveAnswer::NotInDoubt(phase) => {
            let phase = phase.unwrap_or(record.phase).as_str();
            bail!("no doubt: key `{key}` is `{phase}`; nothing was changed");
        }
        ResolveAnswer::MayStillLand(left) => {
            let (seconds, then) = (seconds_up(left), by_when(project, left));
            note(&format!(
                "refused: the request for `{key}` may still land for {seconds} s, \
                 so \"not applied\" cannot be believed yet; {then}"
            ));
            Ok(Exit::Refused)
        }
    }
}

/// Waits, and says so. The same process asks again: what it has watched by then counts.
async fn watch(left: Duration) {
    note(&format!("waiting for {} s", seconds_up(left)));
    tokio::time::sleep(left.saturating_add(WATCH_MARGIN)).await;
}

/// Whether each command counts spans anew, because the store tells no time that all go by.
fn counts_from_its_own_look(project: &Project) -> bool {
    matches!(project.config.store.url, StoreUrl::DynamoDb(_))
}

/// When to say it again. A command lives for seconds, so where the store tells no time that all go by
/// it would begin to count anew every time.
fn by_when(project: &Project, left: Duration) -> String {
    if !counts_from_its_own_look(project) {
        return "say it again then, or with `--wait`".to_owned();
    }
    // Up to a whole minute: `5m` for 5 min 50 s would be too early.
    let latest = left.saturating_add(DATES_APART).as_secs().div_ceil(60);
    let latest = duration(Duration::from_secs(latest * 60));
    format!(
        "DynamoDB tells no time to go by, so each process counts that from its own first look: \
         `--wait` goes on looking until then, and without it that is believed in {latest} at the \
         latest, once the dates of the store's answers show it with five minutes to spare"
    )
}

/// What became of a key that was found in flight.
enum Owned {
    /// Nothing is in flight any more: the key as it is now.
    Over(Box<KeyRecord>),
    /// There is nothing left for a person to answer; how the command ends.
    Settled(Exit),
}

/// What is in flight is no doubt before its owner is dead; one that is gone is declared so now, and
/// then the answer is judged as any (rule 4.14).
async fn after_its_owner(
    project: &Project,
    store: &dyn DurableExec,
    args: &ResolveArgs,
    record: KeyRecord,
) -> Result<Owned> {
    let tenant = &project.tenant(&args.whose)?;
    let key = shown(&args.key);
    let (in_flight, now) = store.in_flight(tenant).await?;
    let attempt = in_flight
        .iter()
        .find(|one| one.key.proposal.idempotency_key == args.key);
    let mut is_over = store.declare_owner_dead(tenant, &args.key).await?;
    if !is_over
        && args.wait
        && let Some(attempt) = attempt.filter(|one| one.owner == OwnerState::NotKnownYet)
    {
        watch(now.until(attempt.lease_until)).await;
        is_over = store.declare_owner_dead(tenant, &args.key).await?;
    }
    if !is_over {
        let owner = attempt.map(|attempt| format!(": {}", owner_in_words(attempt, now)));
        let then = attempt
            .filter(|one| one.owner == OwnerState::NotKnownYet)
            .map(|one| format!("; {}", by_when(project, now.until(one.lease_until))));
        note(&format!(
            "refused: key `{key}` is in flight{}; nothing was changed{}",
            owner.unwrap_or_default(),
            then.unwrap_or_default()
        ));
        return Ok(Owned::Settled(Exit::Refused));
    }
    let found = store.key(tenant, &args.key).await?.unwrap_or(record);
    match found.phase {
        Phase::InDoubt => {
            let node = attempt.map_or_else(String::new, |one| format!(" (`{}`)", shown(&one.node)));
            note(&format!(
                "the process{node} that made the attempt is gone: it is recorded as a doubt now"
            ));
            Ok(Owned::Over(Box::new(found)))
        }
        // Effect and burn were to be one commit.
        Phase::Failed => {
            data(&format!("{key}: {}", found.phase.as_str()))?;
            note(
                "the process that made the attempt is gone, and nothing happened: effect and \
                 record would have been one commit; proposing it again sends it",
            );
            Ok(Owned::Settled(if args.not_applied {
                Exit::Ok
            } else {
                Exit::Refused
            }))
        }
        Phase::Intent | Phase::Applied | Phase::WrittenOff | Phase::Forgotten => {
            Ok(Owned::Over(Box::new(found)))
        }
    }
}

fn resolution(
    args: &ResolveArgs,
    record: &KeyRecord,
    result: Value,
    clock: &dyn Clock,
) -> Result<Resolution> {
    let mut result_digest = None;
    let verdict = if args.applied {
        result_digest = Some(json::digest(&result)?);
        Verdict::Applied(Effect::of(result))
    } else if args.not_applied {
        Verdict::NotApplied
    } else {
        Verdict::WriteOff
    };
    Ok(Resolution {
        key: args.key.clone(),
        generation: record.generation,
        attempt: record.attempt,
        verdict,
        by: Resolver::Person(args.decided.who.person()?),
        note: Some(args.decided.because.clone()),
        receipt_id: clock.id(IdKind::Receipt),
        result_digest,
        at: clock.now(),
    })
}

fn consequence(phase: Phase, record: &KeyRecord, held: Duration) -> String {
    let entity = shown(&record.proposal.entity_key);
    let key = match phase {
        Phase::Applied => "proposing it again is DEDUP",
        Phase::Failed => "proposing it again sends it",
        Phase::WrittenOff => "it is never run again; proposing it is DEDUP, flagged as written off",
        Phase::Intent | Phase::InDoubt | Phase::Forgotten => "see `operators keys show`",
    };
    if held.is_zero() {
        return format!("`{entity}` is free again; {key}");
    }
    let seconds = seconds_up(held);
    format!("`{entity}` is held for {seconds} s more, while the request may still land; {key}")
}
