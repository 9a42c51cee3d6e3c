//! What a store that keeps its records elsewhere puts on a page, and takes from it.

use std::time::Duration;

use operators_kernel::life::{EntityRecord, KeyRecord, NoteName};
use operators_kernel::{SessionId, StoreTime, TenantId, Ticket};

use super::{EntityName, KeyName, Of, Page, Queue, SessionRecord};

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
            self.keys.put(&of, record.into());
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
                self.keys.insert_new(&name, key.into());
            }
        }
        self.intents.insert(session, names);
    }
}
