//! Turns between processes: bells, and what sessions leave behind.

use std::time::{Duration, Instant};

use operators_kernel::life::Phase;
use operators_kernel::{Beat, ClaimAnswer, Reason, Settlement};
use operators_tests::conformance::desk::{Desk, applied, ask, failed};
use operators_tests::crowds::leave_while_waiting;
use operators_tests::fixtures::entity;
use operators_tests::postgres::{connect, run};
use sqlx::Row;

use crate::common::{database, desk, desk_lasting};

/// Whoever waits is woken by the settle itself, long before it would look again by the clock.
#[tokio::test(flavor = "multi_thread")]
async fn a_settle_wakes_whoever_waits() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let (one, other) = (desk(&url).await, desk(&url).await);
    let mut quickest = Duration::MAX;
    for round in 0..12 {
        let attempt = one.take(&ask("e", &format!("one-{round}"))).await;
        let mut claim = ask("e", &format!("other-{round}"));
        let ticket = other.queue(&claim).await;
        let waiting = {
            let other = other.clone();
            // Asked for the eighth time, it would sleep for 400 ms.
            tokio::spawn(async move {
                other
                    .store
                    .wait(&other.tenant, &entity("e"), ticket, 8)
                    .await;
                Instant::now()
            })
        };
        tokio::time::sleep(Duration::from_millis(60)).await;
        let settled = Instant::now();
        one.end(&attempt, applied()).await;
        let woken = waiting.await.expect("no panic");
        if round > 0 {
            quickest = quickest.min(woken.saturating_duration_since(settled));
        }
        claim.ticket = Some(ticket);
        other.run(&claim, applied()).await;
        if round == 0 {
            // The first wait makes it listen.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
    assert!(
        quickest < Duration::from_millis(100),
        "woken after {quickest:?} at best"
    );
}

/// Rule 2.7.
#[tokio::test(flavor = "multi_thread")]
async fn callers_that_leave_while_they_wait_at_the_store_send_nothing() {
    let Some(database) = database().await else {
        return;
    };
    let (one, other) = (desk(&database.url()).await, desk(&database.url()).await);
    leave_while_waiting(one.store, other.store, 200).await;
}

/// A claim that was on its way while its session was buried leaves an intent that nobody watches;
/// the next heartbeat, of whomever, makes a doubt of it (rule 4.3).
#[tokio::test]
async fn an_intent_that_came_after_its_sessions_death_becomes_a_doubt() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let (one, other) = (desk(&url).await, desk(&url).await);
    one.take(&ask("e", "k")).await;
    let sql = format!(
        "UPDATE operators.session SET dead_at = 1 WHERE session_id = {}",
        one.session
    );
    run(&url, &sql).await;
    assert_eq!(other.key("k").await.phase, Phase::Intent);
    let beat = other.store.heartbeat(other.session).await.expect("beats");
    assert_eq!(beat, Beat::Alive);
    assert_eq!(other.key("k").await.phase, Phase::InDoubt);
    assert_eq!(other.trail().await.len(), 1);
}

#[tokio::test]
async fn a_turn_held_by_the_dead_without_an_intent_is_given_up() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let one = desk(&url).await;
    one.run(&ask("e", "k1"), applied()).await;
    run(&url, "UPDATE operators.entity SET holder = 424242").await;
    assert_eq!(one.store.check().await.expect("checks").len(), 1);
    one.run(&ask("e", "k2"), applied()).await;
    assert!(one.store.check().await.expect("checks").is_empty());
}

#[tokio::test]
async fn a_lease_is_judged_by_the_servers_clock() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let brief = desk_lasting(&url, Duration::from_millis(300)).await;
    let other = desk(&url).await;
    brief.take(&ask("e", "k")).await;
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let beat = brief.store.heartbeat(brief.session).await.expect("beats");
        assert_eq!(beat, Beat::Alive);
        other.store.heartbeat(other.session).await.expect("beats");
    }
    assert_eq!(other.key("k").await.phase, Phase::Intent);
    tokio::time::sleep(Duration::from_millis(400)).await;
    other.store.heartbeat(other.session).await.expect("beats");
    assert_eq!(other.key("k").await.phase, Phase::InDoubt);
    let beat = brief.store.heartbeat(brief.session).await.expect("beats");
    assert_eq!(beat, Beat::Dead);
}

/// Rule 2.6. Between the look at a key and its intent another process may claim it, on another
/// entity: the turn that was taken for it is given up. By one statement, alone and in a batch, and
/// under locks, which is where a claim goes whose process saw the key burned. There the other
/// process's record was written over once, and both claims stood.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_comes_meanwhile_leaves_no_turn_behind() {
    for (many, saw_it_burned) in [(1, false), (2, false), (1, true), (2, true)] {
        let Some(database) = database().await else {
            return;
        };
        let url = database.url();
        let first = desk(&url).await;
        first.run(&ask("theirs", "k"), applied()).await;
        let desk = if saw_it_burned {
            first
        } else {
            desk(&url).await
        };
        let aside = "CREATE TABLE aside AS SELECT * FROM operators.key; DELETE FROM operators.key";
        run(&url, aside).await;
        let mut other = connect(&url).await;
        sqlx::raw_sql("BEGIN; INSERT INTO operators.key SELECT * FROM aside")
            .execute(&mut other)
            .await
            .expect("inserts");

        let mut claims = vec![desk.filled(&ask("ours", "k"))];
        claims.extend((1..many).map(|n| desk.filled(&ask(&format!("e{n}"), &format!("k{n}")))));
        let asking = desk.clone();
        let asked = tokio::spawn(async move { asking.store.claim(&asking.tenant, claims).await });
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                     AND datname = current_database()";
        while run(&url, waits).await[0].get::<i64, _>(0) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        sqlx::raw_sql("COMMIT")
            .execute(&mut other)
            .await
            .expect("commits");

        let answers = asked.await.expect("no panic").expect("answers");
        let ClaimAnswer::Refused { refusal, .. } = &answers[0] else {
            panic!("granted twice: {answers:?}");
        };
        assert_eq!(refusal.reason, Reason::Conflict);
        let granted = |answer: &&ClaimAnswer| matches!(answer, ClaimAnswer::Claimed(_));
        assert_eq!(answers.iter().filter(granted).count(), many - 1);
        assert_eq!(desk.entity("ours").await.holder, None, "no turn is left");
    }
}

/// Claims of that many keys, each granted on an entity of its own.
async fn take(desk: &Desk, many: usize) -> Vec<Settlement> {
    let mut ends = Vec::new();
    for n in 0..many {
        ends.push(desk.take(&ask(&format!("e{n}"), &format!("k{n}"))).await);
    }
    ends
}

/// Rule 2.1. A settlement that finds its key at a later attempt releases nobody's turn, alone
/// and in a batch.
#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_of_an_earlier_attempt_leaves_the_turn_as_it_is() {
    for many in [1, 2] {
        let Some(database) = database().await else {
            return;
        };
        let url = database.url();
        let desk = desk(&url).await;
        let mut ends = take(&desk, many).await;
        for end in &mut ends {
            end.outcome = failed();
        }
        let later = "UPDATE operators.key SET attempt = attempt + 1 WHERE idempotency_key = 'k0'";
        run(&url, later).await;
        let settled = desk.store.settle(&desk.tenant, ends.clone()).await;
        assert_eq!(settled.expect("answers").len(), many);
        let holder = desk.entity("e0").await.holder;
        assert_eq!(holder, Some(ends[0].session), "the later attempt's turn");
        assert_eq!(desk.key("k0").await.phase, Phase::Intent);
    }
}

/// Rule 5.1. A key whose row somebody deleted while its call was on the way cannot be settled: that is
/// told, alone and in a batch, no receipt claims otherwise, and nobody else gets the turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_whose_key_was_deleted_is_told_and_keeps_the_turn() {
    for many in [1, 2] {
        let Some(database) = database().await else {
            return;
        };
        let url = database.url();
        let desk = desk(&url).await;
        let ends = take(&desk, many).await;
        run(
            &url,
            "DELETE FROM operators.key WHERE idempotency_key = 'k0'",
        )
        .await;
        let settled = desk.store.settle(&desk.tenant, ends.clone()).await;
        let error = settled.expect_err("nothing to settle");
        assert!(!error.is_retryable(), "{error}");
        assert!(error.to_string().contains("`k0`"), "{error}");
        let holder = desk.entity("e0").await.holder;
        assert_eq!(holder, Some(ends[0].session), "nobody knows what happened");
        let told = |entry: &operators_kernel::Receipt| entry.idempotency_key.as_str() == "k0";
        assert!(!desk.trail().await.iter().any(told), "no receipt of it");
    }
}
