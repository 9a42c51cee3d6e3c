//! The budget, counted from the server's own log: new actions are two statements a batch, duplicates
//! and refusals one.

use operators_kernel::{Claim, ClaimAnswer, Clearance, Reason, Refusal, SettledOutcome};
use operators_tests::conformance::desk::{Desk, again, applied, ask, failed};
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
            tokio::spawn(async move { desk.run(&claim, applied()).await })
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
    desk.run(&claim, applied()).await;
    let look = "SELECT ctid::text || ' ' || xmin::text || ' ' || xmax::text FROM operators.key";
    let before: String = run(&url, look).await[0].get(0);
    for _ in 0..5 {
        desk.duplicate(&again(&claim)).await;
    }
    assert_eq!(run(&url, look).await[0].get::<String, _>(0), before);
}

/// Runs what must be one statement.
async fn at_once<T>(server: &Server, what: &str, work: impl Future<Output = T>) -> T {
    let before = logged(server);
    let done = work.await;
    assert_eq!(logged(server) - before, 1, "{what}");
    done
}

/// What is common is decided by the first statement, whether it comes alone or with others: by two
/// functions of the schema, so every case is seen to by both.
#[tokio::test(flavor = "multi_thread")]
async fn every_common_case_is_one_statement_alone_and_in_company() {
    let Some(server) = own_server(&["fsync=off", "log_statement=all"]) else {
        return;
    };
    for many in [1, 3] {
        let desk: Desk = desk(&server.url("postgres")).await.of(&format!("t{many}"));
        let asks = |key: &str, revision: Option<u64>| -> Vec<Claim> {
            let asked = (0..many).map(|n| {
                let mut claim = ask(&format!("entity-{n}"), &format!("{key}-{n}"));
                claim.proposal.revision = revision;
                desk.filled(&claim)
            });
            asked.collect()
        };
        let claim = async |what: &str, claims: &[Claim]| {
            let asked = desk.store.claim(&desk.tenant, claims.to_vec());
            at_once(&server, what, asked).await.expect("answers")
        };
        let settle = async |what: &str, claims: &[Claim], answers: &[ClaimAnswer], outcome| {
            let granted = claims.iter().zip(answers).map(|(claim, answer)| {
                let granted = settlement(&desk, claim, answer);
                let mut granted = granted.unwrap_or_else(|| panic!("{what}: {answer:?}"));
                granted.outcome = SettledOutcome::clone(&outcome);
                granted
            });
            let settled = desk.store.settle(&desk.tenant, granted.collect());
            at_once(&server, what, settled).await.expect("settles");
        };

        let burned = asks("burned", Some(3));
        let granted = claim("new", &burned).await;
        settle("applied", &burned, &granted, applied()).await;
        assert_eq!(desk.entity("entity-0").await.revision, Some(3));

        let repeated: Vec<_> = burned.iter().map(|c| desk.filled(&again(c))).collect();
        let answers = claim("duplicate", &repeated).await;
        let is_first = |a: &ClaimAnswer| matches!(a, ClaimAnswer::Duplicate { attempt: 1, .. });
        assert!(answers.iter().all(is_first), "{answers:?}");

        let mut refused = asks("refused", None);
        for claim in &mut refused {
            claim.clearance = Clearance::Refused(Refusal::new(Reason::Policy, "no"));
        }
        let answers = claim("refused", &refused).await;
        let is_refused = |a: &ClaimAnswer| matches!(a, ClaimAnswer::Refused { attempt: 0, .. });
        assert!(answers.iter().all(is_refused), "{answers:?}");

        let failing = asks("retried", Some(4));
        let granted = claim("new on a known entity", &failing).await;
        settle("failed", &failing, &granted, failed()).await;
        assert_eq!(desk.entity("entity-0").await.revision, Some(3), "not done");
        let retried: Vec<_> = failing.iter().map(|c| desk.filled(&again(c))).collect();
        let granted = claim("again", &retried).await;
        settle("applied in the end", &retried, &granted, applied()).await;
        let repeated: Vec<_> = retried.iter().map(|c| desk.filled(&again(c))).collect();
        let answers = claim("duplicate of a second attempt", &repeated).await;
        let is_second = |a: &ClaimAnswer| matches!(a, ClaimAnswer::Duplicate { attempt: 2, .. });
        assert!(answers.iter().all(is_second), "{answers:?}");
        assert_eq!(desk.trail().await.len(), 6 * many, "one receipt a proposal");
    }
}
