//! Looking after everybody: sessions that show no life are buried, and what the dead left open is made
//! doubts, as far as it can be found.
//!
//! A sweep is a part of a heartbeat, so it has its time and no more: what is left is for the next one.
//! What fails holds up nobody: it is said, the sweep goes on, and the next begins somewhere else.

use std::time::Duration;

use operators_kernel::{SessionId, StoreError, StoreTime};

use super::Shared;
use super::fields::{Fields, text};
use super::item::{Address, BY_SESSION, INTENT_OF, Item, PK, SK};
use super::key_item::KeyItem;
use super::session::{Entry, roster};
use super::trouble::chance;
use crate::page::KeyName;

/// How long, by the store's dates, a dead session's intents are looked for: an index lags by
/// seconds at worst.
const SWEEP_FOR_MICROS: i64 = 600_000_000;

/// The part of a lease that a sweep may take: there are three beats in one, and two may be lost.
const LEASE_PART: u32 = 6;

/// What it may take at the least: a few requests.
const TIME_MIN: Duration = Duration::from_secs(1);

/// What became of a look for a dead session's intents.
#[derive(Debug, Default)]
pub(super) struct Swept {
    /// How many there were, doubts now.
    pub(super) found: usize,
    /// Why one of them is not, if so.
    pub(super) problem: Option<StoreError>,
    tried: usize,
    /// Whether time was out before all were looked at.
    is_cut: bool,
}

impl Swept {
    fn took(&mut self, session: SessionId, made: Result<bool, StoreError>) {
        self.tried += 1;
        match made {
            Ok(is_found) => self.found += usize::from(is_found),
            Err(error) => {
                tracing::warn!(%session, %error, "what a dead session left open is no doubt yet");
                self.problem.get_or_insert(error);
            }
        }
    }

    /// Whether time is out. Something is tried every time, however little there is.
    fn is_over(&mut self, until: Option<StoreTime>, now: StoreTime) -> bool {
        self.is_cut = self.tried > 0 && until.is_some_and(|until| now >= until);
        self.is_cut
    }
}

impl Shared {
    /// Until when a sweep that begins now may last, by whoever must beat again within this lease.
    pub(super) fn sweep_until(&self, lease: Duration) -> StoreTime {
        let time = (lease / LEASE_PART).max(TIME_MIN);
        self.table.observer.now().plus(time)
    }

    /// Looks after every session: buries those that show no life, and what the dead left open.
    pub(super) async fn sweep(&self, until: StoreTime) -> Result<(), StoreError> {
        let list = self.table.get(&roster()).await?.unwrap_or_default();
        let live = Fields::of(&list, "the list of sessions").numbers::<u64>("live");
        let live = live.map_err(|problem| self.table.unusable(problem))?;
        let addresses: Vec<Address> = live
            .into_iter()
            .map(|session| Address::session(SessionId(session)))
            .collect();
        let asked = self.table.observer.now();
        let mut entries = Vec::new();
        for item in self.table.get_all(&addresses).await? {
            let entry = Entry::read(&item).map_err(|problem| self.table.unusable(problem))?;
            if entry.is_dead || self.seen(&entry).alive_until < asked {
                entries.push(entry);
            }
        }
        begin_anywhere(&mut entries);
        for entry in entries {
            let swept = if entry.is_dead {
                self.sweep_dead(&entry, until).await
            } else {
                self.bury(entry.session, None).await.map(drop)
            };
            if let Err(error) = swept {
                let session = entry.session;
                tracing::warn!(%session, %error, "a session could not be looked after");
            }
            if self.table.observer.now() >= until {
                break;
            }
        }
        Ok(())
    }

    async fn sweep_dead(&self, entry: &Entry, until: StoreTime) -> Result<(), StoreError> {
        let swept = self.sweep_intents(entry.session, Some(until)).await?;
        let now = self.table.observer.date_min();
        let is_long_ago = match (now, entry.dead_date_max) {
            (Some(now), Some(died)) => now.saturating_sub(died) > SWEEP_FOR_MICROS,
            _ => false,
        };
        let is_clean = swept.found == 0 && swept.problem.is_none() && !swept.is_cut;
        if is_clean && is_long_ago {
            self.enlist(entry.session, "DELETE").await?;
        }
        Ok(())
    }

    /// Makes doubts of a dead session's intents, as far as they can be found: what this process knows
    /// of, and then what the index shows. Goes on past what fails, and stops when time is out.
    pub(super) async fn sweep_intents(
        &self,
        session: SessionId,
        until: Option<StoreTime>,
    ) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        for key in self.table.observer.intents_of(session) {
            if swept.is_over(until, self.table.observer.now()) {
                return Ok(swept);
            }
            let made = self.orphaned(session, name_of(&key)).await;
            swept.took(session, made);
        }
        let mut from: Option<Item> = None;
        loop {
            let (mut found, next) = self.intents_page(session, from).await?;
            begin_anywhere(&mut found);
            for address in found {
                if swept.is_over(until, self.table.observer.now()) {
                    return Ok(swept);
                }
                let made = self.orphaned_at(session, &address).await;
                swept.took(session, made);
            }
            from = next;
            if from.is_none() {
                return Ok(swept);
            }
        }
    }

    /// Some of the keys that the index shows as a session's intents, and where it goes on.
    pub(super) async fn intents_page(
        &self,
        session: SessionId,
        from: Option<Item>,
    ) -> Result<(Vec<Address>, Option<Item>), StoreError> {
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
        let mut addresses = Vec::new();
        for found in page.items.unwrap_or_default() {
            let fields = Fields::of(&found, "an index entry");
            let address = fields.text(PK).and_then(|pk| Ok((pk, fields.text(SK)?)));
            let (pk, sk) = address.map_err(|problem| self.table.unusable(problem))?;
            let (pk, sk) = (pk.to_owned(), sk.to_owned());
            addresses.push(Address { pk, sk });
        }
        Ok((addresses, page.last_evaluated_key))
    }

    async fn orphaned_at(&self, session: SessionId, address: &Address) -> Result<bool, StoreError> {
        let key = self.table.get(address).await?;
        match self.read_key(key.as_ref())? {
            Some(key) => self.orphaned(session, name_of(&key)).await,
            None => Ok(false),
        }
    }

    async fn orphaned(
        &self,
        session: SessionId,
        (tenant, key): KeyName,
    ) -> Result<bool, StoreError> {
        match self.sheet_of(&tenant, &key).await? {
            Some(mut sheet) => self.owner_died(session, &mut sheet).await,
            None => Ok(false),
        }
    }
}

/// Whatever is first and fails is not first for ever.
fn begin_anywhere<T>(all: &mut [T]) {
    if !all.is_empty() {
        all.rotate_left(usize::from(chance()) % all.len());
    }
}

fn name_of(key: &KeyItem) -> KeyName {
    (key.tenant().clone(), key.name().clone())
}
