//! A table whose rows remember their hashes, and know themselves what they are called.
//!
//! A hash map that is full moves all it holds, and asks each entry for its hash to find its new
//! place: with names behind pointers that is a look into cold memory per entry, under a store's lock.
//! And it keeps every name beside what the name is for, which mostly has it too: a table of many rows
//! is as large as its rows, empty ones included.

use std::hash::{BuildHasher, Hash};

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

/// What is found by a name that it has itself.
pub(crate) trait Called<N: ?Sized> {
    /// Whether this is its name.
    fn is_called(&self, name: &N) -> bool;
}

/// Rows that are found by their names. Every way to write the same name must hash alike.
#[derive(Debug)]
pub(crate) struct Table<R> {
    hasher: DefaultHashBuilder,
    rows: HashTable<Row<R>>,
}

#[derive(Debug)]
struct Row<R> {
    hash: u64,
    kept: R,
}

impl<R> Default for Table<R> {
    fn default() -> Self {
        Self {
            hasher: DefaultHashBuilder::default(),
            rows: HashTable::new(),
        }
    }
}

impl<R> Table<R> {
    /// Every row, in no order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &R> {
        self.rows.iter().map(|row| &row.kept)
    }

    /// The row of this name.
    pub(crate) fn get<N: Hash + ?Sized>(&self, name: &N) -> Option<&R>
    where
        R: Called<N>,
    {
        let hash = self.hasher.hash_one(name);
        let found = self.rows.find(hash, |row| row.is(hash, name));
        found.map(|row| &row.kept)
    }

    /// The row of this name, to be changed into another of the same name.
    pub(crate) fn get_mut<N: Hash + ?Sized>(&mut self, name: &N) -> Option<&mut R>
    where
        R: Called<N>,
    {
        let hash = self.hasher.hash_one(name);
        let found = self.rows.find_mut(hash, |row| row.is(hash, name));
        found.map(|row| &mut row.kept)
    }

    /// Puts a row in the place of the one of its name, or adds it.
    pub(crate) fn put<N: Hash + ?Sized>(&mut self, name: &N, kept: R)
    where
        R: Called<N>,
    {
        match self.entry(name) {
            (_, Entry::Occupied(mut occupied)) => occupied.get_mut().kept = kept,
            (hash, Entry::Vacant(vacant)) => {
                vacant.insert(Row { hash, kept });
            }
        }
    }

    /// Adds a row unless there is one of its name; whether there was none.
    pub(crate) fn insert_new<N: Hash + ?Sized>(&mut self, name: &N, kept: R) -> bool
    where
        R: Called<N>,
    {
        match self.entry(name) {
            (hash, Entry::Vacant(vacant)) => {
                vacant.insert(Row { hash, kept });
                true
            }
            (_, Entry::Occupied(_)) => false,
        }
    }

    /// Takes the row of this name away.
    pub(crate) fn remove<N: Hash + ?Sized>(&mut self, name: &N)
    where
        R: Called<N>,
    {
        if let (_, Entry::Occupied(occupied)) = self.entry(name) {
            occupied.remove();
        }
    }

    /// Where a row is or would be, with its hash.
    fn entry<N: Hash + ?Sized>(&mut self, name: &N) -> (u64, Entry<'_, Row<R>>)
    where
        R: Called<N>,
    {
        let hash = self.hasher.hash_one(name);
        let is_it = |row: &Row<R>| row.is(hash, name);
        (hash, self.rows.entry(hash, is_it, |row| row.hash))
    }
}

impl<R> Row<R> {
    fn is<N: ?Sized>(&self, hash: u64, name: &N) -> bool
    where
        R: Called<N>,
    {
        self.hash == hash && self.kept.is_called(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Person(String, u32);

    impl Called<str> for Person {
        fn is_called(&self, name: &str) -> bool {
            self.0 == name
        }
    }

    #[test]
    fn what_was_put_in_is_found_whatever_the_size() {
        let mut table = Table::default();
        let person = |number: u32, age| Person(number.to_string(), age);
        for number in 0..5_000_u32 {
            assert!(table.insert_new(&*number.to_string(), person(number, number)));
        }
        assert!(!table.insert_new("7", person(7, 0)));
        assert_eq!(table.get("7"), Some(&person(7, 7)));
        table.put("7", person(7, 8));
        table.put("5001", person(5001, 5001));
        assert_eq!(table.get("7"), Some(&person(7, 8)));
        assert_eq!(table.get_mut("8"), Some(&mut person(8, 8)));
        assert_eq!(table.get_mut("5000"), None);
        assert_eq!(table.get("4999"), Some(&person(4999, 4999)));
        assert_eq!(table.get("5001"), Some(&person(5001, 5001)));
        assert_eq!(table.get("5000"), None);
        assert_eq!(table.rows().count(), 5_001);
        table.remove("7");
        table.remove("5000");
        assert_eq!((table.get("7"), table.rows().count()), (None, 5_000));
    }

    /// A name of which all have one hash.
    struct Alike(u32);

    impl Hash for Alike {
        fn hash<H: std::hash::Hasher>(&self, _hasher: &mut H) {}
    }

    impl Called<Alike> for (u32, &str) {
        fn is_called(&self, name: &Alike) -> bool {
            self.0 == name.0
        }
    }

    #[test]
    fn names_of_one_hash_are_told_apart() {
        let mut table = Table::default();
        assert!(table.insert_new(&Alike(1), (1, "one")));
        assert_eq!(table.get(&Alike(2)), None);
        assert!(table.insert_new(&Alike(2), (2, "two")));
        table.put(&Alike(3), (3, "three"));
        assert_eq!(table.get_mut(&Alike(1)), Some(&mut (1, "one")));
        table.remove(&Alike(4));
        table.remove(&Alike(1));
        assert_eq!(table.get(&Alike(1)), None);
        assert_eq!(table.get(&Alike(2)), Some(&(2, "two")));
        assert_eq!(table.get(&Alike(3)), Some(&(3, "three")));
    }
}
