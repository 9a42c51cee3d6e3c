//! The store's clock: the machine's time since its boot, tied to the wall clock once per boot.
//!
//! Owns what time it is in the store, which decides when a request can no longer land, how long a key
//! may be sent again, and whose lease is over. The wall clock may be set at any moment and must decide
//! none of that; it is asked when the first process after a boot opens the file, and for the receipts
//! that the store itself owes, which people read.

use std::fmt;
use std::fs;
use std::sync::Arc;

use operators_kernel::{Clock, StoreTime, Timestamp};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use crate::SystemClock;
use crate::system_clock::since_boot;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// How far the clocks of this process's time namespace are from the machine's.
const OFFSETS: &str = "/proc/self/timens_offsets";

const ANCHOR: &str = "SELECT anchor_boot, anchor_store FROM operators_store WHERE boot = ?1";
/// The latest moment the store is known to have seen: its anchor, and the signs of life.
const LAST_SEEN: &str = "SELECT max(anchor_store, coalesce((SELECT max(max(alive_until - lease_us, \
    coalesce(dead_at, 0))) FROM session), 0)), boot IS NOT NULL FROM operators_store";
/// No lock outlives a boot, so from here on any lock file is as good as the last.
const PUT_ANCHOR: &str = "UPDATE operators_store SET boot = ?1, anchor_boot = ?2, anchor_store = ?3, \
    alive_file = NULL, alive_since = 0";

/// What the machine says of time, in microseconds.
pub(super) trait Machine: fmt::Debug + Send + Sync {
    /// Which boot this is, if the system names it.
    fn boot(&self) -> Option<String>;
    /// Time that nobody can set, and that goes on while the machine sleeps. Where the boot has a name
    /// it is counted from there, in every process alike.
    fn steady(&self) -> i64;
    /// Time of day, which anybody may set.
    fn wall(&self) -> Timestamp;
}

/// The machine this runs on.
#[derive(Debug)]
pub(super) struct ThisMachine {
    clock: SystemClock,
    boot: Option<String>,
    offset: i64,
}

impl ThisMachine {
    pub(super) fn new() -> Self {
        let boot = fs::read_to_string(BOOT_ID).ok();
        let boot = boot.map(|id| id.trim().to_owned());
        let offsets = fs::read_to_string(OFFSETS).unwrap_or_default();
        Self {
            clock: SystemClock::new(),
            boot: boot.filter(|id| !id.is_empty() && since_boot().is_some()),
            offset: boot_offset(&offsets).unwrap_or(0),
        }
    }
}

impl Machine for ThisMachine {
    fn boot(&self) -> Option<String> {
        self.boot.clone()
    }

    fn steady(&self) -> i64 {
        let passed = since_boot().unwrap_or_else(|| self.clock.monotonic());
        let passed = i64::try_from(passed.as_micros()).unwrap_or(i64::MAX);
        passed.saturating_sub(self.offset)
    }

    fn wall(&self) -> Timestamp {
        self.clock.now()
    }
}

/// By how many microseconds a time namespace lets the time since boot go ahead, out of lines such as
/// `boottime  100000  0` (seconds and nanoseconds).
fn boot_offset(offsets: &str) -> Option<i64> {
    let mut lines = offsets.lines().map(str::split_whitespace);
    let mut numbers =
        lines.find_map(|mut words| (words.next() == Some("boottime")).then_some(words))?;
    let seconds: i64 = numbers.next()?.parse().ok()?;
    let nanoseconds: i64 = numbers.next()?.parse().ok()?;
    seconds
        .checked_mul(1_000_000)?
        .checked_add(nanoseconds / 1_000)
}

/// The store's clock. Reading it asks the machine and not the file.
#[derive(Debug)]
pub(super) struct StoreClock {
    machine: Arc<dyn Machine>,
    anchor: Anchor,
}

/// One moment on both clocks.
#[derive(Debug, Clone, Copy)]
struct Anchor {
    steady: i64,
    store: i64,
}

impl Anchor {
    /// By the wall clock, but not before `at_least`.
    fn of_now(machine: &dyn Machine, at_least: i64) -> Self {
        Self {
            steady: machine.steady(),
            store: at_least.max(machine.wall().as_micros()),
        }
    }
}

impl StoreClock {
    /// Takes on the anchor of this boot, or makes it if this is the first process to open the file.
    ///
    /// Where the system names no boot the anchor is this process's own: steps of the wall clock are
    /// then seen only between the openings of two processes.
    pub(super) fn open(
        connection: &mut Connection,
        machine: Arc<dyn Machine>,
    ) -> rusqlite::Result<Self> {
        let anchor = match machine.boot() {
            None => Anchor::of_now(&*machine, last_seen(connection)?.0),
            Some(boot) => match find(connection, &boot)? {
                Some(anchor) => anchor,
                None => make(connection, &*machine, &boot)?,
            },
        };
        Ok(Self { machine, anchor })
    }

    /// What time it is in the store.
    pub(super) fn now(&self) -> StoreTime {
        let passed = self.machine.steady().saturating_sub(self.anchor.steady);
        StoreTime(self.anchor.store.saturating_add(passed))
    }

    /// What time of day it is, for people.
    pub(super) fn wall(&self) -> Timestamp {
        self.machine.wall()
    }
}

fn find(connection: &Connection, boot: &str) -> rusqlite::Result<Option<Anchor>> {
    let mut statement = connection.prepare_cached(ANCHOR)?;
    let found = statement.query_row([boot], |row| {
        Ok(Anchor {
            steady: row.get(0)?,
            store: row.get(1)?,
        })
    });
    found.optional()
}

/// The latest moment the store has seen, and whether that was in a boot with a name.
fn last_seen(connection: &Connection) -> rusqlite::Result<(i64, bool)> {
    connection.query_row(LAST_SEEN, [], |row| Ok((row.get(0)?, row.get(1)?)))
}

fn make(
    connection: &mut Connection,
    machine: &dyn Machine,
    boot: &str,
) -> rusqlite::Result<Anchor> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Read again under the lock: another process may have made it meanwhile.
    if let Some(anchor) = find(&transaction, boot)? {
        return Ok(anchor);
    }
    let (seen, was_another_boot) = last_seen(&transaction)?;
    // What was seen in another boot was before this one began. What an older schema saw may have
    // been a moment ago.
    let at_least = if was_another_boot {
        seen.saturating_add(machine.steady())
    } else {
        seen
    };
    let anchor = Anchor::of_now(machine, at_least);
    transaction.execute(PUT_ANCHOR, (boot, anchor.steady, anchor.store))?;
    transaction.commit()?;
    Ok(anchor)
}

#[cfg(test)]
mod tests;
