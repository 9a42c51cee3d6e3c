//! What is folded is read as it was, every field of it.

use std::time::Duration;

use serde_json::{Map, Number, json};

use super::*;
use crate::durable::{Clearance, OnDoubt};
use crate::key::{ConnectorName, EntityKey, OperatorName, ToolName};
use crate::life::{ClaimStep, EntityRecord, Turn};
use crate::receipt::{KnownBy, Person, ReceiptAction};
use crate::trust::{OnAlert, PolicyRef, TrustDecision};

/// With nothing that need not be there.
fn bare() -> Proposal {
    Proposal {
        receipt_id: "rc_1".into(),
        tenant_id: TenantId::parse("acme").expect("a tenant"),
        reseller_id: None,
        operator: None,
        run_id: "run_1".into(),
        plan_id: "plan_1".into(),
        event_id: None,
        correlation_id: "".into(),
        action: ReceiptAction {
            args: Packed::from(Map::new()),
            connector: ConnectorName::parse("shop").expect("a connector"),
            tool: ToolName::parse("orders.hold").expect("a tool"),
        }
        .into(),
        value: None,
        entity_key: EntityKey::parse("order:1").expect("an entity"),
        idempotency_key: IdempotencyKey::parse("hold:1").expect("a key"),
        revision: None,
        source_id: None,
        index_hash: None,
        decision: TrustDecision::Allow,
        rule: None,
        policy: None,
        note: None,
        approver: None,
        known_by: None,
        limits: Vec::new(),
        proposed_at: Timestamp::from_micros(0),
    }
}

/// With everything that can be there.
fn full() -> Proposal {
    let args =
        json!({"order": "SO-1", "lines": [1, -2, 0.5, null], "é": {"long": "x".repeat(300)}});
    let args = args.as_object().cloned().expect("an object");
    let policy = PolicyRef {
        digest: "sha256:00".to_owned(),
        name: "holds".to_owned(),
        version: u64::MAX,
    };
    Proposal {
        receipt_id: "rc_0198c0ffee0198c0ffee0198c0ffee01".into(),
        reseller_id: Some("reseller".to_owned()),
        operator: OperatorName::parse("hold-desk").ok(),
        event_id: Some(String::new()),
        correlation_id: "cor_0198c0ffee0198c0ffee0198c0ffee01".into(),
        action: ReceiptAction {
            args: Packed::from(args),
            connector: ConnectorName::parse("shop-eu").expect("a connector"),
            tool: ToolName::parse("orders.release").expect("a tool"),
        }
        .into(),
        value: Number::from_f64(180.5),
        entity_key: EntityKey::parse("Bestellung:ü").expect("an entity"),
        idempotency_key: IdempotencyKey::parse("k".repeat(512)).expect("a key"),
        revision: Some(u64::MAX),
        source_id: Some("source".to_owned()),
        index_hash: Some("index".to_owned()),
        decision: TrustDecision::Alert,
        rule: Some("holds run".into()),
        policy: Some(policy.into()),
        note: Some("value is 180.5".to_owned()),
        approver: Some("ada".to_owned()),
        known_by: Some(KnownBy::Environment),
        limits: vec!["one".to_owned(), String::new()],
        proposed_at: Timestamp::from_micros(1_700_000_000_123_456),
        ..bare()
    }
}

fn mark() -> AttemptMark {
    AttemptMark {
        generation: 3,
        attempt: 2,
        session: Some(SessionId(7)),
        fence: Some(Fence(u64::MAX)),
        approver: Some(Person {
            name: "ada".to_owned(),
            known_by: Some(KnownBy::Environment),
        }),
    }
}

fn applied(proposal: Proposal, mark: AttemptMark) -> Slip {
    // It may end before it began: the clock on the wall is set back at times.
    let at = Timestamp::from_micros(proposal.proposed_at.as_micros() - 5);
    let has_all = proposal.rule.is_some();
    Slip::Applied {
        proposal: proposal.into(),
        mark,
        result_digest: has_all.then(|| ContentDigest::of(b"result")),
        effect_id: has_all.then(|| "vendor-1".to_owned()),
        at,
    }
}

fn burned_by(slip: &Slip) -> KeyRecord {
    let Slip::Applied {
        proposal,
        effect_id,
        at,
        ..
    } = slip
    else {
        panic!("no application: {slip:?}")
    };
    KeyRecord {
        generation: 3,
        phase: Phase::Applied,
        attempt: 2,
        session: SessionId(7),
        fence: Fence(u64::MAX),
        fingerprint: Fingerprint(ContentDigest::of(b"said")),
        effect: EffectClass::Keyed { window_ms: 1 << 40 },
        on_unknown: OnUnknown::Retry,
        first_intent_at: StoreTime(-3),
        quiescent_at: StoreTime(i64::MAX),
        open_attempts: Vec::new(),
        open_until: StoreTime(i64::MIN),
        proposal: proposal.clone(),
        application: Some(Application {
            attempt: 2,
            original: Original {
                receipt_id: proposal.receipt_id.clone(),
                applied_at: *at,
                result: Packed::from(json!({"status": "held", "n": [1, 2.5]})),
                written_off: false,
            },
            effect_id: effect_id.clone(),
            double_applied: false,
            said: None,
        }),
    }
}

fn claim_of(key: &KeyRecord) -> Claim {
    Claim {
        session: SessionId(9),
        ticket: None,
        asked_before: false,
        proposal: Proposal {
            receipt_id: "rc_2".into(),
            ..full()
        }
        .into(),
        fingerprint: key.fingerprint,
        effect: key.effect,
        on_unknown: key.on_unknown,
        deadline: Duration::ZERO,
        max_land: Duration::ZERO,
        clearance: Clearance::Cleared,
        on_alert: OnAlert::default(),
        limits: Vec::new(),
        on_doubt: OnDoubt::Probe,
        at: Timestamp::from_micros(9),
    }
}

#[test]
fn a_receipt_is_read_as_it_was_folded() {
    for proposal in [bare(), full()] {
        for mark in [AttemptMark::none(), mark()] {
            let slip = applied(proposal.clone(), mark.clone());
            let folded = Folded::receipt(&slip).expect("it folds");
            assert_eq!(folded.slip().as_ref(), Some(&slip));
            assert_eq!(folded.key(), None);
            assert_eq!(folded.tenant_id(), "acme");
            assert_eq!(folded.receipt_id(), slip.receipt_id());
            let duplicate = Slip::Duplicate {
                proposal: proposal.clone().into(),
                mark,
                original_receipt_id: "rc_0".into(),
                at: Timestamp::from_micros(77),
            };
            let folded = Folded::receipt(&duplicate).expect("it folds");
            // Of a duplicate, what its receipt shows.
            let read = folded.slip().expect("it is read");
            assert_eq!(read.receipt(), duplicate.receipt());
            assert_eq!(Folded::receipt(&duplicate.receipt().into()), None);
        }
    }
}

#[test]
fn a_burned_key_is_read_as_it_was_folded_with_its_receipt() {
    let effects = [
        EffectClass::Read,
        EffectClass::Idempotent,
        EffectClass::Keyed { window_ms: 0 },
        EffectClass::Probeable,
        EffectClass::Transactional,
        EffectClass::Opaque,
    ];
    for (proposal, effect) in [bare(), full()]
        .iter()
        .flat_map(|p| effects.map(|e| (p, e)))
    {
        let slip = applied(proposal.clone(), mark());
        for open_until in [i64::MIN, -1, i64::MAX] {
            let key = KeyRecord {
                effect,
                on_unknown: OnUnknown::Hold,
                open_until: StoreTime(open_until),
                ..burned_by(&slip)
            };
            let folded = Folded::burned(&slip, &key).expect("it folds");
            assert_eq!(folded.key().as_ref(), Some(&key));
            assert_eq!(folded.slip().as_ref(), Some(&slip));
            assert!(folded.is_about(&proposal.tenant_id, &proposal.idempotency_key));
            let other = IdempotencyKey::parse("hold:2").expect("a key");
            assert!(!folded.is_about(&proposal.tenant_id, &other));
            // By rule 3.4, whatever their hashes.
            let another = TenantId::parse("umbrella").expect("a tenant");
            assert!(!folded.is_about(&another, &proposal.idempotency_key));
        }
    }
}

#[test]
fn a_key_that_says_more_than_its_receipt_is_not_folded() {
    let slip = applied(full(), mark());
    let plain = burned_by(&slip);
    assert!(Folded::burned(&slip, &plain).is_some());
    let with = |change: fn(&mut KeyRecord, &mut Application)| {
        let mut key = plain.clone();
        let mut application = key.application.take().expect("an application");
        change(&mut key, &mut application);
        key.application = Some(application);
        key
    };
    for (n, key) in [
        with(|key, _| key.generation += 1),
        with(|key, _| key.attempt += 1),
        with(|key, _| key.session.0 += 1),
        with(|key, _| key.fence.0 -= 1),
        with(|key, _| key.phase = Phase::WrittenOff),
        with(|key, _| key.open_attempts = vec![1]),
        with(|key, _| key.proposal.note = None),
        with(|_, application| application.attempt = 1),
        with(|_, application| application.double_applied = true),
        with(|_, application| application.said = Some(full().into())),
        with(|_, application| application.effect_id = None),
        with(|_, application| application.original.written_off = true),
        with(|_, application| application.original.receipt_id = "rc_0".into()),
        with(|_, application| application.original.applied_at = Timestamp::from_micros(0)),
    ]
    .iter()
    .enumerate()
    {
        assert_eq!(Folded::burned(&slip, key), None, "case {n}");
    }
    let unrecorded = KeyRecord {
        application: None,
        ..plain
    };
    assert_eq!(Folded::burned(&slip, &unrecorded), None);
}

#[test]
fn a_duplicate_is_answered_as_by_the_unfolded_key() {
    let slip = applied(full(), mark());
    let key = burned_by(&slip);
    let folded = Folded::burned(&slip, &key).expect("it folds");
    let claim = claim_of(&key);
    let entity = EntityRecord::default();
    let step = life::claim(Some(&key), &entity, Turn::Free, &claim, StoreTime(0));
    let (receipt, answer) = folded.duplicate(&claim).expect("a duplicate");
    assert_eq!(ClaimStep::End { receipt, answer }, step);
    // What says something else is for those who see the whole key.
    let other = Claim {
        fingerprint: Fingerprint(ContentDigest::of(b"other")),
        ..claim.clone()
    };
    assert_eq!(folded.duplicate(&other), None);
    let alone = Folded::receipt(&slip).expect("it folds");
    assert_eq!(alone.duplicate(&claim), None);
}

#[test]
fn what_is_cut_is_not_read_as_anything() {
    let slip = applied(full(), mark());
    let whole = Folded::burned(&slip, &burned_by(&slip)).expect("it folds");
    for length in 0..whole.0.len() {
        let cut = Folded(whole.0.iter().copied().take(length).collect());
        assert_eq!((cut.slip(), cut.key()), (None, None), "{length}");
    }
}
