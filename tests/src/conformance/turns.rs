//! Turns: one at a time for an entity, in arrival order (section 2).

use std::collections::BTreeSet;

use operators_kernel::life::Phase;
use operators_kernel::{
    AttemptMark, Claim, ClaimAnswer, Clearance, Fence, Packed, Reason, Refusal, Ticket,
};

use super::desk::{Desk, again, applied, ask, failed, fresh_id, it_happened, unheard, unknown};
use crate::fixtures::entity;
use crate::stores::Bench;

/// The claim with its place in the queue.
fn at(ticket: Ticket, claim: &Claim) -> Claim {
    let mut claim = claim.clone();
    claim.ticket = Some(ticket);
    claim
}

async fn pass(desk: &Desk, name: &str, ticket: Option<Ticket>) -> Option<Ticket> {
    pass_as(&fresh_id(), desk, name, ticket).await
}

async fn pass_as(asker: &str, desk: &Desk, name: &str, ticket: Option<Ticket>) -> Option<Ticket> {
    let passed = desk
        .store
        .pass(&desk.tenant, &entity(name), desk.session, asker, ticket)
        .await;
    passed.expect("the store answers")
}

/// By rule 1.5: the answer is `Claimed` only when the intent can be seen by others.
pub async fn the_first_claim_is_a_durable_intent_of_attempt_one(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask("order:1", "k1");
    let answer = desk.ask(&claim).await;
    let mark = AttemptMark {
        generation: 1,
        attempt: 1,
        session: Some(desk.session),
        fence: Some(Fence(1)),
        approver: None,
    };
    assert_eq!(answer, ClaimAnswer::Claimed(mark));
    let other = Desk::open(bench).await;
    let record = other.key("k1").await;
    assert_eq!((record.phase, record.attempt), (Phase::Intent, 1));
    assert_eq!(record.proposal, desk.filled(&claim).proposal);
    assert!(record.open_attempts.is_empty() && record.application.is_none());
    assert!(record.first_intent_at < record.quiescent_at);
    let held = other.entity("order:1").await;
    assert_eq!((held.holder, held.fence), (Some(desk.session), Fence(1)));
    assert!(desk.trail().await.is_empty(), "an intent is no end");
}

/// By rule 2.1.
pub async fn a_second_action_on_the_entity_waits_for_the_first(bench: &dyn Bench) {
    let (one, two) = (Desk::open(bench).await, Desk::open(bench).await);
    let first = one.take(&ask("order:1", "k1")).await;
    let waiting = ask("order:1", "k2");
    let ticket = two.queue(&waiting).await;
    let waiting = at(ticket, &waiting);
    assert_eq!(two.queue(&waiting).await, ticket, "one place per proposal");
    assert!(two.find("k2").await.is_none(), "waiting writes no key");
    one.end(&first, applied()).await;
    let second = two.take(&waiting).await;
    assert_eq!(second.mark.fence, Some(Fence(2)), "the fence only grows");
    assert_eq!(two.entity("order:1").await.holder, Some(two.session));
}

/// By rule 2.2.
pub async fn turns_come_in_the_order_of_arrival(bench: &dyn Bench) {
    let holder = Desk::open(bench).await;
    let desks = [
        Desk::open(bench).await,
        Desk::open(bench).await,
        Desk::open(bench).await,
    ];
    let held = holder.take(&ask("order:1", "k0")).await;
    let mut waiting = Vec::new();
    for (number, desk) in desks.iter().enumerate() {
        let claim = ask("order:1", &format!("k{}", number + 1));
        waiting.push(at(desk.queue(&claim).await, &claim));
    }
    let tickets: Vec<_> = waiting.iter().filter_map(|claim| claim.ticket).collect();
    assert!(tickets.is_sorted_by(|a, b| a < b), "{tickets:?}");
    holder.end(&held, applied()).await;
    // Nobody goes past the first, not even the one who held it, nor one who just came.
    let newcomer = ask("order:1", "k9");
    let last = holder.queue(&newcomer).await;
    assert!(tickets.iter().all(|ticket| *ticket < last));
    for (first, desk) in desks.iter().enumerate() {
        for later in first + 1..desks.len() {
            desks[later].queue(&waiting[later]).await;
        }
        let turn = desk.take(&waiting[first]).await;
        holder.queue(&at(last, &newcomer)).await;
        desk.end(&turn, failed()).await;
    }
    holder.take(&at(last, &newcomer)).await;
}

/// By rule 2.3.
pub async fn another_entity_does_not_wait(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    desk.take(&ask("order:1", "k1")).await;
    let other = desk.take(&ask("order:2", "k2")).await;
    assert_eq!(other.mark.fence, Some(Fence(1)), "fences are the entity's");
    desk.of("globex").take(&ask("order:1", "k1")).await;
}

/// By rule 2.7.
pub async fn whoever_leaves_the_queue_lets_the_next_go(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let held = desk.take(&ask("order:1", "k0")).await;
    let (first, second) = (ask("order:1", "k1"), ask("order:1", "k2"));
    let (leaving, staying) = (desk.queue(&first).await, desk.queue(&second).await);
    let left = desk
        .store
        .leave(&desk.tenant, &entity("order:1"), leaving)
        .await;
    left.expect("leaves");
    desk.queue(&at(staying, &second)).await;
    desk.end(&held, applied()).await;
    desk.take(&at(staying, &second)).await;
    assert!(desk.find("k1").await.is_none(), "who left sent nothing");
}

/// By rules 2.7, 2.9.
pub async fn a_waiter_whose_session_died_is_passed_over(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let (closing, lapsing) = (
        Desk::open(bench).await,
        Desk::lasting(bench, bench.unit()).await,
    );
    let held = desk.take(&ask("order:1", "k0")).await;
    closing.queue(&ask("order:1", "k1")).await;
    lapsing.queue(&ask("order:1", "k2")).await;
    let living = ask("order:1", "k3");
    let ticket = desk.queue(&living).await;
    desk.end(&held, applied()).await;
    closing.close().await;
    bench.wait(bench.unit() * 2).await;
    desk.take(&at(ticket, &living)).await;
}

/// By rule 2.4.
pub async fn a_read_waits_its_turn_and_holds_nobody_up(bench: &dyn Bench) {
    let (writer, reader) = (Desk::open(bench).await, Desk::open(bench).await);
    assert_eq!(pass(&reader, "order:1", None).await, None);
    let held = writer.take(&ask("order:1", "k1")).await;
    let place = pass(&reader, "order:1", None).await;
    assert!(place.is_some(), "it came after the write");
    assert_eq!(pass(&reader, "order:1", place).await, place);
    let behind = ask("order:1", "k2");
    let behind = at(writer.queue(&behind).await, &behind);
    writer.end(&held, applied()).await;
    writer.queue(&behind).await;
    let newcomer = pass(&reader, "order:1", None).await;
    assert!(newcomer > behind.ticket, "a read takes its place too");
    assert_eq!(pass(&reader, "order:1", place).await, None);
    let turn = writer.take(&behind).await;
    assert_eq!(pass(&reader, "order:1", newcomer).await, newcomer);
    writer.end(&turn, applied()).await;
    assert_eq!(pass(&reader, "order:1", newcomer).await, None);
    assert_eq!(reader.entity("order:1").await.holder, None);
    writer.take(&ask("order:1", "k3")).await;
}

/// By rules 2.4, 4.2: a doubt is no turn.
pub async fn a_read_passes_an_entity_in_doubt(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    desk.run(&ask("order:1", "k1"), unknown()).await;
    assert_eq!(pass(&desk, "order:1", None).await, None);
}

/// By rules 8.3, 2.6: a place that nobody knows of would hold up everybody behind it for as long as
/// its session lives.
pub async fn a_wait_whose_answer_was_lost_is_the_same_place(bench: &dyn Bench) {
    let (one, two) = (Desk::open(bench).await, Desk::open(bench).await);
    let held = one.take(&ask("order:1", "k1")).await;
    let waiting = ask("order:1", "k2");
    let place = two.queue(&waiting).await;
    let behind = ask("order:1", "k3");
    let behind = at(one.queue(&behind).await, &behind);
    assert_eq!(two.queue(&unheard(&waiting)).await, place);
    assert_eq!(two.queue(&at(place, &waiting)).await, place);
    one.end(&held, applied()).await;
    one.queue(&behind).await;
    // Once more without its ticket: the turn comes to its place all the same.
    let turn = two.take(&unheard(&waiting)).await;
    two.end(&turn, applied()).await;
    one.run(&behind, applied()).await;
    two.run(&ask("order:1", "k4"), applied()).await;
}

/// By rules 8.3, 2.6: the place goes, whatever the answer is that comes instead of a turn.
pub async fn a_lost_place_that_is_not_needed_any_more_holds_nobody_up(bench: &dyn Bench) {
    let (one, two) = (Desk::open(bench).await, Desk::open(bench).await);
    let first = ask("order:1", "k1");
    let held = one.take(&first).await;
    let ahead = ask("order:1", "k2");
    let ahead = at(one.queue(&ahead).await, &ahead);
    let same = again(&first);
    two.queue(&same).await;
    one.end(&held, applied()).await;
    two.duplicate(&unheard(&same)).await;
    let held = one.take(&ahead).await;
    let mut blocked = ask("order:1", "k3");
    blocked.clearance = Clearance::Refused(Refusal::new(Reason::Policy, "no"));
    two.queue(&blocked).await;
    one.end(&held, unknown()).await;
    two.refused_as(Reason::EntityInDoubt, &unheard(&blocked))
        .await;
    one.resolve("k2", 1, it_happened()).await;
    one.run(&ask("order:1", "k4"), applied()).await;
}

/// By rules 8.3, 2.6.
pub async fn a_read_whose_answer_was_lost_has_one_place(bench: &dyn Bench) {
    let (writer, reader) = (Desk::open(bench).await, Desk::open(bench).await);
    let held = writer.take(&ask("order:1", "k1")).await;
    let (lost, other) = (fresh_id(), fresh_id());
    let place = pass_as(&lost, &reader, "order:1", None).await;
    assert!(place.is_some(), "it came after the write");
    let next = pass_as(&other, &reader, "order:1", None).await;
    assert!(next > place, "another read is another place");
    assert_eq!(pass_as(&lost, &reader, "order:1", None).await, place);
    writer.end(&held, applied()).await;
    assert_eq!(pass_as(&other, &reader, "order:1", next).await, next);
    assert_eq!(pass_as(&lost, &reader, "order:1", None).await, None);
    assert_eq!(pass_as(&other, &reader, "order:1", None).await, None);
    writer.run(&ask("order:1", "k2"), applied()).await;
}

/// By rule 2.6.
pub async fn every_end_gives_the_turn_up(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let ends = [
        ("a", applied(), Phase::Applied),
        ("b", failed(), Phase::Failed),
        ("c", unknown(), Phase::InDoubt),
    ];
    for (name, outcome, phase) in ends {
        let attempt = desk.take(&ask(name, name)).await;
        let answer = desk.end(&attempt, outcome).await;
        assert_eq!(answer.phase, phase);
        assert_eq!(answer.receipt_id, attempt.proposal.receipt_id);
        assert_eq!(desk.entity(name).await.holder, None);
        assert_eq!(desk.key(name).await.phase, phase);
    }
}

/// By rules 2.1, 3.8.
pub async fn a_hundred_claims_of_one_key_are_one_intent(bench: &dyn Bench) {
    let mut asking = Vec::new();
    for number in 0..5 {
        let desk = Desk::open(bench).await;
        for _ in 0..20 {
            let desk = desk.clone();
            asking.push(tokio::spawn(async move {
                let claim = ask("order:1", "k1");
                let answer = desk.ask(&claim).await;
                (number, desk, claim, answer)
            }));
        }
    }
    let (mut granted, mut waiting) = (Vec::new(), Vec::new());
    for task in asking {
        let (_, desk, claim, answer) = task.await.expect("no panic");
        match answer {
            ClaimAnswer::Claimed(mark) => granted.push((desk, claim, mark)),
            ClaimAnswer::Wait(ticket) => waiting.push((desk, claim, ticket)),
            other => panic!("neither granted nor waiting: {other:?}"),
        }
    }
    assert_eq!((granted.len(), waiting.len()), (1, 99));
    let tickets: BTreeSet<_> = waiting.iter().map(|(_, _, ticket)| *ticket).collect();
    assert_eq!(tickets.len(), 99, "every place is somebody's own");
    let (desk, claim, _) = &granted[0];
    let attempt = desk.take(claim).await;
    desk.end(&attempt, applied()).await;
    for (desk, claim, ticket) in &waiting {
        desk.duplicate(&at(*ticket, claim)).await;
    }
    assert_eq!(desk.trail().await.len(), 100, "one receipt per proposal");
    desk.take(&ask("order:1", "k2")).await;
}

/// By rules 2.1, 5.1: each claim of a call is decided as if it had come alone, in order.
pub async fn a_call_of_many_claims_answers_each_in_its_order(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    desk.run(&ask("order:9", "burned"), applied()).await;
    let mut other_args = again(&ask("order:9", "burned"));
    other_args.proposal.action.args = Packed::default();
    let claims = [
        ask("order:1", "k1"),
        ask("order:2", "k2"),
        ask("order:1", "k1"),
        ask("order:1", "k3"),
        ask("order:9", "burned"),
        other_args,
        ask("order:4", "k4"),
    ];
    let asked = claims.iter().map(|claim| desk.filled(claim)).collect();
    let answered = desk.store.claim(&desk.tenant, asked).await;
    let answers = answered.expect("answers");
    let words: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            ClaimAnswer::Claimed(_) => "claimed",
            ClaimAnswer::Wait(_) => "wait",
            ClaimAnswer::Probe(_) => "probe",
            ClaimAnswer::Duplicate { .. } => "duplicate",
            ClaimAnswer::Refused { refusal, .. } => refusal.reason.as_str(),
        })
        .collect();
    let expected = [
        "claimed",
        "claimed",
        "wait",
        "wait",
        "duplicate",
        "conflict",
        "claimed",
    ];
    assert_eq!(words, expected);
    assert_eq!(desk.trail().await.len(), 3, "only what ended has a receipt");
    let ClaimAnswer::Wait(ticket) = answers[3] else {
        panic!("{:?}", answers[3])
    };
    let first = desk.take(&claims[0]).await;
    desk.end(&first, failed()).await;
    desk.queue(&at(ticket, &claims[3])).await;
    let ClaimAnswer::Wait(ticket) = answers[2] else {
        panic!("{:?}", answers[2])
    };
    let second = desk.take(&at(ticket, &claims[2])).await;
    assert_eq!(second.mark.attempt, 2);
}

/// By rule 5.2: settlements of one call are each whole.
pub async fn a_call_of_many_settlements_answers_each(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let mut settlements = Vec::new();
    for (name, outcome) in [("a", applied()), ("b", failed()), ("c", unknown())] {
        let mut settlement = desk.take(&ask(name, name)).await;
        settlement.outcome = outcome;
        settlements.push(settlement);
    }
    let settled = desk.store.settle(&desk.tenant, settlements.clone()).await;
    let phases: Vec<_> = settled.expect("settles").iter().map(|a| a.phase).collect();
    assert_eq!(phases, [Phase::Applied, Phase::Failed, Phase::InDoubt]);
    let trail = desk.trail().await;
    // Of one call, in whatever order.
    let written: BTreeSet<_> = trail.iter().map(|r| &r.receipt_id).collect();
    let settled = settlements.iter().map(|s| &s.proposal.receipt_id);
    assert_eq!((trail.len(), written), (3, settled.collect()));
    desk.refused_as(Reason::EntityInDoubt, &ask("c", "other"))
        .await;
}
