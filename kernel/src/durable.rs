//! The seam for what is remembered: turns, keys and receipts, and what each call promises.
//!
//! Owns the requests and answers of a store. What a store must decide is not here but in `life`,
//! as pure functions that a store calls or is tested against.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::action::{Original, Refusal};
use crate::clock::Timestamp;
use crate::connector::{Effect, EffectClass, OnUnknown};
use crate::content_digest::ContentDigest;
use crate::directive::{Directive, DirectiveAnswer};
use crate::key::{EntityKey, IdempotencyKey, TenantId};
use crate::ledger::Ledger;
use crate::life::{KeyRecord, Phase};
use crate::receipt::{AttemptMark, Person, Proposal, Receipt};
use crate::redact::RedactionKey;
use crate::shared::Shared;
use crate::standstill::Standstills;
use crate::text::Text;
use crate::trust::{Limit, OnAlert};
use crate::work::{Performance, Performed};

/// One process's stay in a store. Once dead it is fenced for ever; a new one is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(pub u64);

/// The number of an entity's turn; it only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub u64);

/// A place in an entity's queue; smaller came earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The store's own clock, in microseconds. Only stores compare it, and only with itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoreTime(pub i64);

impl StoreTime {
    /// This much later.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)),
        )
    }

    /// How long from here to `later`; nothing if it has passed.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_micros(u64::try_from(later.0.saturating_sub(self.0)).unwrap_or(0))
    }
}

/// What an action says, as one hash: the same key with another fingerprint is a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(pub ContentDigest);

/// What the gates before the claim found. A refusal is answered only if the key is not a duplicate.
#[derive(Debug, Clone, PartialEq)]
pub enum Clearance {
    /// Nothing stands against it.
    Cleared,
    /// Trust, the registry or the schema stands against it.
    Refused(Refusal),
}

/// What to answer for a key in doubt whose tool can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDoubt {
    /// Say so, write nothing: the caller will ask the connector and come again.
    Probe,
    /// Refuse with a receipt: the caller has asked already.
    Refuse,
}

/// One proposal at the store's door.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// Who asks.
    pub session: SessionId,
    /// Its place in the queue, if it was told to wait before.
    pub ticket: Option<Ticket>,
    /// It was asked before and the answer was lost: whatever that left behind, a place in the queue
    /// or a receipt, is found again before anything new is decided.
    pub asked_before: bool,
    /// All that its receipt will say; `receipt_id` is also the attempt's id.
    pub proposal: Shared<Proposal>,
    /// What the action says, as one hash.
    pub fingerprint: Fingerprint,
    /// What is known about repeating it.
    pub effect: EffectClass,
    /// What a doubt about it leads to.
    pub on_unknown: OnUnknown,
    /// The call's total deadline.
    pub deadline: Duration,
    /// How long after its deadline the request may still land.
    pub max_land: Duration,
    /// What the gates before found.
    pub clearance: Clearance,
    /// Whether a person is asked first.
    pub on_alert: OnAlert,
    /// The limits it must fit into.
    pub limits: Vec<Limit>,
    /// What to answer for a doubt that can be asked about.
    pub on_doubt: OnDoubt,
    /// The caller's clock, for the receipt.
    pub at: Timestamp,
}

/// What the store answers a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum ClaimAnswer {
    /// The intent is durable and the turn is held: the call may be sent.
    Claimed(AttemptMark),
    /// Another action holds the entity, or came earlier; come again with this ticket.
    Wait(Ticket),
    /// The key is in doubt and its tool can be asked; nothing was written.
    Probe(Box<KeyRecord>),
    /// Applied before; the receipt is written.
    Duplicate {
        /// The application it collapsed into.
        original: Original,
        /// The attempts its key has had.
        attempt: u32,
    },
    /// Refused; the receipt is written.
    Refused {
        /// Why.
        refusal: Refusal,
        /// The attempts its key has had.
        attempt: u32,
    },
}

/// How a call ended, as the store keeps it.
#[derive(Debug, Clone, PartialEq)]
pub enum SettledOutcome {
    /// The effect happened.
    Applied(Shared<Effect>),
    /// Provably, nothing happened.
    NotApplied {
        /// What was said.
        error: String,
    },
    /// Nobody knows.
    Unknown {
        /// What was seen.
        error: String,
    },
}

/// The end of one attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Settlement {
    /// The session that claimed.
    pub session: SessionId,
    /// What was claimed.
    pub mark: AttemptMark,
    /// The proposal as it was claimed.
    pub proposal: Shared<Proposal>,
    /// How it ended. A result is no longer than [`RESULT_BYTES_MAX`](crate::RESULT_BYTES_MAX).
    pub outcome: SettledOutcome,
    /// Of the result, when there is one.
    pub result_digest: Option<ContentDigest>,
    /// The caller's clock, for the receipt.
    pub at: Timestamp,
}

/// What became of a settlement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettleAnswer {
    /// The receipt that tells of it.
    pub receipt_id: Text,
    /// Where the key is now.
    pub phase: Phase,
    /// The error as the receipt tells it.
    pub error: Option<String>,
    /// Two attempts of this key took effect, and nothing downstream made them one.
    pub double_applied: bool,
}

/// How a doubt is closed.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It happened.
    Applied(Effect),
    /// It did not; believed only once nothing can land any more.
    NotApplied,
    /// Nobody will ever know; never run it again.
    WriteOff,
}

/// Who closes a doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolver {
    /// A person.
    Person(Person),
    /// The connector's probe.
    Probe,
}

/// An answer to a doubt.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolution {
    /// The key in doubt.
    pub key: IdempotencyKey,
    /// The generation of the key it is about: attempts are counted anew in each.
    pub generation: u32,
    /// The attempt it is about; an answer to an older one changes nothing.
    pub attempt: u32,
    /// The answer.
    pub verdict: Verdict,
    /// Whose answer it is.
    pub by: Resolver,
    /// Why, in words.
    pub note: Option<String>,
    /// The id of the receipt it leaves.
    pub receipt_id: Text,
    /// Of the result, when there is one.
    pub result_digest: Option<ContentDigest>,
    /// The caller's clock, for the receipt.
    pub at: Timestamp,
}

/// What became of a resolution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolveAnswer {
    /// The doubt is closed and the receipt written.
    Resolved(Phase),
    /// Nothing to resolve: no such key, another attempt, or no doubt.
    NotInDoubt(Option<Phase>),
    /// "Not applied" cannot be believed yet: the request may still land for this long.
    MayStillLand(Duration),
}

/// The wish to open a key's next generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forget {
    /// The key.
    pub key: IdempotencyKey,
    /// Who wishes it.
    pub by: Person,
    /// Why, in words.
    pub note: Option<String>,
    /// The id of the receipt it leaves.
    pub receipt_id: Text,
    /// The caller's clock, for the receipt.
    pub at: Timestamp,
}

/// What became of that wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForgetAnswer {
    /// The next proposal of this key is a new effect, of this generation.
    Forgotten(u32),
    /// Nothing to forget: the key was never applied or written off.
    NotBurned(Option<Phase>),
}

/// What a heartbeat found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beat {
    /// The session lives for one more lease.
    Alive,
    /// The session was declared dead; its intents are doubts now.
    Dead,
}

/// Why a store could not answer. Outcomes are never errors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It may answer later: busy, full, out of reach.
    #[error("{store} is unavailable: {problem}")]
    Unavailable {
        /// Which store, with its place.
        store: String,
        /// What it said.
        problem: String,
    },
    /// The session is dead and fenced; open another.
    #[error("{store}: session {} is dead", session.0)]
    SessionDead {
        /// Which store, with its place.
        store: String,
        /// The dead session.
        session: SessionId,
    },
    /// It cannot be used as it is; a person must look.
    #[error("{store} cannot be used: {problem}")]
    Unusable {
        /// Which store, with its place.
        store: String,
        /// What is wrong and what to do.
        problem: String,
    },
}

impl StoreError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. } => true,
            Self::SessionDead { .. } | Self::Unusable { .. } => false,
        }
    }
}

/// One writer per entity in arrival order; a key's life moves only as `life` says; what a call
/// records and its receipt are one write that survives a crash.
///
/// Calls on one store may come from many tasks at once and a store may put them into one commit.
/// Everything is idempotent on the proposal's `receipt_id`, so a caller whose answer was lost asks
/// again with the same request; a claim says so with [`asked_before`](Claim::asked_before), which
/// spares everybody else the search.
#[async_trait]
pub trait DurableExec: Ledger {
    /// Opens a session that must be kept alive by [`heartbeat`](Self::heartbeat).
    ///
    /// - *Atomic*: the session, and the doubts made of what sessions that died before left open.
    /// - *After `Ok`*: the session is known to every process for at least one lease.
    /// - *After `Err`*: a session may exist; it dies by itself.
    /// - *Dropped half-way*: as after `Err`.
    async fn open_session(&self, node: &str, lease: Duration) -> Result<SessionId, StoreError>;

    /// Keeps a session alive, and declares dead those that were not kept alive.
    ///
    /// - *Atomic*: each session's death and the doubts and receipts it leaves.
    /// - *After `Ok(Alive)`*: alive for one lease from the start of the call. *After `Ok(Dead)`*:
    ///   fenced for ever; claims fail, settling its own attempts still works.
    /// - *After `Err`*: not known; the caller must count from the last `Ok`.
    /// - *Dropped half-way*: as after `Err`.
    async fn heartbeat(&self, session: SessionId) -> Result<Beat, StoreError>;

    /// Ends a session in good order; what it left open becomes doubts at once.
    ///
    /// - *Atomic*: as one death.
    /// - *After `Ok`*: the session is fenced. *After `Err` or dropped half-way*: it dies by its lease.
    async fn close_session(&self, session: SessionId) -> Result<(), StoreError>;

    /// Answers each proposal in the order of the gates: wait, duplicate, conflict, stale, doubt,
    /// refusal, pause, approval, limits, claim. Many at once; the answers come in the order of the claims.
    ///
    /// - *Atomic*: each claim with its receipt, or with its intent and turn.
    /// - *After `Ok`*: what the answer says is durable. `Claimed` means that the intent is durable
    ///   and no other session may touch the entity until it is settled or this session dies.
    /// - *After `Err`*: any of the claims may be durable, or have a place in the queue or a receipt;
    ///   asking again with the same `receipt_id`, as [`asked_before`](Claim::asked_before), finds
    ///   out: the same place, what the receipt tells, or the same intent. Nothing may be sent.
    /// - *Dropped half-way*: as after `Err`; so callers keep it in a task of its own.
    async fn claim(
        &self,
        tenant: &TenantId,
        claims: Vec<Claim>,
    ) -> Result<Vec<ClaimAnswer>, StoreError>;

    /// Records how attempts ended: burn or free or doubt, the receipt, and the turn's release.
    ///
    /// - *Atomic*: each settlement with its receipt and its release.
    /// - *After `Ok`*: durable; a second call with the same settlement changes nothing.
    /// - *After `Err`*: may be durable; ask again until `Ok`.
    /// - *Dropped half-way*: as after `Err`; so callers keep it in a task of its own.
    async fn settle(
        &self,
        tenant: &TenantId,
        settlements: Vec<Settlement>,
    ) -> Result<Vec<SettleAnswer>, StoreError>;

    /// What tells whether this machine's clocks stood still; nothing where the answers of the store
    /// tell no time of their own, or the store is on the same machine.
    fn standstills(&self) -> Option<Arc<dyn Standstills>> {
        None
    }

    /// Whether [`perform`](Self::perform) can run anything: the store is a database that holds
    /// other tables as well.
    fn performs(&self) -> bool {
        false
    }

    /// Brings an effect about and settles it: the statement, the burn, the receipt and the turn's
    /// release.
    ///
    /// - *Atomic*: all of it. The statement counts only if the key is still this very attempt's
    ///   intent, its session holds the turn under the same fence, and its deadline has not passed;
    ///   a statement that the database refuses is undone alone, and settled as not applied.
    /// - *After `Ok`*: durable; a second call finds what was recorded and runs nothing.
    /// - *After `Err`*: may be durable; ask again until `Ok`.
    /// - *Dropped half-way*: as after `Err`; so callers keep it in a task of its own.
    async fn perform(
        &self,
        _tenant: &TenantId,
        _performance: Performance,
    ) -> Result<Performed, StoreError> {
        Err(StoreError::Unusable {
            store: self.describe(),
            problem: "it runs no statements of others".to_owned(),
        })
    }

    /// Writes receipts of what touches no key: reads, and what never got a turn.
    ///
    /// - *Atomic*: each receipt.
    /// - *After `Ok`*: durable; a receipt whose id is there already is left as it is.
    /// - *After `Err` or dropped half-way*: any of them may be there.
    async fn record(&self, tenant: &TenantId, receipts: Vec<Receipt>) -> Result<(), StoreError>;

    /// Lets a read through when everything that came before it has had its turn. `asker` is the
    /// read's `receipt_id`; it has one place in the queue at most.
    ///
    /// - *Atomic*: the look and the place in the queue.
    /// - *After `Ok(None)`*: nothing ahead; it holds nobody up and has no place in the queue.
    ///   *After `Ok(Some)`*: come again with that ticket.
    /// - *After `Err` or dropped half-way*: a place in the queue may be taken; asking again as the
    ///   same `asker` finds it, for [`leave`](Self::leave) to give back.
    async fn pass(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        session: SessionId,
        asker: &str,
        ticket: Option<Ticket>,
    ) -> Result<Option<Ticket>, StoreError>;

    /// Sleeps until the turn of `ticket` may have come. It may return too early, never much too
    /// late.
    ///
    /// - *Atomic*: nothing. *After it returns*: ask again. *Dropped half-way*: nothing changed.
    async fn wait(&self, tenant: &TenantId, entity: &EntityKey, ticket: Ticket, asked: u32);

    /// Gives a place in the queue back.
    ///
    /// - *Atomic*: one place. *After `Ok`*: gone. *After `Err` or dropped half-way*: it goes with
    ///   its session.
    async fn leave(
        &self,
        tenant: &TenantId,
        entity: &EntityKey,
        ticket: Ticket,
    ) -> Result<(), StoreError>;

    /// Declares the session dead that owns a key's intent, if it shows no sign of life, as any claim
    /// on the entity would. `true` if the key is in flight no more, for that reason or another.
    ///
    /// - *Atomic*: as one death.
    /// - *After `Ok(true)`*: the key is a doubt, or was settled. *After `Ok(false)`*: its owner is
    ///   alive, or whether it is gone is not known yet; nothing changed.
    /// - *After `Err` or dropped half-way*: it may be dead; look.
    async fn declare_owner_dead(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<bool, StoreError>;

    /// Closes a doubt.
    ///
    /// - *Atomic*: the key's new phase, the entity's release and the receipt.
    /// - *After `Ok`*: as the answer says, durable.
    /// - *After `Err` or dropped half-way*: may be closed; look.
    async fn resolve(
        &self,
        tenant: &TenantId,
        resolution: Resolution,
    ) -> Result<ResolveAnswer, StoreError>;

    /// Opens a burned key's next generation.
    ///
    /// - *Atomic*: the new generation and the receipt.
    /// - *After `Ok`*: as the answer says, durable.
    /// - *After `Err` or dropped half-way*: may be done; look.
    async fn forget(&self, tenant: &TenantId, forget: Forget) -> Result<ForgetAnswer, StoreError>;

    /// Does what a person orders about what runs.
    ///
    /// - *Atomic*: what is remembered of it and the receipt.
    /// - *After `Ok`*: as the answer says, durable. After a pause no process is granted a claim that
    ///   it stops; what was claimed before goes on to its end.
    /// - *After `Err` or dropped half-way*: may be done; look.
    async fn direct(
        &self,
        tenant: &TenantId,
        directive: Directive,
    ) -> Result<DirectiveAnswer, StoreError>;

    /// The key of this tenant's hashes of secrets, made on first use and the same ever after.
    ///
    /// - *Atomic*: its making. *After `Ok`*: every process gets the same. *After `Err` or dropped
    ///   half-way*: it may have been made.
    async fn redaction_key(&self, tenant: &TenantId) -> Result<RedactionKey, StoreError>;
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
