//! The store for those who have AWS already: one `DynamoDB` table, nothing else to run.
//!
//! Everything is a conditional write on the versions it was decided on (`sheet`); `book` and the
//! kernel's `life` decide. Time is what a process has watched itself (`observer`), receipts are
//! ordered without a lock that all wait for (`trail`, `pages`). Every call that writes runs in a task
//! of its own, so a caller who leaves stops nothing half-way.

mod acked;
mod audit;
mod burial;
mod connect;
mod entity_item;
mod fields;
mod in_flight;
mod item;
mod keep;
mod key_item;
mod ledger;
mod log;
mod notes;
mod observer;
mod pages;
mod permissions;
mod pieces;
mod place;
mod request;
mod retention;
mod session;
mod sheet;
mod standstill;
mod sweep;
mod table;
mod trail;
mod trouble;
mod turns;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use operators_kernel::{
    Beat, Claim, ClaimAnswer, Directive, DirectiveAnswer, DurableExec, EntityKey, Forget,
    ForgetAnswer, IdempotencyKey, Receipt, RedactionKey, Resolution, ResolveAnswer, SessionId,
    SettleAnswer, Settlement, Standstills, StoreError, StoreTime, TenantId, Ticket,
};
use tokio::task::JoinSet;

use crate::book::Asker;
use notes::Unpaused;
use request::Table;
use trail::Trail;
use trouble::chance;
use turns::Turns;

/// The pauses between two looks at a queue: each look is a request that costs money, and a turn
/// lasts about as long as a vendor takes to answer.
const WAIT_FIRST: Duration = Duration::from_millis(10);
const WAIT_MAX: Duration = Duration::from_millis(200);

/// Keys, turns and receipts in one `DynamoDB` table.
///
/// Clones share what they have seen, as one process; a process of its own connects for itself.
#[derive(Debug, Clone)]
pub struct DynamoStore {
    shared: Arc<Shared>,
}

/// What all calls of one process share.
#[derive(Debug)]
struct Shared {
    table: Table,
    trail: Trail,
    turns: Turns,
    unpaused: Unpaused,
    /// Whether an answer was ever lost, so that there may be intents this process does not know of.
    lost: AtomicBool,
    /// How many claims are under way.
    claims: AtomicUsize,
    /// Whether the table still says that it has an earlier layout.
    is_older: AtomicBool,
}

impl Shared {
    fn lost_an_answer(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Counts a claim that is under way, however it ends.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl DynamoStore {
    /// Runs a call in a task of its own.
    async fn owned<T, F>(&self, work: impl FnOnce(Arc<Shared>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        self.shared.table.check_ruin()?;
        let work = work(Arc::clone(&self.shared));
        #[expect(
            clippy::disallowed_methods,
            reason = "a caller who leaves must not stop a request half-way"
        )]
        let task = tokio::spawn(work);
        let done = task.await.unwrap_or_else(|error| {
            let problem = format!("a call of it ended early: {error}");
            Err(self.shared.table.unavailable(problem))
        });
        if let Err(StoreError::Unavailable { .. }) = &done {
            self.shared.lost.store(true, Ordering::Relaxed);
        }
        done
    }

    /// Runs many at once, those on one entity one after the other, and answers in their order.
    async fn each<Q, T, F>(
        &self,
        asked: Vec<(EntityKey, Q)>,
        work: impl Fn(Arc<Shared>, Q, StoreTime) -> F + Clone + Send + 'static,
    ) -> Result<Vec<T>, StoreError>
    where
        Q: Send + 'static,
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let begun = self.shared.table.observer.now();
        let mut groups: Vec<(EntityKey, Vec<(StoreTime, Q)>)> = Vec::new();
        for (index, (entity, one)) in (0..).zip(asked) {
            // Apart by their order, which is also the order of their receipts.
            let asked = begun.plus(Duration::from_micros(index));
            match groups.iter_mut().find(|(known, _)| *known == entity) {
                Some((_, group)) => group.push((asked, one)),
                None => groups.push((entity, vec![(asked, one)])),
            }
        }
        self.owned(move |shared| async move {
            let mut tasks = JoinSet::new();
            for (_, group) in groups {
                let (shared, work) = (Arc::clone(&shared), work.clone());
                tasks.spawn(async move {
                    let mut answers = Vec::with_capacity(group.len());
                    for (asked, one) in group {
                        answers.push((asked, work(Arc::clone(&shared), one, asked).await));
                    }
                    answers
                });
            }
            let mut answers = Vec::new();
            // All of them to their end, even if one fails.
            while let Some(done) = tasks.join_next().await {
                answers.extend(done.map_err(|error| shared.table.unavailable(error.to_string()))?);
            }
            answers.sort_by_key(|(asked, _)| *asked);
            answers.into_iter().map(|(_, answer)| answer).collect()
        })
        .await
    }
}

#[async_trait]
impl DurableExec for DynamoStore {
    async fn open_session(&self, node: &str, lease: Duration) -> Result<SessionId, StoreError> {
        let node = node.to_owned();
        self.owned(move |shared| async move { shared.open_session(&node, lease).await })
            .await
    }

    async fn heartbeat(&self, session: SessionId) -> Result<Beat, StoreError> {
        self.owned(move |shared| async move { shared.heartbeat(session).await })
            .await
    }

    async fn close_session(&self, session: SessionId) -> Result<(), StoreError> {
        self.owned(move |shared| async move { shared.close_session(session).await })
            .await
    }

    async fn claim(
        &self,
        tenant: &TenantId,
        claims: Vec<Claim>,
    ) -> Result<Vec<ClaimAnswer>, StoreError> {
        let tenant = tenant.clone();
        let claims = claims.into_iter();
        let claims = claims.map(|claim| (claim.proposal.entity_key.clone(), claim));
        self.each(claims.collect(), move |shared, claim, asked| {
            let tenant = tenant.clone();
            async move {
                let counted = Counted::new(&shared.claims);
                let answer = Box::pin(shared.claim(&tenant, claim.clone(), asked)).await?;
                drop(counted);
                let answer = shared.hand_out(&tenant, &claim, answer).await?;
                // Another claim may have found out meanwhile.
                shared.table.check_ruin()?;
                Ok(answer)
            }
        })
        .await
    }

    async fn settle(
        &self,
        tenant: &TenantId,
        settlements: Vec<Settlement>,
    ) -> Result<Vec<SettleAnswer>, StoreError> {
        let tenant = tenant.clone();
        let settlements = settlements.into_iter();
        let settlements = settlements.map(|one| (one.proposal.entity_key.clone(), one));
        self.each(settlements.collect(), move |shared, settlement, asked| {
            let tenant = tenant.clone();
            async move { Box::pin(shared.settle(&tenant, settlement, asked)).await }
        })
        .await
    }

    async fn record(&self, tenant: &TenantId, receipts: Vec<Receipt>) -> Result<(), StoreError> {
        let tenant = tenant.clone();
        self.owned(move |shared| async move {
            let trail = &shared.trail;
            trail.append(&shared.table, &tenant, receipts).await
        })
        .await
    }

    async fn pass(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        session: SessionId,
        asker: &str,
        ticket: Option<Ticket>,
    ) -> Result<Option<Ticket>, StoreError> {
        let (tenant, entity, name) = (tenant.clone(), entity.clone(), asker.to_owned());
        self.owned(move |shared| async move {
            let asker = Asker {
                session,
                name: &name,
                place: ticket,
            };
            shared.pass(&tenant, &entity, asker).await
        })
        .await
    }

    async fn wait(&self, _tenant: &TenantId, _entity: &EntityKey, _ticket: Ticket, asked: u32) {
        let pause = WAIT_FIRST.saturating_mul(1 << asked.min(5)).min(WAIT_MAX);
        let spread = pause / 512 * u32::from(chance());
        tokio::time::sleep(pause / 2 + spread).await;
    }

    async fn leave(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<(), StoreError> {
        let (tenant, entity) = (tenant.clone(), entity.clone());
        self.owned(move |shared| async move { shared.leave(&tenant, &entity, ticket).await })
            .await
    }

    async fn declare_owner_dead(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<bool, StoreError> {
        let (tenant, key) = (tenant.clone(), key.clone());
        self.owned(move |shared| async move { shared.declare_owner_dead(&tenant, &key).await })
            .await
    }

    async fn resolve(
        &self,
        tenant: &TenantId,
        resolution: Resolution,
    ) -> Result<ResolveAnswer, StoreError> {
        let tenant = tenant.clone();
        self.owned(move |shared| async move { shared.resolve(&tenant, resolution).await })
            .await
    }

    async fn forget(&self, tenant: &TenantId, forget: Forget) -> Result<ForgetAnswer, StoreError> {
        let tenant = tenant.clone();
        self.owned(move |shared| async move { shared.forget(&tenant, forget).await })
            .await
    }

    async fn direct(
        &self,
        tenant: &TenantId,
        directive: Directive,
    ) -> Result<DirectiveAnswer, StoreError> {
        let tenant = tenant.clone();
        self.owned(move |shared| async move { shared.direct(&tenant, directive).await })
            .await
    }

    fn standstills(&self) -> Option<Arc<dyn Standstills>> {
        Some(Arc::new(self.shared.table.clone()))
    }

    async fn redaction_key(&self, tenant: &TenantId) -> Result<RedactionKey, StoreError> {
        let tenant = tenant.clone();
        self.owned(move |shared| async move { shared.redaction_key(&tenant).await })
            .await
    }
}
