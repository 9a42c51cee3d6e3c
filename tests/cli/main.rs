//! The whole command, from outside: what a person types, and what comes back.
//!
//! Each test runs the real binary in a project of its own and looks at its exit code, its stdout,
//! its stderr, and what it did to the world.

mod every_store;
mod support;
mod vendor;

mod alerts;
mod approvals;
mod bad_config;
mod bad_plans;
mod connectors;
mod credentials;
mod doctor;
mod doubts;
mod dry_run;
mod example;
mod exit_codes;
mod exports;
mod following;
mod help;
mod in_flight;
mod json_output;
mod keys;
mod limits;
mod log;
mod mcp;
mod notify;
mod paging;
mod pauses;
mod planners;
mod policies;
mod policy;
mod processes;
mod receipts;
mod reports;
mod retention;
mod rolled_back;
mod schedule;
mod secrets;
mod start_up;
mod status;
mod stores;
mod stories;
mod stubs;
mod supervised;
mod terminal;
mod transactions;
mod unseen;
