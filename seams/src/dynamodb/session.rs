//! Sessions: opened, kept alive, watched and buried.
//!
//! A session is a beat that its owner counts up. Whoever has watched a beat stand still for the
//! session's lease, on its own monotonic clock, may declare the session dead, on condition that the
//! beat is still the same. What a dead session left open is found through an index that may lag, so
//! it is looked for again until it cannot lag any more, and by whoever meets an entity it holds.

use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use operators_kernel::{Beat, SessionId, StoreError};

use super::Shared;
use super::fields::{Fields, number, text};
use super::item::{Address, Item, PK};
use crate::page::SessionRecord;

/// The list of sessions that may still have something open.
pub(super) fn roster() -> Address {
    Address::of("sessions", &[])
}

/// A session as it is kept.
pub(super) struct Entry {
    pub(super) session: SessionId,
    pub(super) beat: u64,
    lease: Duration,
    pub(super) is_dead: bool,
    /// The latest the store's date can have been at its last beat, and at its death.
    beat_date_max: Option<i64>,
    pub(super) dead_date_max: Option<i64>,
}

impl Entry {
    pub(super) fn read(item: &Item) -> Result<Self, String> {
        let fields = Fields::of(item, "a session");
        Ok(Self {
            session: SessionId(fields.number("session")?),
            beat: fields.number("beat")?,
            lease: Duration::from_micros(fields.number("lease_us")?),
            is_dead: fields.flag("dead"),
            beat_date_max: fields.number_if_there("beat_date_max")?,
            dead_date_max: fields.number_if_there("dead_date_max")?,
        })
    }
}

pub(super) const GONE: SessionRecord = SessionRecord {
    lease: Duration::ZERO,
    alive_until: operators_kernel::StoreTime(i64::MIN),
    is_dead: true,
};

impl Shared {
    pub(super) async fn open_session(
        &self,
        node: &str,
        lease: Duration,
    ) -> Result<SessionId, StoreError> {
        self.raise_layout().await?;
        let counted = self
            .table
            .send(|| {
                self.update(&roster())
                    .update_expression("ADD opened :one")
                    .expression_attribute_values(":one", number(1))
                    .return_values(ReturnValue::UpdatedNew)
                    .send()
            })
            .await?;
        let opened = counted.attributes.unwrap_or_default();
        let opened = Fields::of(&opened, "the list of sessions").number("opened");
        let session = SessionId(opened.map_err(|problem| self.table.unusable(problem))?);
        self.trail.prefer_lane_of(session);
        let asked = self.table.observer.now();
        let lease_us = u64::try_from(lease.as_micros()).unwrap_or(u64::MAX);
        let mut item = Address::session(session).item();
        item.insert("session".to_owned(), number(session.0));
        item.insert("node".to_owned(), text(node));
        item.insert("beat".to_owned(), number(1));
        item.insert("lease_us".to_owned(), number(lease_us));
        item.insert("dead".to_owned(), AttributeValue::Bool(false));
        if let Some(date) = self.table.observer.date_max() {
            item.insert("beat_date_max".to_owned(), number(date));
        }
        self.table
            .send(|| {
                let request = self.table.client.put_item().table_name(&self.table.name);
                request.set_item(Some(item.clone())).send()
            })
            .await?;
        self.enlist(session, "ADD").await?;
        self.table.observer.own_beat(session, lease, asked);
        self.sweep().await?;
        Ok(session)
    }

    pub(super) async fn enlist(&self, session: SessionId, verb: &str) -> Result<(), StoreError> {
        self.table
            .send(|| {
                let one = AttributeValue::Ns(vec![session.to_string()]);
                self.update(&roster())
                    .update_expression(format!("{verb} live :session"))
                    .expression_attribute_values(":session", one)
                    .send()
            })
            .await?;
        Ok(())
    }

    fn update(
        &self,
        address: &Address,
    ) -> aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder {
        let request = self.table.client.update_item().table_name(&self.table.name);
        request.set_key(Some(address.item()))
    }

    /// Counts the beat up, then looks after everybody else's.
    pub(super) async fn heartbeat(&self, session: SessionId) -> Result<Beat, StoreError> {
        let asked = self.table.observer.now();
        let date = self.table.observer.date_max();
        let change = match date {
            Some(_) => "SET beat = beat + :one, beat_date_max = :date",
            None => "SET beat = beat + :one REMOVE beat_date_max",
        };
        let beaten = self
            .change_session(session, change, "dead = :no", |mut request| {
                if let Some(date) = date {
                    request = request.expression_attribute_values(":date", number(date));
                }
                request
                    .expression_attribute_values(":one", number(1))
                    .expression_attribute_values(":no", AttributeValue::Bool(false))
            })
            .await?;
        let Some(entry) = beaten else {
            self.table.observer.buried(session);
            return Ok(Beat::Dead);
        };
        self.table.observer.own_beat(session, entry.lease, asked);
        if let Err(error) = self.sweep().await {
            // This session lives, whatever became of the look at the others.
            tracing::warn!(%error, "the other sessions could not be looked after");
        }
        Ok(Beat::Alive)
    }

    /// Changes a session that fits `condition`; nothing if it does not.
    pub(super) async fn change_session(
        &self,
        session: SessionId,
        change: &str,
        condition: &str,
        fill: impl Fn(
            aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder,
        )
            -> aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder,
    ) -> Result<Option<Entry>, StoreError> {
        let changed = self
            .table
            .send(|| {
                let request = self
                    .update(&Address::session(session))
                    .update_expression(change)
                    .condition_expression(format!("attribute_exists({PK}) AND {condition}"))
                    .return_values(ReturnValue::AllNew);
                let request = fill(request);
                async move {
                    match request.send().await {
                        Ok(changed) => Ok(changed.attributes),
                        Err(error) => match error.as_service_error() {
                            Some(service) if service.is_conditional_check_failed_exception() => {
                                Ok(None)
                            }
                            _ => Err(error),
                        },
                    }
                }
            })
            .await?;
        let entry = changed.as_ref().map(Entry::read).transpose();
        entry.map_err(|problem| self.table.unusable(problem))
    }

    /// A session as a decision needs it.
    pub(super) async fn session(&self, session: SessionId) -> Result<SessionRecord, StoreError> {
        if let Some(own) = self.table.observer.own_lease(session) {
            return Ok(own);
        }
        let found = self.table.get(&Address::session(session)).await?;
        let entry = found.as_ref().map(Entry::read).transpose();
        let entry = entry.map_err(|problem| self.table.unusable(problem))?;
        Ok(entry.map_or(GONE, |entry| self.seen(&entry)))
    }

    pub(super) fn seen(&self, entry: &Entry) -> SessionRecord {
        if entry.is_dead {
            return GONE;
        }
        let observer = &self.table.observer;
        observer.saw_beat(entry.session, entry.beat, entry.lease, entry.beat_date_max)
    }
}
