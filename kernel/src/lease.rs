//! This process's session in the store: opened, kept alive, and opened again if it was lost.
//!
//! Owns the question "may a call still be sent?". The answer counts from the last heartbeat that
//! the store confirmed, on a clock that only moves forward; no two machines' clocks are compared.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::durable::{Beat, DurableExec, SessionId, StoreError};
use crate::kernel::in_time;

/// Beats per lease: two may be lost before the session is.
const BEATS_PER_LEASE: u32 = 3;

/// The part of a lease that must be left for a call to be sent.
const SEND_MARGIN_DIVISOR: u32 = 10;

/// The session of one executor.
#[derive(Debug)]
pub(crate) struct Lease {
    durable: Arc<dyn DurableExec>,
    clock: Arc<dyn Clock>,
    node: String,
    span: Duration,
    current: Current,
    // An async lock: one renewal at a time, held over the store call on purpose.
    renewal: tokio::sync::Mutex<()>,
    is_closed: AtomicBool,
}

/// The session there is now, and until when it is known to be good.
///
/// Every action reads it, on every thread, and hardly anybody writes it: who reads takes no lock.
#[derive(Debug)]
struct Current {
    session: AtomicU64,
    /// Nanoseconds on the clock that only moves forward.
    good_until: AtomicU64,
    // A std lock: one writes at a time. Held for two words, never over an await.
    writing: Mutex<()>,
}

impl Current {
    fn new(session: SessionId, good_until: Duration) -> Self {
        Self {
            session: AtomicU64::new(session.0),
            good_until: AtomicU64::new(nanos(good_until)),
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

    fn extend(&self, session: SessionId, good_until: Duration) {
        let _one_at_a_time = self.write();
        if self.session() == session {
            self.good_until
                .fetch_max(nanos(good_until), Ordering::SeqCst);
        }
    }

    fn replace(&self, session: SessionId, good_until: Duration) {
        let _one_at_a_time = self.write();
        self.session.store(session.0, Ordering::SeqCst);
        self.good_until.store(nanos(good_until), Ordering::SeqCst);
    }

    fn write(&self) -> MutexGuard<'_, ()> {
        // It guards no value that a panic could have left half-written.
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
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
        let session = durable.open_session(&node, span).await?;
        Ok(Self {
            durable,
            clock,
            node,
            span,
            current: Current::new(session, asked.saturating_add(span)),
            renewal: tokio::sync::Mutex::new(()),
            is_closed: AtomicBool::new(false),
        })
    }

    /// The session to claim with.
    pub(crate) fn session(&self) -> SessionId {
        self.current.session()
    }

    /// How long to sleep between heartbeats.
    pub(crate) fn beat_interval(&self) -> Duration {
        self.span / BEATS_PER_LEASE
    }

    /// Sends a heartbeat; a session found dead is replaced.
    pub(crate) async fn beat(&self) -> Result<(), StoreError> {
        if self.is_closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let session = self.session();
        let asked = self.clock.monotonic();
        match self.heartbeat(session).await? {
            Beat::Alive => self.confirm(session, asked),
            Beat::Dead => {
                tracing::warn!(%session, "the session was declared dead; opening another");
                self.replace(session).await?;
            }
        }
        Ok(())
    }

    /// Whether a call claimed under `session` may still be sent, asking the store if it is close.
    pub(crate) async fn may_send(&self, session: SessionId) -> bool {
        // Closed, whatever was claimed under it is a doubt already: nothing is added to that.
        if self.is_closed.load(Ordering::Acquire) {
            return false;
        }
        if self.is_good(session) {
            return true;
        }
        let asked = self.clock.monotonic();
        match Box::pin(self.heartbeat(session)).await {
            Ok(Beat::Alive) => {
                self.confirm(session, asked);
                self.is_good(session)
            }
            Ok(Beat::Dead) | Err(_) => false,
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
        if self.is_closed.load(Ordering::Acquire) {
            return Err(StoreError::SessionDead {
                store: self.durable.describe(),
                session: dead,
            });
        }
        if current != dead {
            return Ok(current);
        }
        let asked = self.clock.monotonic();
        let session = self.durable.open_session(&self.node, self.span).await?;
        self.current
            .replace(session, asked.saturating_add(self.span));
        Ok(session)
    }

    /// Ends the session in good order.
    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        self.is_closed.store(true, Ordering::Release);
        self.durable.close_session(self.session()).await
    }

    fn is_good(&self, session: SessionId) -> bool {
        let margin = self.span / SEND_MARGIN_DIVISOR;
        let good_until = self.current.good_until(session);
        good_until.is_some_and(|until| self.clock.monotonic().saturating_add(margin) < until)
    }

    /// The lease runs from when the heartbeat was sent, not from when its answer came.
    fn confirm(&self, session: SessionId, asked: Duration) {
        self.current
            .extend(session, asked.saturating_add(self.span));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn time_of(session: u64) -> Duration {
        Duration::from_micros(session)
    }

    #[test]
    fn no_session_is_held_good_by_the_time_of_one_after_it() {
        const SESSIONS: u64 = 300_000;
        let current = Current::new(SessionId(1), time_of(1));
        thread::scope(|scope| {
            scope.spawn(|| {
                for session in 2..=SESSIONS {
                    current.replace(SessionId(session), time_of(session));
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
        let current = Current::new(SessionId(1), time_of(10));
        current.extend(SessionId(1), time_of(5));
        assert_eq!(current.good_until(SessionId(1)), Some(time_of(10)));
        current.replace(SessionId(2), time_of(20));
        current.extend(SessionId(1), time_of(90));
        assert_eq!(current.good_until(SessionId(2)), Some(time_of(20)));
        current.extend(SessionId(2), time_of(30));
        assert_eq!(current.good_until(SessionId(2)), Some(time_of(30)));
    }
}
