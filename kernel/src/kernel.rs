//! What all gates share, and how store calls ride out a store that fails for a while.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use hashbrown::DefaultHashBuilder;

use crate::clock::IdKind;
use crate::durable::{
    Claim, ClaimAnswer, DurableExec, SettleAnswer, SettledOutcome, Settlement, StoreError, Ticket,
};
use crate::error::ExecError;
use crate::key::{EntityKey, TenantId};
use crate::lease::Lease;
use crate::receipt::{Proposal, Receipt};
use crate::redact::RedactionKey;
use crate::reply::Reply;
use crate::setup::{Seams, Settings};
use crate::single_flight::{Flights, Seat};
use crate::within::within;
use crate::work::{Performance, Performed};

/// The pauses between tries of a store that fails, and the longest of them.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How often a store may say that it cannot be used before what it may still hold of ours is left to
/// the end of the session: some ten minutes, in which credentials are renewed and disks made room on.
pub(crate) const UNUSABLE_MAX: u32 = 1_000;

/// What all gates share.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) seams: Seams,
    pub(crate) settings: Settings,
    pub(crate) flights: Flights,
    pub(crate) lease: Arc<Lease>,
    // One lookup per tenant, then from memory: the key never changes.
    pub(crate) redaction_keys: DashMap<TenantId, RedactionKey, DefaultHashBuilder>,
}

impl AsRef<Flights> for Kernel {
    fn as_ref(&self) -> &Flights {
        &self.flights
    }
}

impl Kernel {
    pub(crate) async fn redaction_key(&self, tenant: &TenantId) -> Result<RedactionKey, ExecError> {
        if let Some(key) = self.redaction_keys.get(tenant).map(|key| key.clone()) {
            return Ok(key);
        }
        let mut patience = self.patience();
        let key = loop {
            // Dropped half-way it may have been made, which is as good as done.
            match self.in_time(self.seams.durable.redaction_key(tenant)).await {
                Ok(key) => break key,
                Err(error) if error.is_retryable() && !patience.pause().await.is_over() => {}
                Err(error) => return Err(error.into()),
            }
        };
        self.redaction_keys.insert(tenant.clone(), key.clone());
        Ok(key)
    }

    /// Awaits a store call that may be dropped half-way, no longer than anybody should wait.
    pub(crate) async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        in_time(&*self.seams.durable, self.settings.store_patience, call).await
    }

    /// Claims, riding out a store that fails for a while and a session that was lost. The same
    /// `receipt_id` every time: a claim that did land is found, not made again.
    ///
    /// `tell` is told when the store says nothing for longer than anybody should wait.
    pub(crate) async fn claim(
        &self,
        claim: &mut Claim,
        tell: impl FnOnce(StoreError),
    ) -> Result<ClaimAnswer, ExecError> {
        let tenant = claim.proposal.tenant_id.clone();
        let mut patience = self.patience();
        let mut tell = Some(tell);
        loop {
            let asked = self.seams.durable.claim(&tenant, vec![claim.clone()]);
            let error = match self.to_its_end(asked, &mut tell).await {
                Ok(mut answers) => {
                    claim.asked_before = false;
                    return answers.pop().ok_or_else(|| {
                        ExecError::Invariant("the store answered no claim".to_owned())
                    });
                }
                Err(error) => error,
            };
            if let StoreError::SessionDead { session, .. } = error {
                if std::mem::take(&mut claim.asked_before) {
                    Box::pin(self.disown(claim)).await;
                }
                claim.session = self.in_time(Box::pin(self.lease.replace(session))).await?;
                claim.ticket = None;
                // Had the claim landed under the dead session, its receipt is written already and
                // tells of a doubt; what happens from here on is told in one of its own.
                claim.proposal.receipt_id = self.seams.clock.id(IdKind::Receipt);
            } else if error.is_retryable() {
                claim.asked_before = true;
                if patience.pause().await.is_over() {
                    return Err(error.into());
                }
            } else {
                // This one did not land; `asked_before` tells whether one before it may have.
                return Err(error.into());
            }
        }
    }

    /// Ends the doubt that the death of a session made of a claim whose answer never came: nothing
    /// was sent for it, and nobody else can know that.
    pub(crate) async fn disown(&self, claim: &Claim) {
        let (durable, proposal) = (&self.seams.durable, &claim.proposal);
        let (tenant, key) = (&proposal.tenant_id, &proposal.idempotency_key);
        let ended = async {
            let Some(record) = durable.key(tenant, key).await? else {
                return Ok(());
            };
            if record.proposal.receipt_id != proposal.receipt_id {
                return Ok(());
            }
            let settlement = Settlement {
                session: record.session,
                mark: record.mark(),
                proposal: record.proposal,
                outcome: SettledOutcome::NotApplied {
                    error: "nothing was sent: the session was lost before".to_owned(),
                },
                result_digest: None,
                at: self.seams.clock.now(),
            };
            durable.settle(tenant, vec![settlement]).await.map(drop)
        };
        if let Err(error) = self.in_time(ended).await {
            tracing::warn!(%key, %error, "a claim that was never used stays a doubt");
        }
    }

    /// Awaits a store call to its end, for dropped half-way it may be done or not; but tells once
    /// when it says nothing for longer than anybody should wait.
    pub(crate) async fn to_its_end<T>(
        &self,
        call: impl Future<Output = T>,
        tell: &mut Option<impl FnOnce(StoreError)>,
    ) -> T {
        let patience = self.settings.store_patience;
        let mut call = pin!(call);
        if let Ok(answer) = within(patience, &mut call).await {
            return answer;
        }
        if let Some(tell) = tell.take() {
            tell(silent(&*self.seams.durable, patience));
        }
        call.await
    }

    /// Settles until it is done, whatever the store says meanwhile: nobody else knows how the attempt
    /// ended. Tells the caller when that takes longer than anybody should wait, or a person has to
    /// look at the store; those behind need not wait for it either, the store keeps the order.
    pub(crate) async fn settle(
        &self,
        settlement: &Settlement,
        reply: &mut Reply,
        seat: &mut Seat,
    ) -> Result<SettleAnswer, ExecError> {
        let outcome = match settlement.outcome {
            SettledOutcome::Applied(_) => "applied",
            SettledOutcome::NotApplied { .. } => "not applied",
            SettledOutcome::Unknown { .. } => "outcome unknown",
        };
        let settled = || async {
            let tenant = &settlement.proposal.tenant_id;
            let asked = self.seams.durable.settle(tenant, vec![settlement.clone()]);
            Ok(asked.await?.pop())
        };
        let answer = self
            .until_recorded(&settlement.proposal, outcome, settled, reply, seat)
            .await;
        answer.ok_or_else(|| ExecError::Invariant("the store answered no settlement".to_owned()))
    }

    /// Has the store bring an effect about, asked until it is done: what it did before it does not
    /// do again.
    pub(crate) async fn perform(
        &self,
        performance: &Performance,
        reply: &mut Reply,
        seat: &mut Seat,
    ) -> Performed {
        let (proposal, outcome) = (&performance.proposal, "outcome unknown");
        let tenant = &proposal.tenant_id;
        let performed = || self.seams.durable.perform(tenant, performance.clone());
        self.until_recorded(proposal, outcome, performed, reply, seat)
            .await
    }

    async fn until_recorded<T, F>(
        &self,
        proposal: &Proposal,
        outcome: &'static str,
        ask: impl Fn() -> F,
        reply: &mut Reply,
        seat: &mut Seat,
    ) -> T
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let key = &proposal.idempotency_key;
        let not_recorded = |source| ExecError::NotRecorded {
            key: key.clone(),
            outcome,
            source,
        };
        let mut patience = self.patience();
        loop {
            let mut tell = Some(|error| reply.answer(Err(not_recorded(error))));
            let error = match self.to_its_end(ask(), &mut tell).await {
                Ok(answer) => return answer,
                Err(error) => error,
            };
            tracing::warn!(%key, %error, "the outcome is not recorded yet; trying again");
            if !error.is_retryable() {
                reply.answer(Err(not_recorded(error)));
                seat.give_up(&self.flights);
                patience.pause().await;
            } else if patience.pause().await.is_over() {
                reply.answer(Err(not_recorded(error)));
            }
        }
    }

    /// How long to go on trying a store that fails.
    pub(crate) fn patience(&self) -> Patience {
        Patience::new(self.settings.store_patience)
    }

    /// Writes a receipt that touches no key, riding out a store that fails for a while; tells the
    /// caller when the store says nothing for longer than anybody should wait.
    pub(crate) async fn record(
        &self,
        tenant: &TenantId,
        receipt: Receipt,
        reply: &mut Reply,
    ) -> Result<(), ExecError> {
        let mut patience = self.patience();
        loop {
            let asked = self.seams.durable.record(tenant, vec![receipt.clone()]);
            let mut tell = Some(reply.of_silence());
            match self.to_its_end(asked, &mut tell).await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_retryable() && !patience.pause().await.is_over() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Kernel {
    /// Waits until the turn of a place in the store's queue may have come. What is in the way may be
    /// what ended half-way with an earlier runtime, so that is made good meanwhile.
    pub(crate) async fn wait(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
        waits: u32,
    ) {
        let durable = &self.seams.durable;
        durable.wait(tenant, entity, ticket, waits).await;
        self.mend().await;
    }

    /// Gives the place of a claim back, if it has one.
    pub(crate) async fn give_place_back(&self, claim: &Claim) {
        if let Some(ticket) = claim.ticket {
            let proposal = &claim.proposal;
            self.leave(&proposal.tenant_id, &proposal.entity_key, ticket)
                .await;
        }
    }

    /// Gives a place in the store's queue back, however long it takes: nobody behind it moves while
    /// its session lives.
    pub(crate) async fn leave(&self, tenant: &TenantId, entity: &EntityKey, ticket: Ticket) {
        let (mut patience, mut doubts) = (self.patience(), 0);
        while let Err(error) = self.seams.durable.leave(tenant, entity, ticket).await {
            tracing::warn!(%error, "a place in the queue is not given back yet");
            doubts += u32::from(!error.is_retryable());
            if doubts > UNUSABLE_MAX {
                return;
            }
            patience.pause().await;
        }
    }
}

/// Awaits a store call that may be dropped half-way, `patience` at the longest.
pub(crate) async fn in_time<T>(
    store: &dyn DurableExec,
    patience: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let answer = within(patience, call).await;
    answer.unwrap_or_else(|_| Err(silent(store, patience)))
}

fn silent(store: &dyn DurableExec, patience: Duration) -> StoreError {
    StoreError::Unavailable {
        store: store.describe(),
        problem: format!("no answer within {patience:?}"),
    }
}

/// How long to go on trying, in growing pauses.
pub(crate) struct Patience {
    left: Duration,
    pause: Duration,
}

impl Patience {
    fn new(whole: Duration) -> Self {
        Self {
            left: whole,
            pause: RETRY_PAUSE,
        }
    }

    pub(crate) async fn pause(&mut self) -> &Self {
        let pause = self.pause.min(RETRY_PAUSE_MAX);
        Box::pin(tokio::time::sleep(pause)).await;
        self.left = self.left.saturating_sub(pause);
        self.pause = self.pause.saturating_mul(2);
        self
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left.is_zero()
    }
}
