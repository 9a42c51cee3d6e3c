//! Statements beside the store on Postgres: a commit whose answer is lost, and a role that is not
//! almighty. The last rule here is of the plain sql connector, which has a commit of its own.

use std::time::Duration;

use operators_kernel::life::Phase;
use operators_kernel::{EffectClass, InvokeOutcome, SettledOutcome};
use operators_tests::conformance::desk::{again, ask_as};
use operators_tests::conformance::transactional::{error_of, job, performed, taken};
use operators_tests::postgres::{run, url};
use operators_tests::proxy::{Fate, Proxy};
use serde_json::json;
use sqlx::Row as _;

use crate::common::{database, desk};
use crate::connector::{TABLES, amounts, invoke};
use crate::receipts::{as_role, role};

const ACCOUNTS: &str = "CREATE TABLE accounts (name TEXT PRIMARY KEY, balance INTEGER NOT NULL)";
const DEBIT: &str = "UPDATE accounts SET balance = balance - $1 WHERE name = $2";

async fn balance(url: &str) -> i32 {
    run(url, "SELECT balance FROM accounts").await[0].get(0)
}

/// Rules 12.1, 12.2: whatever becomes of the connection as it commits, the row is changed once, and
/// asking again finds it.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_found_and_not_done_again() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let proxy = Proxy::before(&url);
    let desk = desk(proxy.url()).await;
    run(&url, ACCOUNTS).await;
    run(&url, "INSERT INTO accounts VALUES ('ada', 100)").await;
    for (n, (statement, word)) in (0..).zip([
        ("write", "answer"),
        ("write", "hang up"),
        ("write", "request"),
        ("RELEASE", "answer"),
        ("SAVEPOINT", "request"),
        ("page", "answer"),
    ]) {
        let claim = ask_as(EffectClass::Transactional, "ada", &format!("k{n}"));
        let performance = taken(&desk, &claim, DEBIT, json!([1, "ada"])).await;
        let fate = || match word {
            "answer" => Fate::LoseAnswer,
            "hang up" => Fate::HangUp,
            _ => Fate::LoseRequest,
        };
        proxy.next(statement, [fate(), fate(), fate()]);
        let mut asked = 0;
        let answer = loop {
            asked += 1;
            match desk.store.perform(&desk.tenant, performance.clone()).await {
                Ok(answer) => break answer,
                Err(error) => assert!(error.is_retryable() && asked < 9, "{error}"),
            }
        };
        proxy.rule(|_| Fate::Pass);
        assert_eq!(
            answer.answer.phase,
            Phase::Applied,
            "{statement}: {answer:?}"
        );
        assert!(matches!(answer.outcome, SettledOutcome::Applied(_)));
        assert_eq!(balance(&url).await, 99 - n, "{statement}");
        desk.duplicate(&again(&claim)).await;
    }
    assert_eq!(desk.trail().await.len(), 12, "one receipt a proposal");
    assert!(desk.store.check().await.expect("checks").is_empty());
}

/// Rule 12.5: to a role that is no superuser the tables of the store show nothing and take nothing
/// while a statement runs, and the store goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_sees_and_changes_nothing_of_the_stores_tables() {
    let Some(database) = database().await else {
        return;
    };
    if std::env::var_os("OPERATORS_TEST_POSTGRES_URL").is_some() {
        return; // Roles without passwords are not for somebody's server.
    }
    let (server, admin) = (url().expect("a server"), database.url());
    let owner = role(server, "operators_beside").await;
    let name = admin.rsplit('/').next().and_then(|n| n.split('?').next());
    let name = name.expect("a name");
    run(server, &format!("ALTER DATABASE {name} OWNER TO {owner}")).await;
    let url = as_role(&admin, &owner);
    let desk = desk(&url).await;
    run(&url, "CREATE SCHEMA shop").await;
    run(
        &url,
        "CREATE TABLE shop.accounts (name TEXT, balance INTEGER)",
    )
    .await;
    let claim = ask_as(EffectClass::Transactional, "ada", "k1");
    let insert = "INSERT INTO shop.accounts VALUES ($1, 100)";
    let burned = taken(&desk, &claim, insert, json!(["ada"])).await;
    assert_eq!(performed(&desk, &burned).await.answer.phase, Phase::Applied);
    for text in [
        "DELETE FROM operators.key WHERE idempotency_key = 'k1'",
        "UPDATE operators.key SET phase = 'failed' WHERE idempotency_key = 'k1'",
        "INSERT INTO shop.accounts SELECT idempotency_key, 1 FROM operators.key",
    ] {
        let claim = again(&ask_as(EffectClass::Transactional, "ada", "k2"));
        let performance = taken(&desk, &claim, text, json!([])).await;
        let refused = performed(&desk, &performance).await;
        assert!(error_of(&refused).contains("0 rows"), "{text}: {refused:?}");
    }
    assert_eq!(desk.key("k1").await.phase, Phase::Applied);
    let claim = again(&ask_as(EffectClass::Transactional, "ada", "k2"));
    let performance = taken(&desk, &claim, insert, json!(["bob"])).await;
    assert_eq!(
        performed(&desk, &performance).await.answer.phase,
        Phase::Applied
    );
}

/// Rules 12.2, 12.5: a statement that waits for somebody else's lock is stopped at its deadline, and
/// nobody else waited for it meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_waits_for_a_lock_is_stopped_at_its_deadline() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let desk = desk(&url).await;
    run(&url, ACCOUNTS).await;
    run(&url, "INSERT INTO accounts VALUES ('ada', 100)").await;
    let mut other = operators_tests::postgres::connect(&url).await;
    let lock = sqlx::raw_sql("BEGIN; SELECT * FROM accounts FOR UPDATE");
    lock.execute(&mut other).await.expect("a lock");
    let claim = ask_as(EffectClass::Transactional, "ada", "k1");
    let mut performance = taken(&desk, &claim, DEBIT, json!([1, "ada"])).await;
    performance.work = job(DEBIT, json!([1, "ada"]), Duration::from_millis(200));
    let refused = performed(&desk, &performance).await;
    assert!(
        error_of(&refused).contains("statement timeout"),
        "{refused:?}"
    );
    let unlock = sqlx::raw_sql("ROLLBACK").execute(&mut other).await;
    unlock.expect("rolls back");
    let performance = taken(&desk, &again(&claim), DEBIT, json!([1, "ada"])).await;
    assert_eq!(
        performed(&desk, &performance).await.answer.phase,
        Phase::Applied
    );
    assert_eq!(balance(&url).await, 99);
}

/// Rule 4.1: on another database the sql connector has a commit of its own, and one whose answer is
/// lost is unknown, done or not; what was cut off before it is not applied.
#[tokio::test(flavor = "multi_thread")]
async fn elsewhere_a_commit_whose_answer_is_lost_is_unknown() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    for statement in TABLES.split(';') {
        run(&url, statement).await;
    }
    let place = url.split('?').next().expect("a place");
    let proxy = Proxy::before(place);
    let hold = |amount: i32| json!({"order": "SO-1", "amount": amount, "held": true, "at": null});
    let cases: [(&str, Fate, bool); 4] = [
        // The commit, with the bound of its time.
        ("SET", Fate::LoseAnswer, true),
        ("SET", Fate::LoseRequest, true),
        ("BEGIN", Fate::LoseAnswer, false),
        ("BEGIN", Fate::LoseRequest, false),
    ];
    let mut amount = 5;
    for (n, (statement, fate, is_unknown)) in (10..).zip(cases) {
        let is_done = matches!((statement, &fate), ("SET", Fate::LoseAnswer));
        proxy.next(statement, [fate]);
        let outcome = invoke(proxy.url(), "hold", hold(n)).await;
        if is_unknown {
            assert!(matches!(outcome, InvokeOutcome::Unknown(_)), "{outcome:?}");
        } else {
            assert!(
                matches!(outcome, InvokeOutcome::NotApplied(_)),
                "{statement}: {outcome:?}"
            );
        }
        amount = if is_done { n } else { amount };
        assert_eq!(amounts(&url).await[0], amount, "{statement}");
    }
}
