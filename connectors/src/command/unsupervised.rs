//! What is known of programs that nobody ends when this process cannot: those it saw the end of.
//!
//! Owns the attempts whose program this process ended, or saw ending. Of every other attempt nobody
//! knows whether its program still runs, however late it is: the process that started it may be gone,
//! or stopped.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use operators_kernel::Call;

/// How many are remembered. Of one that is forgotten, "not applied" is not believed any more.
const ATTEMPTS_MAX: usize = 10_000;

/// Why a probe's "not applied" is none.
pub(super) const STILL_RUNS: &str = "the program of that attempt may still run, because it has no \
     supervisor that would have ended it; name one as `supervisor`";

/// A downstream key, and which attempt under it.
type Attempt = (String, u32);

/// The attempts whose program has ended.
// A std lock: held for one look, never across an await.
#[derive(Debug, Default)]
pub(super) struct Unsupervised(Mutex<BTreeSet<Attempt>>);

/// One attempt whose program may run. Dropped after it was ended.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    all: &'a Unsupervised,
    attempt: Attempt,
}

impl Unsupervised {
    pub(super) fn begin(&self, call: &Call) -> Seen<'_> {
        Seen {
            all: self,
            attempt: attempt(call),
        }
    }

    pub(super) fn saw_the_end_of(&self, call: &Call) -> bool {
        let ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ended.contains(&attempt(call))
    }
}

impl Drop for Seen<'_> {
    fn drop(&mut self) {
        let mut ended = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        ended.insert(self.attempt.clone());
        if ended.len() > ATTEMPTS_MAX {
            ended.pop_first();
        }
    }
}

fn attempt(call: &Call) -> Attempt {
    (call.downstream_key.clone(), call.attempt)
}
