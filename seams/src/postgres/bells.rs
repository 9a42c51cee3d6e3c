//! The wake-up: a connection of its own that listens for turns that may have come.
//!
//! Nothing rests on it. Whoever waits also looks again by itself, seldom while the bells are known
//! to work, often while they are not: behind a pooler that shares server connections, nothing is
//! ever heard.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use operators_kernel::Ticket;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use super::lines::Lines;

/// The pauses between two looks at a queue while nothing is heard: short at first, for a turn is
/// usually short.
const DEAF_FIRST: Duration = Duration::from_millis(2);
const DEAF_MAX: Duration = Duration::from_millis(40);
/// The longest pause while the bells work: what it takes to see that a holder died.
const HEARING_FIRST: Duration = Duration::from_millis(50);
const HEARING_MAX: Duration = Duration::from_millis(400);

/// Tickets rung but not yet looked at; whoever falls behind looks at once.
const RUNG_MAX: usize = 256;

/// Tickets told to wait whose wait has not begun; older ones simply look again.
const EARS_MAX: usize = 4_096;

/// How long a bell that we rang ourselves may take to be heard.
const ECHO_MAX: Duration = Duration::from_secs(3);
const LISTEN_AGAIN: Duration = Duration::from_secs(5);

/// Who is to be woken, and by what.
#[derive(Debug)]
pub(super) struct Bells {
    rung: broadcast::Sender<u64>,
    hears: Arc<AtomicBool>,
    // Std locks: held for look-ups, never over an await, nor while a task is spawned, ended or
    // dropped.
    ears: Mutex<HashMap<Ticket, broadcast::Receiver<u64>>>,
    listener: Mutex<Option<JoinHandle<()>>>,
}

/// An ear that was open before a question was asked, so that no bell is missed after its answer.
#[derive(Debug)]
pub(super) struct Ear(broadcast::Receiver<u64>);

impl Bells {
    pub(super) fn new() -> Self {
        Self {
            rung: broadcast::channel(RUNG_MAX).0,
            hears: Arc::new(AtomicBool::new(false)),
            ears: Mutex::new(HashMap::new()),
            listener: Mutex::new(None),
        }
    }

    pub(super) fn ear(&self) -> Ear {
        Ear(self.rung.subscribe())
    }

    /// Keeps an ear for whoever was told to wait, and listens from now on.
    pub(super) fn keep(&self, ticket: Ticket, ear: Ear, lines: &Arc<Lines>) {
        let mut ears = lock(&self.ears);
        let before = if ears.len() < EARS_MAX {
            ears.insert(ticket, ear.0)
        } else {
            None
        };
        drop(ears);
        drop(before);
        self.listen(lines);
    }

    /// Listens, if nothing does yet.
    fn listen(&self, lines: &Arc<Lines>) {
        let listens = |listener: &JoinHandle<()>| !listener.is_finished();
        if lock(&self.listener).as_ref().is_some_and(listens) {
            return;
        }
        let (rung, hears) = (self.rung.clone(), Arc::clone(&self.hears));
        // Not under the lock: a runtime that is shutting down drops the task where it is spawned.
        let begun = spawn(listen(Arc::clone(lines), rung, hears));
        let other = lock(&self.listener).replace(begun);
        // Two began at once, or the one before has ended.
        if let Some(other) = other {
            other.abort();
        }
    }

    /// Sleeps until a ticket is rung, or it is time to look again.
    pub(super) async fn wait(&self, ticket: Ticket, asked: u32) {
        let ear = lock(&self.ears).remove(&ticket);
        let mut ear = ear.unwrap_or_else(|| self.rung.subscribe());
        let (first, max) = if self.hears.load(Ordering::Relaxed) {
            (HEARING_FIRST, HEARING_MAX)
        } else {
            (DEAF_FIRST, DEAF_MAX)
        };
        let pause = first.saturating_mul(1 << asked.min(8)).min(max);
        // Spread by ticket, so that two processes that began together do not look in step.
        let spread = u32::try_from(ticket.0 % 8).unwrap_or(0);
        let rung = async {
            loop {
                match ear.recv().await {
                    Ok(rung) if rung != ticket.0 => {}
                    // Rung, or so much was rung that it may have been missed.
                    Ok(_) | Err(_) => break,
                }
            }
        };
        drop(tokio::time::timeout(pause + pause / 16 * spread, rung).await);
    }

    /// Forgets whoever left.
    pub(super) fn forget(&self, ticket: Ticket) {
        let ear = lock(&self.ears).remove(&ticket);
        drop(ear);
    }
}

impl Drop for Bells {
    fn drop(&mut self) {
        let listener = lock(&self.listener).take();
        if let Some(listener) = listener {
            // It only listens: there is nothing to finish.
            listener.abort();
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "listening goes on while nobody waits, and ends with the store"
)]
fn spawn(work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(work)
}

/// Listens for as long as the store lives.
async fn listen(lines: Arc<Lines>, rung: broadcast::Sender<u64>, hears: Arc<AtomicBool>) {
    loop {
        if let Err(error) = listen_once(&lines, &rung, &hears).await {
            tracing::debug!(%error, "listening ended; queues are looked at by time");
        }
        hears.store(false, Ordering::Relaxed);
        tokio::time::sleep(LISTEN_AGAIN).await;
    }
}

async fn listen_once(
    lines: &Arc<Lines>,
    rung: &broadcast::Sender<u64>,
    hears: &AtomicBool,
) -> Result<(), sqlx::Error> {
    let own = PgPoolOptions::new()
        .max_connections(1)
        .connect_lazy_with(lines.address.options.clone());
    let mut listener = PgListener::connect_with(&own).await?;
    listener.listen("operators").await?;
    // Ring once ourselves: only what is heard proves that anything is.
    let echo = listener.recv();
    let call = "SELECT pg_notify('operators', 'echo')";
    if lines.run(call.to_owned()).await.is_err() {
        return Ok(());
    }
    match tokio::time::timeout(ECHO_MAX, echo).await {
        Ok(notice) => drop(notice?),
        Err(_) => return Ok(()),
    }
    hears.store(true, Ordering::Relaxed);
    // Whatever was rung before may have been missed: everybody looks once.
    loop {
        // `None` after the connection broke and was made again; what was rung meanwhile is lost.
        let Some(notice) = listener.try_recv().await? else {
            return Ok(());
        };
        if let Ok(ticket) = notice.payload().parse() {
            // Nobody may be waiting.
            drop(rung.send(ticket));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
