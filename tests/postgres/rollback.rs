//! A store that forgot what it acknowledged is refused (rule 8.6).

use operators_kernel::{Claim, ClaimAnswer, Clearance, Reason, Refusal, StoreError};
use operators_tests::conformance::desk::{Desk, again, applied, ask};
use operators_tests::postgres::{as_server, own_server, run};
use sqlx::Row;

use crate::common::{database, desk, settlement};

fn copy(from: &std::path::Path, to: &std::path::Path) {
    let copied = as_server("/bin/cp".as_ref())
        .arg("-a")
        .arg(from)
        .arg(to)
        .status();
    assert!(copied.expect("cp").success());
}

/// Asks once more when the connection turns out to have ended with the server, as a caller does.
async fn ask_after_a_restart(desk: &Desk, claim: &Claim) -> Result<ClaimAnswer, StoreError> {
    match desk.try_ask(claim).await {
        Err(error) if error.is_retryable() => desk.try_ask(claim).await,
        answer => answer,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_restored_from_an_older_copy_is_refused() {
    let Some(server) = own_server(&["fsync=off"]) else {
        return;
    };
    let url = server.url("postgres");
    let first = desk(&url).await;
    first.run(&ask("e1", "k1"), applied()).await;
    server.stop();
    let (data, copied) = (server.data(), server.data().with_file_name("older"));
    copy(&data, &copied);
    server.wake().expect("starts");

    // A restart alone is nothing: what was acknowledged is there.
    let repeated = ask_after_a_restart(&first, &again(&ask("e1", "k1"))).await;
    let repeated = repeated.expect("an answer");
    assert!(
        matches!(repeated, ClaimAnswer::Duplicate { .. }),
        "{repeated:?}"
    );
    first.run(&ask("e2", "k2"), applied()).await;
    let fresh = desk(&url).await;
    server.stop();
    std::fs::remove_dir_all(&data).expect("removes");
    copy(&copied, &data);
    server.wake().expect("starts");

    // `k2` is burned, and the store does not know: nothing more is done there.
    for _ in 0..3 {
        let asked = ask_after_a_restart(&first, &ask("e2", "k2")).await;
        let error = asked.expect_err("refused");
        assert!(matches!(error, StoreError::Unusable { .. }), "{error}");
        assert!(error.to_string().contains("store rolled back"), "{error}");
    }
    let error = first
        .store
        .heartbeat(first.session)
        .await
        .expect_err("refused");
    assert!(error.to_string().contains("store rolled back"), "{error}");
    // A process that was told nothing here has nothing to miss; its session is gone, though.
    let asked = ask_after_a_restart(&fresh, &ask("e3", "k3")).await;
    let error = asked.expect_err("its session is gone");
    assert!(matches!(error, StoreError::SessionDead { .. }), "{error}");
}

/// Every statement of the common cases looks for what was acknowledged before: alone or in company,
/// whatever it is about to write. Rule 8.6.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_comes_next_finds_that_a_receipt_is_gone() {
    for many in [1_usize, 3] {
        for next in ["new", "duplicate", "refused", "settle"] {
            let Some(database) = database().await else {
                return;
            };
            let url = database.url();
            let desk = desk(&url).await;
            let claims = |key: &str| -> Vec<_> {
                let asked = (0..many).map(|n| ask(&format!("{key}-{n}"), &format!("{key}-{n}")));
                asked.map(|claim| desk.filled(&claim)).collect()
            };
            let held = claims("held");
            let granted = desk.store.claim(&desk.tenant, held.clone()).await;
            let held = held.iter().zip(granted.expect("granted"));
            let held: Vec<_> = held.filter_map(|(c, a)| settlement(&desk, c, &a)).collect();
            let burned = claims("burned");
            for claim in &burned {
                desk.run(claim, applied()).await;
            }
            let forget = "SET session_replication_role = replica; DELETE FROM operators.receipt";
            run(&url, forget).await;

            let mut asked = claims("new");
            match next {
                "duplicate" => asked = burned.iter().map(again).collect(),
                "refused" => {
                    for claim in &mut asked {
                        claim.clearance = Clearance::Refused(Refusal::new(Reason::Policy, "no"));
                    }
                }
                _ => {}
            }
            let error = if next == "settle" {
                let settled = desk.store.settle(&desk.tenant, held).await;
                settled.expect_err("refused")
            } else {
                let answered = desk.store.claim(&desk.tenant, asked).await;
                answered.expect_err("refused")
            };
            assert!(!error.is_retryable(), "{next}, {many}: {error}");
            let said = error.to_string();
            assert!(said.contains("store rolled back"), "{next}, {many}: {said}");
            let left = run(&url, "SELECT count(*) FROM operators.receipt").await;
            assert_eq!(
                left[0].get::<i64, _>(0),
                0,
                "{next}, {many}: nothing is written"
            );
        }
    }
}
