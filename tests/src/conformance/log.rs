//! The tamper-evident log: every receipt is in it, in an order that stays (section 11).

use std::sync::Arc;

use operators_kernel::Verdict;
use operators_kernel::log::{
    Audit, Checkpoint, Findings, Frontier, LogEntry, LogFault, inspect, origin_of, still_holds,
};

use super::desk::{Desk, again, applied, ask, failed, it_happened, unknown};
use crate::stores::Bench;

/// Audits everything that can be audited.
pub async fn audited(desk: &Desk, checkpoints: Vec<Checkpoint>) -> Findings {
    let audit = Audit {
        checkpoints,
        is_against_store: true,
    };
    let log = desk.store.log();
    let found = inspect(log, &desk.tenant, audit, &mut |_, _| {}).await;
    found.expect("the store shows")
}

/// What the log is now.
pub async fn checkpoint(desk: &Desk) -> Checkpoint {
    let sequenced = desk.store.log().sequence(&desk.tenant).await;
    let head = sequenced.expect("sequenced").head;
    Checkpoint {
        origin: origin_of(&desk.tenant),
        size: head.size(),
        root: head.root(),
    }
}

async fn entries(desk: &Desk) -> Vec<LogEntry> {
    let found = desk.store.log().log_entries(&desk.tenant, 0, 1_000).await;
    found.expect("the store shows")
}

/// By rules 11.1, 11.2: one leaf per receipt, whatever it tells of.
pub async fn every_receipt_is_in_the_log(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    assert_eq!(checkpoint(&desk).await.size, 0);
    desk.run(&ask("order:1", "k1"), applied()).await;
    desk.duplicate(&again(&ask("order:1", "k1"))).await;
    desk.run(&ask("order:2", "k2"), failed()).await;
    let found = audited(&desk, Vec::new()).await;
    assert_eq!(found.faults, []);
    assert_eq!((found.size, found.keys), (3, Some(1)));
    let mut ids: Vec<String> = entries(&desk)
        .await
        .into_iter()
        .map(|e| e.receipt_id)
        .collect();
    let mut trail: Vec<String> = desk
        .trail()
        .await
        .into_iter()
        .map(|r| r.receipt_id.into())
        .collect();
    ids.sort();
    trail.sort();
    assert_eq!(ids, trail);
}

/// By rule 11.1: what was appended stays where it is, and the log only grows.
pub async fn what_is_in_the_log_stays_in_its_place(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let mut checkpoints = Vec::new();
    let mut before: Vec<LogEntry> = Vec::new();
    for round in 0..5 {
        for number in 0..=round {
            let name = format!("{round}-{number}");
            desk.run(&ask(&name, &name), applied()).await;
        }
        checkpoints.push(checkpoint(&desk).await);
        let now = entries(&desk).await;
        assert_eq!(now[..before.len()], before, "round {round}");
        before = now;
    }
    let found = audited(&desk, checkpoints).await;
    assert_eq!(found.faults, []);
    assert_eq!((found.size, found.checkpoints), (15, 5));
    let middle = desk.store.log().log_entries(&desk.tenant, 7, 3).await;
    assert_eq!(middle.expect("shown"), before[7..10]);
}

/// By rule 11.1: a tenant's log is its own.
pub async fn a_tenants_log_is_its_own(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let other = desk.of("other");
    desk.run(&ask("order:1", "k1"), applied()).await;
    other.run(&ask("order:1", "k1"), applied()).await;
    other.run(&ask("order:2", "k2"), applied()).await;
    assert_eq!(audited(&desk, Vec::new()).await.size, 1);
    let found = audited(&other, Vec::new()).await;
    assert_eq!(
        (found.size, found.keys, found.faults),
        (2, Some(2), Vec::new())
    );
    let foreign = audited(&desk, vec![checkpoint(&other).await]).await;
    let told = foreign.faults[0].to_string();
    assert!(told.contains("operators/other"), "{told}");
}

/// By rule 11.5: burned keys and receipts agree after everything that can happen to a key.
pub async fn keys_and_receipts_agree(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    desk.run(&ask("e1", "applied"), applied()).await;
    desk.run(&ask("e2", "failed"), failed()).await;
    desk.run(&ask("e3", "doubt"), unknown()).await;
    desk.run(&ask("e4", "seen"), unknown()).await;
    desk.resolve("seen", 1, it_happened()).await;
    desk.run(&ask("e5", "written-off"), unknown()).await;
    desk.resolve("written-off", 1, Verdict::WriteOff).await;
    desk.run(&ask("e6", "forgotten"), applied()).await;
    desk.forget("forgotten").await;
    desk.run(&ask("e7", "twice"), applied()).await;
    desk.forget("twice").await;
    desk.run(&again(&ask("e7", "twice")), applied()).await;
    let late = desk.run(&ask("e8", "late"), unknown()).await;
    desk.end(&late, applied()).await;
    let found = audited(&desk, Vec::new()).await;
    assert_eq!(found.faults, []);
    assert_eq!(
        found.keys,
        Some(5),
        "applied, seen, written-off, twice, late"
    );
}

/// By rules 11.1, 11.2: writers and sequencers at once leave one sound log with every receipt.
pub async fn writers_at_once_leave_one_sound_log(bench: &dyn Bench) {
    let desk = Arc::new(Desk::open(bench).await);
    let other = Arc::new(Desk::open(bench).await);
    let mut tasks = Vec::new();
    for number in 0..24 {
        let desk = Arc::clone(if number % 2 == 0 { &desk } else { &other });
        tasks.push(tokio::spawn(async move {
            let name = format!("k{number}");
            desk.run(&ask(&name, &name), applied()).await;
            if number % 4 == 0 {
                checkpoint(&desk).await;
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    let found = audited(&desk, vec![checkpoint(&other).await]).await;
    assert_eq!((found.size, found.faults), (24, Vec::new()));
}

/// By rule 11.1: another handle finds the same log and goes on with it.
pub async fn another_handle_goes_on_with_the_log(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    desk.run(&ask("order:1", "k1"), applied()).await;
    let first = checkpoint(&desk).await;
    let other = Desk::open(bench).await;
    other.run(&ask("order:2", "k2"), applied()).await;
    let second = checkpoint(&other).await;
    assert_eq!((first.size, second.size), (1, 2));
    let found = audited(&other, vec![first, second]).await;
    assert_eq!((found.checkpoints, found.faults), (2, Vec::new()));
}

/// By rule 8.6: what was signed is found at its place, however far the log has grown; another log of
/// the same length, or a shorter one, does not hold it.
pub async fn what_was_signed_is_found_at_its_place(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let other = desk.of("other");
    let mut signed = vec![Frontier::default()];
    for number in 0..4 {
        let name = format!("k{number}");
        desk.run(&ask(&name, &name), applied()).await;
        let sequenced = desk.store.log().sequence(&desk.tenant).await;
        signed.push(sequenced.expect("sequenced").head);
        other.run(&ask(&name, &name), applied()).await;
    }
    checkpoint(&other).await;
    let log = desk.store.log();
    for (size, signed) in signed.iter().enumerate() {
        let held = still_holds(log, &desk.tenant, signed).await;
        assert_eq!(held.expect("shown"), Ok(()), "{size}");
        let held = still_holds(log, &other.tenant, signed).await;
        let held = held.expect("shown");
        match size {
            0 => assert_eq!(held, Ok(())),
            _ => assert!(
                matches!(&held, Err(LogFault::NotAsSigned { number, .. }) if *number == size as u64),
                "{held:?}"
            ),
        }
        let held = still_holds(log, &desk.of("nobody").tenant, signed).await;
        let fault = LogFault::RolledBack {
            found: 0,
            size: size as u64,
        };
        let expected = if size == 0 { Ok(()) } else { Err(fault) };
        assert_eq!(held.expect("shown"), expected);
    }
}
