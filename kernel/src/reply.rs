//! Where an action's answer goes.

use tokio::sync::oneshot;

use crate::action::ActionResult;
use crate::durable::StoreError;
use crate::error::ExecError;

/// Where the answer goes. The work goes on whether or not anybody still listens.
#[derive(Debug)]
pub struct Reply(Option<oneshot::Sender<Result<Box<ActionResult>, ExecError>>>);

impl Reply {
    pub(crate) fn new(sender: oneshot::Sender<Result<Box<ActionResult>, ExecError>>) -> Self {
        Self(Some(sender))
    }

    /// Answers once; later answers go nowhere.
    pub(crate) fn answer(&mut self, answer: Result<Box<ActionResult>, ExecError>) {
        if let Some(sender) = self.0.take() {
            // The caller may have left; what happened is in the receipt.
            drop(sender.send(answer));
        }
    }

    /// Tells the caller that the store is silent.
    pub(crate) fn of_silence(&mut self) -> impl FnOnce(StoreError) {
        |error| self.answer(Err(ExecError::Store(error)))
    }

    /// Whether the caller has been told something already.
    pub(crate) fn is_answered(&self) -> bool {
        self.0.is_none()
    }

    /// Whether nobody listens any more, before anything was answered.
    pub(crate) fn is_caller_gone(&self) -> bool {
        self.0.as_ref().is_some_and(oneshot::Sender::is_closed)
    }
}
