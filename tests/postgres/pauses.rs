//! The kill switch and the lock it rests on: what it waits for, and what it does not (rule 9.1).

use std::time::Duration;

use operators_kernel::{ClaimAnswer, Directive, DirectiveAnswer, Order, Reason, StoreError};
use operators_tests::conformance::desk::{Desk, applied, ask, fresh_id, moment, unheard};
use operators_tests::postgres::{connect, run};
use operators_tests::proxy::{Fate, Proxy};
use sqlx::{Connection, Row};

use crate::common::{database, desk};

/// Has a desk do what a person orders about everything.
pub async fn direct(desk: &Desk, order: Order) -> Result<DirectiveAnswer, StoreError> {
    let directive = Directive {
        order,
        by: "ada".into(),
        note: None,
        receipt_id: fresh_id(),
        at: moment(),
    };
    desk.store.direct(&desk.tenant, directive).await
}

/// A backup holds the weakest lock on every table for as long as it runs. Pausing asked for a lock
/// that nobody else may hold at all, waited for the backup and gave up, and every claim waited with
/// it.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_way_holds_up_neither_a_pause_nor_a_claim() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let desk = desk(&url).await;
    let mut backup = connect(&url).await;
    sqlx::raw_sql("BEGIN; LOCK TABLE operators.pause, operators.key IN ACCESS SHARE MODE")
        .execute(&mut backup)
        .await
        .expect("locks");
    let paused = direct(&desk, Order::Pause(None)).await;
    assert_eq!(paused, Ok(DirectiveAnswer::Done));
    desk.refused_as(Reason::Paused, &ask("order:1", "k1")).await;
    let resumed = direct(&desk, Order::Resume(None)).await;
    assert_eq!(resumed, Ok(DirectiveAnswer::Done));
    desk.run(&ask("order:1", "k2"), applied()).await;
    backup.close().await.expect("closes");
}

/// Whoever finds somebody in the middle of pausing waits and sees the pause: alone, in a batch, and
/// under locks.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_meets_a_pause_in_the_making_sees_it() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let desk = desk(&url).await;
    direct(&desk, Order::Pause(None)).await.expect("pauses");
    let aside = "CREATE TABLE aside AS SELECT * FROM operators.pause; DELETE FROM operators.pause";
    run(&url, aside).await;
    for (round, (many, under_locks)) in [(1, false), (2, false), (1, true)].iter().enumerate() {
        // Whatever a session keeps of a statement is there before.
        for n in 0..12 {
            let name = format!("before-{round}-{n}");
            desk.run(&ask(&name, &name), applied()).await;
        }
        let mut pauser = connect(&url).await;
        sqlx::raw_sql(
            "BEGIN; SELECT * FROM operators.desk('', 'acme', '[{\"kind\": \"pause\", \"name\": \
             \"all\"}]'); INSERT INTO operators.pause SELECT * FROM aside",
        )
        .execute(&mut pauser)
        .await
        .expect("begins to pause");
        let names = (0..*many).map(|n| format!("met-{round}-{n}"));
        let claims: Vec<_> = names.map(|name| desk.filled(&ask(&name, &name))).collect();
        let claims = if *under_locks {
            claims.iter().map(unheard).collect()
        } else {
            claims
        };
        let asking = desk.clone();
        let asked = tokio::spawn(async move { asking.store.claim(&asking.tenant, claims).await });
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted \
                     AND relation = 'operators.pause'::regclass";
        while run(&url, waits).await[0].get::<i64, _>(0) == 0 {
            assert!(!asked.is_finished(), "{:?}", asked.await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        sqlx::raw_sql("COMMIT")
            .execute(&mut pauser)
            .await
            .expect("commits");
        for answer in asked.await.expect("no panic").expect("answers") {
            let ClaimAnswer::Refused { refusal, .. } = answer else {
                panic!("granted after the pause: {answer:?}");
            };
            assert_eq!(refusal.reason, Reason::Paused);
        }
        run(&url, "DELETE FROM operators.pause").await;
    }
}

/// A pause is acknowledged only when every claim that did not see it is in sight: alone, in a batch,
/// and under locks.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_waits_for_claims_that_did_not_see_it() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let desk = desk(&url).await;
    let session = desk.session;
    let alone = format!(
        "claim_one('', 'acme', 'e1', 'k1', {session}, '-', '-', '-', 1, NULL, 'r1', '-', 1, \
         '', '', '', '', NULL, NULL, NULL, false)"
    );
    let in_batch = format!(
        "claim_many('', 'acme', 'e2', 'k2', '{session}', '-', '-', '-', '1', E'\\x1e', 'r2', '-', '1', \
         '-', '-', '-', '-', E'\\x1e', E'\\x1e', E'\\x1e', 'false')"
    );
    for statement in [alone, in_batch] {
        let mut claiming = connect(&url).await;
        let sql = format!("BEGIN; SELECT operators.{statement}");
        let said = sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
            .fetch_all(&mut claiming)
            .await
            .expect("claims");
        assert!(said[0].get::<String, _>(0).starts_with("claimed"));
        let person = desk.clone();
        let pausing = tokio::spawn(async move { direct(&person, Order::Pause(None)).await });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!pausing.is_finished(), "it did not wait: {statement}");
        let committed = sqlx::raw_sql("COMMIT").execute(&mut claiming).await;
        committed.expect("commits");
        let paused = pausing.await.expect("no panic");
        assert_eq!(paused, Ok(DirectiveAnswer::Done));
        direct(&desk, Order::Resume(None)).await.expect("resumes");
    }

    let proxy = Proxy::before(&url);
    let slow = crate::common::desk(proxy.url()).await;
    proxy.next("write", [Fate::Delay(Duration::from_millis(600))]);
    let asked = tokio::spawn(async move { slow.ask(&unheard(&ask("e3", "k3"))).await });
    while !proxy.take().iter().any(|name| name == "write") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    direct(&desk, Order::Pause(None)).await.expect("pauses");
    assert!(desk.find("k3").await.is_some(), "acknowledged before it");
    let answer = asked.await.expect("no panic");
    assert!(matches!(answer, ClaimAnswer::Claimed(_)), "{answer:?}");
}
