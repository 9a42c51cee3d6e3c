//! What callers write out before their turn is a guess. Here most of it is wrong by then, inside one
//! commit, and what is kept is what happened: by rules 4.9, 5.1, 5.2 and 11.2.

use std::time::Duration;

use operators_kernel::life::Phase;
use operators_kernel::{
    Beat, ClaimAnswer, Ledger, ReceiptKind, ReceiptOutcome, Settlement, StoreError,
};
use operators_seams::SqliteStore;
use operators_tests::conformance::desk::{Desk, LONG, again, applied, ask, unheard};
use operators_tests::conformance::log::audited;
use operators_tests::stores::SqliteBench;
use rusqlite::Connection;
use tokio::join;

/// Somebody writes by hand meanwhile: whoever comes queues, and all of it is one commit.
struct Held(Connection);

impl Held {
    fn by_hand(bench: &SqliteBench) -> Self {
        let by_hand = Connection::open(bench.path()).expect("opens");
        by_hand.execute_batch("BEGIN IMMEDIATE").expect("begins");
        Self(by_hand)
    }

    /// Polls one after the other, once the writer waits: what they ask for is one commit.
    async fn queues<T>(&self, desk: &Desk, calls: impl Future<Output = T>) -> T {
        let after = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            calls.await
        };
        let (beat, told) = join!(desk.store.heartbeat(desk.session), after);
        assert_eq!(beat, Ok(Beat::Alive));
        told
    }

    /// After those who are polled before this.
    async fn let_go(&self) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.0.execute_batch("ROLLBACK").expect("ends");
    }
}

/// The texts that rows of keys and receipts have, each with what it says.
async fn rows_say_what_happened(desk: &Desk, bench: &SqliteBench) {
    let store = SqliteStore::open(&bench.path()).expect("opens");
    assert!(store.check().await.expect("checks").is_empty());
    let faults = audited(desk, Vec::new()).await.faults;
    assert!(faults.is_empty(), "{faults:?}");
    let by_hand = Connection::open(bench.path()).expect("opens");
    let unlike = "SELECT count(*) FROM key k JOIN receipt r \
        ON r.receipt_id = k.application ->> '$.original.receipt_id' \
        WHERE k.proposal ->> '$.idempotency_key' <> k.idempotency_key \
          OR k.proposal ->> '$.entity_key' <> k.entity_key \
          OR r.body ->> '$.idempotency_key' <> k.idempotency_key \
          OR r.body ->> '$.receipt_id' <> r.receipt_id \
          OR r.body ->> '$.settled_at' <> r.settled_at";
    let unlike: i64 = by_hand
        .query_row(unlike, [], |row| row.get(0))
        .expect("counts");
    assert_eq!(unlike, 0);
}

/// Two proposals of one key, a repetition of one of them, and another of its entity.
#[tokio::test]
async fn of_two_drafts_of_one_key_the_one_that_was_granted_is_kept() {
    let bench = SqliteBench::fresh();
    let desk = Desk::open(&bench).await;
    let first = ask("e1", "k1");
    let mut other = again(&first);
    other.proposal.note = Some("another draft".to_owned());
    let repeating = unheard(&first);
    let held = Held::by_hand(&bench);
    let calls = async {
        join!(
            desk.take(&first),
            desk.ask(&other),
            desk.ask(&repeating),
            held.let_go(),
        )
    };
    let (granted, refused, repeated, ()) = held.queues(&desk, calls).await;
    assert!(matches!(refused, ClaimAnswer::Wait(_)), "{refused:?}");
    assert_eq!(repeated, ClaimAnswer::Claimed(granted.mark.clone()));
    let record = desk.key("k1").await;
    assert_eq!(record.proposal.receipt_id, first.proposal.receipt_id);
    assert_eq!(record.proposal.note, None);
    desk.end(&granted, applied()).await;
    rows_say_what_happened(&desk, &bench).await;
}

/// A settle asked twice, one whose session is buried before its turn, one whose key was forgotten, and
/// one of the same moment that nothing is wrong with.
#[tokio::test]
async fn a_draft_that_came_too_late_gives_way_to_a_correction() {
    let bench = SqliteBench::fresh();
    let desk = Desk::open(&bench).await;
    let session = desk.store.open_session("doomed", LONG).await;
    let doomed = Desk {
        session: session.expect("a session"),
        ..desk.clone()
    };
    let late = doomed.take(&ask("e1", "k1")).await;
    let twice = desk.take(&ask("e2", "k2")).await;
    let plain = desk.take(&ask("e3", "k3")).await;
    let burned = desk.run(&ask("e4", "k4"), applied()).await;
    let held = Held::by_hand(&bench);
    let calls = async {
        join!(
            doomed.close(),
            desk.end(&late, applied()),
            desk.end(&twice, applied()),
            desk.end(&twice, applied()),
            desk.forget("k4"),
            desk.end(&burned, applied()),
            desk.end(&plain, applied()),
            held.let_go(),
        )
    };
    let ((), corrected, one, same, _, again, fine, ()) = held.queues(&desk, calls).await;
    assert_eq!(one, same);
    assert_eq!(fine.phase, Phase::Applied);
    assert!(!again.double_applied, "{again:?}");
    assert_eq!(corrected.phase, Phase::Applied);
    let first = desk.receipt(&late.proposal.receipt_id).await;
    assert_eq!(first.outcome, Some(ReceiptOutcome::InDoubt));
    let correction = desk.receipt(&corrected.receipt_id).await;
    assert_eq!(correction.kind, ReceiptKind::Correction);
    assert_eq!(correction.outcome, Some(ReceiptOutcome::Applied));
    let entries = desk.entries().await;
    assert_eq!(entries.len(), 6, "{entries:#?}");
    rows_say_what_happened(&desk, &bench).await;
}

/// One call of a commit meets a row that nobody can read after it has written, and what the others
/// drafted is undone with it; asked again, they are what they would have been.
#[tokio::test]
async fn drafts_of_a_commit_that_is_undone_are_written_when_they_are_asked_again() {
    let bench = SqliteBench::fresh();
    let desk = Desk::open(&bench).await;
    let attempt = desk.take(&ask("e1", "k1")).await;
    let spoilt = desk.take(&ask("e2", "k2")).await;
    let by_hand = Connection::open(bench.path()).expect("opens");
    by_hand
        .execute_batch(
            "CREATE TRIGGER spoils BEFORE INSERT ON receipt WHEN NEW.idempotency_key = 'k2'
               BEGIN SELECT RAISE (ABORT, 'spoilt'); END",
        )
        .expect("makes");
    let before = desk.entries().await.len();
    let held = Held::by_hand(&bench);
    let claim = ask("e3", "k3");
    let settlement = |attempt: &Settlement| vec![attempt.clone()];
    let calls = async {
        join!(
            desk.store.settle(&desk.tenant, settlement(&attempt)),
            desk.try_ask(&claim),
            desk.store.settle(&desk.tenant, settlement(&spoilt)),
            held.let_go(),
        )
    };
    let (settled, claimed, failed, ()) = held.queues(&desk, calls).await;
    let undone = |error: StoreError| assert!(error.is_retryable(), "{error}");
    undone(settled.expect_err("undone"));
    undone(claimed.expect_err("undone"));
    assert!(!failed.expect_err("failed").is_retryable());
    assert_eq!(desk.entries().await.len(), before);
    assert_eq!(desk.key("k1").await.phase, Phase::Intent);
    assert!(desk.find("k3").await.is_none());

    by_hand.execute_batch("DROP TRIGGER spoils").expect("drops");
    desk.end(&attempt, applied()).await;
    desk.run(&claim, applied()).await;
    desk.end(&spoilt, applied()).await;
    rows_say_what_happened(&desk, &bench).await;
}
