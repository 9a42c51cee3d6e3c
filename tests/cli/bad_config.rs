//! A configuration that is wrong anywhere: the place, the remedy, and nothing runs.

use serde_json::json;

use crate::support::{Project, hold};
use crate::vendor::{Answer, Vendor};

/// Runs with a configuration and a plan that would otherwise run; every word must be told.
#[track_caller]
fn refused(config: &str, place: &str, words: &[&str]) {
    let project = Project::with(config);
    project.write("plan.json", json!([hold("SO-1")]).to_string());
    for args in [
        &["run", "--once", "--plan", "plan.json"][..],
        &["run", "--once", "--plan", "plan.json", "--dry-run"],
    ] {
        let said = project.run(args).ended(1);
        assert_eq!(said.stdout, "");
        assert!(said.stderr.starts_with("error: "), "{said:#?}");
        said.tells(&format!("operators.toml:{place}: "));
        for word in words {
            said.tells(word);
        }
    }
    project.is_untouched();
}

const SHOP: &str = "[connectors.shop]\nkind = 'http'\nbase_url = 'https://shop.example'\n\
                    [connectors.shop.tools.'orders.hold']\npath = '/hold'\n";

/// [`SHOP`] with a piece of it replaced.
fn shop(old: &str, new: &str) -> String {
    assert!(SHOP.contains(old), "{old}");
    SHOP.replace(old, new)
}

#[test]
fn an_unknown_field_is_named_with_its_place_and_those_there_are() {
    refused("tenent = 'acme'\n", "1:1", &["`tenent`", "`tenant`"]);
    refused("\n[store]\nurls = 'memory:'\n", "3:1", &["`urls`", "`url`"]);
    refused(
        &shop("path = '/hold'", "pth = '/hold'"),
        "5:1",
        &["`pth`", "`path`"],
    );
    refused(
        "[operators.a]\nplans = 'p.json'\n",
        "2:1",
        &["`plans`", "`plan`"],
    );
}

#[test]
fn a_word_given_twice_is_refused() {
    refused("tenant = 'a'\ntenant = 'b'\n", "2:1", &["duplicate key"]);
}

#[test]
fn a_duration_says_how_to_write_one() {
    refused("[store]\nlease = 'soon'\n", "2:9", &["`30s`"]);
    refused(
        "[store]\nlease = '1ms'\n",
        "2:9",
        &["out of bounds", "`1s`"],
    );
    refused(
        &shop("path = '/hold'", "timeout = '-3s'"),
        "5:11",
        &["`30s`"],
    );
    refused("[operators.a]\nevery = 15\n", "2:9", &["correct it there"]);
}

#[test]
fn a_url_must_be_one_that_can_be_called() {
    refused(
        &shop("https://shop.example", "shop.example"),
        "3:1",
        &["base_url", "https://"],
    );
    refused(
        &shop("https://shop.example", "ftp://shop.example"),
        "3:1",
        &["base_url", "http"],
    );
    refused(
        &shop("base_url = 'https://shop.example'\n", ""),
        "1:13",
        &["base_url"],
    );
}

#[test]
fn a_url_with_a_credential_is_refused_without_repeating_it() {
    let config = shop("https://shop.example", "https://me:hunter2@shop.example");
    let project = Project::with(&config);
    let said = project.plan(&json!([hold("SO-1")])).ended(1);
    said.tells("operators.toml:3:1: ");
    assert!(!said.stderr.contains("hunter2"), "{said:#?}");
}

#[test]
fn an_unknown_connector_kind_lists_those_there_are() {
    refused(
        &shop("'http'", "'soap'"),
        "2:8",
        &["`soap`", "`mcp` and `sql`"],
    );
    refused(&shop("kind = 'http'\n", ""), "1:1", &["`kind`"]);
}

#[test]
fn a_store_of_an_unknown_kind_is_refused_not_replaced() {
    refused(
        "[store]\nurl = 'redis:x'\n",
        "2:7",
        &["`redis`", "`memory:`"],
    );
    refused(
        "[store]\nurl = 'store.db'\n",
        "2:7",
        &["names no kind", "`sqlite:.operators/store.db`"],
    );
    refused(
        "[store]\nurl = 'sqlite:x.db?mode=rwc'\n",
        "2:7",
        &["remove everything from `?`"],
    );
    refused("[store]\nurl = 'sqlite::memory:'\n", "2:7", &["`memory:`"]);
    refused(
        "[store]\nurl = 'dynamodb:?region=x'\n",
        "2:7",
        &["`dynamodb:TABLE?region=REGION`"],
    );
}

#[test]
fn a_database_that_is_not_there_is_named_without_its_password_and_nothing_runs() {
    // rule 8.2
    let port = crate::vendor::closed_port();
    let vendor = Vendor::always(Answer::well());
    let store = format!("[store]\nurl = 'postgres://me:hunter2@127.0.0.1:{port}/x'\n");
    let project = Project::with(&(vendor.config() + &store));
    let said = project.plan(&json!([hold("SO-1")])).ended(1);
    said.tells("postgres store");
    said.tells(&port.to_string());
    assert!(!said.stderr.contains("hunter2"), "{said:#?}");
    assert_eq!(vendor.requests().len(), 0);
}

#[test]
fn an_alert_mode_that_is_none_lists_those_there_are() {
    refused(
        "[trust]\nalert = 'ask'\n",
        "2:9",
        &["no alert mode `ask`", "`notify` or `approve`"],
    );
}

#[test]
fn a_tool_that_promises_what_it_cannot_keep_is_refused() {
    let transactional = shop("path = '/hold'", "path = '/hold'\neffect = 'transactional'");
    refused(&transactional, "6:1", &["`opaque`", "`url = \"store\"`"]);
    let probeable = shop("path = '/hold'", "path = '/hold'\neffect = 'probeable'");
    refused(&probeable, "6:1", &["effect"]);
}

#[test]
fn an_operator_must_say_one_way_to_its_plan() {
    let both = "[operators.a]\nplan = 'p.json'\ncommand = ['x']\n";
    refused(both, "3:1", &["both", "keep the one"]);
    refused(
        "[operators.a]\nrequires = ['shop']\n",
        "2:12",
        &["connector:tool"],
    );

    let project = Project::with("[operators.a]\ngoal = 'nothing yet'\n");
    let said = project.run(&["run", "--once"]).ended(1);
    said.tells("`a` has neither `plan` nor `command`");
    said.tells("--plan FILE");
    project.is_untouched();
}

#[test]
fn an_operator_that_does_not_exist_lists_those_that_do() {
    let project = Project::example();
    let said = project.run(&["run", "--once", "ship-rusk"]).ended(1);
    said.tells("`ship-rusk`");
    said.tells("ship-risk");
    project.is_untouched();
}

#[test]
fn a_configuration_that_is_no_ordinary_file_is_refused() {
    let project = Project::empty();
    std::fs::create_dir(project.path("operators.toml")).expect("a folder");
    project
        .run(&["run", "--once"])
        .ended(1)
        .tells("not a regular file");
    let project = Project::with("");
    project.write("operators.toml", [0xff, 0xfe]);
    project.run(&["run", "--once"]).ended(1).tells("not UTF-8");
    project.write("operators.toml", vec![b' '; 2 << 20]);
    project.run(&["run", "--once"]).ended(1).tells("bytes");
    project.is_untouched();
}

#[test]
fn the_worker_is_refused_with_what_to_do_instead() {
    let project = Project::example();
    let said = project.run(&["run"]).ended(2);
    said.tells("not in this version");
    said.tells("--once");
    project.is_untouched();
}

#[test]
fn a_pattern_that_cannot_be_followed_is_told_with_its_place() {
    let project = Project::with_file();
    let config = project.read("operators.toml") + "[trust]\npolicies = ['a/*/b.toml']\n";
    let line = config.lines().count();
    project.write("operators.toml", config);
    let said = project.plan(&json!([])).ended(1);
    said.tells(&format!(
        "operators.toml:{line}:1: `trust.policies`: `a/*/b.toml`"
    ));
}
