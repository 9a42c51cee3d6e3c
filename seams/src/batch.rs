//! Group commit for stores that answer many calls with one request.
//!
//! There is no timer: a batch is whatever queued while the last ones were under way, and whatever
//! those who can run right now have to add; a call that finds nothing under way, and nobody else who
//! could run, goes out at once and alone. The work runs in tasks of its own; a caller holds only a
//! receiver, and one that leaves stops nothing.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// How much goes into one batch, and how many batches go out at once.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_field_names,
    reason = "each is a bound, and says so last"
)]
pub(crate) struct Limits {
    /// Items in one batch: bounds how long the first of them waits for the last.
    pub(crate) items_max: usize,
    /// What the items of one batch may weigh together; one item alone may weigh more.
    pub(crate) weight_max: usize,
    /// Batches under way at once.
    pub(crate) lanes_max: usize,
}

type Run<I, O> = dyn Fn(Vec<I>) -> Pin<Box<dyn Future<Output = Vec<O>> + Send>> + Send + Sync;

/// Collects items and runs them in batches. One answer per item, in the order of the items.
pub(crate) struct Batcher<I, O> {
    shared: Arc<Shared<I, O>>,
}

struct Shared<I, O> {
    limits: Limits,
    run: Box<Run<I, O>>,
    // A std lock: held to push or take, never over an await. Nor while a task is spawned or a reply
    // is sent or dropped: that can run what takes it again, on this very thread.
    state: Mutex<State<I, O>>,
}

struct State<I, O> {
    queue: VecDeque<Waiting<I, O>>,
    lanes: usize,
    /// Whether the last batch held more than one item: there are several callers about.
    is_shared: bool,
}

struct Waiting<I, O> {
    item: I,
    weight: usize,
    reply: oneshot::Sender<O>,
}

impl<I, O> fmt::Debug for Batcher<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher")
            .field("limits", &self.shared.limits)
            .finish_non_exhaustive()
    }
}

impl<I: Send + 'static, O: Send + 'static> Batcher<I, O> {
    /// Runs batches with `run`.
    pub(crate) fn new<F>(limits: Limits, run: impl Fn(Vec<I>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Vec<O>> + Send + 'static,
    {
        let state = State {
            queue: VecDeque::new(),
            lanes: 0,
            is_shared: false,
        };
        let shared = Shared {
            limits,
            run: Box::new(move |items| Box::pin(run(items))),
            state: Mutex::new(state),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Hands over items with their weights; one receiver per item, closed without an answer only
    /// if the work panicked, or the runtime that it ran in was shut down.
    pub(crate) fn hand_over(&self, items: Vec<(I, usize)>) -> Vec<oneshot::Receiver<O>> {
        let mut receivers = Vec::with_capacity(items.len());
        let mut state = self.shared.lock();
        for (item, weight) in items {
            let (reply, receiver) = oneshot::channel();
            state.queue.push_back(Waiting {
                item,
                weight,
                reply,
            });
            receivers.push(receiver);
        }
        let begins = state.lanes < self.shared.limits.lanes_max && !state.queue.is_empty();
        state.lanes += usize::from(begins);
        drop(state);
        if begins {
            let lane = Lane {
                shared: Arc::clone(&self.shared),
                is_over: false,
            };
            // A runtime that is shutting down drops the lane right here.
            spawn(lane.serve());
        }
        receivers
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a batch belongs to many callers, so to none of them"
)]
fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(work);
}

impl<I, O> Shared<I, O> {
    fn lock(&self) -> MutexGuard<'_, State<I, O>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next batch. None if nothing waits, and then the lane that asked is over: decided under
    /// one lock, or an item that arrives meanwhile would wait for a lane that is not coming back.
    fn take(&self) -> Option<Vec<Waiting<I, O>>> {
        let mut state = self.lock();
        let mut batch = Vec::new();
        let mut weight = 0_usize;
        while batch.len() < self.limits.items_max {
            let fits = |next: &Waiting<I, O>| {
                batch.is_empty() || weight.saturating_add(next.weight) <= self.limits.weight_max
            };
            let Some(next) = state.queue.front().filter(|next| fits(next)) else {
                break;
            };
            weight = weight.saturating_add(next.weight);
            batch.extend(state.queue.pop_front());
        }
        if batch.is_empty() {
            state.lanes -= 1;
            return None;
        }
        state.is_shared = batch.len() > 1;
        Some(batch)
    }
}

/// One batch under way at a time; gone when nothing waits, on a panic and with its runtime too.
struct Lane<I, O> {
    shared: Arc<Shared<I, O>>,
    is_over: bool,
}

impl<I: Send + 'static, O: Send + 'static> Lane<I, O> {
    async fn serve(mut self) {
        loop {
            // Whoever can run now may have something for this batch: those that the last one
            // answered, and whoever came together with the first of this one. Not where callers
            // come one by one: two lanes that yield at once bring a second thread in, and to wake
            // one costs more than all else that is done here.
            if self.shared.lock().is_shared {
                tokio::task::yield_now().await;
            }
            let Some(batch) = self.shared.take() else {
                break;
            };
            let (items, replies): (Vec<I>, Vec<oneshot::Sender<O>>) = batch
                .into_iter()
                .map(|waiting| (waiting.item, waiting.reply))
                .unzip();
            let answers = (self.shared.run)(items).await;
            for (reply, answer) in replies.into_iter().zip(answers) {
                // Whoever asked may have left; the work is done all the same.
                drop(reply.send(answer));
            }
        }
        self.is_over = true;
    }
}

impl<I, O> Drop for Lane<I, O> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.shared.lock();
        state.lanes -= 1;
        // No lane comes for what waits unless another item does: it is told now.
        let left = if state.lanes == 0 {
            std::mem::take(&mut state.queue)
        } else {
            VecDeque::new()
        };
        drop(state);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    fn limits(lanes_max: usize) -> Limits {
        Limits {
            items_max: 10,
            weight_max: 100,
            lanes_max,
        }
    }

    /// Answers each item with itself and the size of its batch, after a pause.
    fn sizes(limits: Limits) -> Batcher<u32, (u32, usize)> {
        Batcher::new(limits, |items: Vec<u32>| async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let size = items.len();
            items.into_iter().map(|item| (item, size)).collect()
        })
    }

    async fn answers<O>(receivers: Vec<oneshot::Receiver<O>>) -> Vec<O> {
        let mut found = Vec::new();
        for receiver in receivers {
            found.push(receiver.await.expect("an answer"));
        }
        found
    }

    #[tokio::test]
    async fn a_call_alone_goes_out_at_once_and_those_behind_it_together() {
        let batcher = sizes(limits(1));
        let first = batcher.hand_over(vec![(1, 1)]);
        tokio::time::sleep(Duration::from_millis(1)).await;
        let mut later = Vec::new();
        for item in 2..=6 {
            later.extend(batcher.hand_over(vec![(item, 1)]));
        }
        assert_eq!(answers(first).await, [(1, 1)]);
        let expected: Vec<_> = (2..=6).map(|item| (item, 5)).collect();
        assert_eq!(answers(later).await, expected);
    }

    #[tokio::test]
    async fn batches_are_cut_by_number_and_by_weight() {
        let batcher = sizes(limits(1));
        let many = batcher.hand_over((0..12).map(|item| (item, 1)).collect());
        let heavy = batcher.hand_over(vec![(20, 60), (21, 60), (22, 500), (23, 1)]);
        let found = answers(many).await;
        assert_eq!(found.first(), Some(&(0, 10)));
        let found: Vec<u32> = answers(heavy)
            .await
            .into_iter()
            .map(|(item, _)| item)
            .collect();
        assert_eq!(found, [20, 21, 22, 23]);
    }

    /// A runtime that ended, and what happens when a batch is handed over all the same: its task is
    /// dropped where it is spawned. On a thread of its own, because what is tested for is a hang.
    fn after_the_end(then: impl FnOnce(Batcher<u32, u32>) + Send + 'static) {
        let (over, is_over) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            let handle = runtime.handle().clone();
            drop(runtime);
            let _entered = handle.enter();
            then(Batcher::new(limits(1), |items| async move { items }));
            over.send(()).expect("the test waits");
        });
        let ended = is_over.recv_timeout(Duration::from_secs(20));
        ended.expect("it hangs: a lock is held while its task is dropped");
    }

    /// `main` returned while calls were in flight: the runtime took a worker's task with it, which
    /// handed over a batch, and the process never ended.
    #[test]
    fn what_is_handed_over_when_the_runtime_has_ended_is_answered() {
        after_the_end(|batcher| {
            for item in 0..3 {
                let receivers = batcher.hand_over(vec![(item, 1), (item, 1)]);
                for mut receiver in receivers {
                    let closed = tokio::sync::oneshot::error::TryRecvError::Closed;
                    assert_eq!(receiver.try_recv(), Err(closed));
                }
            }
        });
    }

    /// A lane that ended early takes nobody with it who still waits for one.
    #[tokio::test]
    async fn what_waits_behind_a_batch_that_panicked_is_answered() {
        let (go, gone) = oneshot::channel::<()>();
        let gone = Mutex::new(Some(gone));
        let batcher: Batcher<u32, u32> = Batcher::new(limits(1), move |_| {
            let gone = gone.lock().expect("the lock").take();
            async move {
                drop(gone.expect("one batch").await);
                panic!("on purpose");
            }
        });
        let first = batcher.hand_over(vec![(0, 1)]);
        tokio::time::sleep(Duration::from_millis(1)).await;
        let behind = batcher.hand_over(vec![(1, 1)]);
        drop(go);
        for receiver in first.into_iter().chain(behind) {
            let answer = tokio::time::timeout(Duration::from_secs(20), receiver).await;
            assert!(answer.expect("nothing waits for ever").is_err());
        }
    }

    #[tokio::test]
    async fn no_item_is_left_behind_and_a_panic_costs_one_batch() {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let batcher: Batcher<u32, u32> = Batcher::new(limits(2), |items| async move {
            assert!(RUNS.fetch_add(1, Ordering::SeqCst) != 0, "on purpose");
            tokio::task::yield_now().await;
            items
        });
        let lost = batcher.hand_over(vec![(0, 1)]);
        for receiver in lost {
            assert!(receiver.await.is_err(), "its batch panicked");
        }
        for round in 0..2_000 {
            let receivers = batcher.hand_over(vec![(round, 1)]);
            assert_eq!(answers(receivers).await, [round]);
        }
    }
}
