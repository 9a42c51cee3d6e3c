//! Limits: at most so many effects in any window of that length, counted in a note of each limit.
//!
//! A slot is a key's: its intent takes it, and it is given back when every attempt definitely
//! failed. What is in doubt keeps it, and sending that again takes no second one. Times are the
//! proposers' wall clocks: two machines whose clocks differ shift a window by the difference.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::action::{Reason, Refusal};
use crate::clock::Timestamp;
use crate::durable::Claim;
use crate::json;
use crate::key::IdempotencyKey;
use crate::life::controls::{Note, NoteError, NoteKind, NoteName, read, write};
use crate::life::{KeyRecord, Phase};
use crate::trust::Limit;

/// The most slots of one limit: they are one record, written with every claim that counts, and the
/// smallest store keeps 400 KB in one.
pub const LIMIT_MAX: u32 = 5_000;

/// The slots of one limit, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Slots(Vec<Slot>);

/// When it was taken, in microseconds, and by which key: a hash, for keys are long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Slot(i64, String);

impl NoteName {
    /// The slots of a limit.
    pub fn limit(limit: &Limit) -> Self {
        Self::slots(json::hex(&Sha256::digest(limit.scope.as_bytes())))
    }

    fn slots(name: String) -> Self {
        Self {
            kind: NoteKind::Limit,
            name,
        }
    }
}

/// Whose slot it is: a key's of one generation.
fn holder(key: &IdempotencyKey, generation: u32) -> String {
    let mut hasher = Sha256::new();
    hasher.update(generation.to_be_bytes());
    hasher.update(key.as_str().as_bytes());
    // Half of it: still more than anybody can find two keys for.
    let mut text = json::hex(&hasher.finalize());
    text.truncate(32);
    text
}

impl Slots {
    fn read(body: Option<&str>) -> Result<Self, NoteError> {
        Ok(read("the slots of a limit", body)?.unwrap_or_default())
    }

    fn note(&self, name: NoteName) -> Result<Note, NoteError> {
        let body = (!self.0.is_empty()).then(|| write(self)).transpose()?;
        Ok(Note { name, body })
    }

    /// Takes a slot for `who`, or tells what stands against it.
    fn take(&mut self, limit: &Limit, who: String, at: Timestamp) -> Result<(), Refusal> {
        let window = i64::try_from(limit.window.as_micros()).unwrap_or(i64::MAX);
        let now = at.as_micros();
        self.0.retain(|slot| slot.0.saturating_add(window) > now);
        self.0.sort_by_key(|slot| slot.0);
        let own = self.0.iter().position(|slot| slot.1 == who);
        let max = usize::try_from(limit.max).unwrap_or(usize::MAX);
        if let Some(place) = own {
            self.0.remove(place);
        } else if self.0.len() >= max {
            return Err(self.refusal(limit, window, max));
        }
        self.0.push(Slot(now, who));
        Ok(())
    }

    fn refusal(&self, limit: &Limit, window: i64, max: usize) -> Refusal {
        let taken = self.0.len();
        // Once this one is out of the window there is room for one more.
        let in_the_way = self.0.get(taken.saturating_sub(max));
        let free = match in_the_way.filter(|_| max > 0) {
            Some(slot) => {
                let at = Timestamp::from_micros(slot.0.saturating_add(window));
                format!("the next slot is free at {at}")
            }
            None => "there is no slot at all".to_owned(),
        };
        let error = format!(
            "rule `{}` allows {} in {:?} and {taken} are taken; {free}",
            limit.rule, limit.max, limit.window
        );
        let hint = format!(
            "the limit is set by rule `{}` of policy `{}`",
            limit.rule, limit.policy.name
        );
        Refusal {
            rule: Some(limit.rule.clone()),
            ..Refusal::new(Reason::Limit, error).with_hint(hint)
        }
    }
}

/// Takes a slot of each of the claim's limits, all or none: the notes to write, or the first limit
/// that has none left, with why.
pub(super) fn take_slots(
    claim: &Claim,
    generation: u32,
    body: impl Fn(&NoteName) -> Option<String>,
) -> Result<Result<Vec<Note>, (Limit, Refusal)>, NoteError> {
    let mut notes = Vec::with_capacity(claim.limits.len());
    for limit in &claim.limits {
        let name = NoteName::limit(limit);
        let mut slots = Slots::read(body(&name).as_deref())?;
        let who = holder(&claim.proposal.idempotency_key, generation);
        if let Err(refusal) = slots.take(limit, who, claim.at) {
            return Ok(Err((limit.clone(), refusal)));
        }
        notes.push(slots.note(name)?);
    }
    Ok(Ok(notes))
}

/// The notes whose slots this key gives back, now that it is as it is: those of its last attempt, if
/// every attempt definitely failed.
pub fn slots_given_back(key: &KeyRecord) -> Vec<NoteName> {
    match key.phase {
        Phase::Failed => {
            let mut names = key.proposal.limits.clone();
            // In one order for everybody who locks them.
            names.sort();
            names.into_iter().map(NoteName::slots).collect()
        }
        Phase::Intent | Phase::Applied | Phase::InDoubt | Phase::WrittenOff | Phase::Forgotten => {
            Vec::new()
        }
    }
}

/// A limit's note without this key's slot; nothing if it had none.
pub fn give_slot_back(
    key: &KeyRecord,
    name: NoteName,
    body: Option<&str>,
) -> Result<Option<Note>, NoteError> {
    let mut slots = Slots::read(body)?;
    let who = holder(&key.proposal.idempotency_key, key.generation);
    let Some(place) = slots.0.iter().position(|slot| slot.1 == who) else {
        return Ok(None);
    };
    slots.0.remove(place);
    slots.note(name).map(Some)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::shared::Shared;
    use crate::trust::PolicyRef;

    use super::*;

    fn limit(max: u32) -> Limit {
        Limit {
            rule: "few".into(),
            policy: Shared::from(PolicyRef {
                name: "p".to_owned(),
                version: 1,
                digest: "sha256:00".to_owned(),
            }),
            scope: "s".to_owned(),
            max,
            window: Duration::from_secs(10),
        }
    }

    fn take(slots: &mut Slots, max: u32, who: &str, seconds: i64) -> Option<String> {
        let at = Timestamp::from_micros(seconds * 1_000_000);
        let taken = slots.take(&limit(max), who.to_owned(), at);
        taken.err().map(|refusal| refusal.error)
    }

    #[test]
    fn a_window_slides() {
        let mut slots = Slots::default();
        assert_eq!(take(&mut slots, 2, "a", 0), None);
        assert_eq!(take(&mut slots, 2, "b", 6), None);
        let error = take(&mut slots, 2, "c", 9).expect("full");
        assert!(error.contains("allows 2 in 10s and 2 are taken"), "{error}");
        assert!(error.contains("1970-01-01T00:00:10.000000Z"), "{error}");
        assert_eq!(take(&mut slots, 2, "c", 10), None);
        assert!(take(&mut slots, 2, "d", 15).is_some());
        assert_eq!(take(&mut slots, 2, "d", 16), None);
    }

    #[test]
    fn a_key_takes_one_slot_and_the_last_attempt_counts() {
        let mut slots = Slots::default();
        assert_eq!(take(&mut slots, 1, "a", 0), None);
        assert_eq!(take(&mut slots, 1, "a", 8), None);
        let error = take(&mut slots, 1, "b", 12).expect("full");
        assert!(error.contains("00:00:18"), "{error}");
    }

    #[test]
    fn a_limit_that_was_lowered_waits_for_enough_to_leave() {
        let mut slots = Slots::default();
        for n in 0..4 {
            assert_eq!(take(&mut slots, 4, &n.to_string(), n), None);
        }
        let error = take(&mut slots, 2, "x", 5).expect("full");
        assert!(error.contains("00:00:12"), "{error}");
        let error = take(&mut slots, 0, "x", 5).expect("full");
        assert!(error.contains("no slot at all"), "{error}");
    }

    #[test]
    fn slots_of_two_keys_and_two_generations_are_apart() {
        let key = |text: &str| IdempotencyKey::parse(text).expect("a key");
        assert_ne!(holder(&key("a"), 1), holder(&key("a"), 2));
        assert_ne!(holder(&key("a"), 1), holder(&key("b"), 1));
        assert_eq!(holder(&key("a"), 1).len(), 32);
    }
}
