//! Keys: burned once, told apart, forgotten on purpose (section 3).

use std::time::Duration;

use operators_kernel::life::{Phase, downstream_key};
use operators_kernel::{
    ClaimAnswer, Clearance, Disposition, EffectClass, ForgetAnswer, Packed, Reason, ReceiptKind,
    ReceiptOutcome, Refusal, ResolveAnswer, ToolName, Verdict,
};
use serde_json::json;

use super::desk::{
    Desk, again, applied, applied_with, ask, ask_as, failed, it_happened, unheard, unknown,
};
use crate::fixtures::{entity, key, object, tenant, tenant_named};
use crate::stores::Bench;

/// By rule 3.1.
pub async fn a_burned_key_answers_with_the_original(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask("order:1", "k1");
    let done = desk.take(&claim).await;
    desk.end(&done, applied_with(json!({"held": true}))).await;
    let other = Desk::open(bench).await;
    let repeat = again(&claim);
    let original = other.duplicate(&repeat).await;
    assert_eq!(original.receipt_id, done.proposal.receipt_id);
    assert_eq!(original.applied_at, done.at);
    assert_eq!(original.result, json!({"held": true}));
    assert!(!original.written_off);
    let receipt = other.receipt(&repeat.proposal.receipt_id).await;
    assert_eq!(receipt.decision, Some(Disposition::Dedup));
    assert_eq!(receipt.outcome, Some(ReceiptOutcome::Deduplicated));
    assert!(receipt.ok && receipt.rule.is_none());
    assert_eq!((receipt.generation, receipt.attempt), (1, 1));
    let cited = receipt.original_receipt_id.expect("cites");
    assert_eq!(cited, done.proposal.receipt_id);
}

/// By rules 8.5, 5.1.
pub async fn a_duplicate_writes_its_receipt_and_no_key(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask("order:1", "k1");
    desk.run(&claim, applied()).await;
    let before = (desk.key("k1").await, desk.entity("order:1").await);
    for _ in 0..3 {
        let written = desk.trail().await.len();
        desk.duplicate(&again(&claim)).await;
        assert_eq!(desk.trail().await.len(), written + 1);
    }
    let after = (desk.key("k1").await, desk.entity("order:1").await);
    assert_eq!(before, after);
}

/// By rule 3.1: a duplicate holds nobody and waits for nobody.
pub async fn a_duplicate_takes_no_turn(bench: &dyn Bench) {
    let (desk, other) = (Desk::open(bench).await, Desk::open(bench).await);
    let claim = ask("order:1", "k1");
    desk.run(&claim, applied()).await;
    let running = other.take(&ask("order:1", "k2")).await;
    desk.duplicate(&again(&claim)).await;
    assert_eq!(desk.entity("order:1").await.holder, Some(other.session));
    other.end(&running, applied()).await;
}

/// By rule 3.2.
pub async fn a_burned_key_with_other_arguments_is_a_conflict(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let mut claim = ask("order:1", "k1");
    claim.proposal.action.args = object(json!({"order": "SO-1", "lines": [1, 2]})).into();
    claim.proposal.value = Some(250.into());
    desk.run(&claim, applied()).await;
    let burned = desk.key("k1").await;

    let mut args = again(&claim);
    args.proposal.action.args = object(json!({"order": "SO-2", "lines": [1, 3]})).into();
    let mut value = again(&claim);
    value.proposal.value = Some(251.into());
    let mut place = again(&claim);
    place.proposal.entity_key = entity("order:2");
    let mut tool = again(&claim);
    tool.proposal.action.tool = ToolName::parse("orders.release").expect("a tool");
    let cases = [
        (args, vec!["/args/lines/1", "/args/order"]),
        (value, vec!["/value"]),
        (place, vec!["/entity_key"]),
        (tool, vec!["/tool"]),
    ];
    for (claim, paths) in cases {
        let refusal = desk.refusal(&claim).await;
        assert_eq!(refusal.reason, Reason::Conflict);
        let mut found = refusal.conflict;
        found.sort();
        assert_eq!(found, paths);
        let receipt = desk.receipt(&claim.proposal.receipt_id).await;
        assert_eq!(receipt.outcome, Some(ReceiptOutcome::Refused));
        assert_eq!(receipt.decision, Some(Disposition::Block));
    }
    assert_eq!(desk.key("k1").await, burned);
}

/// By rule 3.2: the arguments bind from the intent on; on another entity no turn keeps them apart.
pub async fn a_key_in_flight_is_a_conflict_on_another_entity(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    desk.take(&ask("order:1", "k1")).await;
    let refusal = desk.refusal(&ask("order:2", "k1")).await;
    assert_eq!(refusal.reason, Reason::Conflict);
    assert_eq!(refusal.conflict, ["/entity_key"]);
    assert_eq!(desk.entity("order:2").await.holder, None);
    let mut other = ask("order:1", "k1");
    other.proposal.action.args = Packed::default();
    desk.queue(&other).await;
}

/// By rule 3.2: a doubt binds too, wherever its key turns up.
pub async fn a_key_in_doubt_with_other_arguments_is_a_conflict(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask_as(EffectClass::Idempotent, "order:1", "k1");
    desk.run(&claim, unknown()).await;
    let doubt = desk.key("k1").await;
    let mut other = again(&claim);
    other.proposal.action.args = Packed::default();
    desk.refused_as(Reason::Conflict, &other).await;
    let mut elsewhere = again(&claim);
    elsewhere.proposal.entity_key = entity("order:2");
    desk.refused_as(Reason::Conflict, &elsewhere).await;
    assert_eq!(desk.key("k1").await, doubt);
}

/// By rule 3.3.
pub async fn a_failed_key_takes_corrected_arguments(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask("order:1", "k1");
    let first = desk.run(&claim, failed()).await;
    let receipt = desk.receipt(&first.proposal.receipt_id).await;
    assert_eq!(receipt.outcome, Some(ReceiptOutcome::Failed));
    assert_eq!(receipt.error.as_deref(), Some("the vendor said no"));
    let mut corrected = ask("order:2", "k1");
    corrected.proposal.action.args = object(json!({"order": "SO-2"})).into();
    let second = desk.take(&corrected).await;
    assert_eq!((second.mark.attempt, second.mark.generation), (2, 1));
    desk.end(&second, applied()).await;
    desk.duplicate(&again(&corrected)).await;
    desk.refused_as(Reason::Conflict, &again(&claim)).await;
}

/// By rule 3.4.
pub async fn two_tenants_share_nothing(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let other = desk.of("globex");
    let claim = ask("order:1", "k1");
    desk.run(&claim, applied()).await;
    assert!(other.find("k1").await.is_none());
    assert!(other.trail().await.is_empty());
    let theirs = other.run(&again(&claim), unknown()).await;
    assert_eq!(theirs.mark.attempt, 1);
    assert_eq!(desk.key("k1").await.phase, Phase::Applied);
    assert_eq!(desk.entity("order:1").await.doubt, None);
    assert_eq!(other.trail().await.len(), 1);
    let doubts = desk.store.doubts(&desk.tenant).await.expect("shows");
    assert!(doubts.0.is_empty());
    desk.take(&ask("order:1", "k2")).await;
}

/// By rule 3.5.
pub async fn an_older_revision_is_stale(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let revised = |name: &str, revision| {
        let mut claim = ask("order:1", name);
        claim.proposal.revision = Some(revision);
        claim
    };
    desk.run(&revised("r1", 1), applied()).await;
    desk.run(&revised("r5", 5), failed()).await;
    desk.run(&revised("r3", 3), applied()).await;
    desk.refused_as(Reason::StaleRevision, &revised("r2", 2))
        .await;
    assert!(desk.find("r2").await.is_none());
    assert_eq!(desk.entity("order:1").await.revision, Some(3));
    desk.duplicate(&revised("r1", 1)).await;
    desk.run(&revised("same", 3), applied()).await;
    desk.run(&ask("order:1", "none"), applied()).await;
    assert_eq!(desk.entity("order:1").await.revision, Some(3));
}

/// By rules 1.3, 1.4.
pub async fn a_refusal_counts_only_where_nothing_happened_yet(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let blocked = |mut claim: operators_kernel::Claim| {
        let refusal = Refusal::new(Reason::Policy, "blocked by trust policy");
        claim.clearance = Clearance::Refused(refusal);
        claim
    };
    let claim = blocked(ask("order:1", "k1"));
    let refusal = desk.refusal(&claim).await;
    assert_eq!(refusal.reason, Reason::Policy);
    assert_eq!(refusal.error, "blocked by trust policy");
    assert!(desk.find("k1").await.is_none(), "no intent, no burn");
    assert_eq!(desk.entity("order:1").await.holder, None);
    let receipt = desk.receipt(&claim.proposal.receipt_id).await;
    assert_eq!((receipt.ok, receipt.attempt), (false, 0));
    assert_eq!(receipt.decision, Some(Disposition::Block));
    let allowed = ask("order:1", "k1");
    desk.run(&allowed, applied()).await;
    desk.duplicate(&blocked(again(&allowed))).await;
    let mut other = blocked(again(&allowed));
    other.proposal.action.args = Packed::default();
    desk.refused_as(Reason::Conflict, &other).await;
}

/// By rules 1.1, 1.4: also what will be refused waits for its turn.
pub async fn a_refusal_waits_for_its_turn(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let running = desk.take(&ask("order:1", "k1")).await;
    let mut blocked = ask("order:1", "k2");
    blocked.clearance = Clearance::Refused(Refusal::new(Reason::Policy, "no"));
    blocked.ticket = Some(desk.queue(&blocked).await);
    desk.end(&running, applied()).await;
    desk.refused_as(Reason::Policy, &blocked).await;
    desk.take(&ask("order:1", "k3")).await;
}

/// By rules 3.6, 3.7.
pub async fn forgetting_opens_the_next_generation_of_a_burned_key(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    assert_eq!(desk.forget("k1").await, ForgetAnswer::NotBurned(None));
    let claim = ask("order:1", "k1");
    let attempt = desk.take(&claim).await;
    let not_burned = |phase| ForgetAnswer::NotBurned(Some(phase));
    assert_eq!(desk.forget("k1").await, not_burned(Phase::Intent));
    desk.end(&attempt, failed()).await;
    assert_eq!(desk.forget("k1").await, not_burned(Phase::Failed));
    desk.run(&again(&claim), applied()).await;
    let written = desk.trail().await.len();
    assert_eq!(desk.forget("k1").await, ForgetAnswer::Forgotten(2));
    assert_eq!(desk.forget("k1").await, not_burned(Phase::Forgotten));
    let trail = desk.trail().await;
    assert_eq!(
        trail.len(),
        written + 1,
        "one receipt, for the one that did"
    );
    let receipt = trail.last().expect("a receipt");
    assert_eq!(receipt.kind, ReceiptKind::Forget);
    assert_eq!(receipt.approver.as_deref(), Some("ada"));
    assert_eq!((receipt.generation, receipt.decision), (2, None));
    let mut other = again(&claim);
    other.proposal.action.args = Packed::default();
    let second = desk.take(&other).await;
    assert_eq!((second.mark.generation, second.mark.attempt), (2, 1));
    assert_eq!(second.mark.fence.map(|fence| fence.0), Some(3));
    // A process that saw it burned may guess that this is a duplicate; the intent is whole all the same.
    assert_eq!(desk.key("k1").await.proposal, second.proposal);
    let (acme, name) = (tenant(), key("k1"));
    let one = downstream_key(&acme, &name, 1);
    assert_ne!(one, downstream_key(&acme, &name, second.mark.generation));
    assert_ne!(one, downstream_key(&tenant_named("globex"), &name, 1));
}

/// By rules 3.6, 4.11.
pub async fn a_written_off_key_can_be_forgotten_and_a_doubt_cannot(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let mut claim = ask("order:1", "k1");
    claim.deadline = Duration::ZERO;
    desk.run(&claim, unknown()).await;
    let doubt = ForgetAnswer::NotBurned(Some(Phase::InDoubt));
    assert_eq!(desk.forget("k1").await, doubt);
    let closed = desk.resolve("k1", 1, Verdict::WriteOff).await;
    assert_eq!(closed, ResolveAnswer::Resolved(Phase::WrittenOff));
    assert_eq!(desk.forget("k1").await, ForgetAnswer::Forgotten(2));
    let second = desk.take(&again(&claim)).await;
    assert_eq!((second.mark.generation, second.mark.attempt), (2, 1));
}

/// By rule 5.5.
pub async fn a_tenants_redaction_key_is_its_own_and_stays(bench: &dyn Bench) {
    let (one, two) = (Desk::open(bench).await, Desk::open(bench).await);
    let first = one.store.redaction_key(&tenant()).await.expect("a key");
    let same = two.store.redaction_key(&tenant()).await.expect("a key");
    let globex = tenant_named("globex");
    let other = one.store.redaction_key(&globex).await.expect("a key");
    assert_eq!(first.as_bytes(), same.as_bytes());
    assert_ne!(first.as_bytes(), other.as_bytes());
    assert_ne!(first.as_bytes(), &[0; 32]);
}

/// By rule 8.3.
pub async fn a_claim_asked_again_is_one_intent(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask("order:1", "k1");
    let first = desk.ask(&claim).await;
    let record = (desk.key("k1").await, desk.entity("order:1").await);
    assert!(matches!(first, ClaimAnswer::Claimed(_)), "{first:?}");
    assert_eq!(desk.ask(&claim).await, first);
    let same = (desk.key("k1").await, desk.entity("order:1").await);
    assert_eq!(record, same);
    desk.queue(&again(&claim)).await;
}

/// By rules 8.3, 5.1: what stood against it may be gone by the time it is asked again; a grant would
/// be an attempt whose receipt says that it was refused.
pub async fn a_refusal_whose_answer_was_lost_is_told_again(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    desk.run(&ask("order:1", "k1"), unknown()).await;
    let held = ask("order:1", "k2");
    let first = desk.ask(&held).await;
    let mut other_args = ask("order:1", "k1");
    other_args.proposal.action.args = Packed::default();
    let conflict = desk.ask(&other_args).await;
    desk.resolve("k1", 1, it_happened()).await;
    assert_eq!(desk.ask(&unheard(&held)).await, first);
    assert_eq!(desk.ask(&unheard(&other_args)).await, conflict);
    assert!(desk.find("k2").await.is_none(), "no intent");
    let told = desk.receipt(&held.proposal.receipt_id).await;
    assert_eq!(told.reason, Some(Reason::EntityInDoubt));
    desk.run(&again(&held), applied()).await;
    assert_eq!(desk.ask(&unheard(&held)).await, first, "nor ever after");
}

/// By rules 8.3, 3.6: a key forgotten since is free for the next proposal, not for this one.
pub async fn a_duplicate_whose_answer_was_lost_stays_one(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask("order:1", "k1");
    desk.run(&claim, applied()).await;
    let same = again(&claim);
    let original = desk.duplicate(&same).await;
    assert_eq!(desk.duplicate(&unheard(&same)).await, original);
    desk.forget("k1").await;
    desk.refused_as(Reason::InDoubt, &unheard(&same)).await;
    let told = desk.receipt(&same.proposal.receipt_id).await;
    assert_eq!(told.outcome, Some(ReceiptOutcome::Deduplicated));
    desk.run(&again(&claim), applied()).await;
}

/// By rules 8.3, 5.1: whoever lost the answer "in doubt" asks again under the same receipt; a grant
/// would leave an attempt that no receipt can tell of.
pub async fn a_claim_that_became_a_doubt_is_not_sent_again_under_its_receipt(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let keyed = EffectClass::Keyed {
        window_ms: 4 * 3_600_000,
    };
    for (name, effect) in [
        ("idempotent", EffectClass::Idempotent),
        ("keyed", keyed),
        ("opaque", EffectClass::Opaque),
    ] {
        let gone = Desk::open(bench).await;
        let claim = ask_as(effect, name, name);
        gone.take(&claim).await;
        gone.close().await;
        let doubt = desk.key(name).await;
        assert_eq!(doubt.phase, Phase::InDoubt);
        desk.refused_as(Reason::InDoubt, &claim).await;
        assert_eq!(desk.key(name).await, doubt);
        let told = desk.receipt(&claim.proposal.receipt_id).await;
        assert_eq!(told.outcome, Some(ReceiptOutcome::InDoubt));
        if effect != EffectClass::Opaque {
            desk.take(&again(&claim)).await;
        }
    }
}
