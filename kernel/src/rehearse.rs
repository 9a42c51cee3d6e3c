//! What a plan would become against the store as it is now: invokes nothing, writes nothing.
//!
//! It asks the same pure functions as a real run, over records it only looked at.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::Serialize;

use crate::action::{
    ActionResult, Disposition, ExecutionPlan, Original, Outcome, PlannedAction, Reason, Refusal,
};
use crate::connector::{Effect, Tool};
use crate::durable::{Claim, ClaimAnswer, OnDoubt, SessionId, SettledOutcome, Settlement};
use crate::error::ExecError;
use crate::key::{EntityKey, IdempotencyKey, TenantId};
use crate::ledger::{Glimpse, InFlight, OwnerState};
use crate::life::{self, ClaimStep, EntityRecord, KeyRecord, NoteName, Phase, Through, Turn};
use crate::namespace;
use crate::proposed::{Case, Proposed};
use crate::redact::Redaction;
use crate::setup::{RunContext, Seams};
use crate::shared::Shared;
use crate::text::Text;
use crate::trust::TrustDecision;

/// Stands for the receipt of what an earlier action of the same plan would have done.
const THIS_PLAN: &str = "(this plan)";

/// What is said where a run would ask a person.
const WOULD_ASK: &str = "a person would be asked first";

/// What an action would become.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Forecast {
    /// The action; secret arguments as keyed hashes.
    pub action: PlannedAction,
    /// Always true: it is what tells a forecast from a result.
    pub dry_run: bool,
    /// What would become of it.
    pub decision: Disposition,
    /// Whether it would be let through, or is done already. What a connector would answer is not
    /// known. No, too, where it waits for an attempt whose owner may be gone.
    pub ok: bool,
    /// Why not: what is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What a person at the terminal may do about it. Never for a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Why not, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The trust rule that would decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Text>,
    /// For a duplicate of what is applied already: that application.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original: Option<Original>,
    /// For a conflict: the JSON pointers that differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflict: Vec<String>,
    /// What it would wait for first; all else is said as if that leaves nothing behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<Wait>,
}

/// Another attempt that is in flight on the same key or entity: an action waits for its end.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Wait {
    /// The key of that attempt.
    pub idempotency_key: IdempotencyKey,
    /// For how long its outcome has been open.
    pub in_flight_for_seconds: u64,
    /// What the process that made it calls itself.
    pub node: String,
    /// Whether that process is still there.
    pub owner: OwnerState,
}

/// Forecasts every action of a plan, as if each that would be sent took effect.
pub async fn forecast(
    seams: &Seams,
    run: &RunContext,
    plan: &ExecutionPlan,
) -> Result<Vec<Forecast>, ExecError> {
    plan.check("/actions")?;
    // One per tenant: what stubs would do changes nothing for the rest.
    let mut rehearsals: BTreeMap<TenantId, Rehearsal<'_>> = BTreeMap::new();
    let mut forecasts = Vec::with_capacity(plan.actions.len());
    for action in &plan.actions {
        let tool = seams.connectors.tool(&action.connector, &action.tool);
        let run = namespace::of(tool.as_ref(), run, action)?;
        let rehearsal = match rehearsals.entry(run.tenant.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(Rehearsal {
                in_flight: seams.durable.in_flight(&run.tenant).await?.0,
                seams,
                run,
                keys: BTreeMap::new(),
                entities: BTreeMap::new(),
                notes: BTreeMap::new(),
            }),
        };
        forecasts.push(rehearsal.action(action, tool).await?);
    }
    Ok(forecasts)
}

/// The store as it is, with what the plan would have changed by now.
struct Rehearsal<'a> {
    seams: &'a Seams,
    run: RunContext,
    in_flight: Vec<InFlight>,
    keys: BTreeMap<String, KeyRecord>,
    entities: BTreeMap<EntityKey, EntityRecord>,
    notes: BTreeMap<NoteName, Option<String>>,
}

impl Rehearsal<'_> {
    async fn action(
        &mut self,
        action: &PlannedAction,
        tool: Option<Tool>,
    ) -> Result<Forecast, ExecError> {
        let marked = Tool::secret_args(tool.as_ref());
        let key = self.seams.durable.redaction_key(&self.run.tenant);
        let redaction = Redaction::of(&action.args, marked, key).await?;
        let run = self.run.clone();
        let proposed = Proposed::new(self.seams, run, action.clone(), tool, redaction);
        if proposed.is_read() {
            let (ruling, refusal) = proposed.weigh_read(&*self.seams.policy);
            return Ok(flat(
                proposed.into_shown(),
                ruling.decision,
                ruling.rule,
                refusal.map(Outcome::Refused),
                None,
            ));
        }
        let case = Case::new(proposed, &*self.seams.policy)?;
        let claim = case.claim(SessionId(0), OnDoubt::Refuse, self.seams.clock.now());
        let tenant = &self.run.tenant;
        let glimpse = self
            .seams
            .durable
            .glimpse(tenant, &action.idempotency_key, &action.entity_key)
            .await?;
        let now = glimpse.now;
        let (key, entity, waits_for) = self.as_it_is(action, glimpse);
        let waits_for_unknown =
            (waits_for.as_ref()).is_some_and(|wait| wait.owner != OwnerState::Alive);
        // A living owner will be done when a real run gets its turn.
        let ending = match life::claim(key.as_ref(), &entity, Turn::Free, &claim, now) {
            ClaimStep::Grant {
                key: granted,
                entity,
            } => {
                let held = self.let_through(key.as_ref(), &claim).await?;
                if held.is_none() && !waits_for_unknown {
                    self.pretend_applied(granted.into_inner(), &entity);
                }
                held.map(Outcome::Refused)
            }
            ClaimStep::End {
                answer: ClaimAnswer::Duplicate { original, .. },
                ..
            } => Some(Outcome::Duplicate(original)),
            ClaimStep::End {
                answer: ClaimAnswer::Refused { refusal, .. },
                ..
            } => Some(Outcome::Refused(refusal)),
            // Another attempt of this very key: by then it is applied, or free again.
            ClaimStep::Wait
            | ClaimStep::GrantedBefore(_)
            | ClaimStep::Probe(_)
            | ClaimStep::End { .. } => None,
        };
        Ok(flat(
            case.proposed.into_shown(),
            case.proposal.decision,
            case.proposal.rule.clone(),
            ending,
            waits_for,
        ))
    }

    /// The key and the entity as a run would find them, and the attempt it would wait for. What the
    /// plan itself would have changed by now goes before what the store shows, and an attempt whose
    /// owner is gone has become what the next claim makes of it (rule 4.14).
    fn as_it_is(
        &self,
        action: &PlannedAction,
        glimpse: Glimpse,
    ) -> (Option<KeyRecord>, EntityRecord, Option<Wait>) {
        let Glimpse { key, entity, now } = glimpse;
        let planned = self.keys.get(action.idempotency_key.as_str()).cloned();
        let mut key = planned.or(key);
        let planned = self.entities.get(&action.entity_key).cloned();
        let mut entity = planned.unwrap_or(entity);
        let mut waits_for = None;
        for attempt in &self.in_flight {
            let of = &attempt.key;
            let is_of_key = key.as_ref().is_some_and(|key| {
                key.phase == Phase::Intent
                    && key.proposal.receipt_id == of.proposal.receipt_id
                    && key.session == of.session
            });
            let holds_entity = of.proposal.entity_key == action.entity_key
                && entity.holder == Some(of.session)
                && entity.fence == of.fence;
            if !is_of_key && !holds_entity {
                continue;
            }
            if attempt.owner == OwnerState::Gone {
                let died = life::owner_died(of, &entity, self.seams.clock.now());
                if let Some((dead, released, _)) = died {
                    if is_of_key {
                        key = Some(dead);
                    }
                    if holds_entity {
                        entity = released;
                    }
                }
            } else {
                waits_for = Some(Wait {
                    idempotency_key: of.proposal.idempotency_key.clone(),
                    in_flight_for_seconds: of.first_intent_at.until(now).as_secs(),
                    node: attempt.node.clone(),
                    owner: attempt.owner,
                });
            }
        }
        (key, entity, waits_for)
    }

    /// What people say about a claim that everything else lets through.
    async fn let_through(
        &mut self,
        key: Option<&KeyRecord>,
        claim: &Claim,
    ) -> Result<Option<Refusal>, ExecError> {
        let mut found = BTreeMap::new();
        for name in life::wanted(claim) {
            let body = match self.notes.get(&name) {
                Some(body) => body.clone(),
                None => self.seams.durable.note(&self.run.tenant, &name).await?,
            };
            found.insert(name, body);
        }
        let through = life::let_through(key, claim, &found);
        match through.map_err(|error| ExecError::Invariant(error.to_string()))? {
            Through::Granted(grant) => {
                let notes = grant.notes.into_iter().map(|note| (note.name, note.body));
                self.notes.extend(notes);
                Ok(None)
            }
            Through::Held(hold) => Ok(Some(if hold.notes.is_empty() {
                hold.refusal
            } else {
                // Only a run writes the question: there is nothing yet that could be answered.
                Refusal {
                    error: WOULD_ASK.to_owned(),
                    hint: None,
                    ..hold.refusal
                }
            })),
        }
    }

    /// Settles as a run would whose call took effect.
    fn pretend_applied(&mut self, mut key: KeyRecord, entity: &EntityRecord) {
        key.proposal.receipt_id = THIS_PLAN.into();
        let settlement = Settlement {
            session: key.session,
            mark: key.mark(),
            proposal: key.proposal.clone(),
            outcome: SettledOutcome::Applied(Shared::from(Effect::of(serde_json::Value::Null))),
            result_digest: None,
            at: self.seams.clock.now(),
        };
        let settled = life::settle(&key, entity, &settlement);
        let proposal = &key.proposal;
        if let Some(entity) = settled.entity {
            self.entities.insert(proposal.entity_key.clone(), entity);
        }
        if let Some(key) = settled.key {
            let name = proposal.idempotency_key.as_str().to_owned();
            self.keys.insert(name, key.into_inner());
        }
    }
}

/// Writes a forecast out flat, through the same words as a result.
fn flat(
    action: PlannedAction,
    decision: TrustDecision,
    rule: Option<Text>,
    ending: Option<Outcome>,
    waits_for: Option<Wait>,
) -> Forecast {
    // What is answered at once, or refused after the wait all the same, needs no word about it.
    let waits_for = waits_for.filter(|_| ending.is_none());
    let may_be_held = (waits_for.as_ref()).is_some_and(|wait| wait.owner != OwnerState::Alive);
    let outcome = ending.unwrap_or(Outcome::Applied {
        result: serde_json::Value::Null.into(),
    });
    let result = ActionResult::new(action, decision, rule, Text::default(), 0, outcome);
    Forecast {
        action: result.action,
        dry_run: true,
        decision: result.decision,
        ok: result.ok && !may_be_held,
        error: result.error,
        hint: result.hint,
        reason: result.reason,
        rule: result.rule,
        original: result.original,
        conflict: result.conflict,
        waits_for,
    }
}
