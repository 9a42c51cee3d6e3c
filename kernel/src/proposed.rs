//! A proposal before any gate: looked up in the registry, with its secrets found.
//!
//! Owns what is known of one proposal without the store: what may be shown of it, how its call
//! looks, and what registry, schema and trust say. It writes nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::FutureExt;

use crate::action::{BLOCKED_BY_TRUST_POLICY, PlannedAction, Reason, Refusal};
use crate::clock::{IdKind, Timestamp};
use crate::connector::{
    Call, Connector, ConnectorError, Effect, EffectClass, InvokeOutcome, OnUnknown, ProbeOutcome,
    Tool, ToolMode,
};
use crate::content_digest::ContentDigest;
use crate::durable::{Claim, Clearance, Fingerprint, OnDoubt, SessionId, SettledOutcome};
use crate::error::ExecError;
use crate::json;
use crate::life::{self, NoteName};
use crate::packed::Packed;
use crate::permit::SendPermit;
use crate::receipt::{AttemptMark, Proposal, ReceiptAction};
use crate::redact::Redaction;
use crate::said;
use crate::setup::{RunContext, Seams};
use crate::shared::Shared;
use crate::text::Text;
use crate::trust::{Limit, OnAlert, Ruling, TrustDecision, TrustPolicy, TrustQuestion};
use crate::within::within;
use crate::work::{Rows, Statement, Work};

/// A proposal before any gate: with its tool, if there is one, and its secrets found.
#[derive(Debug)]
pub(crate) struct Proposed {
    pub(crate) run: RunContext,
    pub(crate) action: PlannedAction,
    /// The action as it may be shown, where that is not as it is.
    veiled: Option<PlannedAction>,
    pub(crate) tool: Option<Tool>,
    pub(crate) redaction: Redaction,
    pub(crate) receipt_id: Text,
    /// Whether the store can bring about what only a store can.
    store_performs: bool,
    at: Timestamp,
}

impl Proposed {
    pub(crate) fn new(
        seams: &Seams,
        run: RunContext,
        action: PlannedAction,
        tool: Option<Tool>,
        redaction: Redaction,
    ) -> Box<Self> {
        let veiled = redaction.shown().map(|shown| PlannedAction {
            args: shown.clone(),
            ..action.clone()
        });
        let receipt_id = seams.clock.id(IdKind::Receipt);
        let at = seams.clock.now();
        // Boxed: it goes from gate to gate, and is large.
        Box::new(Self {
            run,
            action,
            veiled,
            tool,
            redaction,
            receipt_id,
            store_performs: seams.durable.performs(),
            at,
        })
    }

    /// The action as it may be shown.
    fn shown(&self) -> &PlannedAction {
        self.veiled.as_ref().unwrap_or(&self.action)
    }

    /// As [`shown`](Self::shown), for its result.
    pub(crate) fn into_shown(self) -> PlannedAction {
        self.veiled.unwrap_or(self.action)
    }

    pub(crate) fn is_read(&self) -> bool {
        self.tool.as_ref().is_some_and(Tool::is_read)
    }

    /// Whether the store brings its effect about. A stub answers in its place, as for any other.
    pub(crate) fn is_transactional(&self) -> bool {
        self.tool.as_ref().is_some_and(|tool| {
            let contract = &tool.contract;
            contract.effect == EffectClass::Transactional && contract.mode == ToolMode::Live
        })
    }

    pub(crate) fn invalid_args(&self) -> Option<Refusal> {
        let schema = self.tool.as_ref()?.schema.as_ref()?;
        // It may be an embedder's own: one that panics has not found the arguments good.
        let checked = AssertUnwindSafe(|| {
            let problem = schema.check(&self.action.args).err()?;
            Some(said::sentence(&self.redaction, problem.to_string()))
        });
        let panicked = |_| Some("the check of its arguments panicked".to_owned());
        let error = catch_unwind(checked).unwrap_or_else(panicked)?;
        Some(Refusal::new(Reason::InvalidArgs, error))
    }

    /// Its call, as one without an effect is made: a side effect gets a permit with bounds.
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
            permit: SendPermit::always(),
        }
    }

    /// Makes the call, bounded in time, and takes secrets out of whatever came back. A panic and
    /// the deadline are unknown outcomes: bytes may have left.
    pub(crate) async fn send(&self, tool: &Tool, call: Call) -> SettledOutcome {
        let connector: &dyn Connector = &*tool.connector;
        // Made, polled and dropped inside: a connector may panic at any of the three.
        let invoked = async { within(call.deadline, connector.invoke(&call)).await };
        let outcome = match AssertUnwindSafe(invoked).catch_unwind().await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_elapsed)) => {
                let deadline = tool.contract.timeout;
                unknown(&format!("no answer within {deadline:?}"))
            }
            Err(_panic) => unknown("the connector panicked"),
        };
        match outcome {
            InvokeOutcome::Applied(effect) => SettledOutcome::Applied(self.kept(effect).into()),
            InvokeOutcome::NotApplied(error) => SettledOutcome::NotApplied {
                error: said::sentence(&self.redaction, error.message),
            },
            InvokeOutcome::Unknown(error) => SettledOutcome::Unknown {
                error: said::sentence(&self.redaction, error.message),
            },
        }
    }

    /// What the store is to run, with secrets taken out of whatever comes back.
    pub(crate) fn prepare(
        &self,
        tool: &Tool,
        call: &Call,
    ) -> Result<Arc<dyn Work>, SettledOutcome> {
        let connector: &dyn Connector = &*tool.connector;
        let prepared = catch_unwind(AssertUnwindSafe(|| connector.prepare(call)))
            .unwrap_or_else(|_panic| Err(ConnectorError::new("the connector panicked")));
        match prepared {
            Ok(work) => Ok(Arc::new(Scrubbed {
                work,
                redaction: self.redaction.clone(),
            })),
            Err(error) => Err(SettledOutcome::NotApplied {
                error: said::sentence(&self.redaction, error.message),
            }),
        }
    }

    /// Asks whether an earlier attempt took effect, bounded in time, and takes secrets out of
    /// whatever came back.
    pub(crate) async fn ask(&self, tool: &Tool, call: Call) -> ProbeOutcome {
        let connector: &dyn Connector = &*tool.connector;
        let probed = async { within(call.deadline, connector.probe(&call)).await };
        let unknown = |message: &str| ProbeOutcome::Unknown(ConnectorError::new(message));
        match AssertUnwindSafe(probed).catch_unwind().await {
            Ok(Ok(ProbeOutcome::Applied(effect))) => ProbeOutcome::Applied(self.kept(effect)),
            Ok(Ok(ProbeOutcome::NotApplied)) => ProbeOutcome::NotApplied,
            Ok(Ok(ProbeOutcome::Unknown(error))) => {
                unknown(&said::sentence(&self.redaction, error.message))
            }
            Ok(Err(_elapsed)) => unknown("the probe had no answer in time"),
            Err(_panic) => unknown("the probe panicked"),
        }
    }

    fn kept(&self, effect: Effect) -> Effect {
        if self.is_read() {
            said::reading(&self.redaction, effect)
        } else {
            said::effect(&self.redaction, effect)
        }
    }

    /// Gate 4: what registry, schema and trust say. Pure.
    fn weigh(&self, policy: &dyn TrustPolicy) -> (Ruling, Clearance) {
        let refused = |refusal| (Ruling::closed("not asked"), Clearance::Refused(refusal));
        if self.tool.is_none() {
            let error = format!(
                "no tool `{}` is configured on a connector `{}`",
                self.action.tool, self.action.connector
            );
            return refused(Refusal::new(Reason::UnknownTool, error));
        }
        if self.is_transactional() && !self.store_performs {
            let error = format!(
                "`{}` is a statement in the store's own database, and this store runs none",
                self.action.tool
            );
            return refused(Refusal::new(Reason::UnknownTool, error));
        }
        if let Some(refusal) = self.invalid_args() {
            return refused(refusal);
        }
        let ruling = self
            .ruled(|question| policy.evaluate(question))
            .unless_unkept();
        let clearance = match ruling.decision {
            TrustDecision::Allow | TrustDecision::Alert => Clearance::Cleared,
            TrustDecision::Block => {
                Clearance::Refused(Refusal::new(Reason::Policy, BLOCKED_BY_TRUST_POLICY))
            }
        };
        (ruling, clearance)
    }

    /// As for [`Case::new`], of a read: what schema and trust say, and why it is not sent, if so.
    pub(crate) fn weigh_read(&self, policy: &dyn TrustPolicy) -> (Ruling, Option<Refusal>) {
        if let Some(refusal) = self.invalid_args() {
            return (Ruling::of(TrustDecision::Allow), Some(refusal));
        }
        let said = self.ruled(|question| policy.evaluate_read(question));
        let (decision, refusal) = match said.decision {
            TrustDecision::Allow => (TrustDecision::Allow, None),
            // There is nothing to raise about a read, so what is not plainly allowed is blocked.
            TrustDecision::Alert | TrustDecision::Block => {
                let refusal = Refusal::new(Reason::Policy, BLOCKED_BY_TRUST_POLICY);
                (TrustDecision::Block, Some(refusal))
            }
        };
        let ruling = Ruling {
            rule: said.rule,
            policy: said.policy,
            because: said.because,
            ..Ruling::of(decision)
        };
        (ruling, refusal)
    }

    /// What trust answers; a rehearsal is judged as the real thing would be.
    fn ruled(&self, ask: impl FnOnce(&TrustQuestion<'_>) -> Ruling) -> Ruling {
        let tenant = &self.run.tenant;
        let live = tenant.is_stub().then(|| tenant.live());
        let question = TrustQuestion {
            tenant: live.as_ref().unwrap_or(tenant),
            operator: self.run.operator.as_ref(),
            action: &self.action,
            event: self.run.event.as_deref(),
        };
        catch_unwind(AssertUnwindSafe(|| ask(&question)))
            .unwrap_or_else(|_panic| Ruling::closed("the policy panicked"))
    }

    pub(crate) fn proposal(&self, ruling: Ruling) -> Proposal {
        let (run, shown) = (&self.run, self.shown());
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
            action: Shared::from(ReceiptAction {
                connector: shown.connector.clone(),
                tool: shown.tool.clone(),
                args: Packed::from(&*shown.args),
            }),
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
            approver: None,
            known_by: None,
            limits: ruling
                .limits
                .iter()
                .map(|limit| NoteName::limit(limit).name)
                .collect(),
            proposed_at: self.at,
        }
    }
}

/// A proposal with everything that decides it in hand, except what the store remembers.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) proposed: Box<Proposed>,
    pub(crate) proposal: Shared<Proposal>,
    clearance: Clearance,
    on_alert: OnAlert,
    limits: Vec<Limit>,
    fingerprint: Fingerprint,
}

impl Case {
    /// Asks registry, schema and trust. Pure; nothing is written.
    pub(crate) fn new(
        proposed: Box<Proposed>,
        policy: &dyn TrustPolicy,
    ) -> Result<Self, ExecError> {
        let (ruling, clearance) = proposed.weigh(policy);
        let limits = ruling.limits.clone();
        let on_alert = match ruling.decision {
            TrustDecision::Alert => ruling.on_alert,
            TrustDecision::Allow | TrustDecision::Block => OnAlert::Notify,
        };
        let proposal = Shared::from(proposed.proposal(ruling));
        let said = life::Said::with(&*proposed.shown().args, &proposal);
        let fingerprint = Fingerprint(said.digest().map_err(|error| unwritable(&error))?);
        Ok(Self {
            proposed,
            proposal,
            clearance,
            on_alert,
            limits,
            fingerprint,
        })
    }

    /// The receipt names whoever approved it.
    pub(crate) fn name_approver(&mut self, mark: &AttemptMark) {
        if mark.approver.is_some() {
            self.proposal.name_approver(mark.approver.clone());
        }
    }

    /// What the store is asked.
    pub(crate) fn claim(&self, session: SessionId, on_doubt: OnDoubt, at: Timestamp) -> Claim {
        let contract = self.proposed.tool.as_ref().map(|tool| &tool.contract);
        Claim {
            session,
            ticket: None,
            asked_before: false,
            proposal: self.proposal.clone(),
            fingerprint: self.fingerprint,
            effect: contract.map_or(EffectClass::Opaque, |contract| contract.effect),
            on_unknown: contract.map_or(OnUnknown::Hold, |contract| contract.on_unknown),
            deadline: contract
                .map(|contract| contract.timeout)
                .unwrap_or_default(),
            max_land: contract
                .map(|contract| contract.max_land)
                .unwrap_or_default(),
            clearance: self.clearance.clone(),
            on_alert: self.on_alert,
            limits: self.limits.clone(),
            on_doubt,
            at,
        }
    }
}

/// Work whose answers are as safe to keep as any connector's.
#[derive(Debug)]
struct Scrubbed {
    work: Arc<dyn Work>,
    redaction: Redaction,
}

impl Work for Scrubbed {
    fn statement(&self) -> &Statement {
        self.work.statement()
    }

    fn outcome(&self, ran: Result<Rows, String>) -> InvokeOutcome {
        // A connector that panics has said nothing, so the statement is undone.
        let outcome = catch_unwind(AssertUnwindSafe(|| self.work.outcome(ran)))
            .unwrap_or_else(|_panic| unknown("the connector panicked"));
        let scrubbed = |error: ConnectorError| {
            ConnectorError::new(said::sentence(&self.redaction, error.message))
        };
        match outcome {
            InvokeOutcome::Applied(effect) => {
                InvokeOutcome::Applied(said::effect(&self.redaction, effect))
            }
            InvokeOutcome::NotApplied(error) | InvokeOutcome::Unknown(error) => {
                InvokeOutcome::NotApplied(scrubbed(error))
            }
        }
    }
}

fn unknown(message: &str) -> InvokeOutcome {
    InvokeOutcome::Unknown(ConnectorError::new(message))
}

/// The digest of a result.
pub(crate) fn digest_of(result: &impl serde::Serialize) -> Result<ContentDigest, ExecError> {
    json::digest(result).map_err(|error| unwritable(&error))
}

fn unwritable(error: &json::JsonError) -> ExecError {
    ExecError::Invariant(error.to_string())
}
