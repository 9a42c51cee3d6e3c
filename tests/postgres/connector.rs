//! The sql connector on Postgres: one transaction per call, values bound, nothing half done.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use operators_connectors::{
    ConnectorConfig, ConnectorKind, EffectWord, EnvSecrets, HeaderText, Registry, ToolConfig,
};
use operators_kernel::{
    Call, ConnectorError, ConnectorName, EntityKey, IdempotencyKey, InvokeOutcome, SendPermit,
    ToolName, ToolRegistry as _,
};
use operators_tests::fixtures::{object, tenant};
use operators_tests::postgres::run;
use serde_json::{Value, json};
use sqlx::Row as _;

use crate::common::database;

pub const TABLES: &str =
    "CREATE TABLE orders (id TEXT PRIMARY KEY, amount INT, held BOOL, at TIMESTAMPTZ);
    INSERT INTO orders VALUES ('SO-1', 5, false, NULL), ('SO-2', 6, false, NULL)";

fn registry(url: &str) -> Registry {
    let tool = |statement: &str, effect: EffectWord, expect_rows: Option<u64>| ToolConfig {
        statement: Some(statement.to_owned()),
        effect: Some(effect),
        expect_rows,
        ..ToolConfig::default()
    };
    let tools = [
        (
            "hold",
            tool(
                "UPDATE orders SET held = {args.held}, amount = {args.amount}, \
                 at = {args.at}::timestamptz WHERE id = {args.order} RETURNING id, amount",
                EffectWord::Opaque,
                Some(1),
            ),
        ),
        (
            "get",
            tool(
                "SELECT id, amount, held FROM orders ORDER BY id",
                EffectWord::Read,
                None,
            ),
        ),
        ("sneaky", tool("DELETE FROM orders", EffectWord::Read, None)),
        (
            "slow",
            tool("SELECT pg_sleep(60)", EffectWord::Opaque, None),
        ),
    ];
    let tools = tools.map(|(name, tool)| (ToolName::parse(name).expect("a name"), tool));
    let config = ConnectorConfig {
        url: Some(HeaderText::new(url)),
        tools: BTreeMap::from(tools),
        ..ConnectorConfig::new(ConnectorKind::Sql)
    };
    let shop = ConnectorName::parse("shop").expect("a name");
    let built = Registry::build(
        BTreeMap::from([(shop, config)]),
        Path::new("/"),
        Arc::new(EnvSecrets),
    );
    built.expect("a configuration")
}

pub async fn invoke(url: &str, tool: &str, args: Value) -> InvokeOutcome {
    invoke_with(url, tool, args, SendPermit::always()).await
}

async fn invoke_with(url: &str, tool: &str, args: Value, permit: SendPermit) -> InvokeOutcome {
    let (shop, tool) = (ConnectorName::parse("shop"), ToolName::parse(tool));
    let call = Call {
        tenant: tenant(),
        operator: None,
        connector: shop.expect("a name"),
        tool: tool.expect("a name"),
        args: object(args),
        entity_key: EntityKey::parse("e").expect("a key"),
        idempotency_key: IdempotencyKey::parse("k").expect("a key"),
        downstream_key: "dk".to_owned(),
        attempt: 1,
        deadline: Duration::from_secs(5),
        permit,
    };
    let found = registry(url)
        .tool(&call.connector, &call.tool)
        .expect("a tool");
    found.connector.invoke(&call).await
}

pub async fn amounts(url: &str) -> Vec<i32> {
    let rows = run(url, "SELECT amount FROM orders ORDER BY id").await;
    rows.iter().map(|row| row.get("amount")).collect()
}

/// A trigger that runs at the commit, and this in it.
async fn at_commit(url: &str, does: &str) {
    for statement in [
        format!(
            "CREATE OR REPLACE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN {does}; RETURN NULL; END $$"
        ),
        "DROP TRIGGER IF EXISTS at_commit ON orders".to_owned(),
        "CREATE CONSTRAINT TRIGGER at_commit AFTER UPDATE ON orders DEFERRABLE INITIALLY DEFERRED
           FOR EACH ROW EXECUTE FUNCTION at_commit()"
            .to_owned(),
    ] {
        run(url, &statement).await;
    }
}

/// Rule 4.1: a refused commit is a definite failure; one with which the server goes away is not, for
/// it says the same of a commit that is on disk.
#[tokio::test]
async fn a_commit_with_which_the_server_goes_away_is_a_doubt() {
    let Some(database) = database().await else {
        return;
    };
    let url = &database.url();
    for statement in TABLES.split(';') {
        run(url, statement).await;
    }
    let hold = json!({"order": "SO-1", "amount": 9, "held": true, "at": "2026-01-01T00:00:00Z"});
    at_commit(url, "RAISE EXCEPTION 'not today'").await;
    let refused = invoke(url, "hold", hold.clone()).await;
    assert!(
        matches!(refused, InvokeOutcome::NotApplied(_)),
        "{refused:?}"
    );
    at_commit(
        url,
        "PERFORM pg_terminate_backend(pg_backend_pid()), pg_sleep(5)",
    )
    .await;
    let gone = invoke(url, "hold", hold).await;
    assert!(matches!(gone, InvokeOutcome::Unknown(_)), "{gone:?}");
}

#[tokio::test]
async fn a_statement_commits_or_changes_nothing() {
    let Some(database) = database().await else {
        return;
    };
    let url = &database.url();
    for statement in TABLES.split(';') {
        run(url, statement).await;
    }
    let hold = |order: &str, amount: Value| json!({"order": order, "amount": amount, "held": true, "at": "2026-01-01T00:00:00Z"});
    match invoke(url, "hold", hold("SO-1", json!(9))).await {
        InvokeOutcome::Applied(effect) => {
            let rows = json!([{"id": "SO-1", "amount": 9}]);
            assert_eq!(effect.result, json!({"rows_affected": 1, "rows": rows}));
            assert_eq!(effect.effect_id.as_deref(), Some("SO-1"));
        }
        other => panic!("{other:?}"),
    }
    // A missing argument, and null, fit any type.
    let empty = json!({"order": "SO-1", "amount": 9, "held": null});
    let outcome = invoke(url, "hold", empty).await;
    assert!(matches!(outcome, InvokeOutcome::Applied(_)), "{outcome:?}");
    invoke(url, "hold", hold("SO-1", json!(9))).await;
    assert_eq!(amounts(url).await, [9, 6]);
    let refused = [
        ("hold", hold("SO-1' OR 'a'='a", json!(1)), "0 rows, but"),
        ("hold", hold("SO-1", json!("many")), "changed nothing"),
        ("sneaky", json!({}), "read-only transaction"),
    ];
    for (tool, args, wanted) in refused {
        match invoke(url, tool, args).await {
            InvokeOutcome::NotApplied(error) => assert!(error.message.contains(wanted), "{error}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(amounts(url).await, [9, 6]);
    match invoke(url, "get", json!({})).await {
        InvokeOutcome::Applied(effect) => assert_eq!(
            effect.result,
            json!([{"id": "SO-1", "amount": 9, "held": true}, {"id": "SO-2", "amount": 6, "held": false}])
        ),
        other => panic!("{other:?}"),
    }
    // Where it was refused is said, and not the password.
    let nobody = "postgres://nobody:hunter2@127.0.0.1:1/none";
    match invoke(nobody, "get", json!({})).await {
        InvokeOutcome::NotApplied(error) => {
            let told = error.message;
            assert!(told.contains("no connection to 127.0.0.1:1: "), "{told}");
            assert!(!told.contains("hunter2"), "{told}");
        }
        other => panic!("{other:?}"),
    }
}

/// By rule 4.12: what lease or deadline no longer permits after the statement is not committed.
#[tokio::test]
async fn a_statement_that_took_too_long_is_rolled_back() {
    let Some(database) = database().await else {
        return;
    };
    let url = &database.url();
    for statement in TABLES.split(';') {
        run(url, statement).await;
    }
    let asked = AtomicU32::new(0);
    let once = SendPermit::asking(move || match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Ok(()),
        _ => Err(ConnectorError::new("nothing was sent: the test says so")),
    });
    let hold = json!({"order": "SO-1", "amount": 9, "held": true, "at": "2026-01-01T00:00:00Z"});
    match invoke_with(url, "hold", hold, once).await {
        InvokeOutcome::NotApplied(error) => {
            assert!(error.message.contains("the test says so"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(amounts(url).await, [5, 6]);
}

/// A server that is asked to end the session in the middle of a statement: nothing was committed.
#[tokio::test]
async fn a_session_that_ends_before_its_commit_changed_nothing() {
    let Some(database) = database().await else {
        return;
    };
    let url = &database.url();
    let ended = async {
        loop {
            let ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = \
                        current_database() AND query LIKE '%pg_sleep(60)%' AND pid <> pg_backend_pid()";
            if !run(url, ends).await.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let (outcome, ()) = tokio::join!(invoke(url, "slow", json!({})), ended);
    assert!(
        matches!(outcome, InvokeOutcome::NotApplied(_)),
        "{outcome:?}"
    );
}
