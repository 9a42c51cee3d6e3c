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
use super::receipts::SHELF_BITS;
use super::records::{RowError, meaning, signed, unsigned};

const HEAD: &str = "SELECT size, frontier FROM log WHERE tenant = ?1";
const PUT_HEAD: &str = "INSERT INTO log (tenant, size, frontier) VALUES (?1, ?2, ?3) \
    ON CONFLICT (tenant) DO UPDATE SET size = ?2, frontier = ?3";
/// In the order of the rows, whosever they are (`+` keeps `SQLite` from another index): to sort a
/// tenant's receipts again for every page would take the square of their number.
const ENTRIES: &str = "SELECT position, receipt_id, leaf, link, body FROM receipt \
    WHERE +tenant = ?1 AND sequence >= ?2 AND position IS NOT NULL ORDER BY sequence LIMIT ?3";
/// A tenant's first shelf (of `receipts`) from a shelf on: between two receipts of one tenant there may
/// be any number of others'.
const SHELF_FROM: &str = "SELECT sequence >> 9 FROM receipt \
    WHERE tenant = ?1 AND sequence >> 9 >= ?2 ORDER BY sequence >> 9 LIMIT 1";
const PLACE_ON_SHELF: &str = "SELECT sequence, position FROM receipt \
    WHERE +tenant = ?1 AND sequence >= ?2 AND sequence < ?3 AND position IS NOT NULL \
    ORDER BY sequence LIMIT 1";
const STRAYS: &str =
    "SELECT receipt_id FROM receipt WHERE tenant = ?1 AND position IS NULL LIMIT 20";
const BURNED: &str = "SELECT idempotency_key, generation, \
    application ->> '$.original.receipt_id' FROM key \
    WHERE tenant = ?1 AND idempotency_key > ?2 AND application IS NOT NULL \
    AND phase IN ('applied', 'written_off') \
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

/// The first receipt of a tenant from a sequence number on, and its place.
fn placed_from(
    connection: &Connection,
    tenant: &TenantId,
    from: i64,
) -> rusqlite::Result<Option<(i64, i64)>> {
    let mut shelf_from = connection.prepare_cached(SHELF_FROM)?;
    let mut place_on_shelf = connection.prepare_cached(PLACE_ON_SHELF)?;
    let mut from = from;
    loop {
        let asked = (tenant.as_str(), from >> SHELF_BITS);
        let shelf = shelf_from.query_row(asked, |row| row.get::<_, i64>(0));
        let Some(shelf) = shelf.optional()? else {
            return Ok(None);
        };
        let (start, end) = (shelf << SHELF_BITS, (shelf + 1) << SHELF_BITS);
        let asked = (tenant.as_str(), start.max(from), end);
        let found = place_on_shelf.query_row(asked, |row| Ok((row.get(0)?, row.get(1)?)));
        match found.optional()? {
            Some(found) => return Ok(Some(found)),
            None => from = end,
        }
    }
}

/// The sequence number of a tenant's first receipt whose place is `from` or more; `None` if there is
/// none. Places grow with sequence numbers, so it is found by halving.
fn sequence_of(
    connection: &Connection,
    tenant: &TenantId,
    from: u64,
) -> rusqlite::Result<Option<i64>> {
    let last = "SELECT max(sequence) FROM receipt";
    let last: Option<i64> = connection.query_row(last, [], |row| row.get(0))?;
    let (mut low, mut high) = (0, last.unwrap_or(0) + 1);
    while from > 0 && low < high {
        let middle = low + (high - low) / 2;
        match placed_from(connection, tenant, middle)? {
            Some((sequence, position)) if position < signed(from) => low = sequence + 1,
            Some(_) | None => high = middle,
        }
    }
    let found = placed_from(connection, tenant, low)?;
    Ok(found.map(|(sequence, _)| sequence))
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
            let Some(start) = sequence_of(connection, &tenant, from)? else {
                // Else every receipt of others would be read to find that there is none.
                return Ok(Vec::new());
            };
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

#[cfg(test)]
mod tests {
    use super::super::open;
    use super::*;

    /// Three receipts of `rare`, with thousands of `busy` before, between and behind them.
    const FILL: &str = "\
        WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 9999) \
        INSERT INTO receipt (sequence, receipt_id, tenant, idempotency_key, settled_at, body, \
            position, leaf, link) \
        SELECT i + 1, 'r' || i, iif(i IN (3000, 3001, 7000), 'rare', 'busy'), 'k', '', '{}', \
            CASE i WHEN 3000 THEN 0 WHEN 3001 THEN 1 WHEN 7000 THEN 2 \
                ELSE i - (i > 3000) - (i > 3001) - (i > 7000) END, \
            zeroblob(32), zeroblob(32) FROM n";

    // Rule 8.6: a look at one place does not read what others wrote.
    #[test]
    fn a_place_is_found_among_any_number_of_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let connection = open::open(&folder.path().join("store.db")).expect("opens");
        connection.execute(FILL, []).expect("filled");
        let tenant = |name: &str| TenantId::parse(name).expect("a tenant");
        let found = |name, from| sequence_of(&connection, &tenant(name), from).expect("read");
        for (from, sequence) in [(0, Some(3001)), (1, Some(3002)), (2, Some(7001)), (3, None)] {
            assert_eq!(found("rare", from), sequence, "{from}");
        }
        for from in [0, 1, 511, 512, 2999, 3000, 6997, 6998, 9996] {
            let others = [2999, 2999, 6997].iter().filter(|first| from > **first);
            let sequence = i64::try_from(from + 1 + others.count() as u64).expect("small");
            assert_eq!(found("busy", from), Some(sequence), "{from}");
        }
        assert_eq!(found("busy", 9997), None);
        assert_eq!(found("nobody", 0), None);
        for (statement, way) in [
            (SHELF_FROM, "INDEX receipt_shelf (tenant=? AND <expr>>?)"),
            (PLACE_ON_SHELF, "INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ] {
            let ask = format!("EXPLAIN QUERY PLAN {statement}");
            let mut plan = connection.prepare(&ask).expect("a plan");
            let steps = plan.raw_query().mapped(|row| row.get::<_, String>(3));
            let said = steps.collect::<Result<Vec<_>, _>>().expect("words");
            let said = said.join("; ");
            assert!(said.contains(way), "{said}");
            assert!(!said.contains("TEMP B-TREE"), "{said}");
        }
    }
}
