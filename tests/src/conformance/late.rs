//! Late answers: the truth about an attempt, whenever it comes (4.9, 4.10).

use std::time::Duration;

use operators_kernel::life::Phase;
use operators_kernel::{
    Claim, EffectClass, ForgetAnswer, OnUnknown, Reason, Receipt, ReceiptKind, ReceiptOutcome,
    ResolveAnswer, SettleAnswer, SettledOutcome, Settlement, Verdict,
};

use super::desk::{Desk, again, applied, ask, ask_as, failed, it_happened, unknown};
use crate::stores::Bench;

/// An attempt on `order:1` whose owner was taken for dead: `k1` is in doubt and can no longer land.
pub(super) async fn orphan(bench: &dyn Bench, claim: &Claim) -> (Desk, Settlement) {
    let gone = Desk::open(bench).await;
    let attempt = gone.take(claim).await;
    gone.close().await;
    assert_eq!(gone.key("k1").await.phase, Phase::InDoubt);
    (gone, attempt)
}

pub(super) fn quick(effect: EffectClass) -> Claim {
    let mut claim = ask_as(effect, "order:1", "k1");
    claim.deadline = Duration::ZERO;
    claim
}

/// Settles late and checks that one correction, and only that, tells of it.
async fn tell(
    gone: &Desk,
    attempt: &Settlement,
    outcome: SettledOutcome,
) -> (SettleAnswer, Receipt) {
    let before = gone.trail().await;
    let answer = gone.end(attempt, outcome).await;
    let after = gone.trail().await;
    assert_eq!(after[..before.len()], before[..], "nothing is edited");
    assert_eq!(after.len(), before.len() + 1, "one correction");
    let correction = after.last().expect("a correction").clone();
    assert_eq!(correction.kind, ReceiptKind::Correction);
    let cited = correction.original_receipt_id.as_deref();
    assert_eq!(cited, Some(attempt.proposal.receipt_id.as_str()));
    is_told_in(&answer.receipt_id, attempt, &correction);
    assert_ne!(correction.receipt_id, attempt.proposal.receipt_id);
    assert_eq!(correction.attempt, attempt.mark.attempt);
    (answer, correction)
}

/// The answer names the correction; a failure told before may be named by its first receipt, which
/// the correction cites.
pub(super) fn is_told_in(receipt_id: &str, attempt: &Settlement, correction: &Receipt) {
    let failed = correction.outcome == Some(ReceiptOutcome::Failed);
    let first = failed && receipt_id == attempt.proposal.receipt_id;
    assert!(first || receipt_id == correction.receipt_id, "{receipt_id}");
}

/// By rules 4.9, 5.7.
pub async fn a_late_applied_burns_a_key_in_doubt(bench: &dyn Bench) {
    let claim = quick(EffectClass::Opaque);
    let (gone, attempt) = orphan(bench, &claim).await;
    let (answer, correction) = tell(&gone, &attempt, applied()).await;
    assert_eq!(
        (answer.phase, answer.double_applied),
        (Phase::Applied, false)
    );
    assert_eq!(correction.outcome, Some(ReceiptOutcome::Applied));
    let desk = Desk::open(bench).await;
    let original = desk.duplicate(&again(&claim)).await;
    assert_eq!(original.receipt_id, correction.receipt_id);
    desk.take(&ask("order:1", "k2")).await;
}

/// By rule 4.9.
pub async fn a_late_not_applied_frees_a_key_in_doubt(bench: &dyn Bench) {
    let (gone, attempt) = orphan(bench, &ask("order:1", "k1")).await;
    let (answer, correction) = tell(&gone, &attempt, failed()).await;
    assert_eq!(answer.phase, Phase::Failed);
    assert_eq!(correction.outcome, Some(ReceiptOutcome::Failed));
    let desk = Desk::open(bench).await;
    let second = desk.take(&ask("order:1", "k1")).await;
    assert_eq!(second.mark.attempt, 2);
}

/// By rules 4.1, 4.9: "not known" is what was known already.
pub async fn a_late_unknown_adds_nothing(bench: &dyn Bench) {
    let (gone, attempt) = orphan(bench, &ask("order:1", "k1")).await;
    let before = (gone.key("k1").await, gone.trail().await);
    let answer = gone.end(&attempt, unknown()).await;
    assert_eq!(answer.phase, Phase::InDoubt);
    assert_eq!(before, (gone.key("k1").await, gone.trail().await));
}

/// By rule 4.9.
pub async fn a_late_applied_corrects_a_person_who_said_no(bench: &dyn Bench) {
    let claim = quick(EffectClass::Opaque);
    let (gone, attempt) = orphan(bench, &claim).await;
    let desk = Desk::open(bench).await;
    let told = desk.resolve("k1", 1, Verdict::NotApplied).await;
    assert_eq!(told, ResolveAnswer::Resolved(Phase::Failed));
    let (answer, _) = tell(&gone, &attempt, applied()).await;
    assert_eq!(
        (answer.phase, answer.double_applied),
        (Phase::Applied, false)
    );
    desk.duplicate(&again(&claim)).await;
}

/// By rules 3.2, 4.9: the key was taken for free, and something else was tried under it; then the
/// first attempt turns out to have happened. The key is burned by that, not by what was tried since.
pub async fn a_late_applied_binds_the_key_to_what_took_effect(bench: &dyn Bench) {
    let first = quick(EffectClass::Opaque);
    let (gone, attempt, desk, corrected) = corrected_since(bench, &first).await;
    desk.run(&corrected, failed()).await;
    let (answer, _) = tell(&gone, &attempt, applied()).await;
    assert_eq!(answer.phase, Phase::Applied);
    is_burned_by(&desk, &first, &corrected).await;
}

/// By rules 3.2, 4.9: the same while what was tried since is still on its way, however it ends.
pub async fn a_late_applied_binds_the_key_once_a_later_attempt_is_over(bench: &dyn Bench) {
    let first = quick(EffectClass::Opaque);
    let (gone, attempt, desk, corrected) = corrected_since(bench, &first).await;
    let later = Desk::open(bench).await;
    later.take(&corrected).await;
    let (answer, _) = tell(&gone, &attempt, applied()).await;
    assert_eq!(answer.phase, Phase::Intent);
    later.close().await;
    is_burned_by(&desk, &first, &corrected).await;
}

/// An attempt whose owner was taken for dead and which a person said did not happen, and a claim of
/// the same key that says something else.
async fn corrected_since(bench: &dyn Bench, first: &Claim) -> (Desk, Settlement, Desk, Claim) {
    let (gone, attempt) = orphan(bench, first).await;
    let desk = Desk::open(bench).await;
    desk.resolve("k1", 1, Verdict::NotApplied).await;
    (gone, attempt, desk, ask("order:2", "k1"))
}

async fn is_burned_by(desk: &Desk, applied: &Claim, other: &Claim) {
    assert_eq!(desk.key("k1").await.phase, Phase::Applied);
    desk.duplicate(&again(applied)).await;
    let refusal = desk.refusal(&again(other)).await;
    assert_eq!(refusal.reason, Reason::Conflict);
    assert_eq!(refusal.conflict, ["/entity_key"]);
}

/// By rules 4.9, 4.11.
pub async fn a_late_applied_lifts_a_write_off(bench: &dyn Bench) {
    let claim = quick(EffectClass::Opaque);
    let (gone, attempt) = orphan(bench, &claim).await;
    gone.resolve("k1", 1, Verdict::WriteOff).await;
    let (answer, _) = tell(&gone, &attempt, applied()).await;
    assert_eq!(
        (answer.phase, answer.double_applied),
        (Phase::Applied, false)
    );
    let desk = Desk::open(bench).await;
    assert!(!desk.duplicate(&again(&claim)).await.written_off);
}

/// By rules 4.9, 4.11: never run again stays never run again.
pub async fn a_late_not_applied_leaves_a_write_off(bench: &dyn Bench) {
    let claim = quick(EffectClass::Opaque);
    let (gone, attempt) = orphan(bench, &claim).await;
    gone.resolve("k1", 1, Verdict::WriteOff).await;
    let (answer, _) = tell(&gone, &attempt, failed()).await;
    assert_eq!(answer.phase, Phase::WrittenOff);
    let desk = Desk::open(bench).await;
    assert!(desk.duplicate(&again(&claim)).await.written_off);
}

/// By rules 4.9, 4.10: one attempt, told twice, is one effect.
pub async fn a_late_applied_agrees_with_a_person_who_saw_it(bench: &dyn Bench) {
    let claim = quick(EffectClass::Opaque);
    let (gone, attempt) = orphan(bench, &claim).await;
    gone.resolve("k1", 1, it_happened()).await;
    let burned = gone.key("k1").await;
    let (answer, _) = tell(&gone, &attempt, applied()).await;
    assert_eq!(
        (answer.phase, answer.double_applied),
        (Phase::Applied, false)
    );
    assert_eq!(gone.key("k1").await, burned, "the first telling stays");
}

/// By rule 4.9: a burned key stays burned, whatever an owner says.
pub async fn a_late_not_applied_unburns_nothing(bench: &dyn Bench) {
    let claim = quick(EffectClass::Opaque);
    let (gone, attempt) = orphan(bench, &claim).await;
    gone.resolve("k1", 1, it_happened()).await;
    let (answer, _) = tell(&gone, &attempt, failed()).await;
    assert_eq!(answer.phase, Phase::Applied);
    let desk = Desk::open(bench).await;
    desk.duplicate(&again(&claim)).await;
}

/// By rules 4.9, 4.10.
pub async fn two_applied_attempts_are_raised(bench: &dyn Bench) {
    let claim = quick(EffectClass::Opaque);
    let (gone, attempt) = orphan(bench, &claim).await;
    let desk = Desk::open(bench).await;
    desk.resolve("k1", 1, Verdict::NotApplied).await;
    let second = desk.take(&again(&claim)).await;
    let (answer, correction) = tell(&gone, &attempt, applied()).await;
    // The second is on its way: its own end closes the key, and its turn stays its own.
    assert_eq!(
        (answer.phase, answer.double_applied),
        (Phase::Intent, false)
    );
    assert_eq!(desk.entity("order:1").await.holder, Some(desk.session));
    desk.queue(&ask("order:1", "k2")).await;
    let answer = desk.end(&second, applied()).await;
    assert_eq!(
        (answer.phase, answer.double_applied),
        (Phase::Applied, true)
    );
    let receipt = desk.receipt(&second.proposal.receipt_id).await;
    let note = receipt.note.expect("a note");
    assert!(note.starts_with("double_applied"), "{note}");
    assert!(correction.note.is_none());
}

/// By rules 4.9, 4.10: the same, told the other way round.
pub async fn a_late_applied_after_the_next_attempt_is_raised(bench: &dyn Bench) {
    let claim = quick(EffectClass::Opaque);
    let (gone, attempt) = orphan(bench, &claim).await;
    let desk = Desk::open(bench).await;
    desk.resolve("k1", 1, Verdict::NotApplied).await;
    let second = desk.run(&again(&claim), applied()).await;
    let (answer, correction) = tell(&gone, &attempt, applied()).await;
    assert_eq!(
        (answer.phase, answer.double_applied),
        (Phase::Applied, true)
    );
    let note = correction.note.expect("a note");
    assert!(note.starts_with("double_applied"), "{note}");
    let original = desk.duplicate(&again(&claim)).await;
    assert_eq!(original.receipt_id, second.proposal.receipt_id);
}

/// By rule 4.10.
pub async fn two_applied_attempts_of_a_repeatable_tool_are_one(bench: &dyn Bench) {
    let keyed = EffectClass::Keyed {
        window_ms: 4 * 3_600_000,
    };
    for effect in [keyed, EffectClass::Idempotent] {
        let desk = Desk::open(bench).await;
        let name = effect.as_str();
        let mut claim = ask_as(effect, name, name);
        claim.deadline = Duration::ZERO;
        let first = desk.run(&claim, unknown()).await;
        desk.run(&again(&claim), applied()).await;
        let answer = desk.end(&first, applied()).await;
        assert_eq!(
            (answer.phase, answer.double_applied),
            (Phase::Applied, false)
        );
    }
    let desk = Desk::open(bench).await;
    let mut claim = ask("retry", "retry");
    claim.on_unknown = OnUnknown::Retry;
    let first = desk.run(&claim, unknown()).await;
    desk.run(&again(&claim), applied()).await;
    let answer = desk.end(&first, applied()).await;
    assert!(answer.double_applied, "at-least-once says so when it was");
}

/// By rules 4.7, 4.9: what an earlier attempt did outlives a later one's failure.
pub async fn a_running_attempt_cannot_undo_a_late_applied(bench: &dyn Bench) {
    for (name, outcome) in [("failed", failed()), ("unknown", unknown())] {
        let desk = Desk::open(bench).await;
        let claim = ask_as(EffectClass::Idempotent, name, name);
        let first = desk.run(&claim, unknown()).await;
        let second = desk.take(&again(&claim)).await;
        let late = desk.end(&first, applied()).await;
        assert_eq!(late.phase, Phase::Intent);
        let answer = desk.end(&second, outcome).await;
        assert_eq!(
            (answer.phase, answer.double_applied),
            (Phase::Applied, false)
        );
        let original = desk.duplicate(&again(&claim)).await;
        assert_eq!(original.receipt_id, late.receipt_id);
    }
}

/// By rules 4.7, 4.9: with the first attempt's answer the second's failure counts.
pub async fn a_late_not_applied_lets_a_failed_resend_free_the_key(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask_as(EffectClass::Idempotent, "order:1", "k1");
    let first = desk.run(&claim, unknown()).await;
    let second = desk.run(&again(&claim), failed()).await;
    assert_eq!(second.mark.attempt, 2);
    assert_eq!(desk.key("k1").await.phase, Phase::InDoubt);
    let (answer, _) = tell(&desk, &first, failed()).await;
    assert_eq!(answer.phase, Phase::Failed);
    assert_eq!(desk.entity("order:1").await.doubt, None);
    desk.take(&ask("order:1", "k2")).await;
}

/// By rules 3.6, 4.9, 4.10: an old generation's answer is told, and moves nothing.
pub async fn a_late_answer_of_an_old_generation_moves_nothing(bench: &dyn Bench) {
    for outcome in [applied(), failed()] {
        let took_effect = matches!(outcome, SettledOutcome::Applied(_));
        let name = if took_effect { "applied" } else { "failed" };
        let mut claim = ask(name, name);
        claim.deadline = Duration::ZERO;
        let gone = Desk::open(bench).await;
        let attempt = gone.take(&claim).await;
        gone.close().await;
        let desk = Desk::open(bench).await;
        desk.resolve(name, 1, Verdict::WriteOff).await;
        assert_eq!(desk.forget(name).await, ForgetAnswer::Forgotten(2));
        let second = desk.take(&again(&claim)).await;
        let before = (desk.key(name).await, desk.entity(name).await);
        let (answer, correction) = tell(&gone, &attempt, outcome).await;
        assert_eq!(
            (answer.phase, answer.double_applied),
            (Phase::Intent, took_effect)
        );
        assert_eq!(correction.generation, 1);
        assert_eq!(before, (desk.key(name).await, desk.entity(name).await));
        desk.end(&second, applied()).await;
        assert_eq!(desk.key(name).await.phase, Phase::Applied);
    }
}

/// By rules 3.5, 4.9: the key was tried on another entity since; what happened is the newest where it
/// happened.
pub async fn a_late_applied_counts_on_the_entity_it_was_on(bench: &dyn Bench) {
    let revised = |mut claim: Claim, revision| {
        claim.proposal.revision = Some(revision);
        claim
    };
    let first = revised(quick(EffectClass::Opaque), 5);
    let (gone, attempt, desk, corrected) = corrected_since(bench, &first).await;
    desk.run(&revised(corrected, 2), failed()).await;
    let held = desk.take(&revised(ask("order:1", "k2"), 4)).await;
    tell(&gone, &attempt, applied()).await;
    assert_eq!(desk.entity("order:1").await.revision, Some(5));
    assert_eq!(desk.entity("order:1").await.holder, Some(desk.session));
    assert_eq!(desk.entity("order:2").await.revision, None);
    desk.end(&held, failed()).await;
    let stale = revised(ask("order:1", "k3"), 4);
    desk.refused_as(Reason::StaleRevision, &stale).await;
    desk.run(&revised(ask("order:1", "k4"), 6), applied()).await;
    desk.run(&revised(ask("order:2", "k5"), 1), applied()).await;
}

/// By rules 2.1, 4.9: a late answer gives up no turn but its own.
pub async fn a_late_answer_does_not_release_anothers_turn(bench: &dyn Bench) {
    let claim = quick(EffectClass::Opaque);
    let (gone, attempt) = orphan(bench, &claim).await;
    let desk = Desk::open(bench).await;
    desk.resolve("k1", 1, it_happened()).await;
    desk.take(&ask("order:1", "k2")).await;
    gone.end(&attempt, failed()).await;
    let held = desk.entity("order:1").await;
    assert_eq!(held.holder, Some(desk.session));
    let other = Desk::open(bench).await;
    other.queue(&ask("order:1", "k3")).await;
    assert!(!matches!(
        other.resolve("k2", 1, Verdict::WriteOff).await,
        ResolveAnswer::Resolved(_)
    ));
    desk.refused_as(Reason::Conflict, &ask("order:7", "k2"))
        .await;
}
