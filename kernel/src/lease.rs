//! This process's session in the store: opened, kept alive, and opened again if it was lost.
//!
//! Owns the question "may a call still be sent?". The answer counts from the last heartbeat that
//! the store confirmed, on a clock that only moves forward; no two machines' clocks are compared.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::clock::Clock;
use crate::durable::{Beat, DurableExec, SessionId, StoreError};
use crate::kernel::in_time;
use crate::standstill::Standstills;

/// Beats per lease: two may be lost before the session is.
const BEATS_PER_LEASE: u32 = 3;

/// The part of a lease that must be left for a call to be sent.
const SEND_MARGIN_DIVISOR: u32 = 10;

/// Why a call is not sent, as its receipt says it.
const RAN_OUT: &str = "the lease ran out before the call was sent";
const CLOSED: &str = "the executor was stopped before the call was sent";

/// The session of one executor.
#[derive(Debug)]
pub(crate) struct Lease {
    durable: Arc<dyn DurableExec>,
    node: String,
    span: Duration,
    current: Arc<Current>,
    // An async lock: one renewal at a time, held over the store call on purpose.
    renewal: tokio::sync::Mutex<()>,
    /// Whether a task sends heartbeats; it ends with the runtime that it runs on.
    has_heartbeat: AtomicBool,
    /// The session under which work last ended half-way.
    left_half_way: AtomicU64,
}

/// No session has this number.
const NO_SESSION: u64 = u64::MAX;

/// The session there is now, and until when it is known to be good. It knows no store, so that a
/// permit that is kept for long keeps no store open.
///
/// Every action reads it, on every thread, and hardly anybody writes it: who reads takes no lock.
#[derive(Debug)]
pub(crate) struct Current {
    clock: Arc<dyn Clock>,
    /// What must be left of a lease for a call to be sent.
    margin: Duration,
    is_closed: AtomicBool,
    session: AtomicU64,
    /// Nanoseconds on the clock that only moves forward.
    good_until: AtomicU64,
    /// How often the clocks had stood still when the session last showed life: a lease is counted on
    /// them, so it is good only while that is so.
    good_after: AtomicU64,
    standstills: Option<Arc<dyn Standstills>>,
    // A std lock: one writes at a time. Held for two words, never over an await.
    writing: Mutex<()>,
}

impl Current {
    fn new(
        clock: Arc<dyn Clock>,
        span: Duration,
        session: SessionId,
        good_until: Duration,
        standstills: Option<Arc<dyn Standstills>>,
    ) -> Self {
        Self {
            clock,
            margin: span / SEND_MARGIN_DIVISOR,
            is_closed: AtomicBool::new(false),
            session: AtomicU64::new(session.0),
            good_until: AtomicU64::new(nanos(good_until)),
            good_after: AtomicU64::new(0),
            standstills,
            writing: Mutex::new(()),
        }
    }

    fn session(&self) -> SessionId {
        SessionId(self.session.load(Ordering::SeqCst))
    }

    /// Until when `session` is good, at the least; `None` if it is not the one there now.
    fn good_until(&self, session: SessionId) -> Option<Duration> {
        // INVARIANT (own-lease): no session is held good by the time of one after it. The time is
        // read before the session and written after it, and no session comes back. The time of the
        // one before may be read for a new one; it is over sooner.
        let good_until = Duration::from_nanos(self.good_until.load(Ordering::SeqCst));
        (self.session() == session).then_some(good_until)
    }

    /// Whether what was claimed under `session` may be sent at this moment, without asking the
    /// store; the error says why not.
    pub(crate) fn may_send(&self, session: SessionId) -> Result<(), &'static str> {
        // Closed, what was claimed under it is a doubt already: nothing is added to that.
        if self.is_closed() {
            return Err(CLOSED);
        }
        if self.good_after.load(Ordering::SeqCst) != self.standstills() {
            return Err(RAN_OUT);
        }
        let good_until = self.good_until(session);
        let soon = self.now().saturating_add(self.margin);
        if good_until.is_some_and(|until| soon < until) {
            Ok(())
        } else {
            Err(RAN_OUT)
        }
    }

    /// The clock that only moves forward.
    pub(crate) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// How often the clocks stood still, as far as is known.
    pub(crate) fn standstills(&self) -> u64 {
        let known = self.standstills.as_ref();
        known.map_or(0, |standstills| standstills.count())
    }

    /// Asks the store whether they did just now, unless it told the time a moment ago.
    pub(crate) async fn look(&self) -> Result<(), StoreError> {
        match &self.standstills {
            Some(standstills) => standstills.look().await,
            None => Ok(()),
        }
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// What is counted from, taken before the store is asked.
    fn moment(&self) -> Moment {
        Moment {
            at: self.now(),
            standstills: self.standstills(),
        }
    }

    fn extend(&self, session: SessionId, good_until: Duration, standstills: u64) {
        let _one_at_a_time = self.write();
        if self.session() == session {
            self.good_until
                .fetch_max(nanos(good_until), Ordering::SeqCst);
            self.good_after.fetch_max(standstills, Ordering::SeqCst);
        }
    }

    fn replace(&self, session: SessionId, good_until: Duration, standstills: u64) {
        let _one_at_a_time = self.write();
        self.session.store(session.0, Ordering::SeqCst);
        self.good_until.store(nanos(good_until), Ordering::SeqCst);
        self.good_after.fetch_max(standstills, Ordering::SeqCst);
    }

    fn write(&self) -> MutexGuard<'_, ()> {
        // It guards no value that a panic could have left half-written.
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When something was asked of the store, on the clock that only moves forward, and how often that had
/// stood still before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) at: Duration,
    pub(crate) standstills: u64,
}

/// The right to send a lease's heartbeats, which one task has at a time; given back when dropped, with
/// its runtime too. It keeps no lease alive.
#[derive(Debug)]
pub(crate) struct Heartbeat(Weak<Lease>);

impl Heartbeat {
    /// `None` while another task has it.
    pub(crate) fn of(lease: &Arc<Lease>) -> Option<Self> {
        let is_mine = !lease.has_heartbeat.swap(true, Ordering::AcqRel);
        is_mine.then(|| Self(Arc::downgrade(lease)))
    }

    /// The lease, for as long as anybody else holds it.
    pub(crate) fn lease(&self) -> Option<Arc<Lease>> {
        self.0.upgrade()
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        if let Some(lease) = self.lease() {
            lease.has_heartbeat.store(false, Ordering::Release);
        }
    }
}

/// Enough for five centuries.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Lease {
    /// Opens a session.
    pub(crate) async fn open(
        durable: Arc<dyn DurableExec>,
        clock: Arc<dyn Clock>,
        node: String,
        span: Duration,
    ) -> Result<Self, StoreError> {
        let asked = clock.monotonic();
        let standstills = durable.standstills();
        let count = standstills.as_ref().map_or(0, |known| known.count());
        let session = durable.open_session(&node, span).await?;
        let good_until = asked.saturating_add(span);
        let current = Current::new(clock, span, session, good_until, standstills);
        current.extend(session, good_until, count);
        Ok(Self {
            durable,
            node,
            span,
            current: Arc::new(current),
            renewal: tokio::sync::Mutex::new(()),
            has_heartbeat: AtomicBool::new(false),
            left_half_way: AtomicU64::new(NO_SESSION),
        })
    }

    /// The session to claim with.
    pub(crate) fn session(&self) -> SessionId {
        self.current.session()
    }

    /// What a permit goes by.
    pub(crate) fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current)
    }

    /// Now, for what is counted from here.
    pub(crate) fn moment(&self) -> Moment {
        self.current.moment()
    }

    /// How long to sleep between heartbeats.
    pub(crate) fn beat_interval(&self) -> Duration {
        self.span / BEATS_PER_LEASE
    }

    /// Sends a heartbeat; a session found dead is replaced.
    pub(crate) async fn beat(&self) -> Result<(), StoreError> {
        if self.current.is_closed() {
            return Ok(());
        }
        self.replace_if_left().await?;
        let session = self.session();
        let asked = self.current.moment();
        match self.heartbeat(session).await? {
            Beat::Alive => self.confirm(session, asked),
            Beat::Dead => {
                tracing::warn!(%session, "the session was declared dead; opening another");
                self.replace(session).await?;
            }
        }
        Ok(())
    }

    /// Work under this session ended half-way, by a panic or with its runtime: what it asked the store
    /// for has no owner any more, though the session has. Takes no lock and waits for nothing, for it
    /// is called while a runtime shuts down.
    pub(crate) fn leave_half_way(&self, session: SessionId) {
        self.left_half_way.store(session.0, Ordering::Release);
    }

    /// Whether the heartbeat has ended, or the session is to be replaced.
    pub(crate) fn is_broken(&self) -> bool {
        !self.has_heartbeat.load(Ordering::Acquire) || self.must_be_replaced()
    }

    fn must_be_replaced(&self) -> bool {
        let left = self.left_half_way.load(Ordering::Acquire);
        left != NO_SESSION && left == self.session().0
    }

    /// Ends a session under which work ended half-way and opens another, so that what was left is
    /// what a dead process leaves: doubts with their receipts, and no place in a queue. What else runs
    /// under it goes on; its own end is accepted late.
    pub(crate) async fn replace_if_left(&self) -> Result<(), StoreError> {
        if !self.must_be_replaced() || self.current.is_closed() {
            return Ok(());
        }
        let session = self.session();
        tracing::warn!(%session, "work ended half-way, by a panic or with its runtime; it is given up");
        let replaced = async {
            self.durable.close_session(session).await?;
            self.replace(session).await.map(drop)
        };
        in_time(&*self.durable, self.span, replaced).await
    }

    /// Asks the store for another lease if what is left of this one is too little to send a call
    /// claimed under `session`. What is so then, a permit tells.
    pub(crate) async fn renew_if_short(&self, session: SessionId) {
        if self.current.is_closed() || self.current.may_send(session).is_ok() {
            return;
        }
        let asked = self.current.moment();
        if let Ok(Beat::Alive) = Box::pin(self.heartbeat(session)).await {
            self.confirm(session, asked);
        }
    }

    /// No answer within a lease is no sign of life; waiting for it would stop the next.
    async fn heartbeat(&self, session: SessionId) -> Result<Beat, StoreError> {
        let beat = self.durable.heartbeat(session);
        in_time(&*self.durable, self.span, beat).await
    }

    /// Opens another session in place of a dead one; the one there now if somebody did already. Once
    /// it is closed there is none: nobody would ever end another, and whoever asked with the dead one
    /// would ask with it for ever.
    pub(crate) async fn replace(&self, dead: SessionId) -> Result<SessionId, StoreError> {
        let _one_at_a_time = self.renewal.lock().await;
        let current = self.session();
        if self.current.is_closed() {
            return Err(StoreError::SessionDead {
                store: self.durable.describe(),
                session: dead,
            });
        }
        if current != dead {
            return Ok(current);
        }
        let asked = self.current.moment();
        let session = self.durable.open_session(&self.node, self.span).await?;
        let good_until = asked.at.saturating_add(self.span);
        self.current.replace(session, good_until, asked.standstills);
        Ok(session)
    }

    /// Ends the session in good order.
    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        self.current.is_closed.store(true, Ordering::Release);
        self.durable.close_session(self.session()).await
    }

    /// The lease runs from when the heartbeat was sent, not from when its answer came.
    fn confirm(&self, session: SessionId, asked: Moment) {
        let good_until = asked.at.saturating_add(self.span);
        self.current.extend(session, good_until, asked.standstills);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::clock::{IdKind, Timestamp};
    use crate::text::Text;

    /// A clock that stands still.
    #[derive(Debug)]
    struct Still;

    impl Clock for Still {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(0)
        }

        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }

        fn id(&self, kind: IdKind) -> Text {
            kind.prefix().into()
        }
    }

    fn current(session: u64, good_until: Duration) -> Current {
        Current::new(
            Arc::new(Still),
            Duration::ZERO,
            SessionId(session),
            good_until,
            None,
        )
    }

    fn time_of(session: u64) -> Duration {
        Duration::from_micros(session)
    }

    #[test]
    fn no_session_is_held_good_by_the_time_of_one_after_it() {
        const SESSIONS: u64 = 300_000;
        let current = current(1, time_of(1));
        thread::scope(|scope| {
            scope.spawn(|| {
                for session in 2..=SESSIONS {
                    current.replace(SessionId(session), time_of(session), 0);
                }
            });
            loop {
                let session = current.session();
                if let Some(good_until) = current.good_until(session) {
                    assert!(good_until <= time_of(session.0), "of session {session}");
                }
                if session.0 == SESSIONS {
                    break;
                }
            }
        });
        assert_eq!(current.good_until(SessionId(1)), None);
    }

    #[test]
    fn a_heartbeat_extends_only_the_session_it_was_sent_for_and_never_shortens() {
        let current = current(1, time_of(10));
        current.extend(SessionId(1), time_of(5), 0);
        assert_eq!(current.good_until(SessionId(1)), Some(time_of(10)));
        current.replace(SessionId(2), time_of(20), 0);
        current.extend(SessionId(1), time_of(90), 0);
        assert_eq!(current.good_until(SessionId(2)), Some(time_of(20)));
        current.extend(SessionId(2), time_of(30), 0);
        assert_eq!(current.good_until(SessionId(2)), Some(time_of(30)));
    }
}
