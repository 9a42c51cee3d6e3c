//! Tools beside the store, from outside: an account in the store's own database is debited once.

use operators_tests::postgres::{self, Database, run};
use serde_json::{Value, json};
use sqlx::Row as _;

use crate::support::{Project, action};

const TABLES: [&str; 2] = [
    "CREATE TABLE accounts (name TEXT PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0))",
    "INSERT INTO accounts VALUES ('ada', 100)",
];

const CONFIG: &str = "
tenant = 'acme'
[connectors.shop]
kind = 'sql'
url = 'store'
[connectors.shop.tools.'accounts.debit']
statement = '''UPDATE accounts SET balance = balance - {args.amount} WHERE name = {args.name}
    RETURNING name, balance'''
expect_rows = 1
[connectors.shop.tools.'accounts.get']
effect = 'read'
statement = 'SELECT balance FROM accounts WHERE name = {args.name}'
";

fn debit(n: u32, name: &str, amount: i64) -> Value {
    let mut debit = action(
        "accounts.debit",
        name,
        json!({"name": name, "amount": amount}),
    );
    debit["idempotency_key"] = json!(format!("{name}:debit:{n}"));
    debit
}

/// Rules 12.1, 12.3, 3.1: debited once, duplicates absorbed, what a constraint refuses changes
/// nothing, and trail and table agree.
fn accounts_are_debited_once(project: &Project, balance: &dyn Fn() -> i64) {
    let listed = project.run(&["connectors", "list"]).ended(0);
    assert!(listed.stdout.contains("transactional"), "{listed:#?}");
    project.run(&["connectors", "test", "shop"]).ended(0);
    let plan = json!([
        debit(1, "ada", 30),
        debit(1, "ada", 30),
        debit(2, "ada", 300)
    ]);
    let forecast = ["run", "--once", "--dry-run", "--json", "--plan", "-"];
    project.run_with_stdin(&forecast, plan.to_string());
    assert_eq!(balance(), 100, "a dry run changes nothing");

    let said = project.plan(&plan).ended(4);
    assert_eq!(said.decisions(), ["ALLOW", "DEDUP", "ALLOW"]);
    let results = said.results();
    let told = results[0].result.as_ref().expect("a result");
    assert_eq!(told["rows"], json!([{"name": "ada", "balance": 70}]));
    let error = results[2].error.as_deref().expect("why");
    assert!(error.contains("changed nothing"), "{error}");
    assert!(error.to_lowercase().contains("check"), "{error}");
    assert_eq!(balance(), 70);

    let nobody = project.plan(&json!([debit(1, "bob", 1)])).ended(4);
    let error = nobody.results()[0].error.clone().expect("why");
    assert!(error.contains("0 rows, but 'expect_rows' is 1"), "{error}");
    let again = project.plan(&json!([debit(1, "ada", 30), debit(2, "ada", 20)]));
    assert_eq!(again.ended(0).decisions(), ["DEDUP", "ALLOW"]);
    assert_eq!(balance(), 50);
    let read = project.plan(&json!([action(
        "accounts.get",
        "ada",
        json!({"name": "ada"})
    )]));
    let read = read.ended(0).results();
    assert_eq!(read[0].result, Some(json!([{"balance": 50}]).into()));

    let applied = project.receipts();
    let applied = applied
        .iter()
        .filter(|receipt| receipt.action.tool.as_str() == "accounts.debit")
        .filter(|receipt| receipt.ok && receipt.original_receipt_id.is_none());
    assert_eq!(applied.count(), 2, "a receipt for each debit");
    let doubts = project.run(&["doubts", "list", "--json"]).ended(0);
    assert_eq!(doubts.stdout, "");
    project
        .run(&["receipts", "verify", "--against-store"])
        .ended(0);

    project.edit(
        "operators.toml",
        "url = 'store'\n",
        "url = 'store'\nmode = 'stub'\n",
    );
    let rehearsed = project.plan(&json!([debit(3, "ada", 1)])).ended(0);
    assert_eq!(rehearsed.decisions(), ["ALLOW"]);
    assert_eq!(balance(), 50, "a rehearsal changes nothing");
}

#[test]
fn accounts_in_the_stores_own_file_are_debited_once() {
    let project = Project::with(CONFIG);
    project.run(&["doctor"]);
    project.plan(&json!([])).ended(0);
    let file = project.path(".operators/store.db");
    let open = || rusqlite::Connection::open(&file).expect("the store's file");
    open().execute_batch(&TABLES.join(";")).expect("tables");
    let asked = "SELECT balance FROM accounts";
    let balance = || {
        open()
            .query_row(asked, [], |row| row.get(0))
            .expect("a row")
    };
    accounts_are_debited_once(&project, &balance);
}

#[test]
fn accounts_in_the_stores_own_database_are_debited_once() {
    let Some(server) = postgres::url() else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let database = runtime.block_on(Database::fresh(server));
    let url = database.url();
    let project = Project::with(&format!("{CONFIG}\n[store]\nurl = '{url}'\n"));
    for table in TABLES {
        runtime.block_on(run(&url, table));
    }
    let balance = || {
        let rows = runtime.block_on(run(&url, "SELECT balance::bigint FROM accounts"));
        rows[0].get(0)
    };
    accounts_are_debited_once(&project, &balance);
}

/// Rule 12.6.
#[test]
fn a_tool_beside_a_store_that_is_no_database_of_tables_is_refused() {
    for url in ["memory:", "dynamodb:t?region=eu-west-1"] {
        let project = Project::with(&format!("{CONFIG}\n[store]\nurl = '{url}'\n"));
        let said = project.plan(&json!([debit(1, "ada", 1)])).ended(1);
        said.tells("operators.toml:5:1");
        said.tells("set `store.url` to");
    }
}
