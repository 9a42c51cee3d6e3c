//! `operators connectors`: looking at what can be reached, without an effect.

use serde_json::{Value, json};

use crate::support::{Project, hold};
use crate::vendor::{Answer, Vendor};

#[test]
fn list_tells_every_tool_and_contacts_nobody() {
    let vendor = Vendor::always(Answer::well());
    let project = Project::with(&vendor.config());
    let said = project.run(&["connectors", "list", "--json"]).ended(0);
    let rows: Vec<Value> = said.lines();
    let told: Vec<[&str; 4]> = rows
        .iter()
        .map(|row| {
            ["tool", "effect", "mode", "health"].map(|name| row[name].as_str().expect("text"))
        })
        .collect();
    assert_eq!(
        told,
        [
            ["orders.get", "read", "live", "not asked"],
            ["orders.hold", "opaque", "live", "not asked"],
            ["orders.refund", "keyed", "live", "not asked"],
            ["orders.release", "opaque", "live", "not asked"],
        ]
    );
    assert_eq!(rows[0]["has_schema"], false);
    let said = project.run(&["connectors", "list"]).ended(0);
    assert!(said.stdout.contains("shop:orders.refund"), "{said:#?}");
    assert!(vendor.requests().is_empty());
    project.is_untouched();
}

/// Whatever is tested, the vendor sees no effect: only what a read, or a look, sends.
#[test]
fn a_test_never_has_an_effect() {
    let vendor = Vendor::always(Answer::well());
    let project = Project::with(&vendor.config());
    project.run(&["connectors", "test", "shop"]);
    project.run(&["connectors", "list", "--health"]);
    for tool in ["orders.hold", "orders.refund", "orders.release"] {
        let said = project.run(&["connectors", "test", "shop", "--tool", tool]);
        said.ended(1).tells("a test never has an effect");
    }
    let effects = |vendor: &Vendor| {
        let requests = vendor.requests();
        requests
            .iter()
            .filter(|request| !request.body.is_empty())
            .count()
    };
    assert_eq!(effects(&vendor), 0);
    let before = vendor.requests().len();
    let said = project.run(&["connectors", "test", "shop", "--tool", "orders.get"]);
    assert!(said.ended(0).stdout.contains("held"));
    assert_eq!((vendor.requests().len(), effects(&vendor)), (before + 1, 0));
    project.is_untouched();
}

#[test]
fn a_connector_says_how_it_is() {
    let project = Project::with(
        "tenant = 'acme'\n[connectors.shop]\nkind = 'command'\n\
         [connectors.shop.tools.hold]\nargv = ['sh', 'hold.sh']\n\
         [connectors.ledger]\nkind = 'file'\npath = 'no/such/ledger.jsonl'\n\
         [connectors.ledger.tools.note]\n\
         [connectors.gone]\nkind = 'command'\n\
         [connectors.gone.tools.run]\nargv = ['surely-no-such-program']\n",
    );
    let said = project.run(&["connectors", "test", "shop"]).ended(0);
    assert_eq!(said.stdout, "shop: well: its program is there\n");
    for (name, told) in [
        (
            "gone",
            "`surely-no-such-program` is in no folder of its `PATH`",
        ),
        ("ledger", "is in a folder that is not there"),
    ] {
        let said = project.run(&["connectors", "test", name]).ended(1);
        assert!(said.stdout.contains(told), "{said:#?}");
    }
    let said = project
        .run(&["connectors", "list", "--health", "--json"])
        .ended(1);
    let rows: Vec<Value> = said.lines();
    let health: Vec<&str> = rows
        .iter()
        .map(|row| row["health"].as_str().expect("text"))
        .collect();
    assert_eq!(health, ["ill", "ill", "well"]);
    let said = project.run(&["connectors", "test", "nobody"]).ended(1);
    said.tells("no connector `nobody` in this project");
}

const DOCUMENT: &str = r#"{"openapi": "3.0.0", "info": {"title": "Shop", "version": "1"},
  "servers": [{"url": "https://shop.example"}],
  "paths": {"/orders/{id}": {"get": {"operationId": "getOrder", "parameters":
    [{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}]}}}}"#;

#[test]
fn an_import_is_a_configuration_that_loads() {
    let project = Project::empty();
    project.write("shop.json", DOCUMENT);
    let said = project
        .run(&["connectors", "import", "openapi", "shop.json"])
        .ended(0);
    said.tells("1 tool as connector `shop`");
    project.write("operators.toml", &said.stdout);
    let listed = project.run(&["connectors", "list", "--json"]).ended(0);
    let rows: Vec<Value> = listed.lines();
    assert_eq!(
        (rows[0]["tool"].as_str(), rows[0]["effect"].as_str()),
        (Some("get_order"), Some("read"))
    );
    assert_eq!(rows[0]["has_schema"], true);
    // Never over what is there.
    let again = [
        "connectors",
        "import",
        "openapi",
        "shop.json",
        "--out",
        "operators.toml",
    ];
    project.run(&again).ended(1).tells("exists");
    assert_eq!(project.read("operators.toml"), said.stdout);
    project.write("bad.yaml", "swagger: '2.0'");
    let said = project
        .run(&["connectors", "import", "openapi", "bad.yaml"])
        .ended(1);
    said.tells("Swagger 2");
}

#[test]
fn a_program_as_a_tool_from_plan_to_receipt() {
    let project = Project::with(
        "tenant = 'acme'\n[connectors.shop]\nkind = 'command'\n\
         [connectors.shop.tools.'orders.hold']\nargv = ['sh', 'hold.sh', '{args.order}']\n\
         not_applied = '3'\n",
    );
    project.write(
        "hold.sh",
        "case $1 in SO-9) echo sold out >&2; exit 3;; esac\necho $1 >> held\necho '{\"id\": \"h-1\"}'\n",
    );
    let plan = json!([hold("SO-1"), hold("SO-1"), hold("SO-9")]);
    let said = project.plan(&plan).ended(4);
    assert_eq!(said.decisions(), ["ALLOW", "DEDUP", "ALLOW"]);
    assert_eq!(project.read("held"), "SO-1\n");
    let receipts = project.receipts();
    assert_eq!(receipts[0].effect_id.as_deref(), Some("h-1"));
    assert!(
        receipts[2]
            .error
            .as_deref()
            .is_some_and(|error| error.contains("sold out"))
    );
}

#[test]
fn a_tool_that_is_not_there_leads_to_those_that_are() {
    let project = Project::with_file();
    let mut action = hold("SO-1");
    action["tool"] = json!("orders.hodl");
    project.write("plan.json", json!([action]).to_string());
    let said = project
        .run(&["run", "--once", "--plan", "plan.json"])
        .ended(3);
    said.tells("operators connectors list");
}

/// Whoever can set a variable must not see the requests, and the credentials in them.
#[test]
fn ambient_proxies_are_not_used() {
    let vendor = Vendor::always(Answer::well());
    let proxy = Vendor::always(Answer::well());
    let project = Project::with(&vendor.config());
    project.write("plan.json", json!([hold("SO-1")]).to_string());
    let mut command = project.command(&["run", "--once", "--plan", "plan.json"]);
    for name in [
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
    ] {
        command.env(name, proxy.url());
    }
    crate::support::finish(&mut command).ended(0);
    assert_eq!((vendor.requests().len(), proxy.requests().len()), (1, 0));
}
