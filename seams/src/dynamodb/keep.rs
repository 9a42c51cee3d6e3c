//! Keeping a decision: the write that holds only if the records are still what it was made on.

use operators_kernel::life::{KeyRecord, Phase};
use operators_kernel::{StoreError, StoreTime};

use super::Shared;
use super::entity_item::EntityItem;
use super::item::{Address, Span};
use super::key_item::KeyItem;
use super::sheet::{Kept, Sheet};
use super::trail::Bundle;
use super::trouble::fresh_id;
use super::write::{Expect, InTheWay, Write, Written};
use crate::page::Page;

impl Shared {
    /// Writes what a decision changed, if the records are still what it was made on. `asked` is when
    /// the call began.
    pub(super) async fn keep(
        &self,
        sheet: &mut Sheet,
        page: Page,
        asked: StoreTime,
    ) -> Result<Kept, StoreError> {
        let mut key = self.next_key(sheet, &page);
        let entity = self.next_entity(sheet, &page)?;
        let is_believable = (key.is_some() && entity.is_some())
            || (entity.is_some() && !page.changes.waiters_added.is_empty());
        if !sheet.is_fact && !is_believable {
            self.look(sheet).await?;
            return Ok(Kept::Again);
        }
        let elsewhere = next_elsewhere(sheet, &page);
        let receipts = page.changes.receipts;
        let mut writes = self.writes(sheet, key.as_mut(), entity.as_ref())?;
        if let Some((address, before, next)) = &elsewhere {
            writes.push(Write::Put(next.write(address), Expect::Version(*before)));
        }
        for (tenant, note) in &page.changes.notes {
            let before = sheet.notes.get(&note.name).cloned().unwrap_or_default();
            writes.push(before.write(tenant, note));
        }
        if writes.is_empty() {
            let appended = self.trail.append(&self.table, &sheet.tenant, receipts);
            appended.await?;
            return Ok(Kept::Done);
        }
        // INVARIANT (still-there): nothing is claimed in a table that lost what it acknowledged.
        let is_claim = key.as_ref().is_some_and(|key| is_claim(sheet, key));
        let known = if is_claim {
            self.table.known().await?
        } else {
            None
        };
        let check = known.as_ref().map(|known| known.check.clone());
        writes.extend(check.map(Write::Check));
        let bundle = Bundle {
            writes,
            receipts,
            at: asked,
        };
        match self.trail.write(&self.table, &sheet.tenant, bundle).await? {
            Written::Done => {
                if let Some((address, _, next)) = elsewhere {
                    self.table.observer.saw_entity(&address.pk, next);
                }
                self.remember(sheet, key, entity, page.now, asked);
                Ok(Kept::Done)
            }
            Written::Refused(refused) => {
                if known.is_some() && refused.last().is_some_and(InTheWay::is_something) {
                    return Err(self.table.rolled_back());
                }
                let mut refused = refused.into_iter();
                let found_key = key.and_then(|_| refused.next());
                let found_entity = entity.and_then(|_| refused.next());
                self.take_in(sheet, found_key, found_entity)?;
                Ok(Kept::Again)
            }
        }
    }

    /// What was found in the way of a key and of an entity is what the next decision is made on.
    fn take_in(
        &self,
        sheet: &mut Sheet,
        key: Option<InTheWay>,
        entity: Option<InTheWay>,
    ) -> Result<(), StoreError> {
        sheet.is_fact = false;
        sheet.notes.clear();
        sheet.elsewhere = None;
        if let Some(InTheWay::Item(found)) = key {
            let found = self.read_key(found.as_ref())?;
            let [before, now] =
                [&sheet.key, &found].map(|key| key.as_ref().map_or(0, |key| key.version));
            self.check_version(before, now)?;
            sheet.key = found;
            // A burned key is one for good: no entity changes its answer.
            sheet.is_fact = sheet.is_burned();
        }
        if let Some(InTheWay::Item(found)) = entity {
            let found = self.read_entity(found.as_ref())?;
            self.check_version(sheet.entity.version, found.version)?;
            sheet.entity = found;
        }
        Ok(())
    }

    /// A record that was read or written before is of an earlier version now: versions only grow.
    pub(super) fn check_version(&self, before: u64, now: u64) -> Result<(), StoreError> {
        if now < before {
            return Err(self.table.rolled_back());
        }
        Ok(())
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

    fn next_entity(&self, sheet: &Sheet, page: &Page) -> Result<Option<EntityItem>, StoreError> {
        let entity = (sheet.tenant.clone(), sheet.entity_key.clone());
        let before = &sheet.entity;
        let queue = page.queue_now(&entity).cloned().unwrap_or_default();
        if page.changes.entities.is_empty() && queue == before.queue {
            // A claim that was refused for what stands in no record of its own (a pause) could be
            // granted, or take a place, by an earlier try that arrives only now: every one of them
            // was decided on an earlier version of its entity.
            let is_answered = !page.changes.receipts.is_empty();
            let is_ended = sheet.is_unheard && is_answered && !sheet.is_burned();
            return Ok(is_ended.then(|| EntityItem {
                version: before.version + 1,
                ..before.clone()
            }));
        }
        let Some(record) = page.entity_now(&entity) else {
            return Ok(None);
        };
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
            queue,
            tickets: before.tickets.max(tickets.unwrap_or(0)),
            landing,
        }))
    }

    /// The key first, then the entity, then what lists doubts and the pieces of long texts.
    fn writes(
        &self,
        sheet: &Sheet,
        mut key: Option<&mut KeyItem>,
        entity: Option<&EntityItem>,
    ) -> Result<Vec<Write>, StoreError> {
        let mut writes = Vec::new();
        let mut pieces = Vec::new();
        if let Some(key) = &mut key {
            let written = key.write();
            let (item, fresh) = written.map_err(|problem| self.table.unusable(problem))?;
            pieces = fresh;
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
        writes.extend(pieces);
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
            if is_claim(sheet, &key) {
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
}

/// What an entity that the key has left becomes, with its place and the version it had.
fn next_elsewhere(sheet: &Sheet, page: &Page) -> Option<(Address, u64, EntityItem)> {
    let (name, before) = sheet.elsewhere.as_ref()?;
    let record = page.entity_now(name)?;
    let next = EntityItem {
        version: before.version + 1,
        record,
        ..before.clone()
    };
    let is_changed = page.changes.entities.contains(name);
    is_changed.then(|| (Address::entity(&name.0, &name.1), before.version, next))
}

/// Whether a key's next record is an attempt that was not there before.
fn is_claim(sheet: &Sheet, key: &KeyItem) -> bool {
    let before = sheet.key.as_ref().map(KeyItem::attempt_id);
    key.phase() == Phase::Intent && before != Some(key.attempt_id())
}
