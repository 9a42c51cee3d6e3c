//! The whole outcome table of `http::outcome`, against real sockets.

use std::net::TcpListener;
use std::time::Duration;

use serde_json::json;

use operators_kernel::InvokeOutcome;

use super::vendor::{Reply, Vendor, answer, ok};
use super::{applied, build, call, invoke, not_applied, unknown};
use crate::hidden::Hidden;
use crate::http::outcome::quoted;

async fn against(reply: Reply) -> InvokeOutcome {
    let vendor = Vendor::always(reply);
    let registry = build(&vendor.config("")).expect("config");
    let outcome = invoke(&registry, &call("do", json!({"a": 1}))).await;
    assert_eq!(vendor.requests().len(), 1, "sent once, whatever the answer");
    outcome
}

async fn against_bytes(bytes: &[u8]) -> InvokeOutcome {
    against(Reply::Close(bytes.to_vec())).await
}

#[tokio::test]
async fn a_readable_2xx_is_applied_with_its_result() {
    let json = ok(r#"{"id":"h-1","state":"held"}"#);
    let (result, id) = applied(against_bytes(&json).await);
    assert_eq!(result, json!({"id": "h-1", "state": "held"}));
    assert_eq!(id.as_deref(), Some("h-1"));

    let number = answer("201 Created", "application/vnd.api+json", r#"{"id":42}"#);
    assert_eq!(
        applied(against_bytes(&number).await).1.as_deref(),
        Some("42")
    );

    let no_id = ok("[1,2]");
    assert_eq!(applied(against_bytes(&no_id).await), (json!([1, 2]), None));

    let empty = answer("200 OK", "application/json", "");
    assert_eq!(applied(against_bytes(&empty).await), (json!(null), None));

    let nothing = b"HTTP/1.1 204 No Content\r\n\r\n";
    assert_eq!(applied(against_bytes(nothing).await), (json!(null), None));

    let text = answer("202 Accepted", "text/plain", "queued");
    assert_eq!(applied(against_bytes(&text).await), (json!("queued"), None));

    let chunked = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
        transfer-encoding: chunked\r\n\r\n3\r\n{\"a\r\n4\r\n\":1}\r\n0\r\n\r\n";
    assert_eq!(applied(against_bytes(chunked).await).0, json!({"a": 1}));

    let until_closed = b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n{\"a\":1}";
    assert_eq!(
        applied(against_bytes(until_closed).await).0,
        json!({"a": 1})
    );
}

#[tokio::test]
async fn a_2xx_that_cannot_be_read_is_unknown() {
    let cut_off =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 90\r\n\r\n{\"a\"";
    unknown(against_bytes(cut_off).await);

    let text_cut_off = b"HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\nhalf";
    unknown(against_bytes(text_cut_off).await);

    let chunk_missing = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n";
    unknown(against_bytes(chunk_missing).await);

    let unmarked = b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n{\"a\":";
    unknown(against_bytes(unmarked).await);
    let unmarked_empty = b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n";
    unknown(against_bytes(unmarked_empty).await);

    let invalid = unknown(against_bytes(&ok("<html>sorry</html>")).await);
    assert_eq!(
        invalid,
        "`POST /do` answered 200, but the body cannot be read: not JSON: expected value at line 1 column 1"
    );

    let deep = ok(&"[".repeat(200_000));
    unknown(against_bytes(&deep).await);

    let reset = Reply::Reset(b"HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\nhalf".to_vec());
    unknown(against(reset).await);
}

#[tokio::test]
async fn an_answer_over_its_cap_is_unknown() {
    let largest = format!("\"{}\"", "x".repeat(1024 * 1024 - 2));
    applied(against_bytes(&ok(&largest)).await);
    let larger = format!("\"{}\"", "x".repeat(1024 * 1024 - 1));
    let message = unknown(against_bytes(&ok(&larger)).await);
    assert!(message.contains("larger than 1MiB"), "{message}");
}

#[tokio::test]
async fn the_cap_is_the_connectors_own() {
    let body = format!("\"{}\"", "x".repeat(2_000));
    let vendor = Vendor::always(Reply::Close(ok(&body)));
    let capped = |size: &str| {
        let config = vendor.config("");
        let line = format!("kind = \"http\"\nmax_answer = \"{size}\"");
        config.replace("kind = \"http\"", &line)
    };
    let registry = build(&capped("2KiB")).expect("config");
    applied(invoke(&registry, &call("do", json!({}))).await);
    let registry = build(&capped("1KiB")).expect("config");
    let message = unknown(invoke(&registry, &call("do", json!({}))).await);
    assert!(message.ends_with("it is larger than 1KiB"), "{message}");
    for (size, problem) in [("17MiB", "from `1B` to `16MiB`"), ("1M", "write it like")] {
        let error = build(&capped(size)).expect_err(size);
        assert!(error.contains(problem), "{error}");
    }
    let file = "[connectors.shop]\nkind = \"file\"\npath = \"a\"\nmax_answer = \"1MiB\"";
    let error = build(file).expect_err("a file answers nothing");
    assert!(error.contains("has no `max_answer`"), "{error}");
}

#[tokio::test]
async fn a_refusal_of_the_vendor_is_a_definite_failure() {
    for status in [400, 401, 403, 404, 409, 410, 422, 425, 429, 451, 499] {
        let bytes = answer(&format!("{status} No"), "text/plain", "no");
        let message = not_applied(against_bytes(&bytes).await);
        assert_eq!(message, format!("`POST /do` answered {status}: `no`"));
    }
    // The status is the refusal; what becomes of its body does not matter.
    let cut_off = b"HTTP/1.1 404 Not Found\r\ncontent-length: 90\r\n\r\nhalf";
    assert_eq!(
        not_applied(against_bytes(cut_off).await),
        "`POST /do` answered 404: `half`"
    );
    let hanging = Reply::Hang(b"HTTP/1.1 403 No\r\ncontent-length: 90\r\n\r\nhalf".to_vec());
    not_applied(against(hanging).await);
}

#[tokio::test]
async fn a_500_is_a_definite_failure_only_as_a_whole() {
    let whole = answer(
        "500 Oops",
        "application/json",
        r#"{"error":{"message":"no stock"}}"#,
    );
    assert_eq!(
        not_applied(against_bytes(&whole).await),
        "`POST /do` answered 500: `no stock`"
    );
    let empty = b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(
        not_applied(against_bytes(empty).await),
        "`POST /do` answered 500"
    );
    let until_closed = b"HTTP/1.0 500 Oops\r\n\r\noops";
    not_applied(against_bytes(until_closed).await);

    let cut_off = b"HTTP/1.1 500 Oops\r\ncontent-length: 90\r\n\r\nhalf";
    unknown(against_bytes(cut_off).await);
    let unmarked = b"HTTP/1.0 500 Oops\r\ncontent-type: application/json\r\n\r\n{\"error\":";
    unknown(against_bytes(unmarked).await);
    let reset = Reply::Reset(b"HTTP/1.1 500 Oops\r\ncontent-length: 90\r\n\r\nhalf".to_vec());
    unknown(against(reset).await);
}

#[tokio::test]
async fn every_other_status_is_unknown() {
    for status in [
        300, 301, 302, 303, 304, 307, 308, 408, 501, 502, 503, 504, 520, 522, 599,
    ] {
        let bytes = answer(&format!("{status} Hm"), "text/plain", "hm");
        unknown(against_bytes(&bytes).await);
    }
}

#[tokio::test]
async fn a_redirect_is_never_followed() {
    let target = Vendor::always(Reply::Close(ok("{}")));
    let bytes = format!(
        "HTTP/1.1 302 Found\r\nlocation: http://{}/do\r\ncontent-length: 0\r\n\r\n",
        target.address
    );
    assert_eq!(
        unknown(against_bytes(bytes.as_bytes()).await),
        "`POST /do` answered 302"
    );
    assert_eq!(target.connections(), 0);
}

/// Where a redirect leads is never looked at: not the metadata service, not another scheme.
#[tokio::test]
async fn a_redirect_to_an_internal_address_is_an_answer_and_nothing_more() {
    for status in [301, 302, 303, 307, 308] {
        for target in [
            "http://169.254.169.254/latest/meta-data/iam/security-credentials/",
            "http://[fd00:ec2::254]/latest/meta-data/",
            "http://metadata.google.internal/computeMetadata/v1/",
            "//127.0.0.1:1/",
            "file:///etc/passwd",
            "/do",
        ] {
            let reply = format!(
                "HTTP/1.1 {status} Elsewhere\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n"
            );
            let vendor = Vendor::always(Reply::Close(reply.into_bytes()));
            let registry = build(&vendor.config("")).expect("config");
            let message = unknown(invoke(&registry, &call("do", json!({}))).await);
            assert_eq!(message, format!("`POST /do` answered {status}"), "{target}");
            assert_eq!(vendor.requests().len(), 1, "{target}");
        }
    }
}

#[tokio::test]
async fn no_answer_is_unknown() {
    unknown(against(Reply::Close(Vec::new())).await);
    unknown(against(Reply::Reset(Vec::new())).await);
    unknown(against(Reply::Close(b"HTTP/1.1 2".to_vec())).await);
    unknown(against(Reply::Close(b"220 mail.example.com ESMTP\r\n".to_vec())).await);
}

#[tokio::test]
async fn a_time_out_is_unknown_wherever_it_strikes() {
    for sent in [
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
    ] {
        let vendor = Vendor::always(Reply::Hang(sent.as_bytes().to_vec()));
        let registry = build(&vendor.config("")).expect("config");
        let mut call = call("do", json!({}));
        call.deadline = Duration::from_millis(150);
        let message = unknown(invoke(&registry, &call).await);
        assert!(message.contains("in time"), "{message}");
        assert_eq!(vendor.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_vendor_that_cannot_be_reached_is_a_definite_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let closed = listener.local_addr().expect("its address");
    drop(listener);
    let toml = |base: &str| {
        format!(
            "[connectors.shop]\nkind = \"http\"\nbase_url = \"{base}\"\n\
             allow_private_addresses = true\n[connectors.shop.tools.do]\npath = \"/do?k={{args.k}}\"\n\
             timeout = \"2s\""
        )
    };
    let plain = Vendor::always(Reply::Close(b"no TLS here".to_vec()));
    let cases = [
        (format!("http://{closed}"), format!("to {closed}: ")),
        (
            "http://no-such-host.invalid".to_owned(),
            "to no-such-host.invalid:80: ".to_owned(),
        ),
        (
            format!("https://{}", plain.address),
            format!("to {}: ", plain.address),
        ),
    ];
    for (base, place) in cases {
        let word = &format!("no connection {place}");
        let registry = build(&toml(&base)).expect("config");
        let message = not_applied(invoke(&registry, &call("do", json!({"k": "canary"}))).await);
        assert!(
            message.starts_with("`POST /do` was not sent: "),
            "{message}"
        );
        assert!(message.contains(word), "{message}");
        assert!(!message.contains("canary"), "{message}");
    }
}

#[tokio::test]
async fn a_vendor_that_does_not_greet_in_time_is_a_definite_failure() {
    // It accepts, and then says nothing where the TLS handshake should be.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("its address");
    let toml = format!(
        "[connectors.shop]\nkind = \"http\"\nbase_url = \"https://{address}\"\ntimeout = \"1s\"\n\
         allow_private_addresses = true\n[connectors.shop.tools.do]\npath = \"/do\""
    );
    let registry = build(&toml).expect("config");
    let mut call = call("do", json!({}));
    call.deadline = Duration::from_secs(1);
    not_applied(invoke(&registry, &call).await);
}

/// The HTTP library keeps connections for later requests, and sends a request again when such a
/// connection turns out to be closed. An effect must not ride on that.
#[tokio::test]
async fn a_connection_that_was_closed_while_idle_costs_no_second_request() {
    let vendor = Vendor::start(|nth| match nth {
        0 => Reply::KeepAlive(ok("{}")),
        // Read, then closed without an answer: the effect may have happened.
        _ => Reply::Close(Vec::new()),
    });
    let registry = build(&vendor.config("")).expect("config");
    let call = call("do", json!({}));
    applied(invoke(&registry, &call).await);
    for nth in 2..=5 {
        unknown(invoke(&registry, &call).await);
        assert_eq!(vendor.requests().len(), nth, "one request per call");
        assert_eq!(vendor.connections(), nth, "one connection per call");
    }
}

#[tokio::test]
async fn a_vendors_message_is_quoted_short_and_harmless() {
    let long = "x".repeat(500);
    let body = format!("{{\"message\":\"a\\u001b[31m`b`\\n\\u202e{long}\"}}");
    let message = not_applied(against_bytes(&answer("422 No", "application/json", &body)).await);
    let quote = message
        .strip_prefix("`POST /do` answered 422: ")
        .expect("prefix");
    assert!(
        quote.starts_with(r"`a\u{1b}[31m'b'\n\u{202e}xxx"),
        "{quote}"
    );
    assert!(quote.chars().count() <= 202, "{}", quote.chars().count());
    assert!(!message.contains(char::is_control));
}

/// Rule 5.5: what is hidden in a text of another encoding would not be found there.
#[test]
fn a_body_in_another_encoding_is_not_quoted() {
    let mut hidden = Hidden::without_call();
    hidden.add("canar\u{e9}-0815");
    let told = |body: &[u8]| quoted("`POST /x`", 400, body, &hidden);
    assert_eq!(told(b"no canar\xe9-0815"), "`POST /x` answered 400");
    let utf16: Vec<u8> = "no canar\u{e9}-0815"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    assert_eq!(told(&utf16), "`POST /x` answered 400");
    // Cut in the middle of a character.
    assert_eq!(told(b"no \xc3"), "`POST /x` answered 400: `no`");
}
