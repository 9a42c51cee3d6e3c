//! A program outside the workspace that embeds connectors beside an HTTP client of its own, which
//! has neither TLS nor any other feature. The test `an_embedders_own_client_works_unchanged` builds it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use operators_connectors::{ConnectorConfig, ConnectorKind, EnvSecrets, Registry, ToolConfig};
use operators_kernel::{
    Call, ConnectorName, EntityKey, IdempotencyKey, InvokeOutcome, SendPermit, TenantId, ToolName,
};
use rustls::crypto::CryptoProvider;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // A client whose features were joined with ours would ask for a provider here, and panic.
    let client = reqwest::Client::new();
    greet_a_vendor_over_tls().await;
    assert!(
        CryptoProvider::get_default().is_none(),
        "what the process uses for TLS is the embedder's to say"
    );
    let refused = client.get("http://127.0.0.1:1").send().await;
    assert!(refused.expect_err("nobody listens there").is_connect());
    println!("unchanged");
}

/// A call of `http` to an address where nobody listens, with all that TLS needs built before.
async fn greet_a_vendor_over_tls() {
    let connector = ConnectorName::parse("shop").expect("a name");
    let tool = ToolName::parse("orders.hold").expect("a name");
    let orders = ToolConfig {
        path: Some("/hold".to_owned()),
        ..ToolConfig::default()
    };
    let config = ConnectorConfig {
        base_url: Some("https://127.0.0.1:1".to_owned()),
        allow_private_addresses: Some(true),
        tools: BTreeMap::from([(tool.clone(), orders)]),
        ..ConnectorConfig::new(ConnectorKind::Http)
    };
    let configs = BTreeMap::from([(connector.clone(), config)]);
    let registry = Registry::build(configs, Path::new("."), Arc::new(EnvSecrets));
    let registry = registry.expect("a valid configuration");
    let (.., registered, _) = registry.tools().next().expect("one tool");
    let call = Call {
        tenant: TenantId::parse("acme").expect("a name"),
        operator: None,
        connector,
        tool,
        args: serde_json::Map::new().into(),
        entity_key: EntityKey::parse("order-1").expect("a key"),
        idempotency_key: IdempotencyKey::parse("order-1:hold").expect("a key"),
        downstream_key: "dk-1".to_owned(),
        attempt: 1,
        deadline: Duration::from_secs(5),
        permit: SendPermit::always(),
    };
    let outcome = registered.connector.invoke(&call).await;
    assert!(
        matches!(outcome, InvokeOutcome::NotApplied(_)),
        "{outcome:?}"
    );
}
