//! Records as rows, and rows as the JSON in which pages travel.

use std::collections::HashMap;
use std::time::Duration;

use operators_kernel::life::{EntityRecord, KeyRecord, NoteName, Phase};
use operators_kernel::{
    EntityKey, Fence, Fingerprint, IdempotencyKey, InFlight, OwnerState, Receipt, SessionId,
    StoreTime, TenantId, Text, Ticket, Timestamp, json,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::trouble::Trouble;
use crate::book::Waiter;
use crate::page::{Changes, EntityName, Page, Queue, SessionRecord};

/// Room for a record that is about as long as a receipt.
const LONG: usize = 1024;

/// A row of `operators.key`; JSON inside is text.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeyRow {
    tenant: String,
    idempotency_key: String,
    entity_key: String,
    fingerprint: Fingerprint,
    effect: String,
    on_unknown: String,
    receipt_id: Text,
    proposal: String,
    session_id: u64,
    fence: u64,
    first_intent_at: i64,
    quiescent_at: i64,
    open_until: i64,
    generation: u32,
    attempt: u32,
    phase: String,
    open_attempts: String,
    applied_receipt: Option<Text>,
    application: Option<String>,
}

impl KeyRow {
    pub(super) fn of(record: &KeyRecord) -> Result<Self, Trouble> {
        let proposal = &record.proposal;
        let application = record.application.as_ref();
        Ok(Self {
            tenant: proposal.tenant_id.as_str().to_owned(),
            idempotency_key: proposal.idempotency_key.as_str().to_owned(),
            entity_key: proposal.entity_key.as_str().to_owned(),
            fingerprint: record.fingerprint,
            effect: to_json(&record.effect)?,
            on_unknown: to_json(&record.on_unknown)?,
            receipt_id: proposal.receipt_id.clone(),
            proposal: to_json(proposal)?,
            session_id: record.session.0,
            fence: record.fence.0,
            first_intent_at: record.first_intent_at.0,
            quiescent_at: record.quiescent_at.0,
            open_until: record.open_until.0,
            generation: record.generation,
            attempt: record.attempt,
            phase: record.phase.as_str().to_owned(),
            open_attempts: to_json(&record.open_attempts)?,
            applied_receipt: application.map(|found| found.original.receipt_id.clone()),
            application: application.map(to_json).transpose()?,
        })
    }

    pub(super) fn into_record(self) -> Result<KeyRecord, Trouble> {
        Ok(KeyRecord {
            generation: self.generation,
            phase: Phase::from_word(&self.phase)
                .ok_or_else(|| Trouble::meaning("a key's phase", &self.phase))?,
            attempt: self.attempt,
            session: SessionId(self.session_id),
            fence: Fence(self.fence),
            fingerprint: self.fingerprint,
            effect: from_json("a key's effect", &self.effect)?,
            on_unknown: from_json("a key's on_unknown", &self.on_unknown)?,
            first_intent_at: StoreTime(self.first_intent_at),
            quiescent_at: StoreTime(self.quiescent_at),
            open_attempts: from_json("a key's open attempts", &self.open_attempts)?,
            open_until: StoreTime(self.open_until),
            proposal: from_json("a key's proposal", &self.proposal)?,
            application: self
                .application
                .map(|text| from_json("a key's application", &text))
                .transpose()?,
        })
    }
}

/// A row of `operators.entity`, but for what the database itself keeps in step.
#[derive(Debug, Serialize, Deserialize)]
struct EntityRow {
    tenant: String,
    entity_key: String,
    fence: u64,
    holder: Option<u64>,
    revision: Option<u64>,
    doubt: Option<String>,
    landing_until: i64,
}

impl EntityRow {
    fn of((tenant, entity_key): &EntityName, record: &EntityRecord) -> Self {
        Self {
            tenant: tenant.as_str().to_owned(),
            entity_key: entity_key.as_str().to_owned(),
            fence: record.fence.0,
            holder: record.holder.map(|session| session.0),
            revision: record.revision,
            doubt: record.doubt.as_ref().map(|key| key.as_str().to_owned()),
            landing_until: record.landing_until.0,
        }
    }

    fn into_record(self) -> Result<(EntityName, EntityRecord), Trouble> {
        let record = EntityRecord {
            fence: Fence(self.fence),
            holder: self.holder.map(SessionId),
            revision: self.revision,
            doubt: self
                .doubt
                .map(|key| named("a doubt's key", IdempotencyKey::parse(key)))
                .transpose()?,
            landing_until: StoreTime(self.landing_until),
        };
        let name = (
            named("an entity's tenant", TenantId::parse(self.tenant))?,
            named("an entity's key", EntityKey::parse(self.entity_key))?,
        );
        Ok((name, record))
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct WaiterRow {
    ticket: u64,
    tenant: String,
    entity_key: String,
    session_id: u64,
    asker: Option<String>,
}

#[derive(Debug, Deserialize)]
struct SessionRow {
    session_id: u64,
    lease_us: u64,
    alive_until: i64,
    dead_at: Option<i64>,
}

/// An attempt in flight, with what the session behind it last showed; without one if it is gone.
#[derive(Debug, Deserialize)]
struct InFlightRow {
    key: KeyRow,
    node: Option<String>,
    lease_us: Option<u64>,
    alive_until: Option<i64>,
    dead_at: Option<i64>,
}

impl InFlightRow {
    fn into_record(self, now: StoreTime) -> Result<InFlight, Trouble> {
        let lease_until = self.alive_until.map_or(StoreTime(i64::MIN), StoreTime);
        let is_gone = self.dead_at.is_some() || lease_until < now;
        Ok(InFlight {
            key: self.key.into_record()?,
            node: self.node.unwrap_or_default(),
            lease: Duration::from_micros(self.lease_us.unwrap_or(0)),
            lease_until,
            // Nothing but its lease shows that a process ended.
            owner: if is_gone {
                OwnerState::Gone
            } else {
                OwnerState::NotKnownYet
            },
        })
    }
}

/// Attempts in flight and the server's time, of rows of (kind, doc) that begin with the time.
pub(super) fn in_flight(rows: &[PgRow]) -> Result<(Vec<InFlight>, StoreTime), Trouble> {
    let mut now = StoreTime(0);
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        let (kind, doc): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
        if kind == "now" {
            now = StoreTime(from_json("the server's time", doc)?);
        } else {
            let row: InFlightRow = from_json("an attempt in flight", doc)?;
            found.push(row.into_record(now)?);
        }
    }
    Ok((found, now))
}

#[derive(Debug, Serialize)]
struct ReceiptRow {
    tenant: String,
    idempotency_key: String,
    receipt_id: Text,
    settled_at: i64,
    body: String,
}

/// A row of `operators.note`, or of `operators.pause` in its shape.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct NoteRow {
    tenant: Option<String>,
    kind: String,
    name: String,
    body: Option<String>,
}

impl NoteRow {
    /// A note that is asked for.
    pub(super) fn wanted(name: &NoteName) -> Self {
        Self {
            tenant: None,
            kind: name.kind.as_str().to_owned(),
            name: name.name.clone(),
            body: None,
        }
    }
}

/// What the server handed over, under its locks.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) now: StoreTime,
    pub(super) keys: Vec<KeyRecord>,
    pub(super) entities: HashMap<EntityName, EntityRecord>,
    pub(super) sessions: HashMap<SessionId, SessionRecord>,
    pub(super) queue: Queue,
    /// A ticket for whoever has to wait.
    pub(super) ticket: Option<Ticket>,
    /// The place this very proposal has in the queue already.
    pub(super) place: Option<Ticket>,
    /// What the notes say that were asked for, by kind and name.
    notes: HashMap<(String, String), Option<String>>,
}

impl Loaded {
    /// Reads rows of (kind, doc).
    pub(super) fn read(rows: &[PgRow]) -> Result<Self, Trouble> {
        let mut loaded = Self {
            now: StoreTime(0),
            keys: Vec::new(),
            entities: HashMap::new(),
            sessions: HashMap::new(),
            queue: Queue::new(),
            ticket: None,
            place: None,
            notes: HashMap::new(),
        };
        for row in rows {
            let (kind, doc): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
            match kind {
                "now" => loaded.now = StoreTime(from_json("the server's time", doc)?),
                "key" => {
                    let row: KeyRow = from_json("a key", doc)?;
                    loaded.keys.push(row.into_record()?);
                }
                "entity" => {
                    let row: EntityRow = from_json("an entity", doc)?;
                    let (name, record) = row.into_record()?;
                    loaded.entities.insert(name, record);
                }
                "waiter" => {
                    let row: WaiterRow = from_json("a waiter", doc)?;
                    let waiter = Waiter {
                        session: SessionId(row.session_id),
                        asker: row.asker.unwrap_or_default(),
                    };
                    loaded.queue.insert(Ticket(row.ticket), waiter);
                }
                "session" => {
                    let row: SessionRow = from_json("a session", doc)?;
                    let record = SessionRecord {
                        lease: Duration::from_micros(row.lease_us),
                        alive_until: StoreTime(row.alive_until),
                        is_dead: row.dead_at.is_some(),
                    };
                    loaded.sessions.insert(SessionId(row.session_id), record);
                }
                "ticket" => loaded.ticket = Some(Ticket(from_json("a ticket", doc)?)),
                "place" => loaded.place = Some(Ticket(from_json("a place", doc)?)),
                "note" => {
                    let row: NoteRow = from_json("a note", doc)?;
                    loaded.notes.insert((row.kind, row.name), row.body);
                }
                other => return Err(Trouble::meaning("a page", other)),
            }
        }
        Ok(loaded)
    }

    /// What a note says that was asked for.
    pub(super) fn note(&self, name: &NoteName) -> Option<String> {
        let name = (name.kind.as_str().to_owned(), name.name.clone());
        self.notes.get(&name).cloned().flatten()
    }

    /// The server's clock as people read it.
    pub(super) fn stamp(&self) -> Timestamp {
        Timestamp::from_micros(self.now.0)
    }
}

/// What is to be written, as one document.
#[derive(Debug, Default, Serialize)]
pub(super) struct Written {
    keys: Vec<KeyRow>,
    entities: Vec<EntityRow>,
    receipts: Vec<ReceiptRow>,
    waiters_added: Vec<WaiterRow>,
    waiters_removed: Vec<WaiterRow>,
    buried: Vec<u64>,
    notes: Vec<NoteRow>,
}

impl Written {
    /// Gathers what a decision changed.
    pub(super) fn of(page: &mut Page) -> Result<Self, Trouble> {
        let changes: Changes = std::mem::take(&mut page.changes);
        let mut written = Self::default();
        let mut keys: Vec<_> = changes.keys.into_iter().map(|(name, _)| name).collect();
        keys.sort();
        keys.dedup();
        for record in keys.iter().filter_map(|name| page.key_now(name)) {
            written.keys.push(KeyRow::of(record)?);
        }
        let waiter = |name: &EntityName, ticket: Ticket, waiter: Option<Waiter>| WaiterRow {
            ticket: ticket.0,
            tenant: name.0.as_str().to_owned(),
            entity_key: name.1.as_str().to_owned(),
            session_id: waiter.as_ref().map_or(0, |waiter| waiter.session.0),
            asker: waiter.map(|waiter| waiter.asker),
        };
        let mut entities = changes.entities;
        for (name, ticket, added) in changes.waiters_added {
            let row = waiter(&name, ticket, Some(added));
            written.waiters_added.push(row);
            entities.push(name);
        }
        for (name, ticket) in changes.waiters_removed {
            written.waiters_removed.push(waiter(&name, ticket, None));
            entities.push(name);
        }
        entities.sort();
        entities.dedup();
        for name in &entities {
            if let Some(record) = page.entity_now(name) {
                written.entities.push(EntityRow::of(name, &record));
            }
        }
        for receipt in &changes.receipts {
            written.receipts.push(receipt_row(receipt)?);
        }
        for (tenant, note) in changes.notes {
            written.notes.push(NoteRow {
                tenant: Some(tenant.as_str().to_owned()),
                body: note.body,
                ..NoteRow::wanted(&note.name)
            });
        }
        written.buried = changes.buried.iter().map(|session| session.0).collect();
        Ok(written)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
            && self.entities.is_empty()
            && self.receipts.is_empty()
            && self.buried.is_empty()
            && self.notes.is_empty()
    }

    pub(super) fn has_notes(&self) -> bool {
        !self.notes.is_empty()
    }

    /// Takes a turn away that its holder left without an intent.
    pub(super) fn clear_holder(&mut self, name: &EntityName, record: &EntityRecord) {
        let mut record = record.clone();
        record.holder = None;
        self.entities.push(EntityRow::of(name, &record));
    }

    /// The newest receipt among what is written.
    pub(super) fn last_receipt(&self) -> Option<&str> {
        self.receipts.last().map(|row| row.receipt_id.as_str())
    }

    pub(super) fn to_json(&self) -> Result<String, Trouble> {
        to_json(self)
    }
}

fn receipt_row(receipt: &Receipt) -> Result<ReceiptRow, Trouble> {
    Ok(ReceiptRow {
        tenant: receipt.tenant_id.as_str().to_owned(),
        idempotency_key: receipt.idempotency_key.as_str().to_owned(),
        receipt_id: receipt.receipt_id.clone(),
        settled_at: receipt.settled_at.as_micros(),
        body: canonical(receipt)?,
    })
}

/// The text of a receipt that is kept and hashed.
pub(super) fn canonical(receipt: &Receipt) -> Result<String, Trouble> {
    json::canonical(receipt).map_err(|error| Trouble::meaning("a receipt", error))
}

pub(super) fn from_json<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, Trouble> {
    serde_json::from_str(text).map_err(|error| Trouble::meaning(what, error))
}

pub(super) fn to_json(value: &impl Serialize) -> Result<String, Trouble> {
    serde_json::to_string(value).map_err(|error| Trouble::meaning("a record", error))
}

/// As [`to_json`], for what is about as long as a receipt: it need not grow on the way.
pub(super) fn to_long_json(value: &impl Serialize) -> Result<String, Trouble> {
    let mut text = Vec::with_capacity(LONG);
    let written = serde_json::to_writer(&mut text, value);
    written.map_err(|error| Trouble::meaning("a record", error))?;
    String::from_utf8(text).map_err(|error| Trouble::meaning("a record", error))
}

fn named<T, E: std::fmt::Display>(what: &str, parsed: Result<T, E>) -> Result<T, Trouble> {
    parsed.map_err(|error| Trouble::meaning(what, error))
}
