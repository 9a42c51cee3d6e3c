//! What leaves: paths that stay where they belong, headers that cannot be forged, keys, secrets.

use serde_json::{Value, json};

use super::vendor::{Reply, Vendor, answer, ok};
use super::{CANARY, applied, build, call, invoke, not_applied};

fn vendor() -> Vendor {
    Vendor::always(Reply::Close(ok("{}")))
}

fn request_line(request: &str) -> &str {
    request.lines().next().expect("a first line")
}

fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    request.lines().find_map(|line| {
        let (found, value) = line.split_once(": ")?;
        found.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// The first request after one call of a tool with these lines.
async fn sent(tool_lines: &str, args: Value) -> Result<String, String> {
    let vendor = vendor();
    let config = vendor.config(&format!("[connectors.shop.tools.t]\n{tool_lines}"));
    let registry = build(&config).expect("config");
    let outcome = invoke(&registry, &call("t", args)).await;
    let mut requests = vendor.requests();
    match requests.pop() {
        Some(request) => Ok(request),
        None => Err(not_applied(outcome)),
    }
}

#[tokio::test]
async fn the_arguments_are_the_body_unless_told_otherwise() {
    let request = sent("path = \"/t\"", json!({"b": [1, "x"], "a": {"c": null}})).await;
    let request = request.expect("sent");
    assert_eq!(request_line(&request), "POST /t HTTP/1.1");
    assert_eq!(header(&request, "content-type"), Some("application/json"));
    assert!(
        request.ends_with("\r\n\r\n{\"a\":{\"c\":null},\"b\":[1,\"x\"]}"),
        "{request}"
    );

    let read = sent("effect = \"read\"\npath = \"/t\"", json!({"a": 1}))
        .await
        .expect("sent");
    assert_eq!(request_line(&read), "GET /t HTTP/1.1");
    assert!(read.ends_with("\r\n\r\n"));

    let none = sent("path = \"/t\"\nbody = \"none\"", json!({"a": 1}))
        .await
        .expect("sent");
    assert!(none.ends_with("\r\n\r\n"));
    assert_eq!(header(&none, "content-type"), None);

    let delete = sent("path = \"/t\"\nmethod = \"DELETE\"", json!({"a": 1}))
        .await
        .expect("sent");
    assert_eq!(request_line(&delete), "DELETE /t HTTP/1.1");
    assert!(delete.ends_with("\r\n\r\n"));
}

#[tokio::test]
async fn placeholders_are_filled_in() {
    let lines = "path = \"/orders/{args.order}/{action.tool}?n={args.n}&b={args.in.b}\"\n\
        headers = { X-Entity = \"{action.entity_key}\", \
        X-Keys = \"{action.idempotency_key} {action.downstream_key}\" }";
    let args = json!({"order": "SO-1", "n": 2.5, "in": {"b": true}});
    let request = sent(lines, args).await.expect("sent");
    assert_eq!(
        request_line(&request),
        "POST /orders/SO-1/t?n=2.5&b=true HTTP/1.1"
    );
    assert_eq!(header(&request, "x-entity"), Some("order:SO-1"));
    assert_eq!(header(&request, "x-keys"), Some("order:SO-1:hold dk-0001"));
}

#[tokio::test]
async fn a_query_table_leaves_out_what_is_absent_and_repeats_what_is_listed() {
    let lines = "path = \"/do?fixed=1\"\nmethod = \"GET\"\neffect = \"read\"\n\
        query = { q = \"{args.q}\", \"tag[]\" = \"{args.tags}\", page = \"p{args.page}\", \
        deep = true, limit = 50, who = \"{action.entity_key}\" }";
    let line = |args: Value| async move {
        let request = sent(lines, args).await?;
        Ok::<_, String>(request_line(&request).to_owned())
    };
    assert_eq!(
        line(json!({"q": "a&b=c #%/?", "tags": ["x y", 2, true], "page": 3})).await,
        Ok(
            "GET /do?fixed=1&deep=true&limit=50&page=p3&q=a%26b%3Dc%20%23%25%2F%3F\
            &tag%5B%5D=x%20y&tag%5B%5D=2&tag%5B%5D=true&who=order%3ASO-1 HTTP/1.1"
                .to_owned()
        )
    );
    // Absent, null and the empty list leave it out; an empty text is a value.
    for args in [
        json!({"page": 1}),
        json!({"page": 1, "q": null, "tags": []}),
    ] {
        let wanted = "GET /do?fixed=1&deep=true&limit=50&page=p1&who=order%3ASO-1 HTTP/1.1";
        assert_eq!(line(args).await, Ok(wanted.to_owned()));
    }
    let empty = line(json!({"page": 1, "q": ""})).await.expect("sent");
    assert!(empty.contains("&q=&who="), "{empty}");
    for (args, problem) in [
        (json!({"q": "a"}), "`args.page` is missing"),
        (json!({"page": 1, "q": {"a": 1}}), "`args.q` is not a text"),
        (
            json!({"page": 1, "tags": [["x"]]}),
            "`args.tags` is not a text",
        ),
        (json!({"page": 1, "tags": [null]}), "`args.tags` is missing"),
        (json!({"page": [1]}), "`args.page` is not a text"),
    ] {
        let error = line(args).await.expect_err(problem);
        assert!(error.contains(problem), "{error}");
    }
}

#[tokio::test]
async fn the_rest_of_the_arguments_is_what_stands_nowhere_else() {
    let lines = "path = \"/do/{args.order}\"\nbody = \"rest\"\n\
        query = { notify = \"{args.options.notify}\" }\nheaders = { X-Depot = \"{args.depot}\" }";
    let args = json!({"order": "1", "options": {"notify": true}, "depot": "n", "why": "x"});
    let request = sent(lines, args.clone()).await.expect("sent");
    assert!(request.starts_with("POST /do/1?notify=true "), "{request}");
    assert!(request.ends_with("\r\n\r\n{\"why\":\"x\"}"), "{request}");
    let form = format!("{lines}\nencoding = \"form\"");
    let request = sent(&form, args).await.expect("sent");
    assert!(request.ends_with("\r\n\r\nwhy=x"), "{request}");
}

#[test]
fn a_query_table_that_cannot_be_meant_is_refused_when_it_loads() {
    let vendor = "[connectors.shop]\nkind = \"http\"\nbase_url = \"https://api.example.com\"\n\
        [connectors.shop.tools.do]\npath = \"/do\"\n";
    for (lines, problem) in [
        (
            "query = { a = \"{args\" }",
            "query.\"a\": a brace without its partner",
        ),
        (
            "query = { a = \"{event.id}\" }",
            "query.\"a\": unknown placeholder",
        ),
        (
            "query = { a = [1] }",
            "query.\"a\": is not a text, a number or a boolean",
        ),
        (
            "query = { a = { b = 1 } }",
            "query.\"a\": is not a text, a number or a boolean",
        ),
        ("query = \"a=1\"", "invalid type"),
        (
            "secret_args = [\"card\"]\nquery = { a = \"{args.card.number}\" }",
            "query: `{args.card.number}` is a secret argument",
        ),
        ("method = \"GET\"\nbody = \"rest\"", "`GET` has no body"),
    ] {
        let error = build(&format!("{vendor}{lines}")).expect_err(problem);
        assert!(error.contains(problem), "{error}");
    }
}

#[tokio::test]
async fn an_argument_stays_inside_its_path_segment() {
    let cases = [
        ("../../admin", "..%2F..%2Fadmin"),
        ("a/b", "a%2Fb"),
        ("%2e%2e", "%252e%252e"),
        ("%2E%2E%2Fadmin", "%252E%252E%252Fadmin"),
        ("a?x=1#y", "a%3Fx%3D1%23y"),
        ("\\..\\admin", "%5C..%5Cadmin"),
        ("@evil.example", "%40evil.example"),
        ("//evil.example", "%2F%2Fevil.example"),
        ("a b\r\nX: y", "a%20b%0D%0AX%3A%20y"),
        ("日本", "%E6%97%A5%E6%9C%AC"),
        ("．．", "%EF%BC%8E%EF%BC%8E"),
        ("...", "..."),
        ("SO-1.2_3~4", "SO-1.2_3~4"),
    ];
    for (value, encoded) in cases {
        let request = sent("path = \"/orders/{args.o}/hold\"", json!({"o": value})).await;
        let request = request.expect(value);
        let wanted = format!("POST /orders/{encoded}/hold HTTP/1.1");
        assert_eq!(request_line(&request), wanted);
    }
}

#[tokio::test]
async fn a_path_that_would_mean_something_else_is_not_sent() {
    let path = "path = \"/orders/{args.o}/hold\"";
    let glued = "path = \"/orders/%2e{args.o}/hold\"";
    let cases = [
        (
            path,
            json!({"o": ".."}),
            "a path segment would be `.` or `..`",
        ),
        (
            path,
            json!({"o": "."}),
            "a path segment would be `.` or `..`",
        ),
        (
            glued,
            json!({"o": "."}),
            "a path segment would be `.` or `..`",
        ),
        (path, json!({"o": ""}), "`args.o` is empty"),
        (path, json!({}), "`args.o` is missing"),
        (path, json!({"o": null}), "`args.o` is missing"),
        (
            path,
            json!({"o": ["a"]}),
            "`args.o` is not a text, a number or a boolean",
        ),
        (
            path,
            json!({"o": {"p": 1}}),
            "`args.o` is not a text, a number or a boolean",
        ),
    ];
    for (lines, args, problem) in cases {
        let message = sent(lines, args).await.expect_err(problem);
        assert!(
            message.ends_with(&format!("was not sent: {problem}")),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_base_path_is_kept_and_cannot_be_left() {
    let vendor = vendor();
    let config = vendor.config("").replace(
        &format!("http://{}", vendor.address),
        &format!("http://{}/api/v1/", vendor.address),
    );
    let registry = build(&config).expect("config");
    applied(invoke(&registry, &call("do", json!({}))).await);
    assert_eq!(
        request_line(&vendor.requests()[0]),
        "POST /api/v1/do HTTP/1.1"
    );
}

#[tokio::test]
async fn a_header_cannot_be_forged() {
    let lines = "path = \"/t\"\nheaders = { X-Note = \"{args.note}\" }";
    for bad in [
        "a\r\nX-Evil: 1",
        "a\nb",
        "a\u{0}b",
        "\u{7f}",
        "a\u{85}b",
        "a\tb",
    ] {
        let message = sent(lines, json!({"note": bad})).await.expect_err(bad);
        assert!(
            message.ends_with("was not sent: the header `x-note` would hold a control character"),
            "{message}"
        );
    }
    let request = sent(lines, json!({"note": "größe"})).await.expect("sent");
    assert_eq!(header(&request, "x-note"), Some("größe"));
}

#[tokio::test]
async fn only_a_keyed_tool_sends_the_downstream_key() {
    for effect in ["opaque", "idempotent", "read"] {
        let lines = format!("effect = \"{effect}\"\npath = \"/t\"");
        let request = sent(&lines, json!({})).await.expect("sent");
        assert_eq!(header(&request, "idempotency-key"), None, "{effect}");
        assert!(!request.contains("dk-0001"), "{request}");
    }
    let keyed = sent("effect = \"keyed\"\npath = \"/t\"", json!({}))
        .await
        .expect("sent");
    assert_eq!(header(&keyed, "idempotency-key"), Some("dk-0001"));

    let named = "effect = \"keyed\"\npath = \"/t\"\nkey_header = \"X-Request-Id\"";
    let named = sent(named, json!({})).await.expect("sent");
    assert_eq!(header(&named, "x-request-id"), Some("dk-0001"));
    assert_eq!(header(&named, "idempotency-key"), None);
}

#[tokio::test]
async fn a_secret_reaches_the_vendor_and_nobody_else() {
    let token = CANARY.strip_prefix("Bearer ").expect("bearer");
    let echo = |status: &str| {
        answer(
            status,
            "application/json",
            &format!("{{\"message\":\"bad {CANARY}\",\"t\":[\"{token}\"]}}"),
        )
    };
    let (refused, granted) = (echo("401 No"), echo("200 OK"));
    let vendor = Vendor::start(move |nth| {
        Reply::Close(if nth == 0 {
            refused.clone()
        } else {
            granted.clone()
        })
    });
    let config = vendor
        .config("headers = { Authorization = \"secret:token\" }\nsecret_args = [\"card.number\"]");
    let registry = build(&config).expect("config");
    let args = json!({"card": {"number": "card-5555"}});

    let message = not_applied(invoke(&registry, &call("do", args.clone())).await);
    assert_eq!(header(&vendor.requests()[0], "authorization"), Some(CANARY));
    assert_eq!(message, "`POST /do` answered 401: `bad …`");

    let (result, _) = applied(invoke(&registry, &call("do", args)).await);
    assert_eq!(result, json!({"message": "bad …", "t": ["…"]}));
    assert!(!format!("{registry:?}").contains(token));
}

/// Rule 5.5: a vendor that logs the path it was asked for keeps `/` and encodes the rest.
#[tokio::test]
async fn a_secret_is_hidden_whichever_of_its_characters_are_encoded() {
    for echo in [
        "canary/47+11=plain",
        "canary/47%2B11=plain",
        "canary/47%2b11%3dplain",
        "canary%2F47%2b11=plain",
        "canary%252f47%252B11%3Dplain",
        "Y2FuYXJ5LzQ3KzExPXBsYWlu",
    ] {
        for status in ["200 OK", "422 No"] {
            let body = json!({"message": format!("no /t/{echo}/x")}).to_string();
            let reply = answer(status, "application/json", &body);
            let vendor = Vendor::always(Reply::Close(reply));
            let config = vendor.config(
                "headers = { Authorization = \"secret:slashed\" }\nsecret_args = [\"card\"]",
            );
            let registry = build(&config).expect("config");
            let args = json!({"card": "canary/47+11=plain"});
            let outcome = invoke(&registry, &call("do", args)).await;
            let shown = if status == "200 OK" {
                applied(outcome).0.to_string()
            } else {
                not_applied(outcome)
            };
            assert!(shown.contains("no /t/…/x"), "{echo}: {shown}");
        }
    }
}

#[tokio::test]
async fn an_echoed_secret_argument_is_not_quoted() {
    let vendor = Vendor::always(Reply::Close(answer(
        "422 No",
        "text/plain",
        "bad card-5555",
    )));
    let config = vendor.config("secret_args = [\"card.number\"]");
    let registry = build(&config).expect("config");
    let args = json!({"card": {"number": "card-5555"}});
    let message = not_applied(invoke(&registry, &call("do", args)).await);
    assert_eq!(message, "`POST /do` answered 422: `bad …`");
}

#[tokio::test]
async fn a_secret_that_cannot_be_had_or_sent_stops_the_call() {
    for (secret, problem) in [
        ("nowhere", "no secret `nowhere`: there is none"),
        (
            "broken",
            "the secret `broken` would hold a control character",
        ),
    ] {
        let lines = format!("path = \"/t\"\nheaders = {{ Authorization = \"secret:{secret}\" }}");
        let message = sent(&lines, json!({})).await.expect_err(secret);
        assert_eq!(message, format!("`POST /t` was not sent: {problem}"));
    }
}

#[tokio::test]
async fn a_tools_header_wins_over_its_connectors() {
    let vendor = vendor();
    let config = vendor.config("headers = { x-note = \"tool\" }").replace(
        "[connectors.shop.tools.do]",
        "[connectors.shop.headers]\nX-Note = \"connector\"\nX-Other = \"kept\"\n\
         [connectors.shop.tools.do]",
    );
    let registry = build(&config).expect("config");
    applied(invoke(&registry, &call("do", json!({}))).await);
    let request = &vendor.requests()[0];
    assert_eq!(header(request, "x-note"), Some("tool"));
    assert_eq!(header(request, "x-other"), Some("kept"));
}
