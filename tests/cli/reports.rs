//! `receipts report`: one page of HTML, opened in a real browser.

use std::path::{Path, PathBuf};
use std::process::Command;

use operators_tests::chromium;
use serde_json::{Value, json};

use crate::support::{Project, hold};
use crate::vendor::{Answer, Vendor};

/// The page as the browser has it after reading it, all markup of its own making.
fn dom(browser: &Path, page: &Path) -> String {
    let profile = tempfile::tempdir().expect("a folder");
    let shown = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("the browser starts");
    assert!(shown.status.success(), "{shown:?}");
    String::from_utf8(shown.stdout).expect("UTF-8")
}

fn report(project: &Project, args: &[&str]) -> (PathBuf, String) {
    let args = [&["receipts", "report", "--output", "report.html"], args].concat();
    let said = project.run(&args).ended(0);
    assert_eq!(said.stdout, "");
    said.tells("wrote report.html");
    (project.path("report.html"), project.read("report.html"))
}

/// What markup that came from data would look like.
const HOSTILE: &str =
    "<script>document.title='taken'</script><img src=x onerror=alert(1)>\u{202e}\n";

/// Applied, duplicate, blocked, failed and in doubt, with hostile text wherever data can be.
fn busy_project() -> (Project, Vendor) {
    let vendor = Vendor::start(|request| match &request.body {
        body if body.contains("down") => Answer::Close,
        body if body.contains("bad") => Answer::Text(422, HOSTILE.to_owned()),
        _ => Answer::well(),
    });
    let project = Project::with(&vendor.config());
    let name = serde_json::to_string("<b>dear</b>").expect("JSON");
    let rule = format!("\n[[rule]]\nname = {name}\ndecision = 'ALLOW'\nmax_value = 10\n");
    let policy = project.read("policies/all.toml") + &rule;
    project.write("policies/all.toml", policy);
    let orders = ["SO-1", "SO-1", "<script>dear", "bad", "<i>down"];
    let mut plan = orders.map(hold);
    for (action, value) in plan.iter_mut().zip([1, 1, 11, 1, 1]) {
        action["value"] = json!(value);
    }
    project.plan(&json!(plan)).ended(4);
    (project, vendor)
}

#[test]
fn a_report_tells_the_numbers_and_a_browser_shows_it() {
    let (project, _vendor) = busy_project();
    let (path, page) = report(&project, &["--since", "1h"]);
    for word in [
        "Receipts of acme",
        "5 receipts from",
        "<dt>veto rate</dt><dd><b>20.0 %</b> <small>1 of 5</small>",
        "<dt>duplicates absorbed</dt><dd><b>1</b>",
        "<dt>doubts open now</dt><dd><b>1</b>",
        "shop:orders.hold",
        "&lt;b&gt;dear&lt;/b&gt;",
        "&lt;i&gt;down",
        "Content-Security-Policy",
        "default-src 'none'",
        "prefers-color-scheme: dark",
        "<title id=\"over-time\">Decisions per minute</title>",
    ] {
        assert!(page.contains(word), "no `{word}` in {page}");
    }
    is_self_contained(&page);
    let Some(browser) = chromium::program() else {
        return;
    };
    let seen = dom(&browser, &path);
    assert!(seen.contains("<title>Receipts of acme</title>"), "{seen}");
    // Elements of the browser's making, none of the data's.
    assert_eq!(seen.matches("<section>").count(), 5, "{seen}");
    assert!(seen.contains("class=\"block\""), "{seen}");
    assert_eq!(seen.matches("<script").count(), 0, "{seen}");
    assert_eq!(seen.matches("<img").count(), 0, "{seen}");
    assert_eq!(seen.matches("<i>").count(), 0, "{seen}");
}

/// Nothing that a browser would fetch or run.
#[track_caller]
fn is_self_contained(page: &str) {
    for word in [
        "http://",
        "https://",
        "<script",
        "src=",
        "url(",
        "@import",
        "<link",
        "onerror=a",
    ] {
        assert!(!page.contains(word), "`{word}` in {page}");
    }
    let hidden = |c: char| c.is_control() && c != '\n' || matches!(c, '\u{202a}'..='\u{202e}');
    assert!(!page.contains(hidden), "{page}");
}

#[test]
fn an_empty_trail_has_a_report_too() {
    let project = Project::with_file();
    let (path, page) = report(&project, &[]);
    assert!(page.contains("no receipts"), "{page}");
    assert!(page.contains("Nothing was proposed."), "{page}");
    is_self_contained(&page);
    if let Some(browser) = chromium::program() {
        assert!(dom(&browser, &path).contains("Nothing was proposed."));
    }
}

#[test]
fn a_report_of_a_hundred_thousand_receipts_stays_small() {
    let project = Project::with_file();
    project.plan(&json!([hold("SO-1")])).ended(0);
    grow(&project, 100_000);
    let (_, page) = report(&project, &[]);
    assert!(page.contains("100\u{202f}001 receipts from"), "{page}");
    assert!(page.len() < 60_000, "{} bytes", page.len());
}

/// Writes copies of the first receipt into the file, a minute apart, under ids of their own.
fn grow(project: &Project, count: i64) {
    let file = project.path(".operators/store.db");
    let connection = rusqlite::Connection::open(file).expect("a store");
    let body: String = connection
        .query_row("SELECT body FROM receipt", [], |row| row.get(0))
        .expect("a receipt");
    let receipt: Value = serde_json::from_str(&body).expect("JSON");
    let id = receipt["receipt_id"].as_str().expect("an id");
    let settled = receipt["settled_at"].as_str().expect("a time");
    connection
        .execute(
            "INSERT INTO receipt (receipt_id, tenant, idempotency_key, settled_at, body) \
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
             SELECT 'rc_' || i, 'acme', 'k' || i, strftime('%Y-%m-%dT%H:%M:%S.000000Z', ?2, '-' || i || ' minutes'), \
               replace(replace(?3, ?4, 'rc_' || i), ?2, strftime('%Y-%m-%dT%H:%M:%S.000000Z', ?2, '-' || i || ' minutes')) \
             FROM n",
            rusqlite::params![count, settled, body, id],
        )
        .expect("inserts");
}
