//! The configurations that `docs/guides/connectors.md` teaches load, and mean what it says.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use operators_kernel::{ConnectorName, EffectClass, ToolName, ToolRegistry as _};

use super::vendor::{Reply, Vendor, ok};
use super::{applied, build, call, invoke, not_applied, unknown};
use crate::{ProjectSecrets, SecretConfig};

const GUIDE: &str = include_str!("../../../docs/guides/connectors.md");

/// The blocks that hold what `start` says, in order.
fn blocks(start: &str) -> Vec<&'static str> {
    let blocks = GUIDE.split("```toml\n").skip(1);
    let blocks = blocks.filter_map(|block| block.split("```").next());
    blocks.filter(|block| block.starts_with(start)).collect()
}

/// The block of that http connector.
fn taught(connector: &str) -> &'static str {
    let start = format!("[connectors.{connector}]\nkind = \"http\"\n");
    let [block] = blocks(&start)[..] else {
        panic!("the guide has no one block for `{connector}`")
    };
    block
}

#[test]
fn every_http_block_loads() {
    let taught = ["shop", "a", "github", "slack", "stripe"].map(taught);
    for block in taught {
        build(block).expect(block);
    }
}

#[test]
fn the_effect_classes_are_those_the_guide_argues() {
    for (connector, tool, effect) in [
        ("github", "issues.create", "probeable"),
        ("github", "issues.close", "idempotent"),
        ("github", "issues.get", "read"),
        ("slack", "chat.post", "opaque"),
        ("stripe", "refunds.create", "keyed"),
        ("stripe", "refunds.get", "read"),
    ] {
        let registry = build(taught(connector)).expect(connector);
        let name = ConnectorName::parse(connector).expect("a name");
        let found = registry.tool(&name, &ToolName::parse(tool).expect("a name"));
        let found: EffectClass = found.expect(tool).contract.effect;
        assert_eq!(found.as_str(), effect, "{connector}:{tool}");
    }
}

/// One call of a taught tool against a vendor of ours.
async fn against(
    connector: &str,
    tool: &str,
    args: serde_json::Value,
    body: &str,
) -> (operators_kernel::InvokeOutcome, String) {
    let vendor = Vendor::always(Reply::Close(ok(body)));
    let block = taught(connector).replace(&format!("connectors.{connector}"), "connectors.shop");
    let start = block.find("base_url = \"https://").expect("a base");
    let host = start + "base_url = \"https://".len();
    let end = host + block[host..].find(['/', '"']).expect("an end");
    let block = format!(
        "{}base_url = \"http://{}{}",
        &block[..start],
        vendor.address,
        &block[end..]
    );
    let block = block.replacen(
        "kind = \"http\"\n",
        "kind = \"http\"\nallow_private_addresses = true\n",
        1,
    );
    let block = ["github-token", "slack-token", "stripe-test-key"]
        .iter()
        .fold(block, |block, name| block.replace(name, "plain"));
    let registry = build(&block).expect("loads");
    let outcome = invoke(&registry, &call(tool, args)).await;
    (outcome, vendor.requests().pop().unwrap_or_default())
}

#[tokio::test]
async fn slack_s_answers_are_read_as_the_guide_says() {
    let args = json!({"channel": "C1", "text": "hi"});
    let post = async |body: &str| against("slack", "chat.post", args.clone(), body).await.0;
    let (_, id) = applied(post(r#"{"ok":true,"ts":"1.2"}"#).await);
    assert_eq!(id.as_deref(), Some("1.2"));
    not_applied(post(r#"{"ok":false,"error":"channel_not_found"}"#).await);
    unknown(post(r#"{"ok":false,"error":"fatal_error"}"#).await);
}

#[tokio::test]
async fn stripe_gets_a_form_and_the_key() {
    let args = json!({"payment_intent": "pi_1", "amount": 500});
    let (outcome, request) = against("stripe", "refunds.create", args, r#"{"id":"re_1"}"#).await;
    assert_eq!(applied(outcome).1.as_deref(), Some("re_1"));
    assert!(
        request.starts_with("POST /v1/refunds HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        request.contains("idempotency-key: dk-0001\r\n"),
        "{request}"
    );
    assert!(
        request.ends_with("amount=500&metadata%5Bentity%5D=order%3ASO-1&payment_intent=pi_1"),
        "{request}"
    );
}

#[tokio::test]
async fn github_s_issue_carries_the_key() {
    let args = json!({"owner": "o", "repo": "r", "title": "t", "body": "b"});
    let (outcome, request) = against("github", "issues.create", args, r#"{"number":7}"#).await;
    assert_eq!(applied(outcome).1.as_deref(), Some("7"));
    assert!(
        request.starts_with("POST /repos/o/r/issues HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(request.contains("<!-- dk-0001 -->"), "{request}");
}

#[test]
fn the_secrets_block_loads() {
    let [block] = blocks("[secrets]\n")[..] else {
        panic!("the guide has no one block of secrets")
    };
    let block = block.trim_start_matches("[secrets]\n");
    let configs: BTreeMap<String, SecretConfig> = toml::from_str(block).expect("parses");
    ProjectSecrets::build(&configs, Path::new(".")).expect("loads");
}
