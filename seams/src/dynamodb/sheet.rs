//! One decision: the records it needs, what `book` makes of them, and the write that holds only if
//! they are still so.
//!
//! A first try may be made on what this process believes (a key nobody used, an entity as it last
//! saw it): its write names the versions it was decided on, so a wrong belief is refused, and the
//! refusal brings the records as they are. What writes nothing is decided on facts only.

use std::collections::{HashMap, HashSet};

use operators_kernel::life::{NoteName, Phase};
use operators_kernel::{
    EntityKey, IdempotencyKey, Receipt, SessionId, StoreError, StoreTime, TenantId, Ticket,
};

use super::Shared;
use super::entity_item::EntityItem;
use super::item::{Address, Item, read_receipt};
use super::key_item::KeyItem;
use super::notes::NoteItem;
use crate::book::BookError;
use crate::page::{EntityName, Page, SessionRecord, Want};

/// The records of one decision.
#[derive(Debug)]
pub(super) struct Sheet {
    pub(super) tenant: TenantId,
    pub(super) entity_key: EntityKey,
    pub(super) key_name: Option<IdempotencyKey>,
    pub(super) key: Option<KeyItem>,
    pub(super) entity: EntityItem,
    /// An entity that the key has left and that a late answer is about.
    pub(super) elsewhere: Option<(EntityName, EntityItem)>,
    sessions: HashMap<SessionId, SessionRecord>,
    /// Sessions found dead, whose intents are doubts already.
    buried: HashSet<SessionId>,
    /// Receipts that were asked for.
    receipts: HashMap<String, Option<Receipt>>,
    /// Notes that were asked for.
    pub(super) notes: HashMap<NoteName, NoteItem>,
    /// A session whose death is being recorded on this very key.
    pub(super) dying: Option<SessionId>,
    /// Whether the records are read, not believed.
    pub(super) is_fact: bool,
    /// Whether an earlier write of this call was sent that may still arrive.
    pub(super) is_unheard: bool,
    pub(super) landing_until: StoreTime,
}

/// What became of a decision.
pub(super) enum Kept {
    /// It is durable.
    Done,
    /// The records were not as believed; they are now. Decide again.
    Again,
}

impl Sheet {
    /// On one key and its entity.
    pub(super) fn of_key(tenant: &TenantId, entity: &EntityKey, key: &IdempotencyKey) -> Self {
        let mut sheet = Self::of_entity(tenant, entity);
        sheet.key_name = Some(key.clone());
        sheet
    }

    /// On an entity alone.
    pub(super) fn of_entity(tenant: &TenantId, entity: &EntityKey) -> Self {
        Self {
            tenant: tenant.clone(),
            entity_key: entity.clone(),
            key_name: None,
            key: None,
            entity: EntityItem::untouched(),
            elsewhere: None,
            sessions: HashMap::new(),
            buried: HashSet::new(),
            receipts: HashMap::new(),
            notes: HashMap::new(),
            dying: None,
            is_fact: false,
            is_unheard: false,
            landing_until: StoreTime(i64::MIN),
        }
    }

    /// The place of whoever waits under this name.
    pub(super) fn ticket_of(&self, name: &str) -> Option<Ticket> {
        let mut queue = self.entity.queue.iter();
        let place = queue.find(|(_, waiter)| waiter.asker == name);
        place.map(|(ticket, _)| *ticket)
    }

    pub(super) fn entity_address(&self) -> Address {
        Address::entity(&self.tenant, &self.entity_key)
    }

    pub(super) fn is_burned(&self) -> bool {
        let phase = self.key.as_ref().map(KeyItem::phase);
        matches!(phase, Some(Phase::Applied | Phase::WrittenOff))
    }
}

impl Shared {
    /// Reads a sheet's records, all of one moment.
    pub(super) async fn look(&self, sheet: &mut Sheet) -> Result<(), StoreError> {
        let entity = sheet.entity_address();
        let key = sheet.key_name.as_ref();
        let key = key.map(|key| Address::key(&sheet.tenant, key));
        // Before the look: others of this process may write it meanwhile.
        let seen = self.table.observer.entity(&entity.pk);
        let addresses: Vec<Address> = std::iter::once(entity).chain(key).collect();
        let mut found = match addresses.as_slice() {
            [entity] => vec![self.table.get(entity).await?],
            all => self.table.snapshot(all).await?,
        }
        .into_iter();
        let entity = found.next().flatten();
        sheet.entity = self.read_entity(entity.as_ref())?;
        self.check_version(seen.map_or(0, |seen| seen.version), sheet.entity.version)?;
        let key = found.next().flatten();
        sheet.key = self.read_key(key.as_ref())?;
        // Read when it is asked for, and never beside itself.
        sheet.elsewhere = None;
        sheet.is_fact = true;
        Ok(())
    }

    /// Turns a sheet to the entity that its key's last attempt named.
    pub(super) async fn follow(&self, sheet: &mut Sheet) -> Result<(), StoreError> {
        while let Some(key) = &sheet.key
            && *key.entity_key() != sheet.entity_key
        {
            sheet.entity_key = key.entity_key().clone();
            self.look(sheet).await?;
        }
        Ok(())
    }

    fn page(&self, sheet: &mut Sheet) -> Page {
        let observer = &self.table.observer;
        let mut page = Page::part(observer.now(), observer.stamp());
        let entity = (sheet.tenant.clone(), sheet.entity_key.clone());
        let record = sheet.entity.seen_by(observer);
        sheet.landing_until = record.landing_until;
        page.load_entity(&entity, &record);
        page.load_queue(entity, sheet.entity.queue.clone());
        if let Some((name, item)) = &sheet.elsewhere {
            page.load_entity(name, &item.seen_by(observer));
        }
        page.load_ticket(Ticket(sheet.entity.tickets.saturating_add(1)));
        let key = sheet.key.as_ref().map(|key| key.seen_by(observer));
        for (session, record) in &sheet.sessions {
            page.load_session(*session, Some(*record));
        }
        for session in &sheet.buried {
            page.load_session(*session, None);
            page.load_intents(*session, Vec::new());
        }
        if let (Some(session), Some(key)) = (sheet.dying, &key) {
            page.load_session(session, None);
            page.load_intents(session, vec![key.clone()]);
        }
        if self.unpaused.may_begin(&sheet.tenant, observer) {
            page.load_note(sheet.tenant.clone(), NoteName::pause(), None);
        }
        for (name, note) in &sheet.notes {
            page.load_note(sheet.tenant.clone(), name.clone(), note.body.clone());
        }
        for (receipt_id, receipt) in &sheet.receipts {
            page.load_receipt(receipt_id.clone(), receipt.clone());
        }
        if let Some(name) = &sheet.key_name {
            page.load_key(&(sheet.tenant.clone(), name.clone()), key);
        }
        page
    }

    /// Lets `work` decide, fetching the sessions it asks for.
    pub(super) async fn decide<T>(
        &self,
        sheet: &mut Sheet,
        work: impl Fn(&mut Page) -> Result<T, BookError<Want>>,
    ) -> Result<(Page, T), StoreError> {
        loop {
            let mut page = self.page(sheet);
            let want = match work(&mut page) {
                Ok(answer) => return Ok((page, answer)),
                Err(BookError::Records(want)) => want,
                Err(error) => return Err(self.sort(error)),
            };
            match want {
                Want::Session(session) => {
                    let record = self.session(session).await?;
                    sheet.sessions.insert(session, record);
                }
                Want::Intents(session) => {
                    let holding = sheet.entity.holding.clone();
                    let held = holding.map(|key| (sheet.tenant.clone(), key));
                    let record = Box::pin(self.bury(session, held)).await?;
                    if record.is_dead {
                        sheet.buried.insert(session);
                    }
                    sheet.sessions.insert(session, record);
                    self.look(sheet).await?;
                }
                Want::Receipt(receipt_id) => {
                    let address = Address::receipt(&sheet.tenant, &receipt_id);
                    let found = self.table.get(&address).await?;
                    let receipt = found.as_ref().map(read_receipt).transpose();
                    let receipt = receipt.map_err(|problem| self.table.unusable(problem))?;
                    sheet.receipts.insert(receipt_id, receipt);
                }
                Want::Entity(name) => {
                    let found = self.table.get(&Address::entity(&name.0, &name.1)).await?;
                    let item = self.read_entity(found.as_ref())?;
                    sheet.elsewhere = Some((name, item));
                }
                Want::Note(name) => {
                    let note = self.note(&sheet.tenant, &name).await?;
                    sheet.notes.insert(name, note);
                }
                other => return Err(self.sort(BookError::Records(other))),
            }
        }
    }

    pub(super) fn sort(&self, error: BookError<Want>) -> StoreError {
        match error {
            BookError::Records(want) => self
                .table
                .unusable(format!("a record is missing: {want:?}")),
            BookError::SessionDead(session) => StoreError::SessionDead {
                store: self.table.place.clone(),
                session,
            },
            BookError::KeyMissing(key) => self.table.unusable(format!(
                "key `{key}` was claimed but its item is gone; items were deleted by hand"
            )),
            BookError::Note(error) => self.table.unusable(error.to_string()),
        }
    }

    pub(super) fn read_key(&self, item: Option<&Item>) -> Result<Option<KeyItem>, StoreError> {
        let key = item.map(KeyItem::read).transpose();
        key.map_err(|problem| self.table.unusable(problem))
    }

    pub(super) fn read_entity(&self, item: Option<&Item>) -> Result<EntityItem, StoreError> {
        let entity = item.map(EntityItem::read).transpose();
        let entity = entity.map_err(|problem| self.table.unusable(problem))?;
        Ok(entity.unwrap_or_else(EntityItem::untouched))
    }
}
