//! Which servers are refused, and what the refusal says (rule 8.4).

use operators_kernel::StoreError;
use operators_seams::PgStore;
use operators_tests::postgres::{database_of, run, url};

use crate::common::database;

async fn refusal(url: &str) -> StoreError {
    PgStore::connect(url).await.expect_err("refused")
}

#[tokio::test]
async fn a_server_that_loses_what_it_acknowledges_is_refused() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    let Some((place, _)) = url.split_once("?allow_unsafe_fsync") else {
        return; // A server that was given has its own mind about `fsync`.
    };
    let error = refusal(place).await;
    assert!(!error.is_retryable());
    assert!(error.to_string().contains("fsync = off"), "{error}");
}

#[tokio::test]
async fn a_newer_schema_is_refused_by_name() {
    let Some(database) = database().await else {
        return;
    };
    let url = database.url();
    PgStore::connect(&url).await.expect("connects");
    run(
        &url,
        "INSERT INTO operators.migration (version) VALUES (999)",
    )
    .await;
    let error = refusal(&url).await;
    assert!(!error.is_retryable());
    assert!(
        error
            .to_string()
            .contains("a newer version wrote it (schema 999"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_processes_may_open_an_empty_database_at_once() {
    let Some(database) = database().await else {
        return;
    };
    let opening: Vec<_> = (0..8)
        .map(|_| {
            let url = database.url();
            tokio::spawn(async move { PgStore::connect(&url).await })
        })
        .collect();
    for opened in opening {
        opened.await.expect("no panic").expect("connects");
    }
}

#[tokio::test]
async fn an_error_says_where_but_never_the_password() {
    let nobody = "postgres://ada:s3cret@127.0.0.1:1/shop";
    let error = refusal(nobody).await;
    assert!(error.is_retryable(), "{error}");
    assert!(error.to_string().contains("127.0.0.1:1/shop"), "{error}");
    assert!(!format!("{error:?}").contains("s3cret"));
    let Some(url) = url() else {
        return;
    };
    let error = refusal(&database_of(url, "there_is_no_such_database")).await;
    assert!(!error.is_retryable(), "{error}");
}
