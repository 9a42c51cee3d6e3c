//! The keys of a page: as records, and folded up once they are burned and nothing moves them.

use operators_kernel::life::KeyRecord;
use operators_kernel::{Folded, IdempotencyKey, Shared, Slip};

use super::table::Called;
use super::{KeyName, Of, Page, Want};

/// A key.
#[derive(Debug)]
pub(super) enum Kept {
    /// As a record.
    Record(Shared<KeyRecord>),
    /// Burned, in one piece with the receipt of what burned it. Only a page that holds everything
    /// keeps such.
    Folded(Folded),
}

impl Called<Of<'_, IdempotencyKey>> for Kept {
    fn is_called(&self, name: &Of<'_, IdempotencyKey>) -> bool {
        match self {
            Self::Record(record) => {
                let proposal = &record.proposal;
                *name.1 == proposal.idempotency_key && *name.0 == proposal.tenant_id
            }
            Self::Folded(folded) => folded.is_about(name.0, name.1),
        }
    }
}

impl Kept {
    /// The key's record; what cannot be read is wanted, and never taken for no key at all.
    pub(super) fn record(&self, name: &Of<'_, IdempotencyKey>) -> Result<Shared<KeyRecord>, Want> {
        match self {
            Self::Record(record) => Ok(record.clone()),
            Self::Folded(folded) => {
                let record = folded.key().map(Shared::from);
                record.ok_or_else(|| Want::Key(name.to_owned()))
            }
        }
    }
}

impl Page {
    /// The key as it is on this page, unless it is folded.
    pub(crate) fn key_now(&self, name: &KeyName) -> Option<&KeyRecord> {
        match self.keys.get(&Of(&name.0, &name.1))? {
            Kept::Record(record) => Some(record),
            Kept::Folded(_) => None,
        }
    }

    /// Every key on this page that is not folded: all that are not burned, and some that are.
    pub(crate) fn keys_now(&self) -> impl Iterator<Item = &KeyRecord> {
        self.keys.rows().filter_map(|key| match key {
            Kept::Record(record) => Some(&**record),
            Kept::Folded(_) => None,
        })
    }

    /// Every key on this page that is folded.
    pub(crate) fn folded_now(&self) -> impl Iterator<Item = &Folded> {
        self.keys.rows().filter_map(|key| match key {
            Kept::Record(_) => None,
            Kept::Folded(folded) => Some(folded),
        })
    }

    /// Folds the key that this receipt tells the burning of, together with the receipt; `None` if
    /// there is more to the key than that.
    pub(crate) fn fold(&mut self, slip: &Slip) -> Option<Folded> {
        let Slip::Applied { proposal, .. } = slip else {
            return None;
        };
        let name = Of(&proposal.tenant_id, &proposal.idempotency_key);
        let kept = self.keys.get_mut(&name)?;
        let Kept::Record(record) = kept else {
            return None;
        };
        let folded = Folded::burned(slip, record)?;
        *kept = Kept::Folded(folded.clone());
        Some(folded)
    }
}
