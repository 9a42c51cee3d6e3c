//! What the table acknowledged to this process, and that it must still hold (R9).
//!
//! A table that was restored under its old name, or overwritten with an older copy, forgot keys that
//! are burned. So every claim is granted on condition that something is still there which this
//! process was told is: the newest of what it knows, a line of receipts or its session's beat. Both
//! are checked in the claim's own write and cost no request.
//!
//! Transactions that name one item refuse each other, so no two claims check the same at once: what
//! is taken by one is given back after its write, and whoever finds nothing waits.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use operators_kernel::{SessionId, StoreError};
use tokio::sync::Notify;

use super::fields::{Fields, number, text};
use super::item::{Address, BY, Item};
use super::request::Table;
use super::trouble::PATIENCE;
use super::write::Check;

/// What is remembered: as many claims are checked at once.
const KNOWN_MAX: usize = 256;

/// What is said of a table that forgot.
const ROLLED_BACK: &str = "store rolled back: the table no longer holds what it acknowledged to \
    this process (it was restored, or overwritten with an older copy), so keys that are burned may \
    look free. Compare the receipts with the systems the actions touched, then restart";

/// What is said of another table in its place.
const ANOTHER: &str = "store rolled back: another table answers under its name; what this process \
    burned may look free there. Compare the receipts with the systems the actions touched, then \
    restart";

/// Something that is in the table and that nobody of ours takes away.
#[derive(Debug, Clone)]
enum Known {
    /// A line of receipts, by the write that put it.
    Line(Address, String),
    /// A session of this process.
    Session(SessionId),
}

/// A session that this process opened.
#[derive(Debug, Clone)]
pub(super) struct Stay {
    /// Tells it from one of the same number in a table that counts anew.
    pub(super) id: String,
    /// The last beat that was acknowledged.
    pub(super) beat: u64,
}

impl Stay {
    /// Whether this is still the session's item: burial leaves both as they are.
    pub(super) fn is_in(&self, item: Option<&Item>) -> bool {
        let Some(item) = item else {
            return false;
        };
        let fields = Fields::of(item, "a session");
        let id = fields.text_if_there("stay").ok().flatten();
        let beat = fields.number::<u64>("beat");
        id == Some(self.id.as_str()) && beat.is_ok_and(|beat| beat >= self.beat)
    }
}

#[derive(Debug, Default)]
struct State {
    /// What nobody checks just now, the newest last.
    free: BTreeMap<u64, Known>,
    /// How many are being checked.
    taken: usize,
    own: HashMap<SessionId, Own>,
    count: u64,
}

/// A session that this process opened, as something known.
#[derive(Debug)]
struct Own {
    stay: Stay,
    /// Where it stands among what is known.
    order: u64,
    is_taken: bool,
}

/// What the table acknowledged to this process.
#[derive(Debug, Default)]
pub(super) struct Acked {
    // A std lock around look-ups, never over an await.
    state: Mutex<State>,
    given_back: Notify,
    ruin: OnceLock<&'static str>,
    /// The table's own id, if it has one.
    pub(super) table_id: OnceLock<Option<String>>,
}

/// Something known, taken for one write.
pub(super) struct Taken<'a> {
    acked: &'a Acked,
    order: u64,
    known: Known,
    pub(super) check: Check,
}

impl Acked {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line of receipts is in the table, put by the write of that id.
    pub(super) fn line(&self, address: Address, by: &str) {
        let mut state = self.lock();
        let order = state.next();
        state.put(order, Known::Line(address, by.to_owned()));
        drop(state);
        self.given_back.notify_one();
    }

    /// A session of this process is in the table, with this beat.
    pub(super) fn beaten(&self, session: SessionId, id: &str, beat: u64) {
        let mut state = self.lock();
        let order = state.next();
        let own = state.own.entry(session).or_insert_with(|| Own {
            stay: Stay {
                id: id.to_owned(),
                beat,
            },
            order,
            is_taken: false,
        });
        own.stay.beat = own.stay.beat.max(beat);
        let before = std::mem::replace(&mut own.order, order);
        // Whoever has it gives it back at its new place.
        if !own.is_taken {
            state.free.remove(&before);
            state.put(order, Known::Session(session));
        }
        drop(state);
        self.given_back.notify_one();
    }

    /// A session, if this process opened it.
    pub(super) fn stay(&self, session: SessionId) -> Option<Stay> {
        self.lock().own.get(&session).map(|own| own.stay.clone())
    }

    /// The highest number of a session that this process opened.
    pub(super) fn session_max(&self) -> Option<SessionId> {
        self.lock().own.keys().copied().max()
    }

    /// The newest that nobody else checks; nothing if nothing was ever acknowledged.
    pub(super) async fn take(&self) -> Option<Taken<'_>> {
        loop {
            {
                let mut state = self.lock();
                if let Some((order, known)) = state.free.pop_last() {
                    state.taken += 1;
                    state.mark(&known, true);
                    let check = state.check(&known);
                    return Some(Taken {
                        acked: self,
                        order,
                        known,
                        check,
                    });
                }
                if state.taken == 0 {
                    return None;
                }
            }
            self.given_back.notified().await;
        }
    }

    /// Why nothing more is done here, if that is so.
    fn ruin(&self) -> Option<&'static str> {
        self.ruin.get().copied()
    }
}

impl State {
    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn put(&mut self, order: u64, known: Known) {
        self.free.insert(order, known);
        while self.free.len() > KNOWN_MAX {
            self.free.pop_first();
        }
    }

    /// Where a session that is taken, or given back, belongs.
    fn mark(&mut self, known: &Known, is_taken: bool) -> Option<u64> {
        let Known::Session(session) = known else {
            return None;
        };
        let own = self.own.get_mut(session)?;
        own.is_taken = is_taken;
        Some(own.order)
    }

    fn check(&self, known: &Known) -> Check {
        match known {
            Known::Line(address, by) => Check {
                address: address.clone(),
                condition: "#by = :id".to_owned(),
                names: Some(HashMap::from([("#by".to_owned(), BY.to_owned())])),
                values: vec![(":id".to_owned(), text(by))],
            },
            Known::Session(session) => {
                let stay = self.own.get(session).map(|own| own.stay.clone());
                let (id, beat) = stay.map_or_else(Default::default, |stay| (stay.id, stay.beat));
                Check {
                    address: Address::session(*session),
                    condition: "stay = :id AND beat >= :beat".to_owned(),
                    names: None,
                    values: vec![
                        (":id".to_owned(), text(id)),
                        (":beat".to_owned(), number(beat)),
                    ],
                }
            }
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut state = self.acked.lock();
        state.taken = state.taken.saturating_sub(1);
        // A session may have shown life meanwhile, and is newer for it.
        let order = state.mark(&self.known, false);
        state.put(order.unwrap_or(self.order), self.known.clone());
        drop(state);
        self.acked.given_back.notify_one();
    }
}

impl Table {
    /// Something to check with a claim; nothing if nothing was ever acknowledged.
    pub(super) async fn known(&self) -> Result<Option<Taken<'_>>, StoreError> {
        let taken = tokio::time::timeout(PATIENCE, self.acked.take()).await;
        taken.map_err(|_| self.unavailable("claims before this one are not answered"))
    }

    /// Refuses if this table is not the one it was.
    pub(super) fn check_ruin(&self) -> Result<(), StoreError> {
        self.acked
            .ruin()
            .map_or(Ok(()), |ruin| Err(self.unusable(ruin)))
    }

    /// What was acknowledged is gone: nothing more is done here while this process runs.
    pub(super) fn rolled_back(&self) -> StoreError {
        self.unusable(*self.acked.ruin.get_or_init(|| ROLLED_BACK))
    }

    /// As [`rolled_back`](Self::rolled_back), where it is another table altogether.
    pub(super) fn replaced(&self) -> StoreError {
        self.unusable(*self.acked.ruin.get_or_init(|| ANOTHER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(taken: Option<&Taken<'_>>) -> String {
        let taken = taken.expect("something");
        format!("{}/{}", taken.check.address.pk, taken.check.address.sk)
    }

    fn line(number: &str) -> Address {
        Address::of("lane", &["acme"]).at(number)
    }

    #[tokio::test]
    async fn the_newest_is_checked_and_nothing_twice_at_once() {
        let acked = Acked::default();
        assert!(acked.take().await.is_none(), "nothing was acknowledged");
        acked.beaten(SessionId(7), "a", 1);
        acked.line(line("1"), "x");
        let first = acked.take().await;
        assert_eq!(place(first.as_ref()), "lane|4:acme/1");
        let second = acked.take().await;
        assert_eq!(place(second.as_ref()), "session|1:7/-");
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(20), acked.take());
        assert!(waiting.await.is_err(), "both are taken");
        // A beat that comes while the session is checked makes it the newest.
        acked.beaten(SessionId(7), "a", 2);
        drop((first, second));
        let newest = acked.take().await;
        assert_eq!(place(newest.as_ref()), "session|1:7/-");
        let values = &newest.as_ref().expect("the session").check.values;
        assert_eq!(values[1].1, number(2));
        acked.line(line("2"), "y");
        assert_eq!(place(acked.take().await.as_ref()), "lane|4:acme/2");
    }

    #[tokio::test]
    async fn whoever_waits_is_woken_when_something_comes_back() {
        let acked = std::sync::Arc::new(Acked::default());
        acked.line(line("1"), "x");
        let taken = acked.take().await;
        let mut others = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let acked = std::sync::Arc::clone(&acked);
            others.spawn(async move { acked.take().await.is_some() });
        }
        tokio::task::yield_now().await;
        drop(taken);
        let woken = tokio::time::timeout(std::time::Duration::from_secs(5), others.join_all());
        assert_eq!(woken.await, Ok(vec![true; 3]));
    }

    #[test]
    fn a_stay_is_known_by_its_id_and_never_goes_back() {
        let stay = Stay {
            id: "a".to_owned(),
            beat: 3,
        };
        let item = |id: &str, beat: u64| {
            let mut item = Address::session(SessionId(7)).item();
            item.insert("stay".to_owned(), text(id));
            item.insert("beat".to_owned(), number(beat));
            item
        };
        assert!(stay.is_in(Some(&item("a", 3))) && stay.is_in(Some(&item("a", 4))));
        assert!(!stay.is_in(Some(&item("a", 2))));
        assert!(!stay.is_in(Some(&item("b", 9))));
        assert!(!stay.is_in(None));
    }
}
