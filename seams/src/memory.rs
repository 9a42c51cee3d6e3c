//! The store that forgets with its process: for tests, rehearsals and embedding without a disk.
//!
//! Held to the same rules as every other store, surviving a restart excepted. Several executors of
//! one process may share it.

mod log;

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use async_trait::async_trait;
use hashbrown::HashMap;
use operators_kernel::life::{KeyRecord, NoteKind, NoteName, Phase};
use operators_kernel::log::Log;
use operators_kernel::{
    Beat, Claim, ClaimAnswer, Clock, Cursor, Directive, DirectiveAnswer, DurableExec, EntityKey,
    Forget, ForgetAnswer, Glimpse, IdempotencyKey, Ledger, LedgerEntry, PAGE_MAX, Receipt,
    ReceiptFilter, RedactionKey, Resolution, ResolveAnswer, SessionId, SettleAnswer, Settlement,
    Shared, Slip, StoreError, StoreTime, TenantId, Ticket,
};
use tokio::sync::Notify;

use crate::book::{self, Asker, Book, BookError};
use crate::page::{Page, SessionRecord, Table, Want};

/// How often the records are tried for before another task is let run: about as long as somebody is
/// at them. A thread that sleeps for them costs ten times what it waits for.
const TRIES_MAX: u32 = 256;

/// Keys, turns and receipts in memory.
#[derive(Debug)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    // A std lock: held for map look-ups, never over an await, and never waited for by a thread.
    records: Mutex<Records>,
    /// Rung whenever a turn may have come.
    turns: Notify,
}

#[derive(Debug)]
struct Records {
    page: Page,
    // Shared: a growing list of them moves pointers, not receipts.
    receipts: HashMap<TenantId, Vec<Arc<Entry>>>,
    receipts_by_id: Table<ById, ()>,
    logs: HashMap<TenantId, log::Appended>,
    redaction_keys: HashMap<TenantId, RedactionKey>,
    sessions_opened: u64,
    receipts_written: u64,
}

/// A receipt in its place; written out when somebody reads it.
#[derive(Debug)]
struct Entry {
    sequence: u64,
    slip: Slip,
}

/// A receipt that is found by its id.
#[derive(Debug)]
struct ById(Arc<Entry>);

impl Borrow<str> for ById {
    fn borrow(&self) -> &str {
        self.0.slip.receipt_id()
    }
}

impl Hash for ById {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.slip.receipt_id().hash(state);
    }
}

impl PartialEq for ById {
    fn eq(&self, other: &Self) -> bool {
        self.0.slip.receipt_id() == other.0.slip.receipt_id()
    }
}

impl Eq for ById {}

impl MemoryStore {
    /// An empty store whose time is `clock`'s.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let records = Records {
            page: Page::whole(Arc::clone(&clock)),
            receipts: HashMap::new(),
            receipts_by_id: Table::large(),
            logs: HashMap::new(),
            redaction_keys: HashMap::new(),
            sessions_opened: 0,
            receipts_written: 0,
        };
        Self {
            clock,
            records: Mutex::new(records),
            turns: Notify::new(),
        }
    }

    /// Lets `work` decide on the page, then keeps the receipts it wrote.
    async fn with<T>(
        &self,
        work: impl FnOnce(&mut Page) -> Result<T, BookError<Want>>,
    ) -> Result<T, StoreError> {
        self.with_records(|records| work(&mut records.page)).await
    }

    /// As `with`, for what may need receipts, too.
    async fn with_records<T>(
        &self,
        work: impl FnOnce(&mut Records) -> Result<T, BookError<Want>>,
    ) -> Result<T, StoreError> {
        let mut records = self.lock().await;
        let records = &mut *records;
        let micros = i64::try_from(self.clock.monotonic().as_micros()).unwrap_or(i64::MAX);
        records.page.now = StoreTime(micros);
        let done = work(records);
        records.keep_changes();
        records.page.unload_receipts();
        done.map_err(|error| match error {
            // A whole page holds everything and is given a ticket per call.
            BookError::Records(want) => self.unusable(format!("a record is missing: {want:?}")),
            BookError::SessionDead(session) => StoreError::SessionDead {
                store: self.describe(),
                session,
            },
            BookError::KeyMissing(key) => {
                self.unusable(format!("key `{key}` was claimed but is not there"))
            }
            BookError::Note(error) => self.unusable(error.to_string()),
        })
    }

    fn unusable(&self, problem: String) -> StoreError {
        StoreError::Unusable {
            store: self.describe(),
            problem,
        }
    }

    /// The records, when nobody else is at them.
    async fn lock(&self) -> MutexGuard<'_, Records> {
        loop {
            for _ in 0..TRIES_MAX {
                match self.records.try_lock() {
                    Ok(records) => return records,
                    Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                    Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
                }
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Records {
    /// Lets `work` decide on the page, the receipts at hand that it asks for before it changes
    /// anything.
    fn decide<T>(
        &mut self,
        work: impl Fn(&mut Page) -> Result<T, BookError<Want>>,
    ) -> Result<T, BookError<Want>> {
        loop {
            match work(&mut self.page) {
                Err(BookError::Records(Want::Receipt(receipt_id))) => {
                    let found = self.receipts_by_id.key(receipt_id.as_str());
                    let receipt = found.map(|entry| entry.0.slip.receipt());
                    self.page.load_receipt(receipt_id, receipt);
                }
                decided => return decided,
            }
        }
    }

    fn keep_changes(&mut self) {
        for slip in self.page.changes.slips.drain(..) {
            let sequence = self.receipts_written + 1;
            let entry = Arc::new(Entry { sequence, slip });
            if self.receipts_by_id.insert_new(ById(Arc::clone(&entry)), ()) {
                self.receipts_written = sequence;
                let trail = self.receipts.entry_ref(entry.slip.tenant_id());
                trail.or_default().push(entry);
            }
        }
    }
}

#[async_trait]
impl DurableExec for MemoryStore {
    async fn open_session(&self, _node: &str, lease: Duration) -> Result<SessionId, StoreError> {
        let session = {
            let mut records = self.lock().await;
            records.sessions_opened += 1;
            SessionId(records.sessions_opened)
        };
        self.with(|page| {
            book::bury_the_lifeless(page)?;
            let record = SessionRecord {
                lease,
                alive_until: page.now.plus(lease),
                is_dead: false,
            };
            page.add_session(session, record);
            Ok(session)
        })
        .await
    }

    async fn heartbeat(&self, session: SessionId) -> Result<Beat, StoreError> {
        self.with(|page| book::heartbeat(page, session)).await
    }

    async fn close_session(&self, session: SessionId) -> Result<(), StoreError> {
        let closed = self.with(|page| book::declare_dead(page, session)).await;
        self.turns.notify_waiters();
        closed
    }

    async fn claim(
        &self,
        tenant: &TenantId,
        claims: Vec<Claim>,
    ) -> Result<Vec<ClaimAnswer>, StoreError> {
        self.with_records(|records| {
            let claims = claims.iter();
            claims
                .map(|claim| records.decide(|page| book::claim(page, tenant, claim)))
                .collect()
        })
        .await
    }

    async fn settle(
        &self,
        tenant: &TenantId,
        settlements: Vec<Settlement>,
    ) -> Result<Vec<SettleAnswer>, StoreError> {
        let (answers, has_waiters) = self
            .with_records(|records| {
                let settlements = settlements.iter();
                let answers = settlements
                    .map(|one| records.decide(|page| book::settle(page, tenant, one)))
                    .collect::<Result<_, _>>()?;
                Ok((answers, records.page.has_waiters()))
            })
            .await?;
        // The bell is one for all threads: it is left alone while nobody listens.
        if has_waiters {
            self.turns.notify_waiters();
        }
        Ok(answers)
    }

    async fn record(&self, _tenant: &TenantId, receipts: Vec<Receipt>) -> Result<(), StoreError> {
        self.with(|page| {
            for receipt in receipts {
                page.append(receipt.into())?;
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
        let asker = Asker {
            session,
            name: asker,
            place: ticket,
        };
        let passed = self
            .with(|page| book::pass(page, tenant, entity, asker))
            .await;
        self.turns.notify_waiters();
        passed
    }

    async fn wait(&self, _tenant: &TenantId, _entity: &EntityKey, _ticket: Ticket, _asked: u32) {
        // Somebody may have settled since the answer, and a holder may die without a word: look
        // again soon in any case.
        let rung = self.turns.notified();
        drop(tokio::time::timeout(Duration::from_millis(5), rung).await);
    }

    async fn leave(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<(), StoreError> {
        let left = self
            .with(|page| Ok(page.remove_waiter(tenant, entity, ticket)?))
            .await;
        self.turns.notify_waiters();
        left
    }

    async fn resolve(
        &self,
        tenant: &TenantId,
        resolution: Resolution,
    ) -> Result<ResolveAnswer, StoreError> {
        self.with(|page| book::resolve(page, tenant, &resolution))
            .await
    }

    async fn forget(&self, tenant: &TenantId, forget: Forget) -> Result<ForgetAnswer, StoreError> {
        self.with(|page| book::forget(page, tenant, &forget)).await
    }

    async fn direct(
        &self,
        tenant: &TenantId,
        directive: Directive,
    ) -> Result<DirectiveAnswer, StoreError> {
        self.with(|page| book::direct(page, tenant, &directive))
            .await
    }

    async fn redaction_key(&self, tenant: &TenantId) -> Result<RedactionKey, StoreError> {
        let fresh = crate::random_key().map_err(|problem| StoreError::Unavailable {
            store: self.describe(),
            problem,
        })?;
        let mut records = self.lock().await;
        Ok(records
            .redaction_keys
            .entry(tenant.clone())
            .or_insert(fresh)
            .clone())
    }
}

#[async_trait]
impl Ledger for MemoryStore {
    fn describe(&self) -> String {
        "the memory store".to_owned()
    }

    async fn glimpse(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
        entity: &EntityKey,
    ) -> Result<Glimpse, StoreError> {
        self.with(|page| {
            Ok(Glimpse {
                key: page.key(tenant, key)?.map(Shared::into_inner),
                entity: page.entity(tenant, entity)?,
                now: page.now,
            })
        })
        .await
    }

    async fn key(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<KeyRecord>, StoreError> {
        self.with(|page| Ok(page.key(tenant, key)?.map(Shared::into_inner)))
            .await
    }

    async fn doubts(&self, tenant: &TenantId) -> Result<(Vec<KeyRecord>, StoreTime), StoreError> {
        self.with(|page| {
            let mut found: Vec<KeyRecord> = page
                .keys_now()
                .filter(|key| key.phase == Phase::InDoubt && key.proposal.tenant_id == *tenant)
                .cloned()
                .collect();
            found.sort_by(|a, b| {
                let order =
                    |key: &KeyRecord| (key.first_intent_at, key.proposal.receipt_id.clone());
                order(a).cmp(&order(b))
            });
            Ok((found, page.now))
        })
        .await
    }

    async fn receipts(
        &self,
        tenant: &TenantId,
        filter: &ReceiptFilter,
        cursor: Cursor,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>, StoreError> {
        let limit = limit.min(PAGE_MAX);
        let records = self.lock().await;
        let Some(trail) = records.receipts.get(tenant) else {
            return Ok(Vec::new());
        };
        let written = |entry: &Arc<Entry>| {
            let (sequence, receipt) = (entry.sequence, entry.slip.receipt());
            let is_admitted = filter.admits(&receipt);
            is_admitted.then_some(LedgerEntry { sequence, receipt })
        };
        Ok(match cursor {
            Cursor::After(start) => trail
                .iter()
                .filter(|entry| entry.sequence > start)
                .filter_map(written)
                .take(limit)
                .collect(),
            Cursor::Before(end) => trail
                .iter()
                .rev()
                .filter(|entry| entry.sequence < end)
                .filter_map(written)
                .take(limit)
                .collect(),
        })
    }

    async fn note(&self, tenant: &TenantId, name: &NoteName) -> Result<Option<String>, StoreError> {
        self.with(|page| Ok(page.note(tenant, name)?)).await
    }

    async fn notes(
        &self,
        tenant: &TenantId,
        kind: NoteKind,
    ) -> Result<Vec<(String, String)>, StoreError> {
        self.with(|page| {
            let notes = page.notes_now();
            let notes = notes.filter(|(whose, name, _)| *whose == tenant && name.kind == kind);
            let mut found: Vec<_> = notes
                .map(|(_, name, body)| (name.name.clone(), body.to_owned()))
                .collect();
            found.sort();
            Ok(found)
        })
        .await
    }

    fn log(&self) -> &dyn Log {
        self
    }

    async fn check(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
}
