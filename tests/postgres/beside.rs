//! Which database an address leads to: the store's own is found under every name of it.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use operators_connectors::{
    ConnectorConfig, ConnectorKind, EffectWord, EnvSecrets, HeaderText, Registry, StoreAddress,
    ToolConfig,
};
use operators_kernel::{
    Call, ConnectorName, EntityKey, Health, IdempotencyKey, InvokeOutcome, SendPermit, ToolName,
    ToolRegistry as _,
};
use operators_tests::fixtures::{object, tenant};
use operators_tests::postgres::{Database, own_server, run};
use serde_json::json;

use crate::common::desk;

/// A connector at `url` beside a store at `store`: a tool with an effect, and two that read.
fn registry(url: &str, store: &str) -> Registry {
    let tool = |statement: &str, effect| ToolConfig {
        statement: Some(statement.to_owned()),
        effect: Some(effect),
        ..ToolConfig::default()
    };
    let tools = [
        (
            "hold",
            tool("UPDATE orders SET held = true", EffectWord::Opaque),
        ),
        ("get", tool("SELECT id FROM orders", EffectWord::Read)),
        (
            "peek",
            tool("SELECT 1 AS n FROM operators.receipt", EffectWord::Read),
        ),
    ];
    let tools = tools.map(|(name, tool)| (ToolName::parse(name).expect("a name"), tool));
    let config = ConnectorConfig {
        url: Some(HeaderText::new(url)),
        tools: BTreeMap::from(tools),
        ..ConnectorConfig::new(ConnectorKind::Sql)
    };
    let shop = ConnectorName::parse("shop").expect("a name");
    let built = Registry::build_beside(
        BTreeMap::from([(shop, config)]),
        Path::new("/"),
        Arc::new(EnvSecrets),
        &StoreAddress::Postgres(store.to_owned()),
    );
    built.expect("a configuration")
}

fn call(tool: &str) -> Call {
    let (shop, tool) = (ConnectorName::parse("shop"), ToolName::parse(tool));
    Call {
        tenant: tenant(),
        operator: None,
        connector: shop.expect("a name"),
        tool: tool.expect("a name"),
        args: object(json!({})),
        entity_key: EntityKey::parse("e").expect("a key"),
        idempotency_key: IdempotencyKey::parse("k").expect("a key"),
        downstream_key: "dk".to_owned(),
        attempt: 1,
        deadline: Duration::from_secs(30),
        permit: SendPermit::always(),
    }
}

async fn invoke(registry: &Registry, tool: &str) -> Result<(), String> {
    let call = call(tool);
    let found = registry.tool(&call.connector, &call.tool).expect("a tool");
    match found.connector.invoke(&call).await {
        InvokeOutcome::Applied(_) => Ok(()),
        InvokeOutcome::NotApplied(error) => Err(error.message),
        unknown @ InvokeOutcome::Unknown(_) => panic!("{unknown:?}"),
    }
}

/// Rule 12.7.
#[tokio::test]
async fn the_stores_own_database_is_found_under_every_address() {
    let folder = tempfile::tempdir().expect("a folder");
    let anybody = Permissions::from_mode(0o777);
    std::fs::set_permissions(folder.path(), anybody).expect("permissions");
    let socket = folder.path().display();
    let sockets = format!("unix_socket_directories={socket}");
    let Some(server) = own_server(&["fsync=off", &sockets]) else {
        return;
    };
    let database = Database::fresh(&server.url("postgres")).await;
    let elsewhere = Database::fresh(&server.url("postgres")).await;
    let store = database.url();
    // Its schema is made.
    drop(desk(&store).await);
    for url in [&store, &elsewhere.url()] {
        let orders = "CREATE TABLE orders (id TEXT, held BOOL DEFAULT false); \
            INSERT INTO orders VALUES ('SO-1'); CREATE SCHEMA IF NOT EXISTS operators; \
            CREATE TABLE IF NOT EXISTS operators.receipt (n INT)";
        run(url, orders).await;
    }
    let clerk = "CREATE ROLE clerk LOGIN; GRANT ALL ON orders TO clerk";
    run(&store, clerk).await;
    let (place, _) = store.split_once('?').expect("parameters");
    let (_, name) = place.rsplit_once('/').expect("a database");
    let port = server.port();
    for address in [
        format!("postgres://postgres@localhost:{port}/{name}"),
        format!("postgresql://postgres@127.0.0.1:{port}/{name}"),
        format!("postgres://postgres@127.0.0.1:{port}/{name}?application_name=ledger"),
        format!("postgres://clerk@127.0.0.1:{port}/{name}"),
        format!("postgres:///{name}?host={socket}&port={port}&user=postgres"),
    ] {
        let registry = registry(&address, &store);
        let told = invoke(&registry, "hold").await.expect_err(&address);
        assert!(told.contains("the store's own, reached by"), "{told}");
        invoke(&registry, "get").await.expect(&address);
        let told = invoke(&registry, "peek").await.expect_err(&address);
        assert!(told.contains("the schema 'operators'"), "{told}");
        let hold = call("hold");
        let tool = registry.tool(&hold.connector, &hold.tool).expect("a tool");
        let health = tool.connector.check(&tenant()).await;
        assert!(matches!(health, Health::Ill(_)), "{health:?}");
    }
    let held = "SELECT 1 FROM orders WHERE held";
    assert!(run(&store, held).await.is_empty());

    let registry = registry(&elsewhere.url(), &store);
    for tool in ["hold", "get", "peek"] {
        invoke(&registry, tool).await.expect(tool);
    }
    assert_eq!(run(&elsewhere.url(), held).await.len(), 1);
}
