//! Section 7: hostile plans are refused whole, with the place, without an effect and without a panic.

use operators_kernel::{
    ARGS_BYTES_MAX, Effect, ExecError, ExecutionPlan, PLAN_ACTIONS_MAX, PLAN_BYTES_MAX,
    ProbeOutcome, RESULT_BYTES_MAX, forecast,
};
use operators_tests::fakes::Act;
use operators_tests::fixtures::{World, action, hold};
use serde_json::json;

use crate::support::{Home, each_store, effects, memory, one, proposals, receipts, words};

const GOOD: &str = r#"{"connector":"shop","tool":"orders.hold","args":{"order":"SO-1"},"entity_key":"e","idempotency_key":"good"}"#;

fn with(field: &str, value: &str) -> String {
    let mut action: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(GOOD).expect("good");
    action.remove(field);
    let rest: Vec<String> = action
        .iter()
        .map(|(name, value)| format!("{}:{value}", serde_json::json!(name)))
        .collect();
    format!("{{{},\"{field}\":{value}}}", rest.join(","))
}

/// A planner's text, run if it can be read; what comes in between two good actions.
async fn propose(world: &World, text: &str) -> Result<(), String> {
    let plan = ExecutionPlan::parse(text).map_err(|error| error.to_string())?;
    let executor = world.start().await;
    executor
        .run(&world.run(), &plan)
        .await
        .map_err(|error| error.to_string())?;
    Ok(())
}

#[track_caller]
fn refused(what: &str, text: &str) -> String {
    let world = memory().world;
    let plan = format!("[{GOOD},{text},{GOOD}]");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let error = propose(&world, &plan).await;
        let error = error.expect_err(&format!("{what} was taken"));
        assert!(effects(&world).is_empty(), "{what}: half a plan was run");
        assert!(receipts(&world).await.is_empty(), "{what}");
        error
    })
}

/// Rules 1.7 and 7.1: what two readers would read differently, or what is beyond its size.
#[test]
fn hostile_values_are_refused_with_their_place() {
    let deep = |n: usize| format!("{{\"a\":{}1{}}}", "[".repeat(n), "]".repeat(n));
    let cases = [
        (
            "a duplicate key",
            with("args", r#"{"a":1,"a":2}"#),
            "/1/args/a",
        ),
        (
            "a duplicate key, escaped",
            with("args", r#"{"a":1,"\u0061":2}"#),
            "/1/args/a",
        ),
        (
            "a duplicate field",
            format!("{},\"tool\":\"orders.get\"}}", &GOOD[..GOOD.len() - 1]),
            "/1/tool",
        ),
        ("depth", with("args", &deep(70)), "/1/args/a"),
        (
            "an integer beyond 2^53",
            with("args", r#"{"n":9007199254740992}"#),
            "/1/args/n",
        ),
        (
            "a negative one",
            with("args", r#"{"n":-9007199254740992}"#),
            "/1/args/n",
        ),
        (
            "a float beyond it",
            with("args", r#"{"n":1e300}"#),
            "/1/args/n",
        ),
        ("negative zero", with("args", r#"{"n":-0}"#), "/1/args/n"),
        (
            "negative zero as a float",
            with("args", r#"{"n":-0.0}"#),
            "/1/args/n",
        ),
        ("a value too large", with("value", "1e17"), "/1/value"),
        ("a value that is text", with("value", r#""5""#), "/1/value"),
        ("a negative revision", with("revision", "-1"), "/1/revision"),
        ("half a revision", with("revision", "1.5"), "/1/revision"),
    ];
    all_refused(&cases);
}

/// Rules 7.1 and 1.7: fields that are not there, and texts that are none.
#[test]
fn fields_that_do_not_fit_are_refused_with_their_place() {
    let cases = [
        ("an unknown field", with("read", "true"), "/1/read"),
        (
            "a tenant of its own",
            with("tenant", r#""other""#),
            "/1/tenant",
        ),
        (
            "a credential",
            with("authorization", r#""Bearer x""#),
            "/1/authorization",
        ),
        ("args that are a list", with("args", "[]"), "/1/args"),
        ("args that are null", with("args", "null"), "/1/args"),
        (
            "an empty source",
            with("source_id", r#""""#),
            "/1/source_id",
        ),
        (
            "a source with a newline",
            with("source_id", r#""a\nb""#),
            "/1/source_id",
        ),
        ("no action at all", "null".to_owned(), "/1"),
    ];
    all_refused(&cases);
}

fn all_refused(cases: &[(&str, String, &str)]) {
    for (what, text, place) in cases {
        let error = refused(what, text);
        assert!(error.starts_with(place), "{what}: {error}");
    }
}

/// Rule 7.1: what is no JSON, by its line and column.
#[test]
fn what_is_no_json_is_refused_with_line_and_column() {
    for (what, args) in [
        ("NaN", r#"{"n":NaN}"#),
        ("infinity", r#"{"n":-Infinity}"#),
        ("1e400", r#"{"n":1e400}"#),
        ("a lone surrogate", r#"{"s":"\ud800"}"#),
        ("a reversed pair", r#"{"s":"\udc00\ud800"}"#),
        ("a lone surrogate as a name", r#"{"\udfff":1}"#),
        ("a raw control character", "{\"s\":\"\u{1}\"}"),
        ("a comment", r#"{/*x*/"a":1}"#),
        ("a trailing comma", r#"{"a":1,}"#),
        ("single quotes", r"{'a':1}"),
        ("a hexadecimal number", r#"{"n":0x10}"#),
        ("a leading zero", r#"{"n":01}"#),
    ] {
        let error = refused(what, &with("args", args));
        assert!(error.starts_with("line 1 column "), "{what}: {error}");
    }
    for text in [
        "",
        " ",
        "nul",
        "[",
        "{\"actions\":[]} x",
        "\u{feff}[]",
        "7",
        "\"plan\"",
        "{}",
    ] {
        assert!(ExecutionPlan::parse(text).is_err(), "{text:?} was taken");
    }
    for depth in [1_000, 100_000, 1_000_000] {
        assert!(ExecutionPlan::parse(&"[".repeat(depth)).is_err());
        assert!(ExecutionPlan::parse(&"{\"actions\":".repeat(depth)).is_err());
    }
}

/// Rule 7.2: names are plain ASCII; what looks like one is not one.
#[test]
fn names_that_only_look_right_are_refused() {
    for name in [
        "Orders.hold",
        "orders.hold ",
        " orders.hold",
        "orders.hold\\u200b",
        "\\u043erders.hold",
        "orders\\uff0ehold",
        "orders/hold",
        "orders.hold\\u0000",
        "orders.h\\u00f6ld",
        "\\u202eorders.hold",
        "orders.*",
        "",
        &"x".repeat(65),
    ] {
        for field in ["tool", "connector"] {
            let error = refused(name, &with(field, &format!("\"{name}\"")));
            assert!(
                error.starts_with(&format!("/1/{field}:")),
                "{name}: {error}"
            );
        }
    }
}

/// Rule 7.2: keys are text that people can see and compare.
#[test]
fn keys_that_cannot_be_seen_or_compared_are_refused() {
    for key in [
        "",
        " k",
        "k ",
        "a\\u0000b",
        "a\\nb",
        "a\\u001b[2Jb",
        "a\\u007fb",
        "a\\u202eb",
        "a\\u200bb",
        "a\\u2066b",
        "\\ufeffa",
        "e\\u0301",
        "\\u212b",
        "a\\u2028b",
        "\\ue000",
        &"k".repeat(513),
        &"k".repeat(5_000),
        &"\\u00e9".repeat(257),
    ] {
        for field in ["entity_key", "idempotency_key"] {
            let error = refused(key, &with(field, &format!("\"{key}\"")));
            assert!(error.starts_with(&format!("/1/{field}:")), "{key}: {error}");
        }
    }
}

/// Rule 7.1: each size at its bound and one beyond it.
#[test]
fn what_is_beyond_its_size_is_refused() {
    let of_length = |bytes: usize| {
        // `{"s":"…"}` is eight bytes around the text.
        with("args", &format!("{{\"s\":\"{}\"}}", "x".repeat(bytes - 8)))
    };
    assert!(ExecutionPlan::parse(&format!("[{}]", of_length(ARGS_BYTES_MAX))).is_ok());
    let error = refused("args over 1 MiB", &of_length(ARGS_BYTES_MAX + 1));
    assert!(error.starts_with("/1/args:"), "{error}");

    let many = |count: usize| format!("[{}]", vec![GOOD; count].join(","));
    assert!(ExecutionPlan::parse(&many(PLAN_ACTIONS_MAX)).is_ok());
    let error = ExecutionPlan::parse(&many(PLAN_ACTIONS_MAX + 1)).expect_err("10,001 actions");
    assert!(error.to_string().contains("10001 actions"), "{error}");

    let padded = format!("[{}]", " ".repeat(PLAN_BYTES_MAX - 1));
    let error = ExecutionPlan::parse(&padded).expect_err("a plan over 16 MiB");
    assert!(error.to_string().contains("bytes"), "{error}");
}

/// Rule 7.1: a plan that was built in Rust never met the parser. Beyond 2^53 two integers have one
/// canonical form, so two different actions would be taken for one.
#[tokio::test]
async fn a_plan_built_in_rust_is_as_strict() {
    let deep = (0..64).fold(json!(1), |inner, _| json!([inner]));
    let cases = [
        (
            json!({"n": 9_007_199_254_740_993_u64}),
            "/args/n: the integer 9007199254740993 is beyond 2^53 − 1; use a string",
        ),
        (
            json!({"a/b": [0, {"n": -9_007_199_254_740_993_i64}]}),
            "/args/a~1b/1/n: the integer -9007199254740993 is beyond −2^53 + 1; use a string",
        ),
        (
            json!({"n": 1e300}),
            "/args/n: a number beyond ±(2^53 − 1); use a string",
        ),
        (
            json!({"n": -0.0}),
            "/args/n: negative zero, which readers do not agree on",
        ),
        (json!({"d": deep}), "nested deeper than 64 levels"),
        (
            json!({"s": "x".repeat(1024 * 1024)}),
            "/args: args are 1048584 bytes, at most 1048576",
        ),
        (
            json!({"s": "\u{1}".repeat(200_000)}),
            "/args: args are 1200008 bytes, at most 1048576",
        ),
    ];
    let world = World::in_memory();
    let executor = world.start().await;
    for (args, problem) in cases {
        let act = action("orders.hold", "e", "k", args);
        let told = executor.run_action(&world.run(), act.clone()).await;
        let told = told.expect_err(problem).to_string();
        assert!(told.starts_with("nothing was run: /args"), "{told}");
        assert!(told.ends_with(problem), "{told}");
        let plan = ExecutionPlan {
            reasoning: None,
            actions: vec![action("orders.hold", "e", "first", json!({})), act],
        };
        let told = executor.run(&world.run(), &plan).await;
        let told = told.expect_err(problem);
        assert!(told.completed.is_empty());
        let told = told.to_string();
        assert!(
            told.starts_with("nothing was run: /actions/1/args"),
            "{told}"
        );
        let told = forecast(&world.seams(), &world.run(), &plan).await;
        assert!(matches!(told, Err(ExecError::Invalid(_))), "{told:?}");
    }
    let mut act = action(
        "orders.hold",
        "e",
        "k",
        json!({"n": 9_007_199_254_740_991_u64}),
    );
    act.value = Some(9_007_199_254_740_992_u64.into());
    let told = executor.run_action(&world.run(), act.clone()).await;
    let told = told.expect_err("beyond").to_string();
    assert!(told.starts_with("nothing was run: /value: "), "{told}");
    assert!(world.connector.calls().is_empty());
    act.value = None;
    let result = executor.run_action(&world.run(), act).await;
    assert!(result.expect("at the bound").ok);
}

/// Rule 7.2: what looks alike and is allowed is two keys, byte for byte.
#[tokio::test]
async fn keys_are_compared_byte_for_byte() {
    let world = memory().world;
    let keys = ["k", "K", "\u{43a}", "k ", "k.", "straße", "strasse"];
    let actions: Vec<_> = keys
        .iter()
        .filter(|key| key.trim() == **key)
        .map(|key| with("idempotency_key", &format!("\"{key}\"")))
        .collect();
    propose(&world, &format!("[{}]", actions.join(",")))
        .await
        .expect("runs");
    assert_eq!(
        effects(&world),
        ["k", "K", "\u{43a}", "k.", "straße", "strasse"]
    );
}

/// Rule 7.1: an empty plan is a plan; the text around the actions is strict too.
#[tokio::test]
async fn an_empty_plan_runs_and_leaves_nothing() {
    let world = memory().world;
    for text in [
        "[]",
        r#"{"actions":[]}"#,
        r#"{"reasoning":"nothing to do","actions":[]}"#,
    ] {
        propose(&world, text).await.expect("runs");
    }
    for text in [
        r#"{"actions":[],"run":"now"}"#,
        r#"{"actions":[],"actions":[]}"#,
        r#"{"actions":null}"#,
    ] {
        propose(&world, text).await.expect_err(text);
    }
    assert!(receipts(&world).await.is_empty());
}

/// Rule 7.1: what one's own connector answers, or its probe, is bounded by what every store takes. The
/// effect counts all the same; result, receipt and every duplicate say the same of it.
#[tokio::test]
async fn an_answer_of_more_than_a_store_takes_is_not_kept() {
    let told = "an answer of more than 1500000 bytes, which is not kept";
    for Home { world, name, .. } in &each_store() {
        let executor = world.start().await;
        let fits = json!("a".repeat(RESULT_BYTES_MAX - 2));
        let large = json!({"rows": vec!["€".repeat(1_000); 600]});
        for (key, answer, kept) in [
            ("fits", fits.clone(), fits.clone()),
            (
                "a byte more",
                json!("a".repeat(RESULT_BYTES_MAX - 1)),
                json!(told),
            ),
            ("large", large.clone(), json!(told)),
        ] {
            world.connector.then([Act::ApplyWith(answer)]);
            let result = one(&executor, world, hold("e", key)).await;
            assert!(result.ok, "{name}");
            assert!(result.result.as_deref() == Some(&kept), "{name}: {key}");
            let receipt = proposals(world).await.pop().expect("a receipt");
            let digest = operators_kernel::json::digest(&kept).expect("a digest");
            let told = receipt.result_digest.as_deref();
            assert_eq!(told, Some(&*digest.to_string()), "{name}: {key}");
            let again = one(&executor, world, hold("e", key)).await;
            assert_eq!(words(&again), "DEDUP true -", "{name}");
            let original = again.original.expect("an original").result.unpack();
            assert!(original == kept, "{name}: {key}");
        }
        world.connector.then([Act::ApplyThenUnknown]);
        let probed = Effect::of(large.clone());
        world.connector.probes_find([ProbeOutcome::Applied(probed)]);
        let note = action("orders.note", "e2", "probed", json!({}));
        one(&executor, world, note.clone()).await;
        let found = one(&executor, world, note).await;
        assert_eq!(words(&found), "DEDUP true -", "{name}");
        let original = found.original.expect("an original").result.unpack();
        assert!(original == json!(told), "{name}");
        // What a read is answered is kept nowhere, so it is handed over whole.
        world.connector.then([Act::ApplyWith(large.clone())]);
        let read = action("orders.get", "e", "r", json!({}));
        let read = one(&executor, world, read).await;
        assert!(read.result.as_deref() == Some(&large), "{name}");
    }
}
