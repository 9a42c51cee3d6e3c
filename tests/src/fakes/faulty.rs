//! A store that fails on cue, or by chance: before the work is done, after it, or without a word.
//!
//! It wraps any store and changes nothing at rest. Every method stands here by name, so that a new
//! one cannot slip past it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
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
use tokio::sync::Semaphore;

use super::Trace;

/// The calls of a store that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// `open_session`.
    Open,
    /// `heartbeat`.
    Heartbeat,
    /// `close_session`.
    Close,
    /// `claim`.
    Claim,
    /// `settle` and `perform`.
    Settle,
    /// `record`.
    Record,
    /// `pass`.
    Pass,
    /// `leave`.
    Leave,
    /// `resolve`.
    Resolve,
    /// `forget`.
    Forget,
    /// `direct`.
    Direct,
    /// `redaction_key`.
    RedactionKey,
    /// Any call of the reading half.
    Look,
}

/// What happens to one call.
#[derive(Clone)]
pub enum Fault {
    /// Nothing.
    None,
    /// Nothing is done, and the store says that it may answer later.
    Before,
    /// The work is done and its answer is lost.
    After,
    /// Nothing is done, and the store cannot be used any more.
    Unusable,
    /// The work is done; the answer waits for a permit.
    Hold(Arc<Semaphore>),
    /// The work is done; then this runs, then the answer comes.
    Then(Arc<dyn Fn() + Send + Sync>),
    /// The call gives way this often before its work and again after it.
    Yield(usize),
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Before => "Before",
            Self::After => "After",
            Self::Unusable => "Unusable",
            Self::Hold(_) => "Hold",
            Self::Then(_) => "Then",
            Self::Yield(_) => "Yield",
        })
    }
}

type Chance = Box<dyn FnMut(Op) -> Fault + Send>;

/// A store whose calls fail as told.
pub struct FaultyExec {
    inner: Arc<dyn DurableExec>,
    scripts: Mutex<BTreeMap<Op, VecDeque<Fault>>>,
    chance: Mutex<Option<Chance>>,
    counts: Mutex<BTreeMap<Op, usize>>,
    waited_on: Mutex<BTreeSet<EntityKey>>,
    redaction_key: Option<RedactionKey>,
    trace: Trace,
}

impl fmt::Debug for FaultyExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyExec")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl FaultyExec {
    /// A wrapper at rest.
    pub fn new(inner: Arc<dyn DurableExec>) -> Self {
        Self {
            inner,
            scripts: Mutex::default(),
            chance: Mutex::default(),
            counts: Mutex::default(),
            waited_on: Mutex::default(),
            redaction_key: None,
            trace: Trace::default(),
        }
    }

    /// As `new`, writing what is asked and answered into `trace`.
    #[must_use]
    pub fn traced(mut self, trace: &Trace) -> Self {
        self.trace = trace.clone();
        self
    }

    /// Gives every tenant this key for its hashes, so that two runs show the same.
    #[must_use]
    pub fn with_redaction_key(mut self, key: RedactionKey) -> Self {
        self.redaction_key = Some(key);
        self
    }

    /// What happens to the next calls of `op`, in order.
    pub fn next(&self, op: Op, faults: impl IntoIterator<Item = Fault>) {
        let mut scripts = self.scripts.lock().expect("scripts");
        scripts.entry(op).or_default().extend(faults);
    }

    /// What happens to every call that no script speaks of.
    pub fn by_chance(&self, chance: impl FnMut(Op) -> Fault + Send + 'static) {
        *self.chance.lock().expect("chance") = Some(Box::new(chance));
    }

    /// From now on nothing fails.
    pub fn heal(&self) {
        self.scripts.lock().expect("scripts").clear();
        *self.chance.lock().expect("chance") = None;
    }

    /// How often `op` was called.
    pub fn count(&self, op: Op) -> usize {
        let counts = self.counts.lock().expect("counts");
        counts.get(&op).copied().unwrap_or(0)
    }

    /// On how many entities a caller has begun to wait for its turn.
    pub fn waited_on(&self) -> usize {
        self.waited_on.lock().expect("waited on").len()
    }

    fn fault(&self, op: Op) -> Fault {
        *self.counts.lock().expect("counts").entry(op).or_default() += 1;
        let scripted = self
            .scripts
            .lock()
            .expect("scripts")
            .get_mut(&op)
            .and_then(VecDeque::pop_front);
        scripted.unwrap_or_else(|| {
            let mut chance = self.chance.lock().expect("chance");
            chance.as_mut().map_or(Fault::None, |chance| chance(op))
        })
    }

    async fn with<T, F>(&self, op: Op, work: F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        let fault = self.fault(op);
        let unavailable = |problem: &str| StoreError::Unavailable {
            store: "the faulty store".to_owned(),
            problem: problem.to_owned(),
        };
        match fault {
            Fault::None => work.await,
            Fault::Before => Err(unavailable("scripted, before")),
            Fault::After => {
                work.await?;
                Err(unavailable("scripted, after"))
            }
            Fault::Unusable => Err(StoreError::Unusable {
                store: "the faulty store".to_owned(),
                problem: "scripted".to_owned(),
            }),
            Fault::Hold(gate) => {
                let answer = work.await;
                gate.acquire().await.expect("open").forget();
                answer
            }
            Fault::Then(then) => {
                let answer = work.await;
                then();
                answer
            }
            Fault::Yield(times) => {
                for _ in 0..times {
                    tokio::task::yield_now().await;
                }
                let answer = work.await;
                for _ in 0..times {
                    tokio::task::yield_now().await;
                }
                answer
            }
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl DurableExec for FaultyExec {
    async fn open_session(&self, node: &str, lease: Duration) -> Result<SessionId, StoreError> {
        self.with(Op::Open, self.inner.open_session(node, lease))
            .await
    }

    async fn heartbeat(&self, session: SessionId) -> Result<Beat, StoreError> {
        self.with(Op::Heartbeat, self.inner.heartbeat(session))
            .await
    }

    async fn close_session(&self, session: SessionId) -> Result<(), StoreError> {
        self.with(Op::Close, self.inner.close_session(session))
            .await
    }

    async fn claim(
        &self,
        tenant: &TenantId,
        claims: Vec<Claim>,
    ) -> Result<Vec<ClaimAnswer>, StoreError> {
        let answers = self
            .with(Op::Claim, self.inner.claim(tenant, claims))
            .await?;
        for answer in &answers {
            self.trace.note(match answer {
                ClaimAnswer::Claimed(_) => "store: claimed",
                ClaimAnswer::Wait(_) => "store: wait",
                ClaimAnswer::Probe(_) => "store: probe",
                ClaimAnswer::Duplicate { .. } => "store: duplicate",
                ClaimAnswer::Refused { .. } => "store: refused",
            });
        }
        Ok(answers)
    }

    async fn settle(
        &self,
        tenant: &TenantId,
        settlements: Vec<Settlement>,
    ) -> Result<Vec<SettleAnswer>, StoreError> {
        let answers = self
            .with(Op::Settle, self.inner.settle(tenant, settlements))
            .await?;
        self.trace.note("store: settled");
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
        let performed = self.inner.perform(tenant, performance);
        let performed = self.with(Op::Settle, performed).await?;
        self.trace.note("store: performed");
        Ok(performed)
    }

    async fn record(&self, tenant: &TenantId, receipts: Vec<Receipt>) -> Result<(), StoreError> {
        self.with(Op::Record, self.inner.record(tenant, receipts))
            .await?;
        self.trace.note("store: recorded");
        Ok(())
    }

    async fn pass(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        session: SessionId,
        asker: &str,
        ticket: Option<Ticket>,
    ) -> Result<Option<Ticket>, StoreError> {
        let passed = self.inner.pass(tenant, entity, session, asker, ticket);
        let place = self.with(Op::Pass, passed).await?;
        self.trace.note(match place {
            None => "store: passed",
            Some(_) => "store: wait",
        });
        Ok(place)
    }

    async fn wait(&self, tenant: &TenantId, entity: &EntityKey, ticket: Ticket, asked: u32) {
        self.waited_on
            .lock()
            .expect("waited on")
            .insert(entity.clone());
        self.inner.wait(tenant, entity, ticket, asked).await;
    }

    async fn leave(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<(), StoreError> {
        self.with(Op::Leave, self.inner.leave(tenant, entity, ticket))
            .await
    }

    async fn declare_owner_dead(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<bool, StoreError> {
        self.with(Op::Resolve, self.inner.declare_owner_dead(tenant, key))
            .await
    }

    async fn resolve(
        &self,
        tenant: &TenantId,
        resolution: Resolution,
    ) -> Result<ResolveAnswer, StoreError> {
        self.with(Op::Resolve, self.inner.resolve(tenant, resolution))
            .await
    }

    async fn forget(&self, tenant: &TenantId, forget: Forget) -> Result<ForgetAnswer, StoreError> {
        self.with(Op::Forget, self.inner.forget(tenant, forget))
            .await
    }

    async fn direct(
        &self,
        tenant: &TenantId,
        directive: Directive,
    ) -> Result<DirectiveAnswer, StoreError> {
        self.with(Op::Direct, self.inner.direct(tenant, directive))
            .await
    }

    async fn redaction_key(&self, tenant: &TenantId) -> Result<RedactionKey, StoreError> {
        let key = self
            .with(Op::RedactionKey, self.inner.redaction_key(tenant))
            .await?;
        Ok(self.redaction_key.clone().unwrap_or(key))
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Ledger for FaultyExec {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn glimpse(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
        entity: &EntityKey,
    ) -> Result<Glimpse, StoreError> {
        self.with(Op::Look, self.inner.glimpse(tenant, key, entity))
            .await
    }

    async fn key(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<KeyRecord>, StoreError> {
        self.with(Op::Look, self.inner.key(tenant, key)).await
    }

    async fn doubts(&self, tenant: &TenantId) -> Result<(Vec<KeyRecord>, StoreTime), StoreError> {
        self.with(Op::Look, self.inner.doubts(tenant)).await
    }

    async fn in_flight(&self, tenant: &TenantId) -> Result<(Vec<InFlight>, StoreTime), StoreError> {
        self.with(Op::Look, self.inner.in_flight(tenant)).await
    }

    async fn history_of(&self, tenant: &TenantId) -> Result<TenantHistory, StoreError> {
        self.with(Op::Look, self.inner.history_of(tenant)).await
    }

    async fn receipts(
        &self,
        tenant: &TenantId,
        filter: &ReceiptFilter,
        cursor: Cursor,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>, StoreError> {
        self.with(Op::Look, self.inner.receipts(tenant, filter, cursor, limit))
            .await
    }

    async fn note(&self, tenant: &TenantId, name: &NoteName) -> Result<Option<String>, StoreError> {
        self.with(Op::Look, self.inner.note(tenant, name)).await
    }

    async fn notes(
        &self,
        tenant: &TenantId,
        kind: NoteKind,
    ) -> Result<Vec<(String, String)>, StoreError> {
        self.with(Op::Look, self.inner.notes(tenant, kind)).await
    }

    fn log(&self) -> &dyn Log {
        self.inner.log()
    }

    async fn check(&self) -> Result<Vec<String>, StoreError> {
        self.with(Op::Look, self.inner.check()).await
    }
}
