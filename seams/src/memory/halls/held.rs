//! The halls that one decision holds, as the records that `book` decides on.

use operators_kernel::life::{EntityRecord, KeyRecord, Note, NoteName};
use operators_kernel::{
    Claim, ClaimAnswer, EntityKey, IdempotencyKey, Receipt, SessionId, Shared, Slip, StoreTime,
    TenantId, Ticket, Timestamp,
};

use super::{Grip, Held, Lack};
use crate::book::{Book, Change, Waiter};
use crate::memory::trail::{Paper, Torn};
use crate::page::Want;

impl Book for Held<'_> {
    type Error = Lack;

    fn now(&self) -> StoreTime {
        self.now
    }

    fn stamp(&self) -> Timestamp {
        match &self.grip {
            Grip::Two(_, hall, _) => hall.page.stamp(),
            Grip::All(all) => all.first().map_or_else(
                || Timestamp::from_micros(self.now.0),
                |hall| hall.page.stamp(),
            ),
        }
    }

    fn key(
        &mut self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<Shared<KeyRecord>>, Lack> {
        Ok(self.hall(key.as_str())?.key(tenant, key)?)
    }

    fn duplicate(
        &mut self,
        tenant: &TenantId,
        claim: &Claim,
    ) -> Result<Option<(Slip, ClaimAnswer)>, Lack> {
        let hall = self.hall(claim.proposal.idempotency_key.as_str())?;
        Ok(hall.duplicate(tenant, claim)?)
    }

    fn put_key(&mut self, record: Shared<KeyRecord>, change: Change) -> Result<(), Lack> {
        let hall = self.hall(record.proposal.idempotency_key.as_str())?;
        hall.put_key(record, change)?;
        self.wrote = true;
        Ok(())
    }

    fn entity(&mut self, tenant: &TenantId, entity: &EntityKey) -> Result<EntityRecord, Lack> {
        Ok(self.hall(entity.as_str())?.entity(tenant, entity)?)
    }

    fn put_entity(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        record: &EntityRecord,
    ) -> Result<(), Lack> {
        let hall = self.hall(entity.as_str())?;
        hall.put_entity(tenant, entity, record)?;
        self.wrote = true;
        Ok(())
    }

    fn append(&mut self, receipt: Slip) -> Result<(), Lack> {
        self.wrote = true;
        let folded = match &receipt {
            Slip::Applied { proposal, .. } => {
                let hall = self.hall(proposal.idempotency_key.as_str())?;
                hall.fold(&receipt)
            }
            Slip::Duplicate { .. } | Slip::Written(_) => None,
        };
        let trail = self.trail;
        match folded {
            Some(folded) => trail.keep(receipt.tenant_id(), Paper::Folded(folded)),
            None => trail.keep_slip(receipt),
        }
        Ok(())
    }

    fn receipt(&mut self, _tenant: &TenantId, receipt_id: &str) -> Result<Option<Receipt>, Lack> {
        let found = self.trail.find(receipt_id);
        let unreadable = |Torn| Lack::Record(Want::Receipt(receipt_id.to_owned()));
        found.map_err(unreadable)
    }

    fn note(&mut self, tenant: &TenantId, name: &NoteName) -> Result<Option<String>, Lack> {
        match &mut self.grip {
            Grip::Two(_, hall, _) if !hall.has_pauses && name == NoteName::paused() => Ok(None),
            Grip::Two(..) => Err(Lack::Hall),
            Grip::All(_) => Ok(self.any()?.note(tenant, name)?),
        }
    }

    fn put_note(&mut self, tenant: &TenantId, note: Note) -> Result<(), Lack> {
        let is_pause = note.name == *NoteName::paused();
        // Not before all are held: notes are in the first.
        let first = self.all()?.next().ok_or(Lack::Hall)?;
        first.page.put_note(tenant, note)?;
        if is_pause {
            let mut notes = first.page.notes_now();
            let has_pauses = notes.any(|(_, name, _)| name == NoteName::paused());
            drop(notes);
            for hall in self.all()? {
                hall.has_pauses = has_pauses;
            }
        }
        self.wrote = true;
        Ok(())
    }

    fn first_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
    ) -> Result<Option<(Ticket, Waiter)>, Lack> {
        Ok(self.hall(entity.as_str())?.first_waiter(tenant, entity)?)
    }

    fn add_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        waiter: Waiter,
    ) -> Result<Ticket, Lack> {
        let hall = self.hall(entity.as_str())?;
        let ticket = hall.add_waiter(tenant, entity, waiter)?;
        self.wrote = true;
        Ok(ticket)
    }

    fn place_of(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        asker: &str,
    ) -> Result<Option<Ticket>, Lack> {
        let hall = self.hall(entity.as_str())?;
        Ok(hall.place_of(tenant, entity, asker)?)
    }

    fn has_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<bool, Lack> {
        let hall = self.hall(entity.as_str())?;
        Ok(hall.has_waiter(tenant, entity, ticket)?)
    }

    fn remove_waiter(
        &mut self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<(), Lack> {
        let hall = self.hall(entity.as_str())?;
        hall.remove_waiter(tenant, entity, ticket)?;
        self.wrote = true;
        Ok(())
    }

    fn is_buried(&mut self, session: SessionId) -> Result<bool, Lack> {
        Ok(self.any()?.is_buried(session)?)
    }

    fn is_lifeless(&mut self, session: SessionId) -> Result<bool, Lack> {
        Ok(self.any_now()?.is_lifeless(session)?)
    }

    fn lifeless_sessions(&mut self) -> Result<Vec<SessionId>, Lack> {
        Ok(self.any_now()?.lifeless_sessions()?)
    }

    fn extend(&mut self, session: SessionId) -> Result<(), Lack> {
        let now = self.now;
        for hall in self.all()? {
            hall.page.now = now;
            hall.page.extend(session)?;
        }
        self.wrote = true;
        Ok(())
    }

    fn bury(&mut self, session: SessionId) -> Result<(), Lack> {
        for hall in self.all()? {
            hall.page.bury(session)?;
        }
        self.wrote = true;
        Ok(())
    }

    fn intents_of(&mut self, session: SessionId) -> Result<Vec<KeyRecord>, Lack> {
        let mut found = Vec::new();
        for hall in self.all()? {
            found.extend(hall.page.intents_of(session)?);
        }
        found.sort_by(|a, b| a.proposal.receipt_id.cmp(&b.proposal.receipt_id));
        Ok(found)
    }
}
