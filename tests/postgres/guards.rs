//! Nothing acknowledged is ever taken back by somebody who left.
//!
//! sqlx 0.9.0 gives a connection back to its pool in the middle of a transaction when a `begin()` is
//! dropped at the wrong moment; what the next user was told is committed is then rolled back (47 of
//! 50 burns were lost). The store takes part in no pool and drops nothing half-way; and should a
//! call ever meet such a connection, the functions of the schema refuse to run.

use std::future::Future;
use std::pin::pin;
use std::str::FromStr;
use std::task::{Context, Poll, Waker};

use operators_tests::conformance::desk::{Desk, again, ask};
use operators_tests::postgres::run;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Row};

use crate::common::{database, desk, settlement};

/// Polls a future `polls` times, letting others work in between, then drops it.
async fn drop_after<F: Future>(polls: u32, work: F) -> bool {
    let mut work = pin!(work);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if work.as_mut().poll(context).is_ready() {
            return Poll::Ready(true);
        }
        left = left.saturating_sub(1);
        if left == 0 {
            Poll::Ready(false)
        } else {
            Poll::Pending
        }
    })
    .await
}

async fn is_burned(url: &str, receipt_id: &str) -> bool {
    let sql = format!("SELECT count(*) FROM operators.receipt WHERE receipt_id = '{receipt_id}'");
    run(url, &sql).await[0].get::<i64, _>(0) == 1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_somebody_left_open_takes_nothing_back() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    desk(&url).await;
    let place = url.split('?').next().expect("a place");
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .test_before_acquire(false)
        .connect_with(PgConnectOptions::from_str(place).expect("a URL"))
        .await
        .expect("a pool");
    let (mut refused, mut told) = (0, 0);
    for round in 0..60_u32 {
        drop_after(round % 6 + 1, pool.begin()).await;
        let receipt_id = format!("rc_guard_{round}");
        let sql = format!("SELECT operators.record('', 'acme', 'k', '{receipt_id}', '1', '{{}}')");
        match sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await {
            Ok(_) => {
                told += 1;
                assert!(
                    is_burned(&url, &receipt_id).await,
                    "told, then lost: {receipt_id}"
                );
            }
            Err(error) => {
                let code = error
                    .as_database_error()
                    .and_then(|e| e.code().map(|c| c.to_string()));
                assert_eq!(code.as_deref(), Some("25001"), "{error}");
                refused += 1;
                // What the pool does not see is still open: end it, as the store does by closing.
                sqlx::raw_sql("ROLLBACK")
                    .execute(&pool)
                    .await
                    .expect("rolls back");
            }
        }
    }
    assert!(told > 0, "of 60, {refused} were refused and {told} told");
    println!("of 60 calls {refused} met an open transaction and were refused");
}

fn poll_once<F: Future>(work: F) {
    let mut work = pin!(work);
    let mut context = Context::from_waker(Waker::noop());
    drop(work.as_mut().poll(&mut context));
}

async fn burn(desk: &Desk, url: &str, name: &str) {
    let claim = ask(&format!("entity-{name}"), name);
    let attempt = desk.take(&claim).await;
    desk.end(&attempt, operators_tests::conformance::desk::applied())
        .await;
    assert!(
        is_burned(url, &attempt.proposal.receipt_id).await,
        "told, then lost: {name}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_who_leave_at_any_moment_lose_nobodys_burn() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let desk = desk(&url).await;
    for round in 0..40_u32 {
        let claim = ask(&format!("left-{round}"), &format!("left-{round}"));
        let claims = || vec![desk.filled(&claim)];
        drop_after(round % 5 + 1, desk.store.claim(&desk.tenant, claims())).await;
        poll_once(desk.store.claim(&desk.tenant, claims()));
        // Whatever came of those, it is one intent, and asking again finds it.
        let answer = desk.ask(&claim).await;
        let settlement = settlement(&desk, &claim, &answer).expect("granted once");
        let settlements = || vec![settlement.clone()];
        drop_after(
            round % 5 + 1,
            desk.store.settle(&desk.tenant, settlements()),
        )
        .await;
        burn(&desk, &url, &format!("own-{round}")).await;
        desk.store
            .settle(&desk.tenant, settlements())
            .await
            .expect("settles");
        desk.duplicate(&again(&claim)).await;
    }
    let problems = desk.store.check().await.expect("checks");
    assert!(problems.is_empty(), "{problems:?}");
}
