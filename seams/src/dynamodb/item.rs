//! Records as items: their names, and how a record becomes an item and back.
//!
//! No item holds a moment of any clock that a decision trusts. A span is kept with the id of what it
//! began with; whoever reads it counts from when it first saw that id (`observer`).

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use operators_kernel::life::{EntityRecord, KeyRecord, Phase};
use operators_kernel::{
    EntityKey, Fence, Fingerprint, IdempotencyKey, Receipt, SessionId, StoreTime, TenantId, Ticket,
    json,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::fields::{Fields, number, text};
use super::observer::Observer;

/// One item of the table.
pub(super) type Item = HashMap<String, AttributeValue>;

/// The table's key.
pub(super) const PK: &str = "pk";
pub(super) const SK: &str = "sk";
/// The attribute and the index that list a session's intents. The index lags: it is a hint.
pub(super) const INTENT_OF: &str = "intent_of";
pub(super) const BY_SESSION: &str = "by_session";
/// Grows with every write of a record; every write is conditioned on the one it was decided on.
pub(super) const VERSION: &str = "v";
/// Who wrote it: the id of the write, so that one's own is recognised after a lost answer.
pub(super) const BY: &str = "by";
/// The sort key of items that stand alone.
pub(super) const SOLE: &str = "-";

/// The most bytes of a proposal, and of a result, that are kept: together with the rest they stay
/// below an item's 400 KB.
pub(super) const PROPOSAL_BYTES_MAX: usize = 200 * 1024;
const RESULT_BYTES_MAX: usize = 128 * 1024;

/// Where an item is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Address {
    pub(super) pk: String,
    pub(super) sk: String,
}

impl Address {
    /// Parts are length-prefixed, so that ("a", "b|c") and ("a|b", "c") never meet. Two parts of
    /// 512 bytes fit into a key of 2,048.
    pub(super) fn of(kind: &str, parts: &[&str]) -> Self {
        let parts = parts.iter().map(|part| format!("|{}:{part}", part.len()));
        Self {
            pk: std::iter::once(kind.to_owned()).chain(parts).collect(),
            sk: SOLE.to_owned(),
        }
    }

    pub(super) fn at(mut self, sk: impl Into<String>) -> Self {
        self.sk = sk.into();
        self
    }

    pub(super) fn key(tenant: &TenantId, key: &IdempotencyKey) -> Self {
        Self::of("key", &[tenant.as_str(), key.as_str()])
    }

    pub(super) fn entity(tenant: &TenantId, entity: &EntityKey) -> Self {
        Self::of("entity", &[tenant.as_str(), entity.as_str()])
    }

    pub(super) fn receipt(tenant: &TenantId, receipt_id: &str) -> Self {
        Self::of("receipt", &[tenant.as_str(), receipt_id])
    }

    pub(super) fn doubt(tenant: &TenantId, key: &IdempotencyKey) -> Self {
        Self::of("doubts", &[tenant.as_str()]).at(key.as_str())
    }

    pub(super) fn session(session: SessionId) -> Self {
        Self::of("session", &[&session.to_string()])
    }

    /// As an item with nothing else.
    pub(super) fn item(&self) -> Item {
        HashMap::from([
            (PK.to_owned(), text(&self.pk)),
            (SK.to_owned(), text(&self.sk)),
        ])
    }
}

/// How long something may last, counted from whenever an observer first saw its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) id: String,
    pub(super) micros: i64,
    /// The latest the store's date can have been then; see `observer`.
    pub(super) date_max: Option<i64>,
}

/// What the vendor's window is counted from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct First {
    pub(super) id: String,
    /// The earliest the store's date can have been then.
    pub(super) date_min: Option<i64>,
}

/// A key as it is kept.
#[derive(Debug, Clone)]
pub(super) struct KeyItem {
    pub(super) version: u64,
    /// Without times: they are an observer's.
    record: KeyRecord,
    first: First,
    land: Span,
    open: Vec<(u32, Span)>,
}

impl KeyItem {
    /// The record after a decision made at `now`, as it is to be kept.
    pub(super) fn next(
        record: &KeyRecord,
        before: Option<&Self>,
        now: StoreTime,
        observer: &Observer,
    ) -> Self {
        let id = attempt_id(record);
        let is_new_attempt = record.phase == Phase::Intent
            && before.is_none_or(|before| attempt_id(&before.record) != id);
        let land = match before {
            Some(before) if !is_new_attempt => before.land.clone(),
            _ => Span {
                id: id.clone(),
                micros: record.quiescent_at.0.saturating_sub(now.0),
                date_max: observer.date_max(),
            },
        };
        let first = match before {
            Some(before) if !is_new_attempt || before.record.phase == Phase::InDoubt => {
                before.first.clone()
            }
            _ => First {
                id: id.clone(),
                date_min: observer.date_min(),
            },
        };
        let span_of = |attempt: &u32| {
            let known = before.and_then(|before| before.open.iter().find(|(a, _)| a == attempt));
            known.map_or_else(|| land.clone(), |(_, span)| span.clone())
        };
        let open = record.open_attempts.iter().map(|a| (*a, span_of(a)));
        Self {
            version: before.map_or(0, |before| before.version) + 1,
            open: open.collect(),
            record: record.clone(),
            first,
            land,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.record.phase
    }

    /// Its entity, as its last attempt named it.
    pub(super) fn entity_key(&self) -> &EntityKey {
        &self.record.proposal.entity_key
    }

    pub(super) fn tenant(&self) -> &TenantId {
        &self.record.proposal.tenant_id
    }

    pub(super) fn name(&self) -> &IdempotencyKey {
        &self.record.proposal.idempotency_key
    }

    pub(super) fn receipt_id(&self) -> &str {
        &self.record.proposal.receipt_id
    }

    pub(super) fn session(&self) -> SessionId {
        self.record.session
    }

    pub(super) fn attempt_id(&self) -> String {
        attempt_id(&self.record)
    }

    /// The record, with times on this observer's clock.
    pub(super) fn seen_by(&self, observer: &Observer) -> KeyRecord {
        let mut record = self.record.clone();
        let is_open = matches!(record.phase, Phase::Intent | Phase::InDoubt);
        record.first_intent_at = observer.since(&self.first);
        // What is settled needs no watching.
        record.quiescent_at = if is_open {
            observer.until(&self.land)
        } else {
            StoreTime(i64::MIN)
        };
        let ends = self.open.iter().map(|(_, span)| observer.until(span));
        record.open_until = ends.max().unwrap_or(StoreTime(i64::MIN));
        record
    }

    pub(super) fn read(item: &Item) -> Result<Self, String> {
        let fields = Fields::of(item, "a key");
        let phase = fields.text("phase")?;
        let proposal: operators_kernel::Proposal = fields.json("proposal")?;
        let open = fields.list("open")?.into_iter().map(|entry| {
            let entry = Fields::of(entry, "an open attempt");
            Ok((entry.number("attempt")?, read_span(&entry)?))
        });
        let open = open.collect::<Result<Vec<(u32, Span)>, String>>()?;
        let record = KeyRecord {
            generation: fields.number("generation")?,
            phase: Phase::from_word(phase).ok_or_else(|| format!("a key is `{phase}`"))?,
            attempt: fields.number("attempt")?,
            session: SessionId(fields.number("session")?),
            fence: Fence(fields.number("fence")?),
            fingerprint: Fingerprint(fields.text("fingerprint")?.to_owned()),
            effect: fields.json("effect")?,
            on_unknown: fields.json("on_unknown")?,
            first_intent_at: StoreTime(i64::MIN),
            quiescent_at: StoreTime(i64::MIN),
            open_attempts: open.iter().map(|(attempt, _)| *attempt).collect(),
            open_until: StoreTime(i64::MIN),
            proposal,
            application: fields.json_if_there("application")?,
        };
        Ok(Self {
            version: fields.number(VERSION)?,
            first: First {
                id: fields.text("first_id")?.to_owned(),
                date_min: fields.number_if_there("first_date_min")?,
            },
            land: Span {
                id: attempt_id(&record),
                micros: fields.number("land_us")?,
                date_max: fields.number_if_there("land_date_max")?,
            },
            open,
            record,
        })
    }

    pub(super) fn write(&self) -> Result<Item, String> {
        let record = &self.record;
        let proposal = &record.proposal;
        let address = Address::key(&proposal.tenant_id, &proposal.idempotency_key);
        let mut item = address.item();
        let mut put = |name: &str, value| drop(item.insert(name.to_owned(), value));
        put(VERSION, number(self.version));
        put("generation", number(record.generation));
        put("phase", text(record.phase.as_str()));
        put("attempt", number(record.attempt));
        put("session", number(record.session.0));
        put("fence", number(record.fence.0));
        put("fingerprint", text(&record.fingerprint.0));
        put("effect", text(to_json(&record.effect)?));
        put("on_unknown", text(to_json(&record.on_unknown)?));
        put("proposal", text(to_json(proposal)?));
        put("first_id", text(&self.first.id));
        put("land_us", number(self.land.micros));
        if let Some(date) = self.first.date_min {
            put("first_date_min", number(date));
        }
        if let Some(date) = self.land.date_max {
            put("land_date_max", number(date));
        }
        if !self.open.is_empty() {
            let open = self.open.iter().map(|(attempt, span)| {
                let mut entry = write_span(span);
                entry.insert("attempt".to_owned(), number(*attempt));
                AttributeValue::M(entry)
            });
            put("open", AttributeValue::L(open.collect()));
        }
        if let Some(application) = &record.application {
            put("application", text(to_json(&kept(application.clone())?)?));
        }
        if record.phase == Phase::Intent {
            put(INTENT_OF, text(record.session.to_string()));
        }
        Ok(item)
    }
}

/// Nothing else ever has this id: what is known about one attempt is never taken for another's.
fn attempt_id(record: &KeyRecord) -> String {
    let receipt_id = &record.proposal.receipt_id;
    format!("{receipt_id}#{}.{}", record.generation, record.attempt)
}

/// A result too large for an item is kept as its digest.
fn kept(
    mut application: operators_kernel::life::Application,
) -> Result<operators_kernel::life::Application, String> {
    let result = &mut application.original.result;
    let bytes = to_json(result)?.len();
    if bytes > RESULT_BYTES_MAX {
        let digest = json::digest(result).map_err(|error| error.to_string())?;
        *result = serde_json::json!({ "digest": digest, "bytes": bytes, "kept": false });
    }
    Ok(application)
}

/// A place in an entity's queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) ticket: Ticket,
    pub(super) session: SessionId,
    /// Who waits there; asking again after a lost answer finds its place again.
    pub(super) asker: String,
}

/// An entity as it is kept.
#[derive(Debug, Clone)]
pub(super) struct EntityItem {
    /// 0 if nobody touched it yet.
    pub(super) version: u64,
    /// Without times: they are an observer's.
    pub(super) record: EntityRecord,
    /// The key under which it is held, so that a dead holder's intent is found without an index.
    pub(super) holding: Option<IdempotencyKey>,
    pub(super) queue: Vec<Waiter>,
    /// Tickets given so far.
    pub(super) tickets: u64,
    pub(super) landing: Option<Span>,
}

impl EntityItem {
    pub(super) fn untouched() -> Self {
        Self {
            version: 0,
            record: EntityRecord::default(),
            holding: None,
            queue: Vec::new(),
            tickets: 0,
            landing: None,
        }
    }

    /// Whether a claim may expect to be granted at once.
    pub(super) fn is_free(&self) -> bool {
        self.record.holder.is_none()
            && self.queue.is_empty()
            && self.record.doubt.is_none()
            && self.landing.is_none()
    }

    /// The record, with times on this observer's clock.
    pub(super) fn seen_by(&self, observer: &Observer) -> EntityRecord {
        let mut record = self.record.clone();
        record.landing_until = match &self.landing {
            Some(span) => observer.until(span),
            None => StoreTime(i64::MIN),
        };
        record
    }

    pub(super) fn read(item: &Item) -> Result<Self, String> {
        let fields = Fields::of(item, "an entity");
        let key_if_there = |name: &str| {
            let found = fields.text_if_there(name)?;
            let key = found.map(IdempotencyKey::parse).transpose();
            key.map_err(|error| error.to_string())
        };
        let queue = fields.list("queue")?.into_iter().map(|entry| {
            let entry = Fields::of(entry, "a place in a queue");
            Ok(Waiter {
                ticket: Ticket(entry.number("ticket")?),
                session: SessionId(entry.number("session")?),
                asker: entry.text("asker")?.to_owned(),
            })
        });
        let landing = fields.map_if_there("landing")?;
        Ok(Self {
            version: fields.number(VERSION)?,
            record: EntityRecord {
                fence: Fence(fields.number("fence")?),
                holder: fields.number_if_there("holder")?.map(SessionId),
                revision: fields.number_if_there("revision")?,
                doubt: key_if_there("doubt")?,
                landing_until: StoreTime(i64::MIN),
            },
            holding: key_if_there("holding")?,
            queue: queue.collect::<Result<_, String>>()?,
            tickets: fields.number("tickets")?,
            landing: landing
                .map(|span| read_span(&Fields::of(span, "a landing")))
                .transpose()?,
        })
    }

    pub(super) fn write(&self, address: &Address) -> Item {
        let mut item = address.item();
        let mut put = |name: &str, value| drop(item.insert(name.to_owned(), value));
        put(VERSION, number(self.version));
        put("fence", number(self.record.fence.0));
        put("tickets", number(self.tickets));
        if let Some(holder) = self.record.holder {
            put("holder", number(holder.0));
        }
        if let Some(revision) = self.record.revision {
            put("revision", number(revision));
        }
        if let Some(doubt) = &self.record.doubt {
            put("doubt", text(doubt.as_str()));
        }
        if let Some(key) = &self.holding {
            put("holding", text(key.as_str()));
        }
        if let Some(landing) = &self.landing {
            put("landing", AttributeValue::M(write_span(landing)));
        }
        if !self.queue.is_empty() {
            let queue = self.queue.iter().map(|waiter| {
                AttributeValue::M(HashMap::from([
                    ("ticket".to_owned(), number(waiter.ticket.0)),
                    ("session".to_owned(), number(waiter.session.0)),
                    ("asker".to_owned(), text(&waiter.asker)),
                ]))
            });
            put("queue", AttributeValue::L(queue.collect()));
        }
        item
    }
}

/// A receipt's item. It is put once and never again.
pub(super) fn write_receipt(receipt: &Receipt) -> Result<Item, String> {
    let mut item = Address::receipt(&receipt.tenant_id, &receipt.receipt_id).item();
    let body = json::canonical(receipt).map_err(|error| error.to_string())?;
    item.insert("body".to_owned(), text(body));
    Ok(item)
}

/// A receipt from its item.
pub(super) fn read_receipt(item: &Item) -> Result<Receipt, String> {
    Fields::of(item, "a receipt").json("body")
}

fn write_span(span: &Span) -> Item {
    let mut entry = HashMap::from([
        ("id".to_owned(), text(&span.id)),
        ("us".to_owned(), number(span.micros)),
    ]);
    if let Some(date) = span.date_max {
        entry.insert("date_max".to_owned(), number(date));
    }
    entry
}

fn read_span(fields: &Fields<'_>) -> Result<Span, String> {
    Ok(Span {
        id: fields.text("id")?.to_owned(),
        micros: fields.number("us")?,
        date_max: fields.number_if_there("date_max")?,
    })
}

fn to_json(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| error.to_string())
}

/// The size a proposal will have in an item.
pub(super) fn proposal_bytes(proposal: &operators_kernel::Proposal) -> Result<usize, String> {
    to_json(proposal).map(|text| text.len())
}

/// Reads JSON out of an attribute.
pub(super) fn from_json<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("{what} cannot be read: {error}"))
}
