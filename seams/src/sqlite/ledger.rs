//! Looking: what people and auditors ask of the file, on a connection of its own.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use operators_kernel::life::{KeyRecord, NoteKind, NoteName};
use operators_kernel::log::Log;
use operators_kernel::{
    Cursor, EntityKey, Glimpse, IdempotencyKey, InFlight, Ledger, LedgerEntry, ReceiptFilter,
    StoreError, StoreTime, TenantHistory, TenantId,
};
use rusqlite::Connection;

use super::in_flight;
use super::open::open_to_look;
use super::problems::problems;
use super::proposals::Proposals;
use super::receipts::find_receipts;
use super::records::{self, KEY_COLUMNS, RowError};
use super::trouble::{in_words, no_lock_file, unreadable};
use super::{SqliteStore, describe};

impl SqliteStore {
    /// Looks at the file on a thread that may block, in one snapshot.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T, RowError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (path, reader) = (self.path.clone(), Arc::clone(&self.reader));
        let looked = tokio::task::spawn_blocking(move || {
            let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
            let connection = match reader.take() {
                Some(connection) => connection,
                None => open_to_look(&path).map_err(|problem| unusable(&path, problem))?,
            };
            let looked = snapshot(&connection, look).map_err(|error| sort(&path, error));
            *reader = Some(connection);
            looked
        });
        looked
            .await
            .unwrap_or_else(|_| Err(unusable(&self.path, "a look at it panicked".into())))
    }
}

fn snapshot<T>(
    connection: &Connection,
    look: impl FnOnce(&Connection) -> Result<T, RowError>,
) -> Result<T, RowError> {
    let transaction = connection.unchecked_transaction()?;
    let found = look(&transaction)?;
    transaction.finish()?;
    Ok(found)
}

fn unusable(path: &Path, problem: String) -> StoreError {
    StoreError::Unusable {
        store: describe(path),
        problem,
    }
}

fn sort(path: &Path, error: RowError) -> StoreError {
    let problem = match error {
        RowError::Sql(error) => in_words(&error),
        RowError::Alive(error) => no_lock_file(path, &error),
        RowError::Meaning { what, problem } => unreadable(&what, &problem),
    };
    unusable(path, problem)
}

#[async_trait]
impl Ledger for SqliteStore {
    fn describe(&self) -> String {
        describe(&self.path)
    }

    async fn glimpse(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
        entity: &EntityKey,
    ) -> Result<Glimpse, StoreError> {
        let (tenant, key, entity) = (tenant.clone(), key.clone(), entity.clone());
        let clock = Arc::clone(&self.clock);
        self.look(move |connection| {
            Ok(Glimpse {
                key: records::find_key(connection, &tenant, &key, &Proposals::default())?,
                entity: records::find_entity(connection, &tenant, &entity)?,
                now: clock.now(),
            })
        })
        .await
    }

    async fn key(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<KeyRecord>, StoreError> {
        let (tenant, key) = (tenant.clone(), key.clone());
        self.look(move |connection| {
            records::find_key(connection, &tenant, &key, &Proposals::default())
        })
        .await
    }

    async fn doubts(&self, tenant: &TenantId) -> Result<(Vec<KeyRecord>, StoreTime), StoreError> {
        let (tenant, clock) = (tenant.clone(), Arc::clone(&self.clock));
        self.look(move |connection| {
            let statement = format!(
                "SELECT {KEY_COLUMNS} FROM key WHERE tenant = ?1 AND phase = 'in_doubt' \
                 ORDER BY first_intent_at, rowid"
            );
            let mut statement = connection.prepare_cached(&statement)?;
            let mut found = statement.query([tenant.as_str()])?;
            let mut doubts = Vec::new();
            while let Some(row) = found.next()? {
                doubts.push(records::key_from_row(row, &Proposals::default())?);
            }
            Ok((doubts, clock.now()))
        })
        .await
    }

    async fn in_flight(&self, tenant: &TenantId) -> Result<(Vec<InFlight>, StoreTime), StoreError> {
        let (tenant, clock) = (tenant.clone(), Arc::clone(&self.clock));
        let alive = Arc::clone(&self.alive);
        self.look(move |connection| {
            let now = clock.now();
            let found = in_flight::find(connection, &alive, &tenant, now)?;
            Ok((found, now))
        })
        .await
    }

    async fn history_of(&self, tenant: &TenantId) -> Result<TenantHistory, StoreError> {
        let tenant = tenant.clone();
        self.look(move |connection| {
            let asked = "SELECT EXISTS (SELECT 1 FROM log WHERE tenant = ?1) \
                 OR EXISTS (SELECT 1 FROM key WHERE tenant = ?1), \
                 EXISTS (SELECT 1 FROM log) OR EXISTS (SELECT 1 FROM key)";
            let found: (bool, bool) = connection.query_row(asked, [tenant.as_str()], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
            Ok(match found {
                (true, _) => TenantHistory::Known,
                (false, true) => TenantHistory::OnlyOthers,
                (false, false) => TenantHistory::EmptyStore,
            })
        })
        .await
    }

    async fn receipts(
        &self,
        tenant: &TenantId,
        filter: &ReceiptFilter,
        cursor: Cursor,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>, StoreError> {
        let (tenant, filter) = (tenant.clone(), filter.clone());
        self.look(move |connection| find_receipts(connection, &tenant, &filter, cursor, limit))
            .await
    }

    async fn note(&self, tenant: &TenantId, name: &NoteName) -> Result<Option<String>, StoreError> {
        let (tenant, name) = (tenant.clone(), name.clone());
        self.look(move |connection| records::find_note(connection, &tenant, &name))
            .await
    }

    async fn notes(
        &self,
        tenant: &TenantId,
        kind: NoteKind,
    ) -> Result<Vec<(String, String)>, StoreError> {
        let tenant = tenant.clone();
        self.look(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT name, body FROM note WHERE tenant = ?1 AND kind = ?2 ORDER BY name",
            )?;
            let found = statement.query_map((tenant.as_str(), kind.as_str()), |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
            Ok(found.collect::<rusqlite::Result<_>>()?)
        })
        .await
    }

    fn log(&self) -> &dyn Log {
        self
    }

    async fn check(&self) -> Result<Vec<String>, StoreError> {
        self.look(problems).await
    }
}
