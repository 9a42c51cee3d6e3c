//! Pauses: the kill switch, in the store and so in every process (section 9).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use operators_kernel::life::{NoteKind, NoteName, Pauses, Phase};
use operators_kernel::{
    ClaimAnswer, Directive, DirectiveAnswer, Disposition, EffectClass, OperatorName, Order, Reason,
    ReceiptKind, ReceiptOutcome,
};
use serde_json::json;

use super::approvals::told_apart;
use super::desk::{Desk, again, applied, ask, ask_as, failed, fresh_id, moment, unheard, unknown};
use crate::stores::Bench;

fn named(name: &str) -> OperatorName {
    OperatorName::parse(name).expect("an operator")
}

fn directive(order: Order) -> Directive {
    Directive {
        order,
        by: "ada".into(),
        note: Some("too many holds".to_owned()),
        receipt_id: fresh_id(),
        at: moment(),
    }
}

async fn direct(desk: &Desk, order: Order) -> DirectiveAnswer {
    let directed = desk.store.direct(&desk.tenant, directive(order)).await;
    directed.expect("the store obeys")
}

async fn pause(desk: &Desk, operator: Option<&str>) {
    let paused = direct(desk, Order::Pause(operator.map(named))).await;
    assert_eq!(paused, DirectiveAnswer::Done);
}

async fn resume(desk: &Desk, operator: Option<&str>) {
    let resumed = direct(desk, Order::Resume(operator.map(named))).await;
    assert_eq!(resumed, DirectiveAnswer::Done);
}

/// By rules 9.1, 9.2.
pub async fn a_pause_stops_the_next_claim_of_every_process(bench: &dyn Bench) {
    let (desk, other) = (Desk::open(bench).await, Desk::open(bench).await);
    other.run(&ask("order:0", "k0"), applied()).await;
    let order = directive(Order::Pause(None));
    let paused = desk.store.direct(&desk.tenant, order.clone()).await;
    assert_eq!(paused, Ok(DirectiveAnswer::Done));
    for (place, desk) in [&desk, &other].into_iter().enumerate() {
        let claim = ask(&format!("order:{place}"), &format!("new-{place}"));
        let refusal = desk.refusal(&claim).await;
        assert_eq!(refusal.reason, Reason::Paused);
        for told in ["everything", "ada", &order.at.to_string()] {
            assert!(refusal.error.contains(told), "{}", refusal.error);
        }
        told_apart(&refusal, "operators resume");
        let receipt = desk.receipt(&claim.proposal.receipt_id).await;
        assert_eq!(receipt.hint, refusal.hint);
        assert_eq!(receipt.decision, Some(Disposition::Block));
        assert_eq!(receipt.outcome, Some(ReceiptOutcome::Refused));
        assert_eq!(receipt.reason, Some(Reason::Paused));
        assert_eq!(receipt.rule, None);
        // Nothing was claimed, so nothing is held.
        assert_eq!(desk.find(&format!("new-{place}")).await, None);
        assert_eq!(desk.entity(&format!("order:{place}")).await.holder, None);
    }
    let receipt = desk.receipt(&order.receipt_id).await;
    assert_eq!(receipt.kind, ReceiptKind::Pause);
    assert_eq!(receipt.approver.as_deref(), Some("ada"));
    assert_eq!(receipt.note.as_deref(), Some("too many holds"));
    assert_eq!((receipt.decision, receipt.outcome), (None, None));
    resume(&other, None).await;
    desk.run(&ask("order:1", "new-0"), applied()).await;
    let kinds: Vec<ReceiptKind> = desk.trail().await.iter().map(|r| r.kind).collect();
    assert!(kinds.contains(&ReceiptKind::Resume), "{kinds:?}");
}

/// By rule 9.1.
pub async fn a_pause_of_one_operator_stops_nobody_else(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    pause(&desk, Some("ship-risk")).await;
    let of = |operator: Option<&str>, key: &str| {
        let mut claim = ask(key, key);
        claim.proposal.operator = operator.map(named);
        claim
    };
    let refusal = desk.refusal(&of(Some("ship-risk"), "k1")).await;
    assert_eq!(refusal.reason, Reason::Paused);
    told_apart(&refusal, "operators resume --operator ship-risk");
    desk.run(&of(Some("billing"), "k2"), applied()).await;
    desk.run(&of(None, "k3"), applied()).await;
    // The one of everything is another pause: each ends by itself.
    pause(&desk, None).await;
    resume(&desk, Some("ship-risk")).await;
    desk.refused_as(Reason::Paused, &of(Some("billing"), "k4"))
        .await;
    resume(&desk, None).await;
    desk.run(&of(Some("ship-risk"), "k1"), applied()).await;
}

/// By rules 9.2, 9.3.
pub async fn a_pause_answers_duplicates_and_lets_what_runs_end(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let done = ask("order:1", "k1");
    desk.run(&done, applied()).await;
    let running = ask("order:2", "k2");
    let attempt = desk.take(&running).await;
    pause(&desk, None).await;
    let original = desk.duplicate(&again(&done)).await;
    assert_eq!(original.result, json!({"status": "done"}));
    let mut other = again(&done);
    other.proposal.value = Some(7.into());
    desk.refused_as(Reason::Conflict, &other).await;
    desk.end(&attempt, applied()).await;
    assert_eq!(desk.key("k2").await.phase, Phase::Applied);
    desk.duplicate(&again(&running)).await;
    // A claim whose answer was lost is not another claim.
    resume(&desk, None).await;
}

/// By rule 9.1: sending a doubt again is an effect like any other.
pub async fn a_pause_stops_a_resend_too(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let doubt = ask_as(EffectClass::Idempotent, "order:1", "k1");
    desk.run(&doubt, unknown()).await;
    let free = ask("order:2", "k2");
    desk.run(&free, failed()).await;
    pause(&desk, None).await;
    desk.refused_as(Reason::Paused, &again(&doubt)).await;
    assert_eq!(desk.key("k1").await.phase, Phase::InDoubt);
    let refused = again(&free);
    desk.refused_as(Reason::Paused, &refused).await;
    assert_eq!(desk.key("k2").await.phase, Phase::Failed);
    // Asked again after a lost answer, it is told what its receipt tells.
    resume(&desk, None).await;
    desk.refused_as(Reason::Paused, &unheard(&refused)).await;
    desk.run(&again(&doubt), applied()).await;
}

/// By rule 9.2.
pub async fn a_pause_is_asked_for_once_and_ended_once(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let nothing = direct(&desk, Order::Resume(None)).await;
    assert_eq!(nothing, DirectiveAnswer::NotPaused);
    let first = directive(Order::Pause(None));
    for _ in 0..2 {
        // The same order again, its answer lost.
        let paused = desk.store.direct(&desk.tenant, first.clone()).await;
        assert_eq!(paused, Ok(DirectiveAnswer::Done));
    }
    match direct(&desk, Order::Pause(None)).await {
        DirectiveAnswer::PausedBefore(halt) => assert_eq!(halt.receipt_id, first.receipt_id),
        other => panic!("paused twice: {other:?}"),
    }
    let body = desk.store.note(&desk.tenant, &NoteName::pause()).await;
    let pauses = Pauses::read(body.expect("shown").as_deref()).expect("read");
    let halt = pauses.everything.expect("a pause");
    assert_eq!((halt.by.as_str(), halt.at), ("ada", first.at));
    let listed = desk.store.notes(&desk.tenant, NoteKind::Pause).await;
    assert_eq!(listed.expect("listed").len(), 1);
    assert_eq!(desk.trail().await.len(), 1);
    resume(&desk, None).await;
    let ended = direct(&desk, Order::Resume(None)).await;
    assert_eq!(ended, DirectiveAnswer::NotPaused);
    let listed = desk.store.notes(&desk.tenant, NoteKind::Pause).await;
    assert_eq!(listed.expect("listed"), []);
    assert_eq!(desk.trail().await.len(), 2);
}

/// By rule 9.1.
pub async fn a_pause_is_a_tenants_own(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let neighbour = desk.of("neighbour");
    pause(&desk, None).await;
    neighbour.run(&ask("order:1", "k1"), applied()).await;
    desk.refused_as(Reason::Paused, &ask("order:1", "k1")).await;
    assert_eq!(neighbour.trail().await.len(), 1);
}

/// By rule 9.1: once the pause is acknowledged, nothing is granted, however busy everybody is.
pub async fn a_pause_meets_claims_that_race_with_it(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let is_paused = Arc::new(AtomicBool::new(false));
    let mut busy = tokio::task::JoinSet::new();
    for worker in 0..4 {
        let (desk, is_paused) = (Desk::open(bench).await, Arc::clone(&is_paused));
        busy.spawn(async move {
            for n in 0_u64.. {
                // Some stores answer without ever waiting.
                tokio::task::yield_now().await;
                let was_paused = is_paused.load(Ordering::SeqCst);
                let name = format!("w{worker}-{n}");
                match desk.ask(&ask(&name, &name)).await {
                    ClaimAnswer::Claimed(_) => assert!(!was_paused, "granted after the pause"),
                    ClaimAnswer::Refused { refusal, .. } => {
                        // One that was undone and is asked about again is over.
                        let is_over = refusal.reason == Reason::InDoubt && !was_paused;
                        assert!(is_over || refusal.reason == Reason::Paused, "{refusal:?}");
                        if was_paused {
                            return;
                        }
                    }
                    other => panic!("neither: {other:?}"),
                }
            }
        });
    }
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    pause(&desk, None).await;
    is_paused.store(true, Ordering::SeqCst);
    while let Some(done) = busy.join_next().await {
        done.expect("nothing was granted after the pause");
    }
}
