//! Probes: what a vendor's answer to "did it happen?" means.

use std::time::Duration;

use serde_json::json;

use operators_kernel::ProbeOutcome;

use super::vendor::{Reply, Vendor, answer, ok};
use super::{CANARY, build, call, connector};

const PROBE: &str = "effect = \"probeable\"\n[connectors.shop.tools.do.probe]\n\
    path = \"/orders/{args.order}?key={action.downstream_key}\"\n\
    headers = { Authorization = \"secret:token\" }\n\
    applied_if = { pointer = \"/hold/key\", equals = \"{action.downstream_key}\" }\n\
    not_applied_if = { status = 404 }\nresult = \"/hold\"\neffect_id = \"/hold/no\"\n";

async fn probe(reply: Reply) -> (ProbeOutcome, Vec<String>) {
    let vendor = Vendor::always(reply);
    let registry = build(&vendor.config(PROBE)).expect("config");
    let mut call = call("do", json!({"order": "SO 1"}));
    call.deadline = Duration::from_millis(500);
    let outcome = connector(&registry, "do").probe(&call).await;
    (outcome, vendor.requests())
}

async fn said(bytes: &[u8]) -> ProbeOutcome {
    probe(Reply::Close(bytes.to_vec())).await.0
}

#[track_caller]
fn cannot_tell(outcome: ProbeOutcome) -> String {
    match outcome {
        ProbeOutcome::Unknown(error) => error.message,
        other => panic!("it told: {other:?}"),
    }
}

#[tokio::test]
async fn a_probe_is_one_get_with_the_connectors_credentials() {
    let (_, requests) = probe(Reply::Close(ok("{}"))).await;
    assert_eq!(requests.len(), 1);
    let request = &requests[0];
    assert!(
        request.starts_with("GET /orders/SO%201?key=dk-0001 HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(request.contains(CANARY), "{request}");
    assert!(request.ends_with("\r\n\r\n"), "no body: {request}");
}

#[tokio::test]
async fn what_fits_is_believed_and_what_fits_neither_is_unknown() {
    let ProbeOutcome::Applied(effect) = said(&ok(r#"{"hold":{"key":"dk-0001","no":3}}"#)).await
    else {
        panic!("it happened")
    };
    assert_eq!(effect.result, json!({"key": "dk-0001", "no": 3}));
    assert_eq!(effect.effect_id.as_deref(), Some("3"));

    let gone = answer("404 Not Found", "text/plain", "no such order");
    assert_eq!(said(&gone).await, ProbeOutcome::NotApplied);

    for bytes in [
        ok(r#"{"hold":{"key":"dk-0002"}}"#),
        ok(r#"{"hold":null}"#),
        answer("401 No", "text/plain", CANARY),
        answer("500 Oops", "application/json", "{}"),
        answer("302 Found", "text/plain", ""),
    ] {
        let message = cannot_tell(said(&bytes).await);
        assert!(
            message.starts_with("the probe `GET /orders/{args.order}` answered "),
            "{message}"
        );
        assert!(message.ends_with("which tells nothing"), "{message}");
        assert!(!message.contains("canary"), "{message}");
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_tells_nothing() {
    for bytes in [
        ok("{\"hold\":"),
        b"HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n{\"hold\":{\"key\":\"dk-0001\"}}".to_vec(),
        ok(&format!("\"{}\"", "x".repeat(1024 * 1024))),
        Vec::new(),
        b"220 mail.example.com ESMTP\r\n".to_vec(),
    ] {
        cannot_tell(said(&bytes).await);
    }
    let (outcome, requests) = probe(Reply::Hang(Vec::new())).await;
    assert!(cannot_tell(outcome).ends_with("got no answer in time"));
    assert_eq!(requests.len(), 1);
}

#[test]
fn a_probe_that_cannot_be_meant_is_refused_when_it_loads() {
    let vendor = "[connectors.shop]\nkind = \"http\"\nbase_url = \"https://api.example.com\"\n\
        [connectors.shop.tools.do]\npath = \"/do\"\n";
    for (lines, problem) in [
        (
            "probe = { path = \"/x\", applied_if = { status = 200 } }",
            "tools.\"do\".probe: only a probeable tool is asked about",
        ),
        (
            "effect = \"probeable\"\nprobe = {}",
            "probe.path: is missing",
        ),
        (
            "effect = \"probeable\"\nprobe = { path = \"/x\" }",
            "probe.applied_if: is missing",
        ),
        (
            "effect = \"probeable\"\nsecret_args = [\"pin\"]\n\
             probe = { path = \"/x/{args.pin}\", applied_if = { status = 200 } }",
            "probe.path: `{args.pin}` is a secret argument",
        ),
        (
            "effect = \"probeable\"\nprobe = { path = \"/x\", method = \"POST\" }",
            "unknown field `method`",
        ),
    ] {
        let error = build(&format!("{vendor}{lines}\n")).expect_err(lines);
        assert!(error.contains(problem), "{lines}: {error}");
    }
}
