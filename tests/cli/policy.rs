//! `policy check`, `policy eval`, `policy replay`: trying a policy before it is trusted.

use serde_json::{Value, json};

use crate::support::{Project, action, hold};

const CAREFUL: &str = "policy = 'careful'
version = 2
[[rule]]
name = 'small holds'
tool = 'orders.hold'
decision = 'ALLOW'
if = 'value <= 250'
require = 'args.reason == \"review\"'
[[rule]]
name = 'large holds'
tool = 'orders.hold'
decision = 'ALERT'
if = 'value > 250'
max_value = 1000
";

fn careful() -> Project {
    let project = Project::with_file();
    project.write("policies/all.toml", CAREFUL);
    project
}

fn reviewed(order: &str, value: u32) -> Value {
    let mut hold = action(
        "orders.hold",
        order,
        json!({"order": order, "reason": "review"}),
    );
    hold["value"] = json!(value);
    hold
}

#[test]
fn check_tells_every_problem_with_its_place() {
    let project = careful();
    let said = project.run(&["policy", "check"]).ended(0);
    assert_eq!(
        said.stdout,
        "policies/all.toml: ok, policy `careful` version 2, 2 rules\n"
    );
    assert_eq!(said.stderr, "");
    project.edit("policies/all.toml", "value <= 250", "vlaue <= 250");
    project.edit("policies/all.toml", "'ALERT'", "'WARN'");
    project.write("policies/broken.toml", "policy = ");
    let said = project.run(&["policy", "check"]).ended(1);
    said.tells("error: policies/all.toml:7:7: there is no variable `vlaue`");
    said.tells("error: policies/all.toml:12:12: `WARN` is not a decision");
    said.tells("error: policies/broken.toml:1:10: ");
    said.tells("3 problems; nothing runs until there is none");
    let problems: Vec<Value> = project.run(&["policy", "check", "--json"]).ended(1).lines();
    let places: Vec<_> = problems
        .iter()
        .map(|problem| (&problem["file"], &problem["line"], &problem["column"]))
        .collect();
    assert_eq!(
        places,
        [
            (&json!("policies/all.toml"), &json!(7), &json!(7)),
            (&json!("policies/all.toml"), &json!(12), &json!(12)),
            (&json!("policies/broken.toml"), &json!(1), &json!(10)),
        ]
    );
    assert!(problems.iter().all(|one| one["remedy"].is_string()));
    // One file alone, also one that is not in use yet.
    project.write("next/all.toml", CAREFUL);
    project.run(&["policy", "check", "next/all.toml"]).ended(0);
    project.run(&["policy", "check", "nowhere.toml"]).ended(1);
    project.is_untouched();
}

#[test]
fn check_tells_files_that_do_not_go_together_and_a_project_without_any() {
    let project = careful();
    project.write("policies/again.toml", CAREFUL);
    let said = project.run(&["policy", "check"]).ended(1);
    said.tells("policy `careful` is in `policies/again.toml` too");
    for name in ["all", "again"] {
        std::fs::remove_file(project.path(&format!("policies/{name}.toml"))).expect("there");
    }
    let said = project.run(&["policy", "check"]).ended(0);
    said.tells("warning: there is no policy file, so every action is blocked");
}

/// A freeze with a mistyped tool was "ok", and stopped nothing.
#[test]
fn check_warns_of_a_rule_that_no_tool_fits() {
    let project = Project::with_file();
    let freeze = "policy = 'freeze'\nversion = 1\n[[rule]]\nname = 'no holds'\n\
        connector = 'shop'\ntool = 'order.*'\ndecision = 'BLOCK'\n";
    project.write("policies/freeze.toml", freeze);
    let said = project.run(&["policy", "check"]).ended(0);
    said.tells(
        "warning: policies/freeze.toml:3: rule `no holds` decides nothing: no configured tool fits \
         `shop:order.*`, and `shop` has `orders.hold`",
    );
    let args = ["policy", "check", "--strict", "--json"];
    let warnings: Vec<Value> = project.run(&args).ended(3).lines();
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert_eq!(warnings[0]["severity"], "warning");
    assert_eq!(warnings[0]["line"], 3);
    project
        .run(&["policy", "check", "--strict", "policies/all.toml"])
        .ended(0);
    let said = project.run(&["doctor"]).ended(0);
    assert!(
        said.stdout.contains("rule `no holds` decides nothing"),
        "{said:#?}"
    );
    project.run(&["doctor", "--strict"]).ended(1);
    // Spelled as the tool is, it stops what it should.
    project.edit("policies/freeze.toml", "order.*", "orders.*");
    project.run(&["policy", "check", "--strict"]).ended(0);
    project.run(&["doctor", "--strict"]).ended(0);
    let said = project.plan(&json!([hold("SO-1")])).ended(3);
    assert_eq!(said.decisions(), ["BLOCK"]);
}

/// No order counts, and nothing is stronger for being more exact.
#[test]
fn check_warns_of_a_rule_that_another_always_outweighs_and_of_a_policy_for_nobody() {
    let project = Project::with_file();
    let exact = "policy = 'exact'\nversion = 1\napplies_to = ['nobody']\n[[rule]]\nname = 'holds'\n\
        tool = 'orders.hold'\ndecision = 'ALLOW'\n";
    project.write("policies/exact.toml", exact);
    project.edit("policies/all.toml", "'ALLOW'", "'BLOCK'");
    let said = project.run(&["policy", "check", "--strict"]).ended(3);
    said.tells(
        "policies/exact.toml:4: rule `holds` decides nothing: rule `everything` \
         (policies/all.toml:3) says BLOCK of all that it speaks of",
    );
    said.tells("policy `exact` applies to `nobody`, and the project has no such operator");
    said.tells("refused: `--strict` wants every rule to decide something");
    // Without its connectors it is still a check of the policies.
    let config = project.read("operators.toml");
    project.write("operators.toml", config + "args_schema = 'nowhere.json'\n");
    let said = project.run(&["policy", "check"]).ended(0);
    said.tells("whether tools fit the rules was not looked at: ");
    said.tells("rule `holds` decides nothing");
}

#[test]
fn eval_tells_verdict_rule_and_what_every_constraint_saw() {
    let project = careful();
    let mut stranger = hold("SO-9");
    stranger["tool"] = json!("orders.destroy");
    let mut misses = hold("SO-4");
    misses["value"] = json!(100);
    let plan = json!([
        reviewed("SO-1", 250),
        reviewed("SO-2", 251),
        reviewed("SO-3", 5_000),
        misses,
        stranger,
        reviewed("SO-1", 250),
    ]);
    project.write("plan.json", plan.to_string());
    let said = project
        .run(&["policy", "eval", "plan.json", "--json"])
        .ended(3);
    let all: Vec<Value> = serde_json::from_str(&said.stdout).expect("an array");
    let told: Vec<_> = all
        .iter()
        .map(|one| (one["decision"].as_str(), one["rule"].as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (Some("ALLOW"), Some("small holds")),
            (Some("ALERT"), Some("large holds")),
            (Some("BLOCK"), Some("large holds")),
            (Some("BLOCK"), Some("small holds")),
            (Some("BLOCK"), None),
            // The same key again: policies know nothing of keys.
            (Some("ALLOW"), Some("small holds")),
        ]
    );
    assert_eq!(all[0]["policy"]["version"], 2);
    assert_eq!(all[4]["reason"], "unknown_tool");
    assert_eq!(all[4]["weighed"], false);
    let small = &all[0]["rules"][0];
    assert_eq!(small["place"], "policies/all.toml:3");
    assert_eq!(
        small["checks"],
        json!([
            {"constraint": "if", "text": "value <= 250", "holds": true, "told": "`if` holds",
             "saw": {"value": 250.0}},
            {"constraint": "require", "text": "args.reason == \"review\"", "holds": true,
             "told": "`require` holds", "saw": {"args.reason": "review"}},
        ])
    );
    let large = &all[0]["rules"][1];
    assert_eq!(
        (&large["speaks"], &large["holds"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(all[2]["because"], "value 5000 is above `max_value` 1000");
    let saw = &all[3]["rules"][0]["checks"][1]["saw"];
    assert_eq!(*saw, json!({"args.reason": null}));

    let said = project.run(&["policy", "eval", "plan.json"]).ended(3);
    for words in [
        "rule `small holds` (policies/all.toml:3) says ALLOW",
        "rule `large holds` (policies/all.toml:9) does not speak of it",
        "yes  `if` holds",
        "no   value 5000 is above `max_value` 1000",
        "args.reason = \"review\"",
        "no tool `orders.destroy`",
    ] {
        assert!(said.stdout.contains(words), "no `{words}` in {said:#?}");
    }
    project.is_untouched();
}

#[test]
fn eval_asks_as_an_operator_and_with_an_event() {
    let project = Project::with_file();
    project.write(
        "policies/all.toml",
        "policy = 'quiet'\nversion = 1\n[[rule]]\nname = 'by day'\ndecision = 'ALLOW'\n\
         require = 'operator == \"night\" || (event.payload.hour >= 8 && event.payload.hour < 20)'\n",
    );
    let config = project.read("operators.toml") + "[operators.night]\nplan = 'plan.json'\n";
    project.write("operators.toml", config);
    project.write("plan.json", json!([hold("SO-1")]).to_string());
    let event = |hour: u32| {
        json!({
            "event_id": "ev_1", "reseller_id": null, "tenant_id": "acme", "workspace_id": null,
            "source": "shop", "event_type": "order.created", "correlation_id": "co_1",
            "payload": {"hour": hour}, "agent_id": null, "session_id": null,
        })
        .to_string()
    };
    project.write("noon.json", event(12));
    project.write("late.json", event(20));
    project.write("none.json", "{}");
    let eval = |more: &[&str]| project.run(&[&["policy", "eval", "plan.json"], more].concat());
    eval(&[]).ended(3);
    eval(&["--operator", "night"]).ended(0);
    eval(&["--event", "noon.json"]).ended(0);
    eval(&["--event", "late.json"]).ended(3);
    eval(&["--event", "none.json"])
        .ended(1)
        .tells("`none.json` is no event");
    eval(&["--operator", "nobody"])
        .ended(1)
        .tells("no operator `nobody`");
    project.is_untouched();
}

#[test]
fn eval_shows_no_secret() {
    // rule 5.5
    let project = Project::with_file();
    project.write(
        "policies/all.toml",
        "policy = 'p'\nversion = 1\n[[rule]]\nname = 'r'\ndecision = 'ALLOW'\n\
         require = 'args.password != \"x\" && size(args) > 0'\n",
    );
    let hold = action(
        "orders.hold",
        "SO-1",
        json!({"order": "SO-1", "password": "hunter2"}),
    );
    project.write("plan.json", json!([hold]).to_string());
    for more in [&[][..], &["--json"]] {
        let args = [&["policy", "eval", "plan.json"], more].concat();
        let said = project.run(&args).ended(0);
        let all = format!("{}{}", said.stdout, said.stderr);
        assert!(!all.contains("hunter2"), "{all}");
        assert!(all.contains("(hidden)"), "{all}");
    }
}

/// Four holds that were allowed, one of them twice.
fn with_a_past() -> Project {
    let project = Project::with_file();
    let secret = |order: &str| {
        let mut hold = reviewed(order, 7);
        hold["args"]["password"] = json!("hunter2");
        hold
    };
    let plan = json!([
        reviewed("SO-1", 100),
        reviewed("SO-2", 400),
        hold("SO-3"),
        secret("SO-4"),
        reviewed("SO-1", 100),
    ]);
    project.plan(&plan).ended(0);
    project
}

const REPLAY: [&str; 4] = ["policy", "replay", "--policy", "next"];

#[test]
fn replay_tells_which_decisions_would_flip_and_what_cannot_be_told() {
    let project = with_a_past();
    let before = project.receipts().len();

    let said = project.run(&["policy", "replay"]).ended(0);
    said.tells(
        "4 weighed again: 0 would go otherwise, 0 cannot be told; 1 that trust did not decide",
    );
    assert_eq!(said.stdout, "");

    project.write("next/careful.toml", CAREFUL);
    let said = project.run(&REPLAY).ended(0);
    said.tells("4 weighed again: 2 would go otherwise, 0 cannot be told");
    assert!(said.stdout.contains("ALERT"), "{said:#?}");
    let rows: Vec<Value> = project
        .run(&[&REPLAY[..], &["--json"]].concat())
        .ended(0)
        .lines();
    let told: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                &row["idempotency_key"],
                &row["was"],
                &row["now"],
                &row["flips"],
            )
        })
        .collect();
    let flips = &json!(true);
    assert_eq!(
        told,
        [
            (&json!("SO-2:hold"), &json!("ALLOW"), &json!("ALERT"), flips),
            (&json!("SO-3:hold"), &json!("ALLOW"), &json!("BLOCK"), flips),
        ]
    );
    assert_eq!(rows[0]["rule"], "large holds");
    assert_eq!(rows[0]["policy"]["name"], "careful");

    // Nothing was written, nothing happened.
    assert_eq!(project.receipts().len(), before);
    assert_eq!(project.effects().len(), 4);
}

#[test]
fn replay_guesses_nothing_and_takes_no_bad_policy() {
    let project = with_a_past();
    // A secret argument is in receipts as a hash: what a rule would have seen is not guessed.
    let reads = "policy = 'p'\nversion = 1\n[[rule]]\nname = 'r'\ndecision = 'ALLOW'\n\
                 require = '!has(args.password) || args.password != \"x\"'\n";
    project.write("next/careful.toml", reads);
    let said = project.run(&[&REPLAY[..], &["--json"]].concat()).ended(0);
    let rows: Vec<Value> = said.lines();
    assert_eq!(rows.len(), 1, "{said:#?}");
    assert_eq!(rows[0]["now"], Value::Null);
    assert_eq!(
        rows[0]["because"],
        "rule `r` reads `args.password`, kept only as a hash"
    );
    let all: Vec<Value> = project
        .run(&[&REPLAY[..], &["--json", "--all"]].concat())
        .ended(0)
        .lines();
    assert_eq!(all.len(), 4);
    let none = project.run(&[&REPLAY[..], &["--since", "2999-01-01"]].concat());
    none.ended(0).tells("0 weighed again");
    project.write("next/careful.toml", "policy = 'p'\n");
    project.run(&REPLAY).ended(1).tells("next/careful.toml:1:1");
    project
        .run(&["policy", "replay", "--policy", "nowhere"])
        .ended(1)
        .tells("`nowhere` cannot be read");
}

/// It used to name the receipt of a question that nobody asked, and none of the rules.
#[test]
fn eval_tells_the_rule_that_would_ask_a_person() {
    let project = crate::approvals::project();
    project.write("plan.json", json!([hold("SO-1")]).to_string());
    let said = project.run(&["policy", "eval", "plan.json"]).ended(3);
    assert!(
        said.stdout.contains("a person would be asked first"),
        "{said:#?}"
    );
    assert!(
        said.stdout.contains("rule `ask first` (policies/all.toml:"),
        "{said:#?}"
    );
    assert!(!said.stdout.contains("approvals approve"), "{said:#?}");
    let said = project
        .run(&["policy", "eval", "plan.json", "--json"])
        .ended(3);
    let told: Value = serde_json::from_str(&said.stdout).expect("JSON");
    assert_eq!(
        (&told[0]["weighed"], &told[0]["rule"]),
        (&json!(true), &json!("ask first"))
    );
    assert_eq!(told[0]["reason"], "awaiting_approval");
}
