//! Whether a call may still be sent: what a connector asks right before it sends.
//!
//! Owns the answer, made of the session's lease and the call's deadline. [`check`](SendPermit::check)
//! asks no store: it costs a look at a clock and at a few numbers, so it can be asked between any two
//! steps of a connector. [`confirm`](SendPermit::confirm) is for a connector that took its time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::connector::ConnectorError;
use crate::durable::SessionId;
use crate::lease::Current;

/// Why a call is not sent, as its receipt says it.
const LATE: &str = "the call's deadline passed before it was sent";
const STOOD_STILL: &str = "this machine's clocks stood still after the call was claimed, by the \
    store's own dates: another process may have taken it for lost";

/// Says whether bytes that can have an effect may leave right now.
///
/// Whatever a connector does first (it waits for a token, connects, greets a server) takes time, and
/// the process may be stopped meanwhile. Once the lease or the deadline has passed, another process
/// may take this call for one that will never land, and send it itself. So [`check`](Self::check)
/// is called as the last thing before the request leaves.
#[derive(Clone)]
pub struct SendPermit(Bounds);

#[derive(Clone)]
enum Bounds {
    Always,
    Session {
        current: Arc<Current>,
        session: SessionId,
        /// On the clock that only moves forward.
        deadline: Duration,
        /// How often the clocks had stood still before the call was claimed.
        standstills: u64,
    },
    Asked(Arc<dyn Fn() -> Result<(), ConnectorError> + Send + Sync>),
}

impl fmt::Debug for SendPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SendPermit").field(&self.check()).finish()
    }
}

impl SendPermit {
    /// One that always permits: for what has no effect, such as reads and probes, and for calls
    /// that are made without an executor.
    pub fn always() -> Self {
        Self(Bounds::Always)
    }

    /// One that asks `may_send` every time: for connectors under test, and for callers that have a
    /// bound of their own.
    pub fn asking<F>(may_send: F) -> Self
    where
        F: Fn() -> Result<(), ConnectorError> + Send + Sync + 'static,
    {
        Self(Bounds::Asked(Arc::new(may_send)))
    }

    /// For a call claimed under `session`, until `deadline` on the lease's own clock, which had stood
    /// still as often as `standstills` says before it was claimed.
    pub(crate) fn of_session(
        current: Arc<Current>,
        session: SessionId,
        deadline: Duration,
        standstills: u64,
    ) -> Self {
        Self(Bounds::Session {
            current,
            session,
            deadline,
            standstills,
        })
    }

    /// As [`check`](Self::check), for a connector that took its time to get ready (it waited for a
    /// token, it connected): a store that tells the time is asked for it first, unless it told it a
    /// moment ago, so that a machine that was paused meanwhile with all its clocks knows of it.
    pub async fn confirm(&self) -> Result<(), ConnectorError> {
        if let Bounds::Session { current, .. } = &self.0 {
            let looked = current.look().await;
            looked.map_err(|error| nothing_sent(&error.to_string()))?;
        }
        self.check()
    }

    /// Asks. An error means that nothing more of the call may leave, now or later, and says why in
    /// a sentence that begins with "nothing was sent"; where nothing had left before, the call is
    /// [`NotApplied`](crate::InvokeOutcome::NotApplied) with that error.
    pub fn check(&self) -> Result<(), ConnectorError> {
        match &self.0 {
            Bounds::Always => Ok(()),
            Bounds::Asked(may_send) => may_send(),
            Bounds::Session {
                current,
                session,
                deadline,
                standstills,
            } => {
                if current.standstills() != *standstills {
                    return Err(nothing_sent(STOOD_STILL));
                }
                current.may_send(*session).map_err(nothing_sent)?;
                if current.now() < *deadline {
                    Ok(())
                } else {
                    Err(nothing_sent(LATE))
                }
            }
        }
    }

    /// How long is left until the call's deadline, where this permit knows one. Unlike
    /// [`Call::deadline`](crate::Call::deadline) it is counted at this moment: for bounds that a
    /// server is told in the middle of a call.
    pub fn left(&self) -> Option<Duration> {
        match &self.0 {
            Bounds::Always | Bounds::Asked(_) => None,
            Bounds::Session {
                current, deadline, ..
            } => Some(deadline.saturating_sub(current.now())),
        }
    }
}

fn nothing_sent(why: &str) -> ConnectorError {
    ConnectorError::new(format!("nothing was sent: {why}"))
}
