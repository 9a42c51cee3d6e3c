//! An entity as an item, with its queue.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use operators_kernel::life::EntityRecord;
use operators_kernel::{Fence, IdempotencyKey, SessionId, StoreTime, Ticket};

use super::fields::{Fields, number, text};
use super::item::{Address, Item, Span, VERSION, read_span, write_span};
use super::observer::Observer;
use crate::book::Waiter;
use crate::page::Queue;

/// An entity as it is kept.
#[derive(Debug, Clone)]
pub(super) struct EntityItem {
    /// 0 if nobody touched it yet.
    pub(super) version: u64,
    /// Without times: they are an observer's.
    pub(super) record: EntityRecord,
    /// The key under which it is held, so that a dead holder's intent is found without an index.
    pub(super) holding: Option<IdempotencyKey>,
    pub(super) queue: Queue,
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
            queue: Queue::new(),
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
            let waiter = Waiter {
                session: SessionId(entry.number("session")?),
                asker: entry.text("asker")?.to_owned(),
            };
            Ok((Ticket(entry.number("ticket")?), waiter))
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
            let queue = self.queue.iter().map(|(ticket, waiter)| {
                AttributeValue::M(HashMap::from([
                    ("ticket".to_owned(), number(ticket.0)),
                    ("session".to_owned(), number(waiter.session.0)),
                    ("asker".to_owned(), text(&waiter.asker)),
                ]))
            });
            put("queue", AttributeValue::L(queue.collect()));
        }
        item
    }
}
