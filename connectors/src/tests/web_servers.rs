//! The mcp connector over streamable HTTP: sent once, bounded, and honest about what broke off.

use std::path::Path;

use serde_json::json;
use tempfile::TempDir;

use operators_kernel::InvokeOutcome;

use super::servers::{HOLD, held};
use super::vendor::{Reply, Vendor, answer};
use super::{CANARY, applied, build_in, invoke, not_applied};
use crate::Registry;

/// Answers every request of a session by its method; the id is always the client's last.
fn web(result: &'static str, media: &'static str) -> Vendor {
    Vendor::start(move |n| {
        let json = |result: &str| {
            let body = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}",
                n / 2
            );
            Reply::Close(answer("200 OK", "application/json", &body))
        };
        match n {
            0 => json(
                r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"w","version":"1"}}"#,
            ),
            1 => Reply::Close(answer("202 Accepted", "application/json", "")),
            2 => json(&format!("{{\"tools\":[{HOLD}]}}")),
            _ if media == "text/event-stream" => {
                let event =
                    format!("data: {{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{result}}}\n\n");
                Reply::Close(answer("200 OK", media, &event))
            }
            _ => Reply::Close(answer(
                "200 OK",
                media,
                &format!("{{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{result}}}"),
            )),
        }
    })
}

fn web_shop(address: &str, folder: &Path) -> Registry {
    let config = format!(
        "[connectors.shop]\nkind = 'mcp'\nurl = 'http://{address}/mcp'\nallow_private_addresses = true\n\
         headers = {{ Authorization = 'secret:token' }}\n[connectors.shop.tools.hold]\n"
    );
    build_in(&config, folder).expect("config")
}

#[tokio::test]
async fn streamable_http_is_spoken_with_json_and_with_events() {
    for media in ["application/json", "text/event-stream"] {
        let folder = TempDir::new().expect("a folder");
        let vendor = web(r#"{"content":[{"type":"text","text":"held"}]}"#, media);
        let registry = web_shop(&vendor.address.to_string(), folder.path());
        let (result, _) = applied(invoke(&registry, &held()).await);
        assert_eq!(result, json!("held"), "{media}");
        let calls: Vec<String> = vendor
            .requests()
            .into_iter()
            .filter(|one| one.contains("tools/call"))
            .collect();
        assert_eq!(calls.len(), 1, "{media}");
        assert!(calls[0].contains("operators/idempotency-key") && calls[0].contains(CANARY));
    }
}

#[tokio::test]
async fn what_a_web_server_refuses_did_not_happen_and_what_breaks_off_may_have() {
    type Last = fn() -> Reply;
    let cases: [(Last, bool); 5] = [
        (
            || Reply::Close(answer("403 Forbidden", "text/plain", "no")),
            true,
        ),
        (
            || Reply::Close(answer("404 Not Found", "text/plain", "no session")),
            true,
        ),
        (
            || Reply::Close(answer("502 Bad Gateway", "text/plain", "")),
            false,
        ),
        (|| Reply::Close(Vec::new()), false),
        (
            || {
                Reply::Close(answer(
                    "200 OK",
                    "application/json",
                    &"x".repeat(10_000_000),
                ))
            },
            false,
        ),
    ];
    for (last, is_refusal) in cases {
        let folder = TempDir::new().expect("a folder");
        let vendor = Vendor::start(move |n| match n {
            0 => Reply::Close(answer(
                "200 OK",
                "application/json",
                r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"w","version":"1"}}}"#,
            )),
            1 => Reply::Close(answer("202 Accepted", "application/json", "")),
            2 => Reply::Close(answer(
                "200 OK",
                "application/json",
                &format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{\"tools\":[{HOLD}]}}}}"),
            )),
            _ => last(),
        });
        let outcome = invoke(
            &web_shop(&vendor.address.to_string(), folder.path()),
            &held(),
        )
        .await;
        assert_eq!(
            matches!(outcome, InvokeOutcome::NotApplied(_)),
            is_refusal,
            "{outcome:?}"
        );
        let calls = vendor
            .requests()
            .into_iter()
            .filter(|one| one.contains("tools/call"))
            .count();
        assert_eq!(calls, 1, "sent once: {outcome:?}");
    }
    // A refused connection is no doubt, and neither is an address that must not be called.
    let folder = TempDir::new().expect("a folder");
    let outcome = invoke(&web_shop("127.0.0.1:1", folder.path()), &held()).await;
    assert!(not_applied(outcome).contains("was not sent"));
}
