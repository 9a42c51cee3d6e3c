//! Clocks that are set, machines that start anew, and what the store makes of them.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use operators_kernel::{Beat, DurableExec, EntityKey, IdempotencyKey, Ledger, TenantId};
use tempfile::TempDir;

use super::super::SqliteStore;
use super::*;
use crate::book::Book;

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;
/// A wall clock that is right, at the start of every test.
const NOON: i64 = 1_790_000_000 * SECOND;
/// How long the machine had been up by then.
const UPTIME: i64 = 500 * HOUR;
const LEASE: Duration = Duration::from_secs(30);

/// A machine whose clocks do as they are told.
#[derive(Debug)]
struct FakeMachine {
    boot: Option<&'static str>,
    steady: AtomicI64,
    wall: AtomicI64,
}

impl FakeMachine {
    fn started(boot: Option<&'static str>, steady: i64, wall: i64) -> Arc<Self> {
        Arc::new(Self {
            boot,
            steady: steady.into(),
            wall: wall.into(),
        })
    }

    /// Somebody sets the wall clock.
    fn step(&self, by: i64) {
        self.wall.fetch_add(by, Ordering::SeqCst);
    }

    /// Time passes.
    fn pass(&self, span: i64) {
        self.steady.fetch_add(span, Ordering::SeqCst);
        self.wall.fetch_add(span, Ordering::SeqCst);
    }
}

impl Machine for FakeMachine {
    fn boot(&self) -> Option<String> {
        self.boot.map(str::to_owned)
    }

    fn steady(&self) -> i64 {
        self.steady.load(Ordering::SeqCst)
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(self.wall.load(Ordering::SeqCst))
    }
}

fn place() -> (TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    (folder, path)
}

/// One process with the file open.
fn process(path: &Path, machine: &Arc<FakeMachine>) -> SqliteStore {
    SqliteStore::open_on(path, Arc::<FakeMachine>::clone(machine)).expect("opens")
}

/// What time it is to whoever decides, which is what whoever looks is told.
async fn time_in(store: &SqliteStore) -> i64 {
    let decides = store.write(|rows| Ok(rows.now())).await.expect("asks");
    let tenant = TenantId::parse("acme").expect("a tenant");
    let key = IdempotencyKey::parse("k1").expect("a key");
    let entity = EntityKey::parse("order:1").expect("an entity");
    let seen = store.glimpse(&tenant, &key, &entity).await.expect("looks");
    assert_eq!(seen.now, decides);
    let (_, seen) = store.doubts(&tenant).await.expect("looks");
    assert_eq!(seen, decides);
    decides.0
}

/// By rules 4.5, 4.6 and 12.2, which count in the store's time: after a step forward "not applied" was
/// believed of a request that could still land, after one back a key was sent again past its window.
/// By rule 2.9: after a step of more than a lease whoever came buried everybody who was there.
#[tokio::test]
async fn a_wall_clock_that_is_set_moves_nothing_in_the_store() {
    for step in [HOUR, -HOUR, 24 * 365 * HOUR] {
        let (_folder, path) = place();
        let machine = FakeMachine::started(Some("boot-1"), UPTIME, NOON);
        let first = process(&path, &machine);
        let session = first.open_session("first", LEASE).await.expect("opens");
        assert_eq!(time_in(&first).await, NOON, "what the wall clock said then");

        machine.step(step);
        machine.pass(SECOND);
        assert_eq!(time_in(&first).await, NOON + SECOND, "{step}");
        let second = process(&path, &machine);
        assert_eq!(time_in(&second).await, NOON + SECOND, "one anchor for all");
        second.open_session("second", LEASE).await.expect("opens");
        let beat = first.heartbeat(session).await.expect("beats");
        assert_eq!(beat, Beat::Alive, "{step}");

        let stamp = first.write(|rows| Ok(rows.stamp())).await.expect("asks");
        let wall = NOON + step + SECOND;
        assert_eq!(stamp.as_micros(), wall, "receipts tell the time of day");
    }
}

/// By rule 2.9: a lease is over when its time has passed, whatever the wall clock says.
#[tokio::test]
async fn a_lease_ends_by_the_time_that_passed() {
    let (_folder, path) = place();
    let machine = FakeMachine::started(Some("boot-1"), UPTIME, NOON);
    let first = process(&path, &machine);
    let session = first.open_session("first", LEASE).await.expect("opens");
    machine.pass(31 * SECOND);
    machine.step(-31 * SECOND);
    let second = process(&path, &machine);
    second.open_session("second", LEASE).await.expect("opens");
    let beat = first.heartbeat(session).await.expect("beats");
    assert_eq!(beat, Beat::Dead);
}

/// By rule 4.6: what was seen in an earlier boot was before this one began, so time goes on from
/// there at least, also if the wall clock starts in 1970.
#[tokio::test]
async fn a_new_boot_goes_on_from_what_was_seen_before() {
    let (_folder, path) = place();
    let machine = FakeMachine::started(Some("boot-1"), UPTIME, NOON);
    let before = process(&path, &machine);
    let session = before.open_session("before", LEASE).await.expect("opens");
    machine.pass(HOUR);
    before.heartbeat(session).await.expect("beats");
    drop(before);

    // The wall clock is behind: as long as the machine is up has passed, at least.
    let behind = FakeMachine::started(Some("boot-2"), 40 * SECOND, 7);
    let store = process(&path, &behind);
    assert_eq!(time_in(&store).await, NOON + HOUR + 40 * SECOND);
    // Somebody sets it right, and another process comes.
    behind.step(NOON + 9 * HOUR);
    behind.pass(SECOND);
    let other = process(&path, &behind);
    assert_eq!(time_in(&other).await, NOON + HOUR + 41 * SECOND);
    assert_eq!(time_in(&store).await, NOON + HOUR + 41 * SECOND);
    drop((store, other));

    // It is right: the time the machine was off counts.
    let right = FakeMachine::started(Some("boot-3"), 40 * SECOND, NOON + 9 * HOUR);
    let store = process(&path, &right);
    assert_eq!(time_in(&store).await, NOON + 9 * HOUR);
    // Nobody of an earlier boot is taken for alive.
    let session = store.open_session("after", LEASE).await.expect("opens");
    let counted = "SELECT count(*) FROM session WHERE dead_at IS NULL";
    let by_hand = Connection::open(&path).expect("opens");
    let alive: i64 = by_hand
        .query_row(counted, [], |row| row.get(0))
        .expect("counts");
    assert_eq!(alive, 1, "{session:?} alone");
}

/// By rule 4.6: the times in a file of the schema before are the wall clock's, of this very boot
/// perhaps, so the machine's uptime is not added to them.
#[tokio::test]
async fn a_file_from_before_the_anchor_keeps_its_time() {
    for (wall, expected) in [(NOON, NOON), (NOON - HOUR, NOON - SECOND)] {
        let (_folder, path) = place();
        let by_hand = Connection::open(&path).expect("opens");
        for script in [
            include_str!("../../../migrations/sqlite/0001_first.sql"),
            include_str!("../../../migrations/sqlite/0002_askers.sql"),
            include_str!("../../../migrations/sqlite/0003_notes.sql"),
            include_str!("../../../migrations/sqlite/0004_log.sql"),
            include_str!("../../../migrations/sqlite/0005_log_sealed.sql"),
            include_str!("../../../migrations/sqlite/0006_retention.sql"),
            "PRAGMA application_id = 0x6f707273; PRAGMA user_version = 6",
        ] {
            by_hand.execute_batch(script).expect("writes");
        }
        let session = "INSERT INTO session (node, lease_us, alive_until) VALUES ('old', ?1, ?2)";
        let row = (30 * SECOND, NOON + 29 * SECOND);
        by_hand.execute(session, row).expect("writes");
        drop(by_hand);
        let machine = FakeMachine::started(Some("boot-1"), UPTIME, wall);
        let store = process(&path, &machine);
        assert_eq!(time_in(&store).await, expected, "{wall}");
    }
}

/// Where the system names no boot each process has an anchor of its own: a step is not seen by those
/// who have the file open, and never back by those who come.
#[tokio::test]
async fn without_the_name_of_a_boot_a_process_keeps_its_own_time() {
    let (_folder, path) = place();
    let machine = FakeMachine::started(None, UPTIME, NOON);
    let first = process(&path, &machine);
    let session = first.open_session("first", LEASE).await.expect("opens");
    machine.step(-HOUR);
    machine.pass(SECOND);
    assert_eq!(time_in(&first).await, NOON + SECOND);
    let beat = first.heartbeat(session).await.expect("beats");
    assert_eq!(beat, Beat::Alive);
    let second = process(&path, &machine);
    assert_eq!(time_in(&second).await, NOON + SECOND);
}

/// Seen with `unshare --time --boottime 100000`: both processes have the machine's time.
#[test]
fn a_time_namespace_is_taken_into_account() {
    let offsets = "monotonic           7         0\nboottime       -100000   5000\n";
    assert_eq!(boot_offset(offsets), Some(-100_000 * SECOND + 5));
    assert_eq!(boot_offset(""), None);
    assert_eq!(boot_offset("boottime much"), None);
}

/// The machine's own clocks: steady, and named where Linux is.
#[test]
fn this_machine_has_a_steady_clock() {
    let machine = ThisMachine::new();
    let (earlier, wall) = (machine.steady(), machine.wall());
    assert!(machine.steady() >= earlier);
    assert!(wall.as_micros() > NOON / 2);
    if cfg!(target_os = "linux") {
        assert!(machine.boot().is_some_and(|boot| boot.len() == 36));
    }
}
