//! Looking: what people and auditors ask of the database, always on its primary.

use async_trait::async_trait;
use operators_kernel::life::{KeyRecord, NoteKind, NoteName};
use operators_kernel::log::{Log, is_stub};
use operators_kernel::{
    Cursor, EntityKey, Glimpse, IdempotencyKey, InFlight, Ledger, LedgerEntry, PAGE_MAX, Receipt,
    ReceiptFilter, StoreError, StoreTime, TenantHistory, TenantId,
};
use serde::Serialize;
use sqlx::Row;

use super::PgStore;
use super::lines::{Line, Lines};
use super::rows::{self, Loaded, from_json, to_json};
use super::text::{Call, joined};
use super::trouble::Trouble;

use std::sync::Arc;

/// An entity no lookup of a key alone is about.
const NO_ENTITY: &str = "";

pub(super) async fn look(
    lines: &Arc<Lines>,
    tenant: &TenantId,
    key: &IdempotencyKey,
    entity: Option<&EntityKey>,
) -> Result<Glimpse, Trouble> {
    let statement = Call::of("glimpse")
        .text(tenant.as_str())
        .text(entity.map_or(NO_ENTITY, EntityKey::as_str))
        .text(key.as_str())
        .finish()?;
    let loaded = Loaded::read(&lines.run(statement).await?)?;
    Ok(Glimpse {
        now: loaded.now,
        key: loaded.keys.into_iter().next(),
        entity: loaded.entities.into_values().next().unwrap_or_default(),
    })
}

async fn doubts(
    lines: &Arc<Lines>,
    tenant: &TenantId,
) -> Result<(Vec<KeyRecord>, StoreTime), Trouble> {
    let statement = Call::of("doubts").text(tenant.as_str()).finish()?;
    let loaded = Loaded::read(&lines.run(statement).await?)?;
    Ok((loaded.keys, loaded.now))
}

async fn in_flight(
    lines: &Arc<Lines>,
    tenant: &TenantId,
) -> Result<(Vec<InFlight>, StoreTime), Trouble> {
    let statement = Call::of("in_flight").text(tenant.as_str()).finish()?;
    rows::in_flight(&lines.run(statement).await?)
}

async fn history_of(lines: &Arc<Lines>, tenant: &TenantId) -> Result<TenantHistory, Trouble> {
    let statement = Call::of("history_of").text(tenant.as_str()).finish()?;
    let rows = lines.run(statement).await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    Ok(match (row.try_get(0)?, row.try_get(1)?) {
        (true, _) => TenantHistory::Known,
        (false, true) => TenantHistory::OnlyOthers,
        (false, false) => TenantHistory::EmptyStore,
    })
}

/// What the text of every receipt that `filter` admits holds. Canonical text has one form for one
/// value, so a field is found as it is written; nested arguments may look the same, so what is found
/// is looked at again.
fn fragments(filter: &ReceiptFilter) -> Result<Vec<String>, Trouble> {
    fn part(name: &str, value: Option<&impl Serialize>) -> Result<Option<String>, Trouble> {
        let text = value.map(to_json).transpose()?;
        Ok(text.map(|text| format!("\"{name}\":{text}")))
    }
    let parts = [
        part("operator", filter.operator.as_ref())?,
        part("decision", filter.decision.as_ref())?,
        part("outcome", filter.outcome.as_ref())?,
        part("reason", filter.reason.as_ref())?,
        part("tool", filter.tool.as_ref())?,
        part("entity_key", filter.entity_key.as_ref())?,
        part("correlation_id", filter.correlation_id.as_ref())?,
        part("run_id", filter.run_id.as_ref())?,
    ];
    Ok(parts.into_iter().flatten().collect())
}

async fn receipts(
    lines: &Arc<Lines>,
    tenant: &TenantId,
    filter: &ReceiptFilter,
    cursor: Cursor,
    limit: usize,
) -> Result<Vec<LedgerEntry>, Trouble> {
    let limit = limit.min(PAGE_MAX);
    let fragments = joined(fragments(filter)?.iter().map(String::as_str));
    let mut cursor = cursor;
    let mut found = Vec::new();
    while found.len() < limit {
        let (after, before, newest_first) = match cursor {
            Cursor::After(start) => (signed(start), i64::MAX, false),
            Cursor::Before(end) => (-1, signed(end), true),
        };
        let wanted = limit.saturating_sub(found.len());
        let statement = Call::of("trail")
            .text(tenant.as_str())
            .number(after)
            .number(before)
            .flag(newest_first)
            .text(&wanted.to_string())
            .text_or_null(filter.receipt_id.as_deref())
            .text_or_null(filter.idempotency_key.as_ref().map(IdempotencyKey::as_str))
            .number_or_null(filter.since.map(operators_kernel::Timestamp::as_micros))
            .number_or_null(filter.until.map(operators_kernel::Timestamp::as_micros))
            .text(&fragments)
            .finish()?;
        let rows = lines.run(statement).await?;
        for row in &rows {
            let sequence = u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0);
            cursor = match cursor {
                Cursor::After(_) => Cursor::After(sequence),
                Cursor::Before(_) => Cursor::Before(sequence),
            };
            let body: &str = row.try_get(1)?;
            if is_stub(body) {
                continue;
            }
            let receipt: Receipt = from_json("a receipt", body)?;
            if filter.admits(&receipt) {
                found.push(LedgerEntry { sequence, receipt });
            }
        }
        if rows.len() < wanted {
            break;
        }
    }
    Ok(found)
}

/// The receipt of this id, as the transaction on `line` sees it.
pub(super) async fn find_receipt(
    line: &mut Line,
    tenant: &TenantId,
    receipt_id: &str,
) -> Result<Option<Receipt>, Trouble> {
    let statement = Call::of("trail")
        .text(tenant.as_str())
        .number(-1)
        .number(i64::MAX)
        .flag(false)
        .text("1")
        .text_or_null(Some(receipt_id))
        .text_or_null(None)
        .number_or_null(None)
        .number_or_null(None)
        .text("")
        .finish()?;
    let rows = line.rows(statement).await?;
    let found = rows.first().map(|row| row.try_get(1)).transpose()?;
    if found.is_some_and(is_stub) {
        return Err(Trouble::Unusable(
            "the text of a receipt was pruned".to_owned(),
        ));
    }
    found.map(|body| from_json("a receipt", body)).transpose()
}

/// The notes of a kind, by name, with what they say; only one if it is named.
async fn notes(
    lines: &Arc<Lines>,
    tenant: &TenantId,
    kind: NoteKind,
    name: Option<&str>,
) -> Result<Vec<(String, String)>, Trouble> {
    let statement = Call::of("jottings")
        .text(tenant.as_str())
        .text(kind.as_str())
        .text_or_null(name)
        .finish()?;
    let rows = lines.run(statement).await?;
    let read = |row: &sqlx::postgres::PgRow| Ok((row.try_get(0)?, row.try_get(1)?));
    rows.iter().map(read).collect()
}

async fn check(lines: &Arc<Lines>) -> Result<Vec<String>, Trouble> {
    let settings = "SELECT format('the server runs with `%s = off`: a crash can damage it', name) \
         FROM pg_settings WHERE name IN ('full_page_writes', 'fsync') AND setting = 'off'";
    let mut statements = vec![Call::of("problems").finish()?];
    if !lines.address.allows_unsafe_fsync {
        statements.push(settings.to_owned());
    }
    let mut said = Vec::new();
    for statement in statements {
        for row in lines.run(statement).await? {
            said.push(row.try_get(0)?);
        }
    }
    Ok(said)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[async_trait]
impl Ledger for PgStore {
    fn describe(&self) -> String {
        self.lines.address.name.clone()
    }

    async fn glimpse(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
        entity: &EntityKey,
    ) -> Result<Glimpse, StoreError> {
        let (tenant, key, entity) = (tenant.clone(), key.clone(), entity.clone());
        self.owned(|lines| async move { look(&lines, &tenant, &key, Some(&entity)).await })
            .await
    }

    async fn key(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<KeyRecord>, StoreError> {
        let (tenant, key) = (tenant.clone(), key.clone());
        let found = self
            .owned(|lines| async move { look(&lines, &tenant, &key, None).await })
            .await?;
        Ok(found.key)
    }

    async fn doubts(&self, tenant: &TenantId) -> Result<(Vec<KeyRecord>, StoreTime), StoreError> {
        let tenant = tenant.clone();
        self.owned(|lines| async move { doubts(&lines, &tenant).await })
            .await
    }

    async fn in_flight(&self, tenant: &TenantId) -> Result<(Vec<InFlight>, StoreTime), StoreError> {
        let tenant = tenant.clone();
        self.owned(|lines| async move { in_flight(&lines, &tenant).await })
            .await
    }

    async fn history_of(&self, tenant: &TenantId) -> Result<TenantHistory, StoreError> {
        let tenant = tenant.clone();
        self.owned(|lines| async move { history_of(&lines, &tenant).await })
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
        self.owned(|lines| async move { receipts(&lines, &tenant, &filter, cursor, limit).await })
            .await
    }

    async fn note(&self, tenant: &TenantId, name: &NoteName) -> Result<Option<String>, StoreError> {
        let (tenant, name) = (tenant.clone(), name.clone());
        let found = self
            .owned(|lines| async move { notes(&lines, &tenant, name.kind, Some(&name.name)).await })
            .await?;
        Ok(found.into_iter().next().map(|(_, body)| body))
    }

    async fn notes(
        &self,
        tenant: &TenantId,
        kind: NoteKind,
    ) -> Result<Vec<(String, String)>, StoreError> {
        let tenant = tenant.clone();
        self.owned(|lines| async move { notes(&lines, &tenant, kind, None).await })
            .await
    }

    fn log(&self) -> &dyn Log {
        self
    }

    async fn check(&self) -> Result<Vec<String>, StoreError> {
        self.owned(|lines| async move { check(&lines).await }).await
    }
}
