//! `operators doubts`: what nobody knows the outcome of, and a person's answer.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use operators_kernel::life::{KeyRecord, Phase};
use operators_kernel::{
    Clock, Effect, EffectClass, IdKind, OnUnknown, Resolution, ResolveAnswer, Resolver, StoreTime,
    Verdict, json,
};
use serde::Serialize;
use serde_json::Value;

use crate::args::{DoubtsCommand, ResolveArgs, Whose};
use crate::compose;
use crate::exit::Exit;
use crate::output::{JsonLines, data, next, note, quoted, shown};
use crate::project::Project;
use crate::table::{Column, Table, Text, receipt_id, terminal_width};
use crate::words::duration;

pub(crate) async fn run(command: DoubtsCommand, project: Option<&Path>) -> Result<Exit> {
    let project = Project::open(project)?;
    match command {
        DoubtsCommand::List { json, whose } => list(&project, json, &whose).await,
        DoubtsCommand::Resolve(args) => resolve(&project, args).await,
    }
}

/// A doubt, as `--json` shows it. Spans, not times: the store's clock compares with itself alone.
#[derive(Debug, Serialize)]
struct Doubt<'a> {
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
    fn new(record: &'a KeyRecord, now: StoreTime) -> Self {
        let proposal = &record.proposal;
        // Rounded up: "0 seconds" must mean that nothing can land any more.
        let landing = now.until(record.open_until).as_micros().div_ceil(1_000_000);
        Self {
            idempotency_key: proposal.idempotency_key.as_str(),
            entity_key: proposal.entity_key.as_str(),
            connector: proposal.action.connector.as_str(),
            tool: proposal.action.tool.as_str(),
            effect: record.effect.as_str(),
            generation: record.generation,
            attempt: record.attempt,
            proposed_at: proposal.proposed_at.to_string(),
            in_doubt_for_seconds: record.first_intent_at.until(now).as_secs(),
            may_land_for_seconds: u64::try_from(landing).unwrap_or(u64::MAX),
            receipt_id: &proposal.receipt_id,
        }
    }
}

async fn list(project: &Project, as_json: bool, whose: &Whose) -> Result<Exit> {
    let tenant = project.tenant(whose)?;
    let clock = compose::clock();
    let store = compose::store_to_read(project, &clock).await?;
    let (records, now) = store.doubts(&tenant).await?;
    let doubts: Vec<Doubt<'_>> = records
        .iter()
        .map(|record| Doubt::new(record, now))
        .collect();
    if as_json {
        let mut lines = JsonLines::new();
        for doubt in &doubts {
            lines.line(doubt)?;
        }
        lines.flush()?;
        return Ok(Exit::Ok);
    }
    let Some(oldest) = records.first() else {
        note(&format!(
            "no doubts: every outcome of tenant `{}` is known",
            shown(&tenant)
        ));
        return Ok(Exit::Ok);
    };
    data(&table(&doubts))?;
    note("");
    note(way_out(oldest));
    let key = quoted(oldest.proposal.idempotency_key.as_str());
    let command = format!("doubts resolve {key} --applied --because '…'");
    next(
        &project.command(&command, whose),
        "or --not-applied, --write-off",
    );
    Ok(Exit::Ok)
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

async fn resolve(project: &Project, args: ResolveArgs) -> Result<Exit> {
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
    let resolution = resolution(&args, &record, result, &*clock)?;
    match store.resolve(&tenant, resolution).await? {
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
            let seconds = left.as_micros().div_ceil(1_000_000);
            note(&format!(
                "refused: the request for `{key}` may still land for {seconds} s, \
                 so \"not applied\" cannot be believed yet; say it again then"
            ));
            Ok(Exit::Refused)
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
        by: Resolver::Person(args.decided.who.name()?),
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
    let seconds = held.as_micros().div_ceil(1_000_000);
    format!("`{entity}` is held for {seconds} s more, while the request may still land; {key}")
}
