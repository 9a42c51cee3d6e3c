//! Alerts: what ran under `ALERT`, until a person has seen it (section 9).

use operators_kernel::life::{Alert, NoteKind, NoteName};
use operators_kernel::{
    Claim, Clearance, Directive, DirectiveAnswer, OnAlert, Order, QuestionRef, Reason, ReceiptKind,
    ReceiptOutcome, Refusal, SettledOutcome, TrustDecision,
};

use super::desk::{
    Desk, again, applied, ask, failed, fresh_id, it_happened, moment, unheard, unknown,
};
use crate::fixtures::key;
use crate::stores::Bench;

fn alerting(entity: &str, name: &str) -> Claim {
    let mut claim = ask(entity, name);
    claim.proposal.decision = TrustDecision::Alert;
    claim.proposal.rule = Some("dear".into());
    claim
}

fn seen(receipt_id: &str) -> Directive {
    Directive {
        order: Order::Acknowledge(receipt_id.to_owned()),
        by: "grace".into(),
        note: Some("called the customer".to_owned()),
        receipt_id: fresh_id(),
        at: moment(),
    }
}

async fn alerts(desk: &Desk, kind: NoteKind) -> Vec<Alert> {
    let notes = desk.store.notes(&desk.tenant, kind).await;
    let notes = notes.expect("the store shows");
    let read = |(name, body): (String, String)| {
        let alert = Alert::read(Some(&body)).expect("read").expect("an alert");
        assert_eq!(alert.proposal.receipt_id, name);
        alert
    };
    notes.into_iter().map(read).collect()
}

async fn open(desk: &Desk) -> Vec<Alert> {
    alerts(desk, NoteKind::Alert).await
}

async fn direct(desk: &Desk, directive: Directive) -> DirectiveAnswer {
    let directed = desk.store.direct(&desk.tenant, directive).await;
    directed.expect("the store obeys")
}

/// By rules 9.11, 9.12.
pub async fn what_ran_under_alert_stands_until_it_is_acknowledged(bench: &dyn Bench) {
    let (desk, other) = (Desk::open(bench).await, Desk::open(bench).await);
    let claim = alerting("order:1", "k1");
    let attempt = desk.take(&claim).await;
    assert_eq!(open(&other).await, [], "it has not ended");
    desk.end(&attempt, applied()).await;
    let [alert] = open(&other).await.try_into().expect("one alert");
    let receipt = desk.receipt(&claim.proposal.receipt_id).await;
    assert_eq!(alert.proposal, desk.filled(&claim).proposal);
    assert_eq!(alert.outcome, ReceiptOutcome::Applied);
    assert_eq!(alert.raised_at, receipt.settled_at);
    assert_eq!((alert.error, alert.acknowledged), (None, None));

    let order = seen(&receipt.receipt_id);
    for _ in 0..2 {
        // The second time its answer was lost.
        assert_eq!(
            direct(&other, order.clone()).await,
            DirectiveAnswer::Done,
            "the same order again"
        );
    }
    assert_eq!(open(&desk).await, []);
    let told = desk.receipt(&order.receipt_id).await;
    assert_eq!(told.kind, ReceiptKind::Acknowledge);
    assert_eq!(told.approver.as_deref(), Some("grace"));
    assert_eq!(told.note.as_deref(), Some("called the customer"));
    assert_eq!(told.original_receipt_id, Some(receipt.receipt_id.clone()));
    assert_eq!(told.idempotency_key, key("k1"));
    assert_eq!((told.decision, told.outcome), (None, None));
    let [kept] = alerts(&desk, NoteKind::Acknowledged)
        .await
        .try_into()
        .expect("it is kept");
    let by = kept.acknowledged.expect("acknowledged");
    assert_eq!((by.by.as_str(), by.at), ("grace", order.at));

    // Somebody else's word comes second and leaves nothing.
    let late = seen(&receipt.receipt_id);
    match direct(&desk, late.clone()).await {
        DirectiveAnswer::AcknowledgedBefore(before) => {
            assert_eq!(before.receipt_id, order.receipt_id);
        }
        other => panic!("acknowledged twice: {other:?}"),
    }
    let nothing = seen("rc_none");
    assert_eq!(
        direct(&desk, nothing.clone()).await,
        DirectiveAnswer::NotRaised
    );
    let trail = desk.trail().await;
    for order in [late, nothing] {
        assert!(trail.iter().all(|r| r.receipt_id != order.receipt_id));
    }
}

/// By rule 9.11: what was invoked is raised, and what is learned later is no second alert.
pub async fn an_alert_is_raised_whatever_the_end_and_once(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let cases: [(SettledOutcome, ReceiptOutcome); 3] = [
        (failed(), ReceiptOutcome::Failed),
        (unknown(), ReceiptOutcome::InDoubt),
        (applied(), ReceiptOutcome::Applied),
    ];
    for (number, (outcome, told)) in cases.into_iter().enumerate() {
        let claim = alerting(&format!("order:{number}"), &format!("k{number}"));
        let attempt = desk.run(&claim, outcome.clone()).await;
        // The same settlement again.
        desk.end(&attempt, outcome).await;
        let all = open(&desk).await;
        assert_eq!(all.len(), number + 1);
        let receipt_id = &claim.proposal.receipt_id;
        let mut own = all.iter().filter(|a| a.proposal.receipt_id == *receipt_id);
        let own = own.next().expect("raised");
        assert_eq!(own.outcome, told);
        let receipt = desk.receipt(receipt_id).await;
        assert_eq!(own.error, receipt.error);
    }
    desk.resolve("k1", 1, it_happened()).await;
    desk.duplicate(&again(&alerting("order:1", "k1"))).await;
    desk.duplicate(&again(&alerting("order:2", "k2"))).await;
    assert_eq!(open(&desk).await.len(), 3);
    // A second attempt of the key that failed is one more.
    desk.run(&again(&alerting("order:0", "k0")), applied())
        .await;
    assert_eq!(open(&desk).await.len(), 4);
}

/// By rule 9.11.
pub async fn what_did_not_run_or_was_approved_raises_nothing(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    desk.run(&ask("order:1", "k1"), applied()).await;
    let mut blocked = alerting("order:2", "k2");
    blocked.clearance = Clearance::Refused(Refusal::new(Reason::Policy, "no"));
    desk.refused_as(Reason::Policy, &blocked).await;
    let mut asked = alerting("order:3", "k3");
    asked.on_alert = OnAlert::Approve;
    desk.refused_as(Reason::AwaitingApproval, &asked).await;
    desk.refused_as(Reason::AwaitingApproval, &unheard(&asked))
        .await;
    let yes = Directive {
        order: Order::Approve(QuestionRef {
            key: key("k3"),
            receipt_id: asked.proposal.receipt_id.clone(),
        }),
        ..seen("unused")
    };
    assert_eq!(direct(&desk, yes).await, DirectiveAnswer::Done);
    let run = again(&asked);
    let mut attempt = desk.take(&run).await;
    // As the executor does.
    let approver = attempt.mark.approver.clone();
    attempt.proposal.name_approver(approver);
    desk.end(&attempt, applied()).await;
    assert_eq!(open(&desk).await, []);
}

/// By rules 4.3, 9.11.
pub async fn an_owner_that_died_leaves_its_alert(bench: &dyn Bench) {
    let gone = Desk::open(bench).await;
    let claim = alerting("order:1", "k1");
    let attempt = gone.take(&claim).await;
    gone.close().await;
    let desk = Desk::open(bench).await;
    let [alert] = open(&desk).await.try_into().expect("one alert");
    assert_eq!(alert.proposal.receipt_id, claim.proposal.receipt_id);
    assert_eq!(alert.outcome, ReceiptOutcome::InDoubt);
    // Its late answer corrects the receipt and raises nothing new.
    gone.end(&attempt, applied()).await;
    assert_eq!(open(&desk).await.len(), 1);
    assert_eq!(desk.trail().await.len(), 2);
}

/// By rules 3.4, 9.12.
pub async fn alerts_are_a_tenants_own_and_survive_the_handle(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = alerting("order:1", "k1");
    desk.run(&claim, applied()).await;
    let neighbour = desk.of("neighbour");
    let theirs = again(&claim);
    neighbour.run(&theirs, applied()).await;
    let order = seen(&theirs.proposal.receipt_id);
    assert_eq!(direct(&desk, order).await, DirectiveAnswer::NotRaised);
    drop((desk, neighbour));
    let desk = Desk::open(bench).await;
    for desk in [&desk, &desk.of("neighbour")] {
        assert_eq!(open(desk).await.len(), 1);
    }
    let name = NoteName::alert(&claim.proposal.receipt_id);
    let found = desk.store.note(&desk.tenant, &name).await;
    assert!(found.expect("shown").is_some());
}
