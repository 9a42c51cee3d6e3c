//! Telling somebody: a program and a webhook, which may be slow or down without holding the run.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Project, Said, finish, hold};
use crate::vendor::{Answer, Vendor, closed_port};

const ALERTING: &str = "policy = 'p'\nversion = 1\n[[rule]]\nname = 'r'\ndecision = 'ALERT'\n";

/// A project whose every action is an ALERT, with this in `[trust.notify]`.
fn notifying(notify: &str) -> Project {
    let project = Project::with_file();
    project.edit(
        "operators.toml",
        "[connectors.shop]\n",
        &format!("[trust.notify]\n{notify}\n[connectors.shop]\n"),
    );
    project.write("policies/all.toml", ALERTING);
    project
}

/// The notices that a `cat >> told` was given.
fn told(project: &Project) -> Vec<Value> {
    let text = std::fs::read_to_string(project.path("told")).unwrap_or_default();
    let values = serde_json::Deserializer::from_str(&text).into_iter();
    values.map(|value| value.expect("JSON")).collect()
}

fn open_alerts(project: &Project) -> usize {
    let listed = project.run(&["alerts", "list", "--json"]).ended(0);
    listed.lines::<Value>().len()
}

fn run(project: &Project) -> Said {
    project.plan(&json!([hold("SO-1")]))
}

#[test]
fn a_program_is_told_of_every_alert_once_and_without_its_arguments() {
    // rule 9.13
    let project = notifying("command = ['sh', '-c', 'cat >> told']\ngrace = '30s'");
    let said = run(&project).ended(0);
    assert!(!said.stderr.contains("not delivered"), "{said:#?}");
    let [told_once] = told(&project).try_into().expect("told once");
    let notice = &told_once["args"];
    assert_eq!(notice["notice"], "alert");
    assert_eq!(notice["idempotency_key"], "SO-1:hold");
    assert_eq!(notice["outcome"], "applied");
    assert_eq!(notice["rule"], "r");
    let receipt_id = said.results()[0].receipt_id.clone();
    assert_eq!(notice["receipt_id"], receipt_id.as_str());
    assert_eq!(notice.get("args"), None);
    // A duplicate raises nothing, so nobody is told.
    run(&project).ended(0);
    assert_eq!(told(&project).len(), 1);
}

#[test]
fn a_question_is_told_once_however_often_it_is_proposed() {
    // rules 9.7, 9.13
    let project = notifying("command = ['sh', '-c', 'cat >> told']\ngrace = '30s'");
    project.edit(
        "operators.toml",
        "[trust.notify]\n",
        "[trust]\nalert = 'approve'\n[trust.notify]\n",
    );
    run(&project).ended(3);
    run(&project).ended(3);
    let [told_once] = told(&project).try_into().expect("told once");
    assert_eq!(told_once["args"]["notice"], "approval");
    assert_eq!(told_once["args"]["idempotency_key"], "SO-1:hold");
    assert!(told_once["args"]["expires_at"].is_string());
    // What a person approved was seen: it raises no alert.
    let id = told_once["args"]["receipt_id"].as_str().expect("an id");
    let approve = ["approvals", "approve", id, "--because", "checked"];
    project.run(&approve).ended(0);
    run(&project).ended(0);
    assert_eq!(told(&project).len(), 1);
    assert_eq!(open_alerts(&project), 0);
}

#[test]
fn a_webhook_gets_the_notice_with_its_secret() {
    // rule 9.13
    let vendor = Vendor::always(Answer::well());
    let project = notifying(&format!(
        "webhook = '{}/hook/SECRETPATH?a=b'\nallow_private_addresses = true\n\
         headers = {{ Authorization = 'secret:pager' }}\ngrace = '30s'",
        vendor.url()
    ));
    let plan = json!([hold("SO-1")]).to_string();
    project.write("plan.json", plan);
    let mut command = project.command(&["run", "--once", "--plan", "plan.json"]);
    command.env("OPERATORS_SECRET_PAGER", "Bearer hunter2");
    let said = crate::support::finish(&mut command).ended(0);
    assert!(!said.stderr.contains("not delivered"), "{said:#?}");
    let [request] = vendor.requests().try_into().expect("one request");
    assert_eq!(request.path, "/hook/SECRETPATH?a=b");
    assert_eq!(request.header("authorization"), Some("Bearer hunter2"));
    let notice: Value = serde_json::from_str(&request.body).expect("JSON");
    assert_eq!(notice["notice"], "alert");
    assert_eq!(notice["entity_key"], "SO-1");
    assert_eq!(notice.get("args"), None);
}

#[test]
fn what_cannot_be_told_is_said_and_holds_nothing() {
    // rule 9.13
    let project = notifying(
        "command = ['sh', '-c', 'echo x >> tries; echo cannot >&2; exit 7']\ngrace = '30s'",
    );
    let said = run(&project).ended(0);
    said.tells("not delivered: command: the alert of key `SO-1:hold`");
    said.tells("exit code 7");
    said.tells("operators alerts list");
    assert_eq!(project.read("tries").lines().count(), 3);
    assert_eq!(open_alerts(&project), 1);

    // Nobody listens there.
    let port = closed_port();
    let project = notifying(&format!(
        "webhook = 'http://127.0.0.1:{port}/SECRETPATH'\nallow_private_addresses = true\n\
         grace = '30s'"
    ));
    let said = run(&project).ended(0);
    said.tells("not delivered: webhook: the alert of key `SO-1:hold`");
    assert!(!said.stderr.contains("SECRETPATH"), "{said:#?}");
    assert_eq!(open_alerts(&project), 1);
}

#[test]
fn a_webhook_that_echoes_its_address_is_quoted_without_it() {
    // rules 5.5, 9.13: an answer is cut after some 200 characters, wherever that falls.
    const PATH: &str = "/hook/T0123/SECRETPATHOFAWEBHOOK?key=ANOTHERSECRETTEXT";
    for (before, echoes) in [
        (0, PATH),
        (172, PATH),
        (190, PATH),
        (0, "SECRETPATHOFAWEBHOOK"),
        (188, "ANOTHERSECRETTEXT"),
    ] {
        let body = format!("{}no {echoes} here", "x".repeat(before));
        let vendor = Vendor::always(Answer::Json(404, json!({ "message": body }).to_string()));
        let project = notifying(&format!(
            "webhook = '{}{PATH}'\nallow_private_addresses = true\ngrace = '30s'",
            vendor.url()
        ));
        let said = run(&project).ended(0);
        said.tells("not delivered: webhook: the alert of key `SO-1:hold`");
        said.tells("answered 404");
        for half in ["SECRETPA", "OFAWEBHOOK", "ANOTHERS", "RETTEXT"] {
            assert!(!said.stderr.contains(half), "{before}: {said:#?}");
        }
    }
}

#[test]
fn a_program_that_hangs_gets_its_grace_and_is_ended_with_its_children() {
    // rule 9.13
    let project = notifying(
        "command = ['sh', '-c', 'sleep 600 & echo $! > child; wait']\ngrace = '300ms'\n\
         timeout = '60s'",
    );
    let said = run(&project).ended(0);
    said.tells("no answer within the grace");
    assert_eq!(project.effects().len(), 1);
    // The grace may be over before the program wrote its line.
    let Ok(child) = std::fs::read_to_string(project.path("child")) else {
        return;
    };
    let is_alive = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.trim()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    let patience = std::time::Instant::now();
    while is_alive() {
        assert!(patience.elapsed() < Duration::from_secs(20), "it lives on");
        std::thread::yield_now();
    }
}

#[test]
fn what_is_wrong_with_it_is_told_before_anything_runs() {
    let cases = [
        ("grace = '1s'", "3:", "tells nobody"),
        ("command = []", "4:1", "command"),
        ("command = ['x']\nheaders = { A = 'b' }", "5:1", "webhook"),
        ("webhook = 'https://x'\nenv = ['A']", "5:1", "command"),
        ("webhook = 'nowhere'", "4:1", "not a URL"),
        (
            "webhook = 'http://127.0.0.1:1/x'",
            "4:1",
            "allow_private_addresses",
        ),
        ("webhook = 'https://u:hunter2@x/'", "4:1", "password"),
        ("webhook = 'https://x/'\ngrace = '2h'", "5:1", "longer than"),
        (
            "webhook = 'https://x/'\nheaders = { Host = 'b' }",
            "5:",
            "client",
        ),
        (
            "command = ['x']\nenv = ['OPERATORS_SECRET_X']",
            "5:1",
            "secret",
        ),
        ("commnad = ['x']", "4:1", "unknown field"),
    ];
    for (notify, place, problem) in cases {
        let project = notifying(notify);
        let said = run(&project).ended(1);
        said.tells(&format!("operators.toml:{place}"));
        said.tells(problem);
        assert!(!said.stderr.contains("hunter2"), "{said:#?}");
        project.is_untouched();
    }
}

/// The guide's own text, as it stands there.
const GUIDE: &str = include_str!("../../docs/guides/policies.md");

fn taught(start: &str) -> &'static str {
    let blocks = GUIDE.split("```toml\n").skip(1);
    let mut texts = blocks.filter_map(|block| block.split("```").next());
    let text = texts.find(|text| text.starts_with(start));
    text.expect("the guide teaches it")
}

#[test]
fn the_guide_s_configuration_loads() {
    let project = Project::with_file();
    let config = project.read("operators.toml");
    let taught = [taught("[trust]\n"), taught("[trust.notify]")].concat();
    let config = format!("{config}{taught}");
    project.write("operators.toml", config);
    let mut doctor = project.command(&["doctor"]);
    let said = finish(doctor.env("OPERATORS_SECRET_PAGER", "hunter22")).ended(0);
    assert!(said.stdout.contains("by command and webhook"), "{said:#?}");
}

#[test]
fn the_guide_s_one_message_a_day_is_one() {
    // rules 9.4, 9.6
    let project = Project::with_file();
    let config = project
        .read("operators.toml")
        .replace("orders.hold", "messages.send");
    project.write("operators.toml", config);
    project.write("policies/all.toml", taught("policy = \"one-a-day\""));
    let send = |customer: &str, text: &str| {
        let action = json!({
            "connector": "shop",
            "tool": "messages.send",
            "args": { "text": text },
            "entity_key": customer,
            "idempotency_key": format!("{customer}:{text}"),
        });
        project.plan(&json!([action]))
    };
    assert_eq!(send("customer:1", "hello").ended(0).decisions(), ["ALLOW"]);
    let second = send("customer:1", "again").ended(3);
    let reason = second.results()[0].reason.map(operators::Reason::as_str);
    assert_eq!(reason, Some("limit"));
    assert_eq!(send("customer:2", "hello").ended(0).decisions(), ["ALLOW"]);
    send("order:1", "hello").ended(3);
    assert_eq!(project.effects().len(), 2);
}
