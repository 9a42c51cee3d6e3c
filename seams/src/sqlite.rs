//! The embedded store: one `SQLite` file that several processes may share.
//!
//! Everything that writes goes through one thread, which commits whatever queued while its last
//! commit ran; everything that only looks uses a connection of its own. Records are decided in
//! `book` and the kernel's `life`; this folder says how they are kept in a file.

mod alive;
mod clock;
mod drafts;
mod in_flight;
mod ledger;
mod log;
mod log_files;
mod open;
mod place;
mod problems;
mod proposals;
mod receipts;
mod records;
mod rows;
mod stage;
mod trouble;
mod witness;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use operators_kernel::{
    Beat, Claim, ClaimAnswer, Directive, DirectiveAnswer, DurableExec, EntityKey, Forget,
    ForgetAnswer, IdempotencyKey, Performance, Performed, Receipt, RedactionKey, Resolution,
    ResolveAnswer, SessionId, SettleAnswer, Settlement, StoreError, TenantId, Ticket,
};
use rusqlite::Connection;

use crate::book::{self, Asker, Book, BookError};
use alive::SignsOfLife;
use clock::{Machine, StoreClock, ThisMachine};
use drafts::Draft;
use records::RowError;
use rows::Rows;
use trouble::{Trouble, no_lock_file, sorted};
use witness::Witness;
use writer::{Desk, Writer};

/// The pauses between two looks at a queue: short at first, for a turn is usually short.
const WAIT_FIRST: Duration = Duration::from_millis(1);
const WAIT_MAX: Duration = Duration::from_millis(20);

/// Keys, turns and receipts in one file.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    // A std lock, taken only on threads that may block. Opened on first use. It is closed before the
    // writer ends: the last connection to the file is the one that may fold the log back.
    reader: Arc<Mutex<Option<Connection>>>,
    writer: Writer,
    clock: Arc<StoreClock>,
    alive: Arc<SignsOfLife>,
}

impl SqliteStore {
    /// Opens the file, making it (mode 0600) and its folders (mode 0700) if they are not there.
    ///
    /// Blocks for as long as opening a file takes. Refuses a file that is not ours, that a newer
    /// version wrote, that is damaged, or that cannot be made durable, and says which.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_on(path, Arc::new(ThisMachine::new()))
    }

    /// Opens it with these clocks.
    fn open_on(path: &Path, machine: Arc<dyn Machine>) -> Result<Self, StoreError> {
        let unusable = |problem| StoreError::Unusable {
            store: describe(path),
            problem,
        };
        let mut connection = open::open(path).map_err(unusable)?;
        let told = |error| sorted(path, &error).told;
        let clock = StoreClock::open(&mut connection, machine).map_err(told)?;
        let clock = Arc::new(clock);
        let witness =
            Witness::new(path, &connection).map_err(|fall| Trouble::of_fall(path, fall).told)?;
        let alive =
            SignsOfLife::open(path).map_err(|error| unusable(no_lock_file(path, &error)))?;
        let alive = Arc::new(alive);
        let desk = Desk::new(
            path,
            connection,
            Arc::clone(&clock),
            Arc::clone(&alive),
            witness,
        );
        let writer = Writer::start(desk)?;
        Ok(Self {
            path: path.to_owned(),
            reader: Arc::new(Mutex::new(None)),
            writer,
            clock,
            alive,
        })
    }

    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Rows<'_>) -> Result<T, BookError<RowError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.writer.run(work).await
    }
}

fn describe(path: &Path) -> String {
    format!("sqlite store `{}`", path.display())
}

#[async_trait]
impl DurableExec for SqliteStore {
    async fn open_session(&self, node: &str, lease: Duration) -> Result<SessionId, StoreError> {
        let node = node.to_owned();
        let alive = Arc::clone(&self.alive);
        self.write(move |rows| {
            alive.renew().map_err(RowError::Alive)?;
            book::bury_the_lifeless(rows)?;
            let session = rows.add_session(&node, lease)?;
            // Locked before the row is committed: no other process ever sees it unlocked.
            alive.show(session).map_err(RowError::Alive)?;
            Ok(session)
        })
        .await
    }

    async fn heartbeat(&self, session: SessionId) -> Result<Beat, StoreError> {
        let alive = Arc::clone(&self.alive);
        self.write(move |rows| {
            // Before the lease is: a session that others cannot see is not kept alive.
            alive.renew().map_err(RowError::Alive)?;
            book::heartbeat(rows, session)
        })
        .await
    }

    async fn close_session(&self, session: SessionId) -> Result<(), StoreError> {
        self.write(move |rows| book::declare_dead(rows, session))
            .await
    }

    async fn claim(
        &self,
        tenant: &TenantId,
        claims: Vec<Claim>,
    ) -> Result<Vec<ClaimAnswer>, StoreError> {
        let tenant = tenant.clone();
        let drafts: Vec<_> = claims.iter().map(Draft::of_claim).collect();
        self.write(move |rows| {
            let claims = claims.iter().zip(drafts);
            claims
                .map(|(claim, draft)| {
                    rows.expect(draft);
                    book::claim(rows, &tenant, claim)
                })
                .collect()
        })
        .await
    }

    async fn settle(
        &self,
        tenant: &TenantId,
        settlements: Vec<Settlement>,
    ) -> Result<Vec<SettleAnswer>, StoreError> {
        let tenant = tenant.clone();
        let drafts: Vec<_> = settlements.iter().map(Draft::of_settlement).collect();
        self.write(move |rows| {
            let settlements = settlements.iter().zip(drafts);
            settlements
                .map(|(settlement, draft)| {
                    rows.expect(draft);
                    book::settle(rows, &tenant, settlement)
                })
                .collect()
        })
        .await
    }

    fn performs(&self) -> bool {
        true
    }

    async fn perform(
        &self,
        tenant: &TenantId,
        performance: Performance,
    ) -> Result<Performed, StoreError> {
        self.writer.perform(tenant.clone(), performance).await
    }

    async fn record(&self, _tenant: &TenantId, receipts: Vec<Receipt>) -> Result<(), StoreError> {
        self.write(move |rows| {
            for receipt in receipts {
                rows.append(receipt.into())?;
            }
            Ok(())
        })
        .await
    }

    async fn pass(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        session: SessionId,
        asker: &str,
        ticket: Option<Ticket>,
    ) -> Result<Option<Ticket>, StoreError> {
        let (tenant, entity, name) = (tenant.clone(), entity.clone(), asker.to_owned());
        self.write(move |rows| {
            let asker = Asker {
                session,
                name: &name,
                place: ticket,
            };
            book::pass(rows, &tenant, &entity, asker)
        })
        .await
    }

    async fn wait(&self, _tenant: &TenantId, _entity: &EntityKey, ticket: Ticket, asked: u32) {
        let pause = WAIT_FIRST.saturating_mul(1 << asked.min(5)).min(WAIT_MAX);
        // Spread by ticket, so that two processes that began together do not look in step.
        let spread = u32::try_from(ticket.0 % 8).unwrap_or(0);
        tokio::time::sleep(pause + pause / 16 * spread).await;
    }

    async fn leave(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<(), StoreError> {
        let (tenant, entity) = (tenant.clone(), entity.clone());
        self.write(move |rows| Ok(rows.remove_waiter(&tenant, &entity, ticket)?))
            .await
    }

    async fn declare_owner_dead(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<bool, StoreError> {
        let (tenant, key) = (tenant.clone(), key.clone());
        self.write(move |rows| book::declare_owner_dead(rows, &tenant, &key))
            .await
    }

    async fn resolve(
        &self,
        tenant: &TenantId,
        resolution: Resolution,
    ) -> Result<ResolveAnswer, StoreError> {
        let tenant = tenant.clone();
        self.write(move |rows| book::resolve(rows, &tenant, &resolution))
            .await
    }

    async fn forget(&self, tenant: &TenantId, forget: Forget) -> Result<ForgetAnswer, StoreError> {
        let tenant = tenant.clone();
        self.write(move |rows| book::forget(rows, &tenant, &forget))
            .await
    }

    async fn direct(
        &self,
        tenant: &TenantId,
        directive: Directive,
    ) -> Result<DirectiveAnswer, StoreError> {
        let tenant = tenant.clone();
        self.write(move |rows| book::direct(rows, &tenant, &directive))
            .await
    }

    async fn redaction_key(&self, tenant: &TenantId) -> Result<RedactionKey, StoreError> {
        let tenant = tenant.clone();
        let fresh = crate::random_key().map_err(|problem| StoreError::Unavailable {
            store: describe(&self.path),
            problem,
        })?;
        self.write(move |rows| Ok(rows.redaction_key(&tenant, &fresh)?))
            .await
    }
}
