//! The stores that processes can share, each fresh for one trial, and what differs between them.

use operators_tests::dynamodb::{endpoint, fresh_table};
use operators_tests::postgres::{self, Database};
use tempfile::TempDir;

use crate::arena::block_on;

/// Writes each check as one test per store: `sqlite::CHECK`, `postgres::CHECK`, `dynamodb::CHECK`.
macro_rules! on_every_store {
    ($($check:ident),+ $(,)?) => {
        crate::ground::on_every_store!(@ sqlite, Sqlite, $($check),+);
        crate::ground::on_every_server!($($check),+);
    };
    (@ $name:ident, $store:ident, $($check:ident),+) => {
        mod $name {
            $(
                #[test]
                fn $check() {
                    let store = crate::ground::Store::$store;
                    if store.can_be_had() {
                        super::$check(store);
                    }
                }
            )+
        }
    };
}

/// The same for the stores that are reached over a wire.
macro_rules! on_every_server {
    ($($check:ident),+ $(,)?) => {
        crate::ground::on_every_store!(@ postgres, Postgres, $($check),+);
        crate::ground::on_every_store!(@ dynamodb, DynamoDb, $($check),+);
    };
}
pub(crate) use {on_every_server, on_every_store};

/// A kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    Sqlite,
    Postgres,
    DynamoDb,
}

impl Store {
    /// Its name, for what is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::DynamoDb => "dynamodb",
        }
    }

    /// Whether there is a server, said aloud if there is none.
    pub fn can_be_had(self) -> bool {
        match self {
            Self::Sqlite => true,
            Self::Postgres => postgres::url().is_some(),
            Self::DynamoDb => endpoint().is_some(),
        }
    }

    /// A lease that nobody alive loses. On one machine the death of a process shows at once; to a
    /// server only its lease shows it, and every restart waits for that.
    pub fn lease_ms(self) -> u64 {
        match self {
            Self::Sqlite => 5_000,
            Self::Postgres | Self::DynamoDb => 1_000,
        }
    }
}

/// A fresh store; it goes with this handle.
#[derive(Debug)]
pub enum Ground {
    Sqlite(String),
    Postgres(Database),
    DynamoDb(String),
}

impl Ground {
    /// A fresh store of that kind; a file is in that folder.
    pub fn fresh(store: Store, folder: &TempDir) -> Self {
        match store {
            Store::Sqlite => Self::Sqlite(format!(
                "sqlite:{}",
                folder.path().join("store.db").display()
            )),
            Store::Postgres => {
                let server = postgres::url().expect("a server");
                Self::Postgres(block_on(Database::fresh(server)))
            }
            Store::DynamoDb => {
                let server = endpoint().expect("a server");
                Self::DynamoDb(block_on(fresh_table(server)))
            }
        }
    }

    /// Its address.
    pub fn url(&self) -> String {
        match self {
            Self::Sqlite(url) | Self::DynamoDb(url) => url.clone(),
            Self::Postgres(database) => database.url(),
        }
    }
}
