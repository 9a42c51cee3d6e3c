//! Bodies: arguments or a table of templates, as JSON or as a form.

use serde_json::{Value, json};

use super::vendor::{Reply, Vendor, ok};
use super::{build, call, invoke, not_applied};

/// The head and the body that one call sends.
async fn sent(lines: &str, args: Value) -> Result<(String, String), String> {
    let vendor = Vendor::always(Reply::Close(ok("{}")));
    let registry = build(&vendor.config(lines)).expect("config");
    let outcome = invoke(&registry, &call("do", args)).await;
    match vendor.requests().pop() {
        Some(request) => {
            let (head, body) = request.split_once("\r\n\r\n").expect("an end of the head");
            Ok((head.to_ascii_lowercase(), body.to_owned()))
        }
        None => Err(not_applied(outcome)),
    }
}

#[tokio::test]
async fn a_table_of_templates_is_filled_in_with_types_kept() {
    let lines = "body = { title = \"{args.title}\", marker = \"key={action.downstream_key}\", \
        labels = \"{args.labels}\", fixed = [1, true, { at = \"{args.n}\" }], note = \"{args.none}\" }";
    let args =
        json!({"title": "a \"b\"\r\n{args.n}", "labels": ["x", {"y": 1}], "n": 2.5, "none": null});
    let (head, body) = sent(lines, args).await.expect("sent");
    assert!(head.contains("content-type: application/json"), "{head}");
    let body: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(
        body,
        json!({
            "title": "a \"b\"\r\n{args.n}",
            "marker": "key=dk-0001",
            "labels": ["x", {"y": 1}],
            "fixed": [1, true, {"at": 2.5}],
            "note": null,
        })
    );
}

#[tokio::test]
async fn a_placeholder_that_cannot_be_filled_stops_the_call() {
    let lines = "body = { a = { b = [\"{args.missing}\"] } }";
    let message = sent(lines, json!({})).await.expect_err("not sent");
    assert_eq!(
        message,
        "`POST /do` was not sent: `args.missing` is missing"
    );
    let mixed = "body = { a = \"x-{args.list}\" }";
    let message = sent(mixed, json!({"list": [1]}))
        .await
        .expect_err("not sent");
    assert!(message.ends_with("`args.list` is not a text, a number or a boolean"));
}

#[tokio::test]
async fn a_form_escapes_names_and_values_and_nests_with_brackets() {
    let args = json!({
        "amount": 100, "live": false, "note": "a&b=c d+e%ü\r\n", "none": null,
        "a=b&c": "x", "items": [{"price": "p1"}, {"price": "p2"}], "meta": {"k": "v"},
    });
    let (head, body) = sent("encoding = \"form\"", args).await.expect("sent");
    assert!(
        head.contains("content-type: application/x-www-form-urlencoded"),
        "{head}"
    );
    let mut pairs: Vec<&str> = body.split('&').collect();
    pairs.sort_unstable();
    assert_eq!(
        pairs,
        [
            "a%3Db%26c=x",
            "amount=100",
            "items%5B0%5D%5Bprice%5D=p1",
            "items%5B1%5D%5Bprice%5D=p2",
            "live=false",
            "meta%5Bk%5D=v",
            "note=a%26b%3Dc%20d%2Be%25%C3%BC%0D%0A",
        ]
    );
    let template = "encoding = \"form\"\nbody = { amount = \"{args.n}\", currency = \"eur\" }";
    let (_, body) = sent(template, json!({"n": 7})).await.expect("sent");
    assert_eq!(body, "amount=7&currency=eur");
}

#[tokio::test]
async fn a_form_nested_beyond_reason_is_not_sent() {
    let mut deep = json!(1);
    for _ in 0..20 {
        deep = json!({ "a": deep });
    }
    let message = sent("encoding = \"form\"", json!({"deep": deep})).await;
    let message = message.expect_err("not sent");
    assert!(
        message.ends_with("the form is nested deeper than 8"),
        "{message}"
    );
}

#[test]
fn a_body_that_cannot_be_is_refused_when_it_loads() {
    let vendor = "[connectors.shop]\nkind = \"http\"\nbase_url = \"https://api.example.com\"\n\
        [connectors.shop.tools.do]\npath = \"/do\"\n";
    for (lines, problem) in [
        (
            "body = { a = \"{arg.x}\" }",
            "body: unknown placeholder `{arg.x}`",
        ),
        (
            "method = \"GET\"\nbody = { a = \"x\" }",
            "body: `GET` has no body",
        ),
        (
            "body = \"none\"\nencoding = \"form\"",
            "encoding: there is no body to encode",
        ),
        ("encoding = \"xml\"", "unknown variant `xml`"),
        (
            "body = [1]",
            "a body is `\"args\"`, `\"rest\"`, `\"none\"` or a table of templates",
        ),
    ] {
        let error = build(&format!("{vendor}{lines}\n")).expect_err(lines);
        assert!(error.contains(problem), "{error}");
    }
}
