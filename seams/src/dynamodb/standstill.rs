//! Whether this machine's clocks stood still, by the dates of the store's answers.

use std::time::Duration;

use async_trait::async_trait;
use operators_kernel::{Standstills, StoreError};

use super::item::Address;
use super::request::Table;

/// How long the store may have told no date for a call to be sent without asking for it: a call whose
/// connector is ready at once costs no request more.
const SILENCE_MAX: Duration = Duration::from_millis(500);

#[async_trait]
impl Standstills for Table {
    fn count(&self) -> u64 {
        self.observer.standstills()
    }

    async fn look(&self) -> Result<(), StoreError> {
        match self.observer.undated_for() {
            Some(silence) if silence > SILENCE_MAX => {
                self.get(&Address::of("table", &[])).await.map(drop)
            }
            // A server that keeps no date is not asked for it.
            Some(_) | None => Ok(()),
        }
    }
}
