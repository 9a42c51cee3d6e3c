//! Answers that get lost, and connections that end, at any moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use operators_kernel::life::Phase;
use operators_kernel::{
    ClaimAnswer, Forget, Order, Person, Reason, Resolution, Resolver, Settlement, StoreError,
    Verdict,
};
use operators_tests::conformance::desk::{
    Desk, again, applied, ask, failed, fresh_id, moment, unheard, unknown,
};
use operators_tests::fixtures::key;
use operators_tests::postgres::run;
use operators_tests::proxy::{Fate, Proxy};
use sqlx::Row;

use crate::common::{End, database, desk, drive, settlement};
use crate::pauses::direct;

/// The next answers are lost, each with its connection.
fn lose(proxy: &Proxy, answers: u32) {
    let mut left = answers;
    proxy.rule(move |_| match left.checked_sub(1) {
        Some(fewer) => {
            left = fewer;
            Fate::LoseAnswer
        }
        None => Fate::Pass,
    });
}

// Rule 8.3.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_again_after_its_answer_was_lost_changes_nothing() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let proxy = Proxy::before(&url);
    let desk = desk(proxy.url()).await;
    for round in 0..12_u32 {
        // What is no claim is asked again once by the store itself, more often by its caller.
        let lost = round % 3 + 1;
        let claim = ask(&format!("e-{round}"), &format!("k-{round}"));
        let mut asked = 0;
        lose(&proxy, lost);
        let answer = loop {
            asked += 1;
            match desk.try_ask(&claim).await {
                Ok(answer) => break answer,
                Err(error) => assert!(error.is_retryable() && asked < 9, "{error}"),
            }
        };
        let settlement = settlement(&desk, &claim, &answer).expect("granted");
        assert_eq!(settlement.mark.attempt, 1, "one intent");

        // Another proposal waits in line, and takes one place however often it asks.
        lose(&proxy, lost);
        let other = ask(&format!("e-{round}"), &format!("other-{round}"));
        let mut asked = 0;
        let ticket = loop {
            asked += 1;
            match desk.try_ask(&other).await {
                Ok(ClaimAnswer::Wait(ticket)) => break ticket,
                Ok(other) => panic!("did not have to wait: {other:?}"),
                Err(error) => assert!(error.is_retryable() && asked < 9, "{error}"),
            }
        };
        let waiting = run(&url, "SELECT ticket FROM operators.waiter").await;
        assert_eq!(waiting.len(), 1, "one place");
        assert_eq!(u64::try_from(waiting[0].get::<i64, _>(0)), Ok(ticket.0));

        lose(&proxy, lost);
        crate::common::settle(&desk, settlement)
            .await
            .expect("settles");
        lose(&proxy, 0);
        let mut other = other;
        other.ticket = Some(ticket);
        desk.run(&other, applied()).await;
    }
    assert_eq!(desk.trail().await.len(), 24, "one receipt a proposal");
}

/// Rule 8.3. The store used to ask again by itself when a connection that had been lying idle broke,
/// and did not say that it was asking again: a proposal that was refused, and whose answer was lost,
/// could be granted under the receipt of its refusal.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_answer_is_lost_on_an_idle_connection_is_told_not_asked_again() {
    let Some(database) = database().await else {
        return;
    };
    let proxy = Proxy::before(&database.url());
    let desk = desk(proxy.url()).await;
    desk.run(&ask("order:0", "k0"), applied()).await;
    for (statement, entity, key) in [("claim", "order:1", "k1"), ("write", "order:1", "k2")] {
        proxy.take();
        proxy.next(statement, [Fate::LoseAnswer]);
        let claim = ask(entity, key);
        let error = desk.try_ask(&claim).await.expect_err("its answer is lost");
        assert!(error.is_retryable(), "{error}");
        let asked = proxy.take();
        let times = asked.iter().filter(|name| *name == statement).count();
        assert_eq!(times, 1, "{asked:?}");
        let mut unheard = claim;
        unheard.asked_before = true;
        desk.try_ask(&unheard).await.expect("found as it was left");
    }
}

/// Rule 8.2. The server ends a transaction of the store that stands still for 3 s; what it says then
/// was taken for a reason to give up, and an outcome that was known was left as a doubt.
#[tokio::test(flavor = "multi_thread")]
async fn a_settle_that_stood_still_for_too_long_is_asked_again() {
    let Some(database) = database().await else {
        return;
    };
    let proxy = Proxy::before(&database.url());
    let desk = desk(proxy.url()).await;
    let attempt = desk.take(&ask("order:1", "k1")).await;
    proxy.next("write", [Fate::Delay(Duration::from_secs(4))]);
    // Decided under locks.
    let settlement = Settlement {
        outcome: unknown(),
        ..attempt
    };
    let settled = desk.store.settle(&desk.tenant, vec![settlement]).await;
    let settled = settled.expect("asked again on another connection");
    assert_eq!(settled[0].phase, Phase::InDoubt);
    assert_eq!(desk.trail().await.len(), 1);
}

/// One order of a person, by its name.
async fn order(desk: &Desk, name: &str) -> Result<(), StoreError> {
    let (by, note, at) = (Person::from("ada"), None, moment());
    match name {
        "pause" => direct(desk, Order::Pause(None)).await.map(drop),
        "resume" => direct(desk, Order::Resume(None)).await.map(drop),
        "forget" => {
            let wish = Forget {
                key: key("burned"),
                by,
                note,
                receipt_id: fresh_id(),
                at,
            };
            desk.store.forget(&desk.tenant, wish).await.map(drop)
        }
        _ => {
            let resolution = Resolution {
                key: key("doubt"),
                generation: 1,
                attempt: 1,
                verdict: Verdict::WriteOff,
                by: Resolver::Person(by),
                note,
                receipt_id: fresh_id(),
                result_digest: None,
                at,
            };
            desk.store.resolve(&desk.tenant, resolution).await.map(drop)
        }
    }
}

/// Rule 8.3. What a person orders is not the same when it is asked twice: a resume would lift a pause
/// that somebody set in between, and a forget the generation that was applied in between. The store
/// used to ask again by itself when the answer was lost on an idle connection.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_orders_is_told_not_asked_again_when_its_answer_is_lost() {
    let Some(database) = database().await else {
        return;
    };
    let proxy = Proxy::before(&database.url());
    let desk = desk(proxy.url()).await;
    desk.run(&ask("order:1", "burned"), applied()).await;
    desk.run(&ask("order:2", "doubt"), unknown()).await;
    let before = desk.trail().await.len();
    for name in ["pause", "resume", "forget", "resolve"] {
        proxy.take();
        proxy.next("write", [Fate::LoseAnswer]);
        let error = order(&desk, name).await;
        let error = error.expect_err(&format!("the answer to {name} is lost"));
        assert!(error.is_retryable(), "{name}: {error}");
        let said = error.to_string();
        assert!(
            said.contains("whether it was done is not known: look"),
            "{name}: {said}"
        );
        let asked = proxy.take();
        let times = asked.iter().filter(|seen| *seen == "write").count();
        assert_eq!(times, 1, "{name}: {asked:?}");
    }
    assert_eq!(desk.trail().await.len(), before + 4, "each was done once");
    assert_eq!(desk.key("burned").await.generation, 2);
}

/// Rules 5.1, 8.3. A claim that is stuck on its way is asked about again and refused, and only then
/// arrives: it was granted under the receipt of its refusal. Alone and in a batch, of a key that
/// nobody knew and of one that was free again.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_arrives_after_it_was_refused_is_not_granted() {
    for (many, is_new) in [(1, true), (2, true), (1, false), (2, false)] {
        let Some(database) = database().await else {
            return;
        };
        let url = database.url();
        let proxy = Proxy::before(&url);
        let (stuck, mut other) = (desk(proxy.url()).await, desk(&url).await);
        other.session = stuck.session;
        let mut claims = Vec::new();
        for n in 0..many {
            let mut claim = ask(&format!("e{n}"), &format!("k{n}"));
            if !is_new {
                other.run(&claim, failed()).await;
                claim = again(&claim);
            }
            claims.push(stuck.filled(&claim));
        }
        proxy.next("claim", [Fate::Delay(Duration::from_millis(700))]);
        let asked = stuck.store.claim(&stuck.tenant, claims.clone());
        let asked = tokio::time::timeout(Duration::from_millis(100), asked).await;
        asked.expect_err("its caller gives up");
        direct(&other, Order::Pause(None)).await.expect("pauses");
        for claim in &claims {
            other.refused_as(Reason::Paused, &unheard(claim)).await;
        }
        direct(&other, Order::Resume(None)).await.expect("resumes");
        tokio::time::sleep(Duration::from_millis(900)).await;
        for n in 0..many {
            let found = other.find(&format!("k{n}")).await.map(|found| found.phase);
            let free = (!is_new).then_some(Phase::Failed);
            assert_eq!(found, free, "{many}, new: {is_new}");
            assert_eq!(other.entity(&format!("e{n}")).await.holder, None);
        }
    }
}

/// Rule 2.9. A process that was cut off, or frozen, in the middle of a transaction used to keep what
/// that had locked for as long as the server believed in its connection: two hours.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_whose_owner_was_cut_off_holds_nobody_up_for_long() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let proxy = Proxy::before(&url);
    let (holder, cut_off) = (desk(&url).await, desk(proxy.url()).await);
    let first = ask("order:1", "k1");
    let answer = holder.try_ask(&first).await.expect("an answer");
    let held = settlement(&holder, &first, &answer).expect("granted");
    // It locks the entity to take a place in its queue, and is never heard of again.
    proxy.next("write", [Fate::Void]);
    let queueing = tokio::spawn(async move { cut_off.try_ask(&ask("order:1", "k2")).await });
    while !proxy.take().iter().any(|name| name == "write") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let start = Instant::now();
    let patience = Duration::from_secs(20);
    let settling = crate::common::settle(&holder, held);
    let settled = tokio::time::timeout(patience, settling).await;
    let settled = settled.unwrap_or_else(|_| panic!("still held up after {patience:?}"));
    settled.expect("settles");
    println!("held up for {:?}", start.elapsed());
    queueing.abort();
    holder.run(&ask("order:1", "k3"), applied()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_end_at_random_lose_nothing_and_double_nothing() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let desks: Vec<Desk> = [desk(&url).await, desk(&url).await].into();
    let stop = Arc::new(AtomicBool::new(false));
    let killer = {
        let (url, stop) = (url.clone(), Arc::clone(&stop));
        tokio::spawn(async move {
            let mut ended = 0;
            while !stop.load(Ordering::Relaxed) {
                let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                           WHERE datname = current_database() AND pid <> pg_backend_pid() \
                           AND random() < 0.3";
                ended += run(&url, sql).await[0].get::<i64, _>(0);
                tokio::time::sleep(Duration::from_millis(15)).await;
            }
            ended
        })
    };
    let callers: Vec<_> = (0..24_usize)
        .map(|caller| {
            let desk = desks[caller % desks.len()].clone();
            tokio::spawn(async move {
                for n in 0..25 {
                    // Entities are shared, so some wait; keys are not.
                    let claim = ask(&format!("e-{}", n % 9), &format!("k-{caller}-{n}"));
                    assert_eq!(drive(&desk, &claim).await.expect("rides it out"), End::Ran);
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no panic");
    }
    stop.store(true, Ordering::Relaxed);
    let ended = killer.await.expect("no panic");
    assert!(ended > 20, "only {ended} connections ended");
    let desk = desk(&url).await;
    let trail = desk.trail().await;
    assert_eq!(trail.len(), 600, "one receipt a proposal");
    assert!(
        trail
            .iter()
            .all(|receipt| receipt.ok && receipt.attempt == 1)
    );
    for (caller, n) in [(0, 0), (7, 13), (23, 24)] {
        assert_eq!(
            desk.key(&format!("k-{caller}-{n}")).await.phase,
            Phase::Applied
        );
    }
    let problems = desk.store.check().await.expect("checks");
    assert!(problems.is_empty(), "{problems:?}");
    desk.duplicate(&again(&ask("e-0", "k-0-0"))).await;
    println!("600 actions, {ended} connections ended");
}
