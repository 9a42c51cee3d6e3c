//! Which tables are used, and which are refused by name.

use std::time::{Duration, Instant};

use operators_kernel::StoreError;
use operators_seams::DynamoStore;
use operators_tests::dynamodb::{endpoint, fresh_url};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::table;

/// Asks the server itself.
pub async fn asked(endpoint: &str, operation: &str, body: &str) -> String {
    let host = endpoint.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).await.expect("a server");
    let length = body.len();
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
         X-Amz-Target: DynamoDB_20120810.{operation}\r\nX-Amz-Date: 20260101T000000Z\r\n\
         Content-Type: application/x-amz-json-1.0\r\nContent-Length: {length}\r\n\
         Authorization: AWS4-HMAC-SHA256 \
         Credential=operators/20260101/eu-central-1/dynamodb/aws4_request, \
         SignedHeaders=host;x-amz-date, Signature=00\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.expect("asks");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

pub fn name_of(url: &str) -> &str {
    let rest = url.trim_start_matches("dynamodb:");
    rest.split('?').next().expect("a name")
}

fn unusable(connected: Result<DynamoStore, StoreError>) -> String {
    match connected {
        Err(error @ StoreError::Unusable { .. }) => error.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

/// Rule 8.4: never made in silence.
#[tokio::test]
async fn a_missing_table_is_refused_with_the_remedy() {
    let Some(endpoint) = endpoint() else { return };
    let url = fresh_url(endpoint);
    let said = unusable(DynamoStore::connect(&url).await);
    assert!(said.contains("doctor --create"), "{said}");
    assert!(said.contains(name_of(&url)), "{said}");
    let said = unusable(DynamoStore::connect(&url).await);
    assert!(said.contains("not there"), "still: {said}");
}

#[tokio::test]
async fn making_a_table_twice_leaves_it_as_it_is() {
    let Some((url, _, _)) = table().await else {
        return;
    };
    let store = DynamoStore::connect(&url).await.expect("connects");
    DynamoStore::create_table(&url).await.expect("is there");
    let problems = operators_kernel::Ledger::check(&store).await;
    assert_eq!(problems.expect("looks"), Vec::<String>::new());
}

/// Rule 8.4.
#[tokio::test]
async fn a_table_of_another_program_is_refused() {
    let Some(endpoint) = endpoint() else { return };
    let url = fresh_url(endpoint);
    let name = name_of(&url);
    let body = format!(
        r#"{{"TableName":"{name}","BillingMode":"PAY_PER_REQUEST",
        "AttributeDefinitions":[{{"AttributeName":"id","AttributeType":"S"}}],
        "KeySchema":[{{"AttributeName":"id","KeyType":"HASH"}}]}}"#
    );
    asked(endpoint, "CreateTable", &body).await;
    let said = unusable(DynamoStore::connect(&url).await);
    assert!(said.contains("id HASH"), "{said}");
}

/// Rule 8.4.
#[tokio::test]
async fn a_table_of_a_newer_version_is_refused() {
    let Some((url, _, _)) = table().await else {
        return;
    };
    let endpoint = endpoint().expect("a server");
    let name = name_of(&url);
    let body = format!(
        r#"{{"TableName":"{name}","Item":{{"pk":{{"S":"table"}},"sk":{{"S":"-"}},"layout":{{"N":"99"}}}}}}"#
    );
    asked(endpoint, "PutItem", &body).await;
    let said = unusable(DynamoStore::connect(&url).await);
    assert!(said.contains("layout 99"), "{said}");
}

/// Rule 8.2: unreachable is not unusable, and it is said before a person's patience is out.
#[tokio::test]
async fn an_endpoint_that_nobody_listens_on_is_unavailable() {
    let begun = Instant::now();
    let url = "dynamodb:operators?region=eu-central-1&endpoint=http://127.0.0.1:9";
    let error = DynamoStore::connect(url).await.expect_err("nobody");
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn an_address_that_is_none_is_refused() {
    for url in ["dynamodb:", "dynamodb:operators?zone=1"] {
        unusable(DynamoStore::connect(url).await);
    }
}
