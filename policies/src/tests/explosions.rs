//! No expression can hold a run: what would take long is cut off, always at the same place.

use operators_kernel::TrustDecision::Block;

use super::{Asked, HOLD, ask, rule, rules, set, with_question};
use crate::{Judgement, Policy, Predicate};

/// The largest arguments that a plan may hold, as one list or one text.
fn large_list() -> String {
    let items = vec!["1"; 400_000].join(",");
    format!("{{\"l\": [{items}], \"s\": \"x\"}}")
}

fn large_text(bytes: usize) -> String {
    format!("{{\"s\": \"{}\"}}", "a".repeat(bytes))
}

#[track_caller]
fn too_long(text: &str, args: &str) {
    let asked = Asked { args, ..HOLD };
    let predicate = Predicate::expression(text).expect(text);
    with_question(asked, |question| {
        let steps = crate::expression::Steps::default();
        let first = predicate.judge(question, &steps);
        let Judgement::Error(error) = &first else {
            panic!("{text} came to {first:?}");
        };
        assert!(error.contains("too many steps"), "{text}: {error}");
        // Steps, not time: it ends at the same place however often it is asked.
        assert_eq!(predicate.judge(question, &steps), first);
    });
    let rest = format!("decision = \"ALLOW\"\nrequire = '''{text}'''");
    let set = set(&[("p", &rule("bomb", &rest))]);
    rules(&set, asked, Block, Some("bomb"));
    let because = ask(&set, asked).because.expect("a reason");
    assert!(because.contains("too many steps"), "{because}");
    assert!(because.len() < 400, "a receipt is no place for a page");
}

#[test]
fn comprehensions_over_large_arguments_are_cut_off() {
    // rule 6.10
    let args = large_list();
    too_long("args.l.all(a, a == 1)", &args);
    too_long("args.l.all(a, args.l.all(b, a == b))", &args);
    too_long("args.l.exists(a, a == 2)", &args);
    too_long("size(args.l.map(a, args.l)) > 0", &args);
    too_long("args.l.filter(a, true) == args.l", &args);
    too_long("args.l == args.l", &args);
    too_long("2 in args.l", &args);
    too_long("size(args.l + args.l) > 1", &args);
}

#[test]
fn nested_comprehensions_over_small_arguments_are_cut_off() {
    let items = vec!["1"; 300].join(",");
    let args = format!("{{\"l\": [{items}]}}");
    too_long("args.l.all(a, args.l.all(b, a == b))", &args);
}

#[test]
fn running_out_of_steps_is_never_decided_away() {
    let args = large_list();
    too_long("args.l.all(a, a == 1) || true", &args);
    too_long("!(args.l.all(a, a == 1) && false)", &args);
    too_long("[1].exists(x, args.l.all(a, a == 1) || true)", &args);
}

#[test]
fn long_texts_are_cut_off() {
    let args = large_text(900_000);
    too_long("args.s.matches('^(a|b)*c$')", &args);
    too_long("(args.s + args.s).contains('b')", &args);
    let doubled = "args.s".to_owned() + &" + args.s".repeat(40);
    too_long(&format!("size({doubled}) > 1"), &large_text(50_000));
}

#[test]
fn what_an_ordinary_rule_asks_of_large_arguments_is_judged() {
    let args = large_text(900_000);
    for text in [
        "args.s != 'x'",
        "args.s.startsWith('a')",
        "size(args.s) > 10",
        "!args.s.contains('b')",
    ] {
        let asked = Asked {
            args: &args,
            ..HOLD
        };
        let set = set(&[(
            "p",
            &rule(
                "r",
                &format!("decision = \"ALLOW\"\nrequire = '''{text}'''"),
            ),
        )]);
        rules(
            &set,
            asked,
            operators_kernel::TrustDecision::Allow,
            Some("r"),
        );
    }
}

#[test]
fn many_rules_together_are_cut_off_too() {
    // Each within its own bound; all of them would be seconds.
    let items = vec!["1"; 8_000].join(",");
    let args = format!("{{\"l\": [{items}]}}");
    let names: Vec<String> = (0..200).map(|n| format!("r{n:03}")).collect();
    let rest = "decision = \"ALLOW\"\nrequire = 'args.l.all(a, a == 1)'";
    let texts: String = names.iter().map(|name| rule(name, rest)).collect();
    let set = set(&[("p", &texts)]);
    let asked = Asked {
        args: &args,
        ..HOLD
    };
    let ruling = ask(&set, asked);
    assert_eq!(ruling.decision, Block);
    let because = ruling.because.expect("a reason");
    assert!(because.contains("too many steps"), "{because}");
    // The first rules are judged; it is the question's bound that ends it, not theirs.
    assert!(*ruling.rule.expect("cited") > *"r010");
}

#[track_caller]
fn not_loaded(expression: &str) {
    let text = format!(
        "policy = 'p'\nversion = 1\n[[rule]]\nname = 'r'\ndecision = 'ALLOW'\nif = '''{expression}'''\n"
    );
    let parsed = Policy::parse(std::path::Path::new("p.toml"), text.as_bytes());
    let shown: String = expression.chars().take(40).collect();
    assert!(parsed.is_err(), "{shown}");
}

#[test]
fn a_text_that_is_a_bomb_to_read_does_not_load() {
    // rule 6.10
    let nested = |open: &str, close: &str, count: usize| {
        format!("{}value{}", open.repeat(count), close.repeat(count))
    };
    not_loaded(&nested("(", ")", 900));
    not_loaded(&nested("[", "]", 900));
    not_loaded(&nested("size(", ")", 300));
    not_loaded(&nested("true ? ", " : true", 120));
    not_loaded(&("value".to_owned() + &" + value".repeat(250)));
    not_loaded(&("args".to_owned() + &".a".repeat(900) + " == 1"));
    not_loaded(&("args".to_owned() + &"[0]".repeat(600) + " == 1"));
    not_loaded(&("args.l".to_owned() + &".map(x, x)".repeat(150) + " == 1"));
    not_loaded(&"!".repeat(2_001));
    not_loaded(&"{".repeat(2_000));
    for pattern in [
        "(a{1000}){1000}",
        "((((a{50}){50}){50}){50}){50}",
        "[\\\\pL]{5000}",
        "(?:a*)*(?:b{2000}){2000}",
    ] {
        not_loaded(&format!("args.s.matches(\"{pattern}\")"));
    }
}
