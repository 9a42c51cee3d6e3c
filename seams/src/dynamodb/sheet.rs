//! One decision: the records it needs, what `book` makes of them, and the write that holds only if
//! they are still so.
//!
//! A first try may be made on what this process believes (a key nobody used, an entity as it last
//! saw it): its write names the versions it was decided on, so a wrong belief is refused, and the
//! refusal brings the records as they are. What writes nothing is decided on facts only.

use std::collections::{BTreeMap, HashMap, HashSet};

use operators_kernel::life::{KeyRecord, Phase};
use operators_kernel::{
    EntityKey, IdempotencyKey, SessionId, StoreError, StoreTime, TenantId, Ticket,
};

use super::Shared;
use super::item::{Address, EntityItem, KeyItem, Span, Waiter};
use super::request::{Expect, InTheWay, Write, Written, fresh_id};
use super::trail::Bundle;
use crate::book::BookError;
use crate::page::{Page, SessionRecord, Want};

/// The records of one decision.
#[derive(Debug)]
pub(super) struct Sheet {
    tenant: TenantId,
    entity_key: EntityKey,
    key_name: Option<IdempotencyKey>,
    pub(super) key: Option<KeyItem>,
    pub(super) entity: EntityItem,
    sessions: HashMap<SessionId, SessionRecord>,
    /// Sessions found dead, whose intents are doubts already.
    buried: HashSet<SessionId>,
    /// A session whose death is being recorded on this very key.
    pub(super) dying: Option<SessionId>,
    /// Whether the records are read, not believed.
    is_fact: bool,
    landing_until: StoreTime,
}

/// What became of a decision.
pub(super) enum Kept {
    /// It is durable.
    Done,
    /// The records were not as believed; they are now. Decide again.
    Again,
}

impl Sheet {
    /// On one key and its entity.
    pub(super) fn of_key(tenant: &TenantId, entity: &EntityKey, key: &IdempotencyKey) -> Self {
        let mut sheet = Self::of_entity(tenant, entity);
        sheet.key_name = Some(key.clone());
        sheet
    }

    /// On an entity alone.
    pub(super) fn of_entity(tenant: &TenantId, entity: &EntityKey) -> Self {
        Self {
            tenant: tenant.clone(),
            entity_key: entity.clone(),
            key_name: None,
            key: None,
            entity: EntityItem::untouched(),
            sessions: HashMap::new(),
            buried: HashSet::new(),
            dying: None,
            is_fact: false,
            landing_until: StoreTime(i64::MIN),
        }
    }

    /// The place of whoever asked under this name before and lost the answer.
    pub(super) fn ticket_of(&self, name: &str) -> Option<Ticket> {
        let mut queue = self.entity.queue.iter();
        let place = queue.find(|waiter| waiter.asker == name);
        place.map(|waiter| waiter.ticket)
    }

    fn entity_address(&self) -> Address {
        Address::entity(&self.tenant, &self.entity_key)
    }

    fn is_burned(&self) -> bool {
        let phase = self.key.as_ref().map(KeyItem::phase);
        matches!(phase, Some(Phase::Applied | Phase::WrittenOff))
    }
}

impl Shared {
    /// Reads a sheet's records, all of one moment.
    pub(super) async fn look(&self, sheet: &mut Sheet) -> Result<(), StoreError> {
        let entity = sheet.entity_address();
        let key = sheet.key_name.as_ref();
        let key = key.map(|key| Address::key(&sheet.tenant, key));
        let addresses: Vec<Address> = std::iter::once(entity).chain(key).collect();
        let mut found = match addresses.as_slice() {
            [entity] => vec![self.table.get(entity).await?],
            all => self.table.snapshot(all).await?,
        }
        .into_iter();
        let entity = found.next().flatten();
        sheet.entity = self.read_entity(entity.as_ref())?;
        let key = found.next().flatten();
        sheet.key = self.read_key(key.as_ref())?;
        sheet.is_fact = true;
        Ok(())
    }

    /// Turns a sheet to the entity that its key's last attempt named.
    pub(super) async fn follow(&self, sheet: &mut Sheet) -> Result<(), StoreError> {
        while let Some(key) = &sheet.key
            && *key.entity_key() != sheet.entity_key
        {
            sheet.entity_key = key.entity_key().clone();
            self.look(sheet).await?;
        }
        Ok(())
    }

    fn page(&self, sheet: &mut Sheet) -> Page {
        let observer = &self.table.observer;
        let mut page = Page::part(observer.now(), observer.stamp());
        let entity = (sheet.tenant.clone(), sheet.entity_key.clone());
        let record = sheet.entity.seen_by(observer);
        sheet.landing_until = record.landing_until;
        page.load_entity(entity.clone(), record);
        let queue = sheet.entity.queue.iter();
        let queue: BTreeMap<Ticket, SessionId> = queue
            .map(|waiter| (waiter.ticket, waiter.session))
            .collect();
        page.load_queue(entity, queue);
        page.load_ticket(Ticket(sheet.entity.tickets.saturating_add(1)));
        let key = sheet.key.as_ref().map(|key| key.seen_by(observer));
        for (session, record) in &sheet.sessions {
            page.load_session(*session, Some(*record));
        }
        for session in &sheet.buried {
            page.load_session(*session, None);
            page.load_intents(*session, Vec::new());
        }
        if let (Some(session), Some(key)) = (sheet.dying, &key) {
            page.load_session(session, None);
            page.load_intents(session, vec![key.clone()]);
        }
        if let Some(name) = &sheet.key_name {
            page.load_key((sheet.tenant.clone(), name.clone()), key);
        }
        page
    }

    /// Lets `work` decide, fetching the sessions it asks for.
    pub(super) async fn decide<T>(
        &self,
        sheet: &mut Sheet,
        work: impl Fn(&mut Page) -> Result<T, BookError<Want>>,
    ) -> Result<(Page, T), StoreError> {
        loop {
            let mut page = self.page(sheet);
            let want = match work(&mut page) {
                Ok(answer) => return Ok((page, answer)),
                Err(BookError::Records(want)) => want,
                Err(BookError::SessionDead(session)) => {
                    return Err(StoreError::SessionDead {
                        store: self.table.place.clone(),
                        session,
                    });
                }
                Err(BookError::KeyMissing(key)) => {
                    return Err(self.table.unusable(format!(
                        "key `{key}` was claimed but its item is gone; items were deleted by hand"
                    )));
                }
            };
            match want {
                Want::Session(session) => {
                    let record = self.session(session).await?;
                    sheet.sessions.insert(session, record);
                }
                Want::Intents(session) => {
                    let holding = sheet.entity.holding.clone();
                    let held = holding.map(|key| (sheet.tenant.clone(), key));
                    let record = self.bury(session, held).await?;
                    if record.is_dead {
                        sheet.buried.insert(session);
                    }
                    sheet.sessions.insert(session, record);
                    self.look(sheet).await?;
                }
                other => {
                    return Err(self
                        .table
                        .unusable(format!("a record is missing: {other:?}")));
                }
            }
        }
    }

    /// Writes what a decision changed, if the records are still what it was made on. `name` is who
    /// takes a new place in the queue; `asked` is when the call began.
    pub(super) async fn keep(
        &self,
        sheet: &mut Sheet,
        page: Page,
        name: &str,
        asked: StoreTime,
    ) -> Result<Kept, StoreError> {
        let key = self.next_key(sheet, &page);
        let entity = self.next_entity(sheet, &page, name)?;
        let is_believable = (key.is_some() && entity.is_some())
            || (entity.is_some() && !page.changes.waiters_added.is_empty());
        if !sheet.is_fact && !is_believable {
            self.look(sheet).await?;
            return Ok(Kept::Again);
        }
        let receipts = page.changes.receipts;
        let writes = self.writes(sheet, key.as_ref(), entity.as_ref())?;
        if writes.is_empty() {
            let appended = self.trail.append(&self.table, &sheet.tenant, receipts);
            appended.await?;
            return Ok(Kept::Done);
        }
        let bundle = Bundle {
            writes,
            receipts,
            at: asked,
        };
        match self.trail.write(&self.table, &sheet.tenant, bundle).await? {
            Written::Done => {
                self.remember(sheet, key, entity, page.now, asked);
                Ok(Kept::Done)
            }
            Written::Refused(refused) => {
                let mut refused = refused.into_iter();
                sheet.is_fact = false;
                if key.is_some()
                    && let Some(InTheWay::Item(found)) = refused.next()
                {
                    sheet.key = self.read_key(found.as_ref())?;
                    // A burned key is one for good: no entity changes its answer.
                    sheet.is_fact = sheet.is_burned();
                }
                if entity.is_some()
                    && let Some(InTheWay::Item(found)) = refused.next()
                {
                    sheet.entity = self.read_entity(found.as_ref())?;
                }
                Ok(Kept::Again)
            }
        }
    }

    fn next_key(&self, sheet: &Sheet, page: &Page) -> Option<KeyItem> {
        if page.changes.keys.is_empty() {
            return None;
        }
        let name = (sheet.tenant.clone(), sheet.key_name.clone()?);
        let record: &KeyRecord = page.key_now(&name)?;
        let observer = &self.table.observer;
        Some(KeyItem::next(
            record,
            sheet.key.as_ref(),
            page.now,
            observer,
        ))
    }

    fn next_entity(
        &self,
        sheet: &Sheet,
        page: &Page,
        name: &str,
    ) -> Result<Option<EntityItem>, StoreError> {
        let entity = (sheet.tenant.clone(), sheet.entity_key.clone());
        let before = &sheet.entity;
        let queue = page.queue_now(&entity).cloned().unwrap_or_default();
        let is_queue_same = queue
            .keys()
            .eq(before.queue.iter().map(|waiter| &waiter.ticket));
        if page.changes.entities.is_empty() && is_queue_same {
            return Ok(None);
        }
        let Some(record) = page.entity_now(&entity) else {
            return Ok(None);
        };
        let places = queue.into_iter().map(|(ticket, session)| {
            let known = before.queue.iter().find(|waiter| waiter.ticket == ticket);
            known.cloned().unwrap_or_else(|| Waiter {
                ticket,
                session,
                asker: name.to_owned(),
            })
        });
        let landing = if record.landing_until <= page.now {
            None
        } else if record.landing_until == sheet.landing_until {
            before.landing.clone()
        } else {
            Some(Span {
                id: fresh_id().map_err(|problem| self.table.unavailable(problem))?,
                micros: record.landing_until.0.saturating_sub(page.now.0),
                date_max: self.table.observer.date_max(),
            })
        };
        let is_same_holder =
            record.holder == before.record.holder && record.fence == before.record.fence;
        let holding = match record.holder {
            None => None,
            Some(_) if is_same_holder => before.holding.clone(),
            Some(_) => sheet.key_name.clone(),
        };
        let added = page.changes.waiters_added.iter();
        let tickets = added.map(|(_, ticket, _)| ticket.0).max();
        Ok(Some(EntityItem {
            version: before.version + 1,
            record: record.clone(),
            holding,
            queue: places.collect(),
            tickets: before.tickets.max(tickets.unwrap_or(0)),
            landing,
        }))
    }

    /// The key first, then the entity, then what lists doubts.
    fn writes(
        &self,
        sheet: &Sheet,
        key: Option<&KeyItem>,
        entity: Option<&EntityItem>,
    ) -> Result<Vec<Write>, StoreError> {
        let mut writes = Vec::new();
        if let Some(key) = key {
            let item = key
                .write()
                .map_err(|problem| self.table.unusable(problem))?;
            let before = sheet.key.as_ref().map_or(0, |before| before.version);
            writes.push(Write::Put(item, Expect::Version(before)));
        }
        if let Some(entity) = entity {
            let item = entity.write(&sheet.entity_address());
            writes.push(Write::Put(item, Expect::Version(sheet.entity.version)));
        }
        if let Some(key) = key {
            let doubt = Address::doubt(key.tenant(), key.name());
            let was = sheet.key.as_ref().map(KeyItem::phase) == Some(Phase::InDoubt);
            match (was, key.phase() == Phase::InDoubt) {
                (false, true) => writes.push(Write::Put(doubt.item(), Expect::Anything)),
                (true, false) => writes.push(Write::Delete(doubt)),
                (true, true) | (false, false) => {}
            }
        }
        Ok(writes)
    }

    fn remember(
        &self,
        sheet: &Sheet,
        key: Option<KeyItem>,
        entity: Option<EntityItem>,
        now: StoreTime,
        asked: StoreTime,
    ) {
        let observer = &self.table.observer;
        if let Some(key) = key {
            let is_new = sheet.key.as_ref().map(KeyItem::attempt_id) != Some(key.attempt_id());
            if key.phase() == Phase::Intent && is_new {
                observer.begun(key.session(), key, asked);
            } else if key.phase() != Phase::Intent {
                observer.settled(key.receipt_id());
            }
        }
        if let Some(entity) = entity {
            if let Some(span) = &entity.landing {
                observer.began_span(span, now);
            }
            observer.saw_entity(&sheet.entity_address().pk, entity);
        }
    }

    pub(super) fn read_key(
        &self,
        item: Option<&super::item::Item>,
    ) -> Result<Option<KeyItem>, StoreError> {
        let key = item.map(KeyItem::read).transpose();
        key.map_err(|problem| self.table.unusable(problem))
    }

    fn read_entity(&self, item: Option<&super::item::Item>) -> Result<EntityItem, StoreError> {
        let entity = item.map(EntityItem::read).transpose();
        let entity = entity.map_err(|problem| self.table.unusable(problem))?;
        Ok(entity.unwrap_or_else(EntityItem::untouched))
    }
}
