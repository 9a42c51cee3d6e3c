//! Doubts: what holds an entity, and the few things that end it (section 4).

use std::time::Duration;

use operators_kernel::life::Phase;
use operators_kernel::{
    Claim, ClaimAnswer, Effect, EffectClass, OnDoubt, OnUnknown, Packed, RESULT_BYTES_MAX, Reason,
    ReceiptKind, ReceiptOutcome, ResolveAnswer, Resolver, Verdict, json,
};
use serde_json::json;

use super::desk::{
    Desk, LONG, again, applied, ask, ask_as, ask_brief, failed, it_happened, unknown,
};
use crate::stores::Bench;

const KEYED: EffectClass = EffectClass::Keyed {
    window_ms: 4 * 3_600_000,
};

/// A key that was `Unknown` once, on `order:1`.
async fn doubt(desk: &Desk, claim: &Claim) {
    desk.run(claim, unknown()).await;
    assert_eq!(desk.key("k1").await.phase, Phase::InDoubt);
}

/// By rules 4.1, 4.2.
pub async fn an_unknown_outcome_holds_the_entity(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask("order:1", "k1");
    let attempt = desk.take(&claim).await;
    let answer = desk.end(&attempt, unknown()).await;
    assert_eq!(answer.error.as_deref(), Some("the answer was lost"));
    let receipt = desk.receipt(&attempt.proposal.receipt_id).await;
    assert_eq!(receipt.outcome, Some(ReceiptOutcome::InDoubt));
    assert!(!receipt.ok);
    let other = Desk::open(bench).await;
    other.refused_as(Reason::InDoubt, &again(&claim)).await;
    let held = other.refusal(&ask("order:1", "k2")).await;
    assert_eq!(held.reason, Reason::EntityInDoubt);
    let hint = held.hint.unwrap_or_default();
    assert!(hint.contains("`k1`"), "{hint}");
    assert!(other.find("k2").await.is_none());
    other.take(&ask("order:2", "k3")).await;
    let (doubts, _) = other.store.doubts(&other.tenant).await.expect("shows");
    let names: Vec<_> = doubts
        .iter()
        .map(|doubt| doubt.proposal.idempotency_key.as_str())
        .collect();
    assert_eq!(names, ["k1"]);
}

/// By rule 4.4.
pub async fn time_alone_ends_no_doubt(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let mut claim = ask("order:1", "k1");
    claim.deadline = Duration::ZERO;
    doubt(&desk, &claim).await;
    let before = desk.key("k1").await;
    bench.wait(bench.unit() * 2).await;
    let beat = desk.store.heartbeat(desk.session).await;
    beat.expect("beats");
    desk.refused_as(Reason::InDoubt, &again(&claim)).await;
    desk.refused_as(Reason::EntityInDoubt, &ask("order:1", "k2"))
        .await;
    assert_eq!(desk.key("k1").await, before);
}

/// By rule 4.5.
pub async fn a_keyed_doubt_is_sent_again_inside_its_window(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask_as(KEYED, "order:1", "k1");
    doubt(&desk, &claim).await;
    let first = desk.key("k1").await;
    let second = desk.take(&again(&claim)).await;
    assert_eq!((second.mark.generation, second.mark.attempt), (1, 2));
    let running = desk.key("k1").await;
    assert_eq!(running.first_intent_at, first.first_intent_at);
    assert_eq!(running.open_attempts, [1]);
    desk.end(&second, applied()).await;
    assert_eq!(desk.entity("order:1").await.doubt, None);
    // The vendor makes the two one, so nothing has to be waited for.
    desk.take(&ask("order:1", "k2")).await;
}

/// By rule 4.5: the window is the first attempt's, and a tenth of it is left.
pub async fn a_keyed_doubt_is_not_sent_again_past_its_window(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    // Long beside a call, even on a machine with other things to do.
    let (window, nearly_all) = (bench.unit() * 50, bench.unit() * 46);
    let window_ms = u64::try_from(window.as_millis()).expect("short");
    let claim = ask_brief(bench, EffectClass::Keyed { window_ms }, "order:1", "k1");
    doubt(&desk, &claim).await;
    desk.run(&again(&claim), unknown()).await;
    bench.wait(nearly_all).await;
    desk.refused_as(Reason::InDoubt, &again(&claim)).await;
    assert_eq!(desk.key("k1").await.open_attempts, [1, 2]);
}

/// By rule 4.5: a vendor that has forgotten the key when the request arrives does it once more.
pub async fn a_keyed_doubt_is_not_sent_again_where_it_could_land_past_its_window(
    bench: &dyn Bench,
) {
    let desk = Desk::open(bench).await;
    let mut claim = ask_as(KEYED, "order:1", "k1");
    claim.deadline = LONG;
    claim.max_land = LONG * 3;
    doubt(&desk, &claim).await;
    desk.refused_as(Reason::InDoubt, &again(&claim)).await;
    claim.max_land = LONG * 2;
    desk.take(&again(&claim)).await;
}

/// By rule 4.4: attempts are counted anew in each generation, so a slow answer to an earlier one
/// names the same number.
pub async fn an_answer_is_about_one_generation(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask("order:1", "k1");
    desk.run(&claim, applied()).await;
    desk.forget("k1").await;
    doubt(&desk, &again(&claim)).await;
    let record = desk.key("k1").await;
    assert_eq!((record.generation, record.attempt), (2, 1));
    let mut slow = desk
        .resolution("k1", 1, it_happened(), Resolver::Probe)
        .await;
    slow.generation = 1;
    let told = desk.store.resolve(&desk.tenant, slow).await;
    assert_eq!(told, Ok(ResolveAnswer::NotInDoubt(Some(Phase::InDoubt))));
    assert_eq!(desk.key("k1").await, record);
}

/// By rules 4.5, 4.8.
pub async fn an_idempotent_doubt_is_sent_again_and_then_waited_for(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask_as(EffectClass::Idempotent, "order:1", "k1");
    doubt(&desk, &claim).await;
    let second = desk.run(&again(&claim), applied()).await;
    assert_eq!(second.mark.attempt, 2);
    assert_eq!(desk.key("k1").await.phase, Phase::Applied);
    let refusal = desk.refusal(&ask("order:1", "k2")).await;
    assert_eq!(refusal.reason, Reason::EntityInDoubt);
    assert!(
        refusal.error.contains("may still land"),
        "{}",
        refusal.error
    );
    desk.duplicate(&again(&claim)).await;
}

/// By rule 4.8: the hold ends by itself.
pub async fn an_abandoned_request_is_waited_for_no_longer_than_it_can_land(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask_brief(bench, EffectClass::Idempotent, "order:1", "k1");
    doubt(&desk, &claim).await;
    let mut resent = again(&claim);
    resent.deadline = LONG;
    desk.run(&resent, applied()).await;
    bench.wait(bench.unit() * 2).await;
    desk.take(&ask("order:1", "k2")).await;
}

/// By rule 4.8: an attempt that is known to have landed says nothing about the others.
pub async fn a_landed_attempt_does_not_let_others_past_an_abandoned_one(bench: &dyn Bench) {
    for ending in ["a late answer", "a person"] {
        let desk = Desk::open(bench).await;
        let (place, name) = (ending, ending);
        let claim = ask_as(EffectClass::Idempotent, place, name);
        let first = desk.run(&claim, unknown()).await;
        desk.run(&again(&claim), unknown()).await;
        match ending {
            "a person" => {
                desk.resolve(name, 2, it_happened()).await;
            }
            _ => {
                desk.end(&first, applied()).await;
            }
        }
        assert_eq!(desk.key(name).await.phase, Phase::Applied);
        desk.refused_as(Reason::EntityInDoubt, &ask(place, "k2"))
            .await;
    }
}

/// By rule 4.8: the resend itself may be the request that is still on its way.
pub async fn a_resend_left_behind_by_a_late_answer_is_waited_for(bench: &dyn Bench) {
    for ending in ["unknown", "owner died"] {
        let (desk, owner) = (Desk::open(bench).await, Desk::open(bench).await);
        let claim = ask_as(EffectClass::Idempotent, ending, ending);
        let first = desk.run(&claim, unknown()).await;
        let second = owner.take(&again(&claim)).await;
        desk.end(&first, applied()).await;
        assert_eq!(desk.key(ending).await.phase, Phase::Intent);
        match ending {
            "unknown" => {
                owner.end(&second, unknown()).await;
            }
            _ => owner.close().await,
        }
        assert_eq!(desk.key(ending).await.phase, Phase::Applied);
        desk.refused_as(Reason::EntityInDoubt, &ask(ending, "k2"))
            .await;
    }
}

/// By rule 4.8, of every kind of tool: whichever way the key was settled, what was sent before and
/// may still land is waited for.
pub async fn whatever_settled_a_key_its_abandoned_requests_are_waited_for(bench: &dyn Bench) {
    let kinds = [
        EffectClass::Opaque,
        EffectClass::Probeable,
        EffectClass::Idempotent,
    ];
    for effect in kinds {
        for ending in ["a resend", "a late answer", "a person", "the probe"] {
            let desk = Desk::open(bench).await;
            let place = format!("{ending} of {}", effect.as_str());
            let mut claim = ask_as(effect, &place, &place);
            claim.on_unknown = OnUnknown::Retry;
            let first = desk.run(&claim, unknown()).await;
            let second = desk.take(&again(&claim)).await;
            if ending == "a resend" {
                desk.end(&second, applied()).await;
            } else {
                desk.end(&second, unknown()).await;
            }
            match ending {
                "a late answer" => {
                    desk.end(&first, applied()).await;
                }
                "a person" => {
                    desk.resolve(&place, 2, it_happened()).await;
                }
                "the probe" => {
                    desk.answer(&place, 2, it_happened(), Resolver::Probe).await;
                }
                _ => {}
            }
            assert_eq!(desk.key(&place).await.phase, Phase::Applied, "{place}");
            let refusal = desk.refusal(&ask(&place, &format!("{place}, k2"))).await;
            assert_eq!(refusal.reason, Reason::EntityInDoubt, "{place}");
            assert!(refusal.error.contains("may still land"), "{place}");
            desk.duplicate(&again(&claim)).await;
        }
    }
}

/// By rule 4.8: a vendor that honours keys takes all attempts for one, for as long as it knows the
/// key; past its window it may take the abandoned one for another.
pub async fn a_keyed_vendors_abandoned_requests_are_waited_for_only_past_its_window(
    bench: &dyn Bench,
) {
    let desk = Desk::open(bench).await;
    let claim = ask_as(KEYED, "order:1", "k1");
    doubt(&desk, &claim).await;
    desk.run(&again(&claim), applied()).await;
    desk.take(&ask("order:1", "k2")).await;

    let brief = EffectClass::Keyed { window_ms: 1_000 };
    let mut claim = ask_as(brief, "order:2", "k3");
    claim.on_unknown = OnUnknown::Retry;
    desk.run(&claim, unknown()).await;
    desk.run(&again(&claim), applied()).await;
    desk.refused_as(Reason::EntityInDoubt, &ask("order:2", "k4"))
        .await;
}

/// By rule 4.8: where only one attempt is undecided, that is the one that a person saw, whatever was
/// tried after it; nothing else is on its way.
pub async fn what_a_person_saw_is_the_only_attempt_that_was_undecided(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask_as(EffectClass::Idempotent, "order:1", "k1");
    let first = desk.run(&claim, unknown()).await;
    desk.run(&again(&claim), failed()).await;
    let told = desk.resolve("k1", 2, it_happened()).await;
    assert_eq!(told, ResolveAnswer::Resolved(Phase::Applied));
    let record = desk.key("k1").await;
    assert_eq!(record.open_attempts, [0_u32; 0]);
    assert_eq!(record.application.expect("applied").attempt, 1);
    desk.take(&ask("order:1", "k2")).await;
    let late = desk.end(&first, applied()).await;
    assert!(!late.double_applied, "it is what the person saw");
}

/// By rule 7.1: an answer that a person or a program gives for the vendor is bounded as the vendor's
/// own is, and what is kept is what the receipt's digest speaks of.
pub async fn an_answer_too_long_to_keep_closes_its_doubt_all_the_same(bench: &dyn Bench) {
    let long = json!("a".repeat(RESULT_BYTES_MAX - 1));
    let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
    for (name, result) in [("long", long), ("deep", deep)] {
        let desk = Desk::open(bench).await;
        desk.run(&ask(name, name), unknown()).await;
        let verdict = Verdict::Applied(Effect {
            result: result.into(),
            effect_id: Some("v".repeat(100_000)),
        });
        let told = desk.resolve(name, 1, verdict).await;
        assert_eq!(told, ResolveAnswer::Resolved(Phase::Applied));
        let kept = desk.duplicate(&ask(name, name)).await.result.unpack();
        let text = kept.as_str().expect("a sentence");
        assert!(text.ends_with("which is not kept"), "{name}");
        let receipts = desk.trail().await;
        let correction = receipts
            .iter()
            .rfind(|receipt| receipt.kind == ReceiptKind::Correction)
            .expect("a correction");
        let digest = json::digest(&kept).expect("a digest");
        let kept = correction.result_digest.as_deref();
        assert_eq!(kept, Some(&*digest.to_string()), "{name}");
        let effect_id = correction.effect_id.as_deref().expect("an id");
        assert!(effect_id.ends_with("… (cut, 100000 bytes in all)"));
    }
}

/// By rule 4.5.
pub async fn an_opaque_doubt_is_sent_again_only_if_its_tool_says_so(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    doubt(&desk, &ask("order:1", "k1")).await;
    desk.refused_as(Reason::InDoubt, &ask("order:1", "k1"))
        .await;
    let mut retried = ask("order:2", "k2");
    retried.on_unknown = OnUnknown::Retry;
    desk.run(&retried, unknown()).await;
    let second = desk.take(&again(&retried)).await;
    assert_eq!(second.mark.attempt, 2);
}

/// By rule 4.13.
pub async fn a_doubt_that_can_be_asked_about_is_handed_over_unchanged(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask_brief(bench, EffectClass::Probeable, "order:1", "k1");
    doubt(&desk, &claim).await;
    let before = (desk.key("k1").await, desk.trail().await);
    let mut asking = again(&claim);
    asking.on_doubt = OnDoubt::Probe;
    let answer = desk.ask(&asking).await;
    assert_eq!(answer, ClaimAnswer::Probe(Box::new(before.0.clone())));
    assert_eq!(before, (desk.key("k1").await, desk.trail().await));
    asking.on_doubt = OnDoubt::Refuse;
    desk.refused_as(Reason::InDoubt, &asking).await;
    bench.wait(bench.unit() * 2).await;
    let told = desk
        .answer("k1", 1, Verdict::NotApplied, Resolver::Probe)
        .await;
    assert_eq!(told, ResolveAnswer::Resolved(Phase::Failed));
    let receipt = desk.trail().await.pop().expect("a receipt");
    assert_eq!(
        (receipt.kind, receipt.approver),
        (ReceiptKind::Correction, None)
    );
    desk.take(&again(&claim)).await;
}

/// By rule 4.13.
pub async fn a_probe_that_finds_the_effect_burns_the_key(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask_as(EffectClass::Probeable, "order:1", "k1");
    doubt(&desk, &claim).await;
    let told = desk.answer("k1", 1, it_happened(), Resolver::Probe).await;
    assert_eq!(told, ResolveAnswer::Resolved(Phase::Applied));
    let original = desk.duplicate(&again(&claim)).await;
    assert_eq!(original.result, json!({"seen": "by eye"}));
    desk.take(&ask("order:1", "k2")).await;
}

/// By rule 4.7.
pub async fn a_failed_resend_does_not_clear_the_first_doubt(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask_as(KEYED, "order:1", "k1");
    doubt(&desk, &claim).await;
    let second = desk.take(&again(&claim)).await;
    let answer = desk.end(&second, failed()).await;
    assert_eq!(answer.phase, Phase::InDoubt);
    let error = answer.error.expect("says why");
    assert!(error.starts_with("the vendor said no"), "{error}");
    assert!(error.contains("earlier attempt"), "{error}");
    assert_eq!(desk.key("k1").await.open_attempts, [1]);
    desk.refused_as(Reason::EntityInDoubt, &ask("order:1", "k2"))
        .await;
    let still = desk.resolve("k1", 2, Verdict::NotApplied).await;
    assert!(matches!(still, ResolveAnswer::MayStillLand(_)), "{still:?}");
}

/// By rule 4.6.
pub async fn not_applied_is_believed_only_when_nothing_can_land(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let mut claim = ask("order:1", "k1");
    claim.deadline = Duration::ZERO;
    claim.max_land = LONG;
    doubt(&desk, &claim).await;
    let before = (desk.key("k1").await, desk.trail().await);
    for by in [Resolver::Person("ada".into()), Resolver::Probe] {
        let told = desk.answer("k1", 1, Verdict::NotApplied, by).await;
        let ResolveAnswer::MayStillLand(wait) = told else {
            panic!("believed: {told:?}")
        };
        assert!(wait > LONG / 2 && wait <= LONG, "{wait:?}");
    }
    assert_eq!(before, (desk.key("k1").await, desk.trail().await));

    let mut claim = ask_brief(bench, EffectClass::Opaque, "order:2", "k2");
    claim.max_land = bench.unit();
    desk.run(&claim, unknown()).await;
    bench.wait(bench.unit() * 3).await;
    let told = desk.resolve("k2", 1, Verdict::NotApplied).await;
    assert_eq!(told, ResolveAnswer::Resolved(Phase::Failed));
    let second = desk.take(&again(&claim)).await;
    assert_eq!(second.mark.attempt, 2);
}

/// By rule 4.6: every attempt that is open counts, not only the last.
pub async fn the_longest_of_two_abandoned_requests_decides(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask_as(KEYED, "order:1", "k1");
    doubt(&desk, &claim).await;
    let mut resent = again(&claim);
    resent.deadline = Duration::ZERO;
    desk.run(&resent, unknown()).await;
    bench.wait(bench.unit()).await;
    let told = desk.resolve("k1", 2, Verdict::NotApplied).await;
    assert!(matches!(told, ResolveAnswer::MayStillLand(_)), "{told:?}");
}

/// By rules 4.4, 5.7.
pub async fn a_person_who_saw_it_burns_the_key(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let mut claim = ask("order:1", "k1");
    claim.proposal.revision = Some(4);
    let attempt = desk.take(&claim).await;
    desk.end(&attempt, unknown()).await;
    let first = desk.receipt(&attempt.proposal.receipt_id).await;
    let told = desk.resolve("k1", 1, it_happened()).await;
    assert_eq!(told, ResolveAnswer::Resolved(Phase::Applied));
    let trail = desk.trail().await;
    assert_eq!(trail[0], first, "nothing is edited");
    let correction = &trail[1];
    assert_eq!(correction.kind, ReceiptKind::Correction);
    assert_eq!(correction.approver.as_deref(), Some("ada"));
    assert_eq!(correction.note.as_deref(), Some("looked"));
    assert_eq!(correction.outcome, Some(ReceiptOutcome::Applied));
    let cited = correction.original_receipt_id.as_ref();
    assert_eq!(cited, Some(&attempt.proposal.receipt_id));
    let original = desk.duplicate(&again(&claim)).await;
    assert_eq!(original.receipt_id, correction.receipt_id);
    let place = desk.entity("order:1").await;
    assert_eq!((place.doubt, place.revision), (None, Some(4)));
}

/// By rule 4.11.
pub async fn a_written_off_key_dedups_flagged_and_never_runs(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let mut claim = ask_as(EffectClass::Idempotent, "order:1", "k1");
    claim.deadline = Duration::ZERO;
    doubt(&desk, &claim).await;
    let told = desk.resolve("k1", 1, Verdict::WriteOff).await;
    assert_eq!(told, ResolveAnswer::Resolved(Phase::WrittenOff));
    for _ in 0..2 {
        let original = desk.duplicate(&again(&claim)).await;
        assert!(original.written_off);
        assert_eq!(original.result, json!(null));
    }
    let mut other = again(&claim);
    other.proposal.action.args = Packed::default();
    desk.refused_as(Reason::Conflict, &other).await;
    desk.take(&ask("order:1", "k2")).await;
}

/// By rules 2.1, 4.8: nobody knows whether a written-off request landed, so it may yet.
pub async fn a_written_off_request_is_waited_for_while_it_can_land(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask_brief(bench, EffectClass::Opaque, "order:1", "k1");
    doubt(&desk, &claim).await;
    let late = ask("order:2", "k2");
    desk.run(&late, unknown()).await;
    desk.resolve("k1", 1, Verdict::WriteOff).await;
    desk.resolve("k2", 1, Verdict::WriteOff).await;
    desk.refused_as(Reason::EntityInDoubt, &ask("order:2", "k3"))
        .await;
    bench.wait(bench.unit() * 2).await;
    desk.take(&ask("order:1", "k4")).await;
}

/// By rule 4.4.
pub async fn an_answer_to_what_is_no_doubt_changes_nothing(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let nothing = desk.resolve("never", 1, Verdict::WriteOff).await;
    assert_eq!(nothing, ResolveAnswer::NotInDoubt(None));
    desk.run(&ask("a", "applied"), applied()).await;
    desk.run(&ask("b", "failed"), failed()).await;
    desk.take(&ask("c", "intent")).await;
    let resent = ask_as(KEYED, "d", "doubt");
    desk.run(&resent, unknown()).await;
    desk.run(&again(&resent), unknown()).await;
    let written = desk.trail().await;
    for (name, attempt, phase) in [
        ("applied", 1, Phase::Applied),
        ("failed", 1, Phase::Failed),
        ("intent", 1, Phase::Intent),
        ("doubt", 1, Phase::InDoubt),
        ("doubt", 3, Phase::InDoubt),
    ] {
        let before = desk.key(name).await;
        for verdict in [it_happened(), Verdict::NotApplied, Verdict::WriteOff] {
            let answer = desk.resolve(name, attempt, verdict).await;
            assert_eq!(answer, ResolveAnswer::NotInDoubt(Some(phase)), "{name}");
        }
        assert_eq!(desk.key(name).await, before);
    }
    assert_eq!(desk.trail().await, written);
}
