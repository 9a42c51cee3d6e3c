//! What this process has seen, and for how long: the store's time, without anybody's clock.
//!
//! `DynamoDB` tells no time that a condition could use, and no two machines' clocks are compared. So
//! *at least this long* (a lease, a request that may still land) is what this process has watched on
//! its own monotonic clock, or what the store's own answers' dates say with minutes to spare. *At
//! most this long* (a vendor's window) is what this process began itself, or what those dates say.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use operators_kernel::{Clock, SessionId, StoreTime, Timestamp};

use super::entity_item::EntityItem;
use super::item::{First, Span};
use super::key_item::KeyItem;
use crate::SystemClock;
use crate::page::SessionRecord;

/// How far apart two dates of the store may be: AWS keeps its machines within milliseconds, and
/// itself calls five minutes off too far for a signature.
const DATE_SLACK: i64 = 300_000_000;

/// The longest one request may take; its date may be that old when it is read.
pub(super) const REQUEST_MAX: Duration = Duration::from_secs(3);

/// By how much more than this process's clock the store's dates must have moved on for that clock to
/// have stood still: a request may take three seconds, and dates are whole ones.
const STANDSTILL_MIN: i64 = 10_000_000;

/// How much is remembered. Forgetting is safe: what was forgotten is watched anew.
const MEMORY_MAX: usize = 65_536;

/// One process's view of one table.
#[derive(Debug)]
pub(super) struct Observer {
    clock: SystemClock,
    /// The wall clock when this began, only so that times look like times.
    start: i64,
    /// How often the clock was found to have stood still.
    standstills: AtomicU64,
    // A std lock: held for map look-ups, never over an await.
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The store's date in an answer, and when that answer came.
    date: Option<(i64, StoreTime)>,
    /// When each id was first seen.
    ids: HashMap<String, StoreTime>,
    /// When this process began each of its own attempts.
    begun: HashMap<String, StoreTime>,
    sessions: HashMap<SessionId, Watch>,
    /// Until when this process's own sessions cannot have been declared dead.
    leases: HashMap<SessionId, (Duration, StoreTime)>,
    entities: HashMap<String, EntityItem>,
    intents: HashMap<String, (SessionId, KeyItem)>,
}

#[derive(Debug, Clone, Copy)]
struct Watch {
    beat: u64,
    since: StoreTime,
}

impl Observer {
    pub(super) fn new() -> Self {
        let clock = SystemClock::new();
        Self {
            start: clock.now().as_micros(),
            clock,
            standstills: AtomicU64::new(0),
            seen: Mutex::new(Seen::default()),
        }
    }

    /// This process's monotonic time.
    pub(super) fn now(&self) -> StoreTime {
        let elapsed = i64::try_from(self.clock.monotonic().as_micros()).unwrap_or(i64::MAX);
        StoreTime(self.start.saturating_add(elapsed))
    }

    /// The wall clock, for receipts.
    pub(super) fn stamp(&self) -> Timestamp {
        self.clock.now()
    }

    /// An answer with this date came. One that is minutes after the last, of a moment ago, means that
    /// the clock stood still between them: the machine was paused, or resumed from a snapshot.
    pub(super) fn dated(&self, seconds: i64) {
        let date = seconds.saturating_mul(1_000_000);
        let mut seen = self.lock();
        let now = self.now();
        let has_stood_still = seen.date.is_some_and(|(last, at)| {
            let (by_date, by_clock) = (date.saturating_sub(last), now.0.saturating_sub(at.0));
            by_date > by_clock.saturating_add(STANDSTILL_MIN)
        });
        if has_stood_still {
            // INVARIANT (stood-still): what was counted on it as *at most this long* is counted no
            // more. What was counted as *at least* took longer than that.
            seen.begun.clear();
            seen.leases.clear();
            self.standstills.fetch_add(1, Ordering::SeqCst);
        }
        seen.date = Some((date, now));
    }

    /// How often the clock was found to have stood still.
    pub(super) fn standstills(&self) -> u64 {
        self.standstills.load(Ordering::SeqCst)
    }

    /// How long the store has told no date; nothing if it never told one.
    pub(super) fn undated_for(&self) -> Option<Duration> {
        let (_, at) = self.lock().date?;
        Some(at.until(self.now()))
    }

    /// The earliest the store's date can be now.
    pub(super) fn date_min(&self) -> Option<i64> {
        let (date, at) = self.lock().date?;
        Some(date.saturating_add(self.now().0.saturating_sub(at.0)))
    }

    /// The latest the store's date can be now: dates are whole seconds, and an answer takes time.
    pub(super) fn date_max(&self) -> Option<i64> {
        Some(self.date_min()?.saturating_add(date_age_max()))
    }

    /// From when on a span is surely over.
    pub(super) fn until(&self, span: &Span) -> StoreTime {
        let now = self.now();
        let mut seen = self.lock();
        let first = seen.first_sight(&span.id, now);
        let watched = StoreTime(first.0.saturating_add(span.micros));
        let dated = seen.over_by_date(span.date_max, span.micros, now);
        dated.map_or(watched, |dated| dated.min(watched))
    }

    /// The earliest something can have begun.
    pub(super) fn since(&self, first: &First) -> StoreTime {
        let seen = self.lock();
        let begun = seen.begun.get(&first.id).copied();
        let dated = first.date_min.zip(seen.date).map(|(date_min, (date, at))| {
            let age = date.saturating_add(date_age_max()).saturating_sub(date_min);
            StoreTime(at.0.saturating_sub(age))
        });
        begun.max(dated).unwrap_or(StoreTime(i64::MIN))
    }

    /// An attempt of this process, asked for at `asked`, is durable now.
    pub(super) fn begun(&self, session: SessionId, key: KeyItem, asked: StoreTime) {
        let now = self.now();
        let id = key.attempt_id();
        let mut seen = self.lock();
        seen.first_sight(&id, now);
        if seen.begun.len() >= MEMORY_MAX {
            forget_older_half(&mut seen.begun);
        }
        seen.begun.insert(id, asked);
        if seen.intents.len() >= MEMORY_MAX {
            seen.intents.clear();
        }
        let receipt_id = key.receipt_id().to_owned();
        seen.intents.insert(receipt_id, (session, key));
    }

    /// A span that this process itself began at `now`.
    pub(super) fn began_span(&self, span: &Span, now: StoreTime) {
        self.lock().first_sight(&span.id, now);
    }

    /// The intent behind an attempt, as this process last wrote it.
    pub(super) fn intent(&self, receipt_id: &str) -> Option<KeyItem> {
        let seen = self.lock();
        seen.intents.get(receipt_id).map(|(_, key)| key.clone())
    }

    /// What this process knows to have left open under a session.
    pub(super) fn intents_of(&self, session: SessionId) -> Vec<KeyItem> {
        let seen = self.lock();
        let all = seen.intents.values();
        all.filter(|(owner, _)| *owner == session)
            .map(|(_, key)| key.clone())
            .collect()
    }

    /// An attempt is settled.
    pub(super) fn settled(&self, receipt_id: &str) {
        self.lock().intents.remove(receipt_id);
    }

    /// The entity as this process last saw it; a hint, never a fact.
    pub(super) fn entity(&self, pk: &str) -> Option<EntityItem> {
        self.lock().entities.get(pk).cloned()
    }

    pub(super) fn saw_entity(&self, pk: &str, entity: EntityItem) {
        let mut seen = self.lock();
        if seen.entities.len() >= MEMORY_MAX {
            seen.entities.clear();
        }
        seen.entities.insert(pk.to_owned(), entity);
    }

    /// A session's beat, read just now: for how long it counts as alive. What nobody watched is
    /// dead once the store's dates say so with minutes to spare.
    pub(super) fn saw_beat(
        &self,
        session: SessionId,
        beat: u64,
        lease: Duration,
        date_max: Option<i64>,
    ) -> SessionRecord {
        let now = self.now();
        let mut seen = self.lock();
        let watch = seen
            .sessions
            .entry(session)
            .or_insert(Watch { beat, since: now });
        if watch.beat != beat {
            *watch = Watch { beat, since: now };
        }
        let watched = watch.since.plus(lease);
        let dated = seen.over_by_date(date_max, StoreTime(0).plus(lease).0, now);
        SessionRecord {
            lease,
            alive_until: dated.map_or(watched, |dated| dated.min(watched)),
            is_dead: false,
        }
    }

    /// A session of this process showed life in a request begun at `asked`: nobody can have watched
    /// it for a whole lease before that has passed again.
    pub(super) fn own_beat(&self, session: SessionId, lease: Duration, asked: StoreTime) {
        let mut seen = self.lock();
        seen.leases.insert(session, (lease, asked.plus(lease)));
    }

    /// A session that cannot have been declared dead yet, if this is one.
    pub(super) fn own_lease(&self, session: SessionId) -> Option<SessionRecord> {
        let now = self.now();
        let (lease, alive_until) = *self.lock().leases.get(&session)?;
        (now < alive_until).then_some(SessionRecord {
            lease,
            alive_until,
            is_dead: false,
        })
    }

    /// A session is dead; nothing about it needs watching.
    pub(super) fn buried(&self, session: SessionId) {
        let mut seen = self.lock();
        seen.leases.remove(&session);
        seen.sessions.remove(&session);
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    /// When the store's dates say that something is over that lasts so long from `date_max` on. Two
    /// dates of the store decide, and no clock: until another says that it is over, it is not.
    fn over_by_date(
        &self,
        date_max: Option<i64>,
        micros: i64,
        now: StoreTime,
    ) -> Option<StoreTime> {
        let (date_max, (date, at)) = date_max.zip(self.date)?;
        let over = date_max.saturating_add(micros).saturating_add(DATE_SLACK);
        let left = over.saturating_sub(date);
        let ended = StoreTime(at.0.saturating_add(left));
        Some(if left <= 0 {
            ended
        } else {
            ended.max(now.plus(Duration::from_secs(1)))
        })
    }

    fn first_sight(&mut self, id: &str, now: StoreTime) -> StoreTime {
        if let Some(first) = self.ids.get(id) {
            return *first;
        }
        if self.ids.len() >= MEMORY_MAX {
            forget_older_half(&mut self.ids);
        }
        self.ids.insert(id.to_owned(), now);
        now
    }
}

fn date_age_max() -> i64 {
    let request = i64::try_from(REQUEST_MAX.as_micros()).unwrap_or(i64::MAX);
    request.saturating_add(1_000_000)
}

fn forget_older_half(ids: &mut HashMap<String, StoreTime>) {
    let mut times: Vec<StoreTime> = ids.values().copied().collect();
    times.sort();
    if let Some(middle) = times.get(times.len() / 2).copied() {
        ids.retain(|_, at| *at > middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: &str, date_max: Option<i64>) -> Span {
        Span {
            id: id.to_owned(),
            micros: 10_000_000,
            date_max,
        }
    }

    #[test]
    fn a_span_is_counted_from_first_sight_on() {
        let observer = Observer::new();
        let before = observer.now();
        let until = observer.until(&span("a", None));
        assert!(until.0 >= before.0 + 10_000_000);
        assert_eq!(observer.until(&span("a", None)), until);
        assert!(observer.until(&span("b", None)) > until);
    }

    #[test]
    fn the_stores_dates_end_a_span_only_with_minutes_to_spare() {
        let observer = Observer::new();
        observer.dated(1_000_000);
        let long_ago = 1_000_000_000_000 - DATE_SLACK - 20_000_000;
        assert!(observer.until(&span("a", Some(long_ago))) < observer.now());
        let minutes_ago = 1_000_000_000_000 - DATE_SLACK / 2;
        assert!(observer.until(&span("b", Some(minutes_ago))) > observer.now());
    }

    #[test]
    fn dates_that_leave_the_clock_behind_show_that_it_stood_still() {
        let observer = Observer::new();
        let session = SessionId(1);
        observer.dated(1_000_000);
        observer.own_beat(session, Duration::from_mins(1), observer.now());
        observer.dated(1_000_008);
        assert_eq!(observer.standstills(), 0, "as long as requests may take");
        assert!(observer.own_lease(session).is_some());
        observer.dated(1_000_060);
        assert_eq!(observer.standstills(), 1);
        assert!(observer.own_lease(session).is_none());
        observer.dated(1_000_000);
        assert_eq!(observer.standstills(), 1, "an answer that was overtaken");
    }

    #[test]
    fn no_clock_of_this_process_says_that_something_is_over_by_date() {
        let observer = Observer::new();
        observer.dated(1_000_000);
        let almost = 1_000_000_000_000 - DATE_SLACK - 10_000_000 + 1_000;
        assert!(observer.until(&span("a", Some(almost))) > observer.now());
        std::thread::sleep(Duration::from_millis(5));
        assert!(observer.until(&span("a", Some(almost))) > observer.now());
        observer.dated(1_000_001);
        assert!(observer.until(&span("a", Some(almost))) <= observer.now());
    }

    #[test]
    fn a_window_is_counted_from_the_earliest_it_can_have_begun() {
        let observer = Observer::new();
        let first = |date_min| First {
            id: "a".to_owned(),
            date_min,
        };
        assert_eq!(observer.since(&first(None)), StoreTime(i64::MIN));
        observer.dated(1_000_000);
        let an_hour_ago = 1_000_000_000_000 - 3_600_000_000;
        let since = observer.since(&first(Some(an_hour_ago)));
        assert!(since.0 <= observer.now().0 - 3_600_000_000);
        assert!(since.0 > observer.now().0 - 3_620_000_000);
    }

    #[test]
    fn a_session_is_watched_from_its_last_new_beat() {
        let observer = Observer::new();
        let lease = Duration::from_secs(9);
        let session = SessionId(1);
        let alive_until = |beat, date| observer.saw_beat(session, beat, lease, date).alive_until;
        let first = alive_until(1, None);
        assert_eq!(alive_until(1, None), first);
        std::thread::sleep(Duration::from_millis(2));
        assert!(alive_until(2, None) > first);
        observer.dated(1_000_000);
        let now = 1_000_000_000_000;
        assert!(alive_until(2, Some(now)) > observer.now());
        assert!(alive_until(2, Some(now - DATE_SLACK / 2)) > observer.now());
        assert!(alive_until(2, Some(now - DATE_SLACK * 2)) < observer.now());
    }
}
