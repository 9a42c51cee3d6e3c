//! The rules of evaluation, one by one, and the table of how they combine.

use operators_kernel::TrustDecision::{Alert, Allow, Block};
use operators_kernel::{Ruling, TrustDecision};

use super::{Asked, HOLD, ask, rule, rules, set, with_question};
use crate::{Check, Magnitude, RuleSet};

fn decides(decision: &str, name: &str) -> String {
    rule(name, &format!("decision = \"{decision}\""))
}

#[test]
fn a_set_without_policies_blocks_everything() {
    for set in [
        RuleSet::default(),
        RuleSet::load(&[], std::collections::BTreeMap::new()).expect("no files is no error"),
    ] {
        assert_eq!(ask(&set, HOLD), Ruling::closed("no policy files"));
    }
}

#[test]
fn what_no_rule_speaks_of_is_blocked_without_a_rule() {
    let set = set(&[(
        "p",
        &rule("mail only", "connector = \"mail\"\ndecision = \"ALLOW\""),
    )]);
    assert_eq!(
        ask(&set, HOLD),
        Ruling::closed("no rule speaks of `shop:orders.hold`")
    );
}

/// Every non-empty subset of {ALLOW, ALERT, BLOCK, ALLOW over its ceiling}, in one policy and
/// with each rule in a policy of its own.
#[test]
fn the_strongest_matching_rule_decides() {
    let kinds = [
        ("a fails", "decision = \"ALLOW\"\nmax_value = 99", Block),
        ("b blocks", "decision = \"BLOCK\"", Block),
        ("c alerts", "decision = \"ALERT\"", Alert),
        ("d allows", "decision = \"ALLOW\"", Allow),
    ];
    for chosen in 1_u8..16 {
        let chosen: Vec<_> = kinds
            .iter()
            .enumerate()
            .filter(|(bit, _)| chosen & (1 << bit) != 0)
            .map(|(_, kind)| kind)
            .collect();
        let (name, _, decision) = chosen[0];
        let texts: Vec<String> = chosen
            .iter()
            .map(|(name, rest, _)| rule(name, rest))
            .collect();
        rules(&set(&[("p", &texts.concat())]), HOLD, *decision, Some(name));

        // The names of the policies run the other way, so that strength and not name decides.
        let names: Vec<String> = (0..texts.len()).map(|n| format!("p{}", 9 - n)).collect();
        let apart: Vec<(&str, &str)> = names
            .iter()
            .zip(&texts)
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        rules(&set(&apart), HOLD, *decision, Some(name));
    }
}

#[test]
fn each_kind_alone_says_its_word() {
    for (word, decision) in [("ALLOW", Allow), ("ALERT", Alert), ("BLOCK", Block)] {
        rules(
            &set(&[("p", &decides(word, "r"))]),
            HOLD,
            decision,
            Some("r"),
        );
    }
}

#[test]
fn a_failing_rule_blocks_whatever_it_would_have_said() {
    for word in ["ALLOW", "ALERT", "BLOCK"] {
        let over = rule("over", &format!("decision = \"{word}\"\nmax_value = 99"));
        let set = set(&[("p", &(decides("ALLOW", "a") + &over))]);
        rules(&set, HOLD, Block, Some("over"));
    }
}

#[test]
fn a_ceiling_holds_at_equality_and_fails_above_or_without_a_value() {
    let cases: [(&str, Option<&str>, TrustDecision); 17] = [
        ("500", Some("500"), Allow),
        ("500", Some("500.0"), Allow),
        ("500.0", Some("500"), Allow),
        ("500", Some("499.99"), Allow),
        ("500", Some("-1e300"), Allow),
        ("500", Some("500.0000000000001"), Block),
        ("500", Some("501"), Block),
        ("500", Some("1e300"), Block),
        ("500", None, Block),
        ("0", Some("0"), Allow),
        ("0", None, Block),
        ("-5", Some("-5"), Allow),
        ("-5", Some("-4"), Block),
        ("0.1", Some("0.1"), Allow),
        ("0.1", Some("0.2"), Block),
        ("9007199254740992", Some("9007199254740993"), Block),
        ("9223372036854775807", Some("18446744073709551615"), Block),
    ];
    for (max, value, decision) in cases {
        let capped = rule(
            "capped",
            &format!("decision = \"ALLOW\"\nmax_value = {max}"),
        );
        let asked = Asked { value, ..HOLD };
        rules(&set(&[("p", &capped)]), asked, decision, Some("capped"));
    }
}

#[test]
fn a_ceiling_of_a_rule_for_another_tool_does_not_bind() {
    let other = rule(
        "other",
        "tool = \"orders.refund\"\ndecision = \"ALLOW\"\nmax_value = 1",
    );
    let set = set(&[("p", &(decides("ALLOW", "all") + &other))]);
    rules(&set, HOLD, Allow, Some("all"));
    rules(
        &set,
        Asked {
            tool: "orders.refund",
            ..HOLD
        },
        Block,
        Some("other"),
    );
}

#[test]
fn because_tells_what_the_ceiling_saw() {
    let capped = rule("capped", "decision = \"ALLOW\"\nmax_value = 500");
    let set = set(&[("p", &capped)]);
    for (value, because) in [
        (Some("500"), "value 500 is within `max_value` 500"),
        (Some("500.5"), "value 500.5 is above `max_value` 500"),
        (
            None,
            "the action has no value to hold against `max_value` 500",
        ),
    ] {
        let ruling = ask(&set, Asked { value, ..HOLD });
        assert_eq!(ruling.because.as_deref(), Some(because));
    }
}

#[test]
fn connector_and_tool_must_both_fit() {
    let table = [
        ("", "shop", "orders.hold", true),
        ("connector = \"shop\"", "shop", "orders.hold", true),
        ("connector = \"shop\"", "mail", "orders.hold", false),
        ("connector = \"shop\"", "shop2", "orders.hold", false),
        ("tool = \"orders.hold\"", "mail", "orders.hold", true),
        ("tool = \"orders.hold\"", "shop", "orders.holds", false),
        ("tool = \"orders.hold\"", "shop", "orders.hold.", false),
        ("tool = \"orders.*\"", "shop", "orders.hold", true),
        ("tool = \"orders.*\"", "shop", "orders", false),
        ("tool = \"orders.*\"", "shop", "orders.", false),
        ("tool = \"orders.*\"", "shop", "orders.hold.now", false),
        ("tool = \"*.hold\"", "shop", "orders.hold", true),
        ("tool = \"*\"", "shop", "orders.hold", false),
        (
            "connector = \"shop\"\ntool = \"orders.*\"",
            "mail",
            "orders.hold",
            false,
        ),
        (
            "connector = \"shop\"\ntool = \"orders.*\"",
            "shop",
            "orders.hold",
            true,
        ),
        (
            "connector = \"shop\"\ntool = \"orders.*\"",
            "shop",
            "mails.send",
            false,
        ),
    ];
    for (target, connector, tool, fits) in table {
        let set = set(&[("p", &rule("r", &format!("{target}\ndecision = \"ALLOW\"")))]);
        let asked = Asked {
            connector,
            tool,
            ..HOLD
        };
        if fits {
            rules(&set, asked, Allow, Some("r"));
        } else {
            rules(&set, asked, Block, None);
        }
    }
}

#[test]
fn a_policy_for_named_operators_speaks_of_them_alone() {
    let open = decides("ALLOW", "open");
    let bound = format!(
        "applies_to = [\"ship-risk\", \"night\"]\n{}",
        decides("BLOCK", "bound")
    );
    let set = set(&[("a", &bound), ("b", &open)]);
    for (operator, decision, rule) in [
        (Some("ship-risk"), Block, "bound"),
        (Some("night"), Block, "bound"),
        (Some("ship"), Allow, "open"),
        (None, Allow, "open"),
    ] {
        rules(&set, Asked { operator, ..HOLD }, decision, Some(rule));
    }
}

#[test]
fn an_allowing_policy_for_an_operator_does_not_open_the_gate_for_nobody() {
    let bound = format!(
        "applies_to = [\"ship-risk\"]\n{}",
        decides("ALLOW", "bound")
    );
    let set = set(&[("a", &bound)]);
    rules(
        &set,
        Asked {
            operator: Some("ship-risk"),
            ..HOLD
        },
        Allow,
        Some("bound"),
    );
    rules(&set, HOLD, Block, None);
}

#[test]
fn the_first_by_policy_and_rule_name_is_cited() {
    let set = set(&[
        ("b", &(decides("ALERT", "aa") + &decides("ALERT", "zz"))),
        ("a", &(decides("ALERT", "m") + &decides("ALERT", "k"))),
    ]);
    let ruling = ask(&set, HOLD);
    assert_eq!(ruling.rule.as_deref(), Some("k"));
    let policy = ruling.policy.expect("cited");
    assert_eq!((policy.name.as_str(), policy.version), ("a", 1));
}

#[test]
fn an_explanation_lists_every_match_and_what_it_saw() {
    let capped = rule("capped", "decision = \"ALLOW\"\nmax_value = 50");
    let elsewhere = rule("elsewhere", "connector = \"mail\"\ndecision = \"BLOCK\"");
    let set = set(&[("p", &(decides("ALERT", "watched") + &elsewhere + &capped))]);
    with_question(HOLD, |question| {
        let explanation = set.explain(question);
        let told: Vec<_> = explanation
            .findings
            .iter()
            .map(|finding| (finding.rule.name(), finding.rule.line(), finding.holds()))
            .collect();
        assert_eq!(told, [("capped", 10, false), ("watched", 3, true)]);
        let saw = Check::MaxValue {
            max: Magnitude::whole(50),
            value: Some(Magnitude::whole(100)),
        };
        let checks = |at: usize| explanation.findings[at].checks().collect::<Vec<_>>();
        assert_eq!(checks(0), [saw]);
        assert_eq!(checks(1), []);
        assert_eq!(explanation.ruling.rule.as_deref(), Some("capped"));
    });
}
