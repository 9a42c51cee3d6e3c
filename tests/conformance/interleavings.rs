//! Every interleaving of a small world over the kernel's own transition functions.
//!
//! Two executors, one entity, one or two keys, a few attempts; a network that delays, drops, refuses
//! or lands late; answers that are lost; crashes and lapsed leases anywhere; a person or a probe who
//! tells the truth of the moment. Each variant with a rule taken out must be found out, or the
//! search proves nothing.

mod search;
mod world;

use operators_kernel::{EffectClass, OnUnknown};

use search::{Found, explore};
use world::{Broken, Invariant, Rules};

const KEYED: EffectClass = EffectClass::Keyed {
    window_ms: 3_600_000,
};

/// Two mishaps with one key, one with two (two would take minutes there), or as many as
/// `OPERATORS_MISHAPS` says.
fn rules(effect: EffectClass, keys: usize) -> Rules {
    let wanted = std::env::var("OPERATORS_MISHAPS").ok();
    let wanted = wanted.map(|wanted| wanted.parse().expect("a small number"));
    Rules {
        effect,
        on_unknown: OnUnknown::Hold,
        keys,
        mishaps: wanted.unwrap_or(if keys == 1 { 2 } else { 1 }),
        broken: None,
    }
}

#[track_caller]
fn holds(name: &str, rules: Rules) {
    let Found { states, violation } = explore(&rules);
    println!("{name}: {states} states");
    if let Some((invariant, trace)) = violation {
        panic!(
            "{name}: {invariant:?} is violated:\n  {}",
            trace.join("\n  ")
        );
    }
    assert!(
        states > 1_000,
        "{name}: only {states} states: nothing happened"
    );
}

#[track_caller]
fn is_found_out(name: &str, rules: Rules, broken: Broken, expected: &[Invariant]) {
    let broken_rules = Rules {
        broken: Some(broken),
        ..rules
    };
    let Found { states, violation } = explore(&broken_rules);
    let Some((invariant, trace)) = violation else {
        panic!("{name}: {broken:?} was not found out in {states} states")
    };
    println!("{name}, {broken:?}: {invariant:?} after {states} states");
    println!("  {}", trace.join("\n  "));
    assert!(expected.contains(&invariant), "{invariant:?}");
}

/// By rules 2.1, 4.1, 4.2, 4.3, 4.4, 4.6, 4.9, 8.3: at most one effect, none in another's turn, none
/// burned that did not happen.
#[test]
fn an_opaque_key_takes_effect_at_most_once_in_every_interleaving() {
    holds("opaque, one key", rules(EffectClass::Opaque, 1));
}

/// By rules 2.1, 4.2, 4.8.
#[test]
fn two_opaque_keys_of_one_entity_never_overlap_in_any_interleaving() {
    holds("opaque, two keys", rules(EffectClass::Opaque, 2));
}

/// By rules 4.6, 4.13.
#[test]
fn a_probeable_key_takes_effect_at_most_once_in_every_interleaving() {
    holds("probeable, one key", rules(EffectClass::Probeable, 1));
}

/// By rules 4.5, 4.7.
#[test]
fn a_keyed_key_is_one_effect_in_every_interleaving() {
    holds("keyed, one key", rules(KEYED, 1));
    holds("keyed, two keys", rules(KEYED, 2));
}

/// By rules 4.5, 4.7, 4.8.
#[test]
fn an_idempotent_key_is_never_overtaken_in_any_interleaving() {
    holds("idempotent, two keys", rules(EffectClass::Idempotent, 2));
}

/// By rule 4.8: nothing overtakes a call that was sent again at its owner's word.
#[test]
fn a_retried_opaque_key_is_never_overtaken_in_any_interleaving() {
    for effect in [EffectClass::Opaque, EffectClass::Probeable] {
        holds("retried, two keys", retried(effect));
    }
}

fn retried(effect: EffectClass) -> Rules {
    Rules {
        on_unknown: OnUnknown::Retry,
        ..rules(effect, 2)
    }
}

/// By rule 4.6.
#[test]
fn believing_not_applied_at_once_is_found_out() {
    let twice = [Invariant::OneEffect];
    let broken = Broken::NotAppliedIsBelievedAtOnce;
    is_found_out("opaque", rules(EffectClass::Opaque, 1), broken, &twice);
    let overlap = [Invariant::NoOverlap, Invariant::OneEffect];
    is_found_out("two keys", rules(EffectClass::Opaque, 2), broken, &overlap);
}

/// By rule 4.12.
#[test]
fn sending_without_a_lease_is_found_out() {
    let twice = [Invariant::OneEffect];
    let rules = rules(EffectClass::Opaque, 1);
    is_found_out("opaque", rules, Broken::SentWithoutALease, &twice);
}

/// By rules 4.6, 4.12: a call's deadline counts from its intent, or quiescence means nothing.
#[test]
fn counting_the_deadline_from_the_send_is_found_out() {
    let twice = [Invariant::OneEffect];
    let rules = rules(EffectClass::Opaque, 1);
    is_found_out("opaque", rules, Broken::DeadlineFromTheSend, &twice);
}

/// By rule 4.7.
#[test]
fn a_failed_resend_that_clears_the_doubt_is_found_out() {
    let broken = Broken::FailedResendClearsTheDoubt;
    let overlap = [Invariant::NoOverlap];
    is_found_out("keyed", rules(KEYED, 2), broken, &overlap);
}

/// By rule 4.1.
#[test]
fn taking_a_time_out_for_an_answer_is_found_out() {
    let opaque = rules(EffectClass::Opaque, 1);
    let twice = [Invariant::OneEffect];
    is_found_out("opaque", opaque, Broken::TimeOutIsAFailure, &twice);
    let untrue = [Invariant::BurnedMeansEffect];
    is_found_out("opaque", opaque, Broken::TimeOutIsASuccess, &untrue);
}

/// By rules 4.3, 4.4.
#[test]
fn freeing_a_dead_owners_intent_is_found_out() {
    let rules = rules(EffectClass::Opaque, 1);
    let twice = [Invariant::OneEffect];
    is_found_out("opaque", rules, Broken::DeathFreesTheIntent, &twice);
}

/// By rule 4.2.
#[test]
fn a_doubt_that_does_not_hold_its_entity_is_found_out() {
    let rules = rules(EffectClass::Opaque, 2);
    let overlap = [Invariant::NoOverlap];
    is_found_out("two keys", rules, Broken::DoubtHoldsNobody, &overlap);
}

/// By rule 4.8.
#[test]
fn not_waiting_for_abandoned_requests_is_found_out() {
    let overlap = [Invariant::NoOverlap];
    for effect in [EffectClass::Idempotent, EffectClass::Opaque] {
        let rules = rules(effect, 2);
        let broken = Broken::NobodyWaitsForLanding;
        is_found_out(effect.as_str(), rules, broken, &overlap);
    }
    let broken = Broken::NobodyWaitsForLanding;
    is_found_out("retried", retried(EffectClass::Opaque), broken, &overlap);
}

/// By rules 8.3, 4.9: a settlement of an attempt that is not its own.
#[test]
fn a_settlement_that_is_not_fenced_is_found_out() {
    let rules = rules(EffectClass::Opaque, 1);
    let expected = [Invariant::OneEffect, Invariant::BurnedMeansEffect];
    is_found_out("opaque", rules, Broken::SettlesAnyAttempt, &expected);
}
