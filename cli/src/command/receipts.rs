//! `operators receipts`: the audit trail, as tables, as JSON lines, as it grows.

mod show;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use operators_kernel::{
    Clock, Cursor, Ledger, LedgerEntry, PAGE_MAX, Receipt, ReceiptFilter, TenantId,
};

use crate::args::{ReceiptsCommand, Whose};
use crate::compose;
use crate::exit::Exit;
use crate::filter::FilterArgs;
use crate::output::{self, JsonLines, data, next, note, shown};
use crate::project::Project;
use crate::table::{ID_END, id_end};

pub(crate) use show::{Block, table};

/// How often `tail --follow` looks.
const FOLLOW_PAUSE: Duration = Duration::from_millis(500);

/// How far back `show` looks for the end of an id.
const ID_END_SEARCH_MAX: usize = 50_000;

/// The trail of one tenant.
struct Trail {
    project: Project,
    ledger: Arc<dyn Ledger>,
    tenant: TenantId,
    clock: Arc<dyn Clock>,
}

impl Trail {
    async fn open(project: Option<&Path>, whose: &Whose, follow: bool) -> Result<Self> {
        let project = Project::open(project)?;
        let tenant = project.tenant(whose)?;
        let clock = compose::clock();
        let ledger = if follow {
            // Made if it is not there: somebody waits for what will be written to it.
            compose::store(&project, &clock).await?
        } else {
            compose::store_to_read(&project, &clock).await?
        };
        Ok(Self {
            project,
            ledger,
            tenant,
            clock,
        })
    }

    async fn page(
        &self,
        filter: &ReceiptFilter,
        cursor: Cursor,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>> {
        let limit = limit.min(PAGE_MAX);
        Ok(self
            .ledger
            .receipts(&self.tenant, filter, cursor, limit)
            .await?)
    }

    /// The newest receipts, newest first, however many pages that takes.
    async fn newest(&self, filter: &ReceiptFilter, limit: usize) -> Result<Vec<LedgerEntry>> {
        let mut found = Vec::new();
        let mut before = i64::MAX.unsigned_abs();
        while found.len() < limit {
            let wanted = limit.saturating_sub(found.len());
            let page = self.page(filter, Cursor::Before(before), wanted).await?;
            let Some(last) = page.last() else { break };
            before = last.sequence;
            found.extend(page);
        }
        Ok(found)
    }
}

pub(crate) async fn run(command: ReceiptsCommand, project: Option<&Path>) -> Result<Exit> {
    match command {
        ReceiptsCommand::List {
            limit,
            filter,
            json,
            whose,
        } => {
            let trail = Trail::open(project, &whose, false).await?;
            list(&trail, limit, filter, json, &whose).await
        }
        ReceiptsCommand::Show { id, json, whose } => {
            let trail = Trail::open(project, &whose, false).await?;
            let receipt = find(&trail, &id).await?;
            if json {
                output::json(&receipt, true)?;
            } else {
                data(&show::block(&receipt))?;
            }
            Ok(Exit::Ok)
        }
        ReceiptsCommand::Tail {
            lines,
            follow,
            filter,
            json,
            whose,
        } => {
            let trail = Trail::open(project, &whose, follow).await?;
            tail(&trail, lines, follow, filter, json).await
        }
        ReceiptsCommand::Export { filter, whose } => {
            let trail = Trail::open(project, &whose, false).await?;
            export(&trail, filter).await
        }
    }
}

async fn list(
    trail: &Trail,
    limit: usize,
    filter: FilterArgs,
    json: bool,
    whose: &Whose,
) -> Result<Exit> {
    let filter = filter.resolve(&*trail.clock);
    let entries = trail.newest(&filter, limit).await?;
    let receipts: Vec<Receipt> = entries.into_iter().map(|entry| entry.receipt).collect();
    if json {
        lines(&receipts)?;
        return Ok(Exit::Ok);
    }
    let Some(newest) = receipts.first() else {
        note(&format!(
            "no receipts of tenant `{}` fit",
            shown(&trail.tenant)
        ));
        return Ok(Exit::Ok);
    };
    data(&table(&receipts))?;
    let id = id_end(&newest.receipt_id);
    note("");
    next(
        &trail
            .project
            .command(&format!("receipts show {}", shown(id)), whose),
        "the newest, all of it",
    );
    Ok(Exit::Ok)
}

/// The receipt of that id, or the one whose id ends so.
async fn find(trail: &Trail, id: &str) -> Result<Receipt> {
    let filter = ReceiptFilter {
        receipt_id: Some(id.to_owned()),
        ..ReceiptFilter::default()
    };
    if let Some(entry) = trail.newest(&filter, 1).await?.pop() {
        return Ok(entry.receipt);
    }
    let end = id.trim_start_matches('…');
    if end.len() < ID_END {
        bail!(
            "no receipt `{}` of tenant `{}`",
            shown(id),
            shown(&trail.tenant)
        );
    }
    let mut found: Option<Receipt> = None;
    let mut before = i64::MAX.unsigned_abs();
    let mut searched = 0;
    while searched < ID_END_SEARCH_MAX {
        let page = trail
            .page(&ReceiptFilter::default(), Cursor::Before(before), PAGE_MAX)
            .await?;
        let Some(last) = page.last() else { break };
        before = last.sequence;
        searched += page.len();
        for entry in page
            .into_iter()
            .filter(|entry| entry.receipt.receipt_id.ends_with(end))
        {
            if found.is_some() {
                bail!(
                    "several receipts end in `{}`; give more of the id",
                    shown(end)
                );
            }
            found = Some(entry.receipt);
        }
    }
    found.with_context(|| {
        format!(
            "no receipt `{}` of tenant `{}` (an end was looked for in the last {searched})",
            shown(id),
            shown(&trail.tenant)
        )
    })
}

async fn tail(
    trail: &Trail,
    count: usize,
    follow: bool,
    filter: FilterArgs,
    json: bool,
) -> Result<Exit> {
    let filter = filter.resolve(&*trail.clock);
    // Looked at first: what lands after this look is new, whether or not the list has it already.
    let head = trail.newest(&ReceiptFilter::default(), 1).await?;
    let head = head.first().map_or(0, |entry| entry.sequence);
    let mut entries = trail.newest(&filter, count).await?;
    entries.reverse();
    let mut seen = entries
        .last()
        .map_or(head, |entry| entry.sequence.max(head));
    print_tail(entries, json)?;
    if !follow {
        return Ok(Exit::Ok);
    }
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        tokio::select! {
            stop = &mut interrupted => {
                stop.context("Ctrl-C cannot be listened to")?;
                return Ok(Exit::Ok);
            }
            () = tokio::time::sleep(FOLLOW_PAUSE) => {}
        }
        loop {
            let page = trail.page(&filter, Cursor::After(seen), PAGE_MAX).await?;
            let Some(last) = page.last() else { break };
            seen = last.sequence;
            print_tail(page, json)?;
        }
    }
}

fn print_tail(entries: Vec<LedgerEntry>, json: bool) -> Result<()> {
    let receipts: Vec<Receipt> = entries.into_iter().map(|entry| entry.receipt).collect();
    if json {
        return lines(&receipts);
    }
    for receipt in &receipts {
        data(&show::line(receipt))?;
    }
    Ok(())
}

/// Everything, a page at a time, so that memory stays flat.
async fn export(trail: &Trail, filter: FilterArgs) -> Result<Exit> {
    let filter = filter.resolve(&*trail.clock);
    let mut after = 0;
    loop {
        let page = trail.page(&filter, Cursor::After(after), PAGE_MAX).await?;
        let Some(last) = page.last() else {
            return Ok(Exit::Ok);
        };
        after = last.sequence;
        let receipts: Vec<Receipt> = page.into_iter().map(|entry| entry.receipt).collect();
        lines(&receipts)?;
    }
}

fn lines(receipts: &[Receipt]) -> Result<()> {
    let mut out = JsonLines::new();
    for receipt in receipts {
        out.line(receipt)?;
    }
    Ok(out.flush()?)
}
