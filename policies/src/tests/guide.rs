//! The policies that `docs/guides/policies.md` teaches load, and say what it says they say.

use std::collections::BTreeMap;
use std::time::Duration;

use operators_kernel::TrustDecision::{self, Alert, Allow, Block};

use super::{Asked, HOLD, ask, policy};
use crate::{LimitBy, Policy, RuleSet};

const GUIDE: &str = include_str!("../../../docs/guides/policies.md");

/// The policy of that name, as the guide has it.
fn taught(name: &str) -> Policy {
    let blocks = GUIDE.split("```toml\n").skip(1);
    let mut texts = blocks.filter_map(|block| block.split("```").next());
    let start = format!("policy = \"{name}\"");
    let text = texts.find(|text| text.starts_with(&start));
    policy(text.unwrap_or_else(|| panic!("the guide has no policy `{name}`")))
}

#[track_caller]
fn says(names: &[&str], asked: Asked<'_>, decision: TrustDecision) {
    let policies = names.iter().map(|name| taught(name)).collect();
    let set = RuleSet::new(policies, BTreeMap::new()).expect("distinct names");
    let ruling = ask(&set, asked);
    assert_eq!(ruling.decision, decision, "{asked:?}: {ruling:?}");
}

#[test]
fn every_policy_of_the_guide_loads() {
    let names: Vec<&str> = GUIDE
        .split("```toml\npolicy = \"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    // Two blocks are of the configuration; a test of the command reads them.
    assert_eq!(names.len() + 2, GUIDE.matches("```toml").count());
    assert_eq!(names.len(), 6);
    for name in names {
        assert!(!taught(name).rules().is_empty());
    }
}

#[test]
fn bounded_refunds() {
    let with = |value, args| Asked {
        tool: "refunds.create",
        value,
        args,
        ..HOLD
    };
    let original = r#"{"method": "original", "currency": "EUR"}"#;
    says(&["refunds"], with(Some("100"), original), Allow);
    says(&["refunds"], with(Some("100.01"), original), Block);
    says(&["refunds"], with(None, original), Block);
    let gift = r#"{"method": "gift card", "currency": "EUR"}"#;
    says(&["refunds"], with(Some("1"), gift), Block);
    says(&["refunds"], with(Some("1"), "{}"), Block);
}

#[test]
fn quiet_hours() {
    let at = |payload| Asked {
        tool: "messages.send",
        payload,
        ..HOLD
    };
    says(&["quiet-hours"], at(Some(r#"{"local_hour": 8}"#)), Allow);
    says(&["quiet-hours"], at(Some(r#"{"local_hour": 19}"#)), Allow);
    for night in [
        Some(r#"{"local_hour": 7}"#),
        Some(r#"{"local_hour": 20}"#),
        Some(r#"{"local_hour": "12"}"#),
        Some(r#"{"local_hour": null}"#),
        Some("{}"),
        None,
    ] {
        says(&["quiet-hours"], at(night), Block);
    }
}

#[test]
fn escalation() {
    for (value, decision) in [
        (Some("250"), Allow),
        (Some("250.5"), Alert),
        (Some("5000"), Alert),
        (Some("5001"), Block),
        (None, Block),
    ] {
        says(&["holds"], Asked { value, ..HOLD }, decision);
    }
}

#[test]
fn one_message_a_day() {
    let send = Asked {
        tool: "messages.send",
        ..HOLD
    };
    // The fixture's entity is an order: not what the rule insists on.
    says(&["one-a-day"], send, Block);
    let limit = taught("one-a-day").rules()[0].limit().expect("a limit");
    let day = Duration::from_hours(24);
    assert_eq!((limit.max, limit.per, limit.by), (1, day, LimitBy::Entity));
}

#[test]
fn freeze() {
    says(&["holds"], HOLD, Allow);
    says(&["holds", "freeze"], HOLD, Block);
    let refund = Asked {
        tool: "refunds.create",
        value: Some("0"),
        args: r#"{"method": "original", "currency": "EUR"}"#,
        ..HOLD
    };
    says(&["refunds"], refund, Allow);
    says(&["refunds", "freeze"], refund, Block);
}
