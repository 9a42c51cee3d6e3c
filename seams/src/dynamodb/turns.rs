//! The calls on keys and entities: each decides on a sheet until its write holds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use operators_kernel::{
    Claim, ClaimAnswer, Clearance, EntityKey, Forget, ForgetAnswer, IdempotencyKey, RedactionKey,
    Resolution, ResolveAnswer, SettleAnswer, Settlement, StoreError, StoreTime, TenantId, Ticket,
};
use tokio::sync::OwnedMutexGuard;

use super::Shared;
use super::fields::Fields;
use super::item::{Address, PK};
use super::sheet::{Kept, Sheet};
use super::trouble::Pauses;
use crate::book::{self, Asker, Book};
use crate::page::Page;
use crate::page::Want;

/// Calls of this process on one entity go one after the other: they would only refuse each other.
#[derive(Debug, Default)]
pub(super) struct Turns {
    // A std lock around look-ups, never over an await; the inner ones are held over a call.
    entities: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// One call's turn on an entity.
struct Turn<'a> {
    turns: &'a Turns,
    pk: String,
    // Given back before the entity is forgotten.
    held: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    async fn take(&self, tenant: &TenantId, entity: &EntityKey) -> Turn<'_> {
        self.take_at(Address::entity(tenant, entity).pk).await
    }

    /// Turns at the limits of a proposal, always in one order, after the one on its entity.
    async fn take_limits(&self, tenant: &TenantId, limits: &[String]) -> Vec<Turn<'_>> {
        let mut limits: Vec<&String> = limits.iter().collect();
        limits.sort();
        limits.dedup();
        let mut turns = Vec::with_capacity(limits.len());
        for limit in limits {
            let pk = Address::of("limit", &[tenant.as_str(), limit]).pk;
            turns.push(self.take_at(pk).await);
        }
        turns
    }

    async fn take_at(&self, pk: String) -> Turn<'_> {
        let turn = {
            let mut entities = self.entities.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(entities.entry(pk.clone()).or_default())
        };
        Turn {
            turns: self,
            pk,
            held: Some(turn.lock_owned().await),
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        drop(self.held.take());
        let entities = self.turns.entities.lock();
        let mut entities = entities.unwrap_or_else(PoisonError::into_inner);
        // One count is the map's: nobody else waits.
        if entities
            .get(&self.pk)
            .is_some_and(|turn| Arc::strong_count(turn) == 1)
        {
            entities.remove(&self.pk);
        }
    }
}

impl Shared {
    pub(super) async fn claim(
        &self,
        tenant: &TenantId,
        mut claim: Claim,
        asked: StoreTime,
    ) -> Result<ClaimAnswer, StoreError> {
        let (entity, key) = (
            claim.proposal.entity_key.clone(),
            claim.proposal.idempotency_key.clone(),
        );
        let _turn = self.turns.take(tenant, &entity).await;
        let limits = &claim.proposal.limits;
        let _limits = self.turns.take_limits(tenant, limits).await;
        let mut sheet = Sheet::of_key(tenant, &entity, &key);
        sheet.is_unheard = claim.asked_before;
        let believed = self
            .table
            .observer
            .entity(&Address::entity(tenant, &entity).pk);
        let is_hopeful =
            claim.ticket.is_none() && !claim.asked_before && claim.clearance == Clearance::Cleared;
        match believed {
            Some(entity) if is_hopeful && entity.is_free() => sheet.entity = entity,
            None if is_hopeful => {}
            _ => self.look(&mut sheet).await?,
        }
        let name = claim.proposal.receipt_id.clone();
        let mut tries = Tries::new(self);
        loop {
            // A write of this very call may have taken a place before its answer was lost.
            claim.ticket = claim.ticket.or_else(|| sheet.ticket_of(&name));
            let work = |page: &mut Page| book::claim(page, tenant, &claim);
            let (page, answer) = self.decide(&mut sheet, work).await?;
            match self.keep(&mut sheet, page, asked).await? {
                Kept::Done => return Ok(answer),
                Kept::Again => tries.again(self).await?,
            }
        }
    }

    pub(super) async fn settle(
        &self,
        tenant: &TenantId,
        settlement: Settlement,
        asked: StoreTime,
    ) -> Result<SettleAnswer, StoreError> {
        let proposal = &settlement.proposal;
        let _turn = self.turns.take(tenant, &proposal.entity_key).await;
        let mut sheet = Sheet::of_key(tenant, &proposal.entity_key, &proposal.idempotency_key);
        let observer = &self.table.observer;
        let entity = observer.entity(&Address::entity(tenant, &proposal.entity_key).pk);
        match (observer.intent(&proposal.receipt_id), entity) {
            (Some(key), Some(entity)) => {
                sheet.key = Some(key);
                sheet.entity = entity;
            }
            _ => self.look(&mut sheet).await?,
        }
        let work = |page: &mut Page| book::settle(page, tenant, &settlement);
        self.change(&mut sheet, asked, work).await
    }

    /// Decides about a key until it is durable.
    async fn change<T>(
        &self,
        sheet: &mut Sheet,
        asked: StoreTime,
        work: impl Fn(&mut Page) -> Result<T, book::BookError<Want>>,
    ) -> Result<T, StoreError> {
        let mut tries = Tries::new(self);
        loop {
            self.follow(sheet).await?;
            let (page, answer) = self.decide(sheet, &work).await?;
            match self.keep(sheet, page, asked).await? {
                Kept::Done => return Ok(answer),
                Kept::Again => tries.again(self).await?,
            }
        }
    }

    /// The sheet of a key, whatever its entity; nothing if nobody claimed it.
    pub(super) async fn sheet_of(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<Sheet>, StoreError> {
        let found = self.table.get(&Address::key(tenant, key)).await?;
        let Some(found) = self.read_key(found.as_ref())? else {
            return Ok(None);
        };
        let mut sheet = Sheet::of_key(tenant, found.entity_key(), key);
        self.look(&mut sheet).await?;
        Ok(Some(sheet))
    }

    pub(super) async fn resolve(
        &self,
        tenant: &TenantId,
        resolution: Resolution,
    ) -> Result<ResolveAnswer, StoreError> {
        let asked = self.table.observer.now();
        let Some(mut sheet) = self.sheet_of(tenant, &resolution.key).await? else {
            return Ok(ResolveAnswer::NotInDoubt(None));
        };
        let work = |page: &mut Page| book::resolve(page, tenant, &resolution);
        self.change(&mut sheet, asked, work).await
    }

    pub(super) async fn forget(
        &self,
        tenant: &TenantId,
        wish: Forget,
    ) -> Result<ForgetAnswer, StoreError> {
        let asked = self.table.observer.now();
        let Some(mut sheet) = self.sheet_of(tenant, &wish.key).await? else {
            return Ok(ForgetAnswer::NotBurned(None));
        };
        let work = |page: &mut Page| book::forget(page, tenant, &wish);
        self.change(&mut sheet, asked, work).await
    }

    pub(super) async fn pass(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        asker: Asker<'_>,
    ) -> Result<Option<Ticket>, StoreError> {
        self.queue(tenant, entity, |page| {
            book::pass(page, tenant, entity, asker)
        })
        .await
    }

    pub(super) async fn leave(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<(), StoreError> {
        self.queue(tenant, entity, |page| {
            Ok(page.remove_waiter(tenant, entity, ticket)?)
        })
        .await
    }

    /// Decides about an entity's queue until it is durable.
    async fn queue<T>(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        work: impl Fn(&mut Page) -> Result<T, book::BookError<Want>>,
    ) -> Result<T, StoreError> {
        let _turn = self.turns.take(tenant, entity).await;
        let asked = self.table.observer.now();
        let mut sheet = Sheet::of_entity(tenant, entity);
        self.look(&mut sheet).await?;
        let mut tries = Tries::new(self);
        loop {
            let (page, answer) = self.decide(&mut sheet, &work).await?;
            match self.keep(&mut sheet, page, asked).await? {
                Kept::Done => return Ok(answer),
                Kept::Again => tries.again(self).await?,
            }
        }
    }

    /// The tenant's key: the one there, or a fresh one from now on.
    pub(super) async fn redaction_key(
        &self,
        tenant: &TenantId,
    ) -> Result<RedactionKey, StoreError> {
        let address = Address::of("tenant", &[tenant.as_str()]);
        if let Some(found) = self.table.get(&address).await? {
            return self.read_redaction_key(&found);
        }
        let fresh = crate::random_key().map_err(|problem| self.table.unavailable(problem))?;
        let mut item = address.item();
        let bytes = Blob::new(fresh.as_bytes().to_vec());
        item.insert("redaction_key".to_owned(), AttributeValue::B(bytes));
        let put = self.table.send(|| {
            let request = self
                .table
                .client
                .put_item()
                .table_name(&self.table.name)
                .set_item(Some(item.clone()))
                .condition_expression(format!("attribute_not_exists({PK})"))
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                );
            async move {
                match request.send().await {
                    Ok(_) => Ok(None),
                    Err(error) => match error.as_service_error() {
                        Some(service) if service.is_conditional_check_failed_exception() => {
                            Ok(Some(()))
                        }
                        _ => Err(error),
                    },
                }
            }
        });
        if put.await?.is_none() {
            return Ok(fresh);
        }
        // Somebody else was faster, or a lost answer was ours: the one there counts.
        let found = self.table.get(&address).await?.unwrap_or_default();
        self.read_redaction_key(&found)
    }

    fn read_redaction_key(&self, item: &super::item::Item) -> Result<RedactionKey, StoreError> {
        let bytes = Fields::of(item, "a tenant").bytes("redaction_key");
        let bytes = bytes.map_err(|problem| self.table.unusable(problem))?;
        let bytes: [u8; 32] = bytes
            .try_into()
            .map_err(|_| self.table.unusable("a tenant's key is not 32 bytes long"))?;
        Ok(RedactionKey::new(bytes))
    }
}

/// How often a decision was made on records that were no longer so. The first time costs nothing:
/// it was made on belief.
struct Tries {
    refused: u32,
    pauses: Pauses,
}

impl Tries {
    fn new(shared: &Shared) -> Self {
        Self {
            refused: 0,
            pauses: Pauses::new(&shared.table.observer),
        }
    }

    async fn again(&mut self, shared: &Shared) -> Result<(), StoreError> {
        self.refused += 1;
        if self.refused > 2 && !self.pauses.pause(&shared.table.observer).await {
            return Err(shared
                .table
                .unavailable("too many others change the same records"));
        }
        Ok(())
    }
}
