//! What is read from rows, on any connection: the look-ups, and how a row becomes a record and back.

use std::io;
use std::sync::LazyLock;

use operators_kernel::life::{EntityRecord, KeyRecord, NoteName, Phase};
use operators_kernel::{
    EntityKey, Fence, Fingerprint, IdempotencyKey, NoDigest, SessionId, StoreTime, TenantId,
};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::proposals::Proposals;

pub(super) const KEY_COLUMNS: &str = "generation, phase, attempt, session_id, fence, fingerprint, \
    effect, on_unknown, first_intent_at, quiescent_at, open_attempts, open_until, proposal, \
    application";
static KEY: LazyLock<String> = LazyLock::new(|| {
    format!("SELECT {KEY_COLUMNS} FROM key WHERE tenant = ?1 AND idempotency_key = ?2")
});
const ENTITY: &str = "SELECT fence, holder, revision, doubt, landing_until FROM entity \
    WHERE tenant = ?1 AND entity_key = ?2";

/// Why a record could not be read or written.
#[derive(Debug)]
pub(super) enum RowError {
    /// The database said no.
    Sql(rusqlite::Error),
    /// The lock file said no.
    Alive(io::Error),
    /// The row says nothing that can be understood.
    Meaning {
        /// Which row.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl From<rusqlite::Error> for RowError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// One key's record, looked up on any connection.
pub(super) fn find_key(
    connection: &Connection,
    tenant: &TenantId,
    key: &IdempotencyKey,
    proposals: &Proposals,
) -> Result<Option<KeyRecord>, RowError> {
    let mut statement = connection.prepare_cached(&KEY)?;
    let mut found = statement.query((tenant.as_str(), key.as_str()))?;
    let read = |row| key_from_row(row, proposals);
    found.next()?.map(read).transpose()
}

/// One entity's record, looked up on any connection.
pub(super) fn find_entity(
    connection: &Connection,
    tenant: &TenantId,
    entity: &EntityKey,
) -> Result<EntityRecord, RowError> {
    let mut statement = connection.prepare_cached(ENTITY)?;
    let mut found = statement.query((tenant.as_str(), entity.as_str()))?;
    let Some(row) = found.next()? else {
        return Ok(EntityRecord::default());
    };
    let doubt: Option<String> = row.get(3)?;
    Ok(EntityRecord {
        fence: Fence(unsigned(row.get(0)?)),
        holder: row
            .get::<_, Option<i64>>(1)?
            .map(|id| SessionId(unsigned(id))),
        revision: row.get::<_, Option<i64>>(2)?.map(unsigned),
        doubt: doubt.map(|key| parse_key(&key)).transpose()?,
        landing_until: StoreTime(row.get(4)?),
    })
}

/// What a note says, looked up on any connection.
pub(super) fn find_note(
    connection: &Connection,
    tenant: &TenantId,
    name: &NoteName,
) -> Result<Option<String>, RowError> {
    let mut statement = connection
        .prepare_cached("SELECT body FROM note WHERE tenant = ?1 AND kind = ?2 AND name = ?3")?;
    let params = (tenant.as_str(), name.kind.as_str(), &name.name);
    Ok(statement.query_row(params, |row| row.get(0)).optional()?)
}

fn fingerprint(text: &str) -> Result<Fingerprint, RowError> {
    let digest = text.parse().map(Fingerprint);
    digest.map_err(|error: NoDigest| meaning("a key's fingerprint", &error.to_string()))
}

/// Reads a row of [`KEY_COLUMNS`].
pub(super) fn key_from_row(row: &Row<'_>, proposals: &Proposals) -> Result<KeyRecord, RowError> {
    let phase = text(row, 1)?;
    let proposal = text(row, 12)?;
    let known = proposals.find(proposal).map(Ok);
    Ok(KeyRecord {
        generation: row.get(0)?,
        phase: Phase::from_word(phase).ok_or_else(|| meaning("a key", phase))?,
        attempt: row.get(2)?,
        session: SessionId(unsigned(row.get(3)?)),
        fence: Fence(unsigned(row.get(4)?)),
        fingerprint: fingerprint(text(row, 5)?)?,
        effect: from_json("a key's effect", text(row, 6)?)?,
        on_unknown: from_json("a key's on_unknown", text(row, 7)?)?,
        first_intent_at: StoreTime(row.get(8)?),
        quiescent_at: StoreTime(row.get(9)?),
        open_attempts: from_json("a key's open attempts", text(row, 10)?)?,
        open_until: StoreTime(row.get(11)?),
        proposal: known.unwrap_or_else(|| from_json("a key's proposal", proposal))?,
        application: match row.get_ref(13)? {
            ValueRef::Null => None,
            _ => Some(from_json("a key's application", text(row, 13)?)?),
        },
    })
}

/// A text in a row, where it lies.
fn text<'a>(row: &'a Row<'_>, column: usize) -> Result<&'a str, RowError> {
    let value = row.get_ref(column)?;
    value
        .as_str()
        .map_err(|error| meaning("a key's row", &error.to_string()))
}

fn parse_key(text: &str) -> Result<IdempotencyKey, RowError> {
    IdempotencyKey::parse(text).map_err(|error| meaning("a doubt's key", &error.to_string()))
}

pub(super) fn from_json<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, RowError> {
    serde_json::from_str(text).map_err(|error| meaning(what, &error.to_string()))
}

pub(super) fn to_json(what: &str, value: &impl Serialize) -> Result<String, RowError> {
    serde_json::to_string(value).map_err(|error| meaning(what, &error.to_string()))
}

pub(super) fn meaning(what: &str, problem: &str) -> RowError {
    RowError::Meaning {
        what: what.to_owned(),
        problem: problem.to_owned(),
    }
}

/// `SQLite` keeps signed numbers; ours are never negative.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
