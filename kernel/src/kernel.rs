//! What all gates share, and how store calls ride out a store that fails for a while.

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;

use crate::action::PlannedAction;
use crate::clock::IdKind;
use crate::connector::EffectClass;
use crate::durable::{
    Claim, ClaimAnswer, SettleAnswer, SettledOutcome, Settlement, StoreError, Ticket,
};
use crate::error::ExecError;
use crate::key::{EntityKey, TenantId};
use crate::lease::Lease;
use crate::receipt::Receipt;
use crate::redact::RedactionKey;
use crate::reply::Reply;
use crate::setup::{Seams, Settings};
use crate::single_flight::Flights;

/// The pauses between tries of a store that fails, and the longest of them.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// What all gates share.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) seams: Seams,
    pub(crate) settings: Settings,
    pub(crate) flights: Arc<Flights>,
    pub(crate) lease: Lease,
    // One lookup per tenant, then from memory: the key never changes.
    pub(crate) redaction_keys: DashMap<TenantId, RedactionKey>,
}

impl Kernel {
    pub(crate) fn is_read(&self, action: &PlannedAction) -> bool {
        let tool = self.seams.connectors.tool(&action.connector, &action.tool);
        tool.is_some_and(|tool| tool.contract.effect == EffectClass::Read)
    }

    pub(crate) async fn redaction_key(&self, tenant: &TenantId) -> Result<RedactionKey, ExecError> {
        if let Some(key) = self.redaction_keys.get(tenant).map(|key| key.clone()) {
            return Ok(key);
        }
        let key = self.seams.durable.redaction_key(tenant).await?;
        self.redaction_keys.insert(tenant.clone(), key.clone());
        Ok(key)
    }

    /// Claims, riding out a store that fails for a while and a session that was lost. The same
    /// `receipt_id` every time: a claim that did land is found, not made again.
    pub(crate) async fn claim(&self, claim: &mut Claim) -> Result<ClaimAnswer, ExecError> {
        let tenant = claim.proposal.tenant_id.clone();
        let mut patience = Patience::new(self.settings.store_patience);
        loop {
            let error = match self.seams.durable.claim(&tenant, vec![claim.clone()]).await {
                Ok(mut answers) => {
                    return answers.pop().ok_or_else(|| {
                        ExecError::Invariant("the store answered no claim".to_owned())
                    });
                }
                Err(error) => error,
            };
            if let StoreError::SessionDead { session, .. } = error {
                claim.session = self.lease.replace(session).await?;
                claim.ticket = None;
                // Had the claim landed under the dead session, its receipt is written already and
                // tells of a doubt; what happens from here on is told in one of its own.
                claim.proposal.receipt_id = self.seams.clock.id(IdKind::Receipt);
            } else if !error.is_retryable() || patience.pause().await.is_over() {
                return Err(error.into());
            }
        }
    }

    /// Settles until it is done; tells the caller when that takes longer than anybody should wait.
    pub(crate) async fn settle(
        &self,
        settlement: &Settlement,
        reply: &mut Reply,
    ) -> Result<SettleAnswer, ExecError> {
        let tenant = &settlement.proposal.tenant_id;
        let key = &settlement.proposal.idempotency_key;
        let not_recorded = |source| ExecError::NotRecorded {
            key: key.clone(),
            outcome: match settlement.outcome {
                SettledOutcome::Applied(_) => "applied",
                SettledOutcome::NotApplied { .. } => "not applied",
                SettledOutcome::Unknown { .. } => "outcome unknown",
            },
            source,
        };
        let mut patience = Patience::new(self.settings.store_patience);
        loop {
            match self
                .seams
                .durable
                .settle(tenant, vec![settlement.clone()])
                .await
            {
                Ok(mut answers) => {
                    return answers.pop().ok_or_else(|| {
                        ExecError::Invariant("the store answered no settlement".to_owned())
                    });
                }
                Err(error) if error.is_retryable() => {
                    tracing::warn!(%key, %error, "the outcome is not recorded yet; trying again");
                    if patience.pause().await.is_over() {
                        reply.answer(Err(not_recorded(error)));
                    }
                }
                Err(error) => return Err(not_recorded(error)),
            }
        }
    }

    /// Writes a receipt that touches no key, riding out a store that fails for a while.
    pub(crate) async fn record(
        &self,
        tenant: &TenantId,
        receipt: Receipt,
    ) -> Result<(), ExecError> {
        let mut patience = Patience::new(self.settings.store_patience);
        loop {
            match self
                .seams
                .durable
                .record(tenant, vec![receipt.clone()])
                .await
            {
                Ok(()) => return Ok(()),
                Err(error) if error.is_retryable() && !patience.pause().await.is_over() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Kernel {
    /// Gives a place in the store's queue back.
    pub(crate) async fn leave(&self, tenant: &TenantId, entity: &EntityKey, ticket: Ticket) {
        if let Err(error) = self.seams.durable.leave(tenant, entity, ticket).await {
            tracing::warn!(%error, "a place in the queue was not given back; it goes with the session");
        }
    }
}

/// How long to go on trying, in growing pauses.
struct Patience {
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

    async fn pause(&mut self) -> &Self {
        let pause = self.pause.min(RETRY_PAUSE_MAX);
        tokio::time::sleep(pause).await;
        self.left = self.left.saturating_sub(pause);
        self.pause = self.pause.saturating_mul(2);
        self
    }

    fn is_over(&self) -> bool {
        self.left.is_zero()
    }
}
