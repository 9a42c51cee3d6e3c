//! The sql connector on a `SQLite` file; `tests/postgres` has the same for Postgres.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

use operators_kernel::{Call, EffectClass, Health, ProbeOutcome, Rows};

use super::{applied, build, build_in, call, connector, invoke, not_applied};
use crate::{Registry, StoreAddress};

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

fn beside(toml: &str, store: &StoreAddress) -> Result<Registry, String> {
    let built = Registry::build_beside(
        super::configs(toml)?,
        Path::new("/project"),
        Arc::new(super::FixedSecrets),
        store,
    );
    built.map_err(|error| error.to_string())
}

/// Rule 12.6.
#[test]
fn what_does_not_go_with_the_stores_own_transaction_is_refused_by_its_place() {
    let file = StoreAddress::Sqlite("/project/store.db".into());
    let server = StoreAddress::Postgres("postgres://u:hunter2@h/d?connections=4".to_owned());
    let with = |url: &str, text: &str| {
        format!(
            "[connectors.shop]\nkind = 'sql'\nurl = '{url}'\n[connectors.shop.tools.t]\n{text}\n"
        )
    };
    let tool = |text: &str| with("store", text);
    let update = "statement = 'UPDATE a SET b = {args.b}'";
    for (config, store, wanted) in [
        (
            tool(update),
            &StoreAddress::Elsewhere,
            "url: the store is no database",
        ),
        (
            tool(&format!("{update}\neffect = 'opaque'")),
            &file,
            "effect: in the store's own database",
        ),
        (
            with("sqlite:store.db", &format!("{update}\neffect = 'keyed'")),
            &file,
            "effect: in the store's own database",
        ),
        (
            with(
                "sqlite:other.db",
                &format!("{update}\neffect = 'transactional'"),
            ),
            &file,
            "effect: only a statement in the store's own",
        ),
        (
            tool(&format!("{update}\ntimeout = '6s'")),
            &file,
            "timeout: a statement in the store's own transaction",
        ),
        (
            tool(&format!("{update}\nmax_land = '6s'")),
            &file,
            "max_land: a transactional tool leaves no doubt",
        ),
        (
            tool(&format!("{update}\non_unknown = 'retry'")),
            &file,
            "on_unknown: a transactional tool leaves no doubt",
        ),
        (
            tool(&format!("{update}\nprobe = {{ statement = 'SELECT 1' }}")),
            &file,
            "probe: only a probeable tool",
        ),
        (
            tool("statement = 'SELECT 1'"),
            &file,
            "statement: the store's transaction takes one",
        ),
        (
            tool("statement = 'PRAGMA user_version = 0'"),
            &file,
            "statement: the store's transaction takes one",
        ),
        (
            tool("statement = 'DELETE FROM Operators . key'"),
            &server,
            "statement: the schema `operators` is the store's own",
        ),
        (
            tool("statement = 'DELETE FROM \"operators\".\"key\"'"),
            &server,
            "statement: the schema `operators` is the store's own",
        ),
    ] {
        let error = beside(&config, store).expect_err(&config);
        assert!(error.contains(wanted), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    let same = [
        ("store", &file),
        ("sqlite:store.db", &file),
        ("store", &server),
        ("postgres://u:hunter2@h/d?connections=4", &server),
    ];
    for (url, store) in same {
        let registry = beside(&with(url, update), store).expect(url);
        let (_, _, tool, _) = registry.tools().next().expect("a tool");
        assert_eq!(tool.contract.effect, EffectClass::Transactional, "{url}");
        assert_eq!(tool.contract.max_land, Duration::ZERO);
        assert_eq!(tool.contract.timeout, Duration::from_secs(5));
    }
}

/// Rule 12.3: what the store ran is judged as a call would be, secrets blanked.
#[tokio::test]
async fn a_prepared_call_is_bound_checked_and_blanked() {
    let file = StoreAddress::Sqlite("/project/store.db".into());
    let config = "[connectors.shop]\nkind = 'sql'\nurl = 'store'\n[connectors.shop.tools.t]\n\
        statement = 'UPDATE a SET b = {args.b} RETURNING b'\nexpect_rows = 1\n\
        secret_args = ['b']\n";
    let registry = beside(config, &file).expect("config");
    let call = call("t", json!({"b": "hunter2"}));
    let connector = connector(&registry, "t");
    let refused = not_applied(connector.invoke(&call).await);
    assert!(refused.contains("only in the store's transaction"));
    let work = connector.prepare(&call).expect("prepared");
    assert_eq!(work.statement().text, "UPDATE a SET b = ?1 RETURNING b");
    assert_eq!(work.statement().values, [json!("hunter2")]);
    let rows = |affected| Rows {
        affected,
        rows: vec![json!({"b": "hunter2"})],
    };
    let (result, _) = applied(work.outcome(Ok(rows(1))));
    assert_eq!(result["rows"], json!([{"b": "…"}]));
    assert!(not_applied(work.outcome(Ok(rows(2)))).contains("2 rows, but"));
    let said = not_applied(work.outcome(Err("`hunter2` is not unique".to_owned())));
    assert!(said.contains("changed nothing: `…` is not"), "{said}");
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
