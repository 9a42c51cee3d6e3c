//! The sql connector on a `SQLite` file; `tests/postgres` has the same for Postgres.

use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

use operators_kernel::{Call, Health, ProbeOutcome};

use super::{applied, build, build_in, call, connector, invoke, not_applied};
use crate::Registry;

const CONFIG: &str = "
[connectors.shop]
kind = 'sql'
url = 'sqlite:shop.db'
[connectors.shop.tools.hold]
statement = 'UPDATE orders SET status = {args.status} WHERE id = {args.order}'
expect_rows = 1
[connectors.shop.tools.add]
statement = '''INSERT INTO orders (id, status, key) VALUES ({args.order}, {args.status},
    {action.downstream_key}) RETURNING id, status'''
effect = 'probeable'
probe = { statement = 'SELECT id FROM orders WHERE key = {action.downstream_key}' }
[connectors.shop.tools.get]
statement = 'SELECT id, status FROM orders WHERE id = {args.order} ORDER BY id'
effect = 'read'
[connectors.shop.tools.sneaky]
statement = 'DELETE FROM orders'
effect = 'read'
[connectors.shop.tools.many]
statement = 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) SELECT i FROM n'
effect = 'read'
";

struct Shop {
    folder: TempDir,
    registry: Registry,
}

impl Shop {
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let shop = Self {
            registry: build_in(CONFIG, folder.path()).expect("config"),
            folder,
        };
        let tables = "CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT NOT NULL, key TEXT);
            INSERT INTO orders VALUES ('SO-1', 'open', NULL), ('SO-2', 'open', NULL);";
        shop.file().execute_batch(tables).expect("tables");
        shop
    }

    fn file(&self) -> Connection {
        Connection::open(self.folder.path().join("shop.db")).expect("the file")
    }

    fn statuses(&self) -> Vec<String> {
        let file = self.file();
        let mut rows = file
            .prepare("SELECT status FROM orders ORDER BY id")
            .expect("a query");
        let rows = rows.query_map([], |row| row.get(0)).expect("rows");
        rows.map(|row| row.expect("a text")).collect()
    }
}

fn held(order: &str, status: impl Into<Value>) -> Call {
    call("hold", json!({"order": order, "status": status.into()}))
}

#[tokio::test]
async fn a_statement_commits_and_values_are_only_ever_bound() {
    let shop = Shop::new();
    let (result, _) = applied(invoke(&shop.registry, &held("SO-1", "held")).await);
    assert_eq!(result, json!({"rows_affected": 1, "rows": []}));
    assert_eq!(shop.statuses(), ["held", "open"]);
    let hostile = "x'; DROP TABLE orders; --";
    applied(invoke(&shop.registry, &held("SO-2", hostile)).await);
    assert_eq!(shop.statuses(), ["held", hostile]);
    let injected = invoke(&shop.registry, &held("SO-1' OR '1'='1", "gone")).await;
    assert!(not_applied(injected).contains("0 rows, but"));
    assert_eq!(shop.statuses(), ["held", hostile]);
}

#[tokio::test]
async fn what_fails_before_the_commit_changed_nothing() {
    let shop = Shop::new();
    let message = not_applied(invoke(&shop.registry, &held("SO-1", Value::Null)).await);
    assert!(message.contains("changed nothing"), "{message}");
    let message = not_applied(invoke(&shop.registry, &call("sneaky", json!({}))).await);
    assert!(message.contains("readonly"), "{message}");
    let message = not_applied(invoke(&shop.registry, &call("many", json!({}))).await);
    assert!(message.contains("more than 1000 rows"), "{message}");
    assert_eq!(shop.statuses(), ["open", "open"]);
    std::fs::remove_file(shop.folder.path().join("shop.db")).expect("removed");
    not_applied(invoke(&shop.registry, &held("SO-1", "held")).await);
    // A database that is not there is not made by mistake.
    assert!(!shop.folder.path().join("shop.db").exists());
    let health = connector(&shop.registry, "hold")
        .check(&held("", "").tenant)
        .await;
    assert!(matches!(health, Health::Ill(_)), "{health:?}");
}

#[tokio::test]
async fn a_file_that_somebody_else_holds_is_waited_for_and_then_given_up() {
    let shop = Shop::new();
    let other = shop.file();
    other.execute_batch("BEGIN IMMEDIATE").expect("a lock");
    let mut call = held("SO-1", "held");
    call.deadline = std::time::Duration::from_millis(200);
    assert!(not_applied(invoke(&shop.registry, &call).await).contains("locked"));
    other.execute_batch("ROLLBACK").expect("released");
    applied(invoke(&shop.registry, &held("SO-1", "held")).await);
}

#[tokio::test]
async fn rows_come_back_as_json_and_a_probe_finds_what_was_written() {
    let shop = Shop::new();
    let add = call("add", json!({"order": "SO-3", "status": "new"}));
    let probe = connector(&shop.registry, "add");
    assert_eq!(probe.probe(&add).await, ProbeOutcome::NotApplied);
    let (result, effect_id) = applied(invoke(&shop.registry, &add).await);
    assert_eq!(
        result,
        json!({"rows_affected": 1, "rows": [{"id": "SO-3", "status": "new"}]})
    );
    assert_eq!(effect_id.as_deref(), Some("SO-3"));
    assert!(matches!(probe.probe(&add).await, ProbeOutcome::Applied(_)));
    let (rows, _) = applied(invoke(&shop.registry, &call("get", json!({"order": "SO-3"}))).await);
    assert_eq!(rows, json!([{"id": "SO-3", "status": "new"}]));
    let (rows, _) = applied(invoke(&shop.registry, &call("get", json!({}))).await);
    assert_eq!(rows, json!([]));
    let health = probe.check(&add.tenant).await;
    assert_eq!(health, Health::Well("the database answers".to_owned()));
}

#[test]
fn a_configuration_that_cannot_work_is_refused_by_its_place() {
    let tool = |text: &str| {
        format!(
            "[connectors.shop]\nkind = 'sql'\nurl = 'sqlite:a.db'\n[connectors.shop.tools.t]\n{text}\n"
        )
    };
    for (config, wanted) in [
        (
            "[connectors.shop]\nkind = 'sql'\n".to_owned(),
            "url: is missing",
        ),
        (
            "[connectors.shop]\nkind = 'sql'\nurl = 'mysql://u:hunter2@h/d'\n".to_owned(),
            "url: is no database that we know",
        ),
        (tool(""), "statement: is missing"),
        (
            tool("statement = \"SELECT '{args.a}'\""),
            "statement: `{args.a}` stands inside quotes",
        ),
        (
            tool("statement = 'SELECT 1; SELECT 2'"),
            "statement: is more than one statement",
        ),
        (
            tool("statement = 'SELECT 1'\neffect = 'probeable'"),
            "probe: is missing",
        ),
        (
            tool("statement = 'SELECT 1'\neffect = 'read'\nexpect_rows = 1"),
            "expect_rows: a read changes no rows",
        ),
        (
            tool("statement = 'SELECT 1'\neffect = 'transactional'"),
            "effect: only a statement in the store's own database",
        ),
        (
            tool("statement = 'SELECT 1'\npath = '/x'"),
            "path: a connector of kind `sql` has no",
        ),
    ] {
        let error = build(&config).expect_err(&config);
        assert!(error.contains(wanted), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}
