//! Trust from outside: closed by default, broken policies stop everything, rules are cited.

use operators::{Disposition, Reason};
use serde_json::{Value, json};

use crate::support::{Project, action, hold};

#[test]
fn without_a_policy_file_everything_is_blocked_and_said_so() {
    // rule 6.1
    let project = Project::with_file();
    std::fs::remove_file(project.path("policies/all.toml")).expect("there");
    let plan = json!([hold("SO-1")]);
    let said = project.plan(&plan).ended(3);
    said.tells("warning: no policy file fits `policies/*.toml`, so every action is blocked");
    let results = said.results();
    assert_eq!(results[0].decision, Disposition::Block);
    assert_eq!(results[0].error.as_deref(), Some("blocked by trust policy"));
    assert_eq!(results[0].rule, None);
    assert_eq!(project.effects().len(), 0);

    std::fs::remove_dir(project.path("policies")).expect("empty");
    project
        .plan(&plan)
        .ended(3)
        .tells("warning: no policy file fits");
    let empty = "[trust]\npolicies = []\n";
    project.write("operators.toml", project.read("operators.toml") + empty);
    project
        .plan(&plan)
        .ended(3)
        .tells("`trust.policies` is empty");
    assert_eq!(project.effects().len(), 0);
    // rule 5.1: each refusal has its receipt.
    assert_eq!(project.receipts().len(), 3);
}

#[test]
fn a_policy_that_does_not_load_stops_everything_and_says_where() {
    // rule 6.4; a good file beside it does not help.
    const RULE: &str = "policy = 'p'\nversion = 1\n[[rule]]\nname = 'r'\ndecision = 'ALLOW'\n";
    let cases = [
        (RULE.replace("'ALLOW'", "'allow'"), "5:12", "`ALLOW`"),
        (RULE.replace("'ALLOW'", "'MAYBE'"), "5:12", "`ALLOW`"),
        (format!("{RULE}max_valeu = 5\n"), "6:1", "max_valeu"),
        (
            format!("{RULE}if = 'vlaue < 5'\n"),
            "6:7",
            "no variable `vlaue`",
        ),
        (
            format!("{RULE}require = 'value'\n"),
            "6:12",
            "not to a bool",
        ),
        (
            format!("{RULE}require = 'value <'\n"),
            "6:19",
            "the language is CEL",
        ),
        (
            format!("{RULE}limit = {{ max = 9999, per = '1h', by = 'entity' }}\n"),
            "6:17",
            "from 1 to 5000",
        ),
        (format!("{RULE}alert = 'page'\n"), "6:9", "no way to raise"),
        (RULE.replace("version = 1\n", ""), "1:1", "version"),
        ("policy = 'p'\nversion = 1\n".to_owned(), "1:1", "[[rule]]"),
        (RULE.replace("[[rule]]", "[[rule"), "3:", "correct it there"),
        (String::new(), " the file is empty", "at least one rule"),
        (format!("{RULE}max_value = nan\n"), "6:13", "not finite"),
        (format!("{RULE}max_value = '5'\n"), "6:13", "not a number"),
        (
            format!("{RULE}tool = 'orders.h\u{43e}ld'\n"),
            "6:8",
            "tool `",
        ),
        (
            format!("{RULE}tool = 'orders.hold\u{200b}'\n"),
            "6:8",
            "tool `",
        ),
        (format!("{RULE}tool = 'Orders.hold'\n"), "6:8", "tool `"),
    ];
    for (text, place, words) in cases {
        let project = Project::with_file();
        project.write("policies/bad.toml", &text);
        let said = project.plan(&json!([hold("SO-1")])).ended(1);
        said.tells("nothing runs");
        said.tells(&format!("policies/bad.toml:{place}"));
        said.tells(words);
        assert_eq!(said.stdout, "", "{text}");
        project.is_untouched();
    }
}

#[test]
fn a_policy_that_cannot_be_read_stops_everything() {
    // rule 6.4
    let cases: [fn(&Project); 5] = [
        |project| project.write("policies/bad.toml", ""),
        |project| project.write("policies/bad.toml", [0xff]),
        |project| std::fs::create_dir(project.path("policies/bad.toml")).expect("a folder"),
        |project| {
            std::os::unix::fs::symlink("nowhere", project.path("policies/bad.toml"))
                .expect("a link");
        },
        |project| {
            let named = "[trust]\npolicies = ['policies/bad.toml']\n";
            project.write("operators.toml", project.read("operators.toml") + named);
        },
    ];
    for spoil in cases {
        let project = Project::with_file();
        spoil(&project);
        let said = project.plan(&json!([hold("SO-1")])).ended(1);
        said.tells("policies/bad.toml");
        said.tells("nothing runs");
        project.is_untouched();
    }
}

#[test]
fn two_policies_of_one_name_stop_everything() {
    let project = Project::with_file();
    project.write("policies/again.toml", project.read("policies/all.toml"));
    let said = project.plan(&json!([hold("SO-1")])).ended(1);
    said.tells("policies/again.toml");
    project.is_untouched();
}

const TWO_RULES: &str = "
policy = 'orders'
version = 7
[[rule]]
name = 'small ones'
tool = 'orders.*'
decision = 'ALLOW'
max_value = 500
[[rule]]
name = 'watched'
tool = 'orders.hold'
decision = 'ALERT'
";

#[test]
fn the_rule_that_decided_is_cited_to_people_programs_and_auditors() {
    let project = Project::with_file();
    project.write("policies/all.toml", TWO_RULES);
    let mut large = hold("SO-2");
    large["value"] = json!(501);
    let mut small = hold("SO-1");
    small["value"] = json!(500);
    let plan = json!([small, large, hold("SO-3")]);
    project.write("plan.json", plan.to_string());

    let told = project
        .run(&["run", "--once", "--plan", "plan.json"])
        .ended(3);
    told.tells("blocked by rule `small ones` (policies/all.toml:4)");
    told.tells("3 actions: 1 applied, 2 refused; 1 raised by ALERT");
    assert!(told.stdout.contains("501"), "why, in the table: {told:#?}");

    // rule 6.2, 6.3, 6.6: the ceiling outweighs; without a value it fails; ALERT runs.
    let results = project.plan(&plan).results();
    let rules: Vec<_> = results.iter().map(|one| one.rule.as_deref()).collect();
    assert_eq!(rules[1..], [Some("small ones"), Some("small ones")]);
    assert_eq!(results[1].reason, Some(Reason::Policy));
    assert_eq!(results[2].error.as_deref(), Some("blocked by trust policy"));
    assert_eq!(project.effects().len(), 1);

    let receipts = project.receipts();
    assert_eq!(receipts[0].decision, Some(Disposition::Alert));
    assert_eq!(receipts[0].rule.as_deref(), Some("watched"));
    let cited = receipts[1].policy.as_ref().expect("a policy");
    assert_eq!((cited.name.as_str(), cited.version), ("orders", 7));
    assert!(cited.digest.starts_with("sha256:"), "{cited:?}");
}

#[test]
fn a_tool_outside_requires_is_blocked_whatever_the_policy_allows() {
    // rule 6.5
    let project = Project::with_file();
    let more = "[connectors.shop.tools.'orders.release']\n\
                [operators.holder]\nrequires = ['shop:orders.hold']\nplan = 'plan.json'\n";
    project.write("operators.toml", project.read("operators.toml") + more);
    let release = action("orders.release", "SO-1", json!({}));
    project.write("plan.json", json!([hold("SO-1"), release]).to_string());
    let said = project.run(&["run", "--once", "holder"]).ended(3);
    said.tells("`requires` in operators.toml");
    assert_eq!(project.effects().len(), 1);
    // Also when its plan comes from elsewhere; the same plan of nobody is bound by policies alone.
    let args = ["run", "--once", "holder", "--json", "--plan", "plan.json"];
    assert_eq!(project.run(&args).ended(3).decisions(), ["DEDUP", "BLOCK"]);
    let args = ["run", "--once", "--json", "--plan", "plan.json"];
    assert_eq!(project.run(&args).ended(0).decisions(), ["DEDUP", "ALLOW"]);
}

/// Rules 1.2 and 6.5: a read too, and the dry run says so before.
#[test]
fn a_read_outside_requires_is_blocked_and_nothing_is_sent() {
    let project = Project::with_file();
    let more = "[connectors.shop.tools.'orders.get']\neffect = 'read'\n\
                [operators.holder]\nrequires = ['shop:orders.hold']\nplan = 'plan.json'\n";
    project.write("operators.toml", project.read("operators.toml") + more);
    let read = action("orders.get", "SO-1", json!({}));
    project.write("plan.json", json!([read]).to_string());
    let args = ["run", "--once", "holder", "--dry-run", "--json"];
    let forecast = project.run(&args).ended(3).stdout;
    let forecast: Value = serde_json::from_str(&forecast).expect("JSON");
    assert_eq!(forecast[0]["decision"], "BLOCK");
    assert!(project.receipts().is_empty());
    let said = project.run(&["run", "--once", "holder"]).ended(3);
    said.tells("`requires` in operators.toml");
    let receipts = project.receipts();
    assert_eq!(receipts.len(), 1);
    assert_eq!(receipts[0].decision, Some(Disposition::Block));
    assert!(project.effects().is_empty());
    let args = ["run", "--once", "--json", "--plan", "plan.json"];
    assert_eq!(project.run(&args).ended(0).decisions(), ["ALLOW"]);
}

#[test]
fn an_operator_s_own_policies_must_agree_with_the_project_s() {
    // rule 6.11
    const OWN: &str = "policy = 'own'\nversion = 1\n[[rule]]\nname = 'small'\n\
                       tool = 'orders.hold'\ndecision = 'ALLOW'\nif = 'value <= 250'\n";
    let project = Project::with_file();
    let more = "[operators.holder]\npolicies = ['own/*.toml']\nplan = 'plan.json'\n";
    project.write("operators.toml", project.read("operators.toml") + more);
    let valued = |order: &str, value: u32| {
        let mut action = hold(order);
        action["value"] = json!(value);
        action
    };
    let plan = json!([valued("SO-1", 250), valued("SO-2", 251)]);
    project.write("plan.json", plan.to_string());
    let run = ["run", "--once", "holder", "--json"];
    // No file of its own: nothing of it runs.
    assert_eq!(project.run(&run).ended(3).decisions(), ["BLOCK", "BLOCK"]);
    project.write("own/small.toml", OWN);
    assert_eq!(project.run(&run).ended(3).decisions(), ["ALLOW", "BLOCK"]);
    let receipts = project.receipts();
    let note = receipts.last().and_then(|last| last.note.as_deref());
    assert_eq!(
        note,
        Some("no rule of operator `holder`'s own policies speaks of `shop:orders.hold`")
    );
    // Of others the project's policies alone decide; theirs still bind the operator too.
    let args = ["run", "--once", "--json", "--plan", "plan.json"];
    assert_eq!(project.run(&args).ended(0).decisions(), ["DEDUP", "ALLOW"]);
    project.edit("policies/all.toml", "ALLOW", "BLOCK");
    project.write("plan.json", json!([valued("SO-3", 1)]).to_string());
    assert_eq!(project.run(&run).ended(3).decisions(), ["BLOCK"]);
    // One that does not load stops everything.
    project.edit("own/small.toml", "value", "vlaue");
    project.run(&run).ended(1).tells("own/small.toml:7:7");
}

#[test]
fn an_expression_decides_and_its_error_is_in_the_receipt() {
    // rules 6.7, 6.8
    let project = Project::with_file();
    project.write(
        "policies/all.toml",
        "policy = 'p'\nversion = 1\n[[rule]]\nname = 'reviewed'\ndecision = 'ALLOW'\n\
         require = 'args.reason == \"review\"'\n",
    );
    let with = |order: &str, args| action("orders.hold", order, args);
    let plan = json!([
        with("SO-1", json!({"order": "SO-1", "reason": "review"})),
        with("SO-2", json!({"order": "SO-2", "reason": "hunter2"})),
        with("SO-3", json!({"order": "SO-3"})),
    ]);
    let said = project.plan(&plan).ended(3);
    assert_eq!(said.decisions(), ["ALLOW", "BLOCK", "BLOCK"]);
    let results = said.results();
    assert_eq!(results[2].error.as_deref(), Some("blocked by trust policy"));
    let receipts = project.receipts();
    let notes: Vec<_> = receipts.iter().map(|one| one.note.as_deref()).collect();
    let notes: Vec<&str> = notes.into_iter().flatten().collect();
    assert_eq!(
        notes,
        [
            "`require` holds",
            "`require` does not hold: args.reason == \"review\"",
            "`require` cannot be judged: there is no `reason`: args.reason == \"review\"",
        ]
    );
    assert_eq!(receipts[2].rule.as_deref(), Some("reviewed"));
    assert_eq!(project.effects().len(), 1);
}

#[test]
fn an_expression_is_held_against_the_tool_s_schema() {
    // rule 6.9; the example's tool declares its arguments.
    let project = Project::example();
    let policy = project.read("policies/ship-risk.toml");
    let rule = "\n[[rule]]\nname = 'typo'\nconnector = 'shop'\ntool = 'orders.hold'\n\
                decision = 'BLOCK'\nif = 'args.order > 5'\n";
    project.write("policies/ship-risk.toml", policy + rule);
    let said = project.run(&["run", "--once"]).ended(1);
    said.tells("`>` cannot take a string and an int");
    project.is_untouched();
}

#[test]
fn a_plan_of_nobody_that_an_operator_may_run_is_told_whose_it_could_be() {
    // The example's policy speaks of one operator alone.
    let project = Project::example();
    let args = ["run", "--once", "--plan", "plans/ship-risk.json"];
    let said = project.run(&args).ended(3);
    said.tells("say whose it is: `operators run ship-risk --once --plan …`");
    let said = project.run(&[&args[..], &["ship-risk"]].concat()).ended(0);
    assert!(said.stdout.contains("ALLOW"), "{said:#?}");
    // Nobody may run this one.
    let mut dear = hold("SO-9");
    dear["args"] = json!({"order": "SO-9", "reason": "x"});
    dear["value"] = json!(9_000);
    project.write("plan.json", json!([dear]).to_string());
    let said = project
        .run(&["run", "--once", "--plan", "plan.json"])
        .ended(3);
    said.tells("edit policies/ship-risk.toml");
}

#[test]
fn what_was_applied_stays_dedup_under_a_policy_that_blocks_it_now() {
    // rule 1.3
    let project = Project::with_file();
    project.plan(&json!([hold("SO-1")])).ended(0);
    project.edit("policies/all.toml", "ALLOW", "BLOCK");
    let said = project.plan(&json!([hold("SO-1"), hold("SO-2")])).ended(3);
    assert_eq!(said.decisions(), ["DEDUP", "BLOCK"]);
}

#[test]
fn a_tool_that_is_not_there_and_arguments_that_do_not_fit_are_refused_by_name() {
    // rule 1.8
    let project = Project::example();
    let mut stranger = hold("SO-1");
    stranger["tool"] = json!("orders.destroy");
    let mut misfit = hold("SO-2");
    misfit["args"] = json!({"order": 7, "reason": "x"});
    let said = project.plan(&json!([stranger, misfit])).ended(3);
    let reasons: Vec<_> = said.results().iter().map(|one| one.reason).collect();
    assert_eq!(
        reasons,
        [Some(Reason::UnknownTool), Some(Reason::InvalidArgs)]
    );
    assert_eq!(project.effects().len(), 0);
}
