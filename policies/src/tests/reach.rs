//! An operator's `requires` is its whole reach.

use operators_kernel::TrustDecision::{Allow, Block};
use operators_kernel::{Ruling, TrustPolicy};

use super::{Asked, HOLD, ask, policy, reaches, rules, with_question};
use crate::RuleSet;

const BY_SHIP_RISK: Asked<'static> = Asked {
    operator: Some("ship-risk"),
    ..HOLD
};

fn all_allowed(requires: &[&str]) -> RuleSet {
    let text = "policy = \"p\"\nversion = 1\n[[rule]]\nname = \"all\"\ndecision = \"ALLOW\"";
    RuleSet::new(vec![policy(text)], reaches("ship-risk", requires)).expect("one policy")
}

#[test]
fn inside_it_the_rules_decide() {
    for requires in [
        &["shop:orders.hold"][..],
        &["shop:orders.*"],
        &["mail:send", "shop:*.hold"],
    ] {
        rules(&all_allowed(requires), BY_SHIP_RISK, Allow, Some("all"));
    }
}

#[test]
fn outside_it_nothing_runs_whatever_the_rules_say() {
    for requires in [
        &["shop:orders.release"][..],
        &["mail:orders.hold"],
        &["shop:orders"],
        &["shop:*"],
        &["shop:orders.hold.*"],
        &[],
    ] {
        let ruling = ask(&all_allowed(requires), BY_SHIP_RISK);
        assert_eq!(
            ruling,
            Ruling::closed("outside the operator's `requires`"),
            "{requires:?}"
        );
    }
}

#[test]
fn it_never_opens_what_the_rules_close() {
    let text = "policy = \"p\"\nversion = 1\n[[rule]]\nname = \"no\"\ndecision = \"BLOCK\"";
    let reach = reaches("ship-risk", &["shop:orders.hold"]);
    let set = RuleSet::new(vec![policy(text)], reach.clone()).expect("one policy");
    rules(&set, BY_SHIP_RISK, Block, Some("no"));
    let set = RuleSet::new(Vec::new(), reach).expect("no policies");
    assert_eq!(ask(&set, BY_SHIP_RISK), Ruling::closed("no policy files"));
}

/// Rule 6.5: of reads, too; no rule speaks of those, not even one that blocks everything.
#[test]
fn it_bounds_reads_and_nothing_else_does() {
    let text = "policy = \"p\"\nversion = 1\n[[rule]]\nname = \"no\"\ndecision = \"BLOCK\"";
    let set = |requires| {
        let reach = reaches("ship-risk", requires);
        RuleSet::new(vec![policy(text)], reach).expect("one policy")
    };
    let asked = |set: &RuleSet, asked| with_question(asked, |question| set.evaluate_read(question));
    let inside = asked(&set(&["shop:orders.hold"]), BY_SHIP_RISK);
    assert_eq!(inside, Ruling::of(Allow));
    for requires in [&["shop:orders.release"][..], &[]] {
        let outside = asked(&set(requires), BY_SHIP_RISK);
        let closed = Ruling::closed("outside the operator's `requires`");
        assert_eq!(outside, closed, "{requires:?}");
        assert_eq!(asked(&set(requires), HOLD), Ruling::of(Allow));
    }
}

#[test]
fn it_binds_its_operator_only() {
    let set = all_allowed(&[]);
    for operator in [None, Some("night")] {
        rules(&set, Asked { operator, ..HOLD }, Allow, Some("all"));
    }
}
