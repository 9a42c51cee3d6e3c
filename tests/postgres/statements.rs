//! The budget, counted from the server's own log: new actions are two statements a batch, duplicates
//! and refusals one.

use operators_kernel::{ClaimAnswer, Clearance, Reason, Refusal};
use operators_tests::conformance::desk::{Desk, again, ask};
use operators_tests::postgres::{Server, own_server};

use crate::common::{desk, settlement};

const MANY: usize = 50;

/// How many statements the server has logged, whoever sent them.
fn logged(server: &Server) -> usize {
    server.log().matches("LOG:  statement: ").count()
        + server.log().matches("LOG:  execute ").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_new_actions_is_two_statements_and_of_duplicates_one() {
    let Some(server) = own_server(&["fsync=off", "log_statement=all"]) else {
        return;
    };
    let desk: Desk = desk(&server.url("postgres")).await;
    let claims: Vec<_> = (0..MANY)
        .map(|n| desk.filled(&ask(&format!("entity-{n}"), &format!("key-{n}"))))
        .collect();

    let before = logged(&server);
    let answers = desk
        .store
        .claim(&desk.tenant, claims.clone())
        .await
        .expect("claims");
    assert_eq!(logged(&server) - before, 1, "claims are one statement");
    let settlements: Vec<_> = claims
        .iter()
        .zip(&answers)
        .map(|(claim, answer)| settlement(&desk, claim, answer).expect("granted"))
        .collect();
    let settled = desk
        .store
        .settle(&desk.tenant, settlements)
        .await
        .expect("settles");
    assert_eq!((settled.len(), logged(&server) - before), (MANY, 2));

    let duplicates: Vec<_> = claims.iter().map(|c| desk.filled(&again(c))).collect();
    let before = logged(&server);
    let answers = desk
        .store
        .claim(&desk.tenant, duplicates)
        .await
        .expect("answers");
    assert!(
        answers
            .iter()
            .all(|a| matches!(a, ClaimAnswer::Duplicate { .. }))
    );
    assert_eq!(
        logged(&server) - before,
        1,
        "duplicates are one statement, receipts included"
    );

    let refused: Vec<_> = (0..MANY)
        .map(|n| {
            let mut claim = ask(&format!("entity-{n}"), &format!("refused-{n}"));
            claim.clearance = Clearance::Refused(Refusal::new(Reason::Policy, "no"));
            desk.filled(&claim)
        })
        .collect();
    let before = logged(&server);
    let answers = desk
        .store
        .claim(&desk.tenant, refused)
        .await
        .expect("answers");
    assert!(
        answers
            .iter()
            .all(|a| matches!(a, ClaimAnswer::Refused { .. }))
    );
    assert_eq!(
        logged(&server) - before,
        1,
        "refusals are one statement, receipts included"
    );

    let before = logged(&server);
    desk.store.heartbeat(desk.session).await.expect("beats");
    assert_eq!(logged(&server) - before, 1, "a heartbeat is one statement");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_callers_share_statements_and_one_caller_waits_for_nobody() {
    let Some(server) = own_server(&["fsync=off", "log_statement=all"]) else {
        return;
    };
    let desk: Desk = desk(&server.url("postgres")).await;
    let before = logged(&server);
    let callers: Vec<_> = (0..256)
        .map(|n| {
            let desk = desk.clone();
            let claim = ask(&format!("entity-{n}"), &format!("key-{n}"));
            tokio::spawn(async move {
                desk.run(&claim, operators_tests::conformance::desk::applied())
                    .await
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no panic");
    }
    let sent = logged(&server) - before;
    assert!(sent <= 128, "512 calls were {sent} statements");
    println!("256 callers, 512 calls: {sent} statements");
}

/// Rule 8.5: what a duplicate leaves in the key's row is nothing, not even a lock.
#[tokio::test]
async fn a_duplicate_neither_writes_nor_locks_a_key_row() {
    use operators_tests::postgres::run;
    use sqlx::Row;
    let Some(database) = crate::common::database().await else {
        return;
    };
    let url = database.url();
    let desk = desk(&url).await;
    let claim = ask("e", "k");
    desk.run(&claim, operators_tests::conformance::desk::applied())
        .await;
    let look = "SELECT ctid::text || ' ' || xmin::text || ' ' || xmax::text FROM operators.key";
    let before: String = run(&url, look).await[0].get(0);
    for _ in 0..5 {
        desk.duplicate(&again(&claim)).await;
    }
    assert_eq!(run(&url, look).await[0].get::<String, _>(0), before);
}
