//! The shared store: one Postgres database for many processes, with nothing of ours to operate.
//!
//! The common cases of claim and settle are one statement per batch of concurrent calls, decided by
//! functions of the schema (`migrations/postgres/functions`); everything else is decided by `book` in
//! a transaction that locks what it reads. Every call runs in a task of its own; a caller that leaves
//! stops nothing.

mod address;
mod bells;
mod burials;
mod burned;
mod claims;
mod fast;
mod ledger;
mod lines;
mod log;
mod open;
mod pages;
mod pieces;
mod records;
mod rows;
mod sessions;
mod settlements;
mod stage;
mod text;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use operators_kernel::life::Phase;
use operators_kernel::{
    Beat, Claim, ClaimAnswer, Directive, DirectiveAnswer, DurableExec, EntityKey, Forget,
    ForgetAnswer, IdempotencyKey, Performance, Performed, Receipt, RedactionKey, Resolution,
    ResolveAnswer, SessionId, SettleAnswer, Settlement, StoreError, TenantId, Ticket,
};
use tokio::sync::oneshot;

use crate::batch::{Batcher, Limits};
use crate::book::Asker;
use address::Address;
use bells::Bells;
use burials::Death;
use burned::Burned;
use claims::ClaimItem;
use fast::Fast;
use lines::Lines;
use records::RecordItem;
use settlements::SettleItem;
use trouble::Trouble;

/// Batches of one kind under way at once. Two keep the server busy while answers travel; more make
/// smaller batches, and that costs more than it hides.
const LANES_MAX: usize = 2;

const LIMITS: Limits = Limits {
    items_max: 128,
    weight_max: 4 << 20,
    lanes_max: LANES_MAX,
};

/// Keys, turns and receipts in a Postgres database.
#[derive(Debug)]
pub struct PgStore {
    lines: Arc<Lines>,
    bells: Bells,
    burned: Burned,
    claims: Batcher<ClaimItem, Fast<ClaimAnswer>>,
    settlements: Batcher<SettleItem, Fast<SettleAnswer>>,
    records: Batcher<RecordItem, Result<(), Trouble>>,
}

impl PgStore {
    /// Connects to `postgres://user:password@host:port/database`, and makes or upgrades the schema
    /// `operators` there.
    ///
    /// Refuses a server that is a standby, that loses what it acknowledges (`fsync = off`), whose
    /// transactions begin above `read committed`, or whose schema a newer version wrote or one before
    /// the first release, and says which. TLS with a
    /// verified name is the default for another machine. `?connections=N` sets how many connections
    /// it may open (8).
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let address = Address::parse(url).map_err(|problem| StoreError::Unusable {
            store: "postgres store".to_owned(),
            problem,
        })?;
        let lines = Arc::new(Lines::new(address));
        let opening = Arc::clone(&lines);
        owned(
            &lines.address.name,
            async move { open::open(&opening).await },
        )
        .await?;
        let (for_claims, for_settlements, for_records) =
            (Arc::clone(&lines), Arc::clone(&lines), Arc::clone(&lines));
        Ok(Self {
            bells: Bells::new(),
            burned: Burned::new(),
            claims: Batcher::new(LIMITS, move |items| {
                claims::claim(Arc::clone(&for_claims), items)
            }),
            settlements: Batcher::new(LIMITS, move |items| {
                settlements::settle(Arc::clone(&for_settlements), items)
            }),
            records: Batcher::new(LIMITS, move |items| {
                records::record(Arc::clone(&for_records), items)
            }),
            lines,
        })
    }

    /// Runs `work` in a task that nobody can drop half-way.
    async fn owned<T, F>(&self, work: impl FnOnce(Arc<Lines>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Trouble>> + Send + 'static,
    {
        owned(&self.lines.address.name, work(Arc::clone(&self.lines))).await
    }

    fn sort(&self, trouble: Trouble) -> StoreError {
        trouble.into_store_error(&self.lines.address.name)
    }

    /// The answer of a batch, if its work came to its end.
    async fn heard<T>(
        &self,
        receiver: oneshot::Receiver<Result<T, Trouble>>,
    ) -> Result<T, StoreError> {
        let answer = receiver.await.unwrap_or_else(|_| Err(cut_short()));
        answer.map_err(|trouble| self.sort(trouble))
    }

    async fn claim_slowly(
        &self,
        tenant: &TenantId,
        claim: &Claim,
    ) -> Result<ClaimAnswer, StoreError> {
        let ear = self.bells.ear();
        let (tenant, claim) = (tenant.clone(), claim.clone());
        let answer = self
            .owned(|lines| async move { pages::claim(&lines, &tenant, &claim).await })
            .await?;
        if let ClaimAnswer::Wait(ticket) = answer {
            self.bells.keep(ticket, ear, &self.lines);
        }
        Ok(answer)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a statement whose future is dropped half-way would leave its connection in the middle"
)]
async fn owned<T, F>(name: &str, work: F) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Trouble>> + Send + 'static,
{
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|_| Err(cut_short()))
        .map_err(|trouble| trouble.into_store_error(name))
}

/// Of a task that was dropped before its end. Asking again finds out what it did.
fn cut_short() -> Trouble {
    Trouble::Unavailable(
        "a request ended without an answer: it panicked, or the runtime it ran in was shut down"
            .to_owned(),
    )
}

#[async_trait]
impl DurableExec for PgStore {
    async fn open_session(&self, node: &str, lease: Duration) -> Result<SessionId, StoreError> {
        let node = node.to_owned();
        self.owned(|lines| async move { sessions::open(&lines, &node, lease).await })
            .await
    }

    async fn heartbeat(&self, session: SessionId) -> Result<Beat, StoreError> {
        self.owned(|lines| async move { sessions::beat(&lines, session).await })
            .await
    }

    async fn close_session(&self, session: SessionId) -> Result<(), StoreError> {
        self.owned(|lines| async move { burials::bury(&lines, session, Death::Closed, None).await })
            .await
    }

    async fn claim(
        &self,
        tenant: &TenantId,
        claims: Vec<Claim>,
    ) -> Result<Vec<ClaimAnswer>, StoreError> {
        // Whoever has a place in the queue, or may have one, is no common case.
        let is_common = |claim: &&Claim| claim.ticket.is_none() && !claim.asked_before;
        let mut items = Vec::with_capacity(claims.len());
        for claim in claims.iter().filter(is_common) {
            let key = &claim.proposal.idempotency_key;
            let is_likely_burned = self.burned.is_likely(tenant, key);
            let item = ClaimItem::of(tenant, claim, is_likely_burned);
            let item = item.map_err(|trouble| self.sort(trouble))?;
            let weight = item.weight();
            items.push((item, weight));
        }
        let mut fast = self.claims.hand_over(items).into_iter();
        let mut answers = Vec::with_capacity(claims.len());
        for claim in &claims {
            let receiver = is_common(&claim).then(|| fast.next()).flatten();
            let found = match receiver {
                Some(receiver) => self.heard(receiver).await?,
                None => None,
            };
            let answer = match found {
                Some(answer) => answer,
                None => self.claim_slowly(tenant, claim).await?,
            };
            let key = &claim.proposal.idempotency_key;
            match &answer {
                ClaimAnswer::Duplicate { .. } => self.burned.note(tenant, key),
                ClaimAnswer::Claimed(_) => self.burned.forget(tenant, key),
                ClaimAnswer::Wait(_) | ClaimAnswer::Probe(_) | ClaimAnswer::Refused { .. } => {}
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    async fn settle(
        &self,
        tenant: &TenantId,
        settlements: Vec<Settlement>,
    ) -> Result<Vec<SettleAnswer>, StoreError> {
        let mut items = Vec::with_capacity(settlements.len());
        let mut are_common = Vec::with_capacity(settlements.len());
        for settlement in &settlements {
            let item = SettleItem::of(tenant, settlement).map_err(|trouble| self.sort(trouble))?;
            are_common.push(item.is_some());
            items.extend(item.map(|item| {
                let weight = item.weight();
                (item, weight)
            }));
        }
        let mut fast = self.settlements.hand_over(items).into_iter();
        let mut answers = Vec::with_capacity(settlements.len());
        for (is_common, settlement) in are_common.into_iter().zip(settlements) {
            let name = settlement.proposal.idempotency_key.clone();
            let receiver = is_common.then(|| fast.next()).flatten();
            let found = match receiver {
                Some(receiver) => self.heard(receiver).await?,
                None => None,
            };
            let answer = if let Some(answer) = found {
                answer
            } else {
                let tenant = tenant.clone();
                self.owned(|lines| async move { pages::settle(&lines, &tenant, &settlement).await })
                    .await?
            };
            if answer.phase == Phase::Applied {
                self.burned.note(tenant, &name);
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    fn performs(&self) -> bool {
        true
    }

    async fn perform(
        &self,
        tenant: &TenantId,
        performance: Performance,
    ) -> Result<Performed, StoreError> {
        let tenant = tenant.clone();
        self.owned(|lines| async move { stage::perform(&lines, &tenant, &performance).await })
            .await
    }

    async fn record(&self, _tenant: &TenantId, receipts: Vec<Receipt>) -> Result<(), StoreError> {
        let mut items = Vec::with_capacity(receipts.len());
        for receipt in receipts {
            let item = RecordItem::of(receipt).map_err(|trouble| self.sort(trouble))?;
            let weight = item.weight();
            items.push((item, weight));
        }
        for receiver in self.records.hand_over(items) {
            self.heard(receiver).await?;
        }
        Ok(())
    }

    async fn pass(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        session: SessionId,
        asker: &str,
        ticket: Option<Ticket>,
    ) -> Result<Option<Ticket>, StoreError> {
        let ear = self.bells.ear();
        let (tenant, entity, name) = (tenant.clone(), entity.clone(), asker.to_owned());
        let passed = self
            .owned(|lines| async move {
                let asker = Asker {
                    session,
                    name: &name,
                    place: ticket,
                };
                sessions::pass(&lines, &tenant, &entity, asker).await
            })
            .await?;
        if let Some(ticket) = passed {
            self.bells.keep(ticket, ear, &self.lines);
        }
        Ok(passed)
    }

    async fn wait(&self, _tenant: &TenantId, _entity: &EntityKey, ticket: Ticket, asked: u32) {
        self.bells.wait(ticket, asked).await;
    }

    async fn leave(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<(), StoreError> {
        self.bells.forget(ticket);
        let (tenant, entity) = (tenant.clone(), entity.clone());
        self.owned(|lines| async move { sessions::leave(&lines, &tenant, &entity, ticket).await })
            .await
    }

    async fn declare_owner_dead(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<bool, StoreError> {
        let (tenant, key) = (tenant.clone(), key.clone());
        self.owned(|lines| async move { burials::declare_owner_dead(&lines, &tenant, &key).await })
            .await
    }

    async fn resolve(
        &self,
        tenant: &TenantId,
        resolution: Resolution,
    ) -> Result<ResolveAnswer, StoreError> {
        let tenant = tenant.clone();
        self.owned(|lines| async move { pages::resolve(&lines, &tenant, &resolution).await })
            .await
    }

    async fn forget(&self, tenant: &TenantId, forget: Forget) -> Result<ForgetAnswer, StoreError> {
        let tenant = tenant.clone();
        self.owned(|lines| async move { pages::forget(&lines, &tenant, &forget).await })
            .await
    }

    async fn direct(
        &self,
        tenant: &TenantId,
        directive: Directive,
    ) -> Result<DirectiveAnswer, StoreError> {
        let tenant = tenant.clone();
        self.owned(|lines| async move { pages::direct(&lines, &tenant, &directive).await })
            .await
    }

    async fn redaction_key(&self, tenant: &TenantId) -> Result<RedactionKey, StoreError> {
        let fresh =
            crate::random_key().map_err(|problem| self.sort(Trouble::Unavailable(problem)))?;
        let tenant = tenant.clone();
        self.owned(|lines| async move { sessions::redaction_key(&lines, &tenant, &fresh).await })
            .await
    }
}
