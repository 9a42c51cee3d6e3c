//! What somebody does to what a pruning left, and what an audit says of it.

use operators_kernel::log::LogHash;
use operators_tests::conformance::desk::{Desk, applied, ask};
use operators_tests::conformance::retention::{entries, prune, pruning};
use operators_tests::stores::Bench;

use crate::hands::{Forged, Hands, says, told};

/// Six applied actions, the first four of them pruned; the receipt of that is the seventh.
async fn four_pruned(bench: &dyn Bench) -> Desk {
    let desk = Desk::open(bench).await;
    for number in 0..6 {
        let name = format!("k{number}");
        desk.run(&ask(&name, &name), applied()).await;
    }
    prune(&desk, 0, 4).await;
    desk
}

pub async fn a_stub_with_another_hash(bench: &dyn Bench, hands: &dyn Hands) {
    let desk = four_pruned(bench).await;
    let entries = entries(&desk).await;
    let forged = Forged {
        position: 2,
        receipt_id: entries[2].receipt_id.clone(),
        leaf: LogHash::of_leaf(b"another"),
        link: entries[2].link,
        body: entries[2].body.clone().expect("a stub"),
    };
    hands.rewrite(&forged).await;
    let told = told(bench, &desk, Vec::new()).await;
    says(
        &told,
        &[&forged.receipt_id, "3 of the log", "does not follow"],
    );
}

pub async fn a_stub_that_tells_otherwise(bench: &dyn Bench, hands: &dyn Hands) {
    let desk = four_pruned(bench).await;
    let entries = entries(&desk).await;
    let stub = entries[2].body.as_deref().expect("a stub");
    assert!(stub.contains("\"applied\""), "{stub}");
    let edited = stub.replace("\"applied\"", "\"refused\"");
    hands.set_body(&entries[2].receipt_id, &edited).await;
    let told = told(bench, &desk, Vec::new()).await;
    says(
        &told,
        &["receipts 1 to 4", &entries[6].receipt_id, "was changed"],
    );
}

pub async fn one_stub_too_many(bench: &dyn Bench, hands: &dyn Hands) {
    let desk = four_pruned(bench).await;
    let entries = entries(&desk).await;
    let fifth = entries[4].body.as_deref().expect("a text");
    // As if the pruning had reached further, and as if there had been another one.
    let mut further = pruning(&Desk::open(bench).await.of("other"), 0, 0).await;
    for (by, from, to) in [
        (&entries[6].receipt_id, 0, 5),
        (&entries[5].receipt_id, 4, 5),
    ] {
        further.by = by.as_str().into();
        (further.from, further.to) = (from, to);
        let stub = further.stub(fifth).expect("a receipt");
        hands.set_body(&entries[4].receipt_id, &stub).await;
        let told = told(bench, &desk, Vec::new()).await;
        says(
            &told,
            &[
                &entries[4].receipt_id,
                "5 of the log",
                "no receipt tells of its pruning",
            ],
        );
    }
}

pub async fn a_pruning_without_its_receipt(bench: &dyn Bench, hands: &dyn Hands) {
    let desk = four_pruned(bench).await;
    let entries = entries(&desk).await;
    hands.cut_off(&entries[6..]).await;
    let first = told(bench, &desk, Vec::new()).await;
    says(&first, &["ends at 6", "says 7"]);
    // The head too: then the stubs tell.
    let mut head = operators_kernel::log::Frontier::default();
    for entry in &entries[..6] {
        head.push(entry.leaf);
    }
    hands.set_head(&head).await;
    let told = told(bench, &desk, Vec::new()).await;
    says(
        &told,
        &[
            &entries[0].receipt_id,
            "1 of the log",
            "no receipt tells of its pruning",
        ],
    );
}

pub async fn a_key_burned_by_a_pruned_receipt_is_deleted(bench: &dyn Bench, hands: &dyn Hands) {
    let desk = four_pruned(bench).await;
    let entries = entries(&desk).await;
    hands.delete_key("k2").await;
    let told = told(bench, &desk, Vec::new()).await;
    says(
        &told,
        &[
            &entries[2].receipt_id,
            "key `k2`",
            "does not have it burned",
        ],
    );
}

pub async fn a_key_burned_by_a_pruned_receipt_is_burned_again(
    bench: &dyn Bench,
    hands: &dyn Hands,
) {
    let desk = four_pruned(bench).await;
    hands.delete_key("k2").await;
    let again = Desk {
        store: bench.open().await,
        ..desk.clone()
    };
    again.run(&ask("k2", "k2"), applied()).await;
    let told = told(bench, &again, Vec::new()).await;
    says(&told, &["8 of the log", "key `k2`", "receipt 3 of the log"]);
}
