//! The closed loop every side of the benchmark runs, so that none is measured by other code.
//!
//! A number of callers propose one effect after the other, each its own; then they propose the same
//! effects again, which must all be answered as duplicates. What ran is counted where it ran: a
//! side that lets an effect happen twice, or not at all, has no figure.

mod lines;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

pub use lines::{Reply, Request, serve};

/// Effects per caller before anything is timed: connections are open and statements prepared.
const WARM_UP: u64 = 4;

/// Longer than any name of an effect.
const NAME_BYTES: usize = 64;

/// When a phase ends: after that many seconds, or that many effects, whichever comes first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// How many propose at once.
    pub callers: usize,
    /// The longest a phase takes.
    pub seconds: f64,
    /// The most effects of a phase, over all callers.
    pub actions: u64,
}

/// One effect to propose: number `number` of caller `caller`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectName {
    /// Whose effect it is.
    pub caller: usize,
    /// Which of its effects.
    pub number: u64,
}

impl EffectName {
    /// The order it is about; every effect has one of its own.
    pub fn order(self) -> String {
        self.within("", "")
    }

    /// The order as an entity.
    pub fn entity(self) -> String {
        self.within("order:", "")
    }

    /// Its key, the same every time it is proposed.
    pub fn key(self) -> String {
        self.within("ship-risk:", ":hold")
    }

    fn within(self, before: &str, after: &str) -> String {
        // With room from the start: a text that grows waits for a lock of the allocator's, and at 16
        // callers that was an eighth of what was measured. By hand, because to format it was a
        // fifteenth.
        let mut text = String::with_capacity(NAME_BYTES);
        text.push_str(before);
        text.push_str("SO-");
        push_padded(&mut text, self.caller as u64, 3);
        text.push('-');
        push_padded(&mut text, self.number, 7);
        text.push_str(after);
        text
    }
}

/// Adds a number, with zeros before it up to `width`.
fn push_padded(text: &mut String, number: u64, width: u32) {
    let mut place = 10_u64.pow(width - 1);
    while number / place > 9 {
        place *= 10;
    }
    while place > 0 {
        text.push(char::from(
            b'0' + u8::try_from(number / place % 10).unwrap_or(0),
        ));
        place /= 10;
    }
}

/// What effects are run through: this project's executor, or a peer's.
pub trait Side: Send + Sync + 'static {
    /// Proposes one effect and waits until it is durably done, now or earlier. The effect itself is
    /// one call of [`Effects::happen`].
    fn propose(&self, effect: EffectName) -> impl Future<Output = Result<(), String>> + Send;
}

/// Counts the effects that happened.
#[derive(Debug, Default)]
pub struct Effects(AtomicU64);

impl Effects {
    /// One effect happens.
    pub fn happen(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many happened so far.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one phase took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// How many proposals were answered.
    pub answered: u64,
    /// Proposals answered per second.
    pub per_second: f64,
    /// Half of them were answered within this many microseconds.
    pub p50_us: f64,
    /// All but one in a hundred were.
    pub p99_us: f64,
}

/// New effects, then their duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Every proposal was an effect.
    pub new: Sample,
    /// Every proposal was one again.
    pub duplicate: Sample,
}

/// Measures new effects and then their duplicates, on a store that knows none of them.
pub async fn measure<S: Side>(
    side: &Arc<S>,
    effects: &Effects,
    bounds: Bounds,
) -> Result<Cell, String> {
    phase(side, bounds, |_| Numbers::warm_up()).await?;
    let before = effects.count();
    let (new, done) = phase(side, bounds, |_| Numbers::fresh()).await?;
    let (duplicate, _) = phase(side, bounds, |caller| Numbers::again(done[caller])).await?;
    let happened = effects.count() - before;
    if happened == new.answered {
        Ok(Cell { new, duplicate })
    } else {
        Err(format!(
            "{happened} effects happened for {} new keys",
            new.answered
        ))
    }
}

/// The numbers a caller proposes in a phase, in order.
#[derive(Debug, Clone, Copy)]
pub struct Numbers {
    first: u64,
    /// After that many, the first again.
    known: u64,
    /// Ends after that many, whatever the bounds say.
    warm_up: Option<u64>,
}

impl Numbers {
    /// A few that no timed phase uses, and the same once more.
    pub fn warm_up() -> Self {
        Self {
            first: 9_000_000,
            known: WARM_UP,
            warm_up: Some(WARM_UP * 2),
        }
    }

    /// Ever new ones.
    pub fn fresh() -> Self {
        Self::again(u64::MAX)
    }

    /// The first `known`, over and over.
    pub fn again(known: u64) -> Self {
        Self {
            first: 0,
            known: known.max(1),
            warm_up: None,
        }
    }

    fn at(self, step: u64) -> u64 {
        self.first + step % self.known
    }
}

/// One phase: what it took, and how far each caller came.
pub async fn phase<S: Side>(
    side: &Arc<S>,
    bounds: Bounds,
    numbers: impl Fn(usize) -> Numbers,
) -> Result<(Sample, Vec<u64>), String> {
    let line = Arc::new(Barrier::new(bounds.callers + 1));
    let mut callers = JoinSet::new();
    for caller in 0..bounds.callers {
        let (side, line, numbers) = (Arc::clone(side), Arc::clone(&line), numbers(caller));
        let longest = Duration::from_secs_f64(bounds.seconds);
        let quota = bounds.actions.div_ceil(bounds.callers as u64);
        callers.spawn(async move {
            line.wait().await;
            let begun = Instant::now();
            let mut taken_ns = Vec::new();
            for step in 0..numbers.warm_up.unwrap_or(quota) {
                let asked = Instant::now();
                if numbers.warm_up.is_none() && asked - begun >= longest {
                    break;
                }
                let number = numbers.at(step);
                side.propose(EffectName { caller, number }).await?;
                taken_ns.push(asked.elapsed().as_nanos());
            }
            Ok::<_, String>((caller, taken_ns))
        });
    }
    line.wait().await;
    let begun = Instant::now();
    let mut done = vec![0; bounds.callers];
    let mut taken_ns = Vec::new();
    while let Some(ended) = callers.join_next().await {
        let (caller, taken) = ended.map_err(|error| format!("a caller failed: {error}"))??;
        done[caller] = taken.len() as u64;
        taken_ns.extend(taken);
    }
    Ok((sample(taken_ns, begun.elapsed()), done))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "microseconds for people to read"
)]
fn sample(mut taken_ns: Vec<u128>, whole: Duration) -> Sample {
    taken_ns.sort_unstable();
    let at = |per_cent: usize| {
        let place = taken_ns.len() * per_cent / 100;
        taken_ns.get(place).map_or(0.0, |ns| *ns as f64 / 1_000.0)
    };
    Sample {
        answered: taken_ns.len() as u64,
        per_second: taken_ns.len() as f64 / whole.as_secs_f64(),
        p50_us: at(50),
        p99_us: at(99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_they_were() {
        for (caller, number) in [(0, 0), (7, 12), (999, 9_999_999), (1_511, 10_000_000)] {
            let effect = EffectName { caller, number };
            assert_eq!(effect.order(), format!("SO-{caller:03}-{number:07}"));
            assert_eq!(effect.key(), format!("ship-risk:{}:hold", effect.order()));
            assert_eq!(effect.entity(), format!("order:{}", effect.order()));
        }
    }
}
