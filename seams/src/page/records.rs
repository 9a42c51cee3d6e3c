//! A page as the records that `book` decides on.

use hashbrown::hash_map::Entry;
use operators_kernel::life::{EntityRecord, KeyRecord, Note, NoteName, Phase};
use operators_kernel::{
    Claim, ClaimAnswer, EntityKey, IdempotencyKey, Receipt, SessionId, Shared, Slip, StoreTime,
    TenantId, Ticket, Timestamp,
};

use super::{Extent, Kept, Of, Page, Stamp, Want};
use crate::book::{Book, Change, Waiter};

fn queue_of(tenant: &TenantId, entity: &EntityKey) -> impl FnOnce() -> Want {
    || Want::Queue((tenant.clone(), entity.clone()))
}

impl Book for Page {
    type Error = Want;

    fn now(&self) -> StoreTime {
        self.now
    }

    fn stamp(&self) -> Timestamp {
        match &self.stamp {
            Stamp::At(stamp) => *stamp,
            Stamp::Of(clock) => clock.now(),
        }
    }

    fn key(
        &mut self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<Shared<KeyRecord>>, Want> {
        let name = Of(tenant, key);
        match self.keys.get(&name) {
            Some(kept) => kept.record(&name).map(Some),
            None if self.absent.contains(&name) => Ok(None),
            None => self.missing(|| Want::Key(name.to_owned()), None),
        }
    }

    fn duplicate(
        &mut self,
        tenant: &TenantId,
        claim: &Claim,
    ) -> Result<Option<(Slip, ClaimAnswer)>, Want> {
        let name = Of(tenant, &claim.proposal.idempotency_key);
        Ok(match self.keys.get(&name) {
            Some(Kept::Folded(folded)) => folded.duplicate(claim),
            Some(Kept::Record(_)) | None => None,
        })
    }

    fn put_key(&mut self, record: Shared<KeyRecord>, change: Change) -> Result<(), Want> {
        let proposal = record.proposal.clone();
        let name = Of(&proposal.tenant_id, &proposal.idempotency_key);
        if let Some(changes) = self.changed() {
            changes.keys.push((name.to_owned(), change));
        }
        self.keys.put(&name, Kept::Record(record));
        Ok(())
    }

    fn entity(&mut self, tenant: &TenantId, entity: &EntityKey) -> Result<EntityRecord, Want> {
        let want = || Want::Entity((tenant.clone(), entity.clone()));
        match self.entities.get(tenant, entity) {
            Some(record) => Ok(record),
            None => self.missing(want, EntityRecord::default()),
        }
    }

    fn put_entity(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        record: &EntityRecord,
    ) -> Result<(), Want> {
        if let Some(changes) = self.changed() {
            changes.entities.push((tenant.clone(), entity.clone()));
        }
        self.entities.put(tenant, entity, record);
        Ok(())
    }

    fn append(&mut self, receipt: Slip) -> Result<(), Want> {
        self.changes.receipts.push(receipt.into_receipt());
        Ok(())
    }

    fn receipt(&mut self, _tenant: &TenantId, receipt_id: &str) -> Result<Option<Receipt>, Want> {
        match self.receipts.get(receipt_id) {
            Some(receipt) => Ok(receipt.clone()),
            None => Err(Want::Receipt(receipt_id.to_owned())),
        }
    }

    fn note(&mut self, tenant: &TenantId, name: &NoteName) -> Result<Option<String>, Want> {
        if self.extent == Extent::Whole && self.notes.is_empty() {
            return Ok(None);
        }
        match self.notes.get(&Of(tenant, name)) {
            Some(body) => Ok(body.clone()),
            None => self.missing(|| Want::Note(name.clone()), None),
        }
    }

    fn put_note(&mut self, tenant: &TenantId, note: Note) -> Result<(), Want> {
        let name = (tenant.clone(), note.name.clone());
        if note.body.is_none() && self.extent == Extent::Whole {
            self.notes.remove(&name);
        } else {
            self.notes.insert(name, note.body.clone());
        }
        if let Some(changes) = self.changed() {
            changes.notes.push((tenant.clone(), note));
        }
        Ok(())
    }

    fn first_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
    ) -> Result<Option<(Ticket, Waiter)>, Want> {
        if self.extent == Extent::Whole && self.queues.is_empty() {
            return Ok(None);
        }
        match self.queues.get(&Of(tenant, entity)) {
            Some(queue) => Ok(queue
                .first_key_value()
                .map(|(ticket, waiter)| (*ticket, waiter.clone()))),
            None => self.missing(queue_of(tenant, entity), None),
        }
    }

    fn add_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        waiter: Waiter,
    ) -> Result<Ticket, Want> {
        let ticket = self.next_ticket.take().ok_or(Want::Ticket)?;
        if self.extent == Extent::Whole {
            self.next_ticket = Some(Ticket(ticket.0 + 1));
        }
        let name = (tenant.clone(), entity.clone());
        self.queues
            .entry(name.clone())
            .or_default()
            .insert(ticket, waiter.clone());
        if let Some(changes) = self.changed() {
            changes.waiters_added.push((name, ticket, waiter));
        }
        Ok(ticket)
    }

    fn place_of(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        asker: &str,
    ) -> Result<Option<Ticket>, Want> {
        let Some(queue) = self.queues.get(&Of(tenant, entity)) else {
            return self.missing(queue_of(tenant, entity), None);
        };
        let mut places = queue.iter();
        let place = places.find(|(_, waiter)| waiter.asker == asker);
        Ok(place.map(|(ticket, _)| *ticket))
    }

    fn has_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<bool, Want> {
        match self.queues.get(&Of(tenant, entity)) {
            Some(queue) => Ok(queue.contains_key(&ticket)),
            None => self.missing(queue_of(tenant, entity), false),
        }
    }

    fn remove_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<(), Want> {
        let name = (tenant.clone(), entity.clone());
        if let Entry::Occupied(mut queue) = self.queues.entry(name.clone()) {
            queue.get_mut().remove(&ticket);
            if queue.get().is_empty() && self.extent == Extent::Whole {
                queue.remove();
            }
        }
        if let Some(changes) = self.changed() {
            changes.waiters_removed.push((name, ticket));
        }
        Ok(())
    }

    fn is_buried(&mut self, session: SessionId) -> Result<bool, Want> {
        Ok(self.session(session)?.is_none_or(|found| found.is_dead))
    }

    fn is_lifeless(&mut self, session: SessionId) -> Result<bool, Want> {
        let found = self.session(session)?;
        Ok(found.is_none_or(|found| found.is_dead || found.alive_until < self.now))
    }

    fn lifeless_sessions(&mut self) -> Result<Vec<SessionId>, Want> {
        if !self.knows_all_sessions {
            return Err(Want::Sessions);
        }
        let mut found: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(_, session)| !session.is_dead && session.alive_until < self.now)
            .map(|(session, _)| *session)
            .collect();
        found.sort();
        Ok(found)
    }

    fn extend(&mut self, session: SessionId) -> Result<(), Want> {
        if let Some(found) = self.sessions.get_mut(&session) {
            found.alive_until = self.now.plus(found.lease);
        }
        if let Some(changes) = self.changed() {
            changes.extended.push(session);
        }
        Ok(())
    }

    fn bury(&mut self, session: SessionId) -> Result<(), Want> {
        if let Some(found) = self.sessions.get_mut(&session) {
            found.is_dead = true;
        }
        let whole = self.extent == Extent::Whole;
        self.queues.retain(|_, queue| {
            queue.retain(|_, waiter| waiter.session != session);
            !whole || !queue.is_empty()
        });
        if let Some(changes) = self.changed() {
            changes.buried.push(session);
        }
        Ok(())
    }

    fn intents_of(&mut self, session: SessionId) -> Result<Vec<KeyRecord>, Want> {
        if let Some(names) = self.intents.get(&session) {
            let keys = names.iter().filter_map(|name| self.key_now(name));
            return Ok(keys.cloned().collect());
        }
        let mut found: Vec<KeyRecord> = self
            .keys_now()
            .filter(|key| key.phase == Phase::Intent && key.session == session)
            .cloned()
            .collect();
        found.sort_by(|a, b| a.proposal.receipt_id.cmp(&b.proposal.receipt_id));
        self.missing(|| Want::Intents(session), found)
    }
}
