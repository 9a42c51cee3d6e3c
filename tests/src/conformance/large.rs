//! The largest that a plan may hold and a vendor ordinarily answers (sections 3, 5 and 7): what one
//! store takes, every store takes.

use operators_kernel::{ARGS_BYTES_MAX, Claim, Reason};
use serde_json::{Value, json};

use super::desk::{Desk, again, applied_with, ask, failed, unknown};
use super::log::{audited, checkpoint};
use super::retention::{entries, prune};
use crate::fixtures::object;
use crate::stores::Bench;

/// As [`ask`], with arguments of that many bytes as JSON text.
fn ask_large(bytes: usize, entity_key: &str, idempotency_key: &str) -> Claim {
    let mut claim = ask(entity_key, idempotency_key);
    // Three bytes each, so that no bound falls between two characters by itself.
    let text = "€".repeat((bytes - 20) / 3);
    claim.proposal.action.args = object(json!({ "text": text })).into();
    claim
}

/// An answer of a megabyte.
fn answer() -> Value {
    json!({ "body": "a".repeat(1_000_000) })
}

/// By rules 3.1, 3.2 and 5.1: nothing of it is lost on the way, and a duplicate is told all of it.
pub async fn the_largest_arguments_and_answers_are_kept_whole(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claim = ask_large(ARGS_BYTES_MAX, "order:1", "k1");
    let done = desk.take(&claim).await;
    desk.end(&done, applied_with(answer())).await;
    let other = Desk::open(bench).await;
    let original = other.duplicate(&again(&claim)).await;
    assert_eq!(original.result.unpack(), answer());
    let another = ask_large(ARGS_BYTES_MAX - 3, "order:1", "k1");
    let refusal = other.refusal(&another).await;
    assert_eq!(refusal.reason, Reason::Conflict);
    assert_eq!(refusal.conflict, ["/args/text"]);
    let trail = other.trail().await;
    let args: Vec<_> = trail.iter().map(|receipt| &receipt.action.args).collect();
    let (said, else_said) = (&claim.proposal.action.args, &another.proposal.action.args);
    assert_eq!(args, [said, said, else_said]);
    assert_eq!(other.key("k1").await.proposal.action.args, *said);
}

/// By rule 5.1: receipts that are written together are many, or large.
pub async fn many_large_duplicates_at_once_leave_a_receipt_each(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let claims: Vec<Claim> = (0..5)
        .map(|n| ask_large(ARGS_BYTES_MAX, &format!("order:{n}"), &format!("k{n}")))
        .collect();
    for claim in &claims {
        desk.run(claim, applied_with(answer())).await;
    }
    let repeats = claims.iter().map(|claim| desk.filled(&again(claim)));
    let answered = desk.store.claim(&desk.tenant, repeats.collect()).await;
    assert_eq!(answered.expect("the store answers").len(), 5);
    assert_eq!(desk.trail().await.len(), 10);
}

/// By rule 3.3: what is corrected may be longer, and shorter, than what failed.
pub async fn corrected_arguments_may_be_of_another_size(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    for bytes in [900_000, 1_000_000, 300_000, 1_000, 800_000] {
        let claim = ask_large(bytes, "order:1", "k1");
        desk.run(&claim, failed()).await;
        let kept = Desk::open(bench).await.key("k1").await;
        assert_eq!(kept.proposal.action.args, claim.proposal.action.args);
    }
    desk.run(&ask_large(700_000, "order:1", "k1"), unknown())
        .await;
    let (doubts, _) = desk.store.doubts(&desk.tenant).await.expect("shown");
    assert_eq!(doubts.len(), 1);
    assert_eq!(desk.trail().await.len(), 6);
}

/// By rule 11.6: a long text leaves as a short one does, and the log verifies before and after.
pub async fn a_large_receipt_is_pruned_like_any(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    desk.run(&ask_large(700_000, "order:1", "k1"), applied_with(answer()))
        .await;
    desk.run(&ask("order:2", "k2"), failed()).await;
    let head = checkpoint(&desk).await;
    assert_eq!(audited(&desk, vec![head.clone()]).await.faults, []);
    prune(&desk, 0, 1).await;
    let found = audited(&desk, vec![head]).await;
    assert_eq!((found.faults, found.pruned), (Vec::new(), 1));
    let left = entries(&desk).await;
    let body = left[0].body.as_deref().expect("a stub");
    assert!(body.len() < 4_096, "{}", body.len());
}
