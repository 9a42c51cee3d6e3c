//! Whole-set tests; the one helper each that touches the API, so that the tests are data.

mod bad_files;
mod bad_sets;
mod code;
mod evaluation;
mod explosions;
mod expressions;
mod guide;
mod layers;
mod limits;
mod live;
mod order;
mod peer;
mod reach;
mod replay;
mod room;

use std::collections::BTreeMap;
use std::path::Path;

use operators_kernel::{
    EventEnvelope, OperatorName, PlannedAction, Ruling, TenantId, TrustDecision, TrustPolicy as _,
    TrustQuestion,
};
use serde_json::Number;

use crate::{Explanation, Policy, Reach, RuleSet};

/// One action as somebody proposes it.
#[derive(Debug, Clone, Copy)]
struct Asked<'a> {
    operator: Option<&'a str>,
    connector: &'a str,
    tool: &'a str,
    value: Option<&'a str>,
    args: &'a str,
    /// The event's payload, if there is an event.
    payload: Option<&'a str>,
}

/// A hold of 100 by a plan that is run by hand.
const HOLD: Asked<'static> = Asked {
    operator: None,
    connector: "shop",
    tool: "orders.hold",
    value: Some("100"),
    args: "{}",
    payload: None,
};

#[track_caller]
fn policy(text: &str) -> Policy {
    match Policy::parse(Path::new("test.toml"), text.as_bytes()) {
        Ok(policy) => policy,
        Err(error) => panic!("{error}\n{text}"),
    }
}

/// A set of files; each text is a policy's name, then its rules.
#[track_caller]
fn set(policies: &[(&str, &str)]) -> RuleSet {
    let policies = policies.iter().map(|(name, rules)| {
        let text = format!("policy = \"{name}\"\nversion = 1\n{rules}");
        policy(&text)
    });
    RuleSet::new(policies.collect(), BTreeMap::new()).expect("distinct names")
}

fn rule(name: &str, rest: &str) -> String {
    format!("[[rule]]\nname = \"{name}\"\n{rest}\n")
}

fn with_question<T>(asked: Asked<'_>, answer: impl FnOnce(&TrustQuestion<'_>) -> T) -> T {
    let operator = asked
        .operator
        .map(|name| OperatorName::parse(name).expect(name));
    let value = asked
        .value
        .map(|text| serde_json::from_str::<Number>(text).expect(text));
    let action = PlannedAction {
        connector: asked.connector.to_owned().try_into().expect("a connector"),
        tool: asked.tool.to_owned().try_into().expect("a tool"),
        args: serde_json::from_str(asked.args).expect(asked.args),
        value,
        entity_key: "order:1".to_owned().try_into().expect("a key"),
        idempotency_key: "order:1:hold".to_owned().try_into().expect("a key"),
        revision: None,
        source_id: None,
        index_hash: None,
    };
    let tenant = TenantId::parse("acme").expect("a tenant");
    let event = asked.payload.map(|payload| EventEnvelope {
        event_id: "ev_1".to_owned(),
        reseller_id: None,
        tenant_id: tenant.clone(),
        workspace_id: None,
        source: "shopify".to_owned(),
        event_type: "order.created".to_owned(),
        correlation_id: "co_1".to_owned(),
        payload: serde_json::from_str(payload).expect(payload),
        agent_id: None,
        session_id: Some("s1".to_owned()),
    });
    answer(&TrustQuestion {
        tenant: &tenant,
        operator: operator.as_ref(),
        action: &action,
        event: event.as_ref(),
    })
}

/// Asks the set both ways, which must agree.
#[track_caller]
fn ask(set: &RuleSet, asked: Asked<'_>) -> Ruling {
    with_question(asked, |question| {
        let ruling = set.evaluate(question);
        let Explanation {
            ruling: explained, ..
        } = set.explain(question);
        assert_eq!(ruling, explained);
        ruling
    })
}

#[track_caller]
fn rules(set: &RuleSet, asked: Asked<'_>, decision: TrustDecision, rule: Option<&str>) {
    let ruling = ask(set, asked);
    let told = (ruling.decision, ruling.rule.as_deref());
    assert_eq!(told, (decision, rule), "{asked:?}: {:?}", ruling.because);
    assert_eq!(ruling.rule.is_some(), ruling.policy.is_some());
}

fn reaches(operator: &str, requires: &[&str]) -> BTreeMap<OperatorName, Vec<Reach>> {
    let requires = requires
        .iter()
        .map(|text| Reach::parse(text).expect(text))
        .collect();
    BTreeMap::from([(OperatorName::parse(operator).expect(operator), requires)])
}
