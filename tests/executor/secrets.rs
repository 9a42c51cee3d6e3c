//! Rule 5.5: secret arguments are seen by the connector and by nobody else.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use operators_connectors::Registry;
use operators_kernel::{
    ArgsSchema, Call, Connector, ConnectorError, ConnectorName, Effect, EffectClass, InvalidArgs,
    InvokeOutcome, PlannedAction, ProbeOutcome, Reason, Tool, ToolName,
};
use operators_seams::SqliteStore;
use operators_tests::fakes::TestClock;
use operators_tests::fixtures::{World, action, contract, tenant};
use serde_json::{Map, Value, json};

use crate::support::{memory, one, receipts, words};

/// The last is written differently by whoever quotes it.
const CANARIES: [&str; 6] = [
    "canary-marked-4111",
    "canary-password",
    "canary-nested-key",
    "canary-list-token",
    "918273645",
    "canary\"quote\\slash/\n%é",
];

fn charge(key: &str) -> PlannedAction {
    let args = json!({
        "order": "SO-1",
        "card": {"number": CANARIES[0], "name": "A"},
        "password": CANARIES[1],
        "headers": {"X": {"apiKey": CANARIES[2]}},
        "list": [{"access_token": [CANARIES[3]]}],
        "pin": 918_273_645,
        "db": {"DBPassword": CANARIES[5]},
    });
    action("cards.charge", &format!("e-{key}"), key, args)
}

/// As JSON, as an address, as our own connectors quote it, as Rust does, and in base64.
const ODD: [&str; 6] = [
    r#"canary\"quote\\slash/\n%é"#,
    r#"canary\\\"quote\\\\slash/\\n%é"#,
    "canary%22quote%5Cslash%2F%0A%25%C3%A9",
    r#"canary"quote\\slash/\n%é"#,
    r#"canary\"quote\\slash/\n%\u00e9"#,
    "YW5uYTpjYW5hcnkicXVvdGVcc2xhc2gvCiXDqQ==",
];

/// Says every secret it was given, in every way it can.
#[derive(Debug, Default)]
struct Echo {
    says: Mutex<Vec<&'static str>>,
    seen: Mutex<Vec<Call>>,
}

fn echo(call: &Call) -> String {
    let args = Value::Object((*call.args).clone());
    format!("you sent {args}, that is {}", ODD.join(", "))
}

fn effect(call: &Call) -> Effect {
    let named: Map<String, Value> = CANARIES
        .iter()
        .chain(&ODD)
        .map(|c| ((*c).to_owned(), json!(1)))
        .collect();
    Effect {
        result: json!({"args": call.args, "text": echo(call), "named": named}).into(),
        effect_id: Some(format!("id-{}", CANARIES[0])),
    }
}

#[async_trait]
impl Connector for Echo {
    async fn invoke(&self, call: &Call) -> InvokeOutcome {
        self.seen.lock().expect("seen").push(call.clone());
        let says = self.says.lock().expect("says").pop();
        match says {
            Some("refused") => InvokeOutcome::NotApplied(ConnectorError::new(echo(call))),
            Some("unknown") => InvokeOutcome::Unknown(ConnectorError::new(echo(call))),
            // Its words are for the program's own panic hook, and for nothing that is kept.
            Some("panic") => panic!("{}", echo(call)),
            _ => InvokeOutcome::Applied(effect(call)),
        }
    }

    async fn probe(&self, call: &Call) -> ProbeOutcome {
        match self.says.lock().expect("says").pop() {
            Some("cannot tell") => ProbeOutcome::Unknown(ConnectorError::new(echo(call))),
            _ => ProbeOutcome::Applied(effect(call)),
        }
    }
}

#[derive(Debug)]
struct Tattles;

impl ArgsSchema for Tattles {
    fn check(&self, args: &Map<String, Value>) -> Result<(), InvalidArgs> {
        match args.get("bad") {
            None => Ok(()),
            Some(_) => Err(InvalidArgs {
                path: "/args/password".to_owned(),
                problem: format!("is wrong: {}", args["password"]),
            }),
        }
    }
}

fn vault(world: &mut World) -> Arc<Echo> {
    let echo = Arc::new(Echo::default());
    let mut terms = contract(EffectClass::Probeable);
    terms.secret_args = vec!["card.number".to_owned()];
    let tool = Tool {
        contract: terms,
        schema: Some(Arc::new(Tattles)),
        connector: Arc::clone(&echo) as Arc<dyn Connector>,
    };
    let shop = ConnectorName::parse("shop").expect("a name");
    let name = ToolName::parse("cards.charge").expect("a name");
    world.registry = Arc::new(Registry::from_tools([(shop, name, tool)]));
    echo
}

#[track_caller]
fn has_no_canary(what: &str, text: &str) {
    for canary in CANARIES {
        assert!(!text.contains(canary), "{what} shows {canary}: {text}");
    }
    // However often it was escaped on its way here.
    for piece in ["quote", "slash", "YTpjYW5hcnki", "xhc2gvCi"] {
        assert!(!text.contains(piece), "{what} shows {piece}: {text}");
    }
}

/// Runs every way in which a secret could come back, and looks through everything that is left.
async fn run_all(world: &World, echo: &Echo) {
    let executor = world.start().await;
    let mut results = vec![
        one(&executor, world, charge("applied")).await,
        one(&executor, world, charge("applied")).await,
    ];
    for says in ["refused", "unknown", "panic"] {
        echo.says.lock().expect("says").push(says);
        results.push(one(&executor, world, charge(says)).await);
    }
    // The doubt is probed twice: first in vain, then it is found.
    echo.says.lock().expect("says").push("cannot tell");
    results.push(one(&executor, world, charge("unknown")).await);
    results.push(one(&executor, world, charge("unknown")).await);
    let mut bad = charge("bad");
    bad.args.insert("bad".to_owned(), json!(true));
    results.push(one(&executor, world, bad).await);
    let mut other = charge("applied");
    other.args["password"] = json!("canary-password-2");
    other.args["card"]["number"] = json!("canary-marked-4111-2");
    let conflict = one(&executor, world, other).await;
    assert_eq!(conflict.conflict, ["/args/card/number", "/args/password"]);
    results.push(conflict);
    let said: Vec<_> = results.iter().map(words).collect();
    assert_eq!(
        said,
        [
            "ALLOW true -",
            "DEDUP true -",
            "ALLOW false failed",
            "ALLOW false in_doubt",
            "ALLOW false in_doubt",
            "BLOCK false in_doubt",
            "DEDUP true -",
            "BLOCK false invalid_args",
            "BLOCK false conflict"
        ]
    );
    for call in echo.seen.lock().expect("seen").iter() {
        assert_eq!(call.args["password"], CANARIES[1], "the connector sees it");
        has_no_canary("a call's Debug", &format!("{call:?}"));
    }
    has_no_canary("a result", &serde_json::to_string(&results).expect("json"));
    has_no_canary("a result's Debug", &format!("{results:?}"));
    let receipts = receipts(world).await;
    assert_eq!(
        receipts.len(),
        10,
        "nine proposals and what the probe found"
    );
    has_no_canary(
        "a receipt",
        &serde_json::to_string(&receipts).expect("json"),
    );
    has_no_canary("the executor's Debug", &format!("{executor:?}"));
    has_no_canary("the store's Debug", &format!("{:?}", world.store));
    for key in ["applied", "refused", "unknown", "panic"] {
        let key = operators_tests::fixtures::key(key);
        let record = world.store.key(&tenant(), &key).await.expect("a look");
        has_no_canary("a key", &format!("{record:?}"));
    }
    let shown = &results[0].action.args;
    assert_eq!(shown["order"], "SO-1", "what is no secret is shown");
    assert_eq!(shown["card"]["name"], "A");
    let hashed = shown["card"]["number"].as_str().expect("text");
    assert!(hashed.starts_with("hmac-sha256:"), "{hashed}");
    executor.stop().await.expect("stops");
}

#[tokio::test]
async fn secrets_are_nowhere_in_memory() {
    let mut world = memory().world;
    let echo = vault(&mut world);
    run_all(&world, &echo).await;
}

#[tokio::test]
async fn secrets_are_nowhere_in_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(&folder.path().join("store.db")).expect("opens");
    let mut world = World::on(Arc::new(store), Arc::new(TestClock::default()));
    let echo = vault(&mut world);
    run_all(&world, &echo).await;
    let mut files = 0;
    for file in std::fs::read_dir(folder.path()).expect("the folder") {
        let path = file.expect("a file").path();
        let bytes = std::fs::read(&path).expect("readable");
        has_no_canary(
            &path.display().to_string(),
            &String::from_utf8_lossy(&bytes),
        );
        files += 1;
    }
    assert!(files >= 2, "the database and its log were looked at");
}

/// Two tenants' hashes of one secret differ, one tenant's agree over executors: the fingerprint
/// holds and tells nobody else anything.
#[tokio::test]
async fn a_hash_is_the_tenants_own() {
    let mut world = memory().world;
    let _echo = vault(&mut world);
    let executor = world.start().await;
    let ours = one(&executor, &world, charge("k")).await;
    let mut run = world.run();
    run.tenant = operators_tests::fixtures::tenant_named("other");
    let theirs = executor
        .run_action(&run, charge("k"))
        .await
        .expect("a result");
    assert_ne!(ours.action.args["password"], theirs.action.args["password"]);
    let again = one(&world.start().await, &world, charge("k")).await;
    assert_eq!(words(&again), "DEDUP true -");
    assert_eq!(ours.action.args, again.action.args);
}

/// By rule 3.2: a number and its text are two things, though neither is shown.
#[tokio::test]
async fn hidden_arguments_that_differ_are_a_conflict() {
    let mut world = memory().world;
    let _echo = vault(&mut world);
    let executor = world.start().await;
    for (name, other) in [
        ("number", json!(1234)),
        ("text", json!("1234 ")),
        ("none", Value::Null),
    ] {
        let said = |note: &Value| {
            let args = json!({"password": "1234", "note": note});
            action("cards.charge", name, name, args)
        };
        let first = one(&executor, &world, said(&json!("1234"))).await;
        assert_eq!(words(&first), "ALLOW true -");
        let again = one(&executor, &world, said(&json!("1234"))).await;
        assert_eq!(words(&again), "DEDUP true -");
        let other = one(&executor, &world, said(&other)).await;
        assert_eq!(other.reason, Some(Reason::Conflict), "{name}");
        assert_eq!(other.conflict, ["/args/note"], "{name}");
    }
}
