//! A store with places to die around its calls.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use operators_kernel::life::{KeyRecord, NoteKind, NoteName};
use operators_kernel::log::Log;
use operators_kernel::{
    Beat, Claim, ClaimAnswer, Cursor, Directive, DirectiveAnswer, DurableExec, EntityKey, Forget,
    ForgetAnswer, Glimpse, IdempotencyKey, InFlight, Ledger, LedgerEntry, Performance, Performed,
    Receipt, ReceiptFilter, RedactionKey, Resolution, ResolveAnswer, SessionId, SettleAnswer,
    Settlement, Standstills, StoreError, StoreTime, TenantHistory, TenantId, Ticket,
};
use operators_tests::history::{Line, QueuedAt};

use crate::crashing::{Point, Wires};
use crate::say;

/// A store with places to die around its calls; it also tells the test what it was asked.
#[derive(Debug)]
pub struct CrashingExec {
    inner: Arc<dyn DurableExec>,
    wires: Arc<Wires>,
    proposed: Mutex<BTreeSet<String>>,
}

impl CrashingExec {
    /// Wraps a store.
    pub fn new(inner: Arc<dyn DurableExec>, wires: Arc<Wires>) -> Self {
        Self {
            inner,
            wires,
            proposed: Mutex::default(),
        }
    }

    fn tell_proposed(&self, claims: &[Claim]) {
        for claim in claims {
            let id = claim.proposal.receipt_id.to_string();
            if self.proposed.lock().expect("proposed").insert(id.clone()) {
                say(&Line::Proposed(id));
            }
        }
    }

    fn tell_answered(asked: &[Claim], answers: &[ClaimAnswer]) {
        for (claim, answer) in asked.iter().zip(answers) {
            let proposal = &claim.proposal;
            match answer {
                ClaimAnswer::Wait(ticket) if claim.ticket != Some(*ticket) => {
                    say(&Line::Ticket(QueuedAt {
                        receipt_id: proposal.receipt_id.to_string(),
                        key: proposal.idempotency_key.to_string(),
                        entity: proposal.entity_key.to_string(),
                        ticket: ticket.0,
                    }));
                }
                ClaimAnswer::Wait(_) | ClaimAnswer::Probe(_) => {}
                ClaimAnswer::Claimed(_)
                | ClaimAnswer::Duplicate { .. }
                | ClaimAnswer::Refused { .. } => {
                    say(&Line::Answered(proposal.receipt_id.to_string()));
                }
            }
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl DurableExec for CrashingExec {
    async fn open_session(&self, node: &str, lease: Duration) -> Result<SessionId, StoreError> {
        self.inner.open_session(node, lease).await
    }

    async fn heartbeat(&self, session: SessionId) -> Result<Beat, StoreError> {
        let beating = self.inner.heartbeat(session);
        self.wires
            .pass_during(Point::DuringHeartbeat, beating)
            .await
    }

    async fn close_session(&self, session: SessionId) -> Result<(), StoreError> {
        self.inner.close_session(session).await
    }

    async fn claim(
        &self,
        tenant: &TenantId,
        claims: Vec<Claim>,
    ) -> Result<Vec<ClaimAnswer>, StoreError> {
        self.tell_proposed(&claims);
        self.wires.pass(Point::BeforeClaim);
        let claiming = self.inner.claim(tenant, claims.clone());
        let claiming = self.wires.pass_during(Point::DuringClaim, claiming);
        let answers = self.wires.pass_inside(Point::InsideClaim, claiming).await?;
        Self::tell_answered(&claims, &answers);
        if answers
            .iter()
            .any(|answer| matches!(answer, ClaimAnswer::Claimed(_)))
        {
            self.wires.pass(Point::AfterClaim);
        }
        Ok(answers)
    }

    async fn settle(
        &self,
        tenant: &TenantId,
        settlements: Vec<Settlement>,
    ) -> Result<Vec<SettleAnswer>, StoreError> {
        self.wires.pass(Point::BeforeSettle);
        let settling = self.inner.settle(tenant, settlements);
        let settling = self.wires.pass_during(Point::DuringSettle, settling);
        let answers = self
            .wires
            .pass_inside(Point::InsideSettle, settling)
            .await?;
        self.wires.pass(Point::AfterSettle);
        Ok(answers)
    }

    fn standstills(&self) -> Option<Arc<dyn Standstills>> {
        self.inner.standstills()
    }

    fn performs(&self) -> bool {
        self.inner.performs()
    }

    async fn perform(
        &self,
        tenant: &TenantId,
        performance: Performance,
    ) -> Result<Performed, StoreError> {
        self.wires.pass(Point::BeforeSettle);
        let performing = self.inner.perform(tenant, performance);
        let performing = self.wires.pass_during(Point::DuringSettle, performing);
        let inside = self.wires.pass_inside(Point::InsideSettle, performing);
        let performed = inside.await?;
        self.wires.pass(Point::AfterSettle);
        Ok(performed)
    }

    async fn record(&self, tenant: &TenantId, receipts: Vec<Receipt>) -> Result<(), StoreError> {
        self.inner.record(tenant, receipts).await
    }

    async fn pass(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        session: SessionId,
        asker: &str,
        ticket: Option<Ticket>,
    ) -> Result<Option<Ticket>, StoreError> {
        self.inner
            .pass(tenant, entity, session, asker, ticket)
            .await
    }

    async fn wait(&self, tenant: &TenantId, entity: &EntityKey, ticket: Ticket, asked: u32) {
        self.inner.wait(tenant, entity, ticket, asked).await;
    }

    async fn leave(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<(), StoreError> {
        self.inner.leave(tenant, entity, ticket).await
    }

    async fn declare_owner_dead(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<bool, StoreError> {
        self.inner.declare_owner_dead(tenant, key).await
    }

    async fn resolve(
        &self,
        tenant: &TenantId,
        resolution: Resolution,
    ) -> Result<ResolveAnswer, StoreError> {
        self.inner.resolve(tenant, resolution).await
    }

    async fn forget(&self, tenant: &TenantId, forget: Forget) -> Result<ForgetAnswer, StoreError> {
        self.inner.forget(tenant, forget).await
    }

    async fn direct(
        &self,
        tenant: &TenantId,
        directive: Directive,
    ) -> Result<DirectiveAnswer, StoreError> {
        self.inner.direct(tenant, directive).await
    }

    async fn redaction_key(&self, tenant: &TenantId) -> Result<RedactionKey, StoreError> {
        self.inner.redaction_key(tenant).await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Ledger for CrashingExec {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn glimpse(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
        entity: &EntityKey,
    ) -> Result<Glimpse, StoreError> {
        self.inner.glimpse(tenant, key, entity).await
    }

    async fn key(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<KeyRecord>, StoreError> {
        self.inner.key(tenant, key).await
    }

    async fn doubts(&self, tenant: &TenantId) -> Result<(Vec<KeyRecord>, StoreTime), StoreError> {
        self.inner.doubts(tenant).await
    }

    async fn in_flight(&self, tenant: &TenantId) -> Result<(Vec<InFlight>, StoreTime), StoreError> {
        self.inner.in_flight(tenant).await
    }

    async fn history_of(&self, tenant: &TenantId) -> Result<TenantHistory, StoreError> {
        self.inner.history_of(tenant).await
    }

    async fn receipts(
        &self,
        tenant: &TenantId,
        filter: &ReceiptFilter,
        cursor: Cursor,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>, StoreError> {
        self.inner.receipts(tenant, filter, cursor, limit).await
    }

    async fn note(&self, tenant: &TenantId, name: &NoteName) -> Result<Option<String>, StoreError> {
        self.inner.note(tenant, name).await
    }

    async fn notes(
        &self,
        tenant: &TenantId,
        kind: NoteKind,
    ) -> Result<Vec<(String, String)>, StoreError> {
        self.inner.notes(tenant, kind).await
    }

    fn log(&self) -> &dyn Log {
        self.inner.log()
    }

    async fn check(&self) -> Result<Vec<String>, StoreError> {
        self.inner.check().await
    }
}
