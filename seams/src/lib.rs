//! What is remembered, and where: the stores behind `DurableExec`, and the machine's clock.
//!
//! Stores that can read and write inside one transaction share `book`: it loads records, asks the
//! kernel's pure functions, and writes what they say. A store file says only how records are kept.

#[cfg(feature = "postgres")]
mod batch;
mod book;
#[cfg(feature = "dynamodb")]
mod dynamodb;
mod memory;
mod page;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
mod system_clock;
#[cfg(feature = "unlogged")]
pub mod unlogged;

#[cfg(feature = "dynamodb")]
pub use dynamodb::DynamoStore;
pub use memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use postgres::PgStore;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use system_clock::SystemClock;

/// Thirty-two bytes that nobody can guess, from the system's randomness: the seed of a key.
pub fn random_seed() -> Result<[u8; 32], String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| format!("no randomness to be had: {error}"))?;
    Ok(bytes)
}

/// A fresh key for a tenant's hashes.
fn random_key() -> Result<operators_kernel::RedactionKey, String> {
    random_seed().map(operators_kernel::RedactionKey::new)
}
