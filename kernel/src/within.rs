//! A bound on a wait that costs nothing where nobody waits.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

/// As tokio's `timeout`, but makes a timer only for what is not ready at once: a timer is made and
/// dropped through counters that all threads share.
pub(crate) async fn within<F: Future>(span: Duration, future: F) -> Result<F::Output, Elapsed> {
    // Counted from here: a first poll that takes long is part of the wait.
    let end = Instant::now().checked_add(span);
    let mut future = pin!(future);
    let begun = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
    match (begun, end) {
        (Poll::Ready(output), _) => Ok(output),
        // Boxed: a timer is large, and whatever waits here would be as large all the time.
        (Poll::Pending, Some(end)) => Box::pin(timeout_at(end, future)).await,
        // Later than any clock can tell is never.
        (Poll::Pending, None) => Ok(future.await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_ready_needs_no_time_and_what_is_not_has_an_end() {
        assert_eq!(within(Duration::ZERO, async { 1 }).await.ok(), Some(1));
        let never = std::future::pending::<()>();
        assert!(within(Duration::from_millis(1), never).await.is_err());
        let soon = tokio::time::sleep(Duration::from_millis(1));
        assert!(within(Duration::MAX, soon).await.is_ok());
    }
}
