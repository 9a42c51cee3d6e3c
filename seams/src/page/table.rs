//! A map that can become large without ever stopping for long.
//!
//! A hash map that is full moves all it holds, and asks each entry for its hash to find its new
//! place: with names behind pointers that is a look into cold memory per entry, under the store's
//! lock. Here an entry remembers its hash, and entries are spread over parts that grow one by one.

use std::hash::{BuildHasher, Hash};

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, Equivalent, HashTable};

/// The parts of a table that holds everything. Enough that none moves much at a time; few enough that
/// a part is a piece of memory of its own, and not one among those of actions.
const PARTS: usize = 16;

/// A map from `K` to `V`.
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    hasher: DefaultHashBuilder,
    parts: Box<[HashTable<Row<K, V>>]>,
}

#[derive(Debug)]
struct Row<K, V> {
    hash: u64,
    key: K,
    value: V,
}

impl<K, V> Table<K, V> {
    /// For what may become large.
    pub(crate) fn large() -> Self {
        Self::of(PARTS)
    }

    /// For the few records of one decision.
    pub(crate) fn small() -> Self {
        Self::of(1)
    }

    fn of(parts: usize) -> Self {
        Self {
            hasher: DefaultHashBuilder::default(),
            parts: (0..parts).map(|_| HashTable::new()).collect(),
        }
    }

    /// Every value, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.parts.iter().flatten().map(|row| &row.value)
    }

    /// Which part an entry is in: told by bits of its hash that its place in there is not told by.
    fn part_of(&self, hash: u64) -> usize {
        let bits = usize::try_from((hash >> 40) & 0xffff).unwrap_or_default();
        bits % self.parts.len().max(1)
    }
}

impl<K: Hash + Eq, V> Table<K, V> {
    /// The value of this key.
    pub(crate) fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        let hash = self.hasher.hash_one(key);
        let part = self.parts.get(self.part_of(hash))?;
        let row = part.find(hash, |row| row.hash == hash && key.equivalent(&row.key))?;
        Some(&row.value)
    }

    /// The key that is kept as this one.
    pub(crate) fn key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&K> {
        let hash = self.hasher.hash_one(key);
        let part = self.parts.get(self.part_of(hash))?;
        let row = part.find(hash, |row| row.hash == hash && key.equivalent(&row.key))?;
        Some(&row.key)
    }

    /// Gives a key this value.
    pub(crate) fn put<Q: Hash + Equivalent<K> + ?Sized>(
        &mut self,
        key: &Q,
        to_owned: impl FnOnce(&Q) -> K,
        value: V,
    ) {
        match self.entry(key) {
            Some((_, Entry::Occupied(mut occupied))) => occupied.get_mut().value = value,
            Some((hash, Entry::Vacant(vacant))) => {
                let key = to_owned(key);
                vacant.insert(Row { hash, key, value });
            }
            None => {}
        }
    }

    /// Adds a key unless it is there; whether it was not.
    pub(crate) fn insert_new(&mut self, key: K, value: V) -> bool {
        match self.entry(&key) {
            Some((hash, Entry::Vacant(vacant))) => {
                vacant.insert(Row { hash, key, value });
                true
            }
            Some((_, Entry::Occupied(_))) | None => false,
        }
    }

    /// Where a key is or would be, with its hash. There always is such a place.
    fn entry<Q: Hash + Equivalent<K> + ?Sized>(
        &mut self,
        key: &Q,
    ) -> Option<(u64, Entry<'_, Row<K, V>>)> {
        let hash = self.hasher.hash_one(key);
        let place = self.part_of(hash);
        let is_it = |row: &Row<K, V>| row.hash == hash && key.equivalent(&row.key);
        let part = self.parts.get_mut(place)?;
        Some((hash, part.entry(hash, is_it, |row| row.hash)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_found_whatever_the_size() {
        for mut table in [Table::small(), Table::large()] {
            for number in 0..5_000_u32 {
                assert!(table.insert_new(number.to_string(), number));
            }
            assert!(!table.insert_new("7".to_owned(), 0));
            table.put("7", str::to_owned, 8);
            table.put("5001", str::to_owned, 5001);
            assert_eq!(table.get("7"), Some(&8));
            assert_eq!(table.get("4999"), Some(&4999));
            assert_eq!(table.get("5001"), Some(&5001));
            assert_eq!((table.get("5000"), table.key("5000")), (None, None));
            assert_eq!(table.key("3"), Some(&"3".to_owned()));
            assert_eq!(table.values().count(), 5_001);
        }
    }
}
