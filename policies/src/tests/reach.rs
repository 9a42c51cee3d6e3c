//! An operator's `requires` is its whole reach.

use operators_kernel::Ruling;
use operators_kernel::TrustDecision::{Allow, Block};

use super::{Asked, HOLD, ask, policy, reaches, rules};
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

#[test]
fn it_binds_its_operator_only() {
    let set = all_allowed(&[]);
    for operator in [None, Some("night")] {
        rules(&set, Asked { operator, ..HOLD }, Allow, Some("all"));
    }
}
