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
//! async fn skip_the_claim(weighed: Box<gates::Weighed>, reply: &mut gates::Reply)
//!     -> Result<Box<ActionResult>, ExecError> { weighed.settle(reply).await }
//! ```
//!
//! ```
//! # use operators_kernel::{ActionResult, ExecError, gates};
//! async fn in_order(answered: gates::Answered, reply: &mut gates::Reply)
//!     -> Result<Box<ActionResult>, ExecError> { answered.settle(reply).await }
//! ```

use std::sync::Arc;
use std::time::Duration;

use crate::action::{ActionResult, Outcome};
use crate::clock::IdKind;
use crate::connector::{Call, ProbeOutcome, Tool};
use crate::durable::{
    Claim, ClaimAnswer, OnDoubt, Resolution, Resolver, SessionId, SettledOutcome, Settlement,
    StoreError, Verdict,
};
use crate::error::ExecError;
use crate::kernel::{Kernel, UNUSABLE_MAX};
use crate::lease::Moment;
use crate::ledger::Glimpse;
use crate::life::KeyRecord;
use crate::permit::SendPermit;
use crate::proposed::{Case, Proposed, digest_of};
use crate::receipt::AttemptMark;
use crate::single_flight::Place;
use crate::work::{Performance, Performed, Work};

pub use crate::reply::Reply;

/// The pause between tries to find out what became of a claim whose answer was lost.
const RECONCILE_PAUSE: Duration = Duration::from_millis(500);

/// Why a claim was given up that was granted after its caller had left the store's queue.
const CALLER_LEFT: &str = "its caller left before its turn came";

/// Gate 1 passed: this process's turn on the entity. The store's half comes with the claim.
#[derive(Debug)]
pub struct Turn {
    proposed: Box<Proposed>,
    place: Place<Kernel>,
}

impl Turn {
    pub(crate) fn new(proposed: Box<Proposed>, place: Place<Kernel>) -> Self {
        Self { proposed, place }
    }

    /// Gate 4, asked early: what registry, schema and trust say. Pure; nothing is written yet.
    pub fn weigh(self) -> Result<Box<Weighed>, ExecError> {
        let case = Case::new(self.proposed, &*self.place.owner().seams.policy)?;
        // Boxed, as what follows it: an action's future holds the value of the gate it is at.
        Ok(Box::new(Weighed {
            place: self.place,
            case,
        }))
    }
}

/// Weighed, not yet known to be new.
#[derive(Debug)]
pub struct Weighed {
    /// Given up once the wait for a lost claim lets others go ahead.
    place: Place<Kernel>,
    case: Case,
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
    pub async fn claim(mut self: Box<Self>, reply: &mut Reply) -> Result<Claiming, ExecError> {
        // What is rare is boxed below: an action's future is as large as its largest step.
        let ((kernel, seat), case) = (self.place.parts(), &mut self.case);
        let (session, now) = (kernel.lease.session(), kernel.seams.clock.now());
        let mut claim = case.claim(session, OnDoubt::Probe, now);
        // INVARIANT (a-turn-comes): where the store has nobody ahead, the turn comes as it is asked;
        // where it said to wait, with its grant, and a caller that has left by then is not sent.
        let mut waits = 0;
        loop {
            let since = kernel.lease.moment();
            reply.asks_under(claim.session);
            let told = |error| {
                reply.answer(Err(ExecError::Store(error)));
                // Others of this process need not wait for this: the store keeps the order.
                seat.give_up(&kernel.flights);
            };
            let answer = match kernel.claim(&mut claim, told).await {
                Ok(ClaimAnswer::Claimed(_) | ClaimAnswer::Wait(_) | ClaimAnswer::Probe(_))
                    if reply.is_answered() =>
                {
                    return Box::pin(self.reconcile(claim, reply)).await;
                }
                Ok(answer) => {
                    reply.asks_under(claim.session);
                    answer
                }
                // It may have landed: by this try, or by one before it.
                Err(error) if claim.asked_before => {
                    reply.answer(Err(error));
                    return Box::pin(self.reconcile(claim, reply)).await;
                }
                Err(error) => {
                    reply.answer(Err(error));
                    seat.give_up(&kernel.flights);
                    Box::pin(kernel.give_place_back(&claim)).await;
                    return Err(ExecError::Abandoned);
                }
            };
            // A session lost on the way means another receipt than was begun with.
            case.proposal = claim.proposal.clone();
            match answer {
                ClaimAnswer::Claimed(mark) => {
                    let claimed = Box::new(self.granted(claim.session, mark, since));
                    if waits > 0 && reply.is_caller_gone() {
                        return Box::pin(claimed.give_up(CALLER_LEFT, reply)).await;
                    }
                    return Ok(Claiming::Granted(claimed));
                }
                ClaimAnswer::Wait(ticket) => {
                    claim.ticket = Some(ticket);
                    let (tenant, entity) = (&claim.proposal.tenant_id, &claim.proposal.entity_key);
                    if !reply.is_caller_gone() {
                        kernel.wait(tenant, entity, ticket, waits).await;
                    }
                    waits = waits.saturating_add(1);
                }
                ClaimAnswer::Probe(doubt) => {
                    Box::pin(Self::probe(kernel, case, &doubt)).await;
                    claim.on_doubt = OnDoubt::Refuse;
                }
                ClaimAnswer::Duplicate { original, attempt } => {
                    return Ok(self.ended(attempt, Outcome::Duplicate(original)));
                }
                ClaimAnswer::Refused { refusal, attempt } => {
                    return Ok(self.ended(attempt, Outcome::Refused(refusal)));
                }
            }
            if waits > 0 && reply.is_caller_gone() {
                Box::pin(kernel.give_place_back(&claim)).await;
                return Err(ExecError::Abandoned);
            }
            claim.at = kernel.seams.clock.now();
        }
    }

    fn granted(
        mut self: Box<Self>,
        session: SessionId,
        mark: AttemptMark,
        since: Moment,
    ) -> Claimed {
        self.case.name_approver(&mark);
        Claimed {
            weighed: self,
            session,
            mark,
            since,
        }
    }

    /// The store did not answer in time, so whether the claim landed is not known, and the caller
    /// was told that nothing was sent. The claim is asked for until the store says, and freed if it
    /// was granted, so that no intent is left that nobody will ever settle.
    async fn reconcile(
        mut self: Box<Self>,
        mut claim: Claim,
        reply: &mut Reply,
    ) -> Result<Claiming, ExecError> {
        let Self { place, case } = &mut *self;
        let (kernel, seat) = place.parts();
        // Others of this process need not wait for this: the store keeps the order.
        seat.give_up(&kernel.flights);
        case.proposal
            .receipt_id
            .clone_from(&claim.proposal.receipt_id);
        claim.asked_before = true;
        let durable = &kernel.seams.durable;
        let tenant = claim.proposal.tenant_id.clone();
        let mut unusable = 0;
        loop {
            tokio::time::sleep(RECONCILE_PAUSE).await;
            match durable
                .claim(&tenant, vec![claim.clone()])
                .await
                .map(|mut found| found.pop())
            {
                Ok(Some(ClaimAnswer::Claimed(mark))) => {
                    let since = kernel.lease.moment();
                    let claimed = Box::new(self.granted(claim.session, mark, since));
                    let why = "the store did not answer in time";
                    return claimed.give_up(why, reply).await;
                }
                Ok(Some(ClaimAnswer::Wait(ticket))) => claim.ticket = Some(ticket),
                Ok(Some(ClaimAnswer::Probe(_))) => claim.on_doubt = OnDoubt::Refuse,
                Err(StoreError::Unavailable { .. }) => {}
                Err(StoreError::SessionDead { .. }) => {
                    kernel.disown(&claim).await;
                    break;
                }
                Err(StoreError::Unusable { .. }) if unusable < UNUSABLE_MAX => unusable += 1,
                // Its receipt is written, or the store cannot be used and will not be.
                Ok(_) | Err(StoreError::Unusable { .. }) => break,
            }
        }
        Err(ExecError::Abandoned)
    }

    /// Asks the connector about a doubt and closes it if the answer can be believed.
    async fn probe(kernel: &Kernel, case: &Case, doubt: &KeyRecord) {
        let key = &case.proposal.idempotency_key;
        let proposed = &case.proposed;
        let Some(tool) = &proposed.tool else {
            return;
        };
        let call = proposed.call(tool, doubt.generation, doubt.attempt);
        let was_quiet = Self::is_quiet(kernel, case, doubt).await;
        let (verdict, result_digest) = match proposed.ask(tool, call).await {
            ProbeOutcome::Applied(effect) => match digest_of(&effect.result) {
                Ok(digest) => (Verdict::Applied(effect), Some(digest)),
                Err(error) => {
                    tracing::warn!(%key, %error, "what the probe found cannot be recorded");
                    return;
                }
            },
            // It may have landed behind the probe's back, however late the probe answered.
            ProbeOutcome::NotApplied if !was_quiet => {
                tracing::info!(%key, "the probe found nothing, but it may still land");
                return;
            }
            ProbeOutcome::NotApplied => (Verdict::NotApplied, None),
            ProbeOutcome::Unknown(error) => {
                tracing::info!(%key, %error, "the probe could not tell");
                return;
            }
        };
        let resolution = Resolution {
            key: key.clone(),
            generation: doubt.generation,
            attempt: doubt.attempt,
            verdict,
            by: Resolver::Probe,
            note: Some("the connector was asked".to_owned()),
            receipt_id: kernel.seams.clock.id(IdKind::Receipt),
            result_digest,
            at: kernel.seams.clock.now(),
        };
        // Whatever the answer, the claim that follows sees the state as it is, and rides out a
        // store that fails.
        let tenant = &case.proposal.tenant_id;
        let resolved = kernel.seams.durable.resolve(tenant, resolution);
        if let Err(error) = kernel.in_time(resolved).await {
            tracing::warn!(%key, %error, "what the probe found is not recorded");
        }
    }

    /// Whether a doubt's request can no longer land, by the store's clock; asked before the connector
    /// is, for that is when it looks.
    async fn is_quiet(kernel: &Kernel, case: &Case, doubt: &KeyRecord) -> bool {
        let proposal = &case.proposal;
        let (tenant, key) = (&proposal.tenant_id, &proposal.idempotency_key);
        let seen = kernel
            .seams
            .durable
            .glimpse(tenant, key, &proposal.entity_key);
        let is_that = |record: &KeyRecord| {
            (record.generation, record.attempt) == (doubt.generation, doubt.attempt)
        };
        match kernel.in_time(seen).await {
            Ok(Glimpse { key, now, .. }) => {
                key.is_some_and(|record| is_that(&record) && now >= record.open_until)
            }
            // Then it is not known, and the claim that follows meets the same store.
            Err(_) => false,
        }
    }

    fn ended(self, attempt: u32, outcome: Outcome) -> Claiming {
        let Case {
            proposed, proposal, ..
        } = self.case;
        let result = ActionResult::new(
            proposed.into_shown(),
            proposal.decision,
            proposal.rule.clone(),
            proposal.receipt_id.clone(),
            attempt,
            outcome,
        );
        Claiming::Ended(Box::new(result))
    }
}

/// Gates 3 and 4 passed and the intent is durable: the only thing that can be invoked.
#[derive(Debug)]
pub struct Claimed {
    weighed: Box<Weighed>,
    session: SessionId,
    mark: AttemptMark,
    /// When the claim was first asked for.
    since: Moment,
}

impl Claimed {
    /// Gate 5: sends the call, unless lease or deadline ran out since the claim.
    pub async fn invoke(self: Box<Self>) -> Answered {
        let Weighed { place, case } = &*self.weighed;
        let kernel = place.owner();
        let proposed = &case.proposed;
        let ended = match &proposed.tool {
            None => nothing_sent("the tool is gone").into(),
            Some(tool) => {
                kernel.lease.renew_if_short(self.session).await;
                let call = self.permitted(tool);
                if let Err(error) = call.permit.check() {
                    let error = error.message;
                    SettledOutcome::NotApplied { error }.into()
                } else if proposed.is_transactional() {
                    // Nothing is sent: the store runs it in the transaction that settles.
                    let prepared = proposed.prepare(tool, &call);
                    prepared.map_or_else(Ended::Called, Ended::Prepared)
                } else {
                    proposed.send(tool, call).await.into()
                }
            }
        };
        Answered {
            claimed: self,
            ended,
        }
    }

    /// The call, with what is left of its time. Quiescence is counted from the intent, so that time
    /// is too: a request must not leave later than those who believe "not applied" think it can.
    fn permitted(&self, tool: &Tool) -> Call {
        let Weighed { place, case } = &*self.weighed;
        let kernel = place.owner();
        let (generation, attempt) = (self.mark.generation, self.mark.attempt);
        let mut call = case.proposed.call(tool, generation, attempt);
        let Moment { at, standstills } = self.since;
        let deadline = at.saturating_add(call.deadline);
        call.deadline = deadline.saturating_sub(kernel.seams.clock.monotonic());
        let current = kernel.lease.current();
        call.permit = SendPermit::of_session(current, self.session, deadline, standstills);
        call
    }

    /// Ends a claim that no caller waits for any more: nothing was sent, and its receipt says so.
    async fn give_up(self: Box<Self>, why: &str, reply: &mut Reply) -> Result<Claiming, ExecError> {
        let answered = Answered {
            claimed: self,
            ended: nothing_sent(why).into(),
        };
        answered.settle(reply).await?;
        Err(ExecError::Abandoned)
    }
}

fn nothing_sent(why: &str) -> SettledOutcome {
    SettledOutcome::NotApplied {
        error: format!("nothing was sent: {why}"),
    }
}

/// How gate 5 was passed.
#[derive(Debug)]
enum Ended {
    /// The call ended, one way or another.
    Called(SettledOutcome),
    /// There is nothing to call: the store brings it about as it settles.
    Prepared(Arc<dyn Work>),
}

impl From<SettledOutcome> for Ended {
    fn from(outcome: SettledOutcome) -> Self {
        Self::Called(outcome)
    }
}

/// Gate 5 passed: the call ended, or the store has what to run.
#[derive(Debug)]
pub struct Answered {
    claimed: Box<Claimed>,
    ended: Ended,
}

impl Answered {
    /// Gate 6: burn, free or doubt, with the receipt and the turn's release, in one write that is
    /// retried until it is done. A caller who has waited long enough is told so meanwhile.
    pub async fn settle(self, reply: &mut Reply) -> Result<Box<ActionResult>, ExecError> {
        let Self { claimed, ended } = self;
        let Claimed {
            mut weighed,
            session,
            mark,
            ..
        } = *claimed;
        // What was weighed stays in its box: the future of a settlement is no larger for it.
        let (kernel, seat) = weighed.place.parts();
        let at = kernel.seams.clock.now();
        let (attempt, proposal) = (mark.attempt, weighed.case.proposal.clone());
        let performed = match ended {
            Ended::Called(outcome) => {
                let result_digest = match &outcome {
                    SettledOutcome::Applied(effect) => Some(digest_of(&effect.result)?),
                    SettledOutcome::NotApplied { .. } | SettledOutcome::Unknown { .. } => None,
                };
                let settlement = Settlement {
                    session,
                    mark,
                    proposal,
                    outcome,
                    result_digest,
                    at,
                };
                let answer = kernel.settle(&settlement, reply, seat).await?;
                let outcome = settlement.outcome;
                Performed { outcome, answer }
            }
            Ended::Prepared(work) => {
                let performance = Performance {
                    session,
                    mark,
                    proposal,
                    work,
                    at,
                };
                Box::pin(kernel.perform(&performance, reply, seat)).await
            }
        };
        let Weighed { place, case } = *weighed;
        drop(place);
        Ok(result_of(case, attempt, performed))
    }
}

fn result_of(case: Case, attempt: u32, performed: Performed) -> Box<ActionResult> {
    let Performed { outcome, answer } = performed;
    let Case {
        proposed, proposal, ..
    } = case;
    if answer.double_applied {
        let key = &proposal.idempotency_key;
        tracing::error!(%key, receipt_id = %answer.receipt_id, "double_applied: two attempts of this key took effect");
    }
    let outcome = match outcome {
        SettledOutcome::Applied(effect) => Outcome::Applied {
            result: effect.result.clone(),
        },
        SettledOutcome::NotApplied { error } => Outcome::Failed {
            error: answer.error.unwrap_or(error),
        },
        SettledOutcome::Unknown { error } => Outcome::InDoubt {
            error: answer.error.unwrap_or(error),
        },
    };
    let (decision, rule) = (proposal.decision, proposal.rule.clone());
    Box::new(ActionResult::new(
        proposed.into_shown(),
        decision,
        rule,
        answer.receipt_id,
        attempt,
        outcome,
    ))
}
