//! How a test gets a store: a fresh one of each kind, other handles on it, and its time.
//!
//! The author of another store writes one [`Bench`] and lists it in `tests/conformance/main.rs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use operators_kernel::life::{KeyRecord, NoteKind, NoteName};
use operators_kernel::log::Log;
use operators_kernel::{
    Beat, Claim, ClaimAnswer, Clock, Cursor, Directive, DirectiveAnswer, DurableExec, EntityKey,
    Forget, ForgetAnswer, Glimpse, IdempotencyKey, InFlight, Ledger, LedgerEntry, Performance,
    Performed, Receipt, ReceiptFilter, RedactionKey, Resolution, ResolveAnswer, SessionId,
    SettleAnswer, Settlement, Standstills, StoreError, StoreTime, TenantHistory, TenantId, Ticket,
};
use operators_seams::{MemoryStore, SqliteStore};
use tempfile::TempDir;

use crate::fakes::TestClock;

/// One fresh store for one test. Dropping it takes away whatever the store left behind.
#[async_trait]
pub trait Bench: std::fmt::Debug + Send + Sync {
    /// Another handle on the same records, as another process would open it.
    async fn open(&self) -> Arc<dyn DurableExec>;

    /// A short span of this store's time: longer than one call takes, short enough to be waited
    /// for a few times in one test.
    fn unit(&self) -> Duration;

    /// Lets that much of the store's time pass.
    async fn wait(&self, span: Duration);

    /// Runs a statement in the store's own database, as any other program would, and shows the
    /// first column of its answer as texts. Nothing if the store holds no tables of others.
    async fn by_hand(&self, _statement: &str) -> Option<Vec<String>> {
        None
    }

    /// Why this store cannot be had here, if it cannot: its tests are skipped, and say so.
    fn missing(&self) -> Option<&str> {
        None
    }
}

/// A memory store whose time stands still until a test moves it.
#[derive(Debug)]
pub struct MemoryBench {
    clock: Arc<TestClock>,
    store: Arc<MemoryStore>,
}

impl MemoryBench {
    /// An empty store.
    pub fn fresh() -> Self {
        let clock = Arc::new(TestClock::default());
        let store = MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>);
        Self {
            clock,
            store: Arc::new(store),
        }
    }

    /// Its clock.
    pub fn clock(&self) -> &TestClock {
        &self.clock
    }
}

#[async_trait]
impl Bench for MemoryBench {
    async fn open(&self) -> Arc<dyn DurableExec> {
        Arc::clone(&self.store) as Arc<dyn DurableExec>
    }

    fn unit(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn wait(&self, span: Duration) {
        self.clock.advance(span);
    }
}

/// A `SQLite` file in a folder of its own; its time is the machine's.
#[derive(Debug)]
pub struct SqliteBench {
    folder: TempDir,
}

impl SqliteBench {
    /// A folder without a file yet.
    pub fn fresh() -> Self {
        Self {
            folder: TempDir::new().expect("a folder"),
        }
    }

    /// Where the file is, or will be.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    /// The folder around it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A handle of its own type.
    pub fn store(&self) -> SqliteStore {
        SqliteStore::open(&self.path()).expect("opens")
    }
}

#[async_trait]
impl Bench for SqliteBench {
    async fn open(&self) -> Arc<dyn DurableExec> {
        Arc::new(self.store())
    }

    fn unit(&self) -> Duration {
        Duration::from_millis(40)
    }

    async fn by_hand(&self, statement: &str) -> Option<Vec<String>> {
        let file = rusqlite::Connection::open(self.path()).expect("the file");
        let mut prepared = file.prepare(statement).expect("a statement");
        if prepared.column_count() == 0 {
            prepared.execute([]).expect("it runs");
            return Some(Vec::new());
        }
        let rows = prepared.query_map([], |row| row.get(0)).expect("rows");
        Some(rows.map(|row| row.expect("a text")).collect())
    }

    async fn wait(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}

/// Another bench whose stores are behind a wrapper.
#[derive(Debug)]
pub struct Wrapped<B> {
    inner: B,
    wrap: fn(Arc<dyn DurableExec>) -> Arc<dyn DurableExec>,
}

impl<B: Bench> Wrapped<B> {
    /// Every handle goes through `wrap`.
    pub fn new(inner: B, wrap: fn(Arc<dyn DurableExec>) -> Arc<dyn DurableExec>) -> Self {
        Self { inner, wrap }
    }
}

#[async_trait]
impl<B: Bench> Bench for Wrapped<B> {
    async fn open(&self) -> Arc<dyn DurableExec> {
        (self.wrap)(self.inner.open().await)
    }

    fn unit(&self) -> Duration {
        self.inner.unit()
    }

    async fn wait(&self, span: Duration) {
        self.inner.wait(span).await;
    }

    async fn by_hand(&self, statement: &str) -> Option<Vec<String>> {
        self.inner.by_hand(statement).await
    }

    fn missing(&self) -> Option<&str> {
        self.inner.missing()
    }
}

/// A store whose answers get lost: everything that may be asked again is, and the second answer
/// counts. Held to every rule as it is.
///
/// Not asked again: a read that was let through (it would wait for whoever came meanwhile), and what
/// says "look" after a lost answer (`resolve`, `forget` and `direct`).
#[derive(Debug)]
pub struct AskedTwice(Arc<dyn DurableExec>);

impl AskedTwice {
    /// Around this store.
    pub fn around(store: Arc<dyn DurableExec>) -> Arc<dyn DurableExec> {
        Arc::new(Self(store))
    }
}

#[async_trait]
impl DurableExec for AskedTwice {
    async fn open_session(&self, node: &str, lease: Duration) -> Result<SessionId, StoreError> {
        self.0.open_session(node, lease).await
    }

    async fn heartbeat(&self, session: SessionId) -> Result<Beat, StoreError> {
        self.0.heartbeat(session).await?;
        self.0.heartbeat(session).await
    }

    async fn close_session(&self, session: SessionId) -> Result<(), StoreError> {
        self.0.close_session(session).await?;
        self.0.close_session(session).await
    }

    async fn claim(
        &self,
        tenant: &TenantId,
        claims: Vec<Claim>,
    ) -> Result<Vec<ClaimAnswer>, StoreError> {
        self.0.claim(tenant, claims.clone()).await?;
        let unheard = claims.into_iter().map(|mut claim| {
            claim.asked_before = true;
            claim
        });
        self.0.claim(tenant, unheard.collect()).await
    }

    async fn settle(
        &self,
        tenant: &TenantId,
        settlements: Vec<Settlement>,
    ) -> Result<Vec<SettleAnswer>, StoreError> {
        self.0.settle(tenant, settlements.clone()).await?;
        self.0.settle(tenant, settlements).await
    }

    fn standstills(&self) -> Option<Arc<dyn Standstills>> {
        self.0.standstills()
    }

    fn performs(&self) -> bool {
        self.0.performs()
    }

    async fn perform(
        &self,
        tenant: &TenantId,
        performance: Performance,
    ) -> Result<Performed, StoreError> {
        self.0.perform(tenant, performance.clone()).await?;
        self.0.perform(tenant, performance).await
    }

    async fn record(&self, tenant: &TenantId, receipts: Vec<Receipt>) -> Result<(), StoreError> {
        self.0.record(tenant, receipts.clone()).await?;
        self.0.record(tenant, receipts).await
    }

    async fn pass(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        session: SessionId,
        asker: &str,
        ticket: Option<Ticket>,
    ) -> Result<Option<Ticket>, StoreError> {
        match self.0.pass(tenant, entity, session, asker, ticket).await? {
            None => Ok(None),
            Some(_) => self.0.pass(tenant, entity, session, asker, ticket).await,
        }
    }

    async fn wait(&self, tenant: &TenantId, entity: &EntityKey, ticket: Ticket, asked: u32) {
        self.0.wait(tenant, entity, ticket, asked).await;
    }

    async fn leave(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<(), StoreError> {
        self.0.leave(tenant, entity, ticket).await?;
        self.0.leave(tenant, entity, ticket).await
    }

    async fn declare_owner_dead(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<bool, StoreError> {
        self.0.declare_owner_dead(tenant, key).await?;
        self.0.declare_owner_dead(tenant, key).await
    }

    async fn resolve(
        &self,
        tenant: &TenantId,
        resolution: Resolution,
    ) -> Result<ResolveAnswer, StoreError> {
        self.0.resolve(tenant, resolution).await
    }

    async fn forget(&self, tenant: &TenantId, forget: Forget) -> Result<ForgetAnswer, StoreError> {
        self.0.forget(tenant, forget).await
    }

    async fn direct(
        &self,
        tenant: &TenantId,
        directive: Directive,
    ) -> Result<DirectiveAnswer, StoreError> {
        self.0.direct(tenant, directive).await
    }

    async fn redaction_key(&self, tenant: &TenantId) -> Result<RedactionKey, StoreError> {
        self.0.redaction_key(tenant).await?;
        self.0.redaction_key(tenant).await
    }
}

#[async_trait]
impl Ledger for AskedTwice {
    fn describe(&self) -> String {
        self.0.describe()
    }

    async fn glimpse(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
        entity: &EntityKey,
    ) -> Result<Glimpse, StoreError> {
        self.0.glimpse(tenant, key, entity).await
    }

    async fn key(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<KeyRecord>, StoreError> {
        self.0.key(tenant, key).await
    }

    async fn doubts(&self, tenant: &TenantId) -> Result<(Vec<KeyRecord>, StoreTime), StoreError> {
        self.0.doubts(tenant).await
    }

    async fn in_flight(&self, tenant: &TenantId) -> Result<(Vec<InFlight>, StoreTime), StoreError> {
        self.0.in_flight(tenant).await
    }

    async fn history_of(&self, tenant: &TenantId) -> Result<TenantHistory, StoreError> {
        self.0.history_of(tenant).await
    }

    async fn receipts(
        &self,
        tenant: &TenantId,
        filter: &ReceiptFilter,
        cursor: Cursor,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>, StoreError> {
        self.0.receipts(tenant, filter, cursor, limit).await
    }

    async fn note(&self, tenant: &TenantId, name: &NoteName) -> Result<Option<String>, StoreError> {
        self.0.note(tenant, name).await
    }

    async fn notes(
        &self,
        tenant: &TenantId,
        kind: NoteKind,
    ) -> Result<Vec<(String, String)>, StoreError> {
        self.0.notes(tenant, kind).await
    }

    fn log(&self) -> &dyn Log {
        self.0.log()
    }

    async fn check(&self) -> Result<Vec<String>, StoreError> {
        self.0.check().await
    }
}
