//! One action proposed 657 times from three processes' worth of connections (rule 3.8).

use operators_tests::conformance::desk::{again, ask};

use crate::common::{End, database, desk, drive};

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_657_from_three_processes_is_granted_once() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let desks = [desk(&url).await, desk(&url).await, desk(&url).await];
    let claim = ask("order-1", "hold-order-1");
    let callers: Vec<_> = (0..657_usize)
        .map(|caller| {
            let (desk, claim) = (desks[caller % 3].clone(), again(&claim));
            tokio::spawn(async move { drive(&desk, &claim).await.expect("an end") })
        })
        .collect();
    let mut ends = Vec::new();
    for caller in callers {
        ends.push(caller.await.expect("no panic"));
    }
    assert_eq!(ends.iter().filter(|end| **end == End::Ran).count(), 1);
    assert_eq!(desks[0].trail().await.len(), 657);
    let problems = desks[0].store.check().await.expect("checks");
    assert!(problems.is_empty(), "{problems:?}");
}
