//! Sessions: opened, kept alive, watched and buried.
//!
//! A session is a beat that its owner counts up. Whoever has watched a beat stand still for the
//! session's lease, on its own monotonic clock, may declare the session dead, on condition that the
//! beat is still the same. What a dead session left open is found through an index that may lag, so
//! it is looked for again until it cannot lag any more, and by whoever meets an entity it holds.

use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use operators_kernel::life::Phase;
use operators_kernel::{Beat, SessionId, StoreError};

use super::Shared;
use super::fields::{Fields, number, text};
use super::item::{Address, BY_SESSION, INTENT_OF, Item, KeyItem, PK, SK};
use super::request::Pauses;
use super::sheet::{Kept, Sheet};
use crate::book;
use crate::page::{KeyName, SessionRecord};

/// How long, by the store's dates, a dead session's intents are looked for: an index lags by
/// seconds at worst.
const SWEEP_FOR_MICROS: i64 = 600_000_000;

fn roster() -> Address {
    Address::of("sessions", &[])
}

/// A session as it is kept.
struct Entry {
    session: SessionId,
    beat: u64,
    lease: Duration,
    is_dead: bool,
    died_at_most: Option<i64>,
}

impl Entry {
    fn read(item: &Item) -> Result<Self, String> {
        let fields = Fields::of(item, "a session");
        Ok(Self {
            session: SessionId(fields.number("session")?),
            beat: fields.number("beat")?,
            lease: Duration::from_micros(fields.number("lease_us")?),
            is_dead: fields.flag("dead"),
            died_at_most: fields.number_if_there("dead_date_max")?,
        })
    }
}

const GONE: SessionRecord = SessionRecord {
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
        let asked = self.table.observer.now();
        let lease_us = u64::try_from(lease.as_micros()).unwrap_or(u64::MAX);
        let mut item = Address::session(session).item();
        item.insert("session".to_owned(), number(session.0));
        item.insert("node".to_owned(), text(node));
        item.insert("beat".to_owned(), number(1));
        item.insert("lease_us".to_owned(), number(lease_us));
        item.insert("dead".to_owned(), AttributeValue::Bool(false));
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

    async fn enlist(&self, session: SessionId, verb: &str) -> Result<(), StoreError> {
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
        let beaten = self
            .change_session(session, "SET beat = beat + :one", "dead = :no", |request| {
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
    async fn change_session(
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

    fn seen(&self, entry: &Entry) -> SessionRecord {
        if entry.is_dead {
            return GONE;
        }
        let observer = &self.table.observer;
        observer.saw_beat(entry.session, entry.beat, entry.lease)
    }

    /// Declares a session dead if it shows no life, and makes doubts of what it left open: `held`
    /// first, which is known for certain, then what the index shows.
    pub(super) async fn bury(
        &self,
        session: SessionId,
        held: Option<KeyName>,
    ) -> Result<SessionRecord, StoreError> {
        let now = self.table.observer.now();
        let found = self.table.get(&Address::session(session)).await?;
        let entry = found.as_ref().map(Entry::read).transpose();
        let entry = entry.map_err(|problem| self.table.unusable(problem))?;
        if let Some(entry) = entry
            && !entry.is_dead
        {
            let record = self.seen(&entry);
            if record.alive_until >= now {
                return Ok(record);
            }
            let unchanged = format!("dead = :no AND beat = {}", ":beat");
            let declared = self.declare(session, &unchanged, Some(entry.beat)).await?;
            if !declared {
                // It beat at the last moment, or somebody else declared it: look again.
                return self.session(session).await;
            }
            tracing::warn!(%session, "the session showed no life for its lease and was declared dead");
        }
        self.table.observer.buried(session);
        if let Some((tenant, key)) = held {
            let mut sheet = self.sheet_of(&tenant, &key).await?;
            if let Some(sheet) = &mut sheet {
                self.owner_died(session, sheet).await?;
            }
        }
        self.sweep_intents(session).await?;
        Ok(GONE)
    }

    async fn declare(
        &self,
        session: SessionId,
        condition: &str,
        beat: Option<u64>,
    ) -> Result<bool, StoreError> {
        let date = self.table.observer.date_max();
        let change = match date {
            Some(_) => "SET dead = :yes, dead_date_max = :date",
            None => "SET dead = :yes",
        };
        let declared = self
            .change_session(session, change, condition, |mut request| {
                request = request
                    .expression_attribute_values(":yes", AttributeValue::Bool(true))
                    .expression_attribute_values(":no", AttributeValue::Bool(false));
                if let Some(beat) = beat {
                    request = request.expression_attribute_values(":beat", number(beat));
                }
                if let Some(date) = date {
                    request = request.expression_attribute_values(":date", number(date));
                }
                request
            })
            .await?;
        Ok(declared.is_some())
    }

    /// Ends a session in good order.
    pub(super) async fn close_session(&self, session: SessionId) -> Result<(), StoreError> {
        self.declare(session, "dead = :no", None).await?;
        self.table.observer.buried(session);
        let left = self.sweep_intents(session).await?;
        // Whoever closes knows what was left open, unless an answer was lost.
        if left == 0 && !self.lost_an_answer() {
            self.enlist(session, "DELETE").await?;
        }
        Ok(())
    }

    /// Makes doubts of a dead session's intents, as far as they can be found; how many there were.
    async fn sweep_intents(&self, session: SessionId) -> Result<usize, StoreError> {
        let mut names: Vec<KeyName> = Vec::new();
        let own = self.table.observer.intents_of(session);
        names.extend(own.iter().map(name_of));
        let mut from: Option<Item> = None;
        loop {
            let page = self
                .table
                .send(|| {
                    self.table
                        .client
                        .query()
                        .table_name(&self.table.name)
                        .index_name(BY_SESSION)
                        .key_condition_expression(format!("{INTENT_OF} = :session"))
                        .expression_attribute_values(":session", text(session.to_string()))
                        .set_exclusive_start_key(from.clone())
                        .send()
                })
                .await?;
            for found in page.items.unwrap_or_default() {
                let fields = Fields::of(&found, "an index entry");
                let address = fields.text(PK).and_then(|pk| Ok((pk, fields.text(SK)?)));
                let (pk, sk) = address.map_err(|problem| self.table.unusable(problem))?;
                let address = Address {
                    pk: pk.to_owned(),
                    sk: sk.to_owned(),
                };
                let key = self.table.get(&address).await?;
                let key = self.read_key(key.as_ref())?;
                names.extend(key.as_ref().map(name_of));
            }
            from = page.last_evaluated_key;
            if from.is_none() {
                break;
            }
        }
        let mut swept = 0;
        for (tenant, key) in names {
            if let Some(mut sheet) = self.sheet_of(&tenant, &key).await?
                && self.owner_died(session, &mut sheet).await?
            {
                swept += 1;
            }
        }
        Ok(swept)
    }

    /// Makes a doubt of a dead session's intent; `false` if it is none.
    async fn owner_died(&self, session: SessionId, sheet: &mut Sheet) -> Result<bool, StoreError> {
        let asked = self.table.observer.now();
        let mut pauses = Pauses::new(&self.table.observer);
        loop {
            self.follow(sheet).await?;
            let is_open = sheet
                .key
                .as_ref()
                .is_some_and(|key| key.phase() == Phase::Intent && key.session() == session);
            if !is_open {
                return Ok(false);
            }
            sheet.dying = Some(session);
            let decided = self.decide(sheet, |page| book::declare_dead(page, session));
            let (page, ()) = Box::pin(decided).await?;
            if let Kept::Done = self.keep(sheet, page, "", asked).await? {
                return Ok(true);
            }
            if !pauses.pause(&self.table.observer).await {
                return Err(self.table.unavailable("a doubt could not be recorded"));
            }
        }
    }

    /// Looks after every session: buries those that show no life, and what the dead left open.
    pub(super) async fn sweep(&self) -> Result<(), StoreError> {
        let list = self.table.get(&roster()).await?.unwrap_or_default();
        let live = Fields::of(&list, "the list of sessions").numbers::<u64>("live");
        let live = live.map_err(|problem| self.table.unusable(problem))?;
        let addresses: Vec<Address> = live
            .into_iter()
            .map(|session| Address::session(SessionId(session)))
            .collect();
        let asked = self.table.observer.now();
        for item in self.table.get_all(&addresses).await? {
            let entry = Entry::read(&item).map_err(|problem| self.table.unusable(problem))?;
            if entry.is_dead {
                self.sweep_dead(&entry).await?;
            } else if self.seen(&entry).alive_until < asked {
                self.bury(entry.session, None).await?;
            }
        }
        Ok(())
    }

    async fn sweep_dead(&self, entry: &Entry) -> Result<(), StoreError> {
        let left = self.sweep_intents(entry.session).await?;
        let now = self.table.observer.date_min();
        let is_long_ago = match (now, entry.died_at_most) {
            (Some(now), Some(died)) => now.saturating_sub(died) > SWEEP_FOR_MICROS,
            _ => false,
        };
        if left == 0 && is_long_ago {
            self.enlist(entry.session, "DELETE").await?;
        }
        Ok(())
    }
}

fn name_of(key: &KeyItem) -> KeyName {
    (key.tenant().clone(), key.name().clone())
}
