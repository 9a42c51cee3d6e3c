//! The records in halls, each behind a lock of its own: actions on different keys and entities seldom
//! meet.
//!
//! A decision holds the halls of its key and its entity. Where it turns out to need more (a dead
//! session's intents, a limit's slots, what is paused) nothing is written, and it is decided again
//! with all halls held.

mod held;

use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use operators_kernel::life::{self, KeyRecord, NoteName};
use operators_kernel::{
    Claim, Clock, EntityKey, Folded, IdempotencyKey, Proposal, SessionId, Settlement, StoreTime,
    TenantId,
};

use crate::page::{Page, SessionRecord, Want};

use super::trail::Trail;

/// So many that two threads seldom want the same, and few enough to take all of them.
const HALLS: usize = 32;

/// How often a hall is tried for before another task is let run: about as long as somebody is in it.
/// A thread that sleeps for it costs ten times what it waits for.
const TRIES_MAX: u32 = 256;

/// One part of the keys and of the entities. Sessions are known in all, notes in the first.
#[derive(Debug)]
#[repr(C)]
struct Hall {
    page: Page,
    /// Whether anything is paused, for any tenant.
    has_pauses: bool,
}

/// A hall behind its lock: a std one, held for map look-ups, never over an await, and never waited for
/// by a thread.
///
/// Memory goes from one core to another in lines, and each that has to come costs as much as all the
/// rest of a look-up. So no two halls have a line in common, and the lock is in one with what is
/// looked at first.
#[derive(Debug)]
#[repr(align(128))]
struct Room(Mutex<Hall>);

/// Keys, entities, queues, sessions and notes.
#[derive(Debug)]
pub(super) struct Halls {
    halls: Box<[Room]>,
    /// What is kept with what is written.
    pub(super) trail: Trail,
}

/// Which halls a decision holds at first.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reach {
    /// These two, which may be one.
    Two(usize, usize),
    /// Every one.
    All,
}

impl Reach {
    /// The halls of an action.
    pub(super) fn of(key: &IdempotencyKey, entity: &EntityKey) -> Self {
        Self::Two(place(key.as_str()), place(entity.as_str()))
    }

    /// The hall of an entity.
    pub(super) fn of_entity(entity: &EntityKey) -> Self {
        let hall = place(entity.as_str());
        Self::Two(hall, hall)
    }

    /// What the end of a claim may need. An alert is a note, which is written last.
    pub(super) fn of_settlements(settlements: &[Settlement]) -> Self {
        match settlements {
            [one] if !life::may_raise(&one.proposal) => Self::of_proposal(&one.proposal),
            _ => Self::All,
        }
    }

    /// What claims need. That of several is all: where one of them turned out to need more, those
    /// before it would be decided twice.
    pub(super) fn of_claims(claims: &[Claim]) -> Self {
        match claims {
            [one] => Self::of_proposal(&one.proposal),
            _ => Self::All,
        }
    }

    fn of_proposal(proposal: &Proposal) -> Self {
        Self::of(&proposal.idempotency_key, &proposal.entity_key)
    }
}

/// Why a decision cannot be made with what is held.
#[derive(Debug)]
pub(super) enum Lack {
    /// It needs another hall.
    Hall,
    /// It needs what no hall has.
    Record(Want),
}

impl From<Want> for Lack {
    fn from(want: Want) -> Self {
        Self::Record(want)
    }
}

type Guard<'a> = MutexGuard<'a, Hall>;

#[derive(Debug)]
enum Grip<'a> {
    Two(usize, Guard<'a>, Option<(usize, Guard<'a>)>),
    All(Vec<Guard<'a>>),
}

/// Halls that one decision holds, as its records.
#[derive(Debug)]
pub(super) struct Held<'a> {
    grip: Grip<'a>,
    trail: &'a Trail,
    now: StoreTime,
    /// Whether anything was written: from then on the decision stands.
    pub(super) wrote: bool,
}

impl Halls {
    pub(super) fn new(clock: &Arc<dyn Clock>) -> Self {
        let hall = |_| {
            let page = Page::whole(Arc::clone(clock));
            let has_pauses = false;
            Room(Mutex::new(Hall { page, has_pauses }))
        };
        Self {
            halls: (0..HALLS).map(hall).collect(),
            trail: Trail::default(),
        }
    }

    /// The halls of `reach`, when nobody else is in them.
    pub(super) async fn hold(&self, reach: Reach, now: impl Fn() -> StoreTime) -> Held<'_> {
        loop {
            if let Some(grip) = self.try_hold(reach) {
                return Held::new(self, grip, now());
            }
            tokio::task::yield_now().await;
        }
    }

    /// In the order of their numbers, so that no two wait for each other.
    fn try_hold(&self, reach: Reach) -> Option<Grip<'_>> {
        match reach {
            Reach::Two(one, other) => {
                let (low, high) = (one.min(other), one.max(other));
                let first = try_lock(self.halls.get(low)?)?;
                let second = if high == low {
                    None
                } else {
                    Some((high, try_lock(self.halls.get(high)?)?))
                };
                Some(Grip::Two(low, first, second))
            }
            Reach::All => {
                let all: Option<Vec<_>> = self.halls.iter().map(try_lock).collect();
                all.map(Grip::All)
            }
        }
    }
}

/// The hall of a name, whosever it is. Asked at every step, so it is quick rather than good: names
/// that come to the same hall wait for each other, and that is all.
fn place(name: &str) -> usize {
    let (words, rest) = name.as_bytes().as_chunks::<8>();
    let rest = rest
        .iter()
        .fold(0, |rest, byte| rest << 8 | u64::from(*byte));
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let mixed = words.chain([rest]).fold(0, |mixed: u64, word| {
        let mixed = (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 32
    });
    usize::try_from(mixed % HALLS as u64).unwrap_or_default()
}

fn try_lock(Room(hall): &Room) -> Option<Guard<'_>> {
    for _ in 0..TRIES_MAX {
        match hall.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
        }
    }
    None
}

impl<'a> Held<'a> {
    fn new(halls: &'a Halls, grip: Grip<'a>, now: StoreTime) -> Self {
        Self {
            grip,
            trail: &halls.trail,
            now,
            wrote: false,
        }
    }

    /// Everything that is held.
    fn halls(&mut self) -> impl Iterator<Item = &mut Hall> {
        let (one, other, all) = match &mut self.grip {
            Grip::Two(_, one, other) => {
                let other = other.as_mut().map(|(_, hall)| hall);
                (Some(one), other, [].iter_mut())
            }
            Grip::All(all) => (None, None, all.iter_mut()),
        };
        let halls = one.into_iter().chain(other).chain(all);
        halls.map(|hall| &mut **hall)
    }

    /// All halls, for what is in each of them.
    fn all(&mut self) -> Result<impl Iterator<Item = &mut Hall>, Lack> {
        match &mut self.grip {
            Grip::Two(..) => Err(Lack::Hall),
            Grip::All(all) => Ok(all.iter_mut().map(|hall| &mut **hall)),
        }
    }

    /// Any hall: what is the same in all of them is read there.
    fn any(&mut self) -> Result<&mut Page, Lack> {
        let first = self.halls().next();
        first.map(|hall| &mut hall.page).ok_or(Lack::Hall)
    }

    /// As [`any`](Self::any), for what depends on the time. A page is told the time only then, so that
    /// who only looks into a hall writes nothing there.
    fn any_now(&mut self) -> Result<&mut Page, Lack> {
        let now = self.now;
        let page = self.any()?;
        page.now = now;
        Ok(page)
    }

    /// The hall of this name.
    fn hall(&mut self, name: &str) -> Result<&mut Page, Lack> {
        let place = place(name);
        let hall = match &mut self.grip {
            Grip::Two(low, hall, _) if *low == place => Some(hall),
            Grip::Two(_, _, Some((high, hall))) if *high == place => Some(hall),
            Grip::Two(..) => None,
            Grip::All(all) => all.get_mut(place),
        };
        hall.map(|hall| &mut hall.page).ok_or(Lack::Hall)
    }

    /// A session that is new.
    pub(super) fn add_session(
        &mut self,
        session: SessionId,
        record: SessionRecord,
    ) -> Result<(), Lack> {
        for hall in self.all()? {
            hall.page.add_session(session, record);
        }
        Ok(())
    }

    /// What is known of a session.
    pub(super) fn session(&mut self, session: SessionId) -> Result<Option<SessionRecord>, Lack> {
        Ok(self.any()?.session(session)?)
    }

    /// Whether anybody waits for a turn in a hall that is held.
    pub(super) fn has_waiters(&mut self) -> bool {
        self.halls().any(|hall| hall.page.has_waiters())
    }

    /// Every key that is not folded: all that are not burned, and some that are.
    pub(super) fn keys(&mut self) -> Result<impl Iterator<Item = &KeyRecord>, Lack> {
        Ok(self.all()?.flat_map(|hall| hall.page.keys_now()))
    }

    /// Every key that is folded.
    pub(super) fn folded(&mut self) -> Result<impl Iterator<Item = &Folded>, Lack> {
        Ok(self.all()?.flat_map(|hall| hall.page.folded_now()))
    }

    /// Every note that says something.
    pub(super) fn notes(
        &mut self,
    ) -> Result<impl Iterator<Item = (&TenantId, &NoteName, &str)>, Lack> {
        Ok(self.all()?.flat_map(|hall| hall.page.notes_now()))
    }
}

#[cfg(test)]
mod tests;
