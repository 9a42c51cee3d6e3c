//! Which keys this process saw burned: a guess at what a claim will be, never an answer.
//!
//! Whoever proposes a key again mostly does so soon, and where it was proposed before. Such a claim
//! need not carry what only an intent would need. The database decides as ever; where the guess was
//! wrong it says that it cannot, and the claim is decided under locks, with everything at hand.

use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::DefaultHashBuilder;
use operators_kernel::{IdempotencyKey, TenantId};

/// How many keys are remembered: four megabytes if there are as many, and next to nothing before,
/// because memory that nobody wrote to is not there yet. A key that takes the place of another costs
/// that one a longer statement, nothing else.
const PLACES: usize = 1 << 20;

/// A part of each key's hash, at the place that another part of it says; 0 where there is none.
#[derive(Debug)]
pub(super) struct Burned {
    hasher: DefaultHashBuilder,
    // A std lock: held to look at one number, never over an await.
    places: Mutex<Vec<u32>>,
}

impl Burned {
    pub(super) fn new() -> Self {
        Self {
            hasher: DefaultHashBuilder::default(),
            places: Mutex::new(vec![0; PLACES]),
        }
    }

    /// Whether this process saw it burned lately.
    pub(super) fn is_likely(&self, tenant: &TenantId, key: &IdempotencyKey) -> bool {
        let (place, mark) = self.place_and_mark(tenant, key);
        self.lock().get(place) == Some(&mark)
    }

    /// It was seen burned.
    pub(super) fn note(&self, tenant: &TenantId, key: &IdempotencyKey) {
        let (place, mark) = self.place_and_mark(tenant, key);
        self.put(place, mark);
    }

    /// It was seen free.
    pub(super) fn forget(&self, tenant: &TenantId, key: &IdempotencyKey) {
        let (place, _) = self.place_and_mark(tenant, key);
        // Somebody else's key may be there by now, and may lose its place.
        self.put(place, 0);
    }

    fn put(&self, place: usize, mark: u32) {
        if let Some(found) = self.lock().get_mut(place) {
            *found = mark;
        }
    }

    fn place_and_mark(&self, tenant: &TenantId, key: &IdempotencyKey) -> (usize, u32) {
        let hash = self.hasher.hash_one((tenant, key));
        let place = usize::try_from(hash % PLACES as u64).unwrap_or_default();
        // Never 0, which an empty place holds.
        let mark = u32::try_from(hash >> 32).unwrap_or_default() | 1;
        (place, mark)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_likely_until_it_is_forgotten() {
        let burned = Burned::new();
        let tenant = TenantId::parse("acme").expect("a tenant");
        let other = TenantId::parse("other").expect("a tenant");
        let key = IdempotencyKey::parse("k").expect("a key");
        assert!(!burned.is_likely(&tenant, &key));
        burned.note(&tenant, &key);
        assert!(burned.is_likely(&tenant, &key));
        assert!(!burned.is_likely(&other, &key));
        burned.forget(&tenant, &key);
        assert!(!burned.is_likely(&tenant, &key));
    }
}
