//! Limits: counted in the store with the claim, so that nobody takes a slot twice (section 9).

use std::time::Duration;

use operators_kernel::life::Phase;
use operators_kernel::{
    Claim, ClaimAnswer, EffectClass, ForgetAnswer, Limit, PolicyRef, Reason, ReceiptOutcome,
    ResolveAnswer, Shared, Timestamp, Verdict,
};
use tokio::task::JoinSet;

use super::desk::{Desk, again, applied, ask, ask_as, ask_brief, failed, moment, unheard, unknown};
use crate::stores::Bench;

const HOUR: Duration = Duration::from_hours(1);

fn limit(max: u32, scope: &str) -> Limit {
    Limit {
        rule: format!("at most {max}").into(),
        policy: Shared::from(PolicyRef {
            name: "limits".to_owned(),
            version: 7,
            digest: "sha256:77".to_owned(),
        }),
        scope: scope.to_owned(),
        max,
        window: HOUR,
    }
}

/// A claim on an entity of its own that counts towards a limit of `max`.
fn within(max: u32, name: &str) -> Claim {
    limited(ask(name, name), max)
}

fn limited(mut claim: Claim, max: u32) -> Claim {
    claim.limits = vec![limit(max, "all")];
    claim
}

fn later(at: Timestamp, span: Duration) -> Timestamp {
    let micros = i64::try_from(span.as_micros()).expect("a short span");
    Timestamp::from_micros(at.as_micros() + micros)
}

/// By rule 3.2: a key that nobody has seen is claimed by one of many, whatever entities they name and
/// whether or not people or limits have a say, which some stores decide in another way.
pub async fn one_new_key_on_many_entities_is_one_intent(bench: &dyn Bench) {
    let desks = [Desk::open(bench).await, Desk::open(bench).await];
    for round in 0..8 {
        let key = format!("k{round}");
        let mut asking = JoinSet::new();
        for place in 0..6 {
            let desk = desks[place % 2].clone();
            let mut claim = ask(&format!("order:{round}:{place}"), &key);
            if place < 4 {
                claim.limits = vec![limit(9, &claim.proposal.entity_key.to_string())];
            }
            asking.spawn(async move { desk.ask(&claim).await });
        }
        let mut granted = 0;
        while let Some(answer) = asking.join_next().await {
            match answer.expect("no panic") {
                ClaimAnswer::Claimed(_) => granted += 1,
                ClaimAnswer::Refused { refusal, .. } => {
                    assert_eq!(refusal.reason, Reason::Conflict, "{refusal:?}");
                }
                other => panic!("neither granted nor refused: {other:?}"),
            }
        }
        assert_eq!(granted, 1, "of one key in round {round}");
    }
}

/// By rules 9.4, 9.6.
pub async fn a_limit_stops_the_next_and_says_when_a_slot_is_free(bench: &dyn Bench) {
    let (desk, other) = (Desk::open(bench).await, Desk::open(bench).await);
    let first = within(2, "k1");
    desk.run(&first, applied()).await;
    other.take(&within(2, "k2")).await;
    let third = within(2, "k3");
    let refusal = desk.refusal(&third).await;
    assert_eq!(refusal.reason, Reason::Limit);
    assert_eq!(refusal.rule.as_deref(), Some("at most 2"));
    let free = later(first.at, HOUR).to_string();
    for told in ["`at most 2`", "2 are taken", &free] {
        assert!(refusal.error.contains(told), "{}", refusal.error);
    }
    let receipt = desk.receipt(&third.proposal.receipt_id).await;
    assert_eq!(receipt.outcome, Some(ReceiptOutcome::Refused));
    assert_eq!(receipt.reason, Some(Reason::Limit));
    assert_eq!(receipt.rule.as_deref(), Some("at most 2"));
    let policy = receipt.policy.expect("the policy of the limit");
    assert_eq!((policy.name.as_str(), policy.version), ("limits", 7));
    // Nothing was claimed, so nothing is held.
    assert_eq!(desk.find("k3").await, None);
    assert_eq!(desk.entity("k3").await.holder, None);
    // Asked again after a lost answer, it is told the same.
    let told = desk.refusal(&unheard(&third)).await;
    assert_eq!(told, refusal);
}

/// By rule 9.4.
pub async fn the_last_slot_goes_to_one_of_many(bench: &dyn Bench) {
    let mut asking = JoinSet::new();
    for worker in 0..4 {
        let desk = Desk::open(bench).await;
        asking.spawn(async move {
            let mut granted = 0;
            for n in 0..4 {
                match desk.ask(&within(5, &format!("w{worker}-{n}"))).await {
                    ClaimAnswer::Claimed(_) => granted += 1,
                    ClaimAnswer::Refused { refusal, .. } => {
                        assert_eq!(refusal.reason, Reason::Limit);
                    }
                    other => panic!("neither: {other:?}"),
                }
            }
            granted
        });
    }
    let granted = asking.join_all().await;
    assert_eq!(granted.iter().sum::<i32>(), 5, "{granted:?}");
}

/// By rule 9.4.
pub async fn a_window_slides_with_the_proposers_clock(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let start = moment();
    let at = |name: &str, minutes: u64| {
        let mut claim = within(2, name);
        claim.at = later(start, Duration::from_mins(minutes));
        claim
    };
    desk.run(&at("k1", 0), applied()).await;
    desk.run(&at("k2", 30), applied()).await;
    desk.refused_as(Reason::Limit, &at("k3", 59)).await;
    desk.run(&at("k3", 60), applied()).await;
    desk.refused_as(Reason::Limit, &at("k4", 89)).await;
    desk.run(&at("k4", 90), applied()).await;
}

/// By rule 9.5.
pub async fn a_definite_failure_gives_the_slot_back(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let first = within(1, "k1");
    desk.run(&first, failed()).await;
    let next = desk.take(&within(1, "k2")).await;
    desk.refused_as(Reason::Limit, &again(&first)).await;
    desk.end(&next, failed()).await;
    // Told twice, it is given back once.
    desk.end(&next, failed()).await;
    desk.run(&again(&first), applied()).await;
    desk.refused_as(Reason::Limit, &within(1, "k2")).await;
    assert_eq!(desk.key("k2").await.phase, Phase::Failed);
}

/// By rule 9.5.
pub async fn a_doubt_keeps_its_slot_and_a_resend_takes_no_second(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let doubt = limited(ask_as(EffectClass::Idempotent, "k1", "k1"), 1);
    desk.run(&doubt, unknown()).await;
    desk.refused_as(Reason::Limit, &within(1, "k2")).await;
    // A failed resend decides nothing about the first attempt.
    desk.run(&again(&doubt), failed()).await;
    desk.refused_as(Reason::Limit, &within(1, "k2")).await;
    desk.run(&again(&doubt), applied()).await;
    desk.refused_as(Reason::Limit, &within(1, "k2")).await;
}

/// By rule 9.5: a late answer, and a person's.
pub async fn what_is_known_late_not_to_have_happened_gives_the_slot_back(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let first = desk.take(&within(1, "k1")).await;
    desk.end(&first, unknown()).await;
    desk.refused_as(Reason::Limit, &within(1, "k2")).await;
    desk.end(&first, failed()).await;
    let brief = limited(ask_brief(bench, EffectClass::Opaque, "k2", "k2"), 1);
    desk.run(&brief, unknown()).await;
    desk.refused_as(Reason::Limit, &within(1, "k3")).await;
    bench.wait(bench.unit() * 3).await;
    let resolved = desk.resolve("k2", 1, Verdict::NotApplied).await;
    assert_eq!(resolved, ResolveAnswer::Resolved(Phase::Failed));
    let third = within(1, "k3");
    desk.run(&third, unknown()).await;
    // What nobody will ever know may have happened.
    desk.resolve("k3", 1, Verdict::WriteOff).await;
    desk.refused_as(Reason::Limit, &within(1, "k4")).await;
}

/// By rule 9.4: duplicates, conflicts and refusals take none.
pub async fn only_what_is_granted_takes_a_slot(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let first = within(2, "k1");
    desk.run(&first, applied()).await;
    for _ in 0..3 {
        desk.duplicate(&again(&first)).await;
    }
    let mut other = again(&first);
    other.proposal.value = Some(3.into());
    desk.refused_as(Reason::Conflict, &other).await;
    let second = within(2, "k2");
    let attempt = desk.take(&second).await;
    // The same claim again is the same slot.
    desk.ask(&unheard(&second)).await;
    desk.refused_as(Reason::Limit, &within(2, "k3")).await;
    desk.end(&attempt, applied()).await;
    desk.duplicate(&again(&second)).await;
}

/// By rule 9.4: all of them or none.
pub async fn every_limit_must_have_a_slot(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let both = |name: &str, entity: &str| {
        let mut claim = ask(entity, name);
        claim.limits = vec![limit(9, "tenant"), limit(1, entity)];
        claim
    };
    desk.run(&both("k1", "order:1"), applied()).await;
    let refusal = desk.refusal(&both("k2", "order:1")).await;
    assert_eq!(refusal.rule.as_deref(), Some("at most 1"));
    desk.run(&both("k3", "order:2"), applied()).await;
    // The refused one took no slot of the wider limit either.
    let mut claim = ask("order:9", "k9");
    claim.limits = vec![limit(3, "tenant")];
    desk.run(&claim, applied()).await;
    let mut claim = ask("order:9", "k10");
    claim.limits = vec![limit(3, "tenant")];
    desk.refused_as(Reason::Limit, &claim).await;
}

/// By rule 9.5.
pub async fn a_forgotten_key_counts_anew(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = within(2, "k1");
    desk.run(&claim, applied()).await;
    assert_eq!(desk.forget("k1").await, ForgetAnswer::Forgotten(2));
    desk.run(&again(&claim), applied()).await;
    desk.refused_as(Reason::Limit, &within(2, "k2")).await;
}

/// By rule 9.4.
pub async fn limits_are_a_tenants_own_and_survive_the_handle(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    desk.run(&within(1, "k1"), applied()).await;
    let neighbour = desk.of("neighbour");
    neighbour.run(&within(1, "k1"), applied()).await;
    neighbour.refused_as(Reason::Limit, &within(1, "k2")).await;
    drop((desk, neighbour));
    let desk = Desk::open(bench).await;
    desk.refused_as(Reason::Limit, &within(1, "k2")).await;
}
