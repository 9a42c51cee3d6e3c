//! What the Postgres store promises besides the rules that every store keeps.

mod beside;
mod common;
mod connector;
mod durable;
mod faults;
mod flood;
mod guards;
mod opening;
mod pauses;
mod pgbouncer;
mod receipts;
mod rollback;
mod runtimes;
mod settled;
mod statements;
mod transactions;
mod turns;
mod waits;
