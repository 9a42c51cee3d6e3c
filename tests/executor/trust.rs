//! Section 6: what trust decides, as a caller sees it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use operators_kernel::life::LIMIT_MAX;
use operators_kernel::{
    BLOCKED_BY_TRUST_POLICY, Disposition, Limit, OperatorName, PlannedAction, PolicyRef, Ruling,
    Shared, TrustDecision, TrustPolicy, TrustQuestion,
};
use operators_policies::{LiveRules, Policy, Reach, RuleSet};
use operators_tests::fakes::{Act, AllowAll, Panics, Says};
use operators_tests::fixtures::{World, action, hold};
use serde_json::{Number, json};

use crate::support::{
    Home, begin_for, each_store, effects, held_inside, let_others_run, memory, one, phase,
    proposals, words,
};

fn rules(texts: &[&str]) -> RuleSet {
    rules_for(texts, BTreeMap::new())
}

fn rules_for(texts: &[&str], reaches: BTreeMap<OperatorName, Vec<Reach>>) -> RuleSet {
    let policies = texts
        .iter()
        .map(|text| Policy::parse(Path::new("test.toml"), text.as_bytes()).expect("a policy"));
    RuleSet::new(policies.collect(), reaches).expect("a set")
}

fn under(set: RuleSet) -> World {
    let mut world = memory().world;
    world.policy = Arc::new(set);
    world
}

/// Rule 6.1: nothing speaks for it, so it is blocked; there is no rule, and the error is exact.
#[tokio::test]
async fn what_no_rule_speaks_of_is_blocked_and_cites_no_rule() {
    let refunds = "policy = \"p\"\nversion = 1\n[[rule]]\nname = \"refunds\"\ntool = \"orders.refund\"\ndecision = \"ALLOW\"\n";
    for set in [rules(&[]), rules(&[refunds])] {
        let world = under(set);
        let executor = world.start().await;
        let result = one(&executor, &world, hold("e", "k")).await;
        assert_eq!(words(&result), "BLOCK false policy");
        assert_eq!(result.error.as_deref(), Some("blocked by trust policy"));
        assert_eq!(BLOCKED_BY_TRUST_POLICY, "blocked by trust policy");
        assert_eq!(result.rule, None);
        let text = serde_json::to_string(&result).expect("json");
        assert!(!text.contains("\"rule\""), "{text}");
        let receipt = proposals(&world).await.pop().expect("a receipt");
        assert_eq!((receipt.rule, receipt.ok), (None, false));
        assert!(world.connector.calls().is_empty());
        assert_eq!(phase(&world, "k").await, None);
    }
}

const HOLDS: &str = r#"
policy = "holds"
version = 3
[[rule]]
name = "holds run"
tool = "orders.hold"
decision = "ALLOW"
max_value = 500
[[rule]]
name = "anything is told"
tool = "orders.*"
decision = "ALERT"
"#;

const NO_RELEASE: &str = r#"
policy = "no-release"
version = 1
[[rule]]
name = "nothing is released"
tool = "orders.release"
decision = "BLOCK"
"#;

fn worth(value: Option<Number>) -> PlannedAction {
    PlannedAction {
        value,
        ..hold("e", "k")
    }
}

/// Rules 6.2 and 6.3: a set in which any failing ceiling blocks, then any BLOCK, then any ALERT;
/// the order of the files says nothing.
#[tokio::test]
async fn rules_are_a_set_whose_order_never_matters() {
    for texts in [[HOLDS, NO_RELEASE], [NO_RELEASE, HOLDS]] {
        let world = under(rules(&texts));
        let executor = world.start().await;
        for value in [None, Some(Number::from(501)), Number::from_f64(500.000_1)] {
            let result = one(&executor, &world, worth(value)).await;
            assert_eq!(words(&result), "BLOCK false policy");
            assert_eq!(result.rule.as_deref(), Some("holds run"));
        }
        let release = action("orders.release", "e", "k2", json!({}));
        let result = one(&executor, &world, release).await;
        assert_eq!(words(&result), "BLOCK false policy");
        assert_eq!(result.rule.as_deref(), Some("nothing is released"));
        let result = one(&executor, &world, worth(Some(Number::from(500)))).await;
        assert_eq!(words(&result), "ALERT true -");
        assert_eq!(result.rule.as_deref(), Some("anything is told"));
        let receipt = proposals(&world).await.pop().expect("a receipt");
        let policy = receipt.policy.expect("the policy");
        assert_eq!((policy.name.as_str(), policy.version), ("holds", 3));
        assert!(policy.digest.starts_with("sha256:"));
        assert_eq!(effects(&world), ["k"]);
    }
}

/// Rules 1.2 and 6.5: `requires` bounds reads as well. Outside it a read waits for its turn, is
/// blocked with a receipt, and nothing is sent; a dry run says so beforehand. Other operators, and a
/// plan without one, are not bound by it.
#[tokio::test]
async fn a_read_outside_an_operators_reach_is_blocked() {
    let name = OperatorName::parse("ship-risk").expect("a name");
    let reach = Reach::parse("shop:orders.hold").expect("a reach");
    let open = "policy = \"open\"\nversion = 1\n[[rule]]\nname = \"all\"\ndecision = \"ALLOW\"\n";
    let reaches = BTreeMap::from([(name.clone(), vec![reach])]);
    let world = under(rules_for(&[open], reaches));
    let executor = Arc::new(world.start().await);
    let mut run = world.run();
    run.operator = Some(name);
    let read = action("orders.get", "e", "r", json!({}));
    let plan = operators_tests::fixtures::plan(vec![read.clone()]);
    let forecast = operators_kernel::forecast(&world.seams(), &run, &plan).await;
    let forecast = forecast.expect("a forecast").remove(0);
    assert_eq!((forecast.ok, forecast.decision.as_str()), (false, "BLOCK"));
    assert_eq!(forecast.error.as_deref(), Some(BLOCKED_BY_TRUST_POLICY));
    let first = held_inside(&executor, &world, hold("e", "k0")).await;
    let waiting = begin_for(&executor, run.clone(), read.clone()).await;
    let_others_run().await;
    assert!(!waiting.is_finished(), "it is answered after its turn");
    world.connector.gate.add_permits(1);
    assert!(first.await.expect("joins").expect("a result").ok);
    let result = waiting.await.expect("joins").expect("a result");
    assert_eq!(words(&result), "BLOCK false policy");
    assert_eq!(result.error.as_deref(), Some(BLOCKED_BY_TRUST_POLICY));
    assert_eq!(world.connector.calls().len(), 1, "the read was sent");
    let receipt = proposals(&world).await.pop().expect("a receipt");
    assert_eq!(receipt.receipt_id, result.receipt_id);
    assert_eq!(receipt.decision, Some(Disposition::Block));
    let note = receipt.note.as_deref();
    assert_eq!(note, Some("outside the operator's `requires`"));
    run.operator = None;
    let by_hand = executor.run_action(&run, read).await.expect("a result");
    assert_eq!(words(&by_hand), "ALLOW true -");
}

/// Rules 1.2, 6.4 and 10.1: any policy is asked about a read, with the tenant itself. One that does
/// not plainly allow it, or panics, blocks it.
#[tokio::test]
async fn a_read_runs_only_where_the_policy_allows_it() {
    let of_reads = |decision| -> Arc<dyn TrustPolicy> { Arc::new(OfReads(decision)) };
    let cases: [(Arc<dyn TrustPolicy>, &str); 5] = [
        (Arc::new(AllowAll), "ALLOW true -"),
        (Arc::new(Panics), "BLOCK false policy"),
        (of_reads(TrustDecision::Alert), "BLOCK false policy"),
        (of_reads(TrustDecision::Block), "BLOCK false policy"),
        (of_reads(TrustDecision::Allow), "ALLOW true -"),
    ];
    for (policy, expected) in cases {
        let mut world = memory().world;
        world.policy = policy;
        let executor = world.start().await;
        let read = action("orders.get", "e", "r", json!({}));
        let result = one(&executor, &world, read).await;
        assert_eq!(words(&result), expected);
        assert_eq!(world.connector.calls().len(), usize::from(result.ok));
        assert_eq!(proposals(&world).await.len(), 1);
    }
}

/// Says this of reads, and blocks everything else.
#[derive(Debug)]
struct OfReads(TrustDecision);

impl TrustPolicy for OfReads {
    fn evaluate(&self, _question: &TrustQuestion<'_>) -> Ruling {
        Ruling::closed("asked as if it were no read")
    }

    fn evaluate_read(&self, question: &TrustQuestion<'_>) -> Ruling {
        assert_eq!(*question.tenant, operators_tests::fixtures::tenant());
        Ruling::of(self.0)
    }
}

/// Rule 6.5: an operator's `requires` is its whole reach.
#[tokio::test]
async fn a_tool_outside_an_operators_reach_is_blocked() {
    let name = OperatorName::parse("ship-risk").expect("a name");
    let reach = Reach::parse("shop:orders.hold").expect("a reach");
    let open = "policy = \"open\"\nversion = 1\n[[rule]]\nname = \"all\"\ndecision = \"ALLOW\"\n";
    let world = under(rules_for(
        &[open],
        BTreeMap::from([(name.clone(), vec![reach])]),
    ));
    let executor = world.start().await;
    let mut run = world.run();
    run.operator = Some(name);
    let release = action("orders.release", "e", "k2", json!({}));
    let result = executor
        .run_action(&run, release.clone())
        .await
        .expect("a result");
    assert_eq!(words(&result), "BLOCK false policy");
    assert_eq!(result.error.as_deref(), Some(BLOCKED_BY_TRUST_POLICY));
    let held = executor
        .run_action(&run, hold("e", "k"))
        .await
        .expect("a result");
    assert!(held.ok);
    run.operator = None;
    assert!(
        executor
            .run_action(&run, release)
            .await
            .expect("a result")
            .ok
    );
}

/// Rule 6.4: a policy that panics blocks, everything, every time, and the process lives.
#[tokio::test]
async fn a_policy_that_panics_blocks_everything() {
    for Home {
        mut world, name, ..
    } in each_store()
    {
        world.policy = Arc::new(Panics);
        let executor = world.start().await;
        for n in 0..3 {
            let result = one(&executor, &world, hold("e", &format!("k{n}"))).await;
            assert_eq!(words(&result), "BLOCK false policy", "{name}");
            assert_eq!(result.error.as_deref(), Some(BLOCKED_BY_TRUST_POLICY));
            assert_eq!(result.rule, None);
        }
        assert!(world.connector.calls().is_empty(), "{name}");
        assert_eq!(executor.entities_in_flight(), 0, "{name}");
        assert_eq!(proposals(&world).await.len(), 3, "{name}");
        let read = action("orders.get", "e", "r", json!({}));
        let result = one(&executor, &world, read).await;
        assert_eq!(words(&result), "BLOCK false policy", "{name}: a read");
    }
}

/// Rule 6.6: ALERT runs and says so, whatever the connector then answers.
#[tokio::test]
async fn alert_runs_the_action_and_says_so() {
    let mut world = memory().world;
    world.policy = Arc::new(Says::new(TrustDecision::Alert));
    let executor = world.start().await;
    world
        .connector
        .then([Act::Apply, Act::Refuse, Act::Unknown]);
    for (n, wanted) in ["ALERT true -", "ALERT false failed", "ALERT false in_doubt"]
        .into_iter()
        .enumerate()
    {
        let result = one(&executor, &world, hold(&format!("e{n}"), &format!("k{n}"))).await;
        assert_eq!(words(&result), wanted);
        assert_eq!(result.rule.as_deref(), Some("the test's rule"));
        let receipt = proposals(&world).await.pop().expect("a receipt");
        assert_eq!(receipt.decision, Some(Disposition::Alert));
        assert_eq!(receipt.rule.as_deref(), Some("the test's rule"));
    }
    let again = one(&executor, &world, hold("e0", "k0")).await;
    assert_eq!(words(&again), "DEDUP true -", "a duplicate raises nothing");
}

/// Rule 6.12: a running executor is under the rules that were last loaded as a whole, and its
/// receipts cite them.
#[tokio::test]
async fn rules_replaced_under_a_running_executor_decide_from_then_on() {
    let text = Arc::new(std::sync::Mutex::new(String::new()));
    let write = |version: u32, decision: &str| {
        *text.lock().expect("no panic") = format!(
            "policy = 'p'\nversion = {version}\n[[rule]]\nname = 'r'\ndecision = '{decision}'\n"
        );
    };
    write(1, "ALLOW");
    let source = Arc::clone(&text);
    let live = LiveRules::start(move || {
        let text = source.lock().expect("no panic").clone();
        let policy = Policy::parse(Path::new("p.toml"), text.as_bytes())?;
        Ok(RuleSet::new(vec![policy], BTreeMap::new())?)
    });
    let live = Arc::new(live.expect("loads"));
    let mut world = memory().world;
    let policy: Arc<dyn TrustPolicy> = Arc::<LiveRules>::clone(&live);
    world.policy = policy;
    let executor = world.start().await;
    let mut told = Vec::new();
    for (number, version, decision, loads) in [
        (1, 1, "ALLOW", true),
        (2, 2, "BLOCK", true),
        (3, 3, "allow", false),
        (4, 4, "ALERT", true),
    ] {
        write(version, decision);
        assert_eq!(live.reload().is_ok(), loads);
        let key = format!("k{number}");
        let result = one(&executor, &world, hold("e", &key)).await;
        let receipt = proposals(&world).await.pop().expect("a receipt");
        // Name, version and digest of the text in force, not of the one that did not load.
        let in_force = live.current().policies().to_vec();
        let cited = receipt.policy.expect("a policy");
        assert_eq!(in_force, [operators_kernel::PolicyRef::clone(&cited)]);
        told.push((words(&result), cited.version));
    }
    let told: Vec<(&str, u64)> = told
        .iter()
        .map(|(said, cited)| (said.as_str(), *cited))
        .collect();
    assert_eq!(
        told,
        [
            ("ALLOW true -", 1),
            ("BLOCK false policy", 2),
            ("BLOCK false policy", 2),
            ("ALERT true -", 4),
        ]
    );
}

/// Says something that no store keeps yet.
#[derive(Debug)]
struct Unkept(Ruling);

impl TrustPolicy for Unkept {
    fn evaluate(&self, _question: &TrustQuestion<'_>) -> Ruling {
        self.0.clone()
    }

    fn evaluate_read(&self, _question: &TrustQuestion<'_>) -> Ruling {
        Ruling::of(TrustDecision::Allow)
    }
}

/// Rule 6.13: what is not kept is not passed over.
#[tokio::test]
async fn a_limit_that_no_store_counts_blocks() {
    let limit = Limit {
        rule: "r".into(),
        policy: Shared::from(PolicyRef {
            name: "p".to_owned(),
            version: 1,
            digest: "sha256:0".to_owned(),
        }),
        scope: "s".to_owned(),
        max: LIMIT_MAX + 1,
        window: std::time::Duration::from_hours(1),
    };
    let limited = |decision| Ruling {
        limits: vec![limit.clone()],
        ..Ruling::of(decision)
    };
    for (ruling, note) in [
        (
            limited(TrustDecision::Allow),
            "limits above 5000 are not counted",
        ),
        (
            limited(TrustDecision::Alert),
            "limits above 5000 are not counted",
        ),
    ] {
        let mut world = memory().world;
        world.policy = Arc::new(Unkept(ruling));
        let executor = world.start().await;
        let result = one(&executor, &world, hold("e", "k")).await;
        assert_eq!(words(&result), "BLOCK false policy");
        assert!(world.connector.calls().is_empty());
        let receipt = proposals(&world).await.pop().expect("a receipt");
        assert_eq!(receipt.note.as_deref(), Some(note));
    }
}
