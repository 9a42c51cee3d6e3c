//! What a tool's configuration can say about answers: statuses, conditions, what is taken.

use serde_json::json;

use operators_kernel::InvokeOutcome;

use super::vendor::{Reply, Vendor, answer, ok};
use super::{applied, build, call, invoke, not_applied, unknown};

async fn with(lines: &str, bytes: &[u8]) -> InvokeOutcome {
    let vendor = Vendor::always(Reply::Close(bytes.to_vec()));
    let registry = build(&vendor.config(lines)).expect("config");
    let outcome = invoke(&registry, &call("do", json!({"order": "SO-1"}))).await;
    assert_eq!(vendor.requests().len(), 1, "sent once, whatever the answer");
    outcome
}

fn json(status: u16, body: &str) -> Vec<u8> {
    answer(&format!("{status} Said"), "application/json", body)
}

fn word(outcome: &InvokeOutcome) -> &'static str {
    match outcome {
        InvokeOutcome::Applied(_) => "applied",
        InvokeOutcome::NotApplied(_) => "not applied",
        InvokeOutcome::Unknown(_) => "unknown",
    }
}

#[tokio::test]
async fn a_status_means_what_the_tool_says() {
    let lines = "applied = \"200, 201, 404\"\nnot_applied = \"4xx, 503\"";
    for (status, wanted) in [
        (200, "applied"),
        (201, "applied"),
        (202, "unknown"),
        (404, "applied"),
        (400, "not applied"),
        // Its hundred does not speak for it: proxies say it too.
        (408, "unknown"),
        (503, "not applied"),
        (500, "unknown"),
        (302, "unknown"),
    ] {
        let outcome = with(lines, &json(status, "{}")).await;
        assert_eq!(word(&outcome), wanted, "{status}: {outcome:?}");
    }
    let by_itself = with("not_applied = \"408\"", &json(408, "{}")).await;
    assert_eq!(word(&by_itself), "not applied");
    let by_number = with("applied = \"303\"", &json(303, "{}")).await;
    assert_eq!(word(&by_number), "applied");
}

#[tokio::test]
async fn a_mapping_makes_no_unreadable_answer_readable() {
    let cut_off = b"HTTP/1.1 503 Busy\r\ncontent-length: 90\r\n\r\nhalf";
    unknown(with("not_applied = \"503\"", cut_off).await);
    let not_json = json(404, "<html>");
    unknown(with("applied = \"2xx, 404\"", &not_json).await);
}

#[tokio::test]
async fn a_known_repeat_is_applied() {
    let lines = "already_applied = { status = 409, pointer = \"/error/code\", equals = \"exists\" }\n\
        result = \"/order\"\neffect_id = \"/order/no\"";
    let known = json(409, r#"{"error":{"code":"exists"},"order":{"no":7}}"#);
    let (result, id) = applied(with(lines, &known).await);
    assert_eq!((result, id.as_deref()), (json!({"no": 7}), Some("7")));

    let other = json(409, r#"{"error":{"code":"locked"}}"#);
    not_applied(with(lines, &other).await);
    let text = answer("409 No", "text/plain", "exists");
    not_applied(with(lines, &text).await);
    // What might be the known repeat and cannot be read is not taken for a refusal.
    unknown(
        with(
            lines,
            b"HTTP/1.1 409 No\r\ncontent-length: 90\r\n\r\n{\"err",
        )
        .await,
    );
    unknown(with(lines, &json(409, "{\"error\":")).await);

    let by_status = "already_applied = { status = 409 }";
    assert_eq!(applied(with(by_status, &known).await).0, json!(null));
}

#[tokio::test]
async fn a_body_can_overrule_its_status() {
    // Slack's way: always 200, and the truth in the body.
    let lines = "applied_if = { pointer = \"/ok\", equals = true }\n\
        not_applied_if = { pointer = \"/error\", one_of = [\"invalid_auth\", \"channel_not_found\"] }";
    applied(with(lines, &ok(r#"{"ok":true,"id":"1"}"#)).await);
    let refused = not_applied(with(lines, &ok(r#"{"ok":false,"error":"invalid_auth"}"#)).await);
    assert_eq!(refused, "`POST /do` answered 200: `invalid_auth`");
    let unsure = unknown(with(lines, &ok(r#"{"ok":false,"error":"fatal_error"}"#)).await);
    assert_eq!(
        unsure,
        "`POST /do` answered 200: `fatal_error`, which does not say that it happened"
    );
    unknown(with(lines, &ok("[]")).await);
    unknown(with(lines, &answer("200 OK", "text/plain", "true")).await);
    unknown(with(lines, &ok("{\"ok\":")).await);
    let both = ok(r#"{"ok":true,"error":"invalid_auth"}"#);
    unknown(with(lines, &both).await);
}

#[tokio::test]
async fn a_condition_may_speak_of_this_very_call() {
    let lines = "applied_if = { pointer = \"/key\", equals = \"{action.downstream_key}\" }";
    applied(with(lines, &ok(r#"{"key":"dk-0001"}"#)).await);
    unknown(with(lines, &ok(r#"{"key":"dk-0002"}"#)).await);
    // An argument that is not there equals nothing, not even a null.
    let missing = "applied_if = { pointer = \"/key\", equals = \"{args.missing}\" }";
    unknown(with(missing, &ok(r#"{"key":null}"#)).await);
    let number = "applied_if = { pointer = \"/n\", equals = 1 }";
    applied(with(number, &ok(r#"{"n":1.0}"#)).await);
}

#[tokio::test]
async fn what_is_taken_is_where_the_tool_says() {
    let lines = "result = \"/data/0\"\neffect_id = \"/data/0/a~1b\"";
    let body = ok(r#"{"id":"other","data":[{"a/b":"x-1"}]}"#);
    let (result, id) = applied(with(lines, &body).await);
    assert_eq!(
        (result, id.as_deref()),
        (json!({"a/b": "x-1"}), Some("x-1"))
    );
    // It happened all the same.
    assert_eq!(applied(with(lines, &ok("{}")).await), (json!(null), None));
}

#[test]
fn a_mapping_that_cannot_be_meant_is_refused_when_it_loads() {
    let vendor = "[connectors.shop]\nkind = \"http\"\nbase_url = \"https://api.example.com\"\n\
        [connectors.shop.tools.do]\npath = \"/do\"\n";
    for (lines, problem) in [
        (
            "applied = \"2xx, 500\"\nnot_applied = \"500\"",
            "not_applied: `500` stands in `applied` too",
        ),
        (
            "applied = \"4xx\"",
            "not_applied: `4xx` stands in `applied` too",
        ),
        (
            "applied = \"20x\"",
            "applied: `20x` is not the status of an answer; write a list like `2xx, 404`",
        ),
        ("applied = \"\"", "applied: `` is not the status"),
        ("applied = true", "invalid type: boolean"),
        ("applied = \"100\"", "applied: `100` is not the status"),
        ("applied = \"+200\"", "applied: `+200` is not the status"),
        (
            "not_applied = \"1xx\"",
            "not_applied: `1xx` is not the status",
        ),
        ("result = \"data\"", "result: `data` is not a JSON pointer"),
        (
            "effect_id = \"/a~2\"",
            "effect_id: `/a~2` is not a JSON pointer",
        ),
        ("already_applied = {}", "already_applied: says nothing"),
        (
            "applied_if = { equals = 1 }",
            "applied_if: compares, but has no `pointer`",
        ),
        (
            "applied_if = { pointer = \"/a\" }",
            "applied_if: needs one of `equals`, `one_of` and `exists`",
        ),
        (
            "applied_if = { pointer = \"/a\", equals = 1, exists = true }",
            "applied_if: needs one of",
        ),
        (
            "applied_if = { pointer = \"/a\", equals = \"{args}\" }",
            "applied_if: unknown placeholder",
        ),
        (
            "not_applied_if = { status = 600 }",
            "`600` is not the status of an answer",
        ),
        ("applied_if = { header = \"x\" }", "unknown field `header`"),
    ] {
        let error = build(&format!("{vendor}{lines}\n")).expect_err(lines);
        assert!(error.contains(problem), "{lines}: {error}");
    }
}
