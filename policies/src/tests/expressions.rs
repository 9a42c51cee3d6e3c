//! `if` and `require`: what they see, what they come to, and that whatever goes wrong blocks.

use operators_kernel::TrustDecision::{Alert, Allow, Block};

use super::bad_files::{GOOD, well_said};
use super::{Asked, HOLD, ask, rule, rules, set, with_question};
use crate::{Expression, Judgement, Policy, Predicate};

const ARGS: &str = r#"{"reason": "review", "qty": 3, "price": 9.5, "none": null, "tags": ["a", "b"],
    "items": [{"sku": "x", "n": 1}, {"sku": "y", "n": 2}], "deep": {"er": {"flag": true}}, "s": "12"}"#;

const PAYLOAD: &str = r#"{"hour": 7, "vip": true}"#;

const ASKED: Asked<'static> = Asked {
    operator: Some("ship-risk"),
    args: ARGS,
    payload: Some(PAYLOAD),
    ..HOLD
};

#[track_caller]
fn judged(text: &str, asked: Asked<'_>) -> Judgement {
    let predicate = match Predicate::expression(text) {
        Ok(predicate) => predicate,
        Err(error) => panic!("{error}: {text}"),
    };
    with_question(asked, |question| {
        predicate.judge(question, &crate::expression::Steps::default())
    })
}

#[test]
fn it_sees_the_action_its_operator_its_tenant_and_its_event() {
    // rule 6.7
    for text in [
        "action.connector == 'shop' && action.tool == 'orders.hold'",
        "action.args.reason == args.reason && action.value == value",
        "value == 100 && value == 100.0 && value < 100.5 && value >= 1",
        "entity_key == 'order:1' && action.entity_key == entity_key",
        "idempotency_key.startsWith('order:1:') && idempotency_key.endsWith('hold')",
        "operator == 'ship-risk' && tenant == 'acme'",
        "event != null && event.source == 'shopify' && event.event_type == 'order.created'",
        "event.payload.hour < 8 && event.payload.vip",
        "event.agent_id == null && event.session_id == 's1' && event.tenant_id == tenant",
        "action.revision == null && action.source_id == null",
    ] {
        assert_eq!(judged(text, ASKED), Judgement::Yes, "{text}");
    }
    let alone = Asked {
        operator: None,
        payload: None,
        value: None,
        ..ASKED
    };
    for text in ["operator == null", "event == null", "value == null"] {
        assert_eq!(judged(text, alone), Judgement::Yes, "{text}");
        assert_eq!(judged(text, ASKED), Judgement::No, "{text}");
    }
}

#[test]
fn the_language_is_cel() {
    for (text, answer) in [
        ("args.qty == 3", true),
        ("args.qty == 3.0", true),
        ("args.qty + 1.0 == 4", true),
        ("int(args.qty) % 2 == 1", true),
        ("int(args.qty) + 1 == 4", true),
        ("args.price * args.qty > 28.4", true),
        ("-args.price < 0", true),
        ("args.reason == 'Review'", false),
        ("args.reason in ['x', 'review']", true),
        ("'reason' in args && !('other' in args)", true),
        ("args['reason'] == 'review'", true),
        ("args.tags[1] == 'b' && args.tags[0.0] == 'a'", true),
        ("args.tags == ['a', 'b']", true),
        ("args.items[0] == args.items[1]", false),
        ("has(args.deep.er.flag) && !has(args.deep.er.flags)", true),
        ("has(args.none) && args.none == null", true),
        ("args.deep.er.flag ? value > 1 : false", true),
        ("size(args.tags) == 2 && args.reason.size() == 6", true),
        ("size(args.deep) == 1", true),
        ("args.items.all(item, item.n < 3)", true),
        ("args.items.exists(item, item.sku == 'y')", true),
        ("args.items.exists_one(item, item.n > 0)", false),
        ("size(args.items.filter(item, item.n > 1)) == 1", true),
        ("args.items.map(item, item.sku) == ['x', 'y']", true),
        ("args.deep.all(key, key == 'er')", true),
        ("args.items.all(a, args.items.exists(b, b.n >= a.n))", true),
        ("args.reason.matches('^re.*w$')", true),
        (
            "args.reason.contains('evi') && matches(args.reason, 'v')",
            true,
        ),
        ("int(args.s) == 12 && double(args.s) == 12.0", true),
        ("string(value) == '100' && string(true) == 'true'", true),
        ("args.reason + '!' == 'review!'", true),
        ("args.tags + ['c'] == ['a', 'b', 'c']", true),
        ("args.reason < 'z' && 'B' < 'a'", true),
        ("args.qty != '3'", true),
        ("args.missing == 1 || true", true),
        ("false && args.missing == 1", false),
        ("args.items.exists(item, item.n == 1 || item.missing)", true),
        ("7 / 2 == 3 && -7 / 2 == -3 && -7 % 2 == -1", true),
        ("1 < 1.5 && 2 > 1.5", true),
    ] {
        let wanted = if answer {
            Judgement::Yes
        } else {
            Judgement::No
        };
        assert_eq!(judged(text, ASKED), wanted, "{text}");
    }
}

const UNJUDGEABLE: &[(&str, &str)] = &[
    ("args.missing == 1", "there is no `missing`"),
    ("args.reason.size == 1", "a string has no `size`"),
    ("args.reason > 5", "a string and an int cannot be compared"),
    (
        "args.reason < args.n",
        "a string and a double cannot be compared",
    ),
    ("args.n > 9 || args.n.x == 1", "a double has no `x`"),
    ("args.flag", "it comes to a string, not to a bool"),
    ("args.flag && true", "a string is no bool"),
    ("!args.n", "a double is no bool"),
    ("args.flag ? true : false", "a string is no bool"),
    ("args.list[1] == 'x'", "there is no such entry"),
    ("args.list[-1] == 'x'", "there is no such entry"),
    ("args.list[0.5] == 'x'", "there is no such entry"),
    ("args[args.reason] == 'x'", "there is no such entry"),
    ("args.n / 0.0 > 1.0", "a number is not finite"),
    ("double('NaN') > 1.0", "a number is not finite"),
    ("double('inf') > 1.0", "a number is not finite"),
    ("int(args.n) / 0 > 1", "divided by zero"),
    ("int(args.n) % 0 > 1", "divided by zero"),
    (
        "9223372036854775807 + int(args.n) > 1",
        "a number overflows",
    ),
    ("int(1e300) > 1", "a number overflows"),
    ("int(args.reason) > 1", "a string is not a number"),
    ("double(args.reason) > 1.0", "a string is not a number"),
    ("event.payload.hour > 1", "there is no event"),
    ("operator.size() > 1", "null has no size"),
    ("args.n.all(x, true)", "a double has no items"),
    ("args.list.all(x, x.y)", "a string has no `y`"),
    (
        "args.list.exists(x, x > 1)",
        "a string and an int cannot be compared",
    ),
    (
        "args.n.contains('x')",
        "a double and a string cannot be searched",
    ),
    ("has(args.n.x)", "a double has no fields"),
    ("-args.reason == 1", "a string has no negative"),
];

#[test]
fn what_cannot_be_judged_is_an_error_that_shows_no_value() {
    // rule 6.8
    let secret = r#"{"reason": "s3cr3t-value", "list": ["s3cr3t-value"], "n": 5, "flag": "yes"}"#;
    let asked = Asked {
        args: secret,
        operator: None,
        ..HOLD
    };
    for (text, problem) in UNJUDGEABLE {
        match judged(text, asked) {
            Judgement::Error(error) => {
                assert!(error.contains(problem), "{text}: {error}");
                assert!(!error.contains("s3cr3t"), "{text}: {error}");
            }
            other => panic!("{text} came to {other:?}"),
        }
        for word in ["if", "require"] {
            for decision in ["ALLOW", "ALERT", "BLOCK"] {
                let rest = format!("decision = \"{decision}\"\n{word} = '''{text}'''");
                let policy = rule("open", "decision = \"ALLOW\"") + &rule("asks", &rest);
                let set = set(&[("p", &policy)]);
                rules(&set, asked, Block, Some("asks"));
                let because = ask(&set, asked).because.expect("a reason");
                assert!(
                    because.starts_with(&format!("`{word}` cannot be judged: ")),
                    "{because}"
                );
                assert!(!because.contains("s3cr3t"), "{because}");
            }
        }
    }
}

#[test]
fn a_number_that_a_double_cannot_hold_is_not_judged() {
    // The plan's reader refuses such numbers; a program that builds an action may not.
    let asked = Asked {
        value: Some("9007199254740993"),
        ..HOLD
    };
    assert_eq!(
        judged("value > 0", asked),
        Judgement::Error("a number is too large to be exact".to_owned())
    );
}

#[test]
fn if_tells_whether_a_rule_speaks_and_require_what_must_hold() {
    // rule 6.7
    let small = rule(
        "small",
        "decision = \"ALLOW\"\nif = 'value <= 250'\nrequire = 'args.reason == \"review\"'",
    );
    let large = rule("large", "decision = \"ALERT\"\nif = 'value > 250'");
    let set = set(&[("p", &(small + &large))]);
    let with = |value, args| Asked {
        value,
        args,
        ..HOLD
    };
    rules(&set, with(Some("250"), ARGS), Allow, Some("small"));
    rules(&set, with(Some("250.01"), ARGS), Alert, Some("large"));
    rules(&set, with(Some("250.01"), "{}"), Alert, Some("large"));
    let other = with(Some("1"), r#"{"reason": "other"}"#);
    rules(&set, other, Block, Some("small"));
    let because = ask(&set, other).because.expect("a reason");
    assert_eq!(
        because,
        "`require` does not hold: args.reason == \"review\""
    );
    // Without a value neither `if` can tell.
    rules(&set, with(None, ARGS), Block, Some("large"));
    // A silent rule is in the explanation, and in no ruling.
    with_question(with(Some("300"), ARGS), |question| {
        let explained = set.explain(question);
        let names = |findings: &[crate::Finding<'_>]| -> Vec<String> {
            let names = findings
                .iter()
                .map(|finding| finding.rule.name().to_owned());
            names.collect()
        };
        assert_eq!(names(&explained.findings), ["large"]);
        assert_eq!(names(&explained.silent), ["small"]);
    });
}

#[test]
fn if_of_a_block_rule_that_is_false_blocks_nothing() {
    let open = rule("open", "decision = \"ALLOW\"");
    let shut = rule("shut", "decision = \"BLOCK\"\nif = 'value > 100'");
    let set = set(&[("p", &(open + &shut))]);
    rules(&set, HOLD, Allow, Some("open"));
    let more = Asked {
        value: Some("101"),
        ..HOLD
    };
    rules(&set, more, Block, Some("shut"));
}

/// `GOOD` with an `if`; the error must point into it.
#[track_caller]
fn refused(expression: &str, column: usize, problem: &str) {
    let line = format!("if = '{expression}'");
    let text = GOOD.replace("max_value = 500", &line);
    let parsed = Policy::parse(std::path::Path::new("p.toml"), text.as_bytes());
    let error = parsed.expect_err(expression);
    assert!(error.to_string().contains(problem), "{error}");
    // `if = '` is six characters.
    assert_eq!(error.place(), Some((10, 6 + column)), "{error}");
    well_said(&error);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn an_expression_that_could_only_ever_block_is_refused_where_it_is_wrong() {
    // rule 6.9
    refused(
        "vlaue > 1",
        1,
        "there is no variable `vlaue`; write one of: action, args",
    );
    refused(
        "value > 1 && Args.x == 1",
        14,
        "there is no variable `Args`",
    );
    refused("now() > 1", 4, "there is no function `now`");
    refused(
        "timestamp(args.t) > 1",
        10,
        "there is no function `timestamp`",
    );
    refused(
        "args.x.lowerAscii() == 1",
        18,
        "there is no function `lowerAscii`",
    );
    refused("action == 1", 1, "`action` is read by its fields");
    refused("action.amount > 1", 7, "`action` has no field `amount`");
    refused(
        "event.payloads.x == 1",
        6,
        "`event` has no field `payloads`",
    );
    refused("has(args)", 4, "`has` asks for a field");
    refused(
        "has(action.value)",
        11,
        "it is always there, and may be null",
    );
    refused("value", 1, "comes to a double or null, not to a bool");
    refused("args.a + args.b", 1, "not to a bool");
    refused("1", 1, "comes to an int, not to a bool");
    refused("size(args)", 1, "comes to an int, not to a bool");
    refused(
        "value + 1 > 2.0",
        7,
        "cannot take a double or null and an int; numbers of an action",
    );
    refused("args.n * 2 > 2.0", 8, "cannot take a JSON value and an int");
    refused(
        "args.n % 2 == 0",
        8,
        "take whole numbers, as in `int(args.count) % 2`",
    );
    refused("tenant > 5", 8, "`>` cannot take a string and an int");
    refused(
        "value == \"5\"",
        7,
        "`==` cannot take a double or null and a string",
    );
    refused("tenant.x == 1", 7, "`.x` is asked of a string");
    refused("!tenant", 2, "it takes a bool, and this is a string");
    refused("tenant && true", 1, "it takes a bool, and this is a string");
    refused(
        "size(value) > 1",
        6,
        "`size` takes a string or a list or a map",
    );
    refused("tenant.all(x, true)", 1, "a comprehension over a string");
    refused("args.l.all(args, true)", 12, "`args` is taken");
    refused("args.l.all(1, true)", 12, "names its variable first");
    refused("args.l.all(x, y > 1)", 15, "there is no variable `y`");
    refused(
        "args.l.all(x, size(x))",
        19,
        "comes to an int, not to a bool",
    );
    refused(
        "args.l.filter(x, true)",
        1,
        "comes to a list, not to a bool",
    );
    refused(
        "args.l.all(a, args.l.all(b, args.l.all(c, true)))",
        33,
        "more than 2 comprehensions",
    );
    refused(
        "args.x.matches(args.y)",
        20,
        "the pattern of `matches` is not written out",
    );
    refused(
        "args.x.matches(\"(\")",
        16,
        "the pattern cannot be read: unclosed group",
    );
    refused("1u == 1u", 1, "actions hold no such values");
    refused("args == {}", 9, "a map cannot be written in a rule");
    refused("args.?x == 1", 5, "unsupported syntax");
    refused("value >", 8, "mismatched input");
    refused("value > 1 value", 11, "extraneous input");
    refused("9223372036854775808 > 1", 1, "invalid int literal");
    refused("1e400 > 1.0", 1, "invalid double literal");
    refused("", 1, "the expression is empty");
    refused("  ", 1, "the expression is empty");
    refused(
        &format!("tenant == \"{}\"", "x".repeat(2_048)),
        1,
        "longer than 2048 bytes",
    );
}

#[test]
fn a_place_is_found_in_every_kind_of_string() {
    let refused = |line: &str, place| {
        let text = GOOD.replace("max_value = 500", line);
        let parsed = Policy::parse(std::path::Path::new("p.toml"), text.as_bytes());
        let error = parsed.expect_err(line);
        assert_eq!(error.place(), Some(place), "{error}");
    };
    refused("if = \"vlaue > 1\"", (10, 7));
    refused("if = '''vlaue > 1'''", (10, 9));
    refused("if = '''\nvalue > 1 &&\n  vlaue > 1'''", (12, 3));
    refused("if = '\u{e9}' # no bool", (10, 7));
    refused("if = 'tenant == \"\u{e9}\" && vlaue > 1'", (10, 24));
    // With escapes the string's start has to do.
    refused("if = \"tenant == \\\"x\\\" && vlaue > 1\"", (10, 6));
    refused("if = true", (10, 6));
    refused("require = 5", (10, 11));
}

#[test]
fn a_schema_of_the_arguments_finds_more() {
    let schema = serde_json::json!({
        "type": "object",
        "properties": {"order": {"type": "string"}, "qty": {"type": "integer"}},
        "additionalProperties": false,
    });
    let check = |text: &str| Expression::parse(text).expect(text).check_args(&schema);
    assert_eq!(check("args.order == 'x' && args.qty > 5"), Ok(()));
    for (text, offset, problem) in [
        ("args.ordr == 'x'", 4, "the tool's arguments have no `ordr`"),
        ("args.order > 5", 11, "`>` cannot take a string and an int"),
        (
            "args.qty == '5'",
            9,
            "`==` cannot take a double and a string",
        ),
        ("args.qty", 0, "not to a bool"),
    ] {
        let error = check(text).expect_err(text);
        assert!(error.problem.contains(problem), "{error}");
        assert_eq!(error.offset, offset, "{error}");
    }
}
