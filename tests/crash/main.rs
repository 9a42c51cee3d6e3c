//! Processes killed, frozen and set against each other on one store, judged from outside.
//!
//! `OPERATORS_KILLS=N` sets how often each crash point is tried, `OPERATORS_SEED=N` repeats a run.
//! Effects are counted by the sink (or are lines in a file), never by the kernel.

mod arena;
mod corrupted;
mod file;
mod flood;
mod frozen;
mod ground;
mod group_commit;
mod late_commit;
mod main_returns;
mod matrix;
mod paused;
mod pool;
mod process;
mod programs;
mod random;
mod removed;
mod store_wire;
mod storm;
mod transactions;
mod vendor_wire;
mod world;
