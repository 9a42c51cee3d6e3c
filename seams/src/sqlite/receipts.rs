//! Receipts by what is asked for: one by its id, a key's shelf by shelf, all others in the order of the
//! rows.

use std::iter;

use operators_kernel::{
    Cursor, Disposition, EntityKey, IdempotencyKey, LedgerEntry, OperatorName, PAGE_MAX, Reason,
    ReceiptFilter, ReceiptOutcome, TenantId, ToolName,
};
use rusqlite::Connection;

use super::records::{RowError, from_json};

/// Filters on what has no column of its own look into the body.
const FILTERS: &str = "\
    AND sequence > ?2 AND sequence < ?3 AND substr(body, 1, 10) <> '{\"pruned\":' \
    AND (?6 IS NULL OR settled_at >= ?6) AND (?7 IS NULL OR settled_at < ?7) \
    AND (?8 IS NULL OR body ->> '$.operator' = ?8) \
    AND (?9 IS NULL OR body ->> '$.decision' = ?9) \
    AND (?10 IS NULL OR body ->> '$.outcome' = ?10) \
    AND (?11 IS NULL OR body ->> '$.reason' = ?11) \
    AND (?12 IS NULL OR body ->> '$.action.tool' = ?12) \
    AND (?13 IS NULL OR body ->> '$.entity_key' = ?13) \
    AND (?14 IS NULL OR body ->> '$.correlation_id' = ?14) \
    AND (?15 IS NULL OR body ->> '$.run_id' = ?15)";

/// How many numbers a shelf has, as a power of two; the index `receipt_shelf` says the same.
pub(super) const SHELF_BITS: u32 = 9;

/// A page of receipts, in the cursor's order.
pub(super) fn find_receipts(
    connection: &Connection,
    tenant: &TenantId,
    filter: &ReceiptFilter,
    cursor: Cursor,
    limit: usize,
) -> Result<Vec<LedgerEntry>, RowError> {
    let mut statement = connection.prepare_cached(&statement(filter, cursor))?;
    // One with an id, and any without a key, are looked for everywhere at once.
    let shelves = if filter.receipt_id.is_none() && filter.idempotency_key.is_some() {
        shelves(connection, cursor)?
    } else {
        Box::new(iter::once(None))
    };
    let limit = limit.min(PAGE_MAX);
    let mut entries = Vec::new();
    for shelf in shelves {
        let room = limit - entries.len();
        let mut found = statement.query(rusqlite::params![
            tenant.as_str(),
            span(cursor).0,
            span(cursor).1,
            filter.receipt_id.as_deref(),
            filter.idempotency_key.as_ref().map(IdempotencyKey::as_str),
            filter.since.map(|time| time.to_string()),
            filter.until.map(|time| time.to_string()),
            filter.operator.as_ref().map(OperatorName::as_str),
            filter.decision.map(Disposition::as_str),
            filter.outcome.map(ReceiptOutcome::as_str),
            filter.reason.map(Reason::as_str),
            filter.tool.as_ref().map(ToolName::as_str),
            filter.entity_key.as_ref().map(EntityKey::as_str),
            filter.correlation_id,
            filter.run_id,
            i64::try_from(room).unwrap_or(i64::MAX),
            shelf,
        ])?;
        while let Some(row) = found.next()? {
            entries.push(LedgerEntry {
                sequence: row.get::<_, i64>(0)?.try_into().unwrap_or(0),
                receipt: from_json("a receipt", &row.get::<_, String>(1)?)?,
            });
        }
        if entries.len() >= limit {
            break;
        }
    }
    Ok(entries)
}

fn statement(filter: &ReceiptFilter, cursor: Cursor) -> String {
    let order = match cursor {
        Cursor::After(_) => "ASC",
        Cursor::Before(_) => "DESC",
    };
    // `+` keeps SQLite from sorting all of a tenant's receipts for every page.
    let found_by = match (&filter.receipt_id, &filter.idempotency_key) {
        (Some(_), Some(_)) => {
            "+tenant = ?1 AND receipt_id = ?4 AND +idempotency_key = ?5 AND ?17 IS NULL"
        }
        (Some(_), None) => "+tenant = ?1 AND receipt_id = ?4 AND ?17 IS NULL",
        (None, Some(_)) => "tenant = ?1 AND sequence >> 9 = ?17 AND idempotency_key = ?5",
        (None, None) => "+tenant = ?1 AND ?17 IS NULL",
    };
    format!(
        "SELECT sequence, body FROM receipt WHERE {found_by} {FILTERS} \
         ORDER BY sequence {order} LIMIT ?16"
    )
}

/// The numbers that a cursor lies between, neither of them included.
fn span(cursor: Cursor) -> (i64, i64) {
    let bound = |sequence: u64| i64::try_from(sequence).unwrap_or(i64::MAX);
    match cursor {
        Cursor::After(start) => (bound(start), i64::MAX),
        Cursor::Before(end) => (-1, bound(end)),
    }
}

/// Where receipts are looked for, one after the other; `None` is everywhere.
type Shelves = Box<dyn Iterator<Item = Option<i64>>>;

/// Those on which anything within the cursor's numbers can be, in its order.
fn shelves(connection: &Connection, cursor: Cursor) -> Result<Shelves, RowError> {
    let newest = connection.query_row("SELECT max(sequence) FROM receipt", [], |row| row.get(0));
    let newest: Option<i64> = newest?;
    let (after, before) = span(cursor);
    let last = newest.unwrap_or(0).min(before) >> SHELF_BITS;
    let shelves = (after.max(0) >> SHELF_BITS)..=last;
    Ok(match cursor {
        Cursor::After(_) => Box::new(shelves.map(Some)),
        Cursor::Before(_) => Box::new(shelves.rev().map(Some)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::open;
    use super::*;

    /// A page costs what it holds. An index whose expression is not the look-up's is not used at all.
    #[test]
    fn no_page_is_found_by_reading_or_sorting_every_receipt() {
        let folder = tempfile::tempdir().expect("a folder");
        let connection = open::open(&folder.path().join("store.db")).expect("opens");
        let key = IdempotencyKey::parse("k").expect("a key");
        for (receipt_id, idempotency_key, way) in [
            (None, None, "INTEGER PRIMARY KEY"),
            (
                None,
                Some(&key),
                "INDEX receipt_shelf (tenant=? AND <expr>=? AND idempotency_key=?",
            ),
            (
                Some("r"),
                None,
                "INDEX sqlite_autoindex_receipt_1 (receipt_id=?)",
            ),
            (
                Some("r"),
                Some(&key),
                "INDEX sqlite_autoindex_receipt_1 (receipt_id=?)",
            ),
        ] {
            let filter = ReceiptFilter {
                receipt_id: receipt_id.map(Into::into),
                idempotency_key: idempotency_key.cloned(),
                ..ReceiptFilter::default()
            };
            for cursor in [Cursor::After(0), Cursor::Before(9)] {
                let ask = format!("EXPLAIN QUERY PLAN {}", statement(&filter, cursor));
                let mut plan = connection.prepare(&ask).expect("a plan");
                let steps = plan.raw_query().mapped(|row| row.get::<_, String>(3));
                let steps: Vec<_> = steps.collect::<Result<_, _>>().expect("words");
                let said = steps.join("; ");
                assert!(said.contains(way), "{said}");
                assert!(!said.contains("TEMP B-TREE"), "{said}");
            }
        }
    }
}
