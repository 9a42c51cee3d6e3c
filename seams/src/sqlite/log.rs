//! The log in the file: a receipt's row has its place and hashes, and each tenant has one head row,
//! written once per commit.

use std::collections::HashMap;

use async_trait::async_trait;
use operators_kernel::log::{
    Burned, BurnedPage, Frontier, LOG_PAGE_MAX, Log, LogEntry, LogHash, PlacedStub, Sequenced,
    is_stub,
};
use operators_kernel::{IdempotencyKey, StoreError, TenantId};
use rusqlite::{Connection, OptionalExtension, Row};

use super::SqliteStore;
use super::records::{RowError, meaning, signed, unsigned};

const HEAD: &str = "SELECT size, frontier FROM log WHERE tenant = ?1";
const PUT_HEAD: &str = "INSERT INTO log (tenant, size, frontier) VALUES (?1, ?2, ?3) \
    ON CONFLICT (tenant) DO UPDATE SET size = ?2, frontier = ?3";
/// In the order of the rows, whosever they are (`+` keeps `SQLite` from another index): to sort a
/// tenant's receipts again for every page would take the square of their number.
const ENTRIES: &str = "SELECT position, receipt_id, leaf, link, body FROM receipt \
    WHERE +tenant = ?1 AND sequence >= ?2 AND position IS NOT NULL ORDER BY sequence LIMIT ?3";
const PLACE_FROM: &str = "SELECT sequence, position FROM receipt \
    WHERE +tenant = ?1 AND sequence >= ?2 AND position IS NOT NULL ORDER BY sequence LIMIT 1";
const STRAYS: &str =
    "SELECT receipt_id FROM receipt WHERE tenant = ?1 AND position IS NULL LIMIT 20";
const BURNED: &str = "SELECT idempotency_key, generation, \
    application ->> '$.original.receipt_id' FROM key \
    WHERE tenant = ?1 AND idempotency_key > ?2 AND application IS NOT NULL \
    ORDER BY idempotency_key LIMIT ?3";

/// The trigger decides whether it may be.
const PUT_STUB: &str = "UPDATE receipt SET body = ?3 WHERE tenant = ?1 AND receipt_id = ?2 \
    AND substr(body, 1, 10) <> '{\"pruned\":'";
const STUB: &str = "SELECT body FROM receipt WHERE tenant = ?1 AND receipt_id = ?2";

/// The logs that one transaction appends to, each read once and written once.
#[derive(Debug, Default)]
pub(super) struct Logs {
    heads: HashMap<TenantId, Head>,
}

#[derive(Debug)]
struct Head {
    frontier: Frontier,
    has_grown: bool,
}

/// What a row says about its place.
pub(super) struct Place {
    pub(super) position: i64,
    pub(super) leaf: LogHash,
    pub(super) link: LogHash,
}

impl Logs {
    /// The place of the next receipt.
    pub(super) fn place(
        &mut self,
        connection: &Connection,
        tenant: &TenantId,
        leaf: LogHash,
    ) -> Result<Place, RowError> {
        if !self.heads.contains_key(tenant) {
            let head = Head {
                frontier: find_head(connection, tenant)?,
                has_grown: false,
            };
            self.heads.insert(tenant.clone(), head);
        }
        let frontier = self.heads.get(tenant).map(|head| &head.frontier);
        let frontier = frontier.ok_or_else(|| meaning("a log", "it was not read"))?;
        Ok(Place {
            position: signed(frontier.size()),
            link: LogHash::of_link(&frontier.link(), &leaf),
            leaf,
        })
    }

    /// It was written.
    pub(super) fn grow(&mut self, tenant: &TenantId, place: &Place) {
        if let Some(head) = self.heads.get_mut(tenant) {
            head.frontier.push(place.leaf);
            head.has_grown = true;
        }
    }

    /// Writes the heads that have grown.
    pub(super) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        let grown = self.heads.iter().filter(|(_, head)| head.has_grown);
        for (tenant, Head { frontier, .. }) in grown {
            let size = signed(frontier.size());
            let mut statement = connection.prepare_cached(PUT_HEAD)?;
            statement.execute((tenant.as_str(), size, frontier.to_bytes()))?;
        }
        Ok(())
    }
}

fn find_head(connection: &Connection, tenant: &TenantId) -> Result<Frontier, RowError> {
    let mut statement = connection.prepare_cached(HEAD)?;
    let found = statement.query_row([tenant.as_str()], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?))
    });
    let Some((size, bytes)) = found.optional()? else {
        return Ok(Frontier::default());
    };
    let frontier = Frontier::from_bytes(unsigned(size), &bytes);
    frontier.ok_or_else(|| meaning("a log's head", "it is of no log of its size"))
}

/// Gives the receipts of an older schema their places.
pub(super) fn backfill(connection: &Connection) -> rusqlite::Result<()> {
    let mut heads: HashMap<String, Frontier> = HashMap::new();
    let mut read = connection
        .prepare("SELECT sequence, tenant, body FROM receipt WHERE sequence > ?1 LIMIT 1000")?;
    let mut write = connection
        .prepare("UPDATE receipt SET position = ?2, leaf = ?3, link = ?4 WHERE sequence = ?1")?;
    let mut after = 0;
    loop {
        let page = read.query_map([after], |row| {
            let tenant: String = row.get(1)?;
            let body: String = row.get(2)?;
            Ok((
                row.get::<_, i64>(0)?,
                tenant,
                LogHash::of_leaf(body.as_bytes()),
            ))
        })?;
        let page = page.collect::<rusqlite::Result<Vec<_>>>()?;
        let Some((last, ..)) = page.last() else { break };
        after = *last;
        for (sequence, tenant, leaf) in page {
            let frontier = heads.entry(tenant).or_default();
            let position = signed(frontier.size());
            let link = frontier.push(leaf);
            write.execute((sequence, position, leaf.as_bytes(), link.as_bytes()))?;
        }
    }
    for (tenant, frontier) in heads {
        let size = signed(frontier.size());
        connection.execute(PUT_HEAD, (tenant, size, frontier.to_bytes()))?;
    }
    Ok(())
}

/// The sequence number from which on the places are `from` and more: places grow with sequence
/// numbers, so it is found by halving.
fn sequence_of(connection: &Connection, tenant: &TenantId, from: u64) -> rusqlite::Result<i64> {
    if from == 0 {
        return Ok(0);
    }
    let last = "SELECT max(sequence) FROM receipt";
    let last: Option<i64> = connection.query_row(last, [], |row| row.get(0))?;
    let mut place_from = connection.prepare_cached(PLACE_FROM)?;
    let (mut low, mut high) = (0, last.unwrap_or(0) + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let found = place_from.query_row((tenant.as_str(), middle), |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        });
        match found.optional()? {
            Some((sequence, position)) if position < signed(from) => low = sequence + 1,
            Some(_) | None => high = middle,
        }
    }
    Ok(low)
}

fn entry(row: &Row<'_>) -> rusqlite::Result<LogEntry> {
    Ok(LogEntry {
        position: unsigned(row.get(0)?),
        receipt_id: row.get(1)?,
        leaf: LogHash::from_bytes(row.get(2)?),
        link: LogHash::from_bytes(row.get(3)?),
        body: Some(row.get(4)?),
    })
}

#[async_trait]
impl Log for SqliteStore {
    async fn head(&self, tenant: &TenantId) -> Result<Frontier, StoreError> {
        let tenant = tenant.clone();
        self.look(move |connection| find_head(connection, &tenant))
            .await
    }

    /// Nothing is ever behind: a receipt and its place are one write.
    async fn sequence(&self, tenant: &TenantId) -> Result<Sequenced, StoreError> {
        Ok(Sequenced {
            head: Log::head(self, tenant).await?,
            is_behind: false,
            lost: None,
        })
    }

    async fn log_entries(
        &self,
        tenant: &TenantId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<LogEntry>, StoreError> {
        let tenant = tenant.clone();
        let limit = i64::try_from(limit.min(LOG_PAGE_MAX)).unwrap_or(i64::MAX);
        self.look(move |connection| {
            let start = sequence_of(connection, &tenant, from)?;
            let mut statement = connection.prepare_cached(ENTRIES)?;
            let found = statement.query_map((tenant.as_str(), start, limit), entry)?;
            Ok(found.collect::<rusqlite::Result<_>>()?)
        })
        .await
    }

    async fn put_stubs(&self, tenant: &TenantId, stubs: Vec<PlacedStub>) -> Result<(), StoreError> {
        let tenant = tenant.clone();
        self.writer
            .run(move |rows| {
                for one in &stubs {
                    rows.execute(PUT_STUB, (tenant.as_str(), &one.receipt_id, &one.stub))?;
                }
                Ok(())
            })
            .await
    }

    async fn stub(
        &self,
        tenant: &TenantId,
        receipt_id: &str,
    ) -> Result<Option<String>, StoreError> {
        let (tenant, receipt_id) = (tenant.clone(), receipt_id.to_owned());
        self.look(move |connection| {
            let mut statement = connection.prepare_cached(STUB)?;
            let found = statement.query_row((tenant.as_str(), receipt_id), |row| row.get(0));
            let found: Option<String> = found.optional()?;
            Ok(found.filter(|body| is_stub(body)))
        })
        .await
    }

    async fn strays(&self, tenant: &TenantId) -> Result<Vec<String>, StoreError> {
        let tenant = tenant.clone();
        self.look(move |connection| {
            let mut statement = connection.prepare_cached(STRAYS)?;
            let found = statement.query_map([tenant.as_str()], |row| row.get(0))?;
            Ok(found.collect::<rusqlite::Result<_>>()?)
        })
        .await
    }

    async fn burned(
        &self,
        tenant: &TenantId,
        after: Option<&str>,
    ) -> Result<BurnedPage, StoreError> {
        let (tenant, after) = (tenant.clone(), after.unwrap_or_default().to_owned());
        let limit = i64::try_from(LOG_PAGE_MAX).unwrap_or(i64::MAX);
        self.look(move |connection| {
            let mut statement = connection.prepare_cached(BURNED)?;
            let mut found = statement.query((tenant.as_str(), after, limit))?;
            let mut page = BurnedPage::default();
            while let Some(row) = found.next()? {
                let key: String = row.get(0)?;
                let key = IdempotencyKey::parse(key.as_str());
                let key = key.map_err(|error| meaning("a key", &error.to_string()))?;
                page.keys.push(Burned {
                    key,
                    generation: row.get(1)?,
                    receipt_id: row.get::<_, Option<String>>(2)?.unwrap_or_default(),
                });
            }
            let is_full = page.keys.len() >= LOG_PAGE_MAX;
            let last = page.keys.last().filter(|_| is_full);
            page.next = last.map(|last| last.key.as_str().to_owned());
            Ok(page)
        })
        .await
    }
}
