//! Batches handed to a desk without its thread: what a failing disk leaves, and what it does not.

use std::time::Duration;

use operators_kernel::{Directive, DirectiveAnswer, Order, SessionId, Timestamp};
use rusqlite::ffi;
use tempfile::TempDir;

use super::super::clock::ThisMachine;
use super::super::open;
use super::super::records::meaning;
use super::*;
use crate::book;

type Reply<T> = oneshot::Receiver<Result<T, StoreError>>;

/// A desk without its thread, so that a batch is what is handed to it.
fn desk() -> (TempDir, Desk) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let mut connection = open::open(&path).expect("opens");
    let clock = StoreClock::open(&mut connection, Arc::new(ThisMachine::new())).expect("opens");
    let alive = SignsOfLife::open(&path).expect("opens");
    let witness = Witness::new(&path, &connection).expect("looks");
    let desk = Desk::new(&path, connection, Arc::new(clock), Arc::new(alive), witness);
    (folder, desk)
}

fn job<T: Send + 'static>(
    work: impl FnOnce(&mut Rows<'_>) -> Result<T, BookError<RowError>> + Send + 'static,
) -> (Box<dyn Job>, Reply<T>) {
    let (reply, answer) = oneshot::channel();
    (Box::new(Call { work, reply }), answer)
}

/// A call that leaves one receipt.
fn pause(receipt_id: &'static str) -> (Box<dyn Job>, Reply<DirectiveAnswer>) {
    job(move |rows| {
        let directive = Directive {
            order: Order::Pause(None),
            by: "ada".into(),
            note: None,
            receipt_id: receipt_id.into(),
            at: Timestamp::from_micros(0),
        };
        let tenant = TenantId::parse("acme").expect("a tenant");
        book::direct(rows, &tenant, &directive)
    })
}

fn answer<T>(mut reply: Reply<T>) -> Result<T, StoreError> {
    reply.try_recv().expect("an answer")
}

/// How many receipts there are, and how many the log's head speaks for.
fn receipts_and_head(desk: &Desk) -> (i64, i64) {
    let counted = "SELECT (SELECT count(*) FROM receipt), (SELECT coalesce(sum(size), 0) FROM log)";
    let counted = desk
        .connection
        .query_row(counted, [], |row| Ok((row.get(0)?, row.get(1)?)));
    counted.expect("counts")
}

/// The last job of a batch met an error at which `SQLite` itself ended the transaction. It had
/// written nothing, so the batch passed for clean, and the log's head was written outside any
/// transaction: it spoke for receipts that were gone, as if somebody had taken them out.
#[test]
fn a_transaction_that_ended_by_itself_takes_its_whole_batch_with_it() {
    for last in [true, false] {
        let (_folder, mut desk) = desk();
        let (first, told) = pause("rc_1");
        let (ends, failed) = job::<()>(|rows| {
            rows.execute("ROLLBACK", [])?;
            Err(meaning("a row", "as after an error of the disk").into())
        });
        let mut batch = vec![first, ends];
        let behind = (!last).then(|| pause("rc_2"));
        let behind = behind.map(|(job, told)| {
            batch.push(job);
            told
        });
        desk.commit(batch);
        assert_eq!(receipts_and_head(&desk), (0, 0), "last: {last}");
        for undone in [Some(told), behind].into_iter().flatten() {
            let error = answer(undone).expect_err("undone");
            assert!(error.is_retryable(), "{error}");
        }
        answer(failed).expect_err("failed");

        let (again, told) = pause("rc_1");
        desk.commit(vec![again]);
        answer(told).expect("later work goes on");
        assert_eq!(receipts_and_head(&desk), (1, 1));
    }
}

/// The lock of a session that was never committed stayed. Its number was free again, and the next
/// process that opened a session got it and could not lock it.
#[test]
fn a_session_that_was_not_committed_shows_no_life() {
    let (_folder, mut desk) = desk();
    let others = SignsOfLife::open(&desk.path).expect("opens");
    let opens = |alive: &Arc<SignsOfLife>| {
        let alive = Arc::clone(alive);
        job(move |rows| {
            let session = rows.add_session("test", Duration::from_secs(30))?;
            alive.show(session).map_err(RowError::Alive)?;
            Ok(session)
        })
    };
    let (opening, told) = opens(&desk.alive);
    let (ends, _) = job::<()>(|rows| {
        rows.execute("ROLLBACK", [])?;
        Err(meaning("a row", "as after an error of the disk").into())
    });
    desk.commit(vec![opening, ends]);
    answer(told).expect_err("undone");
    assert!(!desk.alive.is_ours(SessionId(1)));
    assert!(!others.is_shown_elsewhere(SessionId(1)).expect("asks"));

    let (opening, told) = opens(&desk.alive);
    desk.commit(vec![opening]);
    assert_eq!(answer(told).expect("opens"), SessionId(1));
    let (fails, _) = job::<()>(|_| Err(meaning("a row", "damaged").into()));
    desk.commit(vec![fails]);
    assert!(
        others.is_shown_elsewhere(SessionId(1)).expect("asks"),
        "and stays"
    );
}

/// A failing disk was noticed at the commit alone; an error inside a call left its handle writing.
#[test]
fn after_an_error_of_the_disk_inside_a_call_nothing_more_is_written() {
    for code in [
        ffi::SQLITE_IOERR_READ,
        ffi::SQLITE_CORRUPT,
        ffi::SQLITE_NOTADB,
    ] {
        let (_folder, mut desk) = desk();
        let (first, told) = pause("rc_1");
        let (fails, failed) = job::<()>(move |_| {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            Err(RowError::Sql(error).into())
        });
        desk.commit(vec![first, fails]);
        assert!(answer(told).expect_err("undone").is_retryable());
        assert!(!answer(failed).expect_err("failed").is_retryable());

        let (later, told) = pause("rc_2");
        desk.commit(vec![later]);
        let error = answer(told).expect_err("refused");
        assert!(!error.is_retryable(), "{error}");
        assert!(
            error.to_string().contains("nothing more is written"),
            "{error}"
        );
        assert_eq!(receipts_and_head(&desk), (0, 0));
    }
}

/// By rule 8.6: a file that was moved away while its commit ran took the commit with it, and the answer
/// would have let a call go out that no other process hears of.
#[test]
fn what_is_committed_in_a_file_that_was_moved_away_is_not_answered_for() {
    let (folder, mut desk) = desk();
    let (from, to) = (desk.path.clone(), folder.path().join("away.db"));
    let (moves, told) = job(move |_| {
        std::fs::rename(from, to).expect("moves");
        Ok(())
    });
    desk.commit(vec![moves]);
    let error = answer(told).expect_err("refused");
    assert!(error.to_string().contains("store rolled back"), "{error}");
}
