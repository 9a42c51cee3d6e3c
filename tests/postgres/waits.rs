//! What was looked at before a wait for a lock, and is otherwise after it.

use std::time::Duration;

use operators_kernel::life::Phase;
use operators_kernel::{Beat, ClaimAnswer, Reason};
use operators_tests::conformance::desk::{again, applied, ask, failed, unheard, unknown};
use operators_tests::postgres::{connect, run};
use operators_tests::proxy::{Fate, Proxy};
use sqlx::Row;

use crate::common::{database, desk};

/// Rules 5.1, 8.3. A claim whose batch waits for the turn of another is asked about again and refused.
/// Whether it had its receipt was looked at before that wait only, and it was granted under the
/// receipt of its refusal. Of a key that nobody knew, and of one that was free again.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_refused_while_its_batch_waited_is_not_granted() {
    for is_new in [true, false] {
        let Some(database) = database().await else {
            return;
        };
        let url = database.url();
        let proxy = Proxy::before(&url);
        let (stuck, mut other) = (desk(proxy.url()).await, desk(&url).await);
        other.session = stuck.session;
        let mut claims = Vec::new();
        for name in ["e0", "e1", "e2"] {
            let mut claim = ask(name, &format!("k-{name}"));
            if !is_new {
                other.run(&claim, failed()).await;
                claim = again(&claim);
            }
            claims.push(stuck.filled(&claim));
        }
        let mut holder = hold(&url, "e0").await;
        proxy.next("claim", [Fate::HangUp]);
        let asked = stuck.store.claim(&stuck.tenant, claims.clone()).await;
        asked.expect_err("its connection broke");
        while waiting(&url).await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let doubt = other.take(&ask("e1", "doubt")).await;
        other.end(&doubt, unknown()).await;
        let refused = unheard(&claims[1]);
        other.refused_as(Reason::EntityInDoubt, &refused).await;
        other.end(&doubt, failed()).await;
        let unlocked = sqlx::raw_sql("COMMIT").execute(&mut holder).await;
        unlocked.expect("lets go");
        // Those beside it are granted, and found by whoever asks again.
        for beside in [0, 2] {
            let ClaimAnswer::Claimed(mark) = other.ask(&unheard(&claims[beside])).await else {
                panic!("not granted, new: {is_new}");
            };
            assert_eq!(mark.attempt, if is_new { 1 } else { 2 });
        }
        let found = other.find("k-e1").await.map(|found| found.phase);
        assert_eq!(found, (!is_new).then_some(Phase::Failed), "new: {is_new}");
        other.run(&ask("e1", "next"), applied()).await;
    }
}

/// Rule 3.2. A claim looks at its key before it waits for its turn. What became of the key during the
/// wait, on another entity, is found when the intent is written: alone and in a batch, of a key that
/// nobody knew and of one that was free again.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_burned_while_its_claim_waited_is_not_claimed() {
    for (many, is_new) in [(1, true), (3, true), (1, false), (3, false)] {
        let Some(database) = database().await else {
            return;
        };
        let url = database.url();
        let (waits, other) = (desk(&url).await, desk(&url).await);
        let mut claims = Vec::new();
        for n in 0..many {
            let mut claim = ask(&format!("e{n}"), &format!("k{n}"));
            if !is_new {
                other.run(&claim, failed()).await;
                claim = again(&claim);
            }
            claims.push(waits.filled(&claim));
        }
        let mut holder = hold(&url, "e0").await;
        let asking = waits.clone();
        let asked = tokio::spawn(async move { asking.store.claim(&asking.tenant, claims).await });
        while waiting(&url).await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        other.run(&ask("elsewhere", "k0"), applied()).await;
        let unlocked = sqlx::raw_sql("COMMIT").execute(&mut holder).await;
        unlocked.expect("lets go");
        let answers = asked.await.expect("no panic").expect("answers");
        let ClaimAnswer::Refused { refusal, .. } = &answers[0] else {
            panic!("{many}, new: {is_new}: {:?}", answers[0]);
        };
        assert_eq!(refusal.reason, Reason::Conflict);
        let is_granted = |answer: &ClaimAnswer| matches!(answer, ClaimAnswer::Claimed(_));
        assert!(answers[1..].iter().all(is_granted), "{answers:?}");
        assert_eq!(other.key("k0").await.phase, Phase::Applied);
        other.run(&ask("e0", "next"), applied()).await;
    }
}

/// Rule 2.9. A heartbeat that comes while its session is being buried is not told that it lives.
#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_that_meets_its_burial_waits_for_it() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let desk = desk(&url).await;
    let mut burying = connect(&url).await;
    let estate = format!(
        "BEGIN; SELECT * FROM operators.estate('', {}, NULL, NULL)",
        desk.session
    );
    let begun = sqlx::raw_sql(sqlx::AssertSqlSafe(estate)).execute(&mut burying);
    begun.await.expect("begins");
    let beating = desk.clone();
    let beat = tokio::spawn(async move { beating.store.heartbeat(beating.session).await });
    while waiting(&url).await == 0 {
        assert!(!beat.is_finished(), "it was told: {:?}", beat.await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let dead = format!(
        "UPDATE operators.session SET dead_at = 1 WHERE session_id = {}; COMMIT",
        desk.session
    );
    let done = sqlx::raw_sql(sqlx::AssertSqlSafe(dead)).execute(&mut burying);
    done.await.expect("commits");
    assert_eq!(beat.await.expect("no panic"), Ok(Beat::Dead));
}

/// Holds the row of an entity, as somebody who is deciding about it.
async fn hold(url: &str, entity: &str) -> sqlx::PgConnection {
    let mut holder = connect(url).await;
    let lock = format!(
        "BEGIN; INSERT INTO operators.entity (tenant, entity_key) VALUES ('acme', '{entity}') \
         ON CONFLICT (tenant, entity_key) DO UPDATE SET fence = entity.fence"
    );
    let locked = sqlx::raw_sql(sqlx::AssertSqlSafe(lock)).execute(&mut holder);
    locked.await.expect("locks");
    holder
}

/// How many statements wait for a lock.
async fn waiting(url: &str) -> i64 {
    let waits = "SELECT count(*) FROM pg_stat_activity \
        WHERE wait_event_type = 'Lock' AND datname = current_database()";
    run(url, waits).await[0].get(0)
}
