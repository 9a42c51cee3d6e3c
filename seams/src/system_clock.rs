//! The machine's clock and its ids: the one file that reads either.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use operators_kernel::{Clock, IdKind, Text, Timestamp};
use uuid::timestamp::context::{ContextV7, ThreadLocalContext};
use uuid::{Timestamp as UuidTimestamp, Uuid};

thread_local! {
    /// The order of ids made within one moment. Each thread keeps its own, so that none waits for
    /// another; between threads the moment decides, to a fraction of a microsecond.
    static IDS: ContextV7 = ContextV7::new().with_additional_precision();
}

/// Wall time, monotonic time and `UUIDv7` ids of this machine.
///
/// Its monotonic time goes on while the machine is suspended, where the system has such a clock
/// (`CLOCK_BOOTTIME` of Linux). The usual one, std's [`Instant`], stands still meanwhile: after
/// waking a lease would look good that others have seen run out, and a call would be sent under it.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
    /// The same moment on the clock that does not stand still.
    start_since_boot: Option<Duration>,
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
            start_since_boot: since_boot(),
        }
    }
}

/// How long ago the machine was started, the time it slept included. A system has this clock or has
/// it not, so one that answered once goes on answering. It costs what [`Instant`] costs.
#[cfg(target_os = "linux")]
pub(crate) fn since_boot() -> Option<Duration> {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .ok()
        .map(Duration::from)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn since_boot() -> Option<Duration> {
    None
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
        let both = self.start_since_boot.zip(since_boot());
        let passed = both.map(|(start, now)| now.saturating_sub(start));
        passed.unwrap_or_else(|| self.start.elapsed())
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that others must ask"
    )]
    fn id(&self, kind: IdKind) -> Text {
        let made = UuidTimestamp::now(ThreadLocalContext::new(&IDS));
        let mut digits = [0; uuid::fmt::Simple::LENGTH];
        let digits = Uuid::new_v7(made).simple().encode_lower(&mut digits);
        [kind.prefix(), digits].concat().into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::thread;

    use super::*;

    /// On a machine that never slept the two clocks agree; in a time namespace (`unshare --time
    /// --boottime 100000`) this tells them apart.
    #[cfg(target_os = "linux")]
    #[test]
    fn time_that_the_machine_slept_through_counts() {
        use nix::time::{ClockId, clock_gettime};
        let clock = SystemClock::new();
        let start = clock.start_since_boot.expect("a clock since boot");
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("a clock");
        let apart = start.abs_diff(Duration::from(now));
        assert!(apart < Duration::from_secs(5), "{start:?} {now}");
    }

    #[test]
    fn monotonic_time_moves_forward_as_std_s_does() {
        let clock = SystemClock::new();
        let mut last = Duration::ZERO;
        for _ in 0..1_000 {
            let now = clock.monotonic();
            assert!(now >= last, "{now:?} after {last:?}");
            last = now;
        }
        thread::sleep(Duration::from_millis(20));
        let (passed, by_std) = (clock.monotonic(), clock.start.elapsed());
        assert!(passed >= last + Duration::from_millis(20), "{passed:?}");
        assert!(
            passed.abs_diff(by_std) < Duration::from_secs(5),
            "{passed:?} {by_std:?}"
        );
    }

    #[test]
    fn ids_are_unique_over_threads_and_sort_by_the_time_they_were_made() {
        let clock = SystemClock::new();
        let made = |_| -> Vec<Text> { (0..20_000).map(|_| clock.id(IdKind::Receipt)).collect() };
        let of_threads: Vec<Vec<Text>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || made(n))).collect();
            let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
            joined.map(|made| made.expect("a thread")).collect()
        });
        for one in &of_threads {
            assert!(one.is_sorted(), "in the order of one thread");
        }
        let all: BTreeSet<&Text> = of_threads.iter().flatten().collect();
        assert_eq!(all.len(), 80_000);
        let earlier = clock.id(IdKind::Receipt);
        thread::sleep(Duration::from_millis(2));
        let later = thread::scope(|scope| scope.spawn(|| clock.id(IdKind::Receipt)).join());
        assert!(earlier < later.expect("a thread"), "and between threads");
        assert!(
            earlier.starts_with("rc_") && earlier.len() == 35,
            "{earlier}"
        );
    }
}
