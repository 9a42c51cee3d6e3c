//! A decision is made once more only where nothing of it was written, and halls agree about sessions.

use std::sync::LazyLock;
use std::time::Duration;

use operators_kernel::life::{self, ClaimStep, EntityRecord, Turn};
use operators_kernel::{
    AttemptMark, ClaimAnswer, Clearance, ConnectorName, ContentDigest, DurableExec, Effect,
    EffectClass, Fingerprint, OnAlert, OnDoubt, OnUnknown, Packed, ReceiptAction, SettledOutcome,
    Shared, Slip, StoreError, Ticket, Timestamp, ToolName, TrustDecision,
};
use serde_json::Map;

use super::*;
use crate::SystemClock;
use crate::book::{Book, Change, Waiter};
use crate::memory::MemoryStore;

static TENANT: LazyLock<TenantId> = LazyLock::new(|| TenantId::parse("acme").expect("a tenant"));

fn entity() -> EntityKey {
    EntityKey::parse("order:1").expect("an entity")
}

fn claim() -> Claim {
    let action = ReceiptAction {
        args: Packed::from(Map::new()),
        connector: ConnectorName::parse("shop").expect("a connector"),
        tool: ToolName::parse("orders.hold").expect("a tool"),
    };
    let proposal = Proposal {
        receipt_id: "rc_1".into(),
        tenant_id: TENANT.clone(),
        reseller_id: None,
        operator: None,
        run_id: "run_1".into(),
        plan_id: "plan_1".into(),
        event_id: None,
        correlation_id: "cor_1".into(),
        action: action.into(),
        value: None,
        entity_key: entity(),
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
        proposed_at: Timestamp::from_micros(1),
    };
    Claim {
        session: SessionId(1),
        ticket: None,
        asked_before: false,
        proposal: proposal.into(),
        fingerprint: Fingerprint(ContentDigest::of(b"said")),
        effect: EffectClass::Opaque,
        on_unknown: OnUnknown::Hold,
        deadline: Duration::ZERO,
        max_land: Duration::ZERO,
        clearance: Clearance::Cleared,
        on_alert: OnAlert::default(),
        limits: Vec::new(),
        on_doubt: OnDoubt::Probe,
        at: Timestamp::from_micros(2),
    }
}

fn put_key(held: &mut Held<'_>) -> Result<(), Lack> {
    let free = EntityRecord::default();
    let step = life::claim(None, &free, Turn::Free, &claim(), StoreTime(0));
    let ClaimStep::Grant { key, .. } = step else {
        panic!("not granted: {step:?}")
    };
    held.put_key(key, Change::Claimed)
}

fn put_entity(held: &mut Held<'_>) -> Result<(), Lack> {
    held.put_entity(&TENANT, &entity(), &EntityRecord::default())
}

fn append(held: &mut Held<'_>) -> Result<(), Lack> {
    held.append(Slip::Duplicate {
        proposal: Shared::clone(&claim().proposal),
        mark: AttemptMark::none(),
        original_receipt_id: "rc_0".into(),
        at: Timestamp::from_micros(3),
    })
}

fn add_waiter(held: &mut Held<'_>) -> Result<(), Lack> {
    let (session, asker) = (SessionId(1), "rc_1".to_owned());
    let waiter = Waiter { session, asker };
    held.add_waiter(&TENANT, &entity(), waiter).map(drop)
}

fn remove_waiter(held: &mut Held<'_>) -> Result<(), Lack> {
    held.remove_waiter(&TENANT, &entity(), Ticket(1))
}

/// Does this with the halls of one action at hand, and then needs all of them: how often that was
/// decided, and what it came to.
async fn decided(
    first: impl Fn(&mut Held<'_>) -> Result<(), Lack>,
) -> (u32, Result<(), StoreError>) {
    let store = MemoryStore::new(Arc::new(SystemClock::new()));
    let mut times = 0;
    let reach = Reach::of_claims(&[claim()]);
    let done = store.with(reach, |held| {
        times += 1;
        first(held)?;
        held.all().map(drop)?;
        Ok(())
    });
    let done = done.await;
    (times, done)
}

#[tokio::test]
async fn what_needs_more_before_it_wrote_is_decided_again_with_all_at_hand() {
    let look = |held: &mut Held<'_>| held.entity(&TENANT, &entity()).map(drop);
    assert_eq!(decided(look).await, (2, Ok(())));
}

/// By rules 2.1, 5.1: decided a second time, it would see what it had itself begun to write.
#[tokio::test]
async fn what_needs_more_after_it_wrote_is_refused_and_not_decided_again() {
    type Write = fn(&mut Held<'_>) -> Result<(), Lack>;
    let writes: [(&str, Write); 5] = [
        ("key", put_key),
        ("entity", put_entity),
        ("receipt", append),
        ("place", add_waiter),
        ("place back", remove_waiter),
    ];
    for (what, write) in writes {
        let (times, done) = decided(write).await;
        assert_eq!(times, 1, "{what}");
        let error = done.expect_err(what).to_string();
        assert!(error.contains("when it began to write"), "{what}: {error}");
    }
}

/// By rule 2.9: a sign of life counts wherever the session is looked at; where it did not, a living
/// holder would lose its turn.
#[tokio::test]
async fn a_heartbeat_is_known_in_every_hall() {
    const LEASE: Duration = Duration::from_mins(1);
    let store = MemoryStore::new(Arc::new(SystemClock::new()));
    let session = store.open_session("test", LEASE).await.expect("a session");
    let late = StoreTime(0).plus(Duration::from_hours(1));
    let beat = store.with(Reach::All, |held| {
        held.now = late;
        Ok(held.extend(session)?)
    });
    beat.await.expect("a beat");
    for hall in 0..HALLS {
        for (now, is_lifeless) in [(late.plus(LEASE), false), (late.plus(2 * LEASE), true)] {
            let found = store.with(Reach::Two(hall, hall), |held| {
                held.now = now;
                Ok(held.is_lifeless(session)?)
            });
            assert_eq!(found.await, Ok(is_lifeless), "hall {hall}");
        }
    }
}

/// By rules 5.1, 8.3: a caller who gave up on an answer may ask again before its first claim was
/// looked at.
#[tokio::test]
async fn a_claim_that_comes_after_it_was_asked_again_leaves_no_second_receipt() {
    let store = MemoryStore::new(Arc::new(SystemClock::new()));
    let opened = store.open_session("test", Duration::from_mins(1)).await;
    let session = opened.expect("a session");
    let ours = |receipt_id: &str, asked_before| {
        let mut ours = claim();
        ours.session = session;
        ours.asked_before = asked_before;
        ours.proposal.receipt_id = receipt_id.into();
        ours
    };
    let ask = |claim| store.claim(&TENANT, vec![claim]);
    let granted = ask(ours("rc_1", false)).await.expect("an answer").remove(0);
    let ClaimAnswer::Claimed(mark) = granted else {
        panic!("not granted: {granted:?}")
    };
    let settlement = Settlement {
        session,
        mark,
        proposal: ours("rc_1", false).proposal,
        outcome: SettledOutcome::Applied(Effect::of(serde_json::Value::Null).into()),
        result_digest: None,
        at: Timestamp::from_micros(4),
    };
    let settled = store.settle(&TENANT, vec![settlement]).await;
    settled.expect("settled");
    for asked_before in [true, false] {
        let answer = ask(ours("rc_2", asked_before)).await.expect("an answer");
        assert!(
            matches!(answer[..], [ClaimAnswer::Duplicate { .. }]),
            "{answer:?}"
        );
    }
    let kept = store.halls.trail.after(&TENANT, 0);
    let ids: Vec<&str> = kept.iter().map(|entry| entry.paper.receipt_id()).collect();
    assert_eq!(ids, ["rc_1", "rc_2"]);
}
