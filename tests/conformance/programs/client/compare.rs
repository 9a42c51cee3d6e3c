//! How alike a store and the model must be.

use operators_kernel::life::{EntityRecord, KeyRecord};
use operators_kernel::{ClaimAnswer, Cursor, Receipt, ReceiptFilter, StoreTime, Ticket, Timestamp};
use operators_tests::fixtures::tenant_named;

use super::super::model::Place;
use super::{Client, Detail};

impl Client<'_> {
    /// The answer of the store to a claim must be the model's.
    pub(super) fn same_answer(&mut self, place: &Place, told: ClaimAnswer, expected: ClaimAnswer) {
        if let (ClaimAnswer::Wait(told), ClaimAnswer::Wait(expected)) = (&told, &expected) {
            self.same_place(place, *told, *expected);
            return;
        }
        assert_eq!(self.shown(told), self.shown(expected), "{}", self.place);
    }

    /// A place in a queue must be the model's: known by one number here and one there, in the same
    /// order. How a store numbers them is its own affair.
    pub(super) fn same_place(&mut self, place: &Place, told: Ticket, expected: Ticket) {
        let known = self.places.insert((place.clone(), told), expected);
        assert_eq!(known.unwrap_or(expected), expected, "{}", self.place);
        let here = self.places.iter().filter(|((at, _), _)| at == place);
        let numbers: Vec<Ticket> = here.map(|(_, number)| *number).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{}", self.place);
    }

    /// The model's number of a place.
    pub(super) fn model_ticket(&self, place: &Place, told: Option<Ticket>) -> Option<Ticket> {
        self.places.get(&(place.clone(), told?)).copied()
    }

    /// An answer as far as it must be alike.
    fn shown(&self, answer: ClaimAnswer) -> ClaimAnswer {
        match answer {
            ClaimAnswer::Probe(mut doubt) => {
                *doubt = self.shown_key(*doubt);
                ClaimAnswer::Probe(doubt)
            }
            ClaimAnswer::Refused {
                mut refusal,
                attempt,
            } if self.detail != Detail::Exact => {
                refusal.error.clear();
                refusal.hint = None;
                ClaimAnswer::Refused { refusal, attempt }
            }
            other => other,
        }
    }

    fn shown_key(&self, mut key: KeyRecord) -> KeyRecord {
        if self.detail != Detail::Exact {
            key.first_intent_at = StoreTime(0);
            key.quiescent_at = StoreTime(0);
            key.open_until = StoreTime(0);
        }
        key
    }

    fn shown_entity(&self, mut entity: EntityRecord, now: StoreTime) -> EntityRecord {
        if self.detail != Detail::Exact {
            entity.landing_until = StoreTime(i64::from(entity.landing_until > now));
        }
        entity
    }

    fn shown_receipts(&self, mut receipts: Vec<Receipt>) -> Vec<Receipt> {
        if self.detail != Detail::Exact {
            for receipt in &mut receipts {
                receipt.settled_at = Timestamp::from_micros(0);
                receipt.error = None;
                receipt.hint = None;
            }
            receipts.sort_by(|a, b| a.receipt_id.cmp(&b.receipt_id));
        }
        receipts
    }

    /// What must hold after every call, of the model alone.
    pub(in super::super) fn check(&self, place: &str) {
        self.model.check(&self.before, self.forgot, place);
    }

    /// Everything the store shows, against everything the model knows.
    pub(in super::super) async fn compare(&self, place: &str) {
        let store = &self.handles[0];
        for name in ["acme", "globex"] {
            let tenant = tenant_named(name);
            let all = ReceiptFilter::default();
            let trail = store.receipts(&tenant, &all, Cursor::After(0), 999).await;
            let trail = trail.expect("shows").into_iter().map(|entry| entry.receipt);
            let mut expected = self.model.receipts.clone();
            expected.retain(|receipt| receipt.tenant_id == tenant);
            let trail = self.shown_receipts(trail.collect());
            assert_eq!(
                trail,
                self.shown_receipts(expected),
                "{place}: the receipts"
            );
        }
        for ((tenant, name), expected) in &self.model.keys {
            let at = &expected.proposal.entity_key;
            let found = store.glimpse(tenant, name, at).await.expect("shows");
            let found_key = found.key.map(|key| self.shown_key(key));
            let expected = Some(self.shown_key(expected.clone()));
            assert_eq!(found_key, expected, "{place}: the key {name}");
            let known = self.model.entities[&(tenant.clone(), at.clone())].clone();
            let known = self.shown_entity(known, self.model.time());
            let found = self.shown_entity(found.entity, found.now);
            assert_eq!(found, known, "{place}: the entity {at}");
        }
    }
}
