//! One type per gate passed: `Turn → Weighed → Claimed → Answered → ActionResult`.
//!
//! Each gate consumes the value before it, and none can be made outside this file, so the order of
//! the gates is the only order that builds. Trust is weighed before the store is asked because its
//! decision travels with the one store call; that call answers in the contract's order (duplicate,
//! conflict, stale, doubt, refusal, claim), so nobody outside can tell.
//!
//! What was never claimed cannot be settled:
//!
//! ```compile_fail
//! # use operators_kernel::{ActionResult, ExecError, gates};
//! async fn skip_the_claim(weighed: gates::Weighed, reply: &mut gates::Reply)
//!     -> Result<ActionResult, ExecError> { weighed.settle(reply).await }
//! ```
//!
//! ```
//! # use operators_kernel::{ActionResult, ExecError, gates};
//! async fn in_order(answered: gates::Answered, reply: &mut gates::Reply)
//!     -> Result<ActionResult, ExecError> { answered.settle(reply).await }
//! ```

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use crate::action::{ActionResult, Outcome};
use crate::clock::IdKind;
use crate::connector::{EffectClass, OnUnknown, ProbeOutcome};
use crate::durable::{
    Claim, ClaimAnswer, Clearance, Fingerprint, OnDoubt, Resolution, Resolver, SessionId,
    SettleAnswer, SettledOutcome, Settlement, StoreError, Verdict,
};
use crate::error::ExecError;
use crate::life::{self, KeyRecord, Phase};
use crate::proposed::{Proposed, digest_of};
use crate::receipt::{AttemptMark, Proposal};
use crate::single_flight::Place;

pub use crate::proposed::Reply;

/// The pause between tries to find out what became of a claim whose answer was lost.
const RECONCILE_PAUSE: Duration = Duration::from_millis(500);

/// Gate 1 passed: this process's turn on the entity. The store's half comes with the claim.
#[derive(Debug)]
pub struct Turn {
    proposed: Proposed,
    place: Place,
}

impl Turn {
    pub(crate) fn new(proposed: Proposed, place: Place) -> Self {
        Self { proposed, place }
    }

    /// Gate 4, asked early: what registry, schema and trust say. Pure; nothing is written yet.
    pub fn weigh(self) -> Result<Weighed, ExecError> {
        let Self { proposed, place } = self;
        let (ruling, clearance) = proposed.weigh();
        let proposal = proposed.proposal(ruling);
        let said = life::said_by(&proposal);
        let fingerprint = Fingerprint(digest_of(&said)?);
        Ok(Weighed {
            proposed,
            place: Some(place),
            proposal,
            clearance,
            fingerprint,
        })
    }
}

/// Weighed, not yet known to be new.
#[derive(Debug)]
pub struct Weighed {
    proposed: Proposed,
    /// `None` once the wait for a lost claim has let others go ahead.
    place: Option<Place>,
    proposal: Proposal,
    clearance: Clearance,
    fingerprint: Fingerprint,
}

/// What a claim leads to.
#[derive(Debug)]
pub enum Claiming {
    /// The intent is durable; the call may be sent.
    Granted(Box<Claimed>),
    /// It ended here, with its receipt.
    Ended(Box<ActionResult>),
}

impl Weighed {
    /// Gates 3, 4 and the first half of 5, in one store call: duplicate, conflict, stale, doubt,
    /// refusal, or a durable intent with the turn between processes.
    pub async fn claim(self, reply: &mut Reply) -> Result<Claiming, ExecError> {
        let kernel = Arc::clone(&self.proposed.kernel);
        let mut claim = self.request(kernel.lease.session());
        let mut asked = 0;
        loop {
            let answer = match kernel.claim(&mut claim).await {
                Ok(answer) => answer,
                Err(error) => return self.lost(claim, error, reply).await,
            };
            match answer {
                ClaimAnswer::Claimed(mark) => {
                    return Ok(Claiming::Granted(Box::new(Claimed {
                        weighed: self,
                        session: claim.session,
                        mark,
                    })));
                }
                ClaimAnswer::Wait(ticket) => {
                    claim.ticket = Some(ticket);
                    if reply.is_caller_gone() {
                        self.proposed.leave(ticket).await;
                        return Err(ExecError::Abandoned);
                    }
                    let entity = &claim.proposal.entity_key;
                    kernel
                        .seams
                        .durable
                        .wait(&self.proposed.run.tenant, entity, ticket, asked)
                        .await;
                    asked = asked.saturating_add(1);
                }
                ClaimAnswer::Probe(doubt) => {
                    self.probe(&doubt).await?;
                    claim.on_doubt = OnDoubt::Refuse;
                }
                ClaimAnswer::Duplicate { original, attempt } => {
                    return Ok(self.ended(attempt, Outcome::Duplicate(original)));
                }
                ClaimAnswer::Refused { refusal, attempt } => {
                    return Ok(self.ended(attempt, Outcome::Refused(refusal)));
                }
            }
            claim.at = kernel.seams.clock.now();
        }
    }

    /// The store stopped answering, so whether the claim landed is not known. The caller is told
    /// that nothing was sent; then the claim is asked for until the store says, and freed if it
    /// was granted, so that no intent is left that nobody will ever settle.
    async fn lost(
        self,
        mut claim: Claim,
        error: ExecError,
        reply: &mut Reply,
    ) -> Result<Claiming, ExecError> {
        let may_have_landed = matches!(&error, ExecError::Store(error) if error.is_retryable());
        if !may_have_landed {
            return Err(error);
        }
        reply.answer(Err(error));
        let Self {
            proposed,
            place,
            proposal,
            clearance,
            fingerprint,
        } = self;
        // Others of this process need not wait for this: the store keeps the order.
        drop(place);
        let durable = Arc::clone(&proposed.kernel.seams.durable);
        let tenant = proposed.run.tenant.clone();
        loop {
            tokio::time::sleep(RECONCILE_PAUSE).await;
            match durable
                .claim(&tenant, vec![claim.clone()])
                .await
                .map(|mut found| found.pop())
            {
                Ok(Some(ClaimAnswer::Claimed(mark))) => {
                    let session = claim.session;
                    let weighed = Self {
                        proposed,
                        place: None,
                        proposal,
                        clearance,
                        fingerprint,
                    };
                    let claimed = Claimed {
                        weighed,
                        session,
                        mark,
                    };
                    claimed
                        .give_up("the store did not answer in time")
                        .settle(reply)
                        .await?;
                    break;
                }
                Ok(Some(ClaimAnswer::Wait(ticket))) => claim.ticket = Some(ticket),
                Ok(Some(ClaimAnswer::Probe(_))) => claim.on_doubt = OnDoubt::Refuse,
                Err(StoreError::Unavailable { .. }) => {}
                // Its receipt is written, or the store cannot be used, or the session is dead and
                // its intents are doubts.
                Ok(_) | Err(_) => break,
            }
        }
        Err(ExecError::Abandoned)
    }

    fn request(&self, session: SessionId) -> Claim {
        let contract = self.proposed.tool.as_ref().map(|tool| &tool.contract);
        Claim {
            session,
            ticket: None,
            proposal: self.proposal.clone(),
            fingerprint: self.fingerprint.clone(),
            effect: contract.map_or(EffectClass::Opaque, |contract| contract.effect),
            on_unknown: contract.map_or(OnUnknown::Hold, |contract| contract.on_unknown),
            deadline: contract
                .map(|contract| contract.timeout)
                .unwrap_or_default(),
            max_land: contract
                .map(|contract| contract.max_land)
                .unwrap_or_default(),
            clearance: self.clearance.clone(),
            on_doubt: OnDoubt::Probe,
            at: self.proposed.kernel.seams.clock.now(),
        }
    }

    /// Asks the connector about a doubt and closes it if the answer can be believed.
    async fn probe(&self, doubt: &KeyRecord) -> Result<(), ExecError> {
        let Some(tool) = &self.proposed.tool else {
            return Ok(());
        };
        let call = self.proposed.call(tool, doubt.generation, doubt.attempt);
        let probed = AssertUnwindSafe(tool.connector.probe(&call)).catch_unwind();
        let Ok(Ok(found)) = tokio::time::timeout(call.deadline, probed).await else {
            return Ok(());
        };
        let verdict = match found {
            ProbeOutcome::Applied(mut effect) => {
                effect.result = self.proposed.redaction.scrub(effect.result);
                Verdict::Applied(effect)
            }
            ProbeOutcome::NotApplied => Verdict::NotApplied,
            ProbeOutcome::Unknown(error) => {
                let key = &self.proposal.idempotency_key;
                tracing::info!(%key, %error, "the probe could not tell");
                return Ok(());
            }
        };
        let result_digest = match &verdict {
            Verdict::Applied(effect) => digest_of(&effect.result)?,
            Verdict::NotApplied | Verdict::WriteOff => String::new(),
        };
        let kernel = &self.proposed.kernel;
        let resolution = Resolution {
            key: self.proposal.idempotency_key.clone(),
            attempt: doubt.attempt,
            verdict,
            by: Resolver::Probe,
            note: Some("the connector was asked".to_owned()),
            receipt_id: kernel.seams.clock.id(IdKind::Receipt),
            result_digest,
            at: kernel.seams.clock.now(),
        };
        // Whatever the answer, the claim that follows sees the state as it is.
        kernel
            .seams
            .durable
            .resolve(&self.proposed.run.tenant, resolution)
            .await?;
        Ok(())
    }

    fn ended(self, attempt: u32, outcome: Outcome) -> Claiming {
        let Self {
            proposed, proposal, ..
        } = self;
        let result = ActionResult::new(
            proposed.shown,
            proposal.decision,
            proposal.rule,
            proposal.receipt_id,
            attempt,
            outcome,
        );
        Claiming::Ended(Box::new(result))
    }
}

/// Gates 3 and 4 passed and the intent is durable: the only thing that can be invoked.
#[derive(Debug)]
pub struct Claimed {
    weighed: Weighed,
    session: SessionId,
    mark: AttemptMark,
}

impl Claimed {
    /// Gate 5: sends the call, unless the lease ran out since the claim.
    pub async fn invoke(self) -> Answered {
        let proposed = &self.weighed.proposed;
        let outcome = match &proposed.tool {
            None => nothing_sent("the tool is gone"),
            Some(_) if !proposed.kernel.lease.may_send(self.session).await => {
                nothing_sent("the lease ran out before the call was sent")
            }
            Some(tool) => {
                let call = proposed.call(tool, self.mark.generation, self.mark.attempt);
                proposed.send(tool, call).await
            }
        };
        Answered {
            claimed: self,
            outcome,
        }
    }

    /// Gives up a claim that nobody waits for; nothing was sent.
    pub(crate) fn give_up(self, why: &str) -> Answered {
        Answered {
            claimed: self,
            outcome: nothing_sent(why),
        }
    }
}

fn nothing_sent(why: &str) -> SettledOutcome {
    SettledOutcome::NotApplied {
        error: format!("nothing was sent: {why}"),
    }
}

/// Gate 5 passed: the call ended, one way or another.
#[derive(Debug)]
pub struct Answered {
    claimed: Claimed,
    outcome: SettledOutcome,
}

impl Answered {
    /// Gate 6: burn, free or doubt, with the receipt and the turn's release, in one write that is
    /// retried until it is done. A caller who has waited long enough is told so meanwhile.
    pub async fn settle(self, reply: &mut Reply) -> Result<ActionResult, ExecError> {
        let Self {
            claimed:
                Claimed {
                    weighed,
                    session,
                    mark,
                },
            outcome,
        } = self;
        let Weighed {
            proposed,
            place,
            proposal,
            ..
        } = weighed;
        let kernel = Arc::clone(&proposed.kernel);
        let result_digest = match &outcome {
            SettledOutcome::Applied(effect) => digest_of(&effect.result)?,
            SettledOutcome::NotApplied { .. } | SettledOutcome::Unknown { .. } => String::new(),
        };
        let settlement = Settlement {
            session,
            mark,
            proposal,
            outcome,
            result_digest,
            at: kernel.seams.clock.now(),
        };
        let answer = kernel
            .settle(&proposed.run.tenant, &settlement, reply)
            .await?;
        drop(place);
        Ok(result_of(proposed, settlement, answer))
    }
}

fn result_of(proposed: Proposed, settlement: Settlement, answer: SettleAnswer) -> ActionResult {
    let Settlement {
        mark,
        proposal,
        outcome,
        ..
    } = settlement;
    if answer.double_applied {
        let key = &proposal.idempotency_key;
        tracing::error!(%key, receipt_id = %answer.receipt_id, "double_applied: two attempts of this key took effect");
    }
    let outcome = match outcome {
        SettledOutcome::Applied(effect) => Outcome::Applied {
            result: effect.result,
        },
        SettledOutcome::NotApplied { error } => Outcome::Failed {
            error: answer.error.unwrap_or(error),
        },
        SettledOutcome::Unknown { error } if answer.phase == Phase::Applied => Outcome::Failed {
            error: format!("{error} (an earlier attempt took effect)"),
        },
        SettledOutcome::Unknown { error } => Outcome::InDoubt {
            error: answer.error.unwrap_or(error),
        },
    };
    let (decision, rule) = (proposal.decision, proposal.rule);
    ActionResult::new(
        proposed.shown,
        decision,
        rule,
        answer.receipt_id,
        mark.attempt,
        outcome,
    )
}
