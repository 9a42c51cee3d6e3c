//! A proposal before any gate: looked up in the registry, with its secrets found.
//!
//! Owns what the gates share about one proposal: what may be shown of it, how its call looks, and
//! how it ends when it touches no key.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::oneshot;

use crate::action::{
    ActionResult, BLOCKED_BY_TRUST_POLICY, Outcome, PlannedAction, Reason, Refusal,
};
use crate::clock::{IdKind, Timestamp};
use crate::connector::{Call, Connector, ConnectorError, InvokeOutcome, Tool};
use crate::durable::{Clearance, SettledOutcome, StoreError, Ticket};
use crate::error::ExecError;
use crate::executor::RunContext;
use crate::json;
use crate::kernel::Kernel;
use crate::life;
use crate::receipt::{AttemptMark, Ending, Proposal, ReceiptAction};
use crate::redact::Redaction;
use crate::single_flight::Overloaded;
use crate::trust::{Ruling, TrustDecision, TrustQuestion};

/// Where the answer goes. The work goes on whether or not anybody still listens.
#[derive(Debug)]
pub struct Reply(Option<oneshot::Sender<Result<ActionResult, ExecError>>>);

impl Reply {
    pub(crate) fn new(sender: oneshot::Sender<Result<ActionResult, ExecError>>) -> Self {
        Self(Some(sender))
    }

    /// Answers once; later answers go nowhere.
    pub(crate) fn answer(&mut self, answer: Result<ActionResult, ExecError>) {
        if let Some(sender) = self.0.take() {
            // The caller may have left; what happened is in the receipt.
            drop(sender.send(answer));
        }
    }

    /// Whether nobody listens any more, before anything was answered.
    pub(crate) fn is_caller_gone(&self) -> bool {
        self.0.as_ref().is_some_and(oneshot::Sender::is_closed)
    }
}

/// A proposal before any gate: looked up, with its secrets found.
#[derive(Debug)]
pub(crate) struct Proposed {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) run: Arc<RunContext>,
    pub(crate) action: PlannedAction,
    /// The action as it may be shown.
    pub(crate) shown: PlannedAction,
    pub(crate) tool: Option<Tool>,
    pub(crate) redaction: Redaction,
    receipt_id: String,
    at: Timestamp,
}

impl Proposed {
    pub(crate) async fn new(
        kernel: Arc<Kernel>,
        run: Arc<RunContext>,
        action: PlannedAction,
    ) -> Result<Self, ExecError> {
        let tool = kernel
            .seams
            .connectors
            .tool(&action.connector, &action.tool);
        let marked = tool
            .as_ref()
            .map_or(&[][..], |tool| &tool.contract.secret_args);
        let key = kernel.redaction_key(&run.tenant).await?;
        let redaction = Redaction::of(&action.args, marked, &key);
        let shown = PlannedAction {
            args: redaction.shown().clone(),
            ..action.clone()
        };
        let receipt_id = kernel.seams.clock.id(IdKind::Receipt);
        let at = kernel.seams.clock.now();
        Ok(Self {
            kernel,
            run,
            action,
            shown,
            tool,
            redaction,
            receipt_id,
            at,
        })
    }

    /// Gate 1, refused: too many wait.
    pub(crate) async fn refuse_overloaded(
        self,
        full: Overloaded,
    ) -> Result<ActionResult, ExecError> {
        let error = format!("{} actions wait for this entity already", full.waiters_max);
        self.end_without_key(Outcome::Refused(Refusal::new(Reason::Overloaded, error)))
            .await
    }

    /// Gate 2: a read, once everything before it has had its turn. No dedup, no policy.
    pub(crate) async fn read(self, reply: &Reply) -> Result<ActionResult, ExecError> {
        self.pass_between_processes(reply).await?;
        let refusal = self.invalid_args();
        let outcome = match (refusal, &self.tool) {
            (Some(refusal), _) => Outcome::Refused(refusal),
            (None, None) => return Err(ExecError::Invariant("a read without a tool".to_owned())),
            (None, Some(tool)) => match self.send(tool, self.call(tool, 1, 1)).await {
                SettledOutcome::Applied(effect) => Outcome::Read {
                    result: effect.result,
                },
                SettledOutcome::NotApplied { error } | SettledOutcome::Unknown { error } => {
                    Outcome::Failed { error }
                }
            },
        };
        self.end_without_key(outcome).await
    }

    async fn pass_between_processes(&self, reply: &Reply) -> Result<(), ExecError> {
        let (durable, tenant) = (&self.kernel.seams.durable, &self.run.tenant);
        let entity = &self.action.entity_key;
        let mut ticket = None;
        let mut asked = 0;
        loop {
            let session = self.kernel.lease.session();
            match durable.pass(tenant, entity, session, ticket).await {
                Ok(None) => return Ok(()),
                Ok(Some(place)) => {
                    if reply.is_caller_gone() {
                        self.leave(place).await;
                        return Err(ExecError::Abandoned);
                    }
                    ticket = Some(place);
                    durable.wait(tenant, entity, place, asked).await;
                    asked = asked.saturating_add(1);
                }
                Err(StoreError::SessionDead { session, .. }) => {
                    self.kernel.lease.replace(session).await?;
                    ticket = None;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(crate) async fn leave(&self, ticket: Ticket) {
        let left = self
            .kernel
            .seams
            .durable
            .leave(&self.run.tenant, &self.action.entity_key, ticket)
            .await;
        if let Err(error) = left {
            tracing::warn!(%error, "a place in the queue could not be given back; it goes with the session");
        }
    }

    fn invalid_args(&self) -> Option<Refusal> {
        let schema = self.tool.as_ref()?.schema.as_ref()?;
        let problem = schema.check(&self.action.args).err()?;
        let error = self.redaction.scrub_text(problem.to_string());
        Some(Refusal::new(Reason::InvalidArgs, error))
    }

    pub(crate) fn call(&self, tool: &Tool, generation: u32, attempt: u32) -> Call {
        let action = &self.action;
        Call {
            tenant: self.run.tenant.clone(),
            operator: self.run.operator.clone(),
            connector: action.connector.clone(),
            tool: action.tool.clone(),
            args: action.args.clone(),
            entity_key: action.entity_key.clone(),
            idempotency_key: action.idempotency_key.clone(),
            downstream_key: life::downstream_key(
                &self.run.tenant,
                &action.idempotency_key,
                generation,
            ),
            attempt,
            deadline: tool.contract.timeout,
        }
    }

    /// Makes the call, bounded in time, and takes secrets out of whatever came back. A panic and
    /// the deadline are unknown outcomes: bytes may have left.
    pub(crate) async fn send(&self, tool: &Tool, call: Call) -> SettledOutcome {
        let connector: &dyn Connector = &*tool.connector;
        let invoked = AssertUnwindSafe(connector.invoke(&call)).catch_unwind();
        let outcome = match tokio::time::timeout(call.deadline, invoked).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_panic)) => unknown("the connector panicked"),
            Err(_elapsed) => unknown(&format!("no answer within {:?}", call.deadline)),
        };
        match outcome {
            InvokeOutcome::Applied(mut effect) => {
                effect.result = self.redaction.scrub(effect.result);
                effect.effect_id = effect.effect_id.map(|id| self.redaction.scrub_text(id));
                SettledOutcome::Applied(effect)
            }
            InvokeOutcome::NotApplied(error) => SettledOutcome::NotApplied {
                error: self.redaction.scrub_text(error.message),
            },
            InvokeOutcome::Unknown(error) => SettledOutcome::Unknown {
                error: self.redaction.scrub_text(error.message),
            },
        }
    }

    /// Gate 4: what registry, schema and trust say. Pure.
    pub(crate) fn weigh(&self) -> (Ruling, Clearance) {
        let refused = |refusal| (Ruling::closed("not asked"), Clearance::Refused(refusal));
        if self.tool.is_none() {
            let error = format!(
                "no tool `{}` on a connector `{}`; see `operators connectors list`",
                self.action.tool, self.action.connector
            );
            return refused(Refusal::new(Reason::UnknownTool, error));
        }
        if let Some(refusal) = self.invalid_args() {
            return refused(refusal);
        }
        let question = TrustQuestion {
            tenant: &self.run.tenant,
            operator: self.run.operator.as_ref(),
            action: &self.action,
            event: self.run.event.as_ref(),
        };
        let policy = &self.kernel.seams.policy;
        let ruling = catch_unwind(AssertUnwindSafe(|| policy.evaluate(&question)))
            .unwrap_or_else(|_panic| Ruling::closed("the policy panicked"));
        let clearance = match ruling.decision {
            TrustDecision::Allow | TrustDecision::Alert => Clearance::Cleared,
            TrustDecision::Block => {
                Clearance::Refused(Refusal::new(Reason::Policy, BLOCKED_BY_TRUST_POLICY))
            }
        };
        (ruling, clearance)
    }

    pub(crate) fn proposal(&self, ruling: Ruling) -> Proposal {
        let (run, shown) = (&self.run, &self.shown);
        let event = run.event.as_ref();
        Proposal {
            receipt_id: self.receipt_id.clone(),
            tenant_id: run.tenant.clone(),
            reseller_id: event.and_then(|event| event.reseller_id.clone()),
            operator: run.operator.clone(),
            run_id: run.run_id.clone(),
            plan_id: run.plan_id.clone(),
            event_id: event.map(|event| event.event_id.clone()),
            correlation_id: run.correlation_id.clone(),
            action: ReceiptAction {
                connector: shown.connector.clone(),
                tool: shown.tool.clone(),
                args: shown.args.clone(),
            },
            value: shown.value.clone(),
            entity_key: shown.entity_key.clone(),
            idempotency_key: shown.idempotency_key.clone(),
            revision: shown.revision,
            source_id: shown.source_id.clone(),
            index_hash: shown.index_hash.clone(),
            decision: ruling.decision,
            rule: ruling.rule,
            policy: ruling.policy,
            note: ruling.because,
            proposed_at: self.at,
        }
    }

    /// Ends what touches no key: the receipt is durable before the result is given.
    async fn end_without_key(self, outcome: Outcome) -> Result<ActionResult, ExecError> {
        let proposal = self.proposal(unasked());
        let attempt = u32::from(!matches!(outcome, Outcome::Refused(_)));
        let mark = AttemptMark {
            attempt,
            ..AttemptMark::none()
        };
        let ending = match &outcome {
            Outcome::Read { result } | Outcome::Applied { result } => Ending::Applied {
                result_digest: digest_of(result)?,
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
        self.kernel.record(&self.run.tenant, receipt).await?;
        let decision = proposal.decision;
        Ok(ActionResult::new(
            self.shown,
            decision,
            None,
            self.receipt_id,
            attempt,
            outcome,
        ))
    }
}

/// A read is not weighed; it runs as `ALLOW`.
fn unasked() -> Ruling {
    Ruling {
        decision: TrustDecision::Allow,
        rule: None,
        policy: None,
        because: None,
    }
}

fn unknown(message: &str) -> InvokeOutcome {
    InvokeOutcome::Unknown(ConnectorError::new(message))
}

/// `sha256:…` of a result.
pub(crate) fn digest_of(result: &serde_json::Value) -> Result<String, ExecError> {
    json::digest(result).map_err(|error| ExecError::Invariant(error.to_string()))
}
