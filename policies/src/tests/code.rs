//! The same rules from code: closures as predicates, the checks of a file, a digest to cite.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use operators_kernel::TrustDecision::{Alert, Allow, Block};
use operators_kernel::{ConnectorName, OnAlert, OperatorName};

use super::{Asked, HOLD, ask, rules};
use crate::{LimitBy, Magnitude, Policy, Predicate, Rule, RuleLimit, RuleSet, ToolPattern};

fn holds() -> Rule {
    Rule::new("holds", Allow)
        .on_connector(ConnectorName::parse("shop").expect("a name"))
        .on_tool(ToolPattern::parse("orders.*").expect("a pattern"))
        .up_to(Magnitude::whole(500))
}

fn set(rules: Vec<Rule>) -> RuleSet {
    let policy = Policy::from_rules("code", 1, rules).expect("sound");
    RuleSet::new(vec![policy], BTreeMap::new()).expect("one policy")
}

#[test]
fn a_rule_from_code_says_what_a_file_would() {
    let set = set(vec![holds()]);
    rules(&set, HOLD, Allow, Some("holds"));
    let dear = Asked {
        value: Some("501"),
        ..HOLD
    };
    rules(&set, dear, Block, Some("holds"));
    let elsewhere = Asked {
        connector: "mail",
        ..HOLD
    };
    rules(&set, elsewhere, Block, None);
    let cited = ask(&set, HOLD).policy.expect("cited");
    assert_eq!((cited.name.as_str(), cited.version), ("code", 1));
    assert!(cited.digest.starts_with("sha256:"), "{cited:?}");
}

#[test]
fn a_closure_is_a_predicate_and_its_panic_blocks() {
    // rule 6.8
    let by_night = Predicate::code("by night", |question| {
        question
            .operator
            .is_some_and(|name| name.as_str() == "night")
    });
    let night = Asked {
        operator: Some("night"),
        ..HOLD
    };
    let spoken = set(vec![holds().speaking_if(by_night.clone())]);
    rules(&spoken, night, Allow, Some("holds"));
    rules(&spoken, HOLD, Block, None);
    let required = set(vec![holds().requiring(by_night)]);
    rules(&required, night, Allow, Some("holds"));
    rules(&required, HOLD, Block, Some("holds"));
    let because = ask(&required, HOLD).because;
    assert_eq!(
        because.as_deref(),
        Some("`require` does not hold: by night")
    );
    let panics = Predicate::code("panics", |_| panic!("at the disco"));
    let panics = set(vec![holds().requiring(panics)]);
    let because = ask(&panics, HOLD).because;
    assert_eq!(
        because.as_deref(),
        Some("`require` cannot be judged: the predicate panicked: panics")
    );
}

#[test]
fn an_expression_is_a_predicate_too() {
    let small = Predicate::expression("value <= 250").expect("sound");
    let set = set(vec![holds().requiring(small)]);
    rules(&set, HOLD, Allow, Some("holds"));
    assert!(Predicate::expression("vlaue <= 250").is_err());
}

#[test]
fn the_digest_changes_with_what_the_rules_say() {
    let digest = |rule: Rule| {
        let policy = Policy::from_rules("code", 1, vec![rule]).expect("sound");
        policy.reference().digest.clone()
    };
    let limit = |max| RuleLimit {
        max,
        per: Duration::from_hours(1),
        by: LimitBy::Tool,
    };
    let label = |label: &str| holds().requiring(Predicate::code(label, |_| true));
    let digests = [
        digest(holds()),
        digest(holds().up_to(Magnitude::whole(501))),
        digest(label("a")),
        digest(label("b")),
        digest(holds().asking_first()),
        digest(holds().limited(limit(1))),
        digest(holds().limited(limit(2))),
    ];
    assert_eq!(digest(holds()), digests[0]);
    assert_eq!(digests.iter().collect::<BTreeSet<_>>().len(), digests.len());
}

#[test]
fn what_a_file_may_not_say_code_may_not_either() {
    // rules 6.4, 6.13
    let refused = |name: &str, version, rules: Vec<Rule>, problem: &str| {
        let error = Policy::from_rules(name, version, rules).expect_err(problem);
        assert!(error.to_string().contains(problem), "{error}");
    };
    refused("", 1, vec![holds()], "its name is empty");
    refused("a\u{200b}", 1, vec![holds()], "invisible character");
    refused("p", 0, vec![holds()], "its version is 0");
    refused("p", 1, Vec::new(), "it has no rules");
    refused(
        "p",
        1,
        vec![holds(), holds()],
        "two rules are named `holds`",
    );
    refused(
        "p",
        1,
        vec![Rule::new("", Allow)],
        "the name of rule `` is empty",
    );
    let limit = |max, per| {
        let by = LimitBy::Tenant;
        vec![holds().limited(RuleLimit { max, per, by })]
    };
    let hour = Duration::from_hours(1);
    refused("p", 1, limit(0, hour), "is not from 1 to 5000");
    refused("p", 1, limit(5_001, hour), "is not from 1 to 5000");
    refused("p", 1, limit(1, Duration::ZERO), "has a window that");
}

#[test]
fn a_rule_from_code_limits_and_asks_as_one_from_a_file_does() {
    // rules 9.4, 9.7
    let limit = RuleLimit {
        max: 25,
        per: Duration::from_hours(1),
        by: LimitBy::Entity,
    };
    let limited = set(vec![holds().limited(limit)]);
    let [kept] = ask(&limited, HOLD).limits.try_into().expect("one limit");
    assert_eq!((kept.max, kept.window), (limit.max, limit.per));
    let asking = set(vec![Rule::new("ask", Alert).asking_first()]);
    assert_eq!(ask(&asking, HOLD).on_alert, OnAlert::Approve);
}

#[test]
fn a_policy_from_code_can_be_for_some_operators() {
    let night = OperatorName::parse("night").expect("a name");
    let policy = Policy::from_rules("code", 1, vec![holds()]).expect("sound");
    let policy = policy.applying_to(BTreeSet::from([night]));
    let set = RuleSet::new(vec![policy], BTreeMap::new()).expect("one policy");
    rules(&set, HOLD, Block, None);
    let by_night = Asked {
        operator: Some("night"),
        ..HOLD
    };
    rules(&set, by_night, Allow, Some("holds"));
}
