//! Ways in: what each puts on a request, and that it shows nowhere else.

use serde_json::{Value, json};

use operators_kernel::{Health, InvokeOutcome, TenantId};

use super::vendor::{Reply, Vendor, answer, ok};
use super::{CANARY, PLAIN, applied, build, call, connector, invoke, not_applied};

/// A connector `shop` at this vendor with that `auth`, and a tool `do`.
fn with_auth(vendor: &Vendor, auth: &str) -> String {
    vendor.config("").replace(
        "[connectors.shop.tools.do]",
        &format!("auth = {auth}\n[connectors.shop.tools.do]"),
    )
}

fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    request.lines().find_map(|line| {
        let (found, value) = line.split_once(": ")?;
        found.eq_ignore_ascii_case(name).then_some(value)
    })
}

#[tokio::test]
async fn each_way_in_is_written_as_the_vendor_wants_it() {
    let cases = [
        (
            "{ bearer = \"secret:plain\" }",
            "authorization",
            "Bearer canary-4711-plain",
        ),
        (
            "{ basic = { user = \"ann\", password = \"secret:plain\" } }",
            "authorization",
            "Basic YW5uOmNhbmFyeS00NzExLXBsYWlu",
        ),
        (
            "{ basic = { user = \"secret:plain\", password = \"\" } }",
            "authorization",
            "Basic Y2FuYXJ5LTQ3MTEtcGxhaW46",
        ),
        (
            "{ header = \"X-Api-Key\", value = \"secret:plain\" }",
            "x-api-key",
            "canary-4711-plain",
        ),
    ];
    for (auth, name, value) in cases {
        let vendor = Vendor::always(Reply::Close(ok("{}")));
        let registry = build(&with_auth(&vendor, auth)).expect(auth);
        applied(invoke(&registry, &call("do", json!({}))).await);
        let requests = vendor.requests();
        assert_eq!(header(&requests[0], name), Some(value), "{auth}");
    }
}

#[tokio::test]
async fn a_credential_that_is_echoed_shows_nowhere() {
    for auth in [
        "{ bearer = \"secret:plain\" }",
        "{ basic = { user = \"ann\", password = \"secret:plain\" } }",
        "{ header = \"X-Api-Key\", value = \"secret:plain\" }",
    ] {
        for status in ["200 OK", "422 No", "503 Busy"] {
            let body = json!({"message": PLAIN, "sent": "YW5uOmNhbmFyeS00NzExLXBsYWlu"});
            let bytes = answer(status, "application/json", &body.to_string());
            let vendor = Vendor::always(Reply::Close(bytes));
            let registry = build(&with_auth(&vendor, auth)).expect(auth);
            let outcome = invoke(&registry, &call("do", json!({}))).await;
            let shown = format!("{outcome:?} {registry:?}");
            assert!(!shown.contains("canary"), "{auth} {status}: {shown}");
            if auth.contains("basic") {
                assert!(!shown.contains("YW5u"), "{auth} {status}: {shown}");
            }
        }
    }
}

#[tokio::test]
async fn a_credential_that_cannot_be_had_stops_the_call() {
    for (auth, problem) in [
        (
            "{ bearer = \"secret:nowhere\" }",
            "no secret `nowhere`: there is none",
        ),
        (
            "{ bearer = \"secret:broken\" }",
            "the secret `broken` would hold a control character",
        ),
        (
            "{ basic = { user = \"a:b\", password = \"secret:plain\" } }",
            "the user of `auth.basic` has a colon in it",
        ),
    ] {
        let vendor = Vendor::always(Reply::Close(ok("{}")));
        let registry = build(&with_auth(&vendor, auth)).expect(auth);
        let message = not_applied(invoke(&registry, &call("do", json!({}))).await);
        assert_eq!(message, format!("`POST /do` was not sent: {problem}"));
        assert_eq!(vendor.connections(), 0);
    }
}

#[test]
fn a_way_in_that_cannot_be_meant_is_refused_without_quoting_it() {
    let vendor = "[connectors.shop]\nkind = \"http\"\nbase_url = \"https://api.example.com\"\n";
    let tool = "[connectors.shop.tools.do]\npath = \"/do\"\n";
    let oauth2 = |more: &str| {
        format!("{{ oauth2 = {{ client_id = \"me\", client_secret = \"secret:plain\", {more} }} }}")
    };
    for (auth, problem) in [
        ("{}".to_owned(), "shop.auth: needs exactly one of"),
        (
            "{ bearer = \"secret:a\", header = \"X\", value = \"secret:b\" }".to_owned(),
            "shop.auth: needs exactly one of",
        ),
        (
            "{ header = \"X\" }".to_owned(),
            "shop.auth: needs exactly one of",
        ),
        (
            "{ bearer = \"canary\" }".to_owned(),
            "auth.bearer: a credential does not stand in the configuration; write `secret:NAME`",
        ),
        (
            "{ bearer = \"Bearer secret:canary\" }".to_owned(),
            "auth.bearer: a value is either",
        ),
        (
            "{ basic = { user = \"a\", password = \"canary\" } }".to_owned(),
            "auth.basic.password: a credential",
        ),
        (
            "{ header = \"Host\", value = \"secret:a\" }".to_owned(),
            "auth.header: `host` is written by the client itself",
        ),
        (
            oauth2("token_url = \"http://169.254.169.254/token\""),
            "auth.oauth2.token_url: `169.254.169.254` is at",
        ),
        (
            oauth2("token_url = \"http://id.example.com/token\""),
            "auth.oauth2.token_url: sends a secret, so it must start with `https://`",
        ),
        (
            oauth2("token_url = \"https://u:canary@id.example.com/token\""),
            "auth.oauth2.token_url: holds a user name or password",
        ),
        (
            "{ aws_sigv4 = { region = \"EU\", service = \"s3\", access_key = \"A\", \
             secret_key = \"secret:k\" } }"
                .to_owned(),
            "auth.aws_sigv4.region: is made of lower-case letters",
        ),
        (
            "{ aws_sigv4 = { region = \"eu\", service = \"s3\", access_key = \"A\", \
             secret_key = \"canary\" } }"
                .to_owned(),
            "auth.aws_sigv4.secret_key: a credential",
        ),
    ] {
        let error = build(&format!("{vendor}auth = {auth}\n{tool}")).expect_err(&auth);
        assert!(error.contains(problem), "{auth}: {error}");
        assert!(!error.contains("canary"), "{error}");
    }
    let twice = format!(
        "{vendor}auth = {{ bearer = \"secret:a\" }}\n{tool}headers = {{ authorization = \"x\" }}\n"
    );
    let error = build(&twice).expect_err("two credentials");
    assert!(
        error
            .ends_with("headers: `authorization` is written by the connector's `auth`; remove one"),
        "{error}"
    );
}

#[tokio::test]
async fn a_look_is_a_head_or_the_configured_get_and_never_an_effect() {
    let tenant = TenantId::parse("acme").expect("tenant");
    let look = async |vendor: &Vendor, check: &str| {
        let config = with_auth(vendor, "{ bearer = \"secret:plain\" }")
            .replace("timeout = \"5s\"", &format!("timeout = \"5s\"\n{check}"));
        let registry = build(&config).expect("config");
        connector(&registry, "do").check(&tenant).await
    };
    let vendor = Vendor::always(Reply::Close(b"HTTP/1.1 404 No\r\n\r\n".to_vec()));
    let health = look(&vendor, "").await;
    assert_eq!(health, Health::Well("`HEAD /` answered 404".to_owned()));
    assert!(vendor.requests()[0].starts_with("HEAD / HTTP/1.1\r\n"));

    let refusing = Vendor::always(Reply::Close(answer("401 No", "text/plain", CANARY)));
    let check = "check = \"/user?a=b\"\nheaders = { X-Id = \"{args.id}\", X-Fixed = \"y\" }";
    let Health::Ill(error) = look(&refusing, check).await else {
        panic!("it was let in")
    };
    assert_eq!(
        error.message,
        "`GET /user` answered 401: `Bearer canary-4711-canary`"
    );
    let request = &refusing.requests()[0];
    assert!(
        request.starts_with("GET /user?a=b HTTP/1.1\r\n"),
        "{request}"
    );
    assert_eq!(
        header(request, "authorization"),
        Some("Bearer canary-4711-plain")
    );
    assert_eq!(header(request, "x-fixed"), Some("y"));

    let well = Vendor::always(Reply::Close(ok("{}")));
    assert!(matches!(
        look(&well, "check = \"/user\"").await,
        Health::Well(_)
    ));
    let nobody = Vendor::always(Reply::Close(Vec::new()));
    assert!(matches!(look(&nobody, "").await, Health::Ill(_)));
}

#[tokio::test]
async fn a_probe_is_let_in_too() {
    let vendor = Vendor::always(Reply::Close(ok("{}")));
    let config = with_auth(&vendor, "{ bearer = \"secret:plain\" }");
    let config = format!(
        "{config}effect = \"probeable\"\nprobe = {{ path = \"/p\", applied_if = {{ status = 200 }} }}\n"
    );
    let registry = build(&config).expect("config");
    let call = call("do", json!({}));
    drop(connector(&registry, "do").probe(&call).await);
    let requests = vendor.requests();
    assert_eq!(
        header(&requests[0], "authorization"),
        Some("Bearer canary-4711-plain")
    );
    let outcome = invoke(&registry, &call).await;
    assert!(
        matches!(outcome, InvokeOutcome::Applied(ref effect) if effect.result == Value::Object(serde_json::Map::new()))
    );
}
