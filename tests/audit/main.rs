//! The log of receipts against people who can write to the database.

mod dynamodb;
mod hands;
mod postgres;
mod pruned;
mod python;
mod sqlite;
