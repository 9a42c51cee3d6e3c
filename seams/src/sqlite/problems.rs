//! Everything that is wrong with a file that opens: its pages, rows that nobody can read, and records
//! that do not agree with each other.

use rusqlite::Connection;

use super::proposals::Proposals;
use super::records::{KEY_COLUMNS, RowError, key_from_row};
use super::trouble::unreadable;

/// Of each kind, the most that are told: a person mends the first, or all of them at once.
const TOLD_MAX: usize = 20;

const PAGES: &str = "PRAGMA integrity_check(20)";
/// What contradicts itself, as it is on every store with statements.
const RECORDS: &[&str] = &[
    "SELECT format('entity `%s` is held by session %s, which is dead', e.entity_key, e.holder) \
     FROM entity e LEFT JOIN session s ON s.session_id = e.holder \
     WHERE e.holder IS NOT NULL AND (s.session_id IS NULL OR s.dead_at IS NOT NULL) LIMIT 20",
    "SELECT format('key `%s` is burned but its receipt is gone', k.idempotency_key) FROM key k \
     WHERE k.phase = 'applied' AND NOT EXISTS (SELECT 1 FROM receipt r \
       WHERE r.receipt_id = k.application ->> '$.original.receipt_id') LIMIT 20",
    "SELECT format('key `%s` is in doubt but does not hold its entity', k.idempotency_key) \
     FROM key k LEFT JOIN entity e ON e.tenant = k.tenant AND e.entity_key = k.entity_key \
     WHERE k.phase = 'in_doubt' AND e.doubt IS NOT k.idempotency_key LIMIT 20",
];

/// Every problem found, in words. What is told of records is worth nothing while pages are damaged.
pub(super) fn problems(connection: &Connection) -> Result<Vec<String>, RowError> {
    let mut found = told(connection, PAGES)?;
    found.retain(|line| line != "ok");
    if !found.is_empty() {
        return Ok(found);
    }
    found = unreadable_keys(connection)?;
    if found.is_empty() {
        for statement in RECORDS {
            found.extend(told(connection, statement)?);
        }
    }
    Ok(found)
}

fn told(connection: &Connection, statement: &str) -> Result<Vec<String>, RowError> {
    let mut statement = connection.prepare(statement)?;
    let said = statement.query_map([], |row| row.get(0))?;
    Ok(said.collect::<rusqlite::Result<_>>()?)
}

/// A byte that was changed inside a row leaves the pages sound.
fn unreadable_keys(connection: &Connection) -> Result<Vec<String>, RowError> {
    let statement = format!("SELECT {KEY_COLUMNS}, CAST(idempotency_key AS BLOB) FROM key");
    let mut statement = connection.prepare(&statement)?;
    let name = statement.column_count() - 1;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let problem = match key_from_row(row, &Proposals::default()) {
            Ok(_) => continue,
            Err(RowError::Meaning { what, problem }) => unreadable(&what, &problem),
            Err(error) => return Err(error),
        };
        let key: Vec<u8> = row.get(name)?;
        let key = String::from_utf8_lossy(&key);
        found.push(format!("key `{key}`: {problem}"));
        if found.len() == TOLD_MAX {
            break;
        }
    }
    Ok(found)
}
