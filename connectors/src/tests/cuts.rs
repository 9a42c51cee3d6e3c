//! Only a few words of an answer are quoted: what was cut off is not half a secret.
//!
//! The arguments here are marked by nobody; their names give them away. The kernel would take them
//! out of a whole text, and does not know the half of one.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use operators_kernel::InvokeOutcome;

use super::vendor::{Reply, Vendor, answer};
use super::{build, build_in, call, invoke};

/// As long as the tokens of some vendors, with no piece twice.
fn long() -> String {
    let mut state = 7_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from_digit((state >> 16) % 36, 36).expect("a digit")
    };
    (0..400).map(|_| next()).collect()
}

#[track_caller]
fn tells_no_piece(outcome: InvokeOutcome, secret: &str) -> String {
    let (InvokeOutcome::NotApplied(error) | InvokeOutcome::Unknown(error)) = outcome else {
        panic!("{outcome:?}")
    };
    let characters: Vec<char> = secret.chars().collect();
    for piece in characters.windows(8) {
        let piece: String = piece.iter().collect();
        assert!(!error.message.contains(&piece), "{piece} is in {error}");
    }
    error.message
}

async fn refused(secret: &str, reply: Reply) -> String {
    let vendor = Vendor::always(reply);
    let registry = build(&vendor.config("")).expect("config");
    let call = call("do", json!({"login": [{"access_token": secret}]}));
    tells_no_piece(invoke(&registry, &call).await, secret)
}

#[tokio::test]
async fn a_vendor_that_refuses_a_long_token_and_echoes_it_is_not_quoted() {
    let token = long();
    for body in [
        format!("bad token {token}"),
        json!({"message": format!("bad token {token}")}).to_string(),
        json!({"errors": [{"access_token": token}]}).to_string(),
    ] {
        let reply = Reply::Close(answer("422 No", "application/json", &body));
        let message = refused(&token, reply).await;
        assert!(
            message.contains("422") && message.contains('…'),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_token_that_the_vendor_spells_in_its_own_way_is_known() {
    let token = format!("{}\"\\\n/é ", &long()[..40]).repeat(6);
    for body in [
        json!({"errors": [{"access_token": token}]}).to_string(),
        json!({"said": json!({"access_token": token}).to_string()}).to_string(),
    ] {
        let reply = Reply::Close(answer("422 No", "application/json", &body));
        refused(&token, reply).await;
    }
}

/// A refusal is read for half a second and 16 KiB: the end of what was read is anywhere.
#[tokio::test]
async fn a_token_that_is_cut_while_it_is_read_is_not_quoted() {
    let token = long();
    let head = "HTTP/1.1 422 No\r\ncontent-length: 99999\r\n\r\n";
    let stalls = format!("{head}bad token {}", &token[..150]);
    let message = refused(&token, Reply::Hang(stalls.into_bytes())).await;
    assert_eq!(message, "`POST /do` answered 422: `bad token …`");
    let half_a_letter = [
        head.as_bytes(),
        b"bad token ",
        &token.as_bytes()[..150],
        b"\xc3",
    ];
    refused(&token, Reply::Hang(half_a_letter.concat())).await;
}

/// Only the end of stderr is kept, so its start is anywhere.
#[tokio::test]
async fn a_token_at_either_end_of_a_programs_last_words_is_not_quoted() {
    let token = long();
    let folder = TempDir::new().expect("a folder");
    let config = "[connectors.shop]\nkind = 'command'\n[connectors.shop.tools.do]\n\
                  argv = ['sh', 'shop.sh']\nnot_applied = '3'\n";
    let registry = build_in(config, folder.path()).expect("config");
    let call = call("do", json!({"access_token": token}));
    for said in [
        format!("bad token {token}"),
        // The last 4096 bytes begin inside of it.
        format!("bad token {token}{}", ", sorry".repeat(550)),
    ] {
        fs::write(folder.path().join("said"), said).expect("written");
        fs::write(folder.path().join("shop.sh"), "cat said >&2; exit 3").expect("written");
        let message = tells_no_piece(invoke(&registry, &call).await, &token);
        assert!(message.contains("exit code 3: `"), "{message}");
    }
}

#[cfg(feature = "sql")]
#[tokio::test]
async fn a_database_that_quotes_a_long_token_is_not() {
    let token = long();
    let folder = TempDir::new().expect("a folder");
    let database = rusqlite::Connection::open(folder.path().join("shop.db")).expect("the file");
    database
        .execute_batch("CREATE TABLE t (a)")
        .expect("a table");
    let config = "[connectors.shop]\nkind = 'sql'\nurl = 'sqlite:shop.db'\n\
                  [connectors.shop.tools.do]\n\
                  statement = \"UPDATE t SET a = json_extract('{}', {args.access_token})\"\n";
    let config = config.replace("'{}'", "json_object()");
    let registry = build_in(&config, folder.path()).expect("config");
    database
        .execute_batch("INSERT INTO t VALUES (1)")
        .expect("a row");
    let call = call("do", json!({"access_token": token}));
    let message = tells_no_piece(invoke(&registry, &call).await, &token);
    assert!(message.contains('…'), "it was quoted: {message}");
}

#[cfg(feature = "mcp")]
#[tokio::test]
async fn a_server_that_quotes_a_long_token_is_not() {
    let token = long();
    let said = json!({"content": [{"type": "text", "text": format!("bad {token}")}],
        "isError": true});
    let shop = super::servers::Shop::new(&super::servers::says(&said.to_string()), "");
    let call = call("hold", json!({"order": "SO-1", "access_token": token}));
    let message = tells_no_piece(invoke(&shop.registry(), &call).await, &token);
    assert_eq!(message, "`hold` answered with an error: `bad …`");
}

/// What is not cut is the kernel's to clean: there a hash stands for a secret, not a blank.
#[tokio::test]
async fn a_whole_answer_is_left_to_the_kernel() {
    let body = json!({"access_token": "canary-token", "pins": 41_234}).to_string();
    let vendor = Vendor::always(Reply::Close(answer("200 OK", "application/json", &body)));
    let registry = build(&vendor.config("")).expect("config");
    let call = call("do", json!({"access_token": "canary-token", "pin": 1234}));
    let (result, _) = super::applied(invoke(&registry, &call).await);
    let expected: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(result, expected);
}
