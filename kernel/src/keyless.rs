//! What touches no key: reads, and what never got a turn. No dedup, no claim; a receipt all the same.

use std::sync::Arc;

use crate::action::{ActionResult, Outcome, Reason, Refusal};
use crate::durable::{SettledOutcome, StoreError};
use crate::error::ExecError;
use crate::kernel::Kernel;
use crate::proposed::{Proposed, digest_of};
use crate::receipt::{AttemptMark, Ending};
use crate::reply::Reply;
use crate::single_flight::Overloaded;
use crate::trust::{Ruling, TrustDecision};

/// A proposal that will not claim anything.
#[derive(Debug)]
pub(crate) struct Keyless {
    kernel: Arc<Kernel>,
    proposed: Box<Proposed>,
}

impl Keyless {
    pub(crate) fn new(kernel: Arc<Kernel>, proposed: Box<Proposed>) -> Self {
        Self { kernel, proposed }
    }

    /// Gate 1, refused: too many wait.
    pub(crate) async fn refuse_overloaded(
        self,
        full: Overloaded,
        reply: &mut Reply,
    ) -> Result<Box<ActionResult>, ExecError> {
        let error = format!("{} actions wait for this entity already", full.waiters_max);
        let refusal = Refusal::new(Reason::Overloaded, error);
        let ruling = Ruling::of(TrustDecision::Allow);
        self.end_without_key(ruling, Outcome::Refused(refusal), reply)
            .await
    }

    /// Gate 2: a read, once everything before it has had its turn, if its operator reaches the tool.
    pub(crate) async fn read(self, reply: &mut Reply) -> Result<Box<ActionResult>, ExecError> {
        if let Some(full) = self.pass_between_processes(reply).await? {
            return self.refuse_overloaded(full, reply).await;
        }
        let (ruling, refusal) = self.proposed.weigh_read(&*self.kernel.seams.policy);
        let outcome = match (refusal, &self.proposed.tool) {
            (Some(refusal), _) => Outcome::Refused(refusal),
            (None, None) => return Err(ExecError::Invariant("a read without a tool".to_owned())),
            (None, Some(tool)) => match self
                .proposed
                .send(tool, self.proposed.call(tool, 1, 1))
                .await
            {
                SettledOutcome::Applied(effect) => Outcome::Read {
                    result: effect.result.clone(),
                },
                SettledOutcome::NotApplied { error } | SettledOutcome::Unknown { error } => {
                    Outcome::Failed { error }
                }
            },
        };
        self.end_without_key(ruling, outcome, reply).await
    }

    /// A caller that was told of a silent or failing store is answered for good: what is left to do
    /// then is to find out whether there is a place in the queue, and to give it back.
    ///
    /// Tells if too many wait there already.
    async fn pass_between_processes(
        &self,
        reply: &mut Reply,
    ) -> Result<Option<Overloaded>, ExecError> {
        let kernel = &self.kernel;
        let (durable, tenant) = (&kernel.seams.durable, &self.proposed.run.tenant);
        let entity = &self.proposed.action.entity_key;
        let asker = &self.proposed.receipt_id;
        let mut ticket = None;
        let mut counted = None;
        let mut waits = 0;
        let mut patience = kernel.patience();
        loop {
            let session = kernel.lease.session();
            reply.asks_under(session);
            let passing = durable.pass(tenant, entity, session, asker, ticket);
            let passed = kernel
                .to_its_end(passing, &mut Some(reply.of_silence()))
                .await;
            match passed {
                Ok(None) if reply.is_answered() => return Err(ExecError::Abandoned),
                // INVARIANT (a-turn-comes): told to wait, its turn comes with this answer.
                Ok(None) if counted.is_some() && reply.is_caller_gone() => {
                    return Err(ExecError::Abandoned);
                }
                Ok(None) => {
                    reply.leaves_nothing();
                    return Ok(None);
                }
                Ok(Some(place)) if reply.is_answered() || reply.is_caller_gone() => {
                    kernel.leave(tenant, entity, place).await;
                    return Err(ExecError::Abandoned);
                }
                Ok(Some(place)) => {
                    if counted.is_none() {
                        match kernel.flights.wait_abroad((tenant.clone(), entity.clone())) {
                            Ok(waiting) => counted = Some(waiting),
                            Err(full) => {
                                kernel.leave(tenant, entity, place).await;
                                return Ok(Some(full));
                            }
                        }
                    }
                    ticket = Some(place);
                    kernel.wait(tenant, entity, place, waits).await;
                    waits = waits.saturating_add(1);
                    if reply.is_caller_gone() {
                        kernel.leave(tenant, entity, place).await;
                        return Err(ExecError::Abandoned);
                    }
                }
                // Its place went with it.
                Err(StoreError::SessionDead { .. }) if reply.is_answered() => {
                    return Err(ExecError::Abandoned);
                }
                Err(StoreError::SessionDead { session, .. }) => {
                    kernel.in_time(kernel.lease.replace(session)).await?;
                    ticket = None;
                }
                Err(error) if error.is_retryable() => {
                    if patience.pause().await.is_over() {
                        reply.answer(Err(error.into()));
                    }
                }
                Err(error) => {
                    reply.answer(Err(error.into()));
                    if let Some(place) = ticket {
                        kernel.leave(tenant, entity, place).await;
                    }
                    return Err(ExecError::Abandoned);
                }
            }
        }
    }

    /// Ends what touches no key: the receipt is durable before the result is given.
    async fn end_without_key(
        self,
        ruling: Ruling,
        outcome: Outcome,
        reply: &mut Reply,
    ) -> Result<Box<ActionResult>, ExecError> {
        let proposal = self.proposed.proposal(ruling);
        let attempt = u32::from(!matches!(outcome, Outcome::Refused(_)));
        let mark = AttemptMark {
            attempt,
            ..AttemptMark::none()
        };
        let ending = match &outcome {
            Outcome::Read { result } | Outcome::Applied { result } => Ending::Applied {
                result_digest: Some(digest_of(result)?),
                effect_id: None,
            },
            Outcome::Failed { error } => Ending::Failed { error },
            Outcome::InDoubt { error } => Ending::InDoubt { error },
            Outcome::Refused(refusal) => Ending::Refused(refusal),
            Outcome::Duplicate(original) => Ending::Duplicate {
                original_receipt_id: &original.receipt_id,
            },
        };
        let receipt = proposal.receipt(&mark, &ending, self.kernel.seams.clock.now());
        self.kernel
            .record(&self.proposed.run.tenant, receipt, reply)
            .await?;
        Ok(Box::new(ActionResult::new(
            self.proposed.into_shown(),
            proposal.decision,
            proposal.rule.clone(),
            proposal.receipt_id.clone(),
            attempt,
            outcome,
        )))
    }
}
