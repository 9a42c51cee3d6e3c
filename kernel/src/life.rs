//! The life of a key, as pure functions: what a claim, a settlement, an owner's death, a person's
//! answer and a wish to forget do to it.
//!
//! ```text
//!             claim                        Applied
//!  (none) ───────────▶ INTENT(a) ─────────────────────────▶ APPLIED   absorbing; result kept
//!    ▲                  │  │  │                                ▲ ▲
//!    │   NotApplied     │  │  └─ Unknown ─────┐                │ │ late answer of an attempt
//!    └── FAILED(a) ◀────┘  └─ owner dead ─────▼                │ │
//!          │ claim                       IN_DOUBT(a) ──────────┘─┘ probe or person: applied
//!          └────────▶ INTENT(a+1) ◀── keyed, idempotent ┤
//!                                                       ├──▶ FAILED       not applied, after quiescence
//!                                                       └──▶ WRITTEN_OFF  dedups, never runs again
//!  transactional: owner dead ──▶ FAILED(a), for effect and burn are one commit
//!  forget: APPLIED | WRITTEN_OFF ──▶ FORGOTTEN of the next generation, free to claim
//! ```
//!
//! Stores call these functions inside their transaction, or do the same in their own language and
//! are tested against them. Nothing here reads a clock or touches a store.

mod alerts;
mod approvals;
mod claim;
mod close;
mod controls;
mod limits;
mod moved_on;
mod perform;
mod retention;
mod settle;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::action::Original;
use crate::clock::Timestamp;
use crate::connector::{EffectClass, OnUnknown};
use crate::durable::{Fence, Fingerprint, SessionId, StoreTime};
use crate::json;
use crate::key::{IdempotencyKey, TenantId};
use crate::packed::Packed;
use crate::receipt::{AttemptMark, Proposal};
use crate::shared::Shared;
use crate::text::Text;

pub use alerts::{Acknowledgement, Alert, may_raise, raised};
pub use approvals::{ASKED_FOR, Answer, Approval};
pub use claim::{ClaimStep, Turn, claim, told_before};
pub(crate) use claim::{Said, duplicate};
pub use close::{ForgetStep, ResolveStep, forget, owner_died, resolve};
pub use controls::{
    DirectiveStep, Grant, Hold, Note, NoteError, NoteKind, NoteName, Pauses, Through, direct,
    is_let_through_unless_paused, let_through, wanted,
};
pub use limits::{LIMIT_MAX, give_slot_back, slots_given_back};
pub use moved_on::{receipts_to_ask, told_in, took_effect_elsewhere, with_what_took_effect};
pub use perform::{PerformStep, perform, told};
pub use settle::{SettleStep, settle};

/// A keyed doubt is sent again only while this part of the vendor's window is left, and no less than
/// the request may take to land, so that the vendor still knows the key when it arrives.
const WINDOW_MARGIN_DIVISOR: u32 = 10;

/// Where a key is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// An attempt may be on its way; its owner holds the entity's turn.
    Intent,
    /// The effect happened. The key is burned.
    Applied,
    /// Every attempt definitely failed. The key is free, corrected arguments included.
    Failed,
    /// At least one attempt's outcome is not known. The entity is held.
    InDoubt,
    /// A person closed a doubt that nobody can answer. Dedups, never runs again.
    WrittenOff,
    /// Opened for its next generation. The key is free.
    Forgotten,
}

impl Phase {
    /// The word in stores and listings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Intent => "intent",
            Self::Applied => "applied",
            Self::Failed => "failed",
            Self::InDoubt => "in_doubt",
            Self::WrittenOff => "written_off",
            Self::Forgotten => "forgotten",
        }
    }

    /// The phase of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        [
            Self::Intent,
            Self::Applied,
            Self::Failed,
            Self::InDoubt,
            Self::WrittenOff,
            Self::Forgotten,
        ]
        .into_iter()
        .find(|phase| phase.as_str() == word)
    }
}

/// All that is remembered of one key.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyRecord {
    /// Grows with every `forget`; starts at 1.
    pub generation: u32,
    /// Where it is in its life.
    pub phase: Phase,
    /// Attempts made in this generation.
    pub attempt: u32,
    /// Who made the last one.
    pub session: SessionId,
    /// The turn it was made under.
    pub fence: Fence,
    /// What the action said.
    pub fingerprint: Fingerprint,
    /// What is known about repeating it.
    pub effect: EffectClass,
    /// What a doubt leads to.
    pub on_unknown: OnUnknown,
    /// When the first attempt of the current series was claimed; the vendor's window starts here.
    pub first_intent_at: StoreTime,
    /// From then on the last attempt can no longer land.
    pub quiescent_at: StoreTime,
    /// Attempts whose outcome nobody knows, the current intent not counted; some may be left on a
    /// burned key, whose effect was another attempt's.
    pub open_attempts: Vec<u32>,
    /// From then on none of the open attempts can land.
    pub open_until: StoreTime,
    /// The last attempt's proposal.
    pub proposal: Shared<Proposal>,
    /// How it was applied, once it was.
    pub application: Option<Application>,
}

/// How a key came to be burned (or written off).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// Which attempt.
    pub attempt: u32,
    /// What a duplicate is shown.
    pub original: Original,
    /// The vendor's id for the effect.
    pub effect_id: Option<String>,
    /// It was not the first attempt to take effect, and nothing downstream made the two one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub double_applied: bool,
    /// What took effect, where the last attempt of the key, which the record keeps, says something
    /// else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<Shared<Proposal>>,
}

/// All that is remembered of one entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntityRecord {
    /// The number of its last turn.
    pub fence: Fence,
    /// Whose turn it is now.
    pub holder: Option<SessionId>,
    /// The newest applied revision.
    pub revision: Option<u64>,
    /// The key whose doubt holds it. There is never a second one: a doubt stops every other claim.
    pub doubt: Option<IdempotencyKey>,
    /// Until then an abandoned request of an action that is applied already may still land.
    pub landing_until: StoreTime,
}

impl Default for EntityRecord {
    fn default() -> Self {
        Self {
            fence: Fence(0),
            holder: None,
            revision: None,
            doubt: None,
            landing_until: StoreTime(i64::MIN),
        }
    }
}

impl KeyRecord {
    /// Which attempt this record speaks of.
    pub fn mark(&self) -> AttemptMark {
        AttemptMark {
            generation: self.generation,
            attempt: self.attempt,
            session: Some(self.session),
            fence: Some(self.fence),
            approver: self.proposal.approved_by(),
        }
    }

    /// Whether this doubt may be sent again without asking anybody, in a request that can land for
    /// `landing`.
    fn may_resend(&self, now: StoreTime, landing: Duration) -> bool {
        match (self.effect, self.on_unknown) {
            (EffectClass::Idempotent, _) | (_, OnUnknown::Retry) => true,
            (EffectClass::Keyed { window_ms }, OnUnknown::Hold) => {
                let window = Duration::from_millis(window_ms);
                let margin = landing.max(window / WINDOW_MARGIN_DIVISOR);
                now < self.first_intent_at.plus(window.saturating_sub(margin))
            }
            (
                EffectClass::Probeable
                | EffectClass::Transactional
                | EffectClass::Opaque
                | EffectClass::Read,
                OnUnknown::Hold,
            ) => false,
        }
    }

    /// Two applied attempts are one effect only where the vendor, or the nature of the tool, makes
    /// them so.
    fn repeats_are_harmless(&self) -> bool {
        matches!(
            self.effect,
            EffectClass::Keyed { .. } | EffectClass::Idempotent
        )
    }

    /// Whether the vendor takes all attempts of this key for one request for as long as any of them
    /// can land: it honours keys, and still knows this one by then.
    fn is_one_request_to_the_vendor(&self) -> bool {
        let EffectClass::Keyed { window_ms } = self.effect else {
            return false;
        };
        let known_until = self.first_intent_at.plus(Duration::from_millis(window_ms));
        self.open_until <= known_until
    }

    /// The key is burned by what took effect: that is what a duplicate is held against.
    fn bind_to_what_was_applied(&mut self) {
        let application = self.application.as_ref();
        let said = application.and_then(|application| application.said.as_ref());
        // What was proposed could be hashed then, so it can be now.
        if let Some(Ok(digest)) = said.map(|said| Said::by(said).digest()) {
            self.fingerprint = Fingerprint(digest);
        }
    }

    fn add_open_attempt(&mut self, attempt: u32, quiescent_at: StoreTime) {
        if !self.open_attempts.contains(&attempt) {
            self.open_attempts.push(attempt);
        }
        self.open_until = self.open_until.max(quiescent_at);
    }

    fn close_open_attempts(&mut self) {
        self.open_attempts.clear();
        self.open_until = StoreTime(i64::MIN);
    }

    fn set_applied(
        &mut self,
        attempt: u32,
        receipt_id: Text,
        at: Timestamp,
        effect: &crate::connector::Effect,
    ) {
        self.phase = Phase::Applied;
        self.application = Some(Application {
            attempt,
            original: Original {
                receipt_id,
                applied_at: at,
                result: Packed::from(&*effect.result),
                written_off: false,
            },
            effect_id: effect.effect_id.clone(),
            double_applied: false,
            said: None,
        });
        // The others stay open: this says nothing about them.
        self.open_attempts.retain(|open| *open != attempt);
    }
}

impl EntityRecord {
    fn release_if_held_by(&mut self, session: SessionId, fence: Fence) {
        if self.holder == Some(session) && self.fence == fence {
            self.holder = None;
        }
    }

    fn note_revision(&mut self, revision: Option<u64>) {
        // `None` is smaller than every revision.
        self.revision = self.revision.max(revision);
    }

    /// The key is burned while an abandoned request of it may still land: nothing else may touch
    /// the entity until it no longer can, or it would be overtaken by what comes next.
    fn wait_for_open_attempts(&mut self, key: &KeyRecord) {
        if !key.open_attempts.is_empty() && !key.is_one_request_to_the_vendor() {
            self.landing_until = self.landing_until.max(key.open_until);
        }
    }

    /// Keeps the entity's hold in step with one of its keys.
    fn note_doubt(&mut self, key: &KeyRecord) {
        let name = &key.proposal.idempotency_key;
        if key.phase == Phase::InDoubt {
            self.doubt = Some(name.clone());
        } else if self.doubt.as_ref() == Some(name) {
            self.doubt = None;
        }
    }
}

/// The key a vendor sees: the same for every attempt of one generation, and never another's.
pub fn downstream_key(tenant: &TenantId, key: &IdempotencyKey, generation: u32) -> String {
    let mut hasher = Sha256::new();
    for part in [tenant.as_str(), key.as_str()] {
        // Length first, so that ("a", "bc") and ("ab", "c") never meet.
        hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.update(generation.to_be_bytes());
    json::hex(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downstream_keys_keep_their_parts_apart() {
        let tenant = |text: &str| TenantId::parse(text).expect("tenant");
        let key = |text: &str| IdempotencyKey::parse(text).expect("key");
        let one = downstream_key(&tenant("a"), &key("b:c"), 1);
        assert_eq!(one, downstream_key(&tenant("a"), &key("b:c"), 1));
        assert_ne!(one, downstream_key(&tenant("a:b"), &key("c"), 1));
        assert_ne!(one, downstream_key(&tenant("a"), &key("b:c"), 2));
    }
}
