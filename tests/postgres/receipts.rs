//! Receipts in the database: whole, unchangeable, and each tenant's own.

use operators_kernel::{ClaimAnswer, Clearance, Reason, Receipt, Refusal, json};
use operators_seams::PgStore;
use operators_tests::conformance::desk::{Desk, again, applied, ask, failed};
use operators_tests::fixtures::object;
use operators_tests::postgres::{connect, run, url};
use serde_json::json;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Row};

use crate::common::{database, desk};

pub async fn try_run(connection: &mut PgConnection, sql: &str) -> Result<u64, String> {
    let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(connection)
        .await;
    done.map(|done| done.rows_affected())
        .map_err(|error| error.to_string())
}

async fn count(connection: &mut PgConnection, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM operators.{table}");
    let row = sqlx::raw_sql(AssertSqlSafe(sql))
        .fetch_one(connection)
        .await;
    row.expect("counts").get(0)
}

// Rule 5.4.
#[tokio::test]
async fn the_database_refuses_to_change_or_delete_a_receipt() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let desk = desk(&url).await;
    desk.run(&ask("e", "k"), applied()).await;
    let mut connection = connect(&url).await;
    for sql in [
        "UPDATE operators.receipt SET body = '{}'",
        "DELETE FROM operators.receipt",
        "TRUNCATE operators.receipt",
    ] {
        let error = try_run(&mut connection, sql).await.expect_err("refused");
        assert!(error.contains("append-only"), "{sql}: {error}");
    }
    assert_eq!(desk.trail().await.len(), 1);
}

/// What the database puts together from pieces must be the very text we would have written,
/// whatever the arguments say.
#[tokio::test]
async fn a_receipt_put_together_by_the_database_is_canonical() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let desk = desk(&url).await;
    let nasty = json!({
        "attempt": 7, "generation": [9], "original_receipt_id": "", "action": {"attempt": 0},
        "quotes": "'\"\\ ','); DROP TABLE operators.receipt; --",
        "text": "\u{0}\u{1e}\u{1f}\n\t\u{7f}\u{2028}é\u{1f600}",
        ",\"attempt\":0": ",\"generation\":0,\"original_receipt_id\":\"\"",
        "number": 1e21, "small": 1.5e-7, "negative": -3,
    });
    let mut claim = ask("e", "k");
    claim.proposal.action.args = object(nasty.clone()).into();
    claim.proposal.note = Some("\"generation\":5,\"attempt\":6".to_owned());
    desk.run(&claim, applied()).await;
    desk.duplicate(&again(&claim)).await;
    let mut refused = again(&claim);
    refused.proposal.idempotency_key = operators_tests::fixtures::key("k2");
    refused.clearance = Clearance::Refused(Refusal::new(Reason::Policy, "no \"attempt\":1"));
    desk.refusal(&refused).await;
    desk.forget("k").await;
    desk.refusal(&again(&{
        let mut claim = refused.clone();
        claim.proposal.idempotency_key = operators_tests::fixtures::key("k");
        claim
    }))
    .await;
    let mut bodies = 0;
    for row in run(&url, "SELECT body FROM operators.receipt ORDER BY sequence").await {
        let body: String = row.get(0);
        let receipt: Receipt = serde_json::from_str(&body).expect("a receipt");
        assert_eq!(json::canonical(&receipt).expect("canonical"), body);
        assert_eq!(receipt.action.args, object(nasty.clone()));
        bodies += 1;
    }
    assert_eq!(bodies, 5);
    let trail = desk.trail().await;
    let seen: Vec<_> = trail.iter().map(|r| (r.generation, r.attempt)).collect();
    assert_eq!(seen, [(1, 1), (1, 1), (1, 0), (2, 0), (2, 0)]);
    assert_eq!(
        trail[1].original_receipt_id.as_ref(),
        Some(&trail[0].receipt_id)
    );
}

/// Others' receipts may be millions; only the stretches that may hold the key's are read. Not by their
/// numbers either, though there are so many of the key's that one of ten should be met soon: all of
/// them are old.
#[tokio::test]
async fn the_receipts_of_one_key_are_found_without_reading_all() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let desk = desk(&url).await;
    let claim = ask("e", "k");
    desk.run(&claim, applied()).await;
    run(
        &url,
        "SET operators.scope = 'store'; \
         INSERT INTO operators.receipt (tenant, idempotency_key, receipt_id, settled_at, body) \
           SELECT 'acme', CASE WHEN n <= 2000 THEN 'k' ELSE 'other:' || n END, 'rc_' || n, n, \
               repeat('x', 900) FROM generate_series(1, 20000) AS n; \
         ANALYZE operators.receipt; SELECT brin_summarize_new_values('operators.receipt_stretch')",
    )
    .await;
    desk.duplicate(&again(&claim)).await;
    let found = run(
        &url,
        "BEGIN; SELECT set_config('operators.scope', 'store', true); \
         CREATE TEMP TABLE found ON COMMIT DROP AS SELECT sequence \
           FROM operators.trail('acme', 0, 9223372036854775807, true, 10, NULL, 'k', NULL, NULL, ''); \
         SELECT (SELECT count(*) FROM found), \
           pg_stat_get_xact_blocks_fetched('operators.receipt'::regclass), \
           pg_relation_size('operators.receipt') / 8192; COMMIT",
    )
    .await;
    let row = found.last().expect("a row");
    let (receipts, read, pages): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    assert_eq!(receipts, 10);
    assert!(pages > 2_000, "{pages} pages are too few to tell");
    // The stretches of the old ones, and what came after the summaries were made.
    assert!(read < pages / 4, "{read} of {pages} pages were read");
}

/// Roles of one test; taken away with their database by whoever made the server.
pub async fn role(server: &str, name: &str) -> String {
    let role = format!("{name}_{}", std::process::id());
    run(
        server,
        &format!("DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN"),
    )
    .await;
    role
}

pub fn as_role(url: &str, role: &str) -> String {
    let (scheme, rest) = url.split_once("://").expect("a URL");
    let place = rest.split_once('@').map_or(rest, |(_, place)| place);
    format!("{scheme}://{role}@{place}")
}

#[tokio::test]
async fn rows_show_themselves_to_their_own_tenant_only() {
    let Some(database) = database().await else {
        return;
    };
    if std::env::var_os("OPERATORS_TEST_POSTGRES_URL").is_some() {
        return; // Roles without passwords are not for somebody's server.
    }
    let (server, admin) = (url().expect("a server"), database.url());
    let owner = role(server, "operators_owner").await;
    let app = role(server, "operators_app").await;
    let auditor = role(server, "operators_auditor").await;
    let name = admin
        .rsplit('/')
        .next()
        .and_then(|n| n.split('?').next())
        .expect("a name");
    run(server, &format!("ALTER DATABASE {name} OWNER TO {owner}")).await;

    // The owner, no superuser, makes the schema; a role that may only call works with it.
    PgStore::connect(&as_role(&admin, &owner))
        .await
        .expect("makes the schema");
    run(
        &as_role(&admin, &owner),
        &format!(
            "GRANT USAGE ON SCHEMA operators TO {app}, {auditor}; \
             GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA operators TO {app}; \
             GRANT SELECT ON operators.receipt, operators.key TO {auditor}"
        ),
    )
    .await;
    let desk: Desk = desk(&as_role(&admin, &app)).await;
    desk.run(&ask("e", "k"), applied()).await;
    desk.duplicate(&again(&ask("e", "k"))).await;
    desk.of("other").run(&ask("e", "k"), applied()).await;
    assert_eq!(desk.trail().await.len(), 2);
    assert_eq!(desk.of("other").trail().await.len(), 1);

    let mut auditing = connect(&as_role(&admin, &auditor)).await;
    let mut owning = connect(&as_role(&admin, &owner)).await;
    let mut calling = connect(&as_role(&admin, &app)).await;
    for connection in [&mut auditing, &mut owning] {
        assert_eq!(count(connection, "receipt").await, 0, "no tenant, no rows");
        try_run(connection, "SET operators.tenant = 'acme'")
            .await
            .expect("sets");
        assert_eq!(count(connection, "receipt").await, 2);
        assert_eq!(count(connection, "key").await, 1);
        try_run(connection, "SET operators.tenant = 'nobody'")
            .await
            .expect("sets");
        assert_eq!(count(connection, "receipt").await, 0);
    }
    // What the store's own functions say of themselves helps nobody else.
    try_run(&mut auditing, "SET operators.scope = 'store'")
        .await
        .expect("sets");
    assert_eq!(count(&mut auditing, "receipt").await, 0);
    denied(
        &mut auditing,
        "SELECT operators.redaction_key('', 'acme', '')",
    )
    .await;
    denied(&mut calling, "DELETE FROM operators.receipt").await;
    denied(&mut auditing, "SELECT * FROM operators.tenant").await;
    denied(
        &mut auditing,
        "INSERT INTO operators.receipt (tenant) VALUES ('acme')",
    )
    .await;
    denied(&mut calling, "UPDATE operators.key SET phase = 'failed'").await;
    denied(&mut calling, "SELECT * FROM operators.key").await;
}

async fn denied(connection: &mut sqlx::PgConnection, sql: &str) {
    let error = try_run(connection, sql).await.expect_err("refused");
    assert!(error.contains("permission denied"), "{sql}: {error}");
}

/// Rule 8.3. A proposal that failed and is asked again under its own receipt makes no second attempt,
/// which would leave no trace; alone and in a batch.
#[tokio::test(flavor = "multi_thread")]
async fn a_proposal_that_is_over_is_not_granted_again_under_its_receipt() {
    for many in [1, 2] {
        let Some(database) = database().await else {
            return;
        };
        let desk = desk(&database.url()).await;
        let over = ask("e0", "k0");
        desk.run(&over, failed()).await;
        let mut claims = vec![desk.filled(&over)];
        claims.extend((1..many).map(|n| desk.filled(&ask(&format!("e{n}"), &format!("k{n}")))));
        let answers = desk.store.claim(&desk.tenant, claims).await;
        let answers = answers.expect("answers");
        let ClaimAnswer::Refused { refusal, .. } = &answers[0] else {
            panic!("granted again: {answers:?}");
        };
        assert_eq!(refusal.reason, Reason::InDoubt);
    }
}
