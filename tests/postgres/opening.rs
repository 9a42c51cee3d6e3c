//! Which servers are refused, and what the refusal says (rule 8.4).

use std::time::Duration;

use operators_kernel::StoreError;
use operators_kernel::life::Phase;
use operators_seams::PgStore;
use operators_tests::conformance::desk::{again, ask, unknown};
use operators_tests::postgres::{connect, database_of, own_server, run, url};
use sqlx::Row;

use crate::common::{End, database, desk, drive};

async fn refusal(url: &str) -> StoreError {
    PgStore::connect(url).await.expect_err("refused")
}

/// The one text that a query answers.
async fn text(url: &str, query: &str) -> String {
    run(url, query).await[0].get(0)
}

/// Has a database say that its schema is of another version.
async fn record_version(url: &str, version: i32) {
    run(
        url,
        &format!(
            "DELETE FROM operators.migration; \
             INSERT INTO operators.migration (version) VALUES ({version})"
        ),
    )
    .await;
}

/// Every function of the schema, by when it was last written, and the versions on record.
const EVERYTHING: &str = "SELECT concat( \
    (SELECT string_agg(format('%s %s', p.oid::regprocedure, p.xmin), ', ' ORDER BY p.oid) \
      FROM pg_proc p WHERE p.pronamespace = 'operators'::regnamespace), \
    (SELECT string_agg(format('%s %s', m.version, m.xmin), ', ' ORDER BY m.version) \
      FROM operators.migration m))";

#[tokio::test]
async fn a_server_that_loses_what_it_acknowledges_is_refused() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let Some((place, _)) = url.split_once("?allow_unsafe_fsync") else {
        return; // A server that was given has its own mind about `fsync`.
    };
    let error = refusal(place).await;
    assert!(!error.is_retryable());
    assert!(error.to_string().contains("fsync = off"), "{error}");
}

/// Above `read committed` a claim that waited would miss the pause it waited for, and the log the
/// receipts of those it waited for.
#[tokio::test]
async fn transactions_that_begin_above_read_committed_are_refused() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    for level in ["repeatable read", "serializable"] {
        let default = format!(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = %L', \
             current_database(), '{level}'); END $$"
        );
        run(&url, &default).await;
        let error = refusal(&url).await;
        assert!(!error.is_retryable());
        let said = error.to_string();
        assert!(
            said.contains(&format!("its transactions begin as `{level}`"))
                && said.contains(
                    "ALTER ROLE postgres SET default_transaction_isolation = 'read committed'"
                ),
            "{said}"
        );
    }
    let made = "SELECT coalesce(to_regnamespace('operators')::text, 'nothing')";
    assert_eq!(text(&url, made).await, "nothing");
    // One of the places where it can be said.
    let in_url = format!("{url}&options[default_transaction_isolation]=read%20committed");
    PgStore::connect(&in_url).await.expect("connects");
}

/// The default may change while processes run. What is one statement is refused from then on, with
/// what to do; what begins a transaction of its own says how.
#[tokio::test(flavor = "multi_thread")]
async fn a_default_isolation_that_changes_later_is_refused_too() {
    let Some(server) = own_server(&["fsync=off"]) else {
        return;
    };
    let url = server.url("postgres");
    let desk = desk(&url).await;
    let attempt = desk.take(&ask("order:1", "k1")).await;
    let mut idle = connect(&url).await;
    run(
        &url,
        "ALTER SYSTEM SET default_transaction_isolation = 'repeatable read'",
    )
    .await;
    run(&url, "SELECT pg_reload_conf()").await;
    loop {
        let shown = sqlx::raw_sql("SHOW transaction_isolation")
            .fetch_one(&mut idle)
            .await
            .expect("a setting");
        if shown.get::<&str, _>(0) == "repeatable read" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    // Decided under locks.
    let answer = desk.end(&attempt, unknown()).await;
    assert_eq!(answer.phase, Phase::InDoubt);
    let error = desk.try_ask(&ask("order:2", "k2")).await;
    let error = error.expect_err("refused");
    assert!(!error.is_retryable(), "{error}");
    let said = error.to_string();
    assert!(
        said.contains("its transactions begin as `repeatable read`")
            && said.contains("SET default_transaction_isolation = 'read committed'"),
        "{said}"
    );
    let trail = sqlx::raw_sql("SELECT operators.last_settled('acme')")
        .fetch_one(&mut idle)
        .await;
    trail.expect_err("receipts could be passed over");
}

#[tokio::test]
async fn a_newer_schema_is_refused_by_name() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    PgStore::connect(&url).await.expect("connects");
    run(
        &url,
        "INSERT INTO operators.migration (version) VALUES (999)",
    )
    .await;
    let error = refusal(&url).await;
    assert!(!error.is_retryable());
    assert!(
        error
            .to_string()
            .contains("a newer version wrote it (schema 999"),
        "{error}"
    );
}

#[tokio::test]
async fn a_schema_from_before_the_first_release_is_refused_and_left_alone() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    PgStore::connect(&url).await.expect("connects");
    // The earliest had no function to ask; they are known when the upgrade has begun.
    for (version, dropped) in [(12, ""), (3, "DROP FUNCTION operators.schema_version()")] {
        record_version(&url, version).await;
        run(&url, dropped).await;
        let before = text(&url, EVERYTHING).await;
        let error = refusal(&url).await;
        assert!(!error.is_retryable());
        let said = error.to_string();
        assert!(
            said.contains("its schema is of a version before the first release")
                && said.contains(&format!("(schema {version}, "))
                && said.contains("open it once with a build that makes schema 13")
                && said.contains("or use a new database"),
            "{said}"
        );
        assert_eq!(text(&url, EVERYTHING).await, before);
    }
}

/// How schemas before 16 find a key's receipts.
const KEYS_IN_AN_INDEX: &str = "DROP INDEX operators.receipt_stretch; \
    CREATE INDEX receipt_key ON operators.receipt (tenant, idempotency_key, sequence)";

#[tokio::test]
async fn a_schema_of_an_earlier_version_gets_the_functions_of_this_one() {
    for version in [13, 14, 15, 16] {
        upgrade_from(version).await;
    }
}

async fn upgrade_from(version: i32) {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let old = desk(&url).await;
    let claim = ask("order:1", "k1");
    assert_eq!(drive(&old, &claim).await.expect("runs"), End::Ran);
    drop(old);
    // Two that 13 still had, and two that it lacks or has otherwise.
    run(
        &url,
        "CREATE FUNCTION operators.claim(text) RETURNS text LANGUAGE sql AS 'SELECT $1'; \
         CREATE FUNCTION operators.settle(text) RETURNS text LANGUAGE sql AS 'SELECT $1'; \
         DROP FUNCTION operators.identity(text); \
         CREATE OR REPLACE FUNCTION operators.arrive() RETURNS bigint LANGUAGE sql \
           AS 'SELECT 1/0::bigint'; \
         GRANT EXECUTE ON FUNCTION operators.arrive() TO pg_monitor",
    )
    .await;
    if version < 16 {
        run(&url, KEYS_IN_AN_INDEX).await;
    }
    record_version(&url, version).await;
    let new = desk(&url).await;
    let known = drive(&new, &again(&claim)).await.expect("is decided");
    assert_eq!(known, End::Duplicate);
    assert_eq!(
        drive(&new, &ask("order:1", "k2")).await.expect("runs"),
        End::Ran
    );
    let versions =
        "SELECT string_agg(version::text, ',' ORDER BY version) FROM operators.migration";
    assert_eq!(text(&url, versions).await, format!("{version},18"));
    let left = "SELECT concat(to_regproc('operators.claim'), to_regproc('operators.settle'), \
        to_regclass('operators.receipt_key'))";
    assert_eq!(text(&url, left).await, "");
    let granted =
        "SELECT has_function_privilege('pg_monitor', 'operators.arrive()', 'EXECUTE')::text";
    assert_eq!(text(&url, granted).await, "true");
    let open_to_all = "SELECT count(*)::text FROM pg_proc p \
        WHERE p.pronamespace = 'operators'::regnamespace \
          AND has_function_privilege('public', p.oid, 'EXECUTE')";
    assert_eq!(text(&url, open_to_all).await, "0");
}

/// An upgrade that changes a table waited for a backup to let go of it, the server's end of it even
/// after the program had given up, and whoever wrote waited behind it.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_that_meets_a_backup_gives_up_and_holds_nobody_up() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let old = desk(&url).await;
    run(&url, KEYS_IN_AN_INDEX).await;
    record_version(&url, 15).await;
    let mut backup = connect(&url).await;
    let lock = "BEGIN; LOCK TABLE operators.receipt IN ACCESS SHARE MODE";
    let locked = sqlx::raw_sql(lock).execute(&mut backup).await;
    locked.expect("locks");
    let error = refusal(&url).await;
    assert!(error.is_retryable(), "{error}");
    let said = error.to_string();
    assert!(said.contains("on the way to schema 18: "), "{said}");
    let claim = ask("order:1", "k1");
    let running = drive(&old, &claim);
    let ran = tokio::time::timeout(Duration::from_secs(3), running).await;
    assert_eq!(ran.expect("nobody waits").expect("runs"), End::Ran);
    let ended = sqlx::raw_sql("COMMIT").execute(&mut backup).await;
    ended.expect("ends");
    PgStore::connect(&url).await.expect("upgrades");
}

/// Making an index over very many receipts takes longer than a call may; the upgrade was given up
/// each time, so a large database could not be opened any more.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_may_take_longer_than_a_call() {
    let Some(server) = own_server(&["fsync=off"]) else {
        return;
    };
    let url = server.url("postgres");
    PgStore::connect(&url).await.expect("connects");
    run(&url, KEYS_IN_AN_INDEX).await;
    record_version(&url, 15).await;
    run(
        &url,
        "CREATE FUNCTION take_long() RETURNS event_trigger LANGUAGE plpgsql \
           AS 'BEGIN PERFORM pg_sleep(11); END'; \
         CREATE EVENT TRIGGER take_long ON ddl_command_end WHEN TAG IN ('CREATE INDEX') \
           EXECUTE FUNCTION take_long()",
    )
    .await;
    PgStore::connect(&url).await.expect("upgrades");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_processes_may_open_an_empty_database_at_once() {
    let Some(database) = database().await else {
        return;
    };
    let opening: Vec<_> = (0..8)
        .map(|_| {
            let url = database.url();
            tokio::spawn(async move { PgStore::connect(&url).await })
        })
        .collect();
    for opened in opening {
        opened.await.expect("no panic").expect("connects");
    }
}

#[tokio::test]
async fn an_error_says_where_but_never_the_password() {
    let nobody = "postgres://ada:s3cret@127.0.0.1:1/shop";
    let error = refusal(nobody).await;
    assert!(error.is_retryable(), "{error}");
    let said = error.to_string();
    assert!(said.contains("127.0.0.1:1/shop"), "{said}");
    // There was none that could have broken.
    assert!(said.contains("is unavailable: no connection: "), "{said}");
    assert!(!format!("{error:?}").contains("s3cret"));
    let Some(url) = url() else {
        return;
    };
    let error = refusal(&database_of(url, "there_is_no_such_database")).await;
    assert!(!error.is_retryable(), "{error}");
}
