//! Attempts in flight, and whether the process behind each is still there: by its lock at once.
//!
//! Owns a look that writes nothing.

use std::time::Duration;

use operators_kernel::{InFlight, OwnerState, StoreTime, TenantId};
use rusqlite::{Connection, OptionalExtension as _};

use super::alive::SignsOfLife;
use super::proposals::Proposals;
use super::records::{KEY_COLUMNS, RowError, key_from_row, signed, unsigned};

/// A session as it is kept.
struct Session {
    node: String,
    lease: Duration,
    alive_until: StoreTime,
    is_dead: bool,
}

/// Every attempt of the tenant that is in flight, oldest first.
pub(super) fn find(
    connection: &Connection,
    alive: &SignsOfLife,
    tenant: &TenantId,
    now: StoreTime,
) -> Result<Vec<InFlight>, RowError> {
    // Few are in flight at once: the index of intents is small, and holds those of all tenants.
    let statement = format!(
        "SELECT {KEY_COLUMNS} FROM key INDEXED BY key_intent \
         WHERE phase = 'intent' AND tenant = ?1 ORDER BY first_intent_at, rowid"
    );
    let mut statement = connection.prepare_cached(&statement)?;
    let mut rows = statement.query([tenant.as_str()])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let key = key_from_row(row, &Proposals::default())?;
        let session = session(connection, key.session.0)?;
        let owner = match &session {
            Some(session) => owner(connection, alive, key.session, session, now)?,
            None => OwnerState::Gone,
        };
        found.push(InFlight {
            node: session
                .as_ref()
                .map_or_else(String::new, |one| one.node.clone()),
            lease: session.as_ref().map_or(Duration::ZERO, |one| one.lease),
            lease_until: session.map_or(StoreTime(i64::MIN), |one| one.alive_until),
            owner,
            key,
        });
    }
    Ok(found)
}

fn session(connection: &Connection, number: u64) -> Result<Option<Session>, RowError> {
    let mut statement = connection.prepare_cached(
        "SELECT node, lease_us, alive_until, dead_at IS NOT NULL FROM session \
         WHERE session_id = ?1",
    )?;
    let found = statement.query_row([signed(number)], |row| {
        Ok(Session {
            node: row.get(0)?,
            lease: Duration::from_micros(unsigned(row.get(1)?)),
            alive_until: StoreTime(row.get(2)?),
            is_dead: row.get(3)?,
        })
    });
    Ok(found.optional()?)
}

/// As a claim on the entity would judge it (`Rows::has_ended`).
fn owner(
    connection: &Connection,
    alive: &SignsOfLife,
    number: operators_kernel::SessionId,
    session: &Session,
    now: StoreTime,
) -> Result<OwnerState, RowError> {
    if session.is_dead || session.alive_until < now {
        return Ok(OwnerState::Gone);
    }
    if alive.is_ours(number) || alive.is_shown_elsewhere(number).map_err(RowError::Alive)? {
        return Ok(OwnerState::Alive);
    }
    let lease = i64::try_from(session.lease.as_micros()).unwrap_or(i64::MAX);
    let beat = StoreTime(session.alive_until.0.saturating_sub(lease));
    let (since, _) = lock_file_since(connection, alive, now)?;
    Ok(if beat < since {
        OwnerState::NotKnownYet
    } else {
        OwnerState::Gone
    })
}

/// From when on every living process has its lock in the file that is at hand, and whether the store
/// knows that file already.
pub(super) fn lock_file_since(
    connection: &Connection,
    alive: &SignsOfLife,
    now: StoreTime,
) -> Result<(StoreTime, bool), RowError> {
    let at_hand = alive.file().map_err(RowError::Alive)?;
    let mut statement =
        connection.prepare_cached("SELECT alive_file, alive_since FROM operators_store")?;
    let seen = statement.query_row([], |row| Ok((row.get(0)?, StoreTime(row.get(1)?))));
    let (file, since): (Option<String>, StoreTime) = seen?;
    Ok(match file {
        Some(file) if file == at_hand => (since, true),
        // Another file than the one that was seen last speaks for no process that came before it.
        Some(_) => (now, false),
        // The first of a boot, or of this schema: no process can be in another.
        None => (since, false),
    })
}
