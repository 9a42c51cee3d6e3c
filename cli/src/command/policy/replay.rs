//! `operators policy replay`: a changed policy over past receipts, before it is trusted.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use operators_kernel::{Cursor, Disposition, PAGE_MAX, PolicyRef, Receipt, Shared, Text};
use operators_policies::Replayed;
use serde::Serialize;

use crate::args::ReplayArgs;
use crate::command::run::decision;
use crate::compose::{self, Trust};
use crate::exit::Exit;
use crate::output::{JsonLines, data, note, shown};
use crate::project::Project;
use crate::table::{self, Column, Table, receipt_id, terminal_width};
use crate::words::moment;

/// One receipt weighed again, as `--json` shows it.
#[derive(Debug, Serialize)]
struct Row {
    receipt_id: Text,
    settled_at: String,
    operator: Option<String>,
    connector: String,
    tool: String,
    entity_key: String,
    idempotency_key: String,
    was: Disposition,
    was_rule: Option<Text>,
    /// Null when it cannot be told.
    now: Option<Disposition>,
    rule: Option<Text>,
    policy: Option<Shared<PolicyRef>>,
    flips: bool,
    /// Why it is so now, or why it cannot be told.
    because: Option<String>,
}

/// How many of each kind.
#[derive(Debug, Default)]
struct Tally {
    weighed: usize,
    flips: usize,
    unknown: usize,
    passed_over: usize,
}

pub(crate) async fn run(project: &Project, args: ReplayArgs) -> Result<Exit> {
    let tenant = project.tenant(&args.whose)?;
    let trust = trust(project, args.policy.as_deref())?;
    let clock = compose::clock();
    let ledger = compose::store_to_read(project, &clock).await?;
    let filter = args.filter.resolve(&*clock);
    let mut tally = Tally::default();
    let mut rows = Vec::new();
    let mut lines = JsonLines::new();
    let mut after = 0;
    loop {
        let cursor = Cursor::After(after);
        let page = ledger.receipts(&tenant, &filter, cursor, PAGE_MAX).await?;
        let Some(last) = page.last() else { break };
        after = last.sequence;
        for entry in &page {
            let Some(replayed) = trust.rules.replay(&entry.receipt) else {
                tally.passed_over += 1;
                continue;
            };
            tally.weighed += 1;
            tally.flips += usize::from(replayed.flips());
            tally.unknown += usize::from(replayed.now.is_err());
            if !args.all && !replayed.flips() && replayed.now.is_ok() {
                continue;
            }
            let row = row(&entry.receipt, replayed);
            if args.json {
                lines.line(&row)?;
            } else {
                rows.push(row);
            }
        }
    }
    lines.flush()?;
    // Its lock on stdout must be gone before the table is written.
    drop(lines);
    if !rows.is_empty() {
        data(&table(&rows))?;
    }
    note(&format!(
        "{} weighed again: {} would go otherwise, {} cannot be told; {} that trust did not decide",
        tally.weighed, tally.flips, tally.unknown, tally.passed_over
    ));
    Ok(Exit::Ok)
}

/// The project's policies, or those of another folder or file in their place.
fn trust(project: &Project, policy: Option<&Path>) -> Result<Trust> {
    let Some(place) = policy else {
        return compose::trust(project);
    };
    let told = shown(&place.display());
    let about = std::fs::metadata(place).with_context(|| format!("`{told}` cannot be read"))?;
    if about.is_file() {
        return compose::trust_of(project, &[place.to_owned()]);
    }
    let listed = std::fs::read_dir(place).with_context(|| format!("`{told}` cannot be read"))?;
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in listed {
        let path = entry
            .with_context(|| format!("`{told}` cannot be read"))?
            .path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            files.push(path);
        }
    }
    if files.is_empty() {
        bail!("`{told}` holds no `.toml` file");
    }
    files.sort();
    compose::trust_of(project, &files)
}

fn row(receipt: &Receipt, replayed: Replayed) -> Row {
    let flips = replayed.flips();
    let (now, rule, policy, because) = match replayed.now {
        Ok(ruling) => (
            Some(Disposition::from(ruling.decision)),
            ruling.rule,
            ruling.policy,
            ruling.because,
        ),
        Err(why) => (None, None, None, Some(why)),
    };
    Row {
        receipt_id: receipt.receipt_id.clone(),
        settled_at: receipt.settled_at.to_string(),
        operator: receipt.operator.as_ref().map(ToString::to_string),
        connector: receipt.action.connector.to_string(),
        tool: receipt.action.tool.to_string(),
        entity_key: receipt.entity_key.to_string(),
        idempotency_key: receipt.idempotency_key.to_string(),
        was: replayed.was.into(),
        was_rule: receipt.rule.clone(),
        now,
        rule,
        policy,
        flips,
        because,
    }
}

fn table(rows: &[Row]) -> String {
    let width = terminal_width();
    let mut table = Table::new(&[
        Column::fixed("time"),
        Column::fixed("was"),
        Column::fixed("now"),
        Column::yielding("key", 14),
        Column::yielding("tool", 8),
        Column::yielding("rule", 8),
        Column::yielding("why", 12),
        Column::fixed("receipt"),
    ]);
    for row in rows {
        let time = operators_kernel::Timestamp::parse(&row.settled_at);
        table.row([
            table::Text::plain(&time.map_or_else(|| row.settled_at.clone(), moment)),
            decision(row.was),
            row.now
                .map_or_else(|| table::Text::plain("unknown"), decision),
            table::Text::plain(&row.idempotency_key),
            table::Text::plain(&format!("{}:{}", row.connector, row.tool)),
            table::Text::plain(row.rule.as_deref().unwrap_or("-")),
            table::Text::plain(row.because.as_deref().unwrap_or("")),
            table::Text::plain(&receipt_id(&row.receipt_id, width)),
        ]);
    }
    table.render(width)
}
