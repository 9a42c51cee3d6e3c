//! A receipt, and the burned key it tells of, in one small piece of memory.
//!
//! What nearly every action leaves behind for ever: a proposal, how it ended, and for a new one a
//! burned key that says the same again. As types they are spread over ten pieces of memory with room
//! for everything that is mostly not there. Folded they are as many bytes as they say, and are taken
//! apart when somebody looks.

mod policies;
mod proposal;

use std::fmt;
use std::sync::Arc;

use crate::action::Original;
use crate::clock::Timestamp;
use crate::connector::{EffectClass, OnUnknown};
use crate::content_digest::ContentDigest;
use crate::durable::{Claim, ClaimAnswer, Fence, Fingerprint, SessionId, StoreTime};
use crate::key::{IdempotencyKey, TenantId};
use crate::life::{self, Application, KeyRecord, Phase};
use crate::packed::{Packed, Reader, bytes};
use crate::receipt::{AttemptMark, Proposal};
use crate::shared::Shared;
use crate::slip::Slip;

/// Longer than most of what is folded: bytes that need not grow.
const FOLDED_BYTES: usize = 768;

// What a piece is of.
const APPLIED: u8 = 0;
const DUPLICATE: u8 = 1;
/// An application, with the key that it burned.
const BURNED: u8 = 2;

/// What a receipt will say, and a burned key if it is that key's, as one piece of memory. It is read
/// as the same [`Slip`] and the same [`KeyRecord`]; copies like a pointer.
#[derive(Clone, PartialEq, Eq)]
pub struct Folded(Arc<[u8]>);

/// What comes first in a piece: what it is found by, and what a duplicate asks.
struct Head<'a> {
    tenant: &'a str,
    key: &'a str,
    kind: u8,
    receipt_id: &'a str,
    mark: AttemptMark,
    proposed_at: Timestamp,
    at: Timestamp,
}

/// What a burned key says that its receipt does not.
struct Burn {
    fingerprint: Fingerprint,
    effect: EffectClass,
    on_unknown: OnUnknown,
    first_intent_at: StoreTime,
    quiescent_at: StoreTime,
    open_until: StoreTime,
    result: Packed<serde_json::Value>,
}

impl Folded {
    /// A receipt; `None` if it is written out already. What a duplicate's receipt does not show is
    /// not kept.
    pub fn receipt(slip: &Slip) -> Option<Self> {
        fold(slip, None)
    }

    /// A receipt and the key that it burned; `None` if the key says more than that, or other things.
    pub fn burned(slip: &Slip, key: &KeyRecord) -> Option<Self> {
        let folds = is_told_by(key, slip)?;
        if folds { fold(slip, Some(key)) } else { None }
    }

    /// Whether it is about this key.
    pub fn is_about(&self, tenant: &TenantId, key: &IdempotencyKey) -> bool {
        let reader = Reader::new(&self.0);
        let found = (reader.piece(), reader.piece());
        found
            == (
                Some(tenant.as_str().as_bytes()),
                Some(key.as_str().as_bytes()),
            )
    }

    /// Whose it is.
    pub fn tenant_id(&self) -> &str {
        self.head().map(|(head, _)| head.tenant).unwrap_or_default()
    }

    /// The receipt's id.
    pub fn receipt_id(&self) -> &str {
        let found = self.head().map(|(head, _)| head.receipt_id);
        found.unwrap_or_default()
    }

    /// What was folded. What this process folded it can read: `None` is a defect.
    pub fn slip(&self) -> Option<Slip> {
        let (head, reader) = self.head()?;
        if head.kind == BURNED {
            Burn::read(&reader)?;
        }
        head.slip(&reader)
    }

    /// The key that was folded with the receipt, if one was.
    pub fn key(&self) -> Option<KeyRecord> {
        let (head, reader) = self.head()?;
        if head.kind != BURNED {
            return None;
        }
        let burn = Burn::read(&reader)?;
        let Slip::Applied {
            proposal,
            mark,
            effect_id,
            at,
            ..
        } = head.slip(&reader)?
        else {
            return None;
        };
        Some(KeyRecord {
            generation: mark.generation,
            phase: Phase::Applied,
            attempt: mark.attempt,
            session: mark.session?,
            fence: mark.fence?,
            fingerprint: burn.fingerprint,
            effect: burn.effect,
            on_unknown: burn.on_unknown,
            first_intent_at: burn.first_intent_at,
            quiescent_at: burn.quiescent_at,
            open_attempts: Vec::new(),
            open_until: burn.open_until,
            application: Some(Application {
                attempt: mark.attempt,
                original: Original {
                    receipt_id: proposal.receipt_id.clone(),
                    applied_at: at,
                    result: burn.result,
                    written_off: false,
                },
                effect_id,
                double_applied: false,
                said: None,
            }),
            proposal,
        })
    }

    /// What a claim on the folded key is answered that says the same again, without taking all of it
    /// apart; `None` if it says something else, or there is no key.
    pub fn duplicate(&self, claim: &Claim) -> Option<(Slip, ClaimAnswer)> {
        let (head, reader) = self.head()?;
        if head.kind != BURNED {
            return None;
        }
        let burn = Burn::read(&reader)?;
        if burn.fingerprint != claim.fingerprint {
            return None;
        }
        let original = Original {
            receipt_id: head.receipt_id.into(),
            applied_at: head.at,
            result: burn.result,
            written_off: false,
        };
        let mark = AttemptMark {
            generation: head.mark.generation,
            attempt: head.mark.attempt,
            ..AttemptMark::none()
        };
        Some(life::duplicate(claim, mark, original))
    }

    fn head(&self) -> Option<(Head<'_>, Reader<'_>)> {
        let reader = Reader::new(&self.0);
        let (tenant, key, kind) = (reader.text()?, reader.text()?, reader.byte()?);
        let (receipt_id, mark) = (reader.text()?, read_mark(&reader)?);
        let proposed_at = reader.signed()?;
        let at = proposed_at.wrapping_add(reader.signed()?);
        let head = Head {
            tenant,
            key,
            kind,
            receipt_id,
            mark,
            proposed_at: Timestamp::from_micros(proposed_at),
            at: Timestamp::from_micros(at),
        };
        Some((head, reader))
    }
}

impl fmt::Debug for Folded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Folded").field(&self.slip()).finish()
    }
}

/// Whether a key says nothing but what this receipt and [`Burn`] say; `None` if it is no receipt of an
/// application.
fn is_told_by(key: &KeyRecord, slip: &Slip) -> Option<bool> {
    let Slip::Applied {
        proposal,
        mark,
        effect_id,
        at,
        ..
    } = slip
    else {
        return None;
    };
    let application = key.application.as_ref()?;
    let original = &application.original;
    let is_same_attempt = key.attempt == mark.attempt
        && application.attempt == mark.attempt
        && key.generation == mark.generation
        && mark.session == Some(key.session)
        && mark.fence == Some(key.fence);
    let is_plain = key.phase == Phase::Applied
        && key.open_attempts.is_empty()
        && application.said.is_none()
        && !application.double_applied
        && !original.written_off;
    let is_same_end = original.receipt_id == proposal.receipt_id
        && original.applied_at == *at
        && application.effect_id == *effect_id;
    let is_same_proposal = || key.proposal.is_same(proposal) || key.proposal == *proposal;
    Some(is_same_attempt && is_plain && is_same_end && is_same_proposal())
}

fn fold(slip: &Slip, key: Option<&KeyRecord>) -> Option<Folded> {
    let mut to = Vec::with_capacity(FOLDED_BYTES);
    match slip {
        Slip::Applied {
            proposal,
            mark,
            result_digest,
            effect_id,
            at,
        } => {
            let kind = if key.is_some() { BURNED } else { APPLIED };
            write_head(&mut to, kind, proposal, mark, *at);
            if let Some((key, application)) =
                key.and_then(|key| Some((key, key.application.as_ref()?)))
            {
                Burn::write(&mut to, key, application);
            }
            proposal::write(&mut to, proposal);
            proposal::write_ruling(&mut to, proposal);
            if let Some(digest) = result_digest {
                bytes::piece(&mut to, digest.bytes());
            } else {
                bytes::piece(&mut to, &[]);
            }
            proposal::write_maybe(&mut to, effect_id.as_deref());
        }
        Slip::Duplicate {
            proposal,
            mark,
            original_receipt_id,
            at,
        } => {
            write_head(&mut to, DUPLICATE, proposal, mark, *at);
            proposal::write(&mut to, proposal);
            bytes::text(&mut to, original_receipt_id);
        }
        Slip::Written(_) => return None,
    }
    Some(Folded(to.as_slice().into()))
}

fn write_head(to: &mut Vec<u8>, kind: u8, proposal: &Proposal, mark: &AttemptMark, at: Timestamp) {
    bytes::text(to, proposal.tenant_id.as_str());
    bytes::text(to, proposal.idempotency_key.as_str());
    to.push(kind);
    bytes::text(to, &proposal.receipt_id);
    bytes::unsigned(to, mark.generation.into());
    bytes::unsigned(to, mark.attempt.into());
    proposal::write_maybe_number(to, mark.session.map(|session| session.0));
    proposal::write_maybe_number(to, mark.fence.map(|fence| fence.0));
    let approver = mark.approver.as_ref();
    proposal::write_maybe(to, approver.map(|person| person.name.as_str()));
    proposal::write_known_by(to, approver.and_then(|person| person.known_by));
    let proposed_at = proposal.proposed_at.as_micros();
    bytes::signed(to, proposed_at);
    bytes::signed(to, at.as_micros().wrapping_sub(proposed_at));
}

fn read_mark(reader: &Reader<'_>) -> Option<AttemptMark> {
    Some(AttemptMark {
        generation: reader.unsigned()?.try_into().ok()?,
        attempt: reader.unsigned()?.try_into().ok()?,
        session: proposal::read_maybe_number(reader)?.map(SessionId),
        fence: proposal::read_maybe_number(reader)?.map(Fence),
        approver: proposal::read_person(reader)?,
    })
}

impl Head<'_> {
    /// What follows the head, and the key if there is one.
    fn slip(self, reader: &Reader<'_>) -> Option<Slip> {
        let mut proposal = proposal::read(reader, &self)?;
        if self.kind == DUPLICATE {
            return Some(Slip::Duplicate {
                proposal: proposal.into(),
                mark: self.mark,
                original_receipt_id: reader.text()?.into(),
                at: self.at,
            });
        }
        proposal::read_ruling(reader, &mut proposal)?;
        let result_digest = match reader.piece()? {
            [] => None,
            digest => Some(ContentDigest::of_digest(digest.try_into().ok()?)),
        };
        Some(Slip::Applied {
            proposal: Shared::from(proposal),
            mark: self.mark,
            result_digest,
            effect_id: proposal::read_maybe(reader)?.map(str::to_owned),
            at: self.at,
        })
    }
}

// The classes of effects, as bytes.
const READ: u8 = 0;
const IDEMPOTENT: u8 = 1;
const KEYED: u8 = 2;
const PROBEABLE: u8 = 3;
const TRANSACTIONAL: u8 = 4;
const OPAQUE: u8 = 5;

impl Burn {
    fn write(to: &mut Vec<u8>, key: &KeyRecord, application: &Application) {
        to.extend_from_slice(key.fingerprint.0.bytes());
        to.push(match key.effect {
            EffectClass::Read => READ,
            EffectClass::Idempotent => IDEMPOTENT,
            EffectClass::Keyed { .. } => KEYED,
            EffectClass::Probeable => PROBEABLE,
            EffectClass::Transactional => TRANSACTIONAL,
            EffectClass::Opaque => OPAQUE,
        });
        if let EffectClass::Keyed { window_ms } = key.effect {
            bytes::unsigned(to, window_ms);
        }
        to.push(match key.on_unknown {
            OnUnknown::Hold => 0,
            OnUnknown::Retry => 1,
        });
        let first = key.first_intent_at.0;
        bytes::signed(to, first);
        bytes::signed(to, key.quiescent_at.0.wrapping_sub(first));
        // Mostly nothing was ever open, which is as long ago as can be told.
        bytes::signed(to, key.open_until.0.wrapping_sub(i64::MIN));
        bytes::piece(to, application.original.result.bytes());
    }

    fn read(reader: &Reader<'_>) -> Option<Self> {
        let fingerprint = Fingerprint(ContentDigest::of_digest(reader.array()?));
        let effect = match reader.byte()? {
            READ => EffectClass::Read,
            IDEMPOTENT => EffectClass::Idempotent,
            KEYED => EffectClass::Keyed {
                window_ms: reader.unsigned()?,
            },
            PROBEABLE => EffectClass::Probeable,
            TRANSACTIONAL => EffectClass::Transactional,
            OPAQUE => EffectClass::Opaque,
            _ => return None,
        };
        let on_unknown = match reader.byte()? {
            0 => OnUnknown::Hold,
            1 => OnUnknown::Retry,
            _ => return None,
        };
        let first = reader.signed()?;
        Some(Self {
            fingerprint,
            effect,
            on_unknown,
            first_intent_at: StoreTime(first),
            quiescent_at: StoreTime(first.wrapping_add(reader.signed()?)),
            open_until: StoreTime(i64::MIN.wrapping_add(reader.signed()?)),
            result: Packed::of_bytes(reader.piece()?),
        })
    }
}

#[cfg(test)]
mod tests;
