//! The call's permit, asked by every connector right before what can have an effect: rule 4.12.

use std::fs;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

use operators_kernel::{Call, ConnectorError, SendPermit};

use super::departures::asked_at_most;
use super::servers::{Shop, held, says};
use super::vendor::{Reply, Vendor, answer};
use super::{applied, build, build_in, call, invoke, not_applied, unknown};

const REFUSED: &str = "nothing was sent: the test says so";

/// Refuses as soon as this is so.
fn until(is_so: impl Fn() -> bool + Send + Sync + 'static) -> SendPermit {
    SendPermit::asking(move || {
        if is_so() {
            Err(ConnectorError::new(REFUSED))
        } else {
            Ok(())
        }
    })
}

fn refused(mut call: Call) -> Call {
    call.permit = until(|| true);
    call
}

#[tokio::test]
async fn no_connector_has_an_effect_without_its_permit() {
    let folder = TempDir::new().expect("a folder");
    let vendor = Vendor::always(Reply::Close(answer("200 OK", "application/json", "{}")));
    let database = folder.path().join("shop.db");
    let file = Connection::open(&database).expect("the file");
    file.execute_batch("CREATE TABLE orders (id TEXT)")
        .expect("a table");
    fs::write(folder.path().join("answers.json"), "{}").expect("written");
    let http = vendor.config("");
    let kinds = [
        ("http", http.as_str()),
        (
            "file",
            "[connectors.shop]\nkind = 'file'\npath = 'effects.jsonl'\n[connectors.shop.tools.do]\n",
        ),
        (
            "command",
            "[connectors.shop]\nkind = 'command'\n[connectors.shop.tools.do]\n\
             argv = ['touch', 'ran']\n",
        ),
        (
            "sql",
            "[connectors.shop]\nkind = 'sql'\nurl = 'sqlite:shop.db'\n\
             [connectors.shop.tools.do]\nstatement = \"INSERT INTO orders VALUES ('SO-1')\"\n",
        ),
        (
            "stub",
            "[connectors.shop]\nkind = 'file'\npath = 'f.jsonl'\nmode = 'stub'\n\
             [connectors.shop.tools.do]\n",
        ),
    ];
    for (kind, config) in kinds {
        let registry = build_in(config, folder.path()).expect(kind);
        let told = not_applied(invoke(&registry, &refused(call("do", json!({})))).await);
        assert!(told.contains(REFUSED), "{kind}: {told}");
    }
    assert!(vendor.requests().is_empty(), "http sent something");
    assert!(!folder.path().join("ran").exists(), "a command ran");
    let lines = fs::read_to_string(folder.path().join("effects.jsonl")).unwrap_or_default();
    assert_eq!(lines, "");
    let rows = file.query_row("SELECT count(*) FROM orders", [], |row| {
        row.get::<_, u32>(0)
    });
    assert_eq!(rows.expect("a count"), 0);
}

/// What a connector does first may take longer than the lease lasts: it asks after all of it.
#[tokio::test]
async fn a_program_that_was_greeted_too_slowly_is_not_called() {
    let shop = Shop::new(&says(r#"{"content":[]}"#), "");
    let registry = shop.registry();
    let listed = shop.path().join("listed");
    shop.write("server.sh", &Shop::server_that_marks("listed"));
    let mut slow = held();
    slow.permit = until(move || listed.exists());
    let told = not_applied(invoke(&registry, &slow).await);
    assert!(told.contains(REFUSED), "{told}");
    assert!(shop.path().join("listed").exists(), "it was not listed");
    assert!(shop.calls().is_empty(), "it was called");
}

/// By rules 4.1 and 4.12: of a long message the rest is kept back too, so that a program that reads
/// late never finds its end; but a part left, so what became of it is not known.
#[tokio::test]
async fn what_may_not_go_on_to_a_program_after_a_part_left_is_a_doubt() {
    let shop = Shop::new(&says(r#"{"content":[]}"#), "");
    let registry = shop.registry();
    shop.write("server.sh", &Shop::server_that_stops_reading("read-on"));
    let mut long = call("hold", json!({"order": "x".repeat(1024 * 1024)}));
    long.deadline = Duration::from_secs(10);
    long.permit = asked_at_most(2);
    let answered = tokio::time::timeout(long.deadline, invoke(&registry, &long)).await;
    let told = unknown(answered.expect("it is given up at once"));
    assert!(told.contains("its rest was kept: "), "{told}");
    shop.write("read-on", "");
    applied(invoke(&registry, &held()).await);
    let calls = shop.calls();
    assert_eq!(calls.len(), 1, "its end was found");
    assert_eq!(calls[0]["params"]["arguments"], json!({"order": "SO-1"}));
}

#[tokio::test]
async fn what_a_token_was_fetched_for_too_slowly_is_not_sent() {
    let token = json!({"access_token": "t-1", "token_type": "bearer", "expires_in": 60});
    let token = answer("200 OK", "application/json", &token.to_string());
    let server = std::sync::Arc::new(Vendor::always(Reply::Close(token)));
    let vendor = Vendor::always(Reply::Close(answer("200 OK", "application/json", "{}")));
    let config = vendor.config("").replace(
        "[connectors.shop.tools.do]",
        &format!(
            "[connectors.shop.auth.oauth2]\ntoken_url = 'http://{}/token'\nclient_id = 'us'\n\
             client_secret = 'secret:token'\n[connectors.shop.tools.do]",
            server.address
        ),
    );
    let registry = build(&config).expect("config");
    let mut slow = call("do", json!({}));
    let asked = std::sync::Arc::clone(&server);
    slow.permit = until(move || !asked.requests().is_empty());
    let told = not_applied(invoke(&registry, &slow).await);
    assert!(told.contains(REFUSED), "{told}");
    assert_eq!(server.requests().len(), 1, "no token was fetched");
    assert!(vendor.requests().is_empty(), "it was sent");
}
