//! What survives: the handle that wrote it, and the process (8.1, 2.9).

use operators_kernel::life::Phase;
use operators_kernel::{Beat, Cursor, OwnerState, Reason, ReceiptFilter};

use super::desk::{Desk, LONG, again, applied, ask, failed, unknown};
use crate::fixtures::tenant;
use crate::stores::Bench;

/// By rules 8.1, 3.1.
pub async fn burned_keys_survive_a_restart(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask("order:1", "k1");
    desk.run(&claim, applied()).await;
    let before = (desk.key("k1").await, desk.entity("order:1").await);
    drop(desk);
    let desk = Desk::open(bench).await;
    assert_eq!(before, (desk.key("k1").await, desk.entity("order:1").await));
    desk.duplicate(&again(&claim)).await;
    let next = desk.take(&ask("order:1", "k2")).await;
    assert_eq!(next.mark.fence.map(|fence| fence.0), Some(2));
}

/// By rules 8.1, 4.4.
pub async fn doubts_survive_a_restart(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask("order:1", "k1");
    desk.run(&claim, unknown()).await;
    drop(desk);
    let desk = Desk::open(bench).await;
    let (doubts, _) = desk.store.doubts(&tenant()).await.expect("shows");
    assert_eq!(doubts, [desk.key("k1").await]);
    desk.refused_as(Reason::InDoubt, &again(&claim)).await;
    desk.refused_as(Reason::EntityInDoubt, &ask("order:1", "k2"))
        .await;
}

/// By rules 8.1, 5.4.
pub async fn receipts_survive_a_restart_and_go_on(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    desk.run(&ask("order:1", "k1"), applied()).await;
    desk.run(&ask("order:1", "k2"), failed()).await;
    let secret = desk.store.redaction_key(&tenant()).await.expect("a key");
    let before = desk.entries().await;
    drop(desk);
    let desk = Desk::open(bench).await;
    assert_eq!(desk.entries().await, before);
    let last = before.last().expect("a receipt").sequence;
    desk.run(&ask("order:1", "k3"), applied()).await;
    let all = ReceiptFilter::default();
    let later = desk
        .store
        .receipts(&tenant(), &all, Cursor::After(last), 9)
        .await;
    assert_eq!(later.expect("shows").len(), 1, "numbers go on");
    let same = desk.store.redaction_key(&tenant()).await.expect("a key");
    assert_eq!(secret.as_bytes(), same.as_bytes());
    assert!(desk.store.check().await.expect("checks").is_empty());
}

/// By rules 2.9, 4.3, 8.1: no lease has to run out for a process that is gone.
pub async fn a_process_that_ended_is_dead_at_once(bench: &dyn Bench) {
    let watcher = Desk::open(bench).await;
    let gone = Desk::lasting(bench, LONG).await;
    let (session, claim) = (gone.session, ask("order:1", "k1"));
    gone.take(&claim).await;
    watcher.queue(&ask("order:1", "k2")).await;
    drop(gone);
    // By rule 4.14: whoever looks sees it too, and changes nothing.
    let mut owner = OwnerState::Alive;
    for _ in 0..100 {
        let found = watcher.store.in_flight(&tenant()).await.expect("shows").0;
        owner = found.first().expect("still in flight").owner;
        if owner == OwnerState::Gone {
            break;
        }
        bench.wait(bench.unit() / 4).await;
    }
    assert_eq!(owner, OwnerState::Gone);
    assert_eq!(watcher.key("k1").await.phase, Phase::Intent);
    // The handle's thread ends a moment after the handle.
    for _ in 0..100 {
        let beat = watcher.store.heartbeat(watcher.session).await;
        assert_eq!(beat.expect("beats"), Beat::Alive);
        if watcher.key("k1").await.phase == Phase::InDoubt {
            break;
        }
        bench.wait(bench.unit() / 4).await;
    }
    assert_eq!(watcher.key("k1").await.phase, Phase::InDoubt);
    let beat = watcher.store.heartbeat(session).await;
    assert_eq!(beat.expect("beats"), Beat::Dead);
    watcher.receipt(&claim.proposal.receipt_id).await;
}
