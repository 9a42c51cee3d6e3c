//! What a store that keeps its records elsewhere puts on a page, and takes from it.

use std::time::Duration;

use operators_kernel::life::{EntityRecord, KeyRecord, NoteName};
use operators_kernel::{SessionId, StoreTime, TenantId, Ticket};

use super::{EntityName, Kept, KeyName, Of, Page, Queue, SessionRecord};

impl Page {
    /// The entity as it is on this page.
    pub(crate) fn entity_now(&self, name: &EntityName) -> Option<EntityRecord> {
        self.entities.get(&name.0, &name.1)
    }

    /// Everybody who waits for an entity, as it is on this page.
    #[cfg(feature = "dynamodb")]
    pub(crate) fn queue_now(&self, name: &EntityName) -> Option<&Queue> {
        self.queues.get(name)
    }

    /// The ticket the next waiter gets.
    pub(crate) fn load_ticket(&mut self, ticket: Ticket) {
        self.next_ticket = Some(ticket);
    }

    /// A key, or the knowledge that there is none.
    pub(crate) fn load_key(&mut self, name: &KeyName, record: Option<KeyRecord>) {
        let of = Of(&name.0, &name.1);
        if let Some(record) = record {
            self.keys.put(&of, Kept::Record(record.into()));
        } else {
            self.keys.remove(&of);
            self.absent.insert(name.clone());
        }
    }

    pub(crate) fn load_entity(&mut self, name: &EntityName, record: &EntityRecord) {
        self.entities.put(&name.0, &name.1, record);
    }

    /// What a note says.
    pub(crate) fn load_note(&mut self, tenant: TenantId, name: NoteName, body: Option<String>) {
        self.notes.insert((tenant, name), body);
    }

    pub(crate) fn load_queue(&mut self, name: EntityName, queue: Queue) {
        self.queues.insert(name, queue);
    }

    /// A session, or the knowledge that there is none.
    pub(crate) fn load_session(&mut self, session: SessionId, record: Option<SessionRecord>) {
        let gone = SessionRecord {
            lease: Duration::ZERO,
            alive_until: StoreTime(i64::MIN),
            is_dead: true,
        };
        self.sessions.insert(session, record.unwrap_or(gone));
    }

    pub(crate) fn load_intents(&mut self, session: SessionId, keys: Vec<KeyRecord>) {
        let names = keys
            .iter()
            .map(|key| {
                let proposal = &key.proposal;
                (proposal.tenant_id.clone(), proposal.idempotency_key.clone())
            })
            .collect();
        for (name, key) in std::iter::zip::<&Vec<KeyName>, _>(&names, keys) {
            let name = Of(&name.0, &name.1);
            if !self.absent.contains(&name) {
                self.keys.insert_new(&name, Kept::Record(key.into()));
            }
        }
        self.intents.insert(session, names);
    }
}

#[cfg(test)]
mod tests {
    use operators_kernel::{EntityKey, IdempotencyKey, Timestamp};

    use super::*;
    use crate::book::Book;
    use crate::page::Want;

    #[test]
    fn a_part_of_the_records_says_what_it_lacks_and_knows_what_is_not_there() {
        let mut page = Page::part(StoreTime(0), Timestamp::from_micros(0));
        let tenant = TenantId::parse("acme").expect("a tenant");
        let key = IdempotencyKey::parse("hold:1").expect("a key");
        let entity = EntityKey::parse("order:1").expect("an entity");
        let (key_name, entity_name) = (
            (tenant.clone(), key.clone()),
            (tenant.clone(), entity.clone()),
        );
        let wanted = Want::Key(key_name.clone());
        assert_eq!(page.key(&tenant, &key), Err(wanted));
        page.load_key(&key_name, None);
        assert_eq!(page.key(&tenant, &key), Ok(None));
        let wanted = Want::Entity(entity_name.clone());
        assert_eq!(page.entity(&tenant, &entity), Err(wanted));
        let record = EntityRecord::default();
        page.load_entity(&entity_name, &record);
        assert_eq!(page.entity(&tenant, &entity), Ok(record));
        let other = IdempotencyKey::parse("hold:2").expect("a key");
        let wanted = Want::Key((tenant.clone(), other.clone()));
        assert_eq!(page.key(&tenant, &other), Err(wanted));
    }
}
