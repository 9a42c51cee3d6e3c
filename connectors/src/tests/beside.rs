//! Connectors beside the store: what they take, and what a prepared call says.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

use operators_kernel::{EffectClass, Rows};

use super::{applied, call, connector, not_applied};
use crate::{Registry, StoreAddress};

const UPDATE: &str = "statement = 'UPDATE a SET b = {args.b}'";

fn file() -> StoreAddress {
    StoreAddress::Sqlite("/project/store.db".into())
}

fn server() -> StoreAddress {
    StoreAddress::Postgres("postgres://u:hunter2@h/d?connections=4".to_owned())
}

fn beside(toml: &str, store: &StoreAddress) -> Result<Registry, String> {
    beside_in(toml, Path::new("/project"), store)
}

fn beside_in(toml: &str, folder: &Path, store: &StoreAddress) -> Result<Registry, String> {
    let built = Registry::build_beside(
        super::configs(toml)?,
        folder,
        Arc::new(super::FixedSecrets),
        store,
    );
    built.map_err(|error| error.to_string())
}

fn with(url: &str, tool: &str) -> String {
    format!("[connectors.shop]\nkind = 'sql'\nurl = '{url}'\n[connectors.shop.tools.t]\n{tool}\n")
}

fn is_refused(config: &str, store: &StoreAddress, wanted: &str) {
    let error = beside(config, store).expect_err(config);
    assert!(error.contains(wanted), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

/// Rule 12.6.
#[test]
fn what_does_not_go_with_the_stores_own_transaction_is_refused_by_its_place() {
    for (added, wanted) in [
        ("effect = 'opaque'", "effect: in the store's own database"),
        (
            "timeout = '6s'",
            "timeout: a statement in the store's own transaction",
        ),
        (
            "max_land = '6s'",
            "max_land: a transactional tool leaves no doubt",
        ),
        (
            "on_unknown = 'retry'",
            "on_unknown: a transactional tool leaves no doubt",
        ),
        (
            "probe = { statement = 'SELECT 1' }",
            "probe: only a probeable tool",
        ),
    ] {
        let config = with("store", &format!("{UPDATE}\n{added}"));
        is_refused(&config, &file(), wanted);
    }
    let nowhere = StoreAddress::Elsewhere;
    is_refused(
        &with("store", UPDATE),
        &nowhere,
        "url: the store is no database",
    );
    let keyed = with("sqlite:store.db", &format!("{UPDATE}\neffect = 'keyed'"));
    is_refused(&keyed, &file(), "effect: in the store's own database");
    let said = format!("{UPDATE}\neffect = 'transactional'");
    for store in [file(), server(), nowhere] {
        let elsewhere = with("sqlite:other.db", &said);
        is_refused(
            &elsewhere,
            &store,
            "effect: only a statement in the store's",
        );
    }
}

/// Rule 12.5.
#[test]
fn a_statement_that_is_more_than_a_change_of_rows_is_refused() {
    let tool = |text: &str| with("store", &format!("statement = '''{text}'''"));
    for text in [
        "SELECT 1",
        "PRAGMA user_version = 0",
        "CREATE TABLE a (b)",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "CALL f()",
    ] {
        let wanted = "statement: the store's transaction takes one";
        is_refused(&tool(text), &file(), wanted);
    }
    is_refused(&tool("COMMIT"), &file(), "statement: `commit` is ours");
    for text in [
        "DELETE FROM Operators . key",
        "DELETE FROM \"operators\".\"key\"",
        "INSERT INTO a SELECT * FROM operators.receipt",
    ] {
        let wanted = "statement: the schema `operators` is the store's own";
        is_refused(&tool(text), &server(), wanted);
    }
    for text in [
        "REPLACE INTO a VALUES (1)",
        "WITH n AS (SELECT 1 AS b) UPDATE a SET b = (SELECT b FROM n)",
    ] {
        beside(&tool(text), &file()).expect(text);
    }
}

/// Rule 12.6: whether it says so or gives the same address.
#[test]
fn a_connector_at_the_stores_address_is_beside_the_store() {
    for (url, store) in [
        ("store", file()),
        ("sqlite:store.db", file()),
        ("store", server()),
        ("postgres://u:hunter2@h/d?connections=4", server()),
    ] {
        let registry = beside(&with(url, UPDATE), &store).expect(url);
        let (_, _, tool, _) = registry.tools().next().expect("a tool");
        assert_eq!(tool.contract.effect, EffectClass::Transactional, "{url}");
        assert_eq!(tool.contract.max_land, Duration::ZERO);
        assert_eq!(tool.contract.timeout, Duration::from_secs(5));
    }
    let opaque = beside(&with("sqlite:other.db", UPDATE), &file()).expect("loads");
    let (_, _, tool, _) = opaque.tools().next().expect("a tool");
    assert_eq!(tool.contract.effect, EffectClass::Opaque);
}

/// Rule 12.6: a file is the store's by what it is, not by how its path is written.
#[test]
fn the_stores_file_is_found_under_every_path() {
    let folder = TempDir::new().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let store = StoreAddress::Sqlite(at("store.db"));
    let effect = |name: &str| {
        let config = with(&format!("sqlite:{name}"), UPDATE);
        let registry = beside_in(&config, folder.path(), &store).expect(name);
        let (_, _, tool, _) = registry.tools().next().expect("a tool");
        tool.contract.effect
    };
    std::fs::create_dir(at("sub")).expect("a folder");
    symlink(folder.path(), at("here")).expect("a link");
    for name in ["store.db", "sub/../store.db", "here/store.db"] {
        assert_eq!(effect(name), EffectClass::Transactional, "{name}");
    }
    std::fs::write(at("store.db"), "").expect("a file");
    symlink("store.db", at("soft.db")).expect("a link");
    std::fs::hard_link(at("store.db"), at("hard.db")).expect("a link");
    for name in ["store.db", "here/store.db", "soft.db", "hard.db"] {
        assert_eq!(effect(name), EffectClass::Transactional, "{name}");
    }
    assert_eq!(effect("other.db"), EffectClass::Opaque);
}

/// Rule 12.7: a file that became the store's after the configuration was loaded.
#[tokio::test]
async fn no_effect_goes_to_the_stores_file_by_another_name() {
    let folder = TempDir::new().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let store = StoreAddress::Sqlite(at("store.db"));
    let config = with("sqlite:other.db", "statement = 'UPDATE a SET b = 1'");
    let registry = beside_in(&config, folder.path(), &store).expect("loads");
    let file = Connection::open(at("store.db")).expect("a file");
    let made = file.execute_batch("CREATE TABLE a (b); INSERT INTO a VALUES (0)");
    made.expect("a table");
    std::fs::hard_link(at("store.db"), at("other.db")).expect("a link");
    let connector = connector(&registry, "t");
    let told = not_applied(connector.invoke(&call("t", json!({}))).await);
    assert!(told.contains("the store's own, reached by"), "{told}");
    let changed = file.query_row("SELECT b FROM a", [], |row| row.get::<_, i64>(0));
    assert_eq!(changed.expect("a row"), 0);
}

/// Rule 12.7: beside the store a read names none of the store's tables, either.
#[test]
fn a_read_beside_the_store_does_not_name_its_tables() {
    let tool = "effect = 'read'\nstatement = 'SELECT 1 FROM operators.key'";
    let wanted = "statement: the schema `operators` is the store's own";
    is_refused(&with("store", tool), &server(), wanted);
}

/// Rule 12.3: what the store ran is judged as a call would be, secrets blanked.
#[tokio::test]
async fn a_prepared_call_is_bound_checked_and_blanked() {
    let config = with(
        "store",
        "statement = 'UPDATE a SET b = {args.b} RETURNING b'\nexpect_rows = 1\n\
         secret_args = ['b']",
    );
    let registry = beside(&config, &file()).expect("config");
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
    assert!(said.contains("changed nothing: '…' is not"), "{said}");
}
