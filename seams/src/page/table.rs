//! A map whose entries remember their hashes.
//!
//! A hash map that is full moves all it holds, and asks each entry for its hash to find its new
//! place: with names behind pointers that is a look into cold memory per entry, under a store's lock.

use std::hash::{BuildHasher, Hash};

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, Equivalent, HashTable};

/// A map from `K` to `V`.
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    hasher: DefaultHashBuilder,
    rows: HashTable<Row<K, V>>,
}

#[derive(Debug)]
struct Row<K, V> {
    hash: u64,
    key: K,
    value: V,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self {
            hasher: DefaultHashBuilder::default(),
            rows: HashTable::new(),
        }
    }
}

impl<K, V> Table<K, V> {
    /// Every value, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.rows.iter().map(|row| &row.value)
    }
}

impl<K: Hash + Eq, V> Table<K, V> {
    /// The value of this key.
    pub(crate) fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        self.row(key).map(|row| &row.value)
    }

    /// The key that is kept as this one.
    pub(crate) fn key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&K> {
        self.row(key).map(|row| &row.key)
    }

    fn row<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&Row<K, V>> {
        let hash = self.hasher.hash_one(key);
        let is_it = |row: &Row<K, V>| row.hash == hash && key.equivalent(&row.key);
        self.rows.find(hash, is_it)
    }

    /// Gives a key this value.
    pub(crate) fn put<Q: Hash + Equivalent<K> + ?Sized>(
        &mut self,
        key: &Q,
        to_owned: impl FnOnce(&Q) -> K,
        value: V,
    ) {
        match self.entry(key) {
            (_, Entry::Occupied(mut occupied)) => occupied.get_mut().value = value,
            (hash, Entry::Vacant(vacant)) => {
                let key = to_owned(key);
                vacant.insert(Row { hash, key, value });
            }
        }
    }

    /// Adds a key unless it is there; whether it was not.
    pub(crate) fn insert_new(&mut self, key: K, value: V) -> bool {
        match self.entry(&key) {
            (hash, Entry::Vacant(vacant)) => {
                vacant.insert(Row { hash, key, value });
                true
            }
            (_, Entry::Occupied(_)) => false,
        }
    }

    /// Where a key is or would be, with its hash.
    fn entry<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> (u64, Entry<'_, Row<K, V>>) {
        let hash = self.hasher.hash_one(key);
        let is_it = |row: &Row<K, V>| row.hash == hash && key.equivalent(&row.key);
        (hash, self.rows.entry(hash, is_it, |row| row.hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_found_whatever_the_size() {
        let mut table = Table::default();
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
