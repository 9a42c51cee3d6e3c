//! Secrets: the connector's hands only (rule 5.5).
//!
//! A canary in a header, one in an argument the tool marks, one in an argument whose name gives it
//! away. The vendor echoes all of them, and logs are at their loudest.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Project, Running, Said, action};
use crate::vendor::{Answer, Request, Vendor};

pub const IN_HEADER: &str = "canary-header-7f3a9c";
const MARKED: &str = "canary-marked-51be02";
const NAMED: &str = "canary-named-c04d88";
const CANARIES: [&str; 3] = [IN_HEADER, MARKED, NAMED];

fn project(vendor: &Vendor) -> Project {
    let config = vendor.config();
    let config = config.replace(
        "allow_private_addresses = true\n",
        "allow_private_addresses = true\nheaders = { Authorization = 'secret:shop-token' }\n",
    );
    let config = config.replace(
        "path = '/hold'\n",
        "path = '/hold'\nsecret_args = ['card.number']\n",
    );
    Project::with(&config)
}

pub fn secretive(order: &str) -> Value {
    let args = json!({
        "order": order,
        "card": {"number": MARKED, "holder": "Ann"},
        "login": {"password": NAMED},
    });
    action("orders.hold", order, args)
}

/// Everything it was given, in every place an answer has.
fn echo(request: &Request) -> String {
    let header = request.header("authorization").unwrap_or_default();
    json!({ "id": header, "said": request.body, MARKED: NAMED, "list": [header, NAMED] })
        .to_string()
}

fn propose(project: &Project, plan: &Value, args: &[&str]) -> Said {
    propose_with(project, plan, args, "OPERATORS_SECRET_SHOP_TOKEN")
}

/// With the credential in that variable, and the logs at their loudest.
pub fn propose_with(project: &Project, plan: &Value, args: &[&str], variable: &str) -> Said {
    let args = [&["run", "--once", "--plan", "-"], args].concat();
    let mut command = project.command(&args);
    command
        .env(variable, IN_HEADER)
        .env("OPERATORS_LOG", "trace");
    Running::start(&mut command, Some(plan.to_string().as_bytes())).end()
}

#[track_caller]
fn tells_no_secret(text: &str, what: &str) {
    for canary in CANARIES {
        assert!(!text.contains(canary), "`{canary}` is in {what}: {text}");
    }
}

/// Looks into every file below, whatever it is.
#[track_caller]
fn holds_no_secret(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(holds_no_secret(&path));
            continue;
        }
        let bytes = std::fs::read(&path).expect("a file");
        for canary in CANARIES {
            let found = bytes
                .windows(canary.len())
                .any(|window| window == canary.as_bytes());
            assert!(!found, "`{canary}` is in {}", path.display());
        }
        files.push(path);
    }
    files
}

#[track_caller]
pub fn looks_clean(project: &Project, said: &[Said]) {
    for said in said {
        tells_no_secret(&said.stdout, "stdout");
        tells_no_secret(&said.stderr, "stderr or the logs");
        assert!(
            said.stderr.contains("disposed"),
            "the logs are on: {said:#?}"
        );
    }
    for args in [
        &["receipts", "export"][..],
        &["receipts", "export", "--format", "csv"],
        &["receipts", "export", "--format", "csv", "--raw"],
        &["receipts", "list"],
        &["receipts", "list", "--json"],
        &["receipts", "tail"],
        &["receipts", "report"],
        &["receipts", "report", "--output", "report.html"],
        &[
            "receipts",
            "export",
            "--format",
            "parquet",
            "--output",
            "out.parquet",
        ],
        &["keys", "show", "SO-1:hold", "--json"],
        &["keys", "show", "SO-1:hold"],
        &["doubts", "list"],
        &["doctor"],
    ] {
        let said = project.run(args);
        tells_no_secret(&said.stdout, "stdout");
        tells_no_secret(&said.stderr, "stderr");
    }
    for receipt in project.receipts() {
        let id = receipt.receipt_id;
        let said = project.run(&["receipts", "show", &id, "--json"]).ended(0);
        tells_no_secret(&said.stdout, "a story");
        let said = project.run(&["receipts", "show", &id]).ended(0);
        tells_no_secret(&said.stdout, "a receipt");
        assert!(said.stdout.contains("hmac-sha256:"), "{said:#?}");
    }
    let files = holds_no_secret(project.dir());
    assert!(
        files.iter().any(|file| file.ends_with("store.db")),
        "{files:?}"
    );
}

#[test]
fn the_vendor_gets_them_and_nobody_else_even_if_it_echoes_them() {
    let vendor = Vendor::start(|request| Answer::Json(200, echo(request)));
    let project = project(&vendor);
    let plan = json!([secretive("SO-1"), secretive("SO-1")]);
    let said = propose(&project, &plan, &["--json"]).ended(0);
    assert_eq!(
        said.decisions(),
        ["ALLOW", "DEDUP"],
        "the keyed hash is the same each time"
    );
    let told = propose(&project, &plan, &[]).ended(0);
    let dry = propose(&project, &plan, &["--json", "--dry-run"]).ended(0);
    assert!(
        said.stderr.contains("DEBUG"),
        "the logs are loud: {said:#?}"
    );
    let sent = vendor.requests();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].header("authorization"), Some(IN_HEADER));
    assert!(
        sent[0].body.contains(MARKED) && sent[0].body.contains(NAMED),
        "{sent:?}"
    );
    tells_no_secret(&dry.stdout, "a forecast");
    looks_clean(&project, &[said, told]);
}

#[test]
fn a_refusal_or_a_doubt_that_quotes_them_is_cleaned_too() {
    for answer in [
        |request: &Request| Answer::Text(422, echo(request)),
        |request: &Request| Answer::Text(500, echo(request)),
        |request: &Request| Answer::Text(503, echo(request)),
        |request: &Request| Answer::Json(200, format!("not JSON {}", echo(request))),
    ] {
        let vendor = Vendor::start(answer);
        let project = project(&vendor);
        let said = propose(&project, &json!([secretive("SO-1")]), &[]).ended(4);
        looks_clean(&project, &[said]);
    }
}

/// Somebody's access token of 400 characters stood in a receipt for half its length: the answer was
/// cut to what is quoted before anybody looked for the whole token in it.
#[test]
fn a_long_token_is_not_left_in_part_by_a_quote() {
    let digit = |at: u32| char::from_digit(at.wrapping_mul(2_654_435_761) >> 16 & 31, 36);
    let token: String = (1..=400).filter_map(digit).collect();
    for answer in [
        |request: &Request| Answer::Text(422, format!("bad request: {}", request.body)),
        |request: &Request| Answer::Json(422, json!({"message": request.body}).to_string()),
        |request: &Request| Answer::Json(503, json!({"said": request.body}).to_string()),
    ] {
        let vendor = Vendor::start(answer);
        let project = project(&vendor);
        let mut plan = secretive("SO-1");
        plan["args"]["access_token"] = json!(token);
        let said = propose(&project, &json!([plan]), &["--json"]).ended(4);
        let sent = vendor.requests();
        assert!(sent[0].body.contains(&token), "the vendor has it: {sent:?}");
        let mut left = said.stdout.clone() + &said.stderr;
        left += &project.run(&["receipts", "export"]).ended(0).stdout;
        for file in holds_no_secret(project.dir()) {
            left += &String::from_utf8_lossy(&std::fs::read(&file).expect("a file"));
        }
        assert!(left.contains("answered"), "{left}");
        for at in 0..=token.len() - 16 {
            let piece = &token[at..at + 16];
            assert!(!left.contains(piece), "{piece} of the token is in {left}");
        }
        looks_clean(&project, &[said]);
    }
}

#[test]
fn a_conflict_names_the_paths_not_the_values() {
    // rule 3.2
    let vendor = Vendor::always(Answer::well());
    let project = project(&vendor);
    let mut other = secretive("SO-1");
    other["args"]["card"]["number"] = json!("another");
    let first = propose(&project, &json!([secretive("SO-1"), other]), &["--json"]).ended(3);
    assert_eq!(first.results()[1].conflict, ["/args/card/number"]);
    looks_clean(&project, &[first]);
}

#[test]
fn a_process_that_is_killed_mid_call_leaves_none_behind() {
    let (vendor, _gate) = Vendor::gated();
    let project = project(&vendor);
    let mut command = project.command(&["run", "--once", "--plan", "-"]);
    command.env("OPERATORS_SECRET_SHOP_TOKEN", IN_HEADER);
    let plan = json!([secretive("SO-1")]).to_string();
    let mut running = Running::start(&mut command, Some(plan.as_bytes()));
    vendor.wait_for(1);
    running.child.kill().expect("a child of ours");
    assert_eq!(running.end().code, None, "it was killed");
    let files = holds_no_secret(project.dir());
    assert!(
        files.iter().any(|file| file.ends_with("store.db-wal")),
        "{files:?}"
    );
}

#[test]
fn a_secret_that_is_not_set_is_named_before_anything_is_sent() {
    let vendor = Vendor::always(Answer::well());
    let project = project(&vendor);
    let said = project.plan(&json!([secretive("SO-1")])).ended(4);
    assert!(
        said.stdout.contains("OPERATORS_SECRET_SHOP_TOKEN"),
        "{said:#?}"
    );
    assert_eq!(vendor.requests().len(), 0);
}

#[test]
fn a_policy_that_blocks_a_secret_argument_does_not_quote_it() {
    let vendor = Vendor::always(Answer::well());
    let project = project(&vendor);
    project.edit("policies/all.toml", "ALLOW", "BLOCK");
    let said = propose(&project, &json!([secretive("SO-1")]), &[]).ended(3);
    looks_clean(&project, &[said]);
}
