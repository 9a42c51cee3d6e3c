//! What the `DynamoDB` store promises besides the rules that every store keeps.

mod answers;
mod budget;
mod burial;
mod clocks;
mod common;
mod flood;
mod large;
mod lost;
mod permissions;
mod proxy;
mod rollback;
mod standstill;
mod tables;
mod trail;
