//! This process's session in the store: opened, kept alive, and opened again if it was lost.
//!
//! Owns the question "may a call still be sent?". The answer counts from the last heartbeat that
//! the store confirmed, on a clock that only moves forward; no two machines' clocks are compared.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
    // A std lock: held for a copy of two words, never over an await.
    current: Mutex<Current>,
    // An async lock: one renewal at a time, held over the store call on purpose.
    renewal: tokio::sync::Mutex<()>,
    is_closed: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct Current {
    session: SessionId,
    good_until: Duration,
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
        let current = Current {
            session,
            good_until: asked.saturating_add(span),
        };
        Ok(Self {
            durable,
            clock,
            node,
            span,
            current: Mutex::new(current),
            renewal: tokio::sync::Mutex::new(()),
            is_closed: AtomicBool::new(false),
        })
    }

    /// The session to claim with.
    pub(crate) fn session(&self) -> SessionId {
        self.current().session
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

    /// Opens another session in place of a dead one; the one there now if somebody did already.
    pub(crate) async fn replace(&self, dead: SessionId) -> Result<SessionId, StoreError> {
        let _one_at_a_time = self.renewal.lock().await;
        let current = self.session();
        if current != dead {
            return Ok(current);
        }
        let asked = self.clock.monotonic();
        let session = self.durable.open_session(&self.node, self.span).await?;
        *self.lock() = Current {
            session,
            good_until: asked.saturating_add(self.span),
        };
        Ok(session)
    }

    /// Ends the session in good order.
    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        self.is_closed.store(true, Ordering::Release);
        self.durable.close_session(self.session()).await
    }

    fn is_good(&self, session: SessionId) -> bool {
        let current = self.current();
        let margin = self.span / SEND_MARGIN_DIVISOR;
        current.session == session
            && self.clock.monotonic().saturating_add(margin) < current.good_until
    }

    /// The lease runs from when the heartbeat was sent, not from when its answer came.
    fn confirm(&self, session: SessionId, asked: Duration) {
        let mut current = self.lock();
        if current.session == session {
            current.good_until = current.good_until.max(asked.saturating_add(self.span));
        }
    }

    fn current(&self) -> Current {
        *self.lock()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Current> {
        // Two plain words: a panic while they were held cannot have left them half-written.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
