//! `operators keys`: the life of one idempotency key, and opening its next generation.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use operators_kernel::life::{Application, KeyRecord, Phase, downstream_key};
use operators_kernel::{
    Cursor, Forget, ForgetAnswer, IdKind, IdempotencyKey, PAGE_MAX, Receipt, ReceiptFilter,
    TenantId,
};
use serde::Serialize;

use crate::args::{Decided, KeysCommand, Whose};
use crate::command::receipts::{Block, table};
use crate::compose;
use crate::exit::Exit;
use crate::output::{self, data, json_text, next, note, quoted, shown};
use crate::person::refused;
use crate::project::Project;

pub(crate) async fn run(command: KeysCommand, project: Option<&Path>) -> Result<Exit> {
    let project = Project::open(project)?;
    match command {
        KeysCommand::Show { key, json, whose } => show(&project, &key, json, &whose).await,
        KeysCommand::Forget {
            key,
            decided,
            whose,
        } => forget(&project, key, decided, &whose).await,
    }
}

/// A key, as `--json` shows it.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    tenant_id: &'a TenantId,
    idempotency_key: &'a IdempotencyKey,
    #[serde(flatten)]
    life: Option<Life<'a>>,
    receipts: &'a [Receipt],
}

/// What is remembered of a key that was claimed at least once.
#[derive(Debug, Serialize)]
struct Life<'a> {
    entity_key: &'a str,
    connector: &'a str,
    tool: &'a str,
    effect: &'static str,
    phase: Phase,
    generation: u32,
    attempts: u32,
    open_attempts: &'a [u32],
    downstream_key: String,
    application: Option<&'a Application>,
}

async fn show(project: &Project, key: &IdempotencyKey, json: bool, whose: &Whose) -> Result<Exit> {
    let tenant = project.tenant(whose)?;
    let clock = compose::clock();
    let store = compose::store_to_read(project, &clock).await?;
    let filter = ReceiptFilter {
        idempotency_key: Some(key.clone()),
        ..ReceiptFilter::default()
    };
    let mut page = store
        .receipts(
            &tenant,
            &filter,
            Cursor::Before(i64::MAX.unsigned_abs()),
            PAGE_MAX,
        )
        .await?;
    page.reverse();
    let receipts: Vec<Receipt> = page.into_iter().map(|entry| entry.receipt).collect();
    let record = store.key(&tenant, key).await?;
    if record.is_none() && receipts.is_empty() {
        bail!("no key `{}` of tenant `{}`", shown(key), shown(&tenant));
    }
    if json {
        let shown = Shown {
            tenant_id: &tenant,
            idempotency_key: key,
            life: record.as_ref().map(|record| life(&tenant, key, record)),
            receipts: &receipts,
        };
        output::json(&shown, true)?;
        return Ok(Exit::Ok);
    }
    let Some(record) = record else {
        // Refused every time: there are receipts, but nothing was ever claimed.
        note(&format!(
            "key `{}` was proposed but never claimed",
            shown(key)
        ));
        data(&table(&receipts))?;
        return Ok(Exit::Ok);
    };
    data(&block(&tenant, &record))?;
    data("")?;
    data(&table(&receipts))?;
    if receipts.len() == PAGE_MAX {
        note(&format!("the last {PAGE_MAX} receipts; all of them:"));
        let command = format!("receipts export --key {}", quoted(key.as_str()));
        next(&project.command(&command, whose), "");
    }
    let open = match record.phase {
        Phase::InDoubt => Some("it is in doubt"),
        Phase::Intent => Some("it is in flight; whether its owner is still there"),
        Phase::Applied | Phase::Failed | Phase::WrittenOff | Phase::Forgotten => None,
    };
    if let Some(why) = open {
        note("");
        next(&project.command("doubts list", whose), why);
    }
    Ok(Exit::Ok)
}

fn life<'a>(tenant: &TenantId, key: &IdempotencyKey, record: &'a KeyRecord) -> Life<'a> {
    let proposal = &record.proposal;
    Life {
        entity_key: proposal.entity_key.as_str(),
        connector: proposal.action.connector.as_str(),
        tool: proposal.action.tool.as_str(),
        effect: record.effect.as_str(),
        phase: record.phase,
        generation: record.generation,
        attempts: record.attempt,
        open_attempts: &record.open_attempts,
        downstream_key: downstream_key(tenant, key, record.generation),
        application: record.application.as_ref(),
    }
}

fn block(tenant: &TenantId, record: &KeyRecord) -> String {
    let proposal = &record.proposal;
    let mut block = Block::default();
    block.field("key", Some(&proposal.idempotency_key));
    block.field("phase", Some(phase_told(record.phase)));
    block.field("generation", Some(record.generation));
    block.field("attempts", Some(record.attempt));
    block.field("entity", Some(&proposal.entity_key));
    let action = &proposal.action;
    let effect = record.effect.as_str();
    block.field(
        "tool",
        Some(format!("{}:{} ({effect})", action.connector, action.tool)),
    );
    let key = downstream_key(tenant, &proposal.idempotency_key, record.generation);
    block.field("downstream key", Some(key));
    if let Some(application) = &record.application {
        block.field("applied at", Some(application.original.applied_at));
        block.field(
            "applied by",
            Some(format!("attempt {}", application.attempt)),
        );
        block.field(
            "result",
            json_text(&application.original.result, false).ok(),
        );
        block.field("effect id", application.effect_id.as_ref());
    }
    block.0
}

fn phase_told(phase: Phase) -> &'static str {
    match phase {
        Phase::Intent => "intent: an attempt may be on its way",
        Phase::Applied => "applied: burned, it never runs again",
        Phase::Failed => "failed: every attempt definitely failed, the key is free",
        Phase::InDoubt => "in doubt: nobody knows whether it happened, the entity is held",
        Phase::WrittenOff => "written off: nobody knows whether it happened, it never runs again",
        Phase::Forgotten => "forgotten: open for its next generation",
    }
}

async fn forget(
    project: &Project,
    key: IdempotencyKey,
    decided: Decided,
    whose: &Whose,
) -> Result<Exit> {
    if let Some(refused) = refused(project) {
        return Ok(refused);
    }
    let tenant = project.tenant(whose)?;
    let clock = compose::clock();
    let store = compose::store_to_read(project, &clock).await?;
    let wish = Forget {
        key: key.clone(),
        by: decided.who.person()?,
        note: Some(decided.because),
        receipt_id: clock.id(IdKind::Receipt),
        at: clock.now(),
    };
    let shown_key = shown(&key);
    let answer = store.forget(&tenant, wish).await;
    match answer.with_context(|| format!("key `{shown_key}`"))? {
        ForgetAnswer::Forgotten(generation) => {
            data(&format!("{shown_key}: generation {generation}"))?;
            note("its next proposal is a new effect");
            Ok(Exit::Ok)
        }
        ForgetAnswer::NotBurned(None) => {
            bail!("no key `{shown_key}` of tenant `{}`", shown(&tenant));
        }
        ForgetAnswer::NotBurned(Some(phase)) => bail!(
            "nothing to forget: key `{shown_key}` is `{}`, and only an applied or written-off \
             key can be forgotten",
            phase.as_str()
        ),
    }
}
