//! The queue of this process: per entity, one turn at a time, in arrival order.
//!
//! A map from entity to the *tail* of its queue. What is shared is only the signal that a turn is
//! over, never the effect: a shared effect would hang its followers when the leader panics and
//! freeze when everybody leaves. Owns the order inside one process; the store keeps the order
//! between processes.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use hashbrown::DefaultHashBuilder;
use tokio::sync::Notify;

use crate::key::{EntityKey, TenantId};

/// The shards of the map: so many that threads rarely meet in one, however many threads there are.
const SHARDS: usize = 128;

/// What a queue is for.
pub(crate) type Lane = (TenantId, EntityKey);

/// All queues of one executor. Empty at rest.
pub(crate) struct Flights {
    // A sharded map, so that arrivals on different entities rarely meet; its guards are never held
    // over an await (a lint denies it).
    tails: DashMap<Lane, Tail, DefaultHashBuilder>,
    /// Reads that found nobody here and wait in the store's queue, behind another process.
    abroad: DashMap<Lane, usize, DefaultHashBuilder>,
    waiters_max: usize,
}

struct Tail {
    gate: Arc<Gate>,
    /// How many wait; mostly nobody ever does.
    waiting: OnceLock<Arc<AtomicUsize>>,
}

/// One place in a queue, as those behind see it.
struct Gate {
    // A std lock: held for a copy of one word, never over an await.
    signal: Mutex<Signal>,
    // Rung when the signal changes. It wakes in the order in which they came; a `watch` wakes in a
    // random one, and a read could be overtaken by the action behind it.
    rung: Notify,
}

#[derive(Clone)]
enum Signal {
    /// Its turn has not come, or is not over.
    Held,
    /// Its turn is over.
    Over,
    /// It left before its turn came: wait for the one before instead.
    Behind(Arc<Gate>),
}

impl Gate {
    fn held() -> Arc<Self> {
        Arc::new(Self {
            signal: Mutex::new(Signal::Held),
            rung: Notify::new(),
        })
    }

    fn signal(&self) -> Signal {
        // One word: a panic while it was held cannot have left it half-written.
        let signal = self.signal.lock().unwrap_or_else(PoisonError::into_inner);
        signal.clone()
    }

    fn say(&self, signal: Signal) {
        *self.signal.lock().unwrap_or_else(PoisonError::into_inner) = signal;
        self.rung.notify_waiters();
    }
}

/// Too many wait already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overloaded {
    pub(crate) waiters_max: usize,
}

impl Flights {
    pub(crate) fn new(waiters_max: usize) -> Self {
        Self {
            tails: DashMap::with_hasher_and_shard_amount(DefaultHashBuilder::default(), SHARDS),
            abroad: DashMap::default(),
            waiters_max,
        }
    }

    /// Takes the place behind everybody who is there now. The place keeps `owner`, whose queues
    /// these are, for as long as it needs them.
    pub(crate) fn arrive<O: AsRef<Self>>(
        owner: &Arc<O>,
        lane: Lane,
    ) -> Result<Arrival<O>, Overloaded> {
        let flights = O::as_ref(owner);
        let gate = Gate::held();
        let (prior, waiting) = match flights.tails.entry(lane.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Tail {
                    gate: Arc::clone(&gate),
                    waiting: OnceLock::new(),
                });
                (None, None)
            }
            Entry::Occupied(mut occupied) => {
                let tail = occupied.get_mut();
                let waiting = flights.count_in(tail.waiting.get_or_init(Arc::default))?;
                let prior = std::mem::replace(&mut tail.gate, Arc::clone(&gate));
                (Some(prior), Some(waiting))
            }
        };
        Ok(Arrival {
            place: Place {
                owner: Arc::clone(owner),
                seat: Seat {
                    lane,
                    gate: Some(gate),
                    prior,
                },
            },
            waiting,
        })
    }

    /// Waits behind everybody who is there now, taking no place: for reads.
    pub(crate) fn follow(&self, lane: &Lane) -> Result<Following, Overloaded> {
        let Some(tail) = self.tails.get(lane) else {
            return Ok(Following {
                prior: None,
                waiting: None,
            });
        };
        let waiting = self.count_in(tail.waiting.get_or_init(Arc::default))?;
        Ok(Following {
            prior: Some(Arc::clone(&tail.gate)),
            waiting: Some(waiting),
        })
    }

    /// Counts a read that has to wait in the store's queue: what acts waits here behind one of its
    /// own, reads would all queue there.
    pub(crate) fn wait_abroad(&self, lane: Lane) -> Result<Abroad<'_>, Overloaded> {
        let mut waiting = self.abroad.entry(lane.clone()).or_default();
        if *waiting >= self.waiters_max {
            return Err(Overloaded {
                waiters_max: self.waiters_max,
            });
        }
        *waiting += 1;
        drop(waiting);
        let flights = self;
        Ok(Abroad { flights, lane })
    }

    /// How many entities have a queue right now.
    pub(crate) fn len(&self) -> usize {
        self.tails.len()
    }

    fn count_in(&self, waiting: &Arc<AtomicUsize>) -> Result<Waiting, Overloaded> {
        // Counted under the shard's lock, so the bound is exact.
        if waiting.load(Ordering::Relaxed) >= self.waiters_max {
            return Err(Overloaded {
                waiters_max: self.waiters_max,
            });
        }
        waiting.fetch_add(1, Ordering::Relaxed);
        Ok(Waiting(Arc::clone(waiting)))
    }

    /// Takes a gate out of the map if it is still the tail.
    fn remove(&self, lane: &Lane, gate: &Arc<Gate>) {
        self.tails
            .remove_if(lane, |_, tail| Arc::ptr_eq(&tail.gate, gate));
    }

    /// Puts the place before a leaving one back as the tail, if the leaving one is the tail.
    fn hand_back(&self, lane: &Lane, leaving: &Arc<Gate>, prior: &Arc<Gate>) {
        let Entry::Occupied(mut occupied) = self.tails.entry(lane.clone()) else {
            return;
        };
        if !Arc::ptr_eq(&occupied.get().gate, leaving) {
            return;
        }
        // Under the shard's lock: whoever ends or leaves says so first and looks at the map after,
        // so either this sees it, or it will see this.
        let mut tail = Arc::clone(prior);
        loop {
            match tail.signal() {
                Signal::Held => break,
                Signal::Over => {
                    occupied.remove();
                    return;
                }
                Signal::Behind(before) => tail = before,
            }
        }
        occupied.get_mut().gate = tail;
    }
}

impl fmt::Debug for Flights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flights")
            .field("entities", &self.len())
            .finish_non_exhaustive()
    }
}

/// One who waits, counted for as long as it does.
struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A read that waits in the store's queue, counted for as long as it does.
pub(crate) struct Abroad<'a> {
    flights: &'a Flights,
    lane: Lane,
}

impl Drop for Abroad<'_> {
    fn drop(&mut self) {
        self.flights.abroad.remove_if_mut(&self.lane, |_, waiting| {
            *waiting = waiting.saturating_sub(1);
            *waiting == 0
        });
    }
}

/// A place that may not have come to its turn yet.
pub(crate) struct Arrival<O: AsRef<Flights>> {
    place: Place<O>,
    waiting: Option<Waiting>,
}

impl<O: AsRef<Flights>> Arrival<O> {
    /// Waits for the turn. Dropped half-way, the place is given up and nobody behind is let past
    /// those before.
    pub(crate) async fn turn(mut self) -> Place<O> {
        if let Some(prior) = self.place.seat.prior.clone() {
            until_over(prior).await;
            self.place.seat.prior = None;
        }
        drop(self.waiting.take());
        self.place
    }
}

/// A read behind others.
pub(crate) struct Following {
    prior: Option<Arc<Gate>>,
    waiting: Option<Waiting>,
}

impl Following {
    /// Waits until everybody before has had their turn.
    pub(crate) async fn pass(mut self) {
        if let Some(prior) = self.prior.take() {
            until_over(prior).await;
        }
        drop(self.waiting.take());
    }
}

async fn until_over(mut gate: Arc<Gate>) {
    loop {
        let next = {
            let mut rung = pin!(gate.rung.notified());
            // Listens before it looks: what is said in between is heard.
            rung.as_mut().enable();
            match gate.signal() {
                Signal::Held => {
                    rung.await;
                    None
                }
                Signal::Over => return,
                Signal::Behind(before) => Some(before),
            }
        };
        if let Some(before) = next {
            gate = before;
        }
    }
}

/// The turn of this process; given up when dropped, on success, error, panic and cancel alike.
pub(crate) struct Place<O: AsRef<Flights>> {
    owner: Arc<O>,
    seat: Seat,
}

/// A place by itself.
pub(crate) struct Seat {
    lane: Lane,
    /// `None` once it is given up.
    gate: Option<Arc<Gate>>,
    /// Who is before; `None` once the turn has come.
    prior: Option<Arc<Gate>>,
}

impl<O: AsRef<Flights>> Place<O> {
    /// Whose queues these are.
    pub(crate) fn owner(&self) -> &O {
        &self.owner
    }

    /// The owner, and what can be given up before the owner is let go of.
    pub(crate) fn parts(&mut self) -> (&O, &mut Seat) {
        (&self.owner, &mut self.seat)
    }
}

impl Seat {
    /// Lets those behind go on. A second time changes nothing.
    pub(crate) fn give_up(&mut self, flights: &Flights) {
        let Some(gate) = self.gate.take() else {
            return;
        };
        match self.prior.take() {
            None => {
                gate.say(Signal::Over);
                flights.remove(&self.lane, &gate);
            }
            Some(prior) => {
                gate.say(Signal::Behind(Arc::clone(&prior)));
                flights.hand_back(&self.lane, &gate, &prior);
            }
        }
    }
}

impl<O: AsRef<Flights>> fmt::Debug for Place<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("lane", &self.seat.lane)
            .finish_non_exhaustive()
    }
}

impl<O: AsRef<Flights>> Drop for Place<O> {
    fn drop(&mut self) {
        self.seat.give_up(O::as_ref(&self.owner));
    }
}

#[cfg(test)]
mod tests;
