//! The log in the database: a short step under the lock of a tenant's head appends what writers left.

use std::sync::Arc;

use async_trait::async_trait;
use operators_kernel::log::{
    Burned, BurnedPage, Frontier, LOG_PAGE_MAX, Log, LogEntry, LogHash, PlacedStub, Sequenced,
};
use operators_kernel::{IdempotencyKey, StoreError, TenantId, json};
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::PgStore;
use super::lines::{IfBroken, Line, Lines, Tries};
use super::pages::BEGIN;
use super::text::{Call, Value};
use super::trouble::Trouble;

/// The most receipts appended in one transaction: it holds the head for some tens of milliseconds.
const STEP_MAX: usize = 5_000;

/// The most steps of one call; more than that is pending only while many others write.
const STEPS_MAX: usize = 10_000;

/// One receipt that is in no log yet.
struct Pending {
    sequence: i64,
    receipt_id: String,
    leaf: LogHash,
}

async fn head(lines: &Arc<Lines>, tenant: &TenantId) -> Result<Frontier, Trouble> {
    let statement = Call::of("log_head").text(tenant.as_str()).finish()?;
    let rows = lines.run(statement).await?;
    match rows.first() {
        Some(row) => frontier(row, 0, 1),
        None => Ok(Frontier::default()),
    }
}

async fn sequence(lines: &Arc<Lines>, tenant: &TenantId) -> Result<Sequenced, Trouble> {
    for _ in 0..STEPS_MAX {
        let mut tries = Tries::new(IfBroken::AskAgain);
        let (head, is_behind) = loop {
            let mut line = lines.take().await?;
            match step(&mut line, lines, tenant).await {
                Ok(done) => {
                    line.give_back();
                    break done;
                }
                Err(trouble) => tries.consider(trouble, &line).await?,
            }
        };
        if !is_behind {
            let lost = None;
            return Ok(Sequenced {
                head,
                is_behind,
                lost,
            });
        }
    }
    let head = head(lines, tenant).await?;
    Ok(Sequenced {
        head,
        is_behind: true,
        lost: None,
    })
}

/// One transaction: the head after it, and whether there is more.
async fn step(
    line: &mut Line,
    lines: &Lines,
    tenant: &TenantId,
) -> Result<(Frontier, bool), Trouble> {
    let statement = Call::of("log_pending")
        .text(&lines.last_acked())
        .text(tenant.as_str())
        .text(&STEP_MAX.to_string())
        .finish()?;
    let rows = line.rows(format!("{BEGIN}; {statement}")).await?;
    let (first, rest) = rows.split_first().ok_or(sqlx::Error::RowNotFound)?;
    let mut frontier = frontier(first, 0, 2)?;
    // How far the log has come, for the database to remember.
    let mut progress: String = first.try_get(1)?;
    let old_size = frontier.size();
    let pending = rest.iter().map(|row| {
        Ok(Pending {
            sequence: row.try_get(0)?,
            receipt_id: row.try_get(1)?,
            leaf: hash(row, 2)?,
        })
    });
    let pending = pending.collect::<Result<Vec<Pending>, Trouble>>()?;
    let is_behind = pending.len() >= STEP_MAX;
    if is_behind {
        progress.insert_str(0, "behind ");
    }
    let hex = |hash: &LogHash| json::hex(hash.as_bytes());
    let append = |one: &Pending| (hex(&one.leaf), hex(&frontier.push(one.leaf)));
    let hashes: Vec<(String, String)> = pending.iter().map(append).collect();
    let statement = Call::of("log_append")
        .text(tenant.as_str())
        .number(i64::try_from(old_size).unwrap_or(i64::MAX))
        .column(pending.iter().map(|one| Value::Number(one.sequence)))
        .column(pending.iter().map(|one| Value::Text(&one.receipt_id)))
        .column(hashes.iter().map(|(leaf, _)| Value::Text(leaf)))
        .column(hashes.iter().map(|(_, link)| Value::Text(link)))
        .text(&json::hex(&frontier.to_bytes()))
        .text(&progress)
        .finish()?;
    line.rows(format!("{statement}; COMMIT")).await?;
    Ok((frontier, is_behind))
}

async fn entries(
    lines: &Arc<Lines>,
    tenant: &TenantId,
    from: u64,
    limit: usize,
) -> Result<Vec<LogEntry>, Trouble> {
    let statement = Call::of("log_page")
        .text(tenant.as_str())
        .number(i64::try_from(from).unwrap_or(i64::MAX))
        .text(&limit.min(LOG_PAGE_MAX).to_string())
        .finish()?;
    let rows = lines.run(statement).await?;
    let entry = |row: &PgRow| {
        Ok(LogEntry {
            position: unsigned(row.try_get(0)?),
            receipt_id: row.try_get(1)?,
            leaf: hash(row, 2)?,
            link: hash(row, 3)?,
            body: row.try_get(4)?,
        })
    };
    rows.iter().map(entry).collect()
}

async fn put_stubs(
    lines: &Arc<Lines>,
    tenant: &TenantId,
    stubs: &[PlacedStub],
) -> Result<(), Trouble> {
    let statement = Call::of("log_prune")
        .text(tenant.as_str())
        .column(stubs.iter().map(|one| Value::Text(&one.receipt_id)))
        .column(stubs.iter().map(|one| Value::Text(&one.stub)))
        .finish()?;
    lines.run(statement).await.map(|_| ())
}

async fn stub(
    lines: &Arc<Lines>,
    tenant: &TenantId,
    receipt_id: &str,
) -> Result<Option<String>, Trouble> {
    let statement = Call::of("log_stub")
        .text(tenant.as_str())
        .text(receipt_id)
        .finish()?;
    let rows = lines.run(statement).await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
}

async fn strays(lines: &Arc<Lines>, tenant: &TenantId) -> Result<Vec<String>, Trouble> {
    let statement = Call::of("log_strays").text(tenant.as_str()).finish()?;
    let rows = lines.run(statement).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

async fn burned(lines: &Arc<Lines>, tenant: &TenantId, after: &str) -> Result<BurnedPage, Trouble> {
    let statement = Call::of("log_burned")
        .text(tenant.as_str())
        .text(after)
        .text(&LOG_PAGE_MAX.to_string())
        .finish()?;
    let mut page = BurnedPage::default();
    for row in &lines.run(statement).await? {
        let key: String = row.try_get(0)?;
        let key = IdempotencyKey::parse(key.as_str());
        page.keys.push(Burned {
            key: key.map_err(|error| Trouble::Unusable(format!("a key: {error}")))?,
            generation: u32::try_from(row.try_get::<i32, _>(1)?).unwrap_or(0),
            receipt_id: row.try_get(2)?,
        });
    }
    let is_full = page.keys.len() >= LOG_PAGE_MAX;
    let last = page.keys.last().filter(|_| is_full);
    page.next = last.map(|last| last.key.as_str().to_owned());
    Ok(page)
}

/// A head from its size and its hashes in hexadecimal.
fn frontier(row: &PgRow, size: usize, hashes: usize) -> Result<Frontier, Trouble> {
    let size = unsigned(row.try_get(size)?);
    let Some(text) = row.try_get::<Option<String>, _>(hashes)? else {
        return Ok(Frontier::default());
    };
    let found = unhex(&text).and_then(|bytes| Frontier::from_bytes(size, &bytes));
    found.ok_or_else(|| Trouble::Unusable("a log's head is of no log of its size".to_owned()))
}

fn hash(row: &PgRow, column: usize) -> Result<LogHash, Trouble> {
    let text: String = row.try_get(column)?;
    let bytes: Option<[u8; 32]> = unhex(&text).and_then(|bytes| bytes.try_into().ok());
    let bytes = bytes.ok_or_else(|| Trouble::Unusable(format!("`{text}` is no hash")))?;
    Ok(LogHash::from_bytes(bytes))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    };
    rest.is_empty()
        .then(|| pairs.iter().map(byte).collect())
        .flatten()
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[async_trait]
impl Log for PgStore {
    async fn head(&self, tenant: &TenantId) -> Result<Frontier, StoreError> {
        let tenant = tenant.clone();
        self.owned(|lines| async move { head(&lines, &tenant).await })
            .await
    }

    async fn sequence(&self, tenant: &TenantId) -> Result<Sequenced, StoreError> {
        let tenant = tenant.clone();
        self.owned(|lines| async move { sequence(&lines, &tenant).await })
            .await
    }

    async fn log_entries(
        &self,
        tenant: &TenantId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<LogEntry>, StoreError> {
        let tenant = tenant.clone();
        self.owned(|lines| async move { entries(&lines, &tenant, from, limit).await })
            .await
    }

    async fn put_stubs(&self, tenant: &TenantId, stubs: Vec<PlacedStub>) -> Result<(), StoreError> {
        let tenant = tenant.clone();
        self.owned(|lines| async move { put_stubs(&lines, &tenant, &stubs).await })
            .await
    }

    async fn stub(
        &self,
        tenant: &TenantId,
        receipt_id: &str,
    ) -> Result<Option<String>, StoreError> {
        let (tenant, receipt_id) = (tenant.clone(), receipt_id.to_owned());
        self.owned(|lines| async move { stub(&lines, &tenant, &receipt_id).await })
            .await
    }

    async fn strays(&self, tenant: &TenantId) -> Result<Vec<String>, StoreError> {
        let tenant = tenant.clone();
        self.owned(|lines| async move { strays(&lines, &tenant).await })
            .await
    }

    async fn burned(
        &self,
        tenant: &TenantId,
        after: Option<&str>,
    ) -> Result<BurnedPage, StoreError> {
        let (tenant, after) = (tenant.clone(), after.unwrap_or_default().to_owned());
        self.owned(|lines| async move { burned(&lines, &tenant, &after).await })
            .await
    }
}
