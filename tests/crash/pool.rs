//! Many trials at a time: they mostly wait, for disks and for doubts to become quiescent.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Trials at once.
const WORKERS: usize = 6;

/// Runs the trials `0..count` and collects what they say; one that panics fails the test.
pub fn trials<T: Send>(count: usize, trial: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let said = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= count {
                        return;
                    }
                    let one = trial(number);
                    said.lock().expect("no trial panics in here").push(one);
                }
            });
        }
    });
    said.into_inner().expect("no trial panics in here")
}
