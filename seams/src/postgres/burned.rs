//! Which keys this process saw burned: a guess at what a claim will be, never an answer.
//!
//! Whoever proposes a key again mostly does so soon, and where it was proposed before. Such a claim
//! need not carry what only an intent would need. The database decides as ever; where the guess was
//! wrong it says that it cannot, and the claim is decided under locks, with everything at hand.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::DefaultHashBuilder;
use operators_kernel::{IdempotencyKey, TenantId};

/// How many keys are remembered, in half a megabyte: some seconds of a busy process. A key that takes
/// the place of another costs that one a longer statement, nothing else.
const PLACES: usize = 1 << 16;

/// Hashes of keys, each at the place it says.
#[derive(Debug)]
pub(super) struct Burned {
    hasher: DefaultHashBuilder,
    // Relaxed: a guess may be late.
    places: Box<[AtomicU64]>,
}

impl Burned {
    pub(super) fn new() -> Self {
        Self {
            hasher: DefaultHashBuilder::default(),
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Whether this process saw it burned lately.
    pub(super) fn is_likely(&self, tenant: &TenantId, key: &IdempotencyKey) -> bool {
        let hash = self.hash(tenant, key);
        let place = self.place(hash);
        place.is_some_and(|place| place.load(Ordering::Relaxed) == hash)
    }

    /// It was seen burned.
    pub(super) fn note(&self, tenant: &TenantId, key: &IdempotencyKey) {
        let hash = self.hash(tenant, key);
        if let Some(place) = self.place(hash) {
            place.store(hash, Ordering::Relaxed);
        }
    }

    /// It was seen free.
    pub(super) fn forget(&self, tenant: &TenantId, key: &IdempotencyKey) {
        let hash = self.hash(tenant, key);
        if let Some(place) = self.place(hash) {
            // Somebody else's key may be there by now, and may lose its place.
            place.store(0, Ordering::Relaxed);
        }
    }

    /// Never 0, which an empty place holds.
    fn hash(&self, tenant: &TenantId, key: &IdempotencyKey) -> u64 {
        self.hasher.hash_one((tenant, key)) | 1
    }

    fn place(&self, hash: u64) -> Option<&AtomicU64> {
        // Not the lowest bit, which is always set.
        let number = usize::try_from(hash >> 1).unwrap_or_default() % PLACES;
        self.places.get(number)
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
