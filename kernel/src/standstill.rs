//! Whether this machine's clocks stood still, as only somebody outside it can tell.
//!
//! Owns the question that a store answers which tells the time with its answers. A machine that its
//! host pauses, or that is resumed from a snapshot, has no clock of its own that shows it.

use std::fmt;

use async_trait::async_trait;

use crate::durable::StoreError;

/// What a store knows of this machine's clocks from the time that its own answers tell.
#[async_trait]
pub trait Standstills: fmt::Debug + Send + Sync {
    /// How often the clocks were found to have stood still, so far.
    fn count(&self) -> u64;

    /// Asks the store for the time, unless it told it a moment ago. An error means that it could not
    /// be had, so that nobody knows.
    async fn look(&self) -> Result<(), StoreError>;
}
