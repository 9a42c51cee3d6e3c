//! Answers that are none: a proxy's page, a redirect, half an answer, one in parts.

use std::time::Duration;

use operators_kernel::StoreError;
use operators_seams::DynamoStore;
use operators_tests::conformance::desk::{applied, ask, unknown};
use operators_tests::dynamodb::endpoint;
use operators_tests::proxy::Fate;

use crate::common::{process, table};
use crate::proxy::{refusal, refuse};
use crate::tables::{asked, name_of};

const WRITE: &str = "TransactWriteItems";

fn answer(status: &str, headers: &str, body: &str, length: usize) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}").into_bytes()
}

/// Each with a word of what is said of it.
fn no_answers() -> Vec<(Vec<u8>, &'static str)> {
    let page = "<html>sign in</html>";
    let (html, json) = (
        "content-type: text/html\r\n",
        "content-type: application/x-amz-json-1.0\r\n",
    );
    let redirect = "content-type: text/html\r\nlocation: http://portal.test/\r\n";
    vec![
        (
            answer("200 OK", html, page, page.len()),
            "HTTP 200, text/html",
        ),
        (answer("200 OK", "", "", 0), "not DynamoDB"),
        (
            answer("403 No", html, page, page.len()),
            "HTTP 403, text/html",
        ),
        (
            answer("302 Found", redirect, "", 0),
            "HTTP 302 to http://portal.test/",
        ),
        (answer("200 OK", json, "{\"Resp", 6), "HTTP 200"),
        (
            answer("200 OK", json, "{\"Resp", 60),
            "its answer cannot be used",
        ),
        (answer("400 Bad", json, "{\"__ty", 6), "HTTP 400"),
    ]
}

/// Rules 8.2, 8.3: whoever answers in the store's place said nothing about what was asked. It is named
/// ("cannot be used: : " was all there was), and a claim that was done is found.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_answer_of_the_store_is_named_and_asked_again() {
    let Some((_, url, proxy)) = table().await else {
        return;
    };
    let desk = process(&url).await;
    let mut others = no_answers();
    // A refusal after it was done, too.
    others.push((refusal(400, "AccessDeniedException"), ""));
    for (number, (other, _)) in others.into_iter().enumerate() {
        let name = format!("k{number}");
        proxy.next(WRITE, [Fate::AnswerInstead(other)]);
        let attempt = desk.take(&ask("order:1", &name)).await;
        assert_eq!(attempt.mark.attempt, 1, "found, not made again");
        desk.end(&attempt, applied()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_answers_in_the_stores_place_is_named() {
    let Some((_, url, proxy)) = table().await else {
        return;
    };
    for (other, word) in no_answers() {
        proxy.rule(move |_| Fate::AnswerInstead(other.clone()));
        let error = DynamoStore::connect(&url).await.expect_err("no table");
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains(word) && !said.contains(": :"), "{said}");
    }
}

/// Rule 8.2: a batch of keys comes in parts, each of which takes its time.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_in_parts_is_waited_for_while_parts_come() {
    const PARTS: usize = 8;
    let Some((direct, url, proxy)) = table().await else {
        return;
    };
    let (endpoint, table) = (endpoint().expect("a server"), name_of(&direct).to_owned());
    let desk = process(&url).await;
    let mut keys = Vec::new();
    let mut items = Vec::new();
    for number in 0..PARTS {
        let name = format!("k{number}");
        desk.run(&ask(&format!("order:{number}"), &name), unknown())
            .await;
        let key = format!(r#"{{"pk":{{"S":"key|4:acme|2:{name}"}},"sk":{{"S":"-"}}}}"#);
        let body = format!(r#"{{"TableName":"{table}","Key":{key}}}"#);
        let found = asked(endpoint, "GetItem", &body).await;
        let (_, found) = found.split_once("\r\n\r\n").expect("a body");
        let found: serde_json::Value = serde_json::from_str(found).expect("JSON");
        items.push(found["Item"].to_string());
        keys.push(key);
    }
    let mut next = 0;
    proxy.rule(move |operation| {
        if operation != "BatchGetItem" {
            return Fate::Pass;
        }
        std::thread::sleep(Duration::from_millis(700));
        let (item, left) = (&items[next], keys[next + 1..].join(","));
        next += 1;
        let left = if left.is_empty() {
            String::new()
        } else {
            format!(r#""{table}":{{"Keys":[{left}],"ConsistentRead":true}}"#)
        };
        let body =
            format!(r#"{{"Responses":{{"{table}":[{item}]}},"UnprocessedKeys":{{{left}}}}}"#);
        let json = "content-type: application/x-amz-json-1.0\r\n";
        Fate::Answer(answer("200 OK", json, &body, body.len()))
    });
    let (doubts, _) = desk.store.doubts(&desk.tenant).await.expect("all of them");
    assert_eq!(doubts.len(), PARTS);
}

/// Where nothing comes any more, that is said.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_that_the_service_names_is_told_as_it_is() {
    let Some((_, url, proxy)) = table().await else {
        return;
    };
    proxy.rule(|_| refuse(400, "UnrecognizedClientException"));
    let error = DynamoStore::connect(&url).await.expect_err("refused");
    assert!(matches!(error, StoreError::Unusable { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("UnrecognizedClientException: on purpose"),
        "{error}"
    );
}
