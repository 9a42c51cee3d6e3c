//! Where an action's answer goes, and what its work leaves if it ends half-way.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::action::ActionResult;
use crate::durable::{SessionId, StoreError};
use crate::error::ExecError;
use crate::lease::Lease;

/// What an action's caller is told.
pub(crate) type Told = Result<Box<ActionResult>, ExecError>;

/// Where the answer goes. The work goes on whether or not anybody still listens.
#[derive(Debug)]
pub struct Reply {
    caller: Option<oneshot::Sender<Told>>,
    lease: Arc<Lease>,
    /// Under which session the work last asked the store for a claim or a place.
    asked_under: Option<SessionId>,
}

impl Reply {
    pub(crate) fn new(caller: oneshot::Sender<Told>, lease: &Arc<Lease>) -> Self {
        Self {
            caller: Some(caller),
            lease: Arc::clone(lease),
            asked_under: None,
        }
    }

    /// Answers once; later answers go nowhere.
    pub(crate) fn answer(&mut self, answer: Told) {
        if let Some(caller) = self.caller.take() {
            // The caller may have left; what happened is in the receipt.
            drop(caller.send(answer));
        }
    }

    /// Answers, and leaves nothing behind.
    pub(crate) fn end(mut self, answer: Told) {
        self.leaves_nothing();
        self.answer(answer);
    }

    /// From now on something of this work may be in the store, under this session.
    pub(crate) fn asks_under(&mut self, session: SessionId) {
        self.asked_under = Some(session);
    }

    /// Nothing of this work is in the store that only this work would end.
    pub(crate) fn leaves_nothing(&mut self) {
        self.asked_under = None;
    }

    /// Tells the caller that the store is silent.
    pub(crate) fn of_silence(&mut self) -> impl FnOnce(StoreError) {
        |error| self.answer(Err(ExecError::Store(error)))
    }

    /// Whether the caller has been told something already.
    pub(crate) fn is_answered(&self) -> bool {
        self.caller.is_none()
    }

    /// Whether nobody listens any more, before anything was answered.
    pub(crate) fn is_caller_gone(&self) -> bool {
        self.caller.as_ref().is_some_and(oneshot::Sender::is_closed)
    }
}

impl Drop for Reply {
    /// The work ended half-way, by a panic or with its runtime: nobody else would ever end what it
    /// asked for.
    fn drop(&mut self) {
        if let Some(session) = self.asked_under {
            self.lease.leave_half_way(session);
        }
    }
}
