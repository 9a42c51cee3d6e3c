//! Proof: fixtures, fakes and the conformance suite, as a library that a store's author can use too.

pub mod chromium;
pub mod conformance;
pub mod crowds;
pub mod duckdb;
pub mod dynamodb;
pub mod fakes;
pub mod fixtures;
pub mod history;
pub mod kit;
pub mod mcp;
pub mod pausing;
pub mod postgres;
pub mod proxy;
pub mod runtimes;
pub mod sink;
pub mod stores;

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
