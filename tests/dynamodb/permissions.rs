//! The role in the guide: it can do all that the commands do, and what is missing from it is told.

use operators_kernel::Ledger;
use operators_seams::DynamoStore;
use operators_tests::conformance::desk::{applied, ask};
use operators_tests::proxy::{Fate, Proxy};

use crate::common::{process, table};
use crate::proxy::refuse;

/// The permissions that the guide's role has.
fn of_the_guide() -> Vec<String> {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guides/dynamodb.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let (_, role) = guide.split_once("\"Statement\"").expect("a role");
    let (role, _) = role.split_once("```").expect("its end");
    let names = role
        .split('"')
        .filter_map(|name| name.strip_prefix("dynamodb:"));
    let names = names.filter(|name| name.chars().all(char::is_alphanumeric));
    names.map(str::to_owned).collect()
}

/// The server refuses what such a role may not do. The parts of transactions are the server's affair.
fn with_role(proxy: &Proxy, role: Vec<String>) {
    proxy.rule(move |operation| {
        let is_allowed =
            operation.starts_with("Transact") || role.iter().any(|name| name == operation);
        if is_allowed {
            Fate::Pass
        } else {
            refuse(400, "AccessDeniedException")
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_role_of_the_guide_can_verify_and_prune() {
    let Some((_, url, proxy)) = table().await else {
        return;
    };
    with_role(&proxy, of_the_guide());
    let desk = process(&url).await;
    desk.run(&ask("order:1", "k1"), applied()).await;
    let log = desk.store.log();
    log.sequence(&desk.tenant).await.expect("appends");
    let strays = log.strays(&desk.tenant).await;
    assert_eq!(strays, Ok(Vec::new()), "what `verify` and `prune` ask");
    let burned = log.burned(&desk.tenant, None).await;
    assert_eq!(burned.expect("`--against-store`").keys.len(), 1);
    assert_eq!(desk.store.check().await, Ok(Vec::new()), "sound");
    desk.store.close_session(desk.session).await.expect("ends");
}

/// `doctor` found nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_permission_that_is_missing_is_told() {
    let Some((direct, url, proxy)) = table().await else {
        return;
    };
    let desk = process(&direct).await;
    desk.run(&ask("order:1", "k1"), applied()).await;
    let before = desk.key("k1").await;
    let store = DynamoStore::connect(&url).await.expect("connects");
    for missing in [
        "GetItem",
        "BatchGetItem",
        "Query",
        "Scan",
        "PutItem",
        "UpdateItem",
        "DeleteItem",
    ] {
        let mut role = of_the_guide();
        role.retain(|name| name != missing);
        with_role(&proxy, role);
        let told = store.check().await.expect("looks").join("\n");
        assert!(told.contains(&format!("`dynamodb:{missing}`")), "{told}");
        assert!(told.contains("on purpose"), "{told}");
    }
    assert_eq!(desk.key("k1").await, before, "nothing was written");
    assert_eq!(desk.trail().await.len(), 1);
}
