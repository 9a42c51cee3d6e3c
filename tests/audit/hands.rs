//! What somebody with every right to the database does to a log, and what an audit says of it.

use async_trait::async_trait;
use operators_kernel::json;
use operators_kernel::log::{Checkpoint, Frontier, LogEntry, LogHash};
use operators_kernel::{AttemptMark, ContentDigest, Ending, Receipt};
use operators_tests::conformance::desk::{Desk, applied, ask, fresh_id, moment};
use operators_tests::conformance::log::{audited, checkpoint};
use operators_tests::stores::Bench;

/// The other tenant; its name is as long as the first one's.
pub const OTHER: &str = "emca";

/// One entry as it is to be kept from now on.
#[derive(Debug, Clone)]
pub struct Forged {
    pub position: u64,
    pub receipt_id: String,
    pub leaf: LogHash,
    pub link: LogHash,
    pub body: String,
}

/// Writes past the store.
#[async_trait]
pub trait Hands: Sync {
    /// Puts another text under a receipt's id; its hashes stay.
    async fn set_body(&self, receipt_id: &str, body: &str);
    /// Takes a receipt away, and what the log has of it if the two are kept apart.
    async fn delete(&self, receipt_id: &str);
    /// Takes the last receipts away, with their hashes; the head stays.
    async fn cut_off(&self, entries: &[LogEntry]);
    /// Writes text, leaf and link of an entry; the head stays.
    async fn rewrite(&self, forged: &Forged);
    /// Writes the head.
    async fn set_head(&self, head: &Frontier);
    /// Takes every receipt, every hash and the head away; keys stay.
    async fn delete_everything(&self);
    /// Takes a burned key away.
    async fn delete_key(&self, key: &str);
    /// Puts a burned key into the phase of one whose attempt definitely failed.
    async fn free_key(&self, key: &str);
    /// Puts a receipt in as a process would, but in no transaction of the store's.
    async fn insert(&self, receipt: &Receipt);
    /// Swaps everything of the two tenants' logs.
    async fn swap_tenants(&self);
    /// Keeps a copy of everything.
    async fn copy(&self);
    /// Puts that copy back.
    async fn restore(&self);
}

/// Seven applied actions; the entries of their log and its checkpoint.
async fn seven(bench: &dyn Bench) -> (Desk, Vec<LogEntry>, Checkpoint) {
    let desk = Desk::open(bench).await;
    for number in 0..7 {
        let name = format!("k{number}");
        desk.run(&ask(&name, &name), applied()).await;
    }
    let checkpoint = checkpoint(&desk).await;
    let entries = desk.store.log().log_entries(&desk.tenant, 0, 100).await;
    (desk, entries.expect("shown"), checkpoint)
}

/// The first thing that an audit says, by a process that was told nothing before.
pub async fn told(bench: &dyn Bench, desk: &Desk, checkpoints: Vec<Checkpoint>) -> String {
    let auditor = Desk {
        store: bench.open().await,
        ..desk.clone()
    };
    let found = audited(&auditor, checkpoints).await;
    let first = found.faults.first().expect("a fault is found").to_string();
    println!("{first}");
    first
}

pub fn says(told: &str, words: &[&str]) {
    for word in words {
        assert!(told.contains(word), "`{told}` does not say `{word}`");
    }
}

fn edited(entry: &LogEntry) -> String {
    let body = entry.body.as_ref().expect("a text");
    assert!(body.contains("\"k"), "{body}");
    body.replace("\"attempt\":1", "\"attempt\":2")
}

pub async fn an_edit(bench: &dyn Bench, hands: &dyn Hands) {
    let (desk, entries, _) = seven(bench).await;
    hands
        .set_body(&entries[3].receipt_id, &edited(&entries[3]))
        .await;
    let told = told(bench, &desk, Vec::new()).await;
    says(
        &told,
        &[&entries[3].receipt_id, "4 of the log", "was changed"],
    );
}

pub async fn a_deletion(bench: &dyn Bench, hands: &dyn Hands) {
    let (desk, entries, _) = seven(bench).await;
    hands.delete(&entries[3].receipt_id).await;
    let told = told(bench, &desk, Vec::new()).await;
    says(&told, &["receipt 4 of the log", "gone", "deleted"]);
}

pub async fn a_swap(bench: &dyn Bench, hands: &dyn Hands) {
    let (desk, entries, _) = seven(bench).await;
    let body = |place: usize| entries[place].body.as_deref().expect("a text");
    hands.set_body(&entries[2].receipt_id, body(4)).await;
    hands.set_body(&entries[4].receipt_id, body(2)).await;
    let told = told(bench, &desk, Vec::new()).await;
    says(
        &told,
        &[
            &entries[2].receipt_id,
            &entries[4].receipt_id,
            "3 of the log",
        ],
    );
}

pub async fn a_cut_tail(bench: &dyn Bench, hands: &dyn Hands) {
    let (desk, entries, _) = seven(bench).await;
    hands.cut_off(&entries[5..]).await;
    let told = told(bench, &desk, Vec::new()).await;
    says(&told, &["ends at 5", "says 7", "last 2 receipts are gone"]);
}

fn rewritten(entries: &[LogEntry], place: usize) -> Forged {
    let body = edited(&entries[place]);
    let leaf = LogHash::of_leaf(body.as_bytes());
    Forged {
        position: entries[place].position,
        receipt_id: entries[place].receipt_id.clone(),
        link: LogHash::of_link(&entries[place - 1].link, &leaf),
        leaf,
        body,
    }
}

pub async fn a_rewritten_end(bench: &dyn Bench, hands: &dyn Hands) {
    let (desk, entries, checkpoint) = seven(bench).await;
    let forged = rewritten(&entries, 6);
    hands.rewrite(&forged).await;
    let first = told(bench, &desk, Vec::new()).await;
    says(
        &first,
        &[
            &forged.receipt_id,
            "the last of the log",
            "rewritten with its hash",
        ],
    );
    // The head too: then only what was signed before tells.
    let mut head = Frontier::default();
    for entry in &entries[..6] {
        head.push(entry.leaf);
    }
    head.push(forged.leaf);
    hands.set_head(&head).await;
    let mut five = Frontier::default();
    for entry in &entries[..5] {
        five.push(entry.leaf);
    }
    let earlier = Checkpoint {
        size: 5,
        root: five.root(),
        ..checkpoint.clone()
    };
    let told = told(bench, &desk, vec![earlier, checkpoint]).await;
    says(
        &told,
        &["signed checkpoint over 7", "6 to 7", &entries[5].receipt_id],
    );
}

pub async fn a_rewritten_middle(bench: &dyn Bench, hands: &dyn Hands) {
    let (desk, entries, _) = seven(bench).await;
    hands.rewrite(&rewritten(&entries, 3)).await;
    let told = told(bench, &desk, Vec::new()).await;
    says(
        &told,
        &[&entries[4].receipt_id, "5 of the log", "does not follow"],
    );
}

pub async fn nothing_left(bench: &dyn Bench, hands: &dyn Hands) {
    let (desk, _, checkpoint) = seven(bench).await;
    hands.delete_everything().await;
    let without = told(bench, &desk, Vec::new()).await;
    says(&without, &["key `k", "no such receipt"]);
    let told = told(bench, &desk, vec![checkpoint]).await;
    says(&told, &["has 0 receipts", "speaks of 7"]);
}

pub async fn a_deleted_key(bench: &dyn Bench, hands: &dyn Hands) {
    let (desk, entries, checkpoint) = seven(bench).await;
    hands.delete_key("k3").await;
    let told = told(bench, &desk, vec![checkpoint]).await;
    says(
        &told,
        &[
            &entries[3].receipt_id,
            "key `k3`",
            "does not have it burned",
        ],
    );
}

/// What the record says besides stays: it is the phase that lets the action run again.
pub async fn a_freed_key(bench: &dyn Bench, hands: &dyn Hands) {
    let (desk, entries, checkpoint) = seven(bench).await;
    hands.free_key("k3").await;
    let told = told(bench, &desk, vec![checkpoint]).await;
    let id = &entries[3].receipt_id;
    says(&told, &[id, "key `k3`", "does not have it burned"]);
}

/// The action runs again, and then keys and receipts agree about it; the log alone tells.
pub async fn a_deleted_key_that_is_burned_again(bench: &dyn Bench, hands: &dyn Hands) {
    let (desk, entries, _) = seven(bench).await;
    hands.delete_key("k3").await;
    let again = Desk {
        store: bench.open().await,
        ..desk.clone()
    };
    again.run(&ask("k3", "k3"), applied()).await;
    let checkpoint = checkpoint(&again).await;
    let told = told(bench, &again, vec![checkpoint]).await;
    says(&told, &["8 of the log", "key `k3`", "receipt 4 of the log"]);
    assert!(!told.contains(&entries[3].receipt_id), "{told}");
}

pub async fn a_forged_receipt(bench: &dyn Bench, hands: &dyn Hands) {
    let (desk, _, checkpoint) = seven(bench).await;
    let mut claim = desk.filled(&ask("order:9", "forged"));
    claim.proposal.receipt_id = fresh_id();
    let mark = AttemptMark {
        attempt: 1,
        session: Some(desk.session),
        fence: Some(operators_kernel::Fence(1)),
        ..AttemptMark::none()
    };
    let ending = Ending::Applied {
        result_digest: Some(ContentDigest::of(b"")),
        effect_id: None,
    };
    let receipt = claim.proposal.receipt(&mark, &ending, moment());
    hands.insert(&receipt).await;
    let told = told(bench, &desk, vec![checkpoint]).await;
    says(&told, &[&receipt.receipt_id]);
}

pub async fn an_older_copy(bench: &dyn Bench, hands: &dyn Hands) {
    let (desk, ..) = seven(bench).await;
    hands.copy().await;
    desk.run(&ask("order:8", "k8"), applied()).await;
    desk.run(&ask("order:9", "k9"), applied()).await;
    let nine = checkpoint(&desk).await;
    assert_eq!(nine.size, 9);
    hands.restore().await;
    let told = told(bench, &desk, vec![nine]).await;
    says(&told, &["has 7 receipts", "speaks of 9", "rolled back"]);
}

pub async fn swapped_tenants(bench: &dyn Bench, hands: &dyn Hands) {
    let (desk, _, checkpoint_of_desk) = seven(bench).await;
    let other = desk.of(OTHER);
    other.run(&ask("order:1", "other"), applied()).await;
    checkpoint(&other).await;
    hands.swap_tenants().await;
    let told = told(bench, &desk, vec![checkpoint_of_desk]).await;
    says(
        &told,
        &["1 of the log", "tenant `emca`", "another tenant's"],
    );
}

/// The text of a receipt as stores keep it.
pub fn text_of(receipt: &Receipt) -> String {
    json::canonical(receipt).expect("canonical")
}

/// Writes one test per tampering, each on a fresh store.
#[macro_export]
macro_rules! tamperings {
    ($bench:expr, $hands:expr, $theme:ident, $($name:ident),* $(,)?) => {$(
        /// By rules 11.5, 11.7
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let bench = $bench;
            if let Some(why) = operators_tests::stores::Bench::missing(&bench) {
                println!("{} is skipped: {why}", stringify!($name));
                return;
            }
            let hands = $hands(&bench).await;
            $crate::$theme::$name(&bench, &hands).await;
        }
    )*};
    ($bench:expr, $hands:expr) => {
        $crate::tamperings!($bench, $hands, hands, an_edit, a_deletion, a_swap, a_cut_tail,
            a_rewritten_end, a_rewritten_middle, nothing_left, a_deleted_key, a_freed_key,
            a_deleted_key_that_is_burned_again, a_forged_receipt,
            an_older_copy, swapped_tenants);
        $crate::tamperings!($bench, $hands, pruned, a_stub_with_another_hash,
            a_stub_that_tells_otherwise, one_stub_too_many, a_pruning_without_its_receipt,
            a_key_burned_by_a_pruned_receipt_is_deleted,
            a_key_burned_by_a_pruned_receipt_is_burned_again);
    };
}
