//! Two layers, the project's and an operator's own, must agree.

use std::collections::BTreeMap;

use operators_kernel::TrustDecision::{self, Alert, Allow, Block};
use operators_kernel::{OnAlert, OperatorName, Ruling};

use super::{Asked, HOLD, ask, policy, rule, rules};
use crate::{Layers, Policy, RuleSet};

const BY_SHIP_RISK: Asked<'static> = Asked {
    operator: Some("ship-risk"),
    ..HOLD
};

fn named(name: &str, text: &str) -> Policy {
    policy(&format!("policy = \"{name}\"\nversion = 1\n{text}"))
}

fn layered(project: Vec<Policy>, own: Vec<Policy>) -> RuleSet {
    let operator = OperatorName::parse("ship-risk").expect("a name");
    RuleSet::layered(Layers {
        project,
        own: BTreeMap::from([(operator, own)]),
        ..Layers::default()
    })
    .expect("distinct names")
}

fn says(decision: TrustDecision) -> String {
    let word = match decision {
        Allow => "ALLOW",
        Alert => "ALERT",
        Block => "BLOCK",
    };
    rule("r", &format!("decision = \"{word}\""))
}

#[test]
fn the_stricter_layer_decides() {
    // rule 6.11
    for project in [Allow, Alert, Block] {
        for own in [Allow, Alert, Block] {
            let set = layered(
                vec![named("p", &says(project))],
                vec![named("o", &says(own))],
            );
            let strictest = match (project, own) {
                (Block, _) | (_, Block) => Block,
                (Alert, _) | (_, Alert) => Alert,
                (Allow, Allow) => Allow,
            };
            rules(&set, BY_SHIP_RISK, strictest, Some("r"));
            // Whom the own layer is not for, the project alone binds.
            rules(&set, HOLD, project, Some("r"));
            let other = Asked {
                operator: Some("night"),
                ..HOLD
            };
            rules(&set, other, project, Some("r"));
        }
    }
}

#[test]
fn a_layer_that_is_silent_or_empty_blocks() {
    // rule 6.11
    let elsewhere = rule("r", "connector = \"mail\"\ndecision = \"ALLOW\"");
    let set = layered(vec![named("p", &says(Allow))], vec![named("o", &elsewhere)]);
    let unspoken = "no rule of operator `ship-risk`'s own policies speaks of `shop:orders.hold`";
    assert_eq!(ask(&set, BY_SHIP_RISK), Ruling::closed(unspoken));
    let set = layered(vec![named("p", &elsewhere)], vec![named("o", &says(Allow))]);
    let unspoken = "no rule speaks of `shop:orders.hold`";
    assert_eq!(ask(&set, BY_SHIP_RISK), Ruling::closed(unspoken));
    let set = layered(vec![named("p", &says(Allow))], Vec::new());
    assert_eq!(ask(&set, BY_SHIP_RISK), Ruling::closed("no policy files"));
    rules(&set, HOLD, Allow, Some("r"));
    let set = layered(Vec::new(), vec![named("o", &says(Allow))]);
    assert_eq!(ask(&set, BY_SHIP_RISK), Ruling::closed("no policy files"));
}

#[test]
fn any_failing_match_of_either_layer_blocks() {
    let capped = rule("capped", "decision = \"ALLOW\"\nmax_value = 99");
    for (project, own) in [
        (says(Allow), capped.clone()),
        (capped.clone(), says(Allow)),
        (capped.clone(), says(Alert)),
    ] {
        let set = layered(vec![named("p", &project)], vec![named("o", &own)]);
        rules(&set, BY_SHIP_RISK, Block, Some("capped"));
    }
}

#[test]
fn an_alert_that_does_not_say_what_it_leads_to_leaves_it_to_the_set() {
    // rule 9.7
    let asked = |alert: &str, on_alert| {
        let text = rule("r", &format!("decision = \"ALERT\"{alert}"));
        let set = RuleSet::layered(Layers {
            project: vec![named("p", &text)],
            on_alert,
            ..Layers::default()
        });
        ask(&set.expect("one policy"), BY_SHIP_RISK).on_alert
    };
    for (alert, of_set, leads_to) in [
        ("", OnAlert::Notify, OnAlert::Notify),
        ("", OnAlert::Approve, OnAlert::Approve),
        ("\nalert = \"notify\"", OnAlert::Approve, OnAlert::Notify),
        ("\nalert = \"approve\"", OnAlert::Notify, OnAlert::Approve),
    ] {
        assert_eq!(asked(alert, of_set), leads_to, "`{alert}` under {of_set:?}");
    }
}

#[test]
fn one_name_in_both_layers_and_a_policy_for_others_are_refused() {
    let operator = OperatorName::parse("ship-risk").expect("a name");
    let refused = |project: &str, own: Policy| {
        RuleSet::layered(Layers {
            project: vec![named(project, &says(Allow))],
            own: BTreeMap::from([(operator.clone(), vec![own])]),
            ..Layers::default()
        })
        .expect_err("refused")
        .to_string()
    };
    let error = refused("p", named("p", &says(Allow)));
    assert!(
        error.contains("policy `p` is in `test.toml` too"),
        "{error}"
    );
    let foreign = format!("applies_to = [\"night\"]\n{}", says(Allow));
    let error = refused("p", named("o", &foreign));
    assert!(error.contains("does not apply to it"), "{error}");
}
