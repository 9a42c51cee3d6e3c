//! Deaths: who is declared dead, and how what they left open becomes doubts.

use aws_sdk_dynamodb::types::AttributeValue;
use operators_kernel::life::Phase;
use operators_kernel::{SessionId, StoreError};

use super::Shared;
use super::fields::{Fields, number, text};
use super::item::{Address, BY_SESSION, INTENT_OF, Item, PK, SK};
use super::key_item::KeyItem;
use super::session::{Entry, GONE, roster};
use super::sheet::{Kept, Sheet};
use super::trouble::Pauses;
use crate::book;
use crate::page::{KeyName, SessionRecord};

/// How long, by the store's dates, a dead session's intents are looked for: an index lags by
/// seconds at worst.
const SWEEP_FOR_MICROS: i64 = 600_000_000;

impl Shared {
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
            let unchanged = "dead = :no AND beat = :beat";
            let declared = self.declare(session, unchanged, Some(entry.beat)).await?;
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
        Ok(declared.is_ok())
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
            if let Kept::Done = self.keep(sheet, page, asked).await? {
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
        let is_long_ago = match (now, entry.dead_date_max) {
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
