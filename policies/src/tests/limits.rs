//! What a ruling asks the store to keep: every limit that matched, each under a name of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use operators_kernel::OnAlert;
use operators_kernel::TrustDecision::{Alert, Allow, Block};

use super::{Asked, HOLD, ask, policy};
use crate::{LimitBy, Policy, RuleLimit, RuleSet};

/// A policy with a limit on its rule, as no file may have one yet.
fn limited(name: &str, rest: &str, by: LimitBy) -> Policy {
    let text = format!("policy = \"{name}\"\nversion = 1\n[[rule]]\nname = \"r\"\n{rest}");
    let mut policy = policy(&text);
    policy.rules[0].limit = Some(RuleLimit {
        max: 25,
        per: Duration::from_hours(1),
        by,
    });
    policy
}

fn set(policies: Vec<Policy>) -> RuleSet {
    RuleSet::new(policies, BTreeMap::new()).expect("distinct names")
}

#[test]
fn every_limit_of_every_rule_that_speaks_is_asked_for() {
    let set = set(vec![
        limited("a", "decision = \"ALLOW\"", LimitBy::Entity),
        limited("b", "decision = \"ALERT\"", LimitBy::Tenant),
        limited(
            "c",
            "decision = \"ALLOW\"\nif = 'value > 500'",
            LimitBy::Tool,
        ),
    ]);
    let ruling = ask(&set, HOLD);
    assert_eq!(ruling.decision, Alert);
    let asked: Vec<_> = ruling
        .limits
        .iter()
        .map(|limit| {
            (
                limit.policy.name.as_str(),
                &*limit.rule,
                limit.max,
                limit.window,
            )
        })
        .collect();
    let hour = Duration::from_hours(1);
    assert_eq!(asked, [("a", "r", 25, hour), ("b", "r", 25, hour)]);
}

#[test]
fn what_is_blocked_asks_for_nothing() {
    let set = set(vec![
        limited("a", "decision = \"ALLOW\"", LimitBy::Entity),
        limited("b", "decision = \"BLOCK\"", LimitBy::Entity),
    ]);
    let ruling = ask(&set, HOLD);
    assert_eq!((ruling.decision, ruling.limits.len()), (Block, 0));
}

#[test]
fn a_scope_is_shared_by_what_is_counted_together_and_by_nothing_else() {
    let by_night = Asked {
        operator: Some("night"),
        ..HOLD
    };
    let release = Asked {
        tool: "orders.release",
        ..HOLD
    };
    let dearer = Asked {
        value: Some("101"),
        ..HOLD
    };
    let scope = |by, asked| {
        let set = set(vec![limited("a", "decision = \"ALLOW\"", by)]);
        let ruling = ask(&set, asked);
        assert_eq!(ruling.decision, Allow);
        ruling.limits[0].scope.clone()
    };
    assert_eq!(
        scope(LimitBy::Entity, HOLD),
        r#"["a","r","entity",["order:1"]]"#
    );
    for by in [
        LimitBy::Entity,
        LimitBy::Operator,
        LimitBy::Tool,
        LimitBy::Tenant,
    ] {
        assert_eq!(scope(by, HOLD), scope(by, dearer), "{by:?}");
        let by_another = scope(by, HOLD) == scope(by, by_night);
        assert_eq!(by_another, by != LimitBy::Operator, "{by:?}");
        let of_another = scope(by, HOLD) == scope(by, release);
        assert_eq!(of_another, by != LimitBy::Tool, "{by:?}");
    }
    let all = [
        LimitBy::Entity,
        LimitBy::Operator,
        LimitBy::Tool,
        LimitBy::Tenant,
    ];
    let scopes: BTreeSet<String> = all.iter().map(|by| scope(*by, HOLD)).collect();
    assert_eq!(scopes.len(), 4);
}

#[test]
fn one_rule_that_asks_first_is_enough() {
    let notify = policy("policy = 'n'\nversion = 1\n[[rule]]\nname = 'r'\ndecision = 'ALERT'\n");
    let mut approve =
        policy("policy = 'y'\nversion = 1\n[[rule]]\nname = 'r'\ndecision = 'ALERT'\n");
    approve.rules[0].on_alert = Some(OnAlert::Approve);
    let ruling = ask(&set(vec![notify.clone(), approve]), HOLD);
    assert_eq!(
        (ruling.decision, ruling.on_alert),
        (Alert, OnAlert::Approve)
    );
    let ruling = ask(&set(vec![notify]), HOLD);
    assert_eq!(ruling.on_alert, OnAlert::Notify);
}
