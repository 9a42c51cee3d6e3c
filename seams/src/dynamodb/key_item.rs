//! A key as an item.

use aws_sdk_dynamodb::types::AttributeValue;
use operators_kernel::life::{KeyRecord, Phase};
use operators_kernel::{
    EntityKey, Fence, Fingerprint, IdempotencyKey, NoDigest, Proposal, SessionId, StoreTime,
    TenantId,
};

use super::fields::{Fields, number, text};
use super::item::{Address, First, INTENT_OF, Item, Span, VERSION, read_span, to_json, write_span};
use super::observer::Observer;
use super::pieces::{Rest, cut, rests};
use super::write::Write;

/// The longest proposal, and the longest application, that stay in the item itself: together with
/// everything else they are below its 400 KB.
const PROPOSAL_WHOLE_MAX: usize = 200 * 1024;
const APPLICATION_WHOLE_MAX: usize = 130 * 1024;

/// A key as it is kept.
#[derive(Debug, Clone)]
pub(super) struct KeyItem {
    pub(super) version: u64,
    /// Without times: they are an observer's.
    record: KeyRecord,
    first: First,
    land: Span,
    open: Vec<(u32, Span)>,
    /// The texts that go on in pieces, as they are in the table.
    rests: Vec<Rest>,
}

impl KeyItem {
    /// The record after a decision made at `now`, as it is to be kept.
    pub(super) fn next(
        record: &KeyRecord,
        before: Option<&Self>,
        now: StoreTime,
        observer: &Observer,
    ) -> Self {
        let id = attempt_id(record);
        let is_new_attempt = record.phase == Phase::Intent
            && before.is_none_or(|before| attempt_id(&before.record) != id);
        let land = match before {
            Some(before) if !is_new_attempt => before.land.clone(),
            _ => Span {
                id: id.clone(),
                micros: record.quiescent_at.0.saturating_sub(now.0),
                date_max: observer.date_max(),
            },
        };
        let first = match before {
            Some(before) if !is_new_attempt || before.record.phase == Phase::InDoubt => {
                before.first.clone()
            }
            _ => First {
                id: id.clone(),
                date_min: observer.date_min(),
            },
        };
        let span_of = |attempt: &u32| {
            let known = before.and_then(|before| before.open.iter().find(|(a, _)| a == attempt));
            known.map_or_else(|| land.clone(), |(_, span)| span.clone())
        };
        let open = record.open_attempts.iter().map(|a| (*a, span_of(a)));
        Self {
            version: before.map_or(0, |before| before.version) + 1,
            open: open.collect(),
            record: record.clone(),
            first,
            land,
            rests: before.map_or_else(Vec::new, |before| before.rests.clone()),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.record.phase
    }

    /// Its entity, as its last attempt named it.
    pub(super) fn entity_key(&self) -> &EntityKey {
        &self.record.proposal.entity_key
    }

    pub(super) fn tenant(&self) -> &TenantId {
        &self.record.proposal.tenant_id
    }

    pub(super) fn name(&self) -> &IdempotencyKey {
        &self.record.proposal.idempotency_key
    }

    pub(super) fn receipt_id(&self) -> &str {
        &self.record.proposal.receipt_id
    }

    pub(super) fn session(&self) -> SessionId {
        self.record.session
    }

    pub(super) fn attempt_id(&self) -> String {
        attempt_id(&self.record)
    }

    /// The record, with times on this observer's clock.
    pub(super) fn seen_by(&self, observer: &Observer) -> KeyRecord {
        let mut record = self.record.clone();
        let is_open = matches!(record.phase, Phase::Intent | Phase::InDoubt);
        record.first_intent_at = observer.since(&self.first);
        // What is settled needs no watching.
        record.quiescent_at = if is_open {
            observer.until(&self.land)
        } else {
            StoreTime(i64::MIN)
        };
        let ends = self.open.iter().map(|(_, span)| observer.until(span));
        record.open_until = ends.max().unwrap_or(StoreTime(i64::MIN));
        record
    }

    pub(super) fn read(item: &Item) -> Result<Self, String> {
        let fields = Fields::of(item, "a key");
        let phase = fields.text("phase")?;
        let proposal: Proposal = fields.json("proposal")?;
        let open = fields.list("open")?.into_iter().map(|entry| {
            let entry = Fields::of(entry, "an open attempt");
            Ok((entry.number("attempt")?, read_span(&entry)?))
        });
        let open = open.collect::<Result<Vec<(u32, Span)>, String>>()?;
        let record = KeyRecord {
            generation: fields.number("generation")?,
            phase: Phase::from_word(phase).ok_or_else(|| format!("a key is `{phase}`"))?,
            attempt: fields.number("attempt")?,
            session: SessionId(fields.number("session")?),
            fence: Fence(fields.number("fence")?),
            fingerprint: fingerprint(fields.text("fingerprint")?)?,
            effect: fields.json("effect")?,
            on_unknown: fields.json("on_unknown")?,
            first_intent_at: StoreTime(i64::MIN),
            quiescent_at: StoreTime(i64::MIN),
            open_attempts: open.iter().map(|(attempt, _)| *attempt).collect(),
            open_until: StoreTime(i64::MIN),
            proposal: proposal.into(),
            application: fields.json_if_there("application")?,
        };
        Ok(Self {
            version: fields.number(VERSION)?,
            first: First {
                id: fields.text("first_id")?.to_owned(),
                date_min: fields.number_if_there("first_date_min")?,
            },
            land: Span {
                id: attempt_id(&record),
                micros: fields.number("land_us")?,
                date_max: fields.number_if_there("land_date_max")?,
            },
            open,
            record,
            rests: rests(item)?,
        })
    }

    /// Its item, and the pieces of its long texts that are not in the table already.
    pub(super) fn write(&mut self) -> Result<(Item, Vec<Write>), String> {
        let mut item = self.item()?;
        let long = [
            ("proposal", PROPOSAL_WHOLE_MAX),
            ("application", APPLICATION_WHOLE_MAX),
        ];
        let cuts = long.map(|(name, whole_max)| cut(&mut item, name, whole_max));
        let (rests, pieces): (Vec<Rest>, Vec<_>) = cuts.into_iter().flatten().unzip();
        let before = std::mem::replace(&mut self.rests, rests);
        let fresh = self.rests.iter().zip(pieces);
        let fresh = fresh.filter(|(rest, _)| !before.contains(rest));
        Ok((item, fresh.flat_map(|(_, pieces)| pieces).collect()))
    }

    fn item(&self) -> Result<Item, String> {
        let record = &self.record;
        let proposal = &record.proposal;
        let address = Address::key(&proposal.tenant_id, &proposal.idempotency_key);
        let mut item = address.item();
        let mut put = |name: &str, value| drop(item.insert(name.to_owned(), value));
        put(VERSION, number(self.version));
        put("generation", number(record.generation));
        put("phase", text(record.phase.as_str()));
        put("attempt", number(record.attempt));
        put("session", number(record.session.0));
        put("fence", number(record.fence.0));
        put("fingerprint", text(record.fingerprint.0.text()));
        put("effect", text(to_json(&record.effect)?));
        put("on_unknown", text(to_json(&record.on_unknown)?));
        put("proposal", text(to_json(proposal)?));
        put("first_id", text(&self.first.id));
        put("land_us", number(self.land.micros));
        if let Some(date) = self.first.date_min {
            put("first_date_min", number(date));
        }
        if let Some(date) = self.land.date_max {
            put("land_date_max", number(date));
        }
        if !self.open.is_empty() {
            let open = self.open.iter().map(|(attempt, span)| {
                let mut entry = write_span(span);
                entry.insert("attempt".to_owned(), number(*attempt));
                AttributeValue::M(entry)
            });
            put("open", AttributeValue::L(open.collect()));
        }
        if let Some(application) = &record.application {
            put("application", text(to_json(application)?));
        }
        if record.phase == Phase::Intent {
            put(INTENT_OF, text(record.session.to_string()));
        }
        Ok(item)
    }
}

fn fingerprint(text: &str) -> Result<Fingerprint, String> {
    let digest = text.parse().map(Fingerprint);
    digest.map_err(|error: NoDigest| format!("a key's fingerprint: {error}"))
}

/// Nothing else ever has this id: what is known about one attempt is never taken for another's.
fn attempt_id(record: &KeyRecord) -> String {
    let receipt_id = &record.proposal.receipt_id;
    format!("{receipt_id}#{}.{}", record.generation, record.attempt)
}
