//! Sessions: how one dies, what it leaves, and that it stays dead (2.9, 4.3).

use operators_kernel::life::Phase;
use operators_kernel::{
    Beat, EffectClass, InFlight, OwnerState, Reason, ReceiptKind, ReceiptOutcome, SessionId,
    StoreError, TenantHistory,
};

use super::desk::{Desk, LONG, again, applied, ask, ask_as, failed};
use crate::fixtures::{entity, key, tenant_named};
use crate::stores::Bench;

async fn beat(desk: &Desk) -> Beat {
    let beat = desk.store.heartbeat(desk.session).await;
    beat.expect("the store answers")
}

async fn is_a_doubt_with_a_receipt(desk: &Desk, name: &str, receipt_id: &str) {
    assert_eq!(desk.key(name).await.phase, Phase::InDoubt);
    assert_eq!(desk.key(name).await.open_attempts, [1]);
    let receipt = desk.receipt(receipt_id).await;
    assert_eq!(receipt.kind, ReceiptKind::Proposal);
    assert_eq!(receipt.outcome, Some(ReceiptOutcome::InDoubt));
    assert_eq!(receipt.attempt, 1);
}

/// By rules 2.9, 4.3: whoever wants the entity finds out.
pub async fn a_lapsed_holder_loses_its_turn_and_leaves_a_doubt(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let gone = Desk::lasting(bench, bench.unit()).await;
    let attempt = gone.take(&ask("order:1", "k1")).await;
    bench.wait(bench.unit() * 2).await;
    desk.refused_as(Reason::EntityInDoubt, &ask("order:1", "k2"))
        .await;
    let receipt_id = &attempt.proposal.receipt_id;
    is_a_doubt_with_a_receipt(&desk, "k1", receipt_id).await;
    assert_eq!(beat(&gone).await, Beat::Dead);
}

/// By rules 2.9, 4.3: a heartbeat finds out too, whatever its session wants.
pub async fn a_heartbeat_declares_the_lapsed_dead(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let gone = Desk::lasting(bench, bench.unit()).await;
    let attempt = gone.take(&ask("order:1", "k1")).await;
    bench.wait(bench.unit() * 2).await;
    assert_eq!(beat(&desk).await, Beat::Alive);
    let receipt_id = &attempt.proposal.receipt_id;
    is_a_doubt_with_a_receipt(&desk, "k1", receipt_id).await;
    assert_eq!(beat(&gone).await, Beat::Dead);
    assert_eq!(desk.trail().await.len(), 1, "one death, one receipt");
}

/// By rules 2.9, 4.3: and so does whoever comes new.
pub async fn opening_a_session_declares_the_lapsed_dead(bench: &dyn Bench) {
    let gone = Desk::lasting(bench, bench.unit()).await;
    let attempt = gone.take(&ask("order:1", "k1")).await;
    bench.wait(bench.unit() * 2).await;
    let desk = Desk::open(bench).await;
    assert_ne!(desk.session, gone.session);
    let receipt_id = &attempt.proposal.receipt_id;
    is_a_doubt_with_a_receipt(&desk, "k1", receipt_id).await;
}

/// By rules 2.9, 4.3.
pub async fn a_closed_session_leaves_its_doubts_at_once(bench: &dyn Bench) {
    let (gone, desk) = (Desk::open(bench).await, Desk::open(bench).await);
    let left = gone.take(&ask("order:1", "k1")).await;
    gone.run(&ask("order:2", "k2"), applied()).await;
    gone.of("globex").take(&ask("order:1", "k1")).await;
    let mine = desk.take(&ask("order:3", "k3")).await;
    gone.close().await;
    is_a_doubt_with_a_receipt(&desk, "k1", &left.proposal.receipt_id).await;
    assert_eq!(desk.key("k2").await.phase, Phase::Applied);
    assert_eq!(desk.key("k3").await.phase, Phase::Intent);
    assert_eq!(desk.of("globex").key("k1").await.phase, Phase::InDoubt);
    gone.close().await;
    assert_eq!(desk.trail().await.len(), 2, "a death is told once");
    desk.end(&mine, applied()).await;
}

/// By rule 2.9: fenced for ever.
pub async fn a_dead_session_is_fenced(bench: &dyn Bench) {
    let gone = Desk::open(bench).await;
    let attempt = gone.take(&ask("order:1", "k1")).await;
    gone.close().await;
    assert_eq!(beat(&gone).await, Beat::Dead);
    let dead = |error: StoreError| {
        let named =
            matches!(&error, StoreError::SessionDead { session, .. } if *session == gone.session);
        assert!(named && !error.is_retryable(), "{error}");
    };
    dead(
        gone.try_ask(&ask("order:2", "k2"))
            .await
            .expect_err("claims"),
    );
    assert!(gone.find("k2").await.is_none());
    assert_eq!(gone.entity("order:2").await.holder, None);
    let passed = gone
        .store
        .pass(
            &gone.tenant,
            &entity("order:2"),
            gone.session,
            "rc_read",
            None,
        )
        .await;
    dead(passed.expect_err("reads"));
    // Its own attempt it may still tell of.
    gone.end(&attempt, failed()).await;
    assert_eq!(gone.key("k1").await.phase, Phase::Failed);
}

/// By rule 2.9.
pub async fn a_session_nobody_opened_is_dead(bench: &dyn Bench) {
    let mut desk = Desk::open(bench).await;
    desk.session = SessionId(desk.session.0 + 1_000);
    assert_eq!(beat(&desk).await, Beat::Dead);
    let refused = desk.try_ask(&ask("order:1", "k1")).await;
    assert!(
        matches!(refused, Err(StoreError::SessionDead { .. })),
        "{refused:?}"
    );
}

/// By rule 2.9: whoever shows life keeps its turn, however long its call takes.
pub async fn a_heartbeat_keeps_the_turn(bench: &dyn Bench) {
    // Long beside a call, even on a machine with other things to do.
    let lease = bench.unit() * 25;
    let desk = Desk::open(bench).await;
    let holder = Desk::lasting(bench, lease).await;
    let attempt = holder.take(&ask("order:1", "k1")).await;
    let waiting = ask("order:1", "k2");
    for _ in 0..6 {
        bench.wait(bench.unit() * 5).await;
        assert_eq!(beat(&holder).await, Beat::Alive);
        desk.queue(&waiting).await;
    }
    let answer = holder.end(&attempt, applied()).await;
    assert_eq!(answer.phase, Phase::Applied);
}

/// By rules 2.1, 2.9: whoever asks is alive; its own question must not bury it and then be granted to
/// a dead session.
pub async fn a_question_does_not_bury_whoever_asks(bench: &dyn Bench) {
    let desk = Desk::lasting(bench, bench.unit()).await;
    let claim = ask_as(EffectClass::Idempotent, "order:1", "k1");
    desk.take(&claim).await;
    let queued = ask("order:1", "k2");
    desk.queue(&queued).await;
    bench.wait(bench.unit() * 2).await;
    desk.queue(&again(&claim)).await;
    desk.queue(&ask("order:1", "k3")).await;
    assert_eq!(desk.key("k1").await.phase, Phase::Intent);
    assert_eq!(beat(&desk).await, Beat::Alive);
}

/// By rule 2.1: sessions of one process are as strange to each other as those of two.
pub async fn two_sessions_of_one_handle_take_turns(bench: &dyn Bench) {
    let one = Desk::open(bench).await;
    let mut two = one.clone();
    let opened = one.store.open_session("test", LONG).await;
    two.session = opened.expect("a session");
    assert_ne!(one.session, two.session);
    let held = one.take(&ask("order:1", "k1")).await;
    two.queue(&ask("order:1", "k2")).await;
    two.close().await;
    one.end(&held, applied()).await;
    one.take(&ask("order:1", "k3")).await;
}

async fn in_flight(desk: &Desk) -> Vec<InFlight> {
    let found = desk.store.in_flight(&desk.tenant).await;
    found.expect("the store shows").0
}

async fn declares_dead(desk: &Desk, name: &str) -> bool {
    let name = key(name);
    let declared = desk.store.declare_owner_dead(&desk.tenant, &name).await;
    declared.expect("the store answers")
}

/// By rule 4.14: with its owner, and without writing anything.
pub async fn an_attempt_in_flight_is_shown_with_its_owner(bench: &dyn Bench) {
    let (desk, holder) = (Desk::open(bench).await, Desk::open(bench).await);
    assert_eq!(in_flight(&desk).await, []);
    let attempt = holder.take(&ask("order:1", "k1")).await;
    holder.of("globex").take(&ask("order:1", "k2")).await;
    let found = in_flight(&desk).await;
    assert_eq!(found.len(), 1, "another tenant's are its own: {found:?}");
    assert_eq!(found[0].key, desk.key("k1").await);
    assert_eq!(found[0].key.session, holder.session);
    assert_eq!((found[0].node.as_str(), found[0].lease), ("test", LONG));
    assert_ne!(found[0].owner, OwnerState::Gone);
    assert_eq!(desk.trail().await, []);
    assert!(!declares_dead(&desk, "k1").await, "it is alive");
    assert_eq!(desk.key("k1").await.phase, Phase::Intent);
    holder.end(&attempt, applied()).await;
    assert_eq!(in_flight(&desk).await, []);
    assert!(declares_dead(&desk, "k1").await, "nothing is in flight");
    assert_eq!(desk.key("k1").await.phase, Phase::Applied);
    assert!(declares_dead(&desk, "k9").await, "nobody claimed it");
}

/// By rules 4.14, 4.3, 2.9: looking does not bury it, and whoever answers may.
pub async fn an_owner_without_a_sign_of_life_is_gone_until_it_is_declared_dead(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let gone = Desk::lasting(bench, bench.unit() * 10).await;
    let left = gone.take(&ask("order:1", "k1")).await;
    let other = gone.take(&ask("order:2", "k2")).await;
    for one in in_flight(&desk).await {
        assert_ne!(one.owner, OwnerState::Gone, "its lease runs");
    }
    bench.wait(bench.unit() * 11).await;
    let found = in_flight(&desk).await;
    let names: Vec<_> = found
        .iter()
        .map(|one| (one.key.proposal.idempotency_key.as_str(), one.owner))
        .collect();
    assert_eq!(names, [("k1", OwnerState::Gone), ("k2", OwnerState::Gone)]);
    assert_eq!(desk.key("k1").await.phase, Phase::Intent);
    assert_eq!(desk.trail().await, []);
    assert!(declares_dead(&desk, "k1").await);
    is_a_doubt_with_a_receipt(&desk, "k1", &left.proposal.receipt_id).await;
    is_a_doubt_with_a_receipt(&desk, "k2", &other.proposal.receipt_id).await;
    assert_eq!(in_flight(&desk).await, []);
    assert!(declares_dead(&desk, "k1").await);
    assert_eq!(desk.trail().await.len(), 2, "a death is told once");
    assert_eq!(beat(&gone).await, Beat::Dead);
}

/// By rule 8.7: a name that is mistyped is told from one that is known.
pub async fn a_store_knows_whose_it_ever_held(bench: &dyn Bench) {
    let history = async |desk: &Desk, name: &str| {
        let found = desk.store.history_of(&tenant_named(name)).await;
        found.expect("the store shows")
    };
    let store = bench.open().await;
    let fresh = store.history_of(&tenant_named("acme")).await;
    assert_eq!(fresh, Ok(TenantHistory::EmptyStore));
    let desk = Desk::open(bench).await;
    let (acme, globex) = (desk.of("acme"), desk.of("globex"));
    // Another process that is starting wrote nothing of anybody's.
    assert_eq!(history(&desk, "acme").await, TenantHistory::EmptyStore);
    let attempt = acme.take(&ask("order:1", "k1")).await;
    assert_eq!(history(&desk, "acme").await, TenantHistory::Known);
    assert_eq!(history(&desk, "acne").await, TenantHistory::OnlyOthers);
    acme.end(&attempt, applied()).await;
    assert_eq!(history(&desk, "acme").await, TenantHistory::Known);
    assert_eq!(history(&desk, "globex").await, TenantHistory::OnlyOthers);
    globex.run(&ask("order:1", "k1"), failed()).await;
    assert_eq!(history(&desk, "globex").await, TenantHistory::Known);
    assert_eq!(history(&desk, "acne").await, TenantHistory::OnlyOthers);
}
