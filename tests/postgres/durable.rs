//! What was acknowledged survives the server being killed under load.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use operators_tests::conformance::desk::{again, ask};
use operators_tests::postgres::own_server;

use crate::common::{End, desk, drive};

/// The server's own default loses acknowledged commits when it is killed (15 of 15, tried); the
/// store must not let it.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_no_acknowledged_burn() {
    let Some(server) = own_server(&["synchronous_commit=off", "wal_writer_delay=10s"]) else {
        return;
    };
    let url = server.url("postgres");
    let desk = desk(&url).await;
    let burned = Arc::new(Mutex::new(Vec::new()));
    let next = Arc::new(AtomicU32::new(0));
    let mut rounds = 0;
    for _ in 0..4 {
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let callers: Vec<_> = (0..16)
            .map(|_| {
                let (desk, burned, next) = (desk.clone(), Arc::clone(&burned), Arc::clone(&next));
                let stop = Arc::clone(&stop);
                tokio::spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        let claim = ask(&format!("entity-{}", n % 40), &format!("key-{n}"));
                        let end = drive(&desk, &claim).await.expect("rides it out");
                        assert_eq!(end, End::Ran);
                        burned.lock().expect("the lock").push(claim);
                    }
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.kill();
        server.wake().expect("starts again");
        tokio::time::sleep(Duration::from_millis(100)).await;
        stop.store(true, Ordering::Relaxed);
        for caller in callers {
            caller.await.expect("no panic");
        }
        rounds += 1;
    }
    let burned = burned.lock().expect("the lock").clone();
    assert!(
        rounds == 4 && burned.len() > 50,
        "too little happened: {}",
        burned.len()
    );
    for claim in &burned {
        let original = desk.duplicate(&again(claim)).await;
        assert_eq!(original.receipt_id, claim.proposal.receipt_id, "ran once");
    }
    println!("{} burns, 4 kills, none lost", burned.len());
}
