//! One caller of a store, so that a rule reads as what is asked and what is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use operators_kernel::life::{EntityRecord, KeyRecord, NoteName};
use operators_kernel::{
    Claim, ClaimAnswer, Clearance, ConnectorName, ContentDigest, Cursor, DurableExec, Effect,
    EffectClass, Fingerprint, Forget, ForgetAnswer, LedgerEntry, OnAlert, OnDoubt, OnUnknown,
    Original, Proposal, Reason, Receipt, ReceiptAction, ReceiptFilter, Refusal, Resolution,
    ResolveAnswer, Resolver, SessionId, SettleAnswer, SettledOutcome, Settlement, Shared,
    StoreError, TenantId, Text, Ticket, Timestamp, ToolName, TrustDecision, Verdict, json,
};
use serde_json::json;

use crate::fixtures::{entity, key, object, tenant, tenant_named};
use crate::stores::Bench;

/// Outlasts every test.
pub const LONG: Duration = Duration::from_hours(1);

/// The receipts, and the moments, of one test process never repeat.
static COUNT: AtomicI64 = AtomicI64::new(1);

fn count() -> i64 {
    COUNT.fetch_add(1, Ordering::SeqCst)
}

/// An id nobody else has.
pub fn fresh_id() -> Text {
    format!("rc_{:08}", count()).into()
}

/// A moment after all before.
pub fn moment() -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000 + count())
}

/// A proposal of an opaque `orders.hold`, whose call may land for an hour.
pub fn ask(entity_key: &str, idempotency_key: &str) -> Claim {
    let at = moment();
    Claim {
        session: SessionId(0),
        ticket: None,
        asked_before: false,
        proposal: Shared::from(Proposal {
            receipt_id: fresh_id(),
            tenant_id: tenant(),
            reseller_id: None,
            operator: None,
            run_id: "run_1".into(),
            plan_id: "pl_1".into(),
            event_id: None,
            correlation_id: "co_1".into(),
            action: Shared::from(ReceiptAction {
                connector: ConnectorName::parse("shop").expect("a connector"),
                tool: ToolName::parse("orders.hold").expect("a tool"),
                args: object(json!({"order": "SO-1"})).into(),
            }),
            value: None,
            entity_key: entity(entity_key),
            idempotency_key: key(idempotency_key),
            revision: None,
            source_id: None,
            index_hash: None,
            decision: TrustDecision::Allow,
            rule: Some("the test's rule".into()),
            policy: None,
            note: None,
            approver: None,
            known_by: None,
            limits: Vec::new(),
            proposed_at: at,
        }),
        fingerprint: Fingerprint(ContentDigest::of(b"")),
        effect: EffectClass::Opaque,
        on_unknown: OnUnknown::Hold,
        deadline: LONG,
        max_land: Duration::ZERO,
        clearance: Clearance::Cleared,
        on_alert: OnAlert::Notify,
        limits: Vec::new(),
        on_doubt: OnDoubt::Refuse,
        at,
    }
}

/// As [`ask`], of another effect class.
pub fn ask_as(effect: EffectClass, entity_key: &str, idempotency_key: &str) -> Claim {
    let mut claim = ask(entity_key, idempotency_key);
    claim.effect = effect;
    claim
}

/// As [`ask_as`], with a call that can land for a unit of the store's time only.
pub fn ask_brief(
    bench: &dyn Bench,
    effect: EffectClass,
    entity_key: &str,
    idempotency_key: &str,
) -> Claim {
    let mut claim = ask_as(effect, entity_key, idempotency_key);
    claim.deadline = bench.unit();
    claim
}

/// The same proposal again, by somebody who knows nothing of the first.
pub fn again(claim: &Claim) -> Claim {
    let mut again = claim.clone();
    again.proposal.receipt_id = fresh_id();
    again.ticket = None;
    again.asked_before = false;
    again.at = moment();
    again
}

/// The same proposal once more, by whoever made it and heard no answer.
pub fn unheard(claim: &Claim) -> Claim {
    let mut unheard = claim.clone();
    unheard.ticket = None;
    unheard.asked_before = true;
    unheard.at = moment();
    unheard
}

/// What a proposal says, as one hash.
pub fn fingerprint(proposal: &Proposal) -> Fingerprint {
    let said = json!({
        "connector": proposal.action.connector,
        "tool": proposal.action.tool,
        "args": proposal.action.args,
        "value": proposal.value,
        "entity_key": proposal.entity_key,
    });
    Fingerprint(json::digest(&said).expect("a digest"))
}

/// It happened, and the vendor answered this.
pub fn applied_with(result: serde_json::Value) -> SettledOutcome {
    let effect_id = Some("vendor-7".to_owned());
    SettledOutcome::Applied(
        Effect {
            result: result.into(),
            effect_id,
        }
        .into(),
    )
}

/// It happened.
pub fn applied() -> SettledOutcome {
    applied_with(json!({"status": "done"}))
}

/// It did not.
pub fn failed() -> SettledOutcome {
    SettledOutcome::NotApplied {
        error: "the vendor said no".to_owned(),
    }
}

/// Nobody knows.
pub fn unknown() -> SettledOutcome {
    SettledOutcome::Unknown {
        error: "the answer was lost".to_owned(),
    }
}

/// A person says that it happened.
pub fn it_happened() -> Verdict {
    Verdict::Applied(Effect::of(json!({"seen": "by eye"})))
}

/// A session on a handle of its own.
#[derive(Debug, Clone)]
pub struct Desk {
    /// The handle.
    pub store: Arc<dyn DurableExec>,
    /// The session.
    pub session: SessionId,
    /// Whose actions it brings.
    pub tenant: TenantId,
}

impl Desk {
    /// Opens a session that outlasts the test.
    pub async fn open(bench: &dyn Bench) -> Self {
        Self::lasting(bench, LONG).await
    }

    /// Opens a session of that lease.
    pub async fn lasting(bench: &dyn Bench, lease: Duration) -> Self {
        let store = bench.open().await;
        let session = store.open_session("test", lease).await.expect("a session");
        Self {
            store,
            session,
            tenant: tenant(),
        }
    }

    /// The same session, for another tenant.
    #[must_use]
    pub fn of(&self, name: &str) -> Self {
        Self {
            tenant: tenant_named(name),
            ..self.clone()
        }
    }

    /// A claim as this desk would bring it.
    pub fn filled(&self, claim: &Claim) -> Claim {
        let mut claim = claim.clone();
        claim.session = self.session;
        claim.proposal.tenant_id = self.tenant.clone();
        let limits = claim.limits.iter().map(|limit| NoteName::limit(limit).name);
        claim.proposal.limits = limits.collect();
        claim.fingerprint = fingerprint(&claim.proposal);
        claim
    }

    /// Claims, and shows an error too.
    pub async fn try_ask(&self, claim: &Claim) -> Result<ClaimAnswer, StoreError> {
        let claims = vec![self.filled(claim)];
        let mut answers = self.store.claim(&self.tenant, claims).await?;
        assert_eq!(answers.len(), 1, "one answer per claim");
        Ok(answers.remove(0))
    }

    /// Claims.
    pub async fn ask(&self, claim: &Claim) -> ClaimAnswer {
        self.try_ask(claim).await.expect("the store answers")
    }

    /// Claims what must be granted; the settlement to come, as applied.
    pub async fn take(&self, claim: &Claim) -> Settlement {
        match self.ask(claim).await {
            ClaimAnswer::Claimed(mark) => Settlement {
                session: self.session,
                mark,
                proposal: self.filled(claim).proposal,
                outcome: applied(),
                result_digest: None,
                at: moment(),
            },
            other => panic!("not granted: {other:?}"),
        }
    }

    /// Claims what must wait; its ticket.
    pub async fn queue(&self, claim: &Claim) -> Ticket {
        match self.ask(claim).await {
            ClaimAnswer::Wait(ticket) => ticket,
            other => panic!("did not have to wait: {other:?}"),
        }
    }

    /// Claims what must be refused.
    pub async fn refusal(&self, claim: &Claim) -> Refusal {
        match self.ask(claim).await {
            ClaimAnswer::Refused { refusal, .. } => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Claims what must be refused for this reason.
    pub async fn refused_as(&self, reason: Reason, claim: &Claim) {
        let refusal = self.refusal(claim).await;
        assert_eq!(refusal.reason, reason, "{}", refusal.error);
    }

    /// Claims what must be a duplicate.
    pub async fn duplicate(&self, claim: &Claim) -> Original {
        match self.ask(claim).await {
            ClaimAnswer::Duplicate { original, .. } => original,
            other => panic!("no duplicate: {other:?}"),
        }
    }

    /// Ends an attempt.
    pub async fn end(&self, attempt: &Settlement, outcome: SettledOutcome) -> SettleAnswer {
        let mut settlement = attempt.clone();
        if matches!(outcome, SettledOutcome::Applied(_)) {
            settlement.result_digest = Some(ContentDigest::of(b""));
        }
        settlement.outcome = outcome;
        let settled = self.store.settle(&self.tenant, vec![settlement]).await;
        settled.expect("the store settles").remove(0)
    }

    /// Claims and ends at once.
    pub async fn run(&self, claim: &Claim, outcome: SettledOutcome) -> Settlement {
        let attempt = self.take(claim).await;
        self.end(&attempt, outcome).await;
        attempt
    }

    /// A person, or the probe, answers a doubt.
    pub async fn answer(
        &self,
        name: &str,
        attempt: u32,
        verdict: Verdict,
        by: Resolver,
    ) -> ResolveAnswer {
        let resolution = self.resolution(name, attempt, verdict, by).await;
        let resolved = self.store.resolve(&self.tenant, resolution).await;
        resolved.expect("the store resolves")
    }

    /// An answer about an attempt of the key's generation now.
    pub async fn resolution(
        &self,
        name: &str,
        attempt: u32,
        verdict: Verdict,
        by: Resolver,
    ) -> Resolution {
        let record = self.store.key(&self.tenant, &key(name)).await;
        Resolution {
            key: key(name),
            generation: record.expect("a look").map_or(1, |key| key.generation),
            attempt,
            verdict,
            by,
            note: Some("looked".to_owned()),
            receipt_id: fresh_id(),
            result_digest: Some(ContentDigest::of(b"1")),
            at: moment(),
        }
    }

    /// A person answers a doubt.
    pub async fn resolve(&self, name: &str, attempt: u32, verdict: Verdict) -> ResolveAnswer {
        let person = Resolver::Person("ada".into());
        self.answer(name, attempt, verdict, person).await
    }

    /// Opens a key's next generation.
    pub async fn forget(&self, name: &str) -> ForgetAnswer {
        let wish = Forget {
            key: key(name),
            by: "ada".into(),
            note: Some("on purpose".to_owned()),
            receipt_id: fresh_id(),
            at: moment(),
        };
        let forgotten = self.store.forget(&self.tenant, wish).await;
        forgotten.expect("the store forgets")
    }

    /// Ends the session in good order.
    pub async fn close(&self) {
        let closed = self.store.close_session(self.session).await;
        closed.expect("the store closes");
    }

    /// A key's record, if there is one.
    pub async fn find(&self, name: &str) -> Option<KeyRecord> {
        let found = self.store.key(&self.tenant, &key(name)).await;
        found.expect("the store shows")
    }

    /// A key's record.
    pub async fn key(&self, name: &str) -> KeyRecord {
        self.find(name).await.expect("the key was claimed")
    }

    /// An entity's record.
    pub async fn entity(&self, name: &str) -> EntityRecord {
        let found = self
            .store
            .glimpse(&self.tenant, &key("none"), &entity(name))
            .await;
        found.expect("the store shows").entity
    }

    /// Every receipt of the tenant with its number, oldest first.
    pub async fn entries(&self) -> Vec<LedgerEntry> {
        let all = ReceiptFilter::default();
        let page = self
            .store
            .receipts(&self.tenant, &all, Cursor::After(0), usize::MAX)
            .await;
        page.expect("the store shows")
    }

    /// Every receipt of the tenant, oldest first.
    pub async fn trail(&self) -> Vec<Receipt> {
        let entries = self.entries().await;
        entries.into_iter().map(|entry| entry.receipt).collect()
    }

    /// The one receipt of that id.
    pub async fn receipt(&self, receipt_id: &str) -> Receipt {
        let trail = self.trail().await;
        let mut found = trail.into_iter().filter(|r| r.receipt_id == receipt_id);
        let receipt = found.next().unwrap_or_else(|| panic!("no {receipt_id}"));
        assert!(found.next().is_none(), "{receipt_id} is there twice");
        receipt
    }
}
