//! The entities of a page. Nearly all of them are free and remember nothing but the number of their
//! last turn: those take a third of the room.

use hashbrown::HashMap;
use operators_kernel::life::EntityRecord;
use operators_kernel::{EntityKey, Fence, SessionId, TenantId};

use super::table::{Called, Table};
use super::{EntityName, Of};

/// Every entity, each in one of the two.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Entities {
    everyday: Table<Everyday>,
    /// Which tenant a row is of, in a few bytes. Tenants are few, and stay.
    tenants: HashMap<TenantId, u32>,
    others: HashMap<EntityName, EntityRecord>,
}

/// An entity without revision, doubt or anything that may still land.
#[derive(Debug)]
struct Everyday {
    entity: EntityKey,
    tenant: u32,
    /// The session whose turn it is; 0 if it is nobody's.
    holder: u32,
    fence: Fence,
}

/// The name of an everyday entity.
#[derive(Hash)]
struct Name<'a>(u32, &'a EntityKey);

impl Called<Name<'_>> for Everyday {
    fn is_called(&self, name: &Name<'_>) -> bool {
        *name.1 == self.entity && name.0 == self.tenant
    }
}

impl Entities {
    /// What is remembered of an entity.
    pub(super) fn get(&self, tenant: &TenantId, entity: &EntityKey) -> Option<EntityRecord> {
        let number = *self.tenants.get(tenant)?;
        if let Some(everyday) = self.everyday.get(&Name(number, entity)) {
            return Some(everyday.record());
        }
        if self.others.is_empty() {
            return None;
        }
        self.others.get(&Of(tenant, entity)).cloned()
    }

    /// Remembers this of an entity.
    pub(super) fn put(&mut self, tenant: &TenantId, entity: &EntityKey, record: &EntityRecord) {
        let number = self.number(tenant);
        let name = Name(number, entity);
        if let Some(everyday) = Everyday::of(number, entity, record) {
            if !self.others.is_empty() {
                self.others.remove(&Of(tenant, entity));
            }
            self.everyday.put(&name, everyday);
        } else {
            self.everyday.remove(&name);
            let name = (tenant.clone(), entity.clone());
            self.others.insert(name, record.clone());
        }
    }

    fn number(&mut self, tenant: &TenantId) -> u32 {
        if let Some(number) = self.tenants.get(tenant) {
            return *number;
        }
        // More tenants than that have no room in memory.
        let number = u32::try_from(self.tenants.len()).unwrap_or(u32::MAX);
        self.tenants.insert(tenant.clone(), number);
        number
    }
}

impl Everyday {
    /// An entity as an everyday one, if it is one.
    fn of(tenant: u32, entity: &EntityKey, record: &EntityRecord) -> Option<Self> {
        let holder = match record.holder {
            None => 0,
            Some(SessionId(0)) => return None,
            Some(SessionId(session)) => u32::try_from(session).ok()?,
        };
        let everyday = Self {
            entity: entity.clone(),
            tenant,
            holder,
            fence: record.fence,
        };
        // Whatever else a record may ever say is not lost here.
        (everyday.record() == *record).then_some(everyday)
    }

    fn record(&self) -> EntityRecord {
        EntityRecord {
            fence: self.fence,
            holder: (self.holder != 0).then_some(SessionId(self.holder.into())),
            ..EntityRecord::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use operators_kernel::{IdempotencyKey, StoreTime};

    use super::*;

    /// By rule 3.4, too.
    #[test]
    fn an_entity_is_read_as_it_was_written_everyday_or_not() {
        let tenants = ["acme", "umbrella"].map(|name| TenantId::parse(name).expect("a tenant"));
        let entity = EntityKey::parse("order:1").expect("an entity");
        let plain = EntityRecord::default();
        let records = [
            plain.clone(),
            EntityRecord {
                fence: Fence(u64::MAX),
                holder: Some(SessionId(7)),
                ..plain.clone()
            },
            EntityRecord {
                revision: Some(0),
                ..plain.clone()
            },
            EntityRecord {
                holder: Some(SessionId(0)),
                ..plain.clone()
            },
            EntityRecord {
                doubt: IdempotencyKey::parse("hold:1").ok(),
                ..plain.clone()
            },
            EntityRecord {
                holder: Some(SessionId(1 << 32)),
                ..plain.clone()
            },
            EntityRecord {
                landing_until: StoreTime(3),
                ..plain.clone()
            },
        ];
        let mut entities = Entities::default();
        for tenant in &tenants {
            assert_eq!(entities.get(tenant, &entity), None);
            // Each of them after each other one.
            for (first, then) in records
                .iter()
                .flat_map(|a| records.iter().map(move |b| (a, b)))
            {
                entities.put(tenant, &entity, first);
                assert_eq!(entities.get(tenant, &entity).as_ref(), Some(first));
                entities.put(tenant, &entity, then);
                assert_eq!(entities.get(tenant, &entity).as_ref(), Some(then));
                let rows = entities.everyday.rows().count() + entities.others.len();
                assert_eq!(rows, entities.tenants.len(), "each is in one of the two");
            }
        }
        entities.put(&tenants[0], &entity, &records[1]);
        // Whatever its hash: another tenant's is another.
        let own = entities.everyday.get(&Name(0, &entity)).expect("everyday");
        assert!(!own.is_called(&Name(1, &entity)));
        assert_eq!(entities.get(&tenants[1], &entity).as_ref(), records.last());
    }
}
