//! Settlements that are asked again because their answer was lost: they change nothing (8.3).

use operators_kernel::life::Phase;
use operators_kernel::{EffectClass, ForgetAnswer, SettleAnswer, SettledOutcome, Settlement};

use super::desk::{Desk, again, applied, ask, ask_as, failed, unknown};
use super::late::{is_told_in, orphan, quick};
use crate::stores::Bench;

/// By rule 8.3.
pub async fn a_settlement_asked_again_changes_nothing(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    for (name, outcome) in [("a", applied()), ("b", failed()), ("c", unknown())] {
        let attempt = desk.take(&ask(name, name)).await;
        let first = desk.end(&attempt, outcome.clone()).await;
        asked_again(&desk, name, &attempt, outcome, &first).await;
    }
}

/// By rules 8.3, 4.7.
pub async fn a_failed_resend_asked_again_changes_nothing(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask_as(EffectClass::Idempotent, "order:1", "k1");
    desk.run(&claim, unknown()).await;
    let second = desk.take(&again(&claim)).await;
    let first = desk.end(&second, failed()).await;
    assert_eq!(first.phase, Phase::InDoubt);
    asked_again(&desk, "k1", &second, failed(), &first).await;
    let third = desk.take(&again(&claim)).await;
    let written = desk.trail().await.len();
    desk.end(&second, failed()).await;
    assert_eq!(desk.trail().await.len(), written, "told already");
    desk.end(&third, applied()).await;
}

/// By rules 8.3, 4.9.
pub async fn a_late_answer_asked_again_changes_nothing(bench: &dyn Bench) {
    for (name, outcome) in [("a", applied()), ("b", failed())] {
        let gone = Desk::open(bench).await;
        let attempt = gone.take(&ask(name, name)).await;
        gone.close().await;
        let first = gone.end(&attempt, outcome.clone()).await;
        asked_again(&gone, name, &attempt, outcome, &first).await;
    }
}

/// By rules 8.3, 3.6: its key was forgotten before it was asked again, and used anew or not; that is no
/// second effect.
pub async fn a_settlement_of_a_forgotten_key_asked_again_changes_nothing(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    for name in ["a", "b"] {
        let claim = ask(name, name);
        let failed_first = desk.run(&claim, failed()).await;
        let then_applied = desk.run(&again(&claim), applied()).await;
        assert_eq!(desk.forget(name).await, ForgetAnswer::Forgotten(2));
        if name == "b" {
            desk.run(&again(&claim), applied()).await;
        }
        for (attempt, outcome) in [(&failed_first, failed()), (&then_applied, applied())] {
            let before = (desk.key(name).await, desk.entity(name).await);
            let written = desk.trail().await;
            let answer = desk.end(attempt, outcome.clone()).await;
            assert_eq!(answer.receipt_id, attempt.proposal.receipt_id);
            assert!(!answer.double_applied, "{name}: {outcome:?}");
            assert_eq!(answer.error.is_some(), outcome == failed());
            assert_eq!(before, (desk.key(name).await, desk.entity(name).await));
            assert_eq!(desk.trail().await, written, "{name}: {outcome:?}");
        }
    }
}

/// By rules 8.3, 3.6, 4.9: the same of an answer that came late in the first place.
pub async fn a_late_answer_of_a_forgotten_key_asked_again_changes_nothing(bench: &dyn Bench) {
    let claim = quick(EffectClass::Opaque);
    let (gone, attempt) = orphan(bench, &claim).await;
    let first = gone.end(&attempt, applied()).await;
    assert_eq!(gone.forget("k1").await, ForgetAnswer::Forgotten(2));
    let before = (gone.key("k1").await, gone.trail().await);
    let second = gone.end(&attempt, applied()).await;
    assert_eq!(second.receipt_id, first.receipt_id);
    assert!(!second.double_applied);
    assert_eq!(before, (gone.key("k1").await, gone.trail().await));
}

async fn asked_again(
    desk: &Desk,
    name: &str,
    attempt: &Settlement,
    outcome: SettledOutcome,
    first: &SettleAnswer,
) {
    let before = (desk.key(name).await, desk.entity(name).await);
    let written = desk.trail().await;
    let mut second = desk.end(attempt, outcome).await;
    is_told_in(
        &second.receipt_id,
        attempt,
        &desk.receipt(&first.receipt_id).await,
    );
    second.receipt_id.clone_from(&first.receipt_id);
    assert_eq!(&second, first, "{name}");
    assert_eq!(before, (desk.key(name).await, desk.entity(name).await));
    assert_eq!(desk.trail().await, written, "{name}");
}
