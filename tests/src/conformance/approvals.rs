//! Approvals: asked once, bound to what was asked, answered by a person (section 9).

use std::time::Duration;

use operators_kernel::life::{ASKED_FOR, Approval, NoteKind, NoteName};
use operators_kernel::{
    Claim, ClaimAnswer, Clearance, Directive, DirectiveAnswer, Disposition, ForgetAnswer, KnownBy,
    OnAlert, Order, Packed, Person, PolicyRef, QuestionRef, Reason, ReceiptKind, ReceiptOutcome,
    Refusal, Text, Timestamp, TrustDecision,
};

use super::desk::{Desk, again, applied, ask, failed, fresh_id, moment, unheard};
use crate::fixtures::key;
use crate::stores::Bench;

fn asking(entity: &str, name: &str) -> Claim {
    let mut claim = ask(entity, name);
    claim.on_alert = OnAlert::Approve;
    claim.proposal.decision = TrustDecision::Alert;
    claim.proposal.rule = Some("ask first".into());
    claim.proposal.policy = Some(policy("sha256:01").into());
    claim
}

fn policy(digest: &str) -> PolicyRef {
    PolicyRef {
        name: "asking".to_owned(),
        version: 1,
        digest: digest.to_owned(),
    }
}

fn directive(order: Order) -> Directive {
    Directive {
        order,
        by: Person {
            name: "grace".to_owned(),
            known_by: Some(KnownBy::System),
        },
        note: Some("seen".to_owned()),
        receipt_id: fresh_id(),
        at: moment(),
    }
}

async fn direct(desk: &Desk, order: Order) -> DirectiveAnswer {
    let directed = desk.store.direct(&desk.tenant, directive(order)).await;
    directed.expect("the store obeys")
}

/// The question that this proposal asked.
fn asked_by(claim: &Claim) -> QuestionRef {
    QuestionRef {
        key: claim.proposal.idempotency_key.clone(),
        receipt_id: claim.proposal.receipt_id.clone(),
    }
}

/// Asks a person about this proposal, again; the question.
async fn asked_again(desk: &Desk, claim: &Claim) -> QuestionRef {
    let claim = again(claim);
    desk.refused_as(Reason::AwaitingApproval, &claim).await;
    asked_by(&claim)
}

async fn approve(desk: &Desk, question: QuestionRef) {
    let approved = direct(desk, Order::Approve(question)).await;
    assert_eq!(approved, DirectiveAnswer::Done);
}

async fn veto(desk: &Desk, question: QuestionRef) {
    let vetoed = direct(desk, Order::Veto(question)).await;
    assert_eq!(vetoed, DirectiveAnswer::Done);
}

async fn stays_vetoed(desk: &Desk, claim: &Claim) {
    let refusal = desk.refusal(claim).await;
    assert_eq!(refusal.reason, Reason::AwaitingApproval);
    assert!(
        refusal.error.contains("vetoed by grace"),
        "{}",
        refusal.error
    );
}

/// The same key with other arguments.
fn with_other_arguments(claim: &Claim) -> Claim {
    let mut other = again(claim);
    other.proposal.action.args = Packed::default();
    other
}

async fn question(desk: &Desk, name: &str) -> Option<Approval> {
    let name = NoteName::approval(&key(name));
    let found = desk.store.note(&desk.tenant, &name).await;
    Approval::read(found.expect("shown").as_deref()).expect("read")
}

fn after(at: Timestamp, span: Duration) -> Timestamp {
    let micros = i64::try_from(span.as_micros()).expect("a short span");
    Timestamp::from_micros(at.as_micros() + micros)
}

/// By rule 9.14: the proposer is told what is so, a person what answers it.
#[track_caller]
pub(super) fn told_apart(refusal: &Refusal, command: &str) {
    let Refusal { error, hint, .. } = refusal;
    let hinted = hint.as_ref().is_some_and(|hint| hint.contains(command));
    assert!(hinted, "{hint:?} lacks `{command}`");
    assert!(!error.contains("operators "), "{error}");
    assert!(!error.contains("rc_"), "{error}");
}

/// By rules 9.7, 9.9, 9.14.
pub async fn what_needs_approval_waits_and_then_runs_with_its_approver(bench: &dyn Bench) {
    let (desk, other) = (Desk::open(bench).await, Desk::open(bench).await);
    let claim = asking("order:1", "k1");
    let refusal = desk.refusal(&claim).await;
    assert_eq!(refusal.reason, Reason::AwaitingApproval);
    let command = format!("approvals approve {} ", claim.proposal.receipt_id);
    told_apart(&refusal, &command);
    let receipt = desk.receipt(&claim.proposal.receipt_id).await;
    assert_eq!(receipt.error.as_ref(), Some(&refusal.error));
    assert_eq!(receipt.hint, refusal.hint);
    assert_eq!(receipt.decision, Some(Disposition::Block));
    assert_eq!(receipt.outcome, Some(ReceiptOutcome::Refused));
    assert_eq!(receipt.reason, Some(Reason::AwaitingApproval));
    assert_eq!(receipt.rule.as_deref(), Some("ask first"));
    // Without a veto it reads as it did before earlier vetoes were kept.
    let name = NoteName::approval(&key("k1"));
    let body = desk.store.note(&desk.tenant, &name).await.expect("shown");
    assert!(!body.expect("a question").contains("vetoes"));
    // Asked once: proposing again asks nothing new.
    let asked = question(&desk, "k1").await.expect("a question");
    assert_eq!(asked.expires_at, after(claim.at, ASKED_FOR));
    let refusal = desk.refusal(&again(&claim)).await;
    told_apart(&refusal, &command);
    desk.refused_as(Reason::AwaitingApproval, &unheard(&claim))
        .await;
    assert_eq!(question(&desk, "k1").await, Some(asked));
    let listed = desk.store.notes(&desk.tenant, NoteKind::Approval).await;
    assert_eq!(listed.expect("listed").len(), 1);
    // Nothing is held meanwhile.
    desk.run(&ask("order:1", "k2"), applied()).await;

    let yes = directive(Order::Approve(asked_by(&claim)));
    let approved = other.store.direct(&other.tenant, yes.clone()).await;
    assert_eq!(approved, Ok(DirectiveAnswer::Done));
    let receipt = desk.receipt(&yes.receipt_id).await;
    assert_eq!(receipt.kind, ReceiptKind::Approve);
    assert_eq!(receipt.approver.as_deref(), Some("grace"));
    assert_eq!(receipt.known_by, Some(KnownBy::System));
    let cited = receipt.original_receipt_id.expect("cites the question");
    assert_eq!(cited, claim.proposal.receipt_id);
    assert_eq!(receipt.idempotency_key, key("k1"));

    let run = again(&claim);
    let ClaimAnswer::Claimed(mark) = desk.ask(&run).await else {
        panic!("approved, but not granted");
    };
    let person = mark.approver.clone().expect("a person");
    assert_eq!(person.name, "grace");
    let record = desk.key("k1").await;
    assert_eq!(record.proposal.approver.as_deref(), Some("grace"));
    assert_eq!(record.proposal.known_by, Some(KnownBy::System));
    assert_eq!(record.mark(), mark);
}

/// By rule 9.8.
pub async fn an_approval_is_of_those_arguments_that_policy_and_that_generation(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = asking("order:1", "k1");
    desk.refused_as(Reason::AwaitingApproval, &claim).await;
    approve(&desk, asked_by(&claim)).await;
    asked_again(&desk, &with_other_arguments(&claim)).await;
    // That was another question, and took the place of the first.
    let anew = asked_again(&desk, &claim).await;
    approve(&desk, anew).await;
    let mut changed = again(&claim);
    changed.proposal.policy = Some(policy("sha256:02").into());
    desk.refused_as(Reason::AwaitingApproval, &changed).await;
    approve(&desk, asked_by(&changed)).await;
    desk.run(&again(&changed), applied()).await;
    // The next generation is another effect.
    assert_eq!(desk.forget("k1").await, ForgetAnswer::Forgotten(2));
    desk.refused_as(Reason::AwaitingApproval, &again(&changed))
        .await;
}

/// By rule 9.8: between a look at the list and the answer, the key is proposed with other arguments.
pub async fn an_answer_is_about_the_question_it_names(bench: &dyn Bench) {
    let (desk, other) = (Desk::open(bench).await, Desk::open(bench).await);
    let seen = asking("order:1", "k1");
    desk.refused_as(Reason::AwaitingApproval, &seen).await;
    let swapped = with_other_arguments(&seen);
    desk.refused_as(Reason::AwaitingApproval, &swapped).await;
    let before = question(&desk, "k1").await.expect("a question");
    let receipts = desk.trail().await.len();
    for order in [Order::Approve, Order::Veto] {
        let answered = direct(&other, order(asked_by(&seen))).await;
        let anew = DirectiveAnswer::AskedAnew(swapped.proposal.receipt_id.clone());
        assert_eq!(answered, anew);
        // A receipt that asked nothing names no question.
        for receipt_id in [fresh_id(), Text::from("")] {
            let key = key("k1");
            let unasked = order(QuestionRef { key, receipt_id });
            assert_eq!(direct(&other, unasked).await, anew);
        }
    }
    assert_eq!(question(&desk, "k1").await, Some(before));
    assert_eq!(desk.trail().await.len(), receipts);
    desk.refused_as(Reason::AwaitingApproval, &again(&swapped))
        .await;
    // What was seen can be answered once it is asked about again; what is answered already is not
    // asked any more.
    let anew = asked_again(&desk, &seen).await;
    approve(&other, anew).await;
    let late = direct(&other, Order::Veto(asked_by(&swapped))).await;
    assert_eq!(late, DirectiveAnswer::NotAsked);
    desk.run(&again(&seen), applied()).await;
}

/// By rule 9.9: what blocks, blocks.
pub async fn an_approval_turns_no_refusal_into_a_run(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = asking("order:1", "k1");
    desk.refused_as(Reason::AwaitingApproval, &claim).await;
    approve(&desk, asked_by(&claim)).await;
    let mut blocked = again(&claim);
    blocked.clearance = Clearance::Refused(Refusal::new(Reason::Policy, "no"));
    desk.refused_as(Reason::Policy, &blocked).await;
    let paused = direct(&desk, Order::Pause(None)).await;
    assert_eq!(paused, DirectiveAnswer::Done);
    desk.refused_as(Reason::Paused, &again(&claim)).await;
    direct(&desk, Order::Resume(None)).await;
    // A definite failure does not use it up.
    desk.run(&again(&claim), failed()).await;
    desk.run(&again(&claim), applied()).await;
    desk.duplicate(&again(&claim)).await;
}

/// By rule 9.10.
pub async fn a_veto_is_final_for_the_proposal_and_not_for_the_key(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = asking("order:1", "k1");
    desk.refused_as(Reason::AwaitingApproval, &claim).await;
    let no = directive(Order::Veto(asked_by(&claim)));
    for _ in 0..2 {
        // The same answer again, its own answer lost.
        let vetoed = desk.store.direct(&desk.tenant, no.clone()).await;
        assert_eq!(vetoed, Ok(DirectiveAnswer::Done));
    }
    let receipt = desk.receipt(&no.receipt_id).await;
    assert_eq!(receipt.kind, ReceiptKind::Veto);
    assert_eq!(receipt.approver.as_deref(), Some("grace"));
    let mut much_later = again(&claim);
    much_later.at = after(claim.at, ASKED_FOR * 9);
    stays_vetoed(&desk, &much_later).await;
    match direct(&desk, Order::Approve(asked_by(&claim))).await {
        DirectiveAnswer::AnsweredBefore(answer) => assert!(!answer.approved),
        other => panic!("answered twice: {other:?}"),
    }
    let mut other = again(&claim);
    other.proposal.value = Some(1.into());
    desk.refused_as(Reason::AwaitingApproval, &other).await;
    approve(&desk, asked_by(&other)).await;
    desk.run(&again(&other), applied()).await;
}

/// By rule 9.10: whatever is asked about the key afterwards, what was vetoed stays vetoed.
pub async fn a_veto_outlives_another_question(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let first = asking("order:1", "k1");
    desk.refused_as(Reason::AwaitingApproval, &first).await;
    let no = directive(Order::Veto(asked_by(&first)));
    let vetoed = desk.store.direct(&desk.tenant, no.clone()).await;
    assert_eq!(vetoed, Ok(DirectiveAnswer::Done));
    let second = with_other_arguments(&first);
    desk.refused_as(Reason::AwaitingApproval, &second).await;
    stays_vetoed(&desk, &again(&first)).await;
    // That changed nothing about the question that stands.
    veto(&desk, asked_by(&second)).await;
    let mut third = again(&first);
    third.proposal.value = Some(1.into());
    desk.refused_as(Reason::AwaitingApproval, &third).await;
    let receipts = desk.trail().await.len();
    // The first veto again, its own answer lost, and a second thought.
    let vetoed = desk.store.direct(&desk.tenant, no).await;
    assert_eq!(vetoed, Ok(DirectiveAnswer::Done));
    match direct(&desk, Order::Approve(asked_by(&first))).await {
        DirectiveAnswer::AnsweredBefore(answer) => assert!(!answer.approved),
        other => panic!("answered twice: {other:?}"),
    }
    assert_eq!(desk.trail().await.len(), receipts);
    approve(&desk, asked_by(&third)).await;
    for claim in [&first, &second] {
        let mut much_later = again(claim);
        much_later.at = after(claim.at, ASKED_FOR * 9);
        stays_vetoed(&desk, &much_later).await;
    }
    desk.run(&again(&third), failed()).await;
    // Under another policy text it is another proposal.
    let mut changed = again(&first);
    changed.proposal.policy = Some(policy("sha256:02").into());
    let changed = asked_again(&desk, &changed).await;
    approve(&desk, changed).await;
    stays_vetoed(&desk, &again(&second)).await;
}

/// By rule 9.7.
pub async fn a_question_and_an_approval_expire(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = asking("order:1", "k1");
    assert_eq!(
        direct(&desk, Order::Approve(asked_by(&claim))).await,
        DirectiveAnswer::NotAsked
    );
    desk.refused_as(Reason::AwaitingApproval, &claim).await;
    let mut late = directive(Order::Approve(asked_by(&claim)));
    late.at = after(claim.at, ASKED_FOR);
    let approved = desk.store.direct(&desk.tenant, late).await;
    assert_eq!(approved, Ok(DirectiveAnswer::NotAsked));
    approve(&desk, asked_by(&claim)).await;
    let mut too_late = again(&claim);
    too_late.at = after(claim.at, ASKED_FOR);
    desk.refused_as(Reason::AwaitingApproval, &too_late).await;
    let anew = question(&desk, "k1").await.expect("a question");
    assert_eq!((anew.asked_at, anew.answer), (too_late.at, None));
}
