//! Time without clocks: what a process has watched itself, and what the store's dates say.

use std::time::{Duration, Instant};

use operators_kernel::life::Phase;
use operators_kernel::{Beat, ClaimAnswer, EffectClass, Reason, ResolveAnswer, Verdict};
use operators_tests::conformance::desk::{again, applied, ask, ask_as, unknown};

use crate::common::{onlooker, process, process_lasting, table};

const LEASE: Duration = Duration::from_millis(900);

/// Rules 2.9, 4.3: whoever comes new watches for one whole lease before it takes over.
#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_takes_over_after_it_has_watched_for_a_lease() {
    let Some((url, _, _)) = table().await else {
        return;
    };
    let gone = process_lasting(&url, LEASE).await;
    gone.take(&ask("order:1", "k1")).await;
    tokio::time::sleep(LEASE * 2).await;
    let begun = Instant::now();
    let newcomer = process(&url).await;
    let mut claim = ask("order:1", "k2");
    let reason = loop {
        match newcomer.ask(&claim).await {
            ClaimAnswer::Wait(ticket) => {
                claim.ticket = Some(ticket);
                let (tenant, entity) = (&newcomer.tenant, &claim.proposal.entity_key);
                newcomer.store.wait(tenant, entity, ticket, 1).await;
            }
            ClaimAnswer::Refused { refusal, .. } => break refusal.reason,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(reason, Reason::EntityInDoubt);
    assert!(begun.elapsed() >= LEASE, "{:?}", begun.elapsed());
    assert_eq!(newcomer.key("k1").await.phase, Phase::InDoubt);
    let beat = gone.store.heartbeat(gone.session).await;
    assert_eq!(beat.expect("beats"), Beat::Dead);
}

/// Rule 2.9: a heartbeat alone finds out too, without anybody who wants the entity.
#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_find_what_a_dead_process_left() {
    let Some((url, _, _)) = table().await else {
        return;
    };
    let gone = process_lasting(&url, LEASE).await;
    gone.take(&ask("order:1", "k1")).await;
    let watcher = process(&url).await;
    for _ in 0..20 {
        let beat = watcher.store.heartbeat(watcher.session).await;
        assert_eq!(beat.expect("beats"), Beat::Alive);
        tokio::time::sleep(LEASE / 3).await;
        if watcher.key("k1").await.phase == Phase::InDoubt {
            let (doubts, _) = watcher.store.doubts(&watcher.tenant).await.expect("shows");
            assert_eq!(doubts.len(), 1);
            return;
        }
    }
    panic!("never found");
}

/// Rule 2.9: and whoever beats is never taken for dead, however long others watch.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_beats_keeps_its_turn() {
    let Some((url, _, _)) = table().await else {
        return;
    };
    let holder = process_lasting(&url, LEASE).await;
    let attempt = holder.take(&ask("order:1", "k1")).await;
    let watcher = process(&url).await;
    let mut claim = ask("order:1", "k2");
    for _ in 0..12 {
        tokio::time::sleep(LEASE / 4).await;
        let beat = holder.store.heartbeat(holder.session).await;
        assert_eq!(beat.expect("beats"), Beat::Alive);
        claim.ticket = Some(watcher.queue(&claim).await);
    }
    holder.end(&attempt, applied()).await;
    watcher.take(&claim).await;
}

/// Rule 4.6: a process that did not see the intent counts from when it first saw it.
#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_believes_not_applied_after_it_has_watched_long_enough() {
    let Some((url, _, _)) = table().await else {
        return;
    };
    let desk = process(&url).await;
    let mut claim = ask("order:1", "k1");
    claim.deadline = LEASE;
    desk.run(&claim, unknown()).await;
    tokio::time::sleep(LEASE).await;
    let newcomer = onlooker(&url).await;
    let early = newcomer.resolve("k1", 1, Verdict::NotApplied).await;
    let ResolveAnswer::MayStillLand(left) = early else {
        panic!("believed at once: {early:?}")
    };
    assert!(left > LEASE / 2 && left < LEASE * 2, "{left:?}");
    tokio::time::sleep(left).await;
    let late = newcomer.resolve("k1", 1, Verdict::NotApplied).await;
    assert_eq!(late, ResolveAnswer::Resolved(Phase::Failed));
}

/// Rule 4.5: the vendor's window is judged by the store's own dates, and in doubt it is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_sends_a_keyed_doubt_again_only_where_the_window_is_surely_open() {
    let Some((url, _, _)) = table().await else {
        return;
    };
    let desk = process(&url).await;
    let keyed = |window_ms, entity, key| {
        let mut claim = ask_as(EffectClass::Keyed { window_ms }, entity, key);
        // Nothing beside the window.
        claim.deadline = Duration::from_millis(100);
        claim
    };
    let wide = keyed(3_600_000, "order:1", "k1");
    let narrow = keyed(3_000, "order:2", "k2");
    desk.run(&wide, unknown()).await;
    desk.run(&narrow, unknown()).await;
    let newcomer = process(&url).await;
    newcomer.refused_as(Reason::InDoubt, &again(&narrow)).await;
    let attempt = newcomer.take(&again(&wide)).await;
    assert_eq!(attempt.mark.attempt, 2);
    // Whoever made the attempt knows better.
    assert_eq!(desk.take(&again(&narrow)).await.mark.attempt, 2);
}
