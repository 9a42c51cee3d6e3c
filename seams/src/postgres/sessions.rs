//! Sessions, places in queues and tenants' keys: the calls that are one statement by nature.

use std::sync::Arc;
use std::time::Duration;

use operators_kernel::{Beat, EntityKey, RedactionKey, SessionId, TenantId, Ticket};
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::burials::{self, Death};
use super::lines::Lines;
use super::pages;
use super::text::Call;
use super::trouble::Trouble;
use crate::book::Asker;

fn only(rows: &[PgRow]) -> Result<&PgRow, Trouble> {
    Ok(rows.first().ok_or(sqlx::Error::RowNotFound)?)
}

/// Opens a session, after burying those that died before.
pub(super) async fn open(
    lines: &Arc<Lines>,
    node: &str,
    lease: Duration,
) -> Result<SessionId, Trouble> {
    // Nobody's session: what is wanted is the list of those who are not alive.
    let (_, lifeless) = look_after(lines, SessionId(0)).await?;
    bury(lines, lifeless).await;
    let lease_us = i64::try_from(lease.as_micros()).map_or(i64::MAX / 4, |us| us.min(i64::MAX / 4));
    let statement = Call::of("open_session")
        .text(&lines.all_acked())
        .text(node)
        .number(lease_us)
        .finish()?;
    let rows = lines.run(statement).await?;
    let opened: i64 = only(&rows)?.try_get(0)?;
    Ok(SessionId(u64::try_from(opened).unwrap_or(0)))
}

/// Keeps a session alive and buries those that are not. Whoever is dead looks after nobody, as on
/// every store.
pub(super) async fn beat(lines: &Arc<Lines>, session: SessionId) -> Result<Beat, Trouble> {
    let (is_alive, lifeless) = look_after(lines, session).await?;
    if !is_alive {
        return Ok(Beat::Dead);
    }
    bury(lines, lifeless).await;
    Ok(Beat::Alive)
}

/// Extends a session if it lives: whether it does, and who does not.
async fn look_after(
    lines: &Arc<Lines>,
    session: SessionId,
) -> Result<(bool, Vec<SessionId>), Trouble> {
    let statement = Call::of("beat")
        .text(&lines.all_acked())
        .number(signed(session.0))
        .finish()?;
    let rows = lines.run(statement).await?;
    let row = only(&rows)?;
    let (is_alive, lifeless): (bool, Option<&str>) = (row.try_get(0)?, row.try_get(1)?);
    let lifeless = lifeless.unwrap_or_default().split(',');
    let lifeless = lifeless.filter_map(|id| id.parse().ok()).map(SessionId);
    Ok((is_alive, lifeless.collect()))
}

async fn bury(lines: &Arc<Lines>, lifeless: Vec<SessionId>) {
    for dead in lifeless {
        // Its death is everybody's business: the next heartbeat, of whomever, tries again.
        if let Err(trouble) = burials::bury(lines, dead, Death::Lease, None).await {
            tracing::warn!(session = %dead, ?trouble, "a dead session could not be buried yet");
        }
    }
}

/// Lets a read through if nothing is ahead of it; under locks if something may be.
pub(super) async fn pass(
    lines: &Arc<Lines>,
    tenant: &TenantId,
    entity: &EntityKey,
    asker: Asker<'_>,
) -> Result<Option<Ticket>, Trouble> {
    if asker.place.is_none() {
        let statement = Call::of("pass")
            .text(&lines.last_acked())
            .text(tenant.as_str())
            .text(entity.as_str())
            .number(signed(asker.session.0))
            .finish()?;
        let rows = lines.run(statement).await?;
        match only(&rows)?.try_get(0)? {
            "free" => return Ok(None),
            "dead" => return Err(Trouble::SessionDead(asker.session)),
            _ => {}
        }
    }
    pages::pass(lines, tenant, entity, asker).await
}

/// Gives a place in a queue back.
pub(super) async fn leave(
    lines: &Arc<Lines>,
    tenant: &TenantId,
    entity: &EntityKey,
    ticket: Ticket,
) -> Result<(), Trouble> {
    let statement = Call::of("leave")
        .text(&lines.last_acked())
        .text(tenant.as_str())
        .text(entity.as_str())
        .number(signed(ticket.0))
        .finish()?;
    lines.run(statement).await.map(drop)
}

/// The tenant's key: the one there, or `fresh` from now on.
pub(super) async fn redaction_key(
    lines: &Arc<Lines>,
    tenant: &TenantId,
    fresh: &RedactionKey,
) -> Result<RedactionKey, Trouble> {
    let statement = Call::of("redaction_key")
        .text(&lines.last_acked())
        .text(tenant.as_str())
        .text(&operators_kernel::json::hex(fresh.as_bytes()))
        .finish()?;
    let rows = lines.run(statement).await?;
    let hex: &str = only(&rows)?.try_get(0)?;
    let mut bytes = [0; 32];
    for (place, byte) in bytes.iter_mut().enumerate() {
        let digits = hex.get(place * 2..place * 2 + 2);
        let found = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        *byte = found.ok_or_else(|| Trouble::meaning("a tenant's key", "it is not 32 bytes"))?;
    }
    Ok(RedactionKey::new(bytes))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
