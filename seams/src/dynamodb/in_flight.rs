//! Attempts in flight, and whether the process behind each is still there: not known before its beat
//! was watched for a lease, or the store's dates say that it is over.
//!
//! Owns a look that writes nothing, and the death of one key's owner.

use std::collections::HashSet;
use std::time::Duration;

use operators_kernel::life::Phase;
use operators_kernel::{
    IdempotencyKey, InFlight, OwnerState, SessionId, StoreError, StoreTime, TenantHistory, TenantId,
};

use super::Shared;
use super::fields::Fields;
use super::item::{Address, Item};
use super::pages::page_address;
use super::request::Range;
use super::session::{Entry, roster};
use super::trail::{LANES, lane_pk};

/// How often an owner is looked at again whose death another process was recording.
const LOOKS_MAX: usize = 3;

/// A session with what its process calls itself.
struct Owner {
    entry: Entry,
    node: String,
    lease: Duration,
}

impl Owner {
    fn read(item: &Item) -> Result<Self, String> {
        let fields = Fields::of(item, "a session");
        Ok(Self {
            entry: Entry::read(item)?,
            node: fields.text("node")?.to_owned(),
            lease: Duration::from_micros(fields.number("lease_us")?),
        })
    }
}

impl Shared {
    /// Every attempt of the tenant that is in flight, oldest first, as far as the index shows them.
    pub(super) async fn in_flight(
        &self,
        tenant: &TenantId,
    ) -> Result<(Vec<InFlight>, StoreTime), StoreError> {
        let list = self.table.get(&roster()).await?.unwrap_or_default();
        let live = Fields::of(&list, "the list of sessions").numbers::<u64>("live");
        let live = live.map_err(|problem| self.table.unusable(problem))?;
        let sessions = live.into_iter();
        let sessions = sessions.map(|session| Address::session(SessionId(session)));
        let mut found = Vec::new();
        for item in self.table.get_all(&sessions.collect::<Vec<_>>()).await? {
            let owner = Owner::read(&item).map_err(|problem| self.table.unusable(problem))?;
            self.intents_in(&mut found, tenant, &owner).await?;
        }
        found.sort_by(|a, b| {
            let order = |one: &InFlight| {
                (
                    one.key.proposal.proposed_at,
                    one.key.proposal.receipt_id.clone(),
                )
            };
            order(a).cmp(&order(b))
        });
        Ok((found, self.table.observer.now()))
    }

    async fn intents_in(
        &self,
        found: &mut Vec<InFlight>,
        tenant: &TenantId,
        owner: &Owner,
    ) -> Result<(), StoreError> {
        let observer = &self.table.observer;
        let session = owner.entry.session;
        // What this process began itself is known before the index shows it.
        let own = observer.intents_of(session);
        let own = own.iter().filter(|key| key.tenant() == tenant);
        let mut names: HashSet<Address> = own.map(|key| Address::key(tenant, key.name())).collect();
        let mut from = None;
        loop {
            let (page, next) = self.intents_page(session, from).await?;
            names.extend(page);
            from = next;
            if from.is_none() {
                break;
            }
        }
        let names: Vec<Address> = names.into_iter().collect();
        let is_own = observer.own_lease(session).is_some();
        let lease_until = self.seen(&owner.entry).alive_until;
        for item in self.table.get_all(&names).await? {
            let key = self.read_key(Some(&item))?;
            let is_one = |key: &super::key_item::KeyItem| {
                key.phase() == Phase::Intent && key.session() == session && key.tenant() == tenant
            };
            let Some(key) = key.filter(is_one) else {
                continue;
            };
            found.push(InFlight {
                key: key.seen_by(observer),
                node: owner.node.clone(),
                lease: owner.lease,
                lease_until,
                owner: if is_own {
                    OwnerState::Alive
                } else if owner.entry.is_dead || lease_until < observer.now() {
                    OwnerState::Gone
                } else {
                    OwnerState::NotKnownYet
                },
            });
        }
        Ok(())
    }

    /// Whether anything was ever kept of a tenant, and of any.
    pub(super) async fn history_of(&self, tenant: &TenantId) -> Result<TenantHistory, StoreError> {
        let pages = page_address(tenant, 0).pk;
        let mut ranges = vec![pages];
        ranges.extend((0..LANES).map(|lane| lane_pk(tenant, lane)));
        for pk in ranges {
            let (found, _) = self.table.range(&pk, Range::Last).await?;
            if !found.is_empty() {
                return Ok(TenantHistory::Known);
            }
        }
        let (in_flight, _) = self.in_flight(tenant).await?;
        if !in_flight.is_empty() {
            return Ok(TenantHistory::Known);
        }
        // Every process that wrote anything opened a session first; one that opened a session need
        // not have written anything. A role that may not scan goes by the session.
        let is_used = match self.table.get(&roster()).await? {
            Some(_) => self.table.holds_a_key().await.unwrap_or(true),
            None => false,
        };
        Ok(if is_used {
            TenantHistory::OnlyOthers
        } else {
            TenantHistory::EmptyStore
        })
    }

    /// Declares the owner of a key's intent dead if it shows no sign of life; whether the key is in
    /// flight no more.
    pub(super) async fn declare_owner_dead(
        &self,
        tenant: &TenantId,
        name: &IdempotencyKey,
    ) -> Result<bool, StoreError> {
        for _ in 0..LOOKS_MAX {
            let found = self.table.get(&Address::key(tenant, name)).await?;
            let key = self.read_key(found.as_ref())?;
            let Some(key) = key.filter(|key| key.phase() == Phase::Intent) else {
                return Ok(true);
            };
            let held = (tenant.clone(), name.clone());
            if !self.bury(key.session(), Some(held)).await?.is_dead {
                return Ok(false);
            }
        }
        Err(self.table.unavailable("a doubt could not be recorded"))
    }
}
