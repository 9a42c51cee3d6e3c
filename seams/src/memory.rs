//! The store that forgets with its process: for tests, rehearsals and embedding without a disk.
//!
//! Held to the same rules as every other store, surviving a restart excepted. Several executors of
//! one process may share it.

mod halls;
mod log;
mod trail;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hashbrown::HashMap;
use operators_kernel::life::{KeyRecord, NoteKind, NoteName, Phase};
use operators_kernel::log::Log;
use operators_kernel::{
    Beat, Claim, ClaimAnswer, Clock, Cursor, Directive, DirectiveAnswer, DurableExec, EntityKey,
    Forget, ForgetAnswer, Glimpse, IdempotencyKey, InFlight, Ledger, LedgerEntry, OwnerState,
    Receipt, ReceiptFilter, RedactionKey, Resolution, ResolveAnswer, SessionId, SettleAnswer,
    Settlement, Shared, StoreError, StoreTime, TenantHistory, TenantId, Ticket,
};
use tokio::sync::Notify;

use crate::book::{self, Asker, Book, BookError};
use crate::page::SessionRecord;

use halls::{Halls, Held, Lack, Reach};

/// Keys, turns and receipts in memory.
#[derive(Debug)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    halls: Halls,
    logs: Mutex<HashMap<TenantId, log::Appended>>,
    // Asked for once by each executor.
    redaction_keys: Mutex<HashMap<TenantId, RedactionKey>>,
    sessions_opened: AtomicU64,
    /// What each session's owner calls itself. Asked for by people only.
    nodes: Mutex<HashMap<SessionId, String>>,
    /// Rung whenever a turn may have come.
    turns: Notify,
}

impl MemoryStore {
    /// An empty store whose time is `clock`'s.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            halls: Halls::new(&clock),
            clock,
            logs: Mutex::default(),
            redaction_keys: Mutex::default(),
            sessions_opened: AtomicU64::new(0),
            nodes: Mutex::default(),
            turns: Notify::new(),
        }
    }

    /// Lets `work` decide with all records at hand.
    async fn with_all<T>(
        &self,
        work: impl FnMut(&mut Held<'_>) -> Result<T, BookError<Lack>>,
    ) -> Result<T, StoreError> {
        self.with(Reach::All, work).await
    }

    /// Lets `work` decide with the records of `reach` at hand, or with all of them if it needs more.
    async fn with<T>(
        &self,
        reach: Reach,
        mut work: impl FnMut(&mut Held<'_>) -> Result<T, BookError<Lack>>,
    ) -> Result<T, StoreError> {
        let now = || {
            let micros = self.clock.monotonic().as_micros();
            StoreTime(i64::try_from(micros).unwrap_or(i64::MAX))
        };
        let done = {
            let mut held = self.halls.hold(reach, now).await;
            let done = work(&mut held);
            // What was written stays: it is not decided a second time.
            let is_over = held.wrote || !matches!(done, Err(BookError::Records(Lack::Hall)));
            is_over.then_some(done)
        };
        let done = match done {
            Some(done) => done,
            None => work(&mut self.halls.hold(Reach::All, now).await),
        };
        done.map_err(|error| match error {
            // All halls hold everything there is, and give a ticket per call.
            BookError::Records(Lack::Record(want)) => {
                self.unusable(format!("a record is missing: {want:?}"))
            }
            BookError::Records(Lack::Hall) => self
                .unusable("a decision needed more than it held when it began to write".to_owned()),
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
}

/// By when each was first claimed.
fn oldest_first(one: &KeyRecord, other: &KeyRecord) -> std::cmp::Ordering {
    let order = |key: &KeyRecord| (key.first_intent_at, key.proposal.receipt_id.clone());
    order(one).cmp(&order(other))
}

/// What a lock guards, also after somebody panicked with it.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl DurableExec for MemoryStore {
    async fn open_session(&self, node: &str, lease: Duration) -> Result<SessionId, StoreError> {
        let session = SessionId(1 + self.sessions_opened.fetch_add(1, Ordering::Relaxed));
        locked(&self.nodes).insert(session, node.to_owned());
        self.with_all(|held| {
            book::bury_the_lifeless(held)?;
            let record = SessionRecord {
                lease,
                alive_until: held.now().plus(lease),
                is_dead: false,
            };
            held.add_session(session, record)?;
            Ok(session)
        })
        .await
    }

    async fn heartbeat(&self, session: SessionId) -> Result<Beat, StoreError> {
        self.with_all(|held| book::heartbeat(held, session)).await
    }

    async fn close_session(&self, session: SessionId) -> Result<(), StoreError> {
        let closed = self
            .with_all(|held| book::declare_dead(held, session))
            .await;
        self.turns.notify_waiters();
        closed
    }

    async fn claim(
        &self,
        tenant: &TenantId,
        claims: Vec<Claim>,
    ) -> Result<Vec<ClaimAnswer>, StoreError> {
        for again in claims
            .iter()
            .filter(|claim| claim.asked_before || claim.ticket.is_some())
        {
            self.halls.trail.ask_again(&again.proposal.receipt_id);
        }
        self.with(Reach::of_claims(&claims), |held| {
            claims
                .iter()
                .map(|claim| book::claim(held, tenant, claim))
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
            .with(Reach::of_settlements(&settlements), |held| {
                let settlements = settlements.iter();
                let answers = settlements.map(|settlement| book::settle(held, tenant, settlement));
                let answers: Result<_, _> = answers.collect();
                Ok((answers?, held.has_waiters()))
            })
            .await?;
        // The bell is one for all threads: it is left alone while nobody listens.
        if has_waiters {
            self.turns.notify_waiters();
        }
        Ok(answers)
    }

    async fn record(&self, _tenant: &TenantId, receipts: Vec<Receipt>) -> Result<(), StoreError> {
        for receipt in receipts {
            self.halls.trail.keep_slip(receipt.into());
        }
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
        let asker = Asker {
            session,
            name: asker,
            place: ticket,
        };
        let passed = self
            .with(Reach::of_entity(entity), |held| {
                book::pass(held, tenant, entity, asker)
            })
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
            .with(Reach::of_entity(entity), |held| {
                Ok(held.remove_waiter(tenant, entity, ticket)?)
            })
            .await;
        self.turns.notify_waiters();
        left
    }

    async fn declare_owner_dead(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<bool, StoreError> {
        let declared = self
            .with_all(|held| book::declare_owner_dead(held, tenant, key))
            .await;
        self.turns.notify_waiters();
        declared
    }

    async fn resolve(
        &self,
        tenant: &TenantId,
        resolution: Resolution,
    ) -> Result<ResolveAnswer, StoreError> {
        self.with_all(|held| book::resolve(held, tenant, &resolution))
            .await
    }

    async fn forget(&self, tenant: &TenantId, forget: Forget) -> Result<ForgetAnswer, StoreError> {
        self.with_all(|held| book::forget(held, tenant, &forget))
            .await
    }

    async fn direct(
        &self,
        tenant: &TenantId,
        directive: Directive,
    ) -> Result<DirectiveAnswer, StoreError> {
        self.with_all(|held| book::direct(held, tenant, &directive))
            .await
    }

    async fn redaction_key(&self, tenant: &TenantId) -> Result<RedactionKey, StoreError> {
        let fresh = crate::random_key().map_err(|problem| StoreError::Unavailable {
            store: self.describe(),
            problem,
        })?;
        let mut keys = locked(&self.redaction_keys);
        Ok(keys.entry(tenant.clone()).or_insert(fresh).clone())
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
        self.with(Reach::of(key, entity), |held| {
            Ok(Glimpse {
                key: held.key(tenant, key)?.map(Shared::into_inner),
                entity: held.entity(tenant, entity)?,
                now: held.now(),
            })
        })
        .await
    }

    async fn key(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<KeyRecord>, StoreError> {
        self.with_all(|held| Ok(held.key(tenant, key)?.map(Shared::into_inner)))
            .await
    }

    async fn doubts(&self, tenant: &TenantId) -> Result<(Vec<KeyRecord>, StoreTime), StoreError> {
        self.with_all(|held| {
            let mut found: Vec<KeyRecord> = held
                .keys()?
                .filter(|key| key.phase == Phase::InDoubt && key.proposal.tenant_id == *tenant)
                .cloned()
                .collect();
            found.sort_by(oldest_first);
            Ok((found, held.now()))
        })
        .await
    }

    async fn in_flight(&self, tenant: &TenantId) -> Result<(Vec<InFlight>, StoreTime), StoreError> {
        self.with_all(|held| {
            let intents: Vec<KeyRecord> = held
                .keys()?
                .filter(|key| key.phase == Phase::Intent && key.proposal.tenant_id == *tenant)
                .cloned()
                .collect();
            let mut found = Vec::with_capacity(intents.len());
            for key in intents {
                let session = held.session(key.session)?;
                let is_gone = session.is_none_or(|one| one.is_dead || one.alive_until < held.now());
                found.push(InFlight {
                    node: locked(&self.nodes)
                        .get(&key.session)
                        .cloned()
                        .unwrap_or_default(),
                    lease: session.map_or(Duration::ZERO, |one| one.lease),
                    lease_until: session.map_or(StoreTime(i64::MIN), |one| one.alive_until),
                    // Its owner is in this very process.
                    owner: if is_gone {
                        OwnerState::Gone
                    } else {
                        OwnerState::Alive
                    },
                    key,
                });
            }
            found.sort_by(|a, b| oldest_first(&a.key, &b.key));
            Ok((found, held.now()))
        })
        .await
    }

    async fn history_of(&self, tenant: &TenantId) -> Result<TenantHistory, StoreError> {
        self.with_all(|held| {
            let mut is_empty = self.halls.trail.is_empty();
            if self.halls.trail.has(tenant) {
                return Ok(TenantHistory::Known);
            }
            for key in held.keys()? {
                if key.proposal.tenant_id == *tenant {
                    return Ok(TenantHistory::Known);
                }
                is_empty = false;
            }
            Ok(if is_empty {
                TenantHistory::EmptyStore
            } else {
                TenantHistory::OnlyOthers
            })
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
        let page = self.halls.trail.page(tenant, filter, cursor, limit);
        page.map_err(|torn| self.unusable(torn.to_string()))
    }

    async fn note(&self, tenant: &TenantId, name: &NoteName) -> Result<Option<String>, StoreError> {
        self.with_all(|held| Ok(held.note(tenant, name)?)).await
    }

    async fn notes(
        &self,
        tenant: &TenantId,
        kind: NoteKind,
    ) -> Result<Vec<(String, String)>, StoreError> {
        self.with_all(|held| {
            let notes = held.notes()?;
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
