//! OAuth 2 client credentials: one token for many calls, fetched before anything is sent.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use operators_kernel::Connector;

use super::vendor::{Reply, Vendor, answer, ok};
use super::{applied, build, call, connector, not_applied};

const TOKEN: &str = "canary-token-0815";

fn token(life: u64) -> Reply {
    Reply::Close(ok(&format!(
        "{{\"access_token\":\"{TOKEN}\",\"token_type\":\"bearer\",\"expires_in\":{life}}}"
    )))
}

fn shop(vendor: &Vendor, tokens: &Vendor, more: &str) -> Arc<dyn Connector> {
    let oauth2 = format!(
        "auth = {{ oauth2 = {{ token_url = \"http://{}/token\", client_id = \"me&you\", \
         client_secret = \"secret:plain\", scope = \"a b\"{more} }} }}\n[connectors.shop.tools.do]",
        tokens.address
    );
    let config = vendor
        .config("")
        .replace("[connectors.shop.tools.do]", &oauth2);
    connector(&build(&config).expect("config"), "do")
}

#[tokio::test]
async fn many_calls_share_one_token_and_one_fetch() {
    let (vendor, tokens) = (
        Vendor::always(Reply::Close(ok("{}"))),
        Vendor::always(token(3600)),
    );
    let shop = shop(&vendor, &tokens, "");
    let mut calls = JoinSet::new();
    for _ in 0..10 {
        let shop = Arc::clone(&shop);
        calls.spawn(async move { applied(shop.invoke(&call("do", json!({}))).await) });
    }
    assert_eq!(calls.join_all().await.len(), 10);
    let asked = tokens.requests();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(
        asked[0].starts_with("POST /token HTTP/1.1\r\n"),
        "{asked:?}"
    );
    // `me%26you:canary-4711-plain`, as RFC 6749 wants both encoded.
    assert!(
        asked[0].contains("Basic bWUlMjZ5b3U6Y2FuYXJ5LTQ3MTEtcGxhaW4="),
        "{asked:?}"
    );
    assert!(
        asked[0].ends_with("\r\n\r\ngrant_type=client_credentials&scope=a%20b"),
        "{asked:?}"
    );
    let sent = vendor.requests();
    assert_eq!(sent.len(), 10);
    let bearer = format!("authorization: Bearer {TOKEN}");
    assert!(sent.iter().all(|request| request.contains(&bearer)));
}

#[tokio::test]
async fn a_token_that_is_about_to_end_is_fetched_anew() {
    let (vendor, tokens) = (
        Vendor::always(Reply::Close(ok("{}"))),
        Vendor::always(token(0)),
    );
    let shop = shop(
        &vendor,
        &tokens,
        ", client_auth = \"body\", audience = \"shop\"",
    );
    for _ in 0..3 {
        applied(shop.invoke(&call("do", json!({}))).await);
    }
    let asked = tokens.requests();
    assert_eq!(asked.len(), 3);
    assert!(
        asked[0].ends_with(
            "audience=shop&client_id=me%26you&client_secret=canary-4711-plain\
             &grant_type=client_credentials&scope=a%20b"
        ),
        "{asked:?}"
    );
}

#[tokio::test]
async fn a_401_replays_nothing_and_the_next_call_has_another_token() {
    let tokens = Vendor::always(token(3600));
    let vendor = Vendor::start(|nth| match nth {
        0 => Reply::Close(answer("401 No", "text/plain", TOKEN)),
        _ => Reply::Close(ok("{}")),
    });
    let shop = shop(&vendor, &tokens, "");
    let message = not_applied(shop.invoke(&call("do", json!({}))).await);
    assert_eq!(message, "`POST /do` answered 401: `…`");
    assert_eq!((vendor.requests().len(), tokens.requests().len()), (1, 1));
    applied(shop.invoke(&call("do", json!({}))).await);
    assert_eq!((vendor.requests().len(), tokens.requests().len()), (2, 2));
}

#[tokio::test]
async fn without_a_token_nothing_is_sent() {
    let vendor = Vendor::always(Reply::Close(ok("{}")));
    let echo = answer(
        "401 No",
        "application/json",
        r#"{"error":"invalid_client","tried":"canary-4711-plain"}"#,
    );
    let elsewhere = Vendor::always(Reply::Close(ok("{}")));
    let redirect = format!(
        "HTTP/1.1 302 Found\r\nlocation: http://{}/\r\ncontent-length: 0\r\n\r\n",
        elsewhere.address
    );
    for (reply, problem) in [
        (
            Reply::Close(echo),
            "the token server answered 401: `invalid_client`",
        ),
        (
            Reply::Close(redirect.into_bytes()),
            "the token server answered 302",
        ),
        (
            Reply::Close(ok("{}")),
            "the token server answered 200 without an `access_token`",
        ),
        (
            Reply::Close(ok("<html>")),
            "the token server answered 200 with something that is not JSON",
        ),
        (
            Reply::Close(ok(r#"{"access_token":"x","token_type":"mac"}"#)),
            "the token server gave a token that is not a bearer token",
        ),
        (
            Reply::Close(ok(r#"{"access_token":"x\r\nX-Evil: 1"}"#)),
            "the credential would hold a control character",
        ),
        (Reply::Close(Vec::new()), "the token server got no answer"),
        (Reply::Hang(Vec::new()), "in time"),
    ] {
        let tokens = Vendor::always(reply);
        let shop = shop(&vendor, &tokens, "");
        let mut call = call("do", json!({}));
        call.deadline = Duration::from_secs(1);
        let message = not_applied(shop.invoke(&call).await);
        assert!(
            message.starts_with("`POST /do` was not sent: "),
            "{message}"
        );
        assert!(message.contains(problem), "{message}");
        assert!(!message.contains("canary"), "{message}");
        assert_eq!(tokens.requests().len(), 1);
    }
    assert_eq!((vendor.connections(), elsewhere.connections()), (0, 0));
}

/// The name of the token server resolves to an internal address: the guard that stands before the
/// vendor stands before it too.
#[tokio::test]
async fn a_token_server_is_dialled_through_the_guard() {
    let config = "[connectors.shop]\nkind = \"http\"\nbase_url = \"https://api.example.com\"\n\
        auth = { oauth2 = { token_url = \"https://localhost:9/token\", client_id = \"me\", \
        client_secret = \"secret:plain\" } }\n[connectors.shop.tools.do]\npath = \"/do\"\n";
    let shop = connector(&build(config).expect("config"), "do");
    let message = not_applied(shop.invoke(&call("do", json!({}))).await);
    assert!(
        message.starts_with(
            "`POST /do` was not sent: the token server was not sent: `localhost` is at"
        ),
        "{message}"
    );
}
