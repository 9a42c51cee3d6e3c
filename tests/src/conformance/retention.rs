//! Retention: texts leave the store behind a receipt of it, and everything else stays (section 11).

use operators_kernel::log::{
    Frontier, LogEntry, LogHash, PlacedStub, Pruned, Pruning, erase, is_stub, is_unfinished,
};
use operators_kernel::{Directive, DirectiveAnswer, Order, ReceiptKind};

use super::desk::{Desk, again, applied, ask, failed, fresh_id, moment};
use super::log::{audited, checkpoint};
use crate::stores::Bench;

/// Every entry of the log.
pub async fn entries(desk: &Desk) -> Vec<LogEntry> {
    desk.store
        .log()
        .sequence(&desk.tenant)
        .await
        .expect("sequenced");
    let found = desk.store.log().log_entries(&desk.tenant, 0, 1_000).await;
    found.expect("the store shows")
}

/// Of the receipts from one place up to another, as whoever wrote their segment would say it.
pub async fn pruning(desk: &Desk, from: u64, to: u64) -> Pruning {
    let entries = entries(desk).await;
    let (mut log, mut stubs) = (Frontier::default(), Frontier::default());
    let mut pruning = Pruning {
        by: fresh_id(),
        digest: "sha256:00".to_owned(),
        from,
        root: LogHash::of_nothing(),
        segment: "old.jsonl".to_owned(),
        stubs: LogHash::of_nothing(),
        to,
    };
    for entry in entries.iter().filter(|entry| entry.position < to) {
        log.push(entry.leaf);
        if entry.position >= from {
            let body = entry.body.as_deref().expect("a text");
            let stub = pruning.stub(body).expect("a receipt");
            stubs.push(LogHash::of_leaf(stub.as_bytes()));
        }
    }
    pruning.root = log.root();
    pruning.stubs = stubs.root();
    pruning
}

/// The order, not yet carried out.
pub async fn order(desk: &Desk, pruning: &Pruning) -> DirectiveAnswer {
    let directive = Directive {
        order: Order::Prune(Box::new(pruning.clone())),
        by: "ada".into(),
        note: Some("older than a year".to_owned()),
        receipt_id: pruning.by.clone(),
        at: moment(),
    };
    let directed = desk.store.direct(&desk.tenant, directive).await;
    directed.expect("the store obeys")
}

/// Prunes as the command does, its file aside.
pub async fn prune(desk: &Desk, from: u64, to: u64) -> Pruning {
    let pruning = pruning(desk, from, to).await;
    assert_eq!(order(desk, &pruning).await, DirectiveAnswer::Done);
    let erased = erase(desk.store.log(), &desk.tenant, &pruning).await;
    erased.expect("the store obeys").expect("a sound log");
    pruning
}

async fn some(desk: &Desk, names: &[&str]) {
    for name in names {
        desk.run(&ask(name, name), applied()).await;
    }
}

fn stubs_of(pruning: &Pruning, entries: &[LogEntry]) -> Vec<PlacedStub> {
    let stub = |entry: &LogEntry| PlacedStub {
        position: entry.position,
        receipt_id: entry.receipt_id.clone(),
        stub: pruning
            .stub(entry.body.as_deref().expect("a text"))
            .expect("a receipt"),
    };
    entries.iter().map(stub).collect()
}

/// By rule 11.6: hashes, proofs and burned keys hold as they did, and only the texts are gone.
pub async fn a_pruned_receipt_leaves_its_hash_and_its_key(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    some(&desk, &["k1", "k2", "k3"]).await;
    desk.run(&ask("e4", "failed"), failed()).await;
    let before = entries(&desk).await;
    let checkpoint = checkpoint(&desk).await;
    let pruning = prune(&desk, 0, 3).await;
    assert_eq!(pruning.root, {
        let mut three = Frontier::default();
        before[..3].iter().for_each(|entry| {
            three.push(entry.leaf);
        });
        three.root()
    });
    let other = Desk::open(bench).await;
    let found = audited(&other, vec![checkpoint]).await;
    assert_eq!(found.faults, []);
    assert_eq!((found.size, found.pruned, found.keys), (5, 3, Some(3)));
    let after = entries(&other).await;
    for (old, new) in before.iter().zip(&after) {
        assert_eq!(
            (old.position, &old.receipt_id, old.leaf, old.link),
            (new.position, &new.receipt_id, new.leaf, new.link)
        );
        let is_gone = new.body.as_deref().is_some_and(is_stub);
        assert_eq!(is_gone, new.position < 3, "{new:?}");
    }
    let trail = other.trail().await;
    let kinds: Vec<ReceiptKind> = trail.iter().map(|receipt| receipt.kind).collect();
    assert_eq!(kinds, [ReceiptKind::Proposal, ReceiptKind::Prune]);
    assert_eq!(Pruning::told_by(&trail[1]), Some(pruning.clone()));
    assert_eq!(trail[1].approver.as_deref(), Some("ada"));
    let stub = other.store.log().stub(&other.tenant, &before[1].receipt_id);
    let stub = stub.await.expect("shown").expect("a stub");
    let stub = Pruned::read(&stub).expect("reads");
    assert_eq!((stub.by, stub.key.as_str()), (pruning.by, "k2"));
    let whole = other.store.log().stub(&other.tenant, &before[3].receipt_id);
    assert_eq!(whole.await, Ok(None));
    let original = other.duplicate(&again(&ask("k1", "k1"))).await;
    assert_eq!(original.receipt_id, before[0].receipt_id);
}

/// By rule 11.6: the next pruning goes on where the last one ended, and what later audits need of
/// the receipts it covers stays.
pub async fn a_pruning_goes_on_where_the_last_one_ended(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    some(&desk, &["k1", "k2", "k3"]).await;
    for (from, to) in [(1, 2), (0, 0)] {
        let wrong = pruning(&desk, from, to).await;
        let answer = order(&desk, &wrong).await;
        assert_eq!(answer, DirectiveAnswer::PrunedElsewhere(None), "{from}");
    }
    let first = prune(&desk, 0, 2).await;
    assert_eq!(
        order(&desk, &first).await,
        DirectiveAnswer::Done,
        "asked again"
    );
    some(&desk, &["k4", "k5"]).await;
    let mut again = first.clone();
    again.by = fresh_id();
    let before = DirectiveAnswer::PrunedElsewhere(Some(Box::new(first)));
    assert_eq!(order(&desk, &again).await, before);
    // The receipt of the first one is the fourth.
    prune(&desk, 2, 5).await;
    let found = audited(&desk, vec![checkpoint(&desk).await]).await;
    assert_eq!(found.faults, []);
    assert_eq!((found.size, found.pruned, found.keys), (7, 4, Some(5)));
    let kept = entries(&desk).await[3].body.clone().expect("a text");
    assert!(!is_stub(&kept), "{kept}");
}

/// By rules 5.4, 11.6: no stub without a pruning, none beyond it, and nothing that is none.
pub async fn nothing_but_what_was_pruned_may_become_a_stub(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    some(&desk, &["k1", "k2", "k3"]).await;
    let before = entries(&desk).await;
    let early = pruning(&desk, 0, 2).await;
    let log = desk.store.log();
    let stubs = stubs_of(&early, &before);
    for stub in &stubs {
        let put = log.put_stubs(&desk.tenant, vec![stub.clone()]).await;
        let error = put.expect_err("nothing was pruned").to_string();
        assert!(error.contains("append-only"), "{error}");
    }
    assert_eq!(order(&desk, &early).await, DirectiveAnswer::Done);
    let beyond = log.put_stubs(&desk.tenant, vec![stubs[2].clone()]).await;
    let error = beyond.expect_err("it was not pruned").to_string();
    assert!(error.contains("append-only"), "{error}");
    let other = PlacedStub {
        stub: before[0].body.clone().expect("a text").replace("k1", "k9"),
        ..stubs[0].clone()
    };
    let edit = log.put_stubs(&desk.tenant, vec![other]).await;
    edit.expect_err("it is no stub");
    let now = entries(&desk).await;
    assert_eq!(now[..3], before[..]);
    assert_eq!(audited(&desk, Vec::new()).await.faults, []);
}

/// By rule 11.6: a pruning that was cut short is sound, and is finished by whoever comes.
pub async fn a_pruning_cut_short_is_finished(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    some(&desk, &["k1", "k2", "k3", "k4"]).await;
    let before = entries(&desk).await;
    let pruning = pruning(&desk, 0, 4).await;
    assert_eq!(order(&desk, &pruning).await, DirectiveAnswer::Done);
    let found = audited(&desk, Vec::new()).await;
    assert_eq!((found.faults, found.pruned), (Vec::new(), 0));
    let two = stubs_of(&pruning, &before[..2]);
    let put = desk.store.log().put_stubs(&desk.tenant, two).await;
    put.expect("the first two");
    let found = audited(&desk, Vec::new()).await;
    assert_eq!((found.faults, found.pruned), (Vec::new(), 2));
    let other = Desk::open(bench).await;
    let (log, tenant) = (other.store.log(), &other.tenant);
    assert_eq!(is_unfinished(log, tenant, &pruning).await, Ok(true));
    assert_eq!(erase(log, tenant, &pruning).await, Ok(Ok(2)));
    assert_eq!(is_unfinished(log, tenant, &pruning).await, Ok(false));
    let found = audited(&other, Vec::new()).await;
    assert_eq!((found.faults, found.pruned), (Vec::new(), 4));
}

/// By rule 11.6: whatever came of the stubs of one call, the trail and the log agree about each text,
/// and the pruning is finished.
pub async fn a_stub_beside_one_that_is_refused_leaves_no_text_behind(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    some(&desk, &["k1", "k2", "k3"]).await;
    let before = entries(&desk).await;
    let pruning = pruning(&desk, 0, 2).await;
    assert_eq!(order(&desk, &pruning).await, DirectiveAnswer::Done);
    let mut stubs = stubs_of(&pruning, &before);
    stubs.swap(1, 2);
    let (log, tenant) = (desk.store.log(), &desk.tenant);
    let put = log.put_stubs(tenant, stubs).await;
    let error = put.expect_err("the third was not pruned").to_string();
    assert!(error.contains("append-only"), "{error}");
    let erased = erase(log, tenant, &pruning).await;
    erased.expect("the store obeys").expect("a sound log");
    let trail = desk.trail().await;
    let kinds: Vec<ReceiptKind> = trail.iter().map(|receipt| receipt.kind).collect();
    assert_eq!(kinds, [ReceiptKind::Proposal, ReceiptKind::Prune]);
    let found = audited(&desk, Vec::new()).await;
    assert_eq!((found.faults, found.pruned), (Vec::new(), 2));
}

/// By rule 11.6: a tenant prunes its own receipts.
pub async fn a_pruning_is_a_tenants_own(bench: &dyn Bench) {
    let desk = Desk::open(bench).await;
    let other = desk.of("other");
    some(&desk, &["k1", "k2"]).await;
    some(&other, &["k1", "k2"]).await;
    prune(&desk, 0, 2).await;
    let found = audited(&other, Vec::new()).await;
    assert_eq!((found.faults, found.pruned), (Vec::new(), 0));
    assert_eq!(other.trail().await.len(), 2);
    assert_eq!(audited(&desk, Vec::new()).await.pruned, 2);
}
