//! A dead session's estate: one transaction that locks what it left, and writes what follows.

use std::collections::BTreeSet;
use std::sync::Arc;

use operators_kernel::life::{KeyRecord, Phase};
use operators_kernel::{IdempotencyKey, SessionId, TenantId};

use super::fast::signed;
use super::ledger::look;
use super::lines::{IfBroken, Line, Lines, Tries};
use super::pages::{BEGIN, recall, write};
use super::rows::{Loaded, Written};
use super::text::Call;
use super::trouble::Trouble;
use crate::book::{self, BookError};
use crate::page::{EntityName, Page, Want};

/// Why a session is declared dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Death {
    /// It showed no sign of life for a lease; checked again under its lock.
    Lease,
    /// It ended in good order.
    Closed,
}

/// Declares a session dead: its intents become doubts, its turns and places are given up. `entity`
/// is one it was found to hold, with an intent or without.
pub(super) async fn bury(
    lines: &Arc<Lines>,
    session: SessionId,
    death: Death,
    entity: Option<EntityName>,
) -> Result<(), Trouble> {
    let mut tries = Tries::new(IfBroken::AskAgain);
    loop {
        let mut line = lines.take().await?;
        match bury_on(&mut line, lines, session, death, entity.as_ref()).await {
            Ok(()) => {
                line.give_back();
                return Ok(());
            }
            Err(trouble) => tries.consider(trouble, &line).await?,
        }
    }
}

/// Declares the owner of a key's intent dead if its lease is over; whether the key is in flight no
/// more.
pub(super) async fn declare_owner_dead(
    lines: &Arc<Lines>,
    tenant: &TenantId,
    key: &IdempotencyKey,
) -> Result<bool, Trouble> {
    let in_flight = |found: Option<KeyRecord>| found.filter(|key| key.phase == Phase::Intent);
    let Some(intent) = in_flight(look(lines, tenant, key, None).await?.key) else {
        return Ok(true);
    };
    let entity = (tenant.clone(), intent.proposal.entity_key.clone());
    bury(lines, intent.session, Death::Lease, Some(entity)).await?;
    Ok(in_flight(look(lines, tenant, key, None).await?.key).is_none())
}

async fn bury_on(
    line: &mut Line,
    lines: &Lines,
    session: SessionId,
    death: Death,
    entity: Option<&EntityName>,
) -> Result<(), Trouble> {
    let statement = Call::of("estate")
        .text(&lines.last_acked())
        .number(signed(session.0))
        .text_or_null(entity.map(|(tenant, _)| tenant.as_str()))
        .text_or_null(entity.map(|(_, entity)| entity.as_str()))
        .finish()?;
    let rows = line.rows(format!("{BEGIN}; {statement}")).await?;
    let loaded = Loaded::read(&rows)?;
    let found = loaded.sessions.get(&session).copied();
    let shows_life = found.is_some_and(|found| !found.is_dead && found.alive_until >= loaded.now);
    if death == Death::Lease && shows_life {
        // Its heartbeat came while we waited for its lock.
        return write(line, lines, &Written::default()).await;
    }
    let mut page = Page::part(loaded.now, loaded.stamp());
    page.load_session(session, found);
    for (name, record) in loaded.entities {
        page.load_entity(&name, &record);
    }
    page.load_intents(session, loaded.keys);
    let tenants = tenants_of(&page);
    loop {
        match book::declare_dead(&mut page, session) {
            Ok(()) => break,
            // A slot of a limit that is given back; what was decided so far stays decided.
            Err(BookError::Records(Want::Note(name))) => {
                for tenant in &tenants {
                    recall(line, &mut page, tenant, name.clone()).await?;
                }
            }
            Err(error) => {
                let problem = format!("a dead session's records: {error:?}");
                return Err(Trouble::Unusable(problem));
            }
        }
    }
    let mut written = Written::of(&mut page)?;
    // Held without an intent: nobody will ever settle it.
    if let Some((name, record)) = entity.and_then(|name| Some((name, page.entity_now(name)?)))
        && record.holder == Some(session)
    {
        written.clear_holder(name, &record);
    }
    write(line, lines, &written).await
}

/// Whose keys are on a page.
fn tenants_of(page: &Page) -> BTreeSet<TenantId> {
    page.keys_now()
        .map(|key| key.proposal.tenant_id.clone())
        .collect()
}
