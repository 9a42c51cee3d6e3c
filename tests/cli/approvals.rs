//! People in the loop: asked, answered, and what that does and does not let run.

use operators::{KnownBy, Receipt, ReceiptKind};
use serde_json::{Value, json};

use crate::support::{Project, Said, hold};

const ASKING: &str = r#"
policy = "asking"
version = 1
[[rule]]
name = "ask first"
decision = "ALERT"
alert = "approve"
"#;

pub fn project() -> Project {
    let project = Project::with_file();
    project.write("policies/all.toml", ASKING);
    project
}

fn pending(project: &Project) -> Vec<Value> {
    let said = project.run(&["approvals", "list", "--json"]).ended(0);
    said.lines()
}

#[track_caller]
fn waits(project: &Project, plan: &Value) {
    let run = project.plan(plan).ended(3);
    let reason = run.results()[0].reason.map(operators::Reason::as_str);
    assert_eq!(reason, Some("awaiting_approval"), "{run:#?}");
}

/// The receipt of the one question that waits.
pub fn question(project: &Project) -> String {
    let [asked] = pending(project).try_into().expect("one question");
    asked["receipt_id"].as_str().expect("an id").to_owned()
}

fn answer(project: &Project, verb: &str, what: &str) -> Said {
    project.run(&["approvals", verb, what, "--because", "checked"])
}

fn approve(project: &Project) {
    let said = answer(project, "approve", &question(project)).ended(0);
    assert_eq!(said.stdout, "SO-1:hold: approved\n");
}

fn of_kind(project: &Project, kind: ReceiptKind) -> Vec<Receipt> {
    let all = project.receipts().into_iter();
    all.filter(|one| one.kind == kind).collect()
}

#[test]
fn an_approved_action_runs_once_with_its_approver() {
    // rule 9.7, 9.9
    let project = project();
    let plan = json!([hold("SO-1")]);
    waits(&project, &plan);
    waits(&project, &plan);
    let asked = pending(&project);
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0]["args"]["order"], "SO-1");
    assert_eq!(asked[0]["rule"], "ask first");
    let listed = project.run(&["approvals", "list"]).ended(0);
    listed.tells(&format!("approvals approve {}", question(&project)));
    assert!(project.effects().is_empty());

    approve(&project);
    assert!(pending(&project).is_empty());
    let run = project.plan(&plan).ended(0);
    assert_eq!(run.decisions(), ["ALERT"]);
    assert_eq!(project.plan(&plan).ended(0).decisions(), ["DEDUP"]);
    assert_eq!(project.effects().len(), 1);
    let receipts = project.receipts();
    let applied = receipts
        .iter()
        .find(|one| one.ok && one.result_digest.is_some());
    let applied = applied.expect("the receipt of the effect");
    assert_eq!(applied.approver.as_deref(), Some("auditor"));
    // rule 9.15: the tests' `$USER` is no user of this system.
    assert_eq!(applied.known_by, Some(KnownBy::Environment));
    let approvals = of_kind(&project, ReceiptKind::Approve);
    assert_eq!(approvals.len(), 1);
    let cited = approvals[0].original_receipt_id.as_deref();
    assert_eq!(cited, asked[0]["receipt_id"].as_str());
}

#[test]
fn the_proposer_is_not_handed_what_answers() {
    // rule 9.14
    let project = project();
    let plan = json!([hold("SO-1")]);
    waits(&project, &plan);
    let id = question(&project);
    let run = project.plan(&plan).ended(3);
    let [result] = run.results().try_into().expect("one result");
    let error = result.error.expect("an error");
    assert!(
        !error.contains(&id) && !error.contains("operators "),
        "{error}"
    );
    let command = format!("`operators approvals approve {id} ");
    let hint = result.hint.expect("a hint");
    assert!(hint.contains(&command), "{hint}");
    let receipt = project.receipts().pop().expect("a receipt");
    assert_eq!(
        (receipt.error, receipt.hint),
        (Some(error), Some(hint.clone()))
    );
    // At the terminal it stands on a line of its own.
    project.write("plan.json", plan.to_string());
    let said = project.run(&["run", "--once", "--plan", "plan.json"]);
    let is_hint = |line: &str| line.trim() == format!("hint: {hint}");
    assert!(said.stderr.lines().any(is_hint), "{said:#?}");
    let shown = project.run(&["receipts", "show", &receipt.receipt_id]);
    let is_hint = |line: &str| line.contains("hint") && line.contains(&command);
    assert!(shown.ended(0).stdout.lines().any(is_hint));
}

#[test]
fn what_a_run_tells_to_type_next_can_be_typed() {
    let project = project();
    let mut action = hold("SO-1");
    action["idempotency_key"] = json!("it's SO-1; hold");
    project.write("plan.json", json!([action]).to_string());
    let said = project
        .run(&["run", "--once", "--plan", "plan.json"])
        .ended(3);
    said.tells("operators approvals list");
    let approve = format!(
        "approvals approve {} --because 'checked'",
        question(&project)
    );
    said.tells(&format!("`operators {approve}`"));
    // So can what is told to whoever types the key.
    let key = ["approvals", "approve", "it's SO-1; hold"];
    let because = ["--because", "it's fine", "--as", "grace"];
    let said = project.run(&[&key[..], &because].concat()).ended(1);
    let id = question(&project);
    let approve = format!(r"approvals approve {id} --because 'it'\''s fine' --as grace");
    said.tells(&format!("`operators {approve}`"));
    let program = crate::support::programs().operators.display().to_string();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &format!("{program} {approve}")]);
    shell.current_dir(project.dir());
    crate::support::finish(&mut shell).ended(0);
    project
        .run(&["run", "--once", "--plan", "plan.json"])
        .ended(0);
    assert_eq!(project.effects().len(), 1);
}

/// The name that this system has for whoever runs the tests.
fn system_user() -> Option<String> {
    let said = crate::support::finish(std::process::Command::new("id").arg("-un"));
    let name = said.stdout.trim().to_owned();
    (said.code == Some(0)).then_some(name)
}

#[test]
fn a_receipt_says_how_a_name_is_known() {
    // rule 9.15
    let project = project();
    let known = |project: &Project| {
        let receipt = project.receipts().pop().expect("a receipt");
        (receipt.approver.expect("a name"), receipt.known_by)
    };
    project.run(&["pause", "--as", "grace"]).ended(0);
    assert_eq!(known(&project), ("grace".to_owned(), Some(KnownBy::As)));
    project.run(&["resume"]).ended(0);
    let environment = Some(KnownBy::Environment);
    assert_eq!(known(&project), ("auditor".to_owned(), environment));
    if let Some(name) = system_user() {
        // The system confirms what the environment says.
        let mut command = project.command(&["pause"]);
        crate::support::finish(command.env("USER", &name)).ended(0);
        assert_eq!(known(&project), (name, Some(KnownBy::System)));
    }
}

#[test]
fn only_whom_the_project_lists_may_answer() {
    // rule 9.15
    let project = project();
    project.plan(&json!([hold("SO-1")])).ended(3);
    let id = question(&project);
    let file = project.read("operators.toml");
    let listing = |names: &str| {
        project.write(
            "operators.toml",
            format!("{file}\n[trust]\napprovers = {names}\n"),
        );
    };
    listing("['nobody-of-this-name', 'nor-this']");
    project.run(&["pause", "--because", "anybody may"]).ended(0);
    let before = project.receipts().len();
    let answers: [&[&str]; 6] = [
        &["approvals", "approve", &id],
        &["approvals", "veto", &id],
        &["doubts", "resolve", "SO-1:hold", "--not-applied"],
        &["keys", "forget", "SO-1:hold"],
        &["alerts", "ack", "--all"],
        &["resume"],
    ];
    for answer in answers {
        // Neither a name given nor the environment makes anybody another system user.
        let because = ["--because", "checked", "--as", "nobody-of-this-name"];
        let mut command = project.command(&[answer, &because[..]].concat());
        command.env("USER", "nobody-of-this-name");
        let said = crate::support::finish(&mut command).ended(3);
        said.tells("`nobody-of-this-name`, `nor-this`");
        said.tells("nothing was done");
    }
    listing("[]");
    answer(&project, "approve", &id)
        .ended(3)
        .tells("lists nobody");
    assert_eq!(project.receipts().len(), before);
    if let Some(name) = system_user() {
        listing(&format!("['{name}']"));
        project.run(&["resume"]).ended(0);
        answer(&project, "approve", &id).ended(0);
        project.plan(&json!([hold("SO-1")])).ended(0);
    }
}

#[test]
fn a_key_alone_answers_nothing() {
    // rule 9.8
    let project = project();
    let plan = json!([hold("SO-1")]);
    waits(&project, &plan);
    let id = question(&project);
    let end = &id[id.len() - 6..];
    let before = project.receipts().len();
    for verb in ["approve", "veto"] {
        for what in ["SO-1:hold", end, &format!("…{end}")] {
            let said = answer(&project, verb, what).ended(1);
            assert_eq!(said.stdout, "");
            said.tells(&format!("`{what}` is no question's whole receipt id"));
            said.tells(r#"shop:orders.hold on `SO-1` with {"order":"SO-1"}"#);
            said.tells(&format!(
                "`operators approvals {verb} {id} --because checked`"
            ));
        }
    }
    assert_eq!(question(&project), id);
    assert_eq!(project.receipts().len(), before);
    waits(&project, &plan);
    assert!(project.effects().is_empty());
}

/// A key that looks like the receipt of another question is a key all the same.
#[test]
fn a_key_that_is_the_id_of_another_question_answers_nothing() {
    // rule 9.8
    let project = project();
    waits(&project, &json!([hold("SO-1")]));
    let id = question(&project);
    let mut disguised = hold("SO-2");
    disguised["idempotency_key"] = json!(id);
    waits(&project, &json!([disguised]));
    let said = answer(&project, "approve", &id).ended(1);
    said.tells(r#"with {"order":"SO-2"}"#);
    assert_eq!(pending(&project).len(), 2);
    assert!(of_kind(&project, ReceiptKind::Approve).is_empty());
}

/// A planner that changes the arguments between the look and the answer gets no answer.
#[test]
fn arguments_swapped_after_the_look_are_not_approved() {
    // rule 9.8
    let project = project();
    waits(&project, &json!([hold("SO-1")]));
    let seen = question(&project);
    let mut swapped = hold("SO-1");
    swapped["args"]["order"] = json!("SO-2");
    waits(&project, &json!([swapped]));
    let now = question(&project);
    for verb in ["approve", "veto"] {
        let said = answer(&project, verb, &seen).ended(1);
        said.tells(&format!("asked about anew since `{seen}`"));
        said.tells(r#"with {"order":"SO-2"}"#);
        said.tells(&format!("approvals {verb} {now} --because checked"));
    }
    waits(&project, &json!([swapped]));
    assert_eq!(question(&project), now);
    assert!(project.effects().is_empty());
}

#[test]
fn approve_then_change_args_does_not_run() {
    // rule 9.8
    let project = project();
    waits(&project, &json!([hold("SO-1")]));
    approve(&project);
    let mut changed = hold("SO-1");
    changed["args"]["order"] = json!("SO-2");
    waits(&project, &json!([changed]));
    assert!(project.effects().is_empty());
}

#[test]
fn approve_then_change_policy_does_not_run() {
    // rule 9.8, 9.9
    let project = project();
    let plan = json!([hold("SO-1")]);
    waits(&project, &plan);
    approve(&project);
    project.edit("policies/all.toml", "version = 1", "version = 2");
    waits(&project, &plan);
    approve(&project);
    project.edit("policies/all.toml", "ALERT", "BLOCK");
    project.edit("policies/all.toml", "alert = \"approve\"\n", "");
    let run = project.plan(&plan).ended(3);
    let reason = run.results()[0].reason.map(operators::Reason::as_str);
    assert_eq!(reason, Some("policy"));
    assert!(project.effects().is_empty());
}

#[test]
fn a_veto_is_final_for_that_proposal_and_not_for_the_key() {
    // rule 9.10
    let project = project();
    let plan = json!([hold("SO-1")]);
    waits(&project, &plan);
    let id = question(&project);
    let veto = ["approvals", "veto", &id, "--because", "wrong order"];
    let said = project.run(&veto).ended(0);
    assert_eq!(said.stdout, "SO-1:hold: vetoed\n");
    let stays_vetoed = || {
        let run = project.plan(&plan).ended(3);
        let results = run.results();
        let error = results[0].error.as_deref().expect("an error");
        assert!(error.contains("vetoed by auditor"), "{error}");
        let said = answer(&project, "approve", &id).ended(1);
        said.tells("vetoed already, by auditor");
    };
    stays_vetoed();
    let vetoes = of_kind(&project, ReceiptKind::Veto);
    assert_eq!(vetoes.len(), 1);
    assert_eq!(vetoes[0].note.as_deref(), Some("wrong order"));

    let mut other = hold("SO-1");
    other["args"]["why"] = json!("asked for");
    waits(&project, &json!([other]));
    stays_vetoed();
    approve(&project);
    let run = project.plan(&json!([other])).ended(0);
    assert_eq!(run.decisions(), ["ALERT"]);
}

#[test]
fn what_was_never_asked_cannot_be_answered() {
    // rule 9.7
    let project = project();
    project
        .run(&["approvals", "list"])
        .ended(0)
        .tells("waits for a person");
    project.plan(&json!([])).ended(0);
    for what in ["SO-1:hold", "rc_00000000000000000000000000000000"] {
        let said = answer(&project, "approve", what).ended(1);
        said.tells(&format!("no question `{what}` of tenant `acme` waits"));
    }
}

#[test]
fn what_a_person_let_run_is_not_told_as_raised() {
    // rule 9.11: it raises no alert, so there is none to look at.
    let project = project();
    let plan = json!([hold("SO-1")]);
    waits(&project, &plan);
    approve(&project);
    let run = ["run", "--once", "--plan", "-"];
    let said = project.run_with_stdin(&run, plan.to_string()).ended(0);
    said.tells("1 action: 1 applied");
    assert!(!said.stderr.contains("raised"), "{said:#?}");
    assert!(!said.stderr.contains("alerts list"), "{said:#?}");
    project.run(&["alerts", "list"]).ended(0).tells("no alert");
}
