//! The machine's clock and its ids: the one file that reads either.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use operators_kernel::{Clock, IdKind, Timestamp};

/// Wall time, monotonic time and `UUIDv7` ids of this machine.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Starts its monotonic time at zero, now.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that others must ask"
    )]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that others must ask"
    )]
    fn now(&self) -> Timestamp {
        // A clock set before 1970 reads as 1970: receipts carry it, no decision does.
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that others must ask"
    )]
    fn id(&self, kind: IdKind) -> String {
        let mut digits = [0; uuid::fmt::Simple::LENGTH];
        let digits = uuid::Uuid::now_v7().simple().encode_lower(&mut digits);
        [kind.prefix(), digits].concat()
    }
}
