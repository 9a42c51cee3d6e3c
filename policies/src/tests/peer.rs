//! Our judgement against the `cel` crate's own, over random expressions and arguments: where both
//! answer they agree, and where ours answers the crate never has an error.

use cel::{Context, Program, Value};

use super::order::Dice;
use super::{Asked, HOLD, with_question};
use crate::{Judgement, Predicate};

const CASES: u64 = 2_500;

const ARGUMENTS: [&str; 4] = [
    r#"{"n": 3, "m": 2.5, "s": "abc", "t": "b", "b": true, "l": [1, 2.5, "abc"], "o": {"k": "abc", "n": 3}, "z": null}"#,
    r#"{"n": -1, "m": 3, "s": "", "t": "abc", "b": false, "l": [], "o": {}, "z": 0}"#,
    r#"{"n": "3", "m": null, "s": 5, "t": "é", "b": "true", "l": {"a": 1}, "o": ["k"]}"#,
    r#"{"n": 0, "m": -0.5, "s": "a", "l": [true, false, null], "b": true, "o": {"k": null}}"#,
];

/// A random expression of the language, not always a sound one.
fn draw(dice: &mut Dice, depth: usize) -> String {
    if depth == 0 {
        return dice
            .pick(&[
                "args.n",
                "args.m",
                "args.s",
                "args.t",
                "args.b",
                "args.l",
                "args.o",
                "args.z",
                "args.o.k",
                "args.o.n",
                "args.l[0]",
                "args.l[1]",
                "args.missing",
                "1",
                "2.5",
                "3",
                "-1",
                "0.0",
                "'abc'",
                "'b'",
                "''",
                "true",
                "false",
                "null",
                "value",
                "tenant",
                "operator",
                "has(args.o.k)",
                "has(args.q)",
                "[1, 2.5]",
                "['abc', 'b']",
            ])
            .to_owned();
    }
    let operand = |dice: &mut Dice| {
        let depth = dice.below(depth);
        draw(dice, depth)
    };
    let (a, b, c) = (operand(dice), operand(dice), operand(dice));
    match dice.below(20) {
        0 | 1 => format!("({a} == {b})"),
        2 => format!("({a} != {b})"),
        3 => format!("({a} < {b})"),
        4 => format!("({a} >= {b})"),
        5 | 6 => format!("({a} && {b})"),
        7 | 8 => format!("({a} || {b})"),
        9 => format!("!({a})"),
        10 => format!("({a} ? {b} : {c})"),
        11 => format!("({a} in {b})"),
        12 => format!("({a} + {b})"),
        13 => format!("({a} * {b} - {c})"),
        14 => format!("size({a})"),
        15 => format!("args.s.contains({a})"),
        16 => format!("args.l.all(x, x == {a})"),
        17 => format!("args.l.exists(x, {a} == x || {b})"),
        18 => format!("(size(args.l.filter(x, x != {a})) > 1)"),
        _ => format!("({a} <= {b})"),
    }
}

fn peer(text: &str, args: &serde_json::Value, value: f64) -> Result<Value, cel::ExecutionError> {
    let mut context = Context::default();
    context.add_variable("args", to_cel(args)).expect("a value");
    context.add_variable("value", value).expect("a value");
    context.add_variable("tenant", "acme").expect("a value");
    context
        .add_variable("operator", Value::Null)
        .expect("a value");
    Program::compile(text).expect(text).execute(&context)
}

/// As CEL maps JSON: every number is a double.
fn to_cel(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::Number(number) => Value::Float(number.as_f64().expect("finite")),
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => {
            Value::from(items.iter().map(to_cel).collect::<Vec<_>>())
        }
        serde_json::Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| (name.clone(), to_cel(value)));
            Value::from(fields.collect::<std::collections::HashMap<String, Value>>())
        }
    }
}

#[test]
fn ours_and_the_crates_own_interpreter_agree() {
    let mut seen = std::collections::BTreeMap::new();
    for seed in 0..CASES {
        let dice = &mut Dice(seed);
        let depth = 1 + dice.below(4);
        let text = draw(dice, depth);
        let Ok(predicate) = Predicate::expression(&text) else {
            *seen.entry("refused at load").or_insert(0) += 1;
            continue;
        };
        for args in ARGUMENTS {
            let asked = Asked { args, ..HOLD };
            let ours = with_question(asked, |question| {
                predicate.judge(question, &crate::expression::Steps::default())
            });
            let parsed: serde_json::Value = serde_json::from_str(args).expect(args);
            let theirs = peer(&text, &parsed, 100.0);
            let agreed = match (&ours, &theirs) {
                (Judgement::Yes, Ok(Value::Bool(true))) => "yes",
                (Judgement::No, Ok(Value::Bool(false))) => "no",
                (Judgement::Error(_), Err(_)) => "error",
                (Judgement::Error(_), Ok(other)) if !matches!(other, Value::Bool(_)) => "no bool",
                _ => panic!("seed {seed}: {text}\n{args}\nours {ours:?}\ntheirs {theirs:?}"),
            };
            *seen.entry(agreed).or_insert(0) += 1;
        }
    }
    for kind in ["yes", "no", "error", "refused at load"] {
        let count = seen.get(kind).copied().unwrap_or_default();
        assert!(count > 200, "{kind} was hardly drawn: {seen:?}");
    }
}
