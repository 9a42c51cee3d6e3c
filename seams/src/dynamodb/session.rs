//! Sessions: opened, kept alive, watched and buried.
//!
//! A session is a beat that its owner counts up. Whoever has watched a beat stand still for the
//! session's lease, on its own monotonic clock, may declare the session dead, on condition that the
//! beat is still the same. What a dead session left open is found through an index that may lag, so
//! it is looked for again until it cannot lag any more, and by whoever meets an entity it holds.

use std::time::Duration;

use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};
use operators_kernel::{Beat, SessionId, StoreError};

use super::Shared;
use super::acked::Stay;
use super::fields::{Fields, number, text};
use super::item::{Address, Item, PK};
use super::trouble::{Pauses, fresh_id};
use super::write::{Expect, Write, Written};
use crate::page::SessionRecord;

/// The list of sessions that may still have something open.
pub(super) fn roster() -> Address {
    Address::of("sessions", &[])
}

/// The beat of a session that was opened just now.
const FIRST_BEAT: u64 = 1;

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
        self.check_identity().await?;
        self.raise_layout().await?;
        let stay = fresh_id().map_err(|problem| self.table.unavailable(problem))?;
        let mut pauses = Pauses::new(&self.table.observer);
        loop {
            let session = self.next_session().await?;
            let asked = self.table.observer.now();
            let standstills = self.table.observer.standstills();
            if self.put_session(session, &stay, node, lease).await? {
                self.trail.prefer_lane_of(session);
                self.table.acked.beaten(session, &stay, FIRST_BEAT);
                self.enlist(session, "ADD").await?;
                if self.table.observer.standstills() == standstills {
                    self.table.observer.own_beat(session, lease, asked);
                } else {
                    // It was put with a date that was older than it seemed.
                    Box::pin(self.heartbeat(session)).await?;
                }
                let until = self.sweep_until(lease);
                if let Err(error) = self.sweep(until).await {
                    tracing::warn!(%error, "the other sessions could not be looked after");
                }
                return Ok(session);
            }
            // The count was set back, and the session of that number is somebody's.
            if !pauses.pause(&self.table.observer).await {
                return Err(self.table.unavailable("its sessions are counted anew"));
            }
        }
    }

    /// A number that nobody had.
    async fn next_session(&self) -> Result<SessionId, StoreError> {
        let known = self.table.acked.session_max();
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
        if known.is_some_and(|known| session <= known) {
            return Err(self.table.rolled_back());
        }
        Ok(session)
    }

    /// Puts a session's item; `false` if there is one of that number.
    async fn put_session(
        &self,
        session: SessionId,
        stay: &str,
        node: &str,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        let lease_us = u64::try_from(lease.as_micros()).unwrap_or(u64::MAX);
        let mut item = Address::session(session).item();
        item.insert("session".to_owned(), number(session.0));
        item.insert("node".to_owned(), text(node));
        item.insert("stay".to_owned(), text(stay));
        item.insert("beat".to_owned(), number(FIRST_BEAT));
        item.insert("lease_us".to_owned(), number(lease_us));
        item.insert("dead".to_owned(), AttributeValue::Bool(false));
        if let Some(date) = self.table.observer.date_max() {
            item.insert("beat_date_max".to_owned(), number(date));
        }
        let id = fresh_id().map_err(|problem| self.table.unavailable(problem))?;
        let put = [Write::Put(item, Expect::Absent)];
        Ok(matches!(self.table.write(&id, &put).await?, Written::Done))
    }

    /// Whether the table is the one this process began on. One that was made anew under its name
    /// has another id, whatever it holds.
    async fn check_identity(&self) -> Result<(), StoreError> {
        let Some(Some(id)) = self.table.acked.table_id.get() else {
            return Ok(());
        };
        // Looked at when connecting, and once more for every session after the first.
        if self.table.acked.session_max().is_none() {
            return Ok(());
        }
        let (client, name) = (&self.table.client, &self.table.name);
        let found = self
            .table
            .send(|| client.describe_table().table_name(name).send())
            .await?;
        let found = found.table().and_then(|found| found.table_id());
        if found.is_some_and(|found| found != id) {
            return Err(self.table.replaced());
        }
        Ok(())
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
        let entry = loop {
            let standstills = self.table.observer.standstills();
            let Some(entry) = self.beat(session).await? else {
                return Ok(Beat::Dead);
            };
            // Where it stood still, the date that was written with the beat is older than it seemed:
            // others would take the session for one that has long been silent.
            if self.table.observer.standstills() == standstills {
                break entry;
            }
        };
        let until = self.sweep_until(entry.lease);
        if let Err(error) = self.sweep(until).await {
            // This session lives, whatever became of the look at the others.
            tracing::warn!(%error, "the other sessions could not be looked after");
        }
        Ok(Beat::Alive)
    }

    /// Counts the beat up; nothing if the session is dead.
    async fn beat(&self, session: SessionId) -> Result<Option<Entry>, StoreError> {
        let asked = self.table.observer.now();
        let date = self.table.observer.date_max();
        // Of a session that was opened elsewhere nothing more is known than that it is there.
        let stay = self.table.acked.stay(session);
        let condition = match stay {
            Some(_) => "dead = :no AND stay = :stay AND beat >= :beat",
            None => "dead = :no",
        };
        let change = match date {
            Some(_) => "SET beat = beat + :one, beat_date_max = :date",
            None => "SET beat = beat + :one REMOVE beat_date_max",
        };
        let beaten = self
            .change_session(session, change, condition, |mut request| {
                if let Some(date) = date {
                    request = request.expression_attribute_values(":date", number(date));
                }
                if let Some(stay) = &stay {
                    request = request
                        .expression_attribute_values(":stay", text(&stay.id))
                        .expression_attribute_values(":beat", number(stay.beat));
                }
                request
                    .expression_attribute_values(":one", number(1))
                    .expression_attribute_values(":no", AttributeValue::Bool(false))
            })
            .await?;
        let entry = match beaten {
            Ok(entry) => entry,
            Err(found) => {
                self.check_stay(stay.as_ref(), found.as_ref())?;
                self.table.observer.buried(session);
                return Ok(None);
            }
        };
        if let Some(stay) = stay {
            self.table.acked.beaten(session, &stay.id, entry.beat);
        }
        self.table.observer.own_beat(session, entry.lease, asked);
        Ok(Some(entry))
    }

    /// A session of this process may be buried by others, but neither gone nor of an earlier beat
    /// than was known before the look.
    fn check_stay(&self, known: Option<&Stay>, found: Option<&Item>) -> Result<(), StoreError> {
        match known {
            Some(stay) if !stay.is_in(found) => Err(self.table.rolled_back()),
            _ => Ok(()),
        }
    }

    /// Changes a session that fits `condition`; as it is if it does not.
    pub(super) async fn change_session(
        &self,
        session: SessionId,
        change: &str,
        condition: &str,
        fill: impl Fn(
            aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder,
        )
            -> aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder,
    ) -> Result<Result<Entry, Option<Item>>, StoreError> {
        let changed = self
            .table
            .send(|| {
                let request = self
                    .update(&Address::session(session))
                    .update_expression(change)
                    .condition_expression(format!("attribute_exists({PK}) AND {condition}"))
                    .return_values(ReturnValue::AllNew)
                    .return_values_on_condition_check_failure(
                        ReturnValuesOnConditionCheckFailure::AllOld,
                    );
                let request = fill(request);
                async move {
                    match request.send().await {
                        Ok(changed) => Ok(Ok(changed.attributes.unwrap_or_default())),
                        Err(error) => match error.as_service_error() {
                            Some(UpdateItemError::ConditionalCheckFailedException(refused)) => {
                                Ok(Err(refused.item().cloned()))
                            }
                            _ => Err(error),
                        },
                    }
                }
            })
            .await?;
        match changed {
            Ok(item) => {
                let entry = Entry::read(&item);
                Ok(Ok(entry.map_err(|problem| self.table.unusable(problem))?))
            }
            Err(found) => Ok(Err(found)),
        }
    }

    /// A session as a decision needs it.
    pub(super) async fn session(&self, session: SessionId) -> Result<SessionRecord, StoreError> {
        if let Some(own) = self.table.observer.own_lease(session) {
            return Ok(own);
        }
        let known = self.table.acked.stay(session);
        let found = self.table.get(&Address::session(session)).await?;
        self.check_stay(known.as_ref(), found.as_ref())?;
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
