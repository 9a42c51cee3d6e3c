//! The command connector: one process per call, and its exit code as the answer.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use operators_kernel::{Call, InvokeOutcome, ProbeOutcome};

use super::{CANARY, applied, build, build_in, call, connector, invoke, not_applied, unknown};

/// A folder with a script `shop.sh`, and the registry of one tool `hold` that runs it.
struct Shop {
    folder: TempDir,
    config: String,
}

impl Shop {
    fn new(script: &str, tool: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        program(folder.path(), "shop.sh", script);
        let config = format!(
            "[connectors.shop]\nkind = 'command'\nvariables = {{ TOKEN = 'secret:token' }}\n\
             [connectors.shop.tools.hold]\nargv = ['sh', 'shop.sh']\n{tool}\n"
        );
        Self { folder, config }
    }

    async fn invoke(&self, call: &Call) -> InvokeOutcome {
        let registry = build_in(&self.config, self.folder.path()).expect("config");
        invoke(&registry, call).await
    }

    /// Asks after a call of this very process.
    async fn probe(&self) -> ProbeOutcome {
        let registry = build_in(&self.config, self.folder.path()).expect("config");
        invoke(&registry, &held()).await;
        connector(&registry, "hold").probe(&held()).await
    }
}

fn program(folder: &Path, name: &str, script: &str) {
    // Not executable: between writing it and its start, another test's child could hold it open,
    // and then the system would not run it.
    fs::write(folder.join(name), script).expect("written");
}

fn held() -> Call {
    call("hold", json!({"order": "SO-1"}))
}

/// Waits until a process is gone; fails if it stays.
async fn is_gone(pid: i32) {
    for _ in 0..500 {
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Nobody may be there to bury it; a dead one does nothing any more.
        let is_dead = state
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('Z'));
        if kill(Pid::from_raw(pid), None).is_err() || is_dead {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{pid} lives on");
}

#[tokio::test]
async fn a_program_is_told_the_call_and_its_stdout_is_the_result() {
    let shop = Shop::new(
        "cat > told.json; echo '{\"id\": \"ho-1\", \"held\": true}'",
        "",
    );
    let (result, effect_id) = applied(shop.invoke(&held()).await);
    assert_eq!(result, json!({"id": "ho-1", "held": true}));
    assert_eq!(effect_id.as_deref(), Some("ho-1"));
    let told = fs::read_to_string(shop.folder.path().join("told.json")).expect("told");
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(
        told,
        json!({"args": {"order": "SO-1"}, "deadline_ms": 5_000, "action": {"tenant": "acme",
            "operator": null, "connector": "shop", "tool": "hold", "entity_key": "order:SO-1",
            "idempotency_key": "order:SO-1:hold", "downstream_key": "dk-0001", "attempt": 1}})
    );
}

#[tokio::test]
async fn each_template_is_exactly_one_argument_and_no_shell_sees_it() {
    let hostile = "a b; touch evil $(touch evil) `touch evil` | touch evil\n'\"*";
    let tool = "argv = ['sh', 'args.sh', '--order={args.order}', '--', '{args.order}']";
    let shop = Shop::new("", "");
    let config = shop.config.replace("argv = ['sh', 'shop.sh']", tool);
    program(
        shop.folder.path(),
        "args.sh",
        "printf '%s\\0' \"$#\" \"$@\" > args; echo null",
    );
    let registry = build_in(&config, shop.folder.path()).expect("config");
    let outcome = invoke(&registry, &call("hold", json!({"order": hostile}))).await;
    applied(outcome);
    let seen = fs::read_to_string(shop.folder.path().join("args")).expect("arguments");
    assert_eq!(seen, format!("3\0--order={hostile}\0--\0{hostile}\0"));
    assert!(!shop.folder.path().join("evil").exists());

    // After `--` a dash is harmless; where a value stands first it could become an option.
    applied(invoke(&registry, &call("hold", json!({"order": "-rf"}))).await);
    let config = shop
        .config
        .replace("'shop.sh'", "'args.sh', '{args.order}'");
    let registry = build_in(&config, shop.folder.path()).expect("config");
    let message = not_applied(invoke(&registry, &call("hold", json!({"order": "--all"}))).await);
    assert!(
        message.contains("`args.order` begins with `-`"),
        "{message}"
    );
    let message = not_applied(invoke(&registry, &call("hold", json!({"order": "a\0b"}))).await);
    assert!(message.contains("holds a NUL"), "{message}");
    let message = not_applied(invoke(&registry, &call("hold", json!({}))).await);
    assert!(message.contains("`args.order` is missing"), "{message}");
}

#[tokio::test]
async fn exit_codes_say_what_happened_and_everything_else_is_unknown() {
    let codes = "not_applied = '3, 64-70'";
    for (script, wanted) in [
        ("echo oops >&2; exit 3", Ok("exit code 3: `oops`")),
        ("exit 65", Ok("exit code 65")),
        (
            "echo why >&2; exit 1",
            Err("exit code 1, which its configuration does not speak of: `why`"),
        ),
        ("exit 75", Err("exit code 75")),
        ("kill -9 $$", Err("was ended by a signal")),
        ("echo '{\"id\":'", Err("stdout is not JSON")),
        ("printf '\\377'", Err("stdout is not UTF-8")),
    ] {
        let outcome = Shop::new(script, codes).invoke(&held()).await;
        let (message, wanted) = match wanted {
            Ok(wanted) => (not_applied(outcome), wanted),
            Err(wanted) => (unknown(outcome), wanted),
        };
        assert!(message.contains(wanted), "{script}: {message}");
    }
    let (result, _) = applied(Shop::new("", "").invoke(&held()).await);
    assert_eq!(result, Value::Null);
    let text = Shop::new("echo held: SO-1", "output = 'text'")
        .invoke(&held())
        .await;
    assert_eq!(applied(text).0, json!("held: SO-1"));
    let seven = Shop::new("echo 7; exit 7", "applied = '0, 7'\neffect_id = 'n'");
    assert!(seven.invoke_problem().contains("effect_id"));
    let seven = Shop::new(
        "echo '{\"a\": {\"n\": 9}}'; exit 7",
        "applied = '7'\neffect_id = '/a/n'",
    );
    assert_eq!(applied(seven.invoke(&held()).await).1.as_deref(), Some("9"));
}

impl Shop {
    fn invoke_problem(&self) -> String {
        build_in(&self.config, self.folder.path()).expect_err("refused")
    }
}

#[tokio::test]
async fn a_program_that_does_not_start_did_nothing() {
    let folder = TempDir::new().expect("a folder");
    for program in ["./not-there", "surely-no-such-program"] {
        let config = format!(
            "[connectors.shop]\nkind = 'command'\n[connectors.shop.tools.hold]\nargv = ['{program}']\n"
        );
        let registry = build_in(&config, folder.path()).expect("config");
        let message = not_applied(invoke(&registry, &held()).await);
        assert!(message.contains("does not start"), "{message}");
    }
}

#[tokio::test]
async fn the_deadline_kills_the_whole_group_and_is_unknown() {
    let shop = Shop::new(
        "(echo $BASHPID; sh -c 'echo $$ > child; exec sleep 600') & wait",
        "",
    );
    let mut call = held();
    call.deadline = Duration::from_millis(700);
    let message = unknown(shop.invoke(&call).await);
    assert!(
        message.contains("did not end in time and was killed"),
        "{message}"
    );
    let child = fs::read_to_string(shop.folder.path().join("child")).expect("it began");
    is_gone(child.trim().parse().expect("a number")).await;
}

#[tokio::test]
async fn whoever_stops_waiting_ends_the_group_too() {
    let shop = Shop::new("sh -c 'echo $$ > child; exec sleep 600' & wait", "");
    let file = shop.folder.path().join("child");
    let began = async {
        while fs::read_to_string(&file)
            .unwrap_or_default()
            .trim()
            .is_empty()
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let call = held();
    tokio::select! {
        outcome = shop.invoke(&call) => panic!("{outcome:?}"),
        () = began => {}
    }
    let child = fs::read_to_string(&file).expect("it began");
    is_gone(child.trim().parse().expect("a number")).await;
}

#[tokio::test]
async fn too_much_output_is_unknown_and_ends_it() {
    let shop = Shop::new("echo $$ > child; exec yes", "");
    let message = unknown(shop.invoke(&held()).await);
    assert!(message.contains("more than 1MiB to stdout"), "{message}");
    let child = fs::read_to_string(shop.folder.path().join("child")).expect("it began");
    is_gone(child.trim().parse().expect("a number")).await;
    // A loud stderr is no reason to give up; only its end is kept, and nothing a terminal obeys.
    let loud = "head -c 300000 /dev/zero | tr '\\0' x >&2; printf '\\033[31mwhy' >&2; exit 9";
    let message = unknown(Shop::new(loud, "").invoke(&held()).await);
    assert!(
        message.len() < 1_000 && !message.contains('\u{1b}'),
        "{message}"
    );
}

#[tokio::test]
async fn the_cap_on_output_is_the_connectors_own() {
    let mut shop = Shop::new("echo '\"123456789\"'", "");
    let capped = "kind = 'command'\nmax_answer = '8B'";
    shop.config = shop.config.replace("kind = 'command'", capped);
    let message = unknown(shop.invoke(&held()).await);
    assert!(
        message.contains("wrote more than 8B to stdout"),
        "{message}"
    );
    program(shop.folder.path(), "shop.sh", "echo 1234567");
    assert_eq!(applied(shop.invoke(&held()).await).0, json!(1_234_567));
}

#[tokio::test]
async fn a_program_sees_only_the_variables_it_was_given() {
    let shop = Shop::new(
        "env | cut -d= -f1 | sort | tr '\\n' ' ' > seen; echo \"\\\"$TOKEN\\\"\"",
        "",
    );
    let (result, _) = applied(shop.invoke(&held()).await);
    assert!(!result.to_string().contains("canary"), "{result}");
    let seen = fs::read_to_string(shop.folder.path().join("seen")).expect("seen");
    let given: Vec<&str> = seen.split_whitespace().collect();
    assert!(
        given.contains(&"PATH") && given.contains(&"TOKEN"),
        "{seen}"
    );
    // The test's own environment has more than these; `PWD` and the like are the shell's.
    for name in given {
        assert!(
            ["PATH", "TOKEN", "PWD", "SHLVL", "_", "OLDPWD"].contains(&name),
            "{seen}"
        );
    }
    let quoted = Shop::new("echo \"no: $TOKEN\" >&2; exit 1", "")
        .invoke(&held())
        .await;
    assert!(!unknown(quoted).contains(CANARY));
}

#[tokio::test]
async fn a_probe_asks_by_a_program_of_its_own() {
    let tool = |code: u8| {
        format!(
            "effect = 'probeable'\nprobe = {{ argv = ['sh', '-c', 'echo 5; exit {code}'], \
             not_applied = '1' }}"
        )
    };
    let probe = async |code| Shop::new("", &tool(code)).probe().await;
    match probe(0).await {
        ProbeOutcome::Applied(effect) => assert_eq!(effect.result, json!(5)),
        other => panic!("{other:?}"),
    }
    assert_eq!(probe(1).await, ProbeOutcome::NotApplied);
    assert!(matches!(probe(2).await, ProbeOutcome::Unknown(_)));
}

/// Rule 4.6: without a supervisor a program outlives its process, so only the process that saw its end
/// can say that nothing more will come of it.
#[tokio::test]
async fn without_a_supervisor_only_an_end_that_was_seen_makes_a_probe_s_no_believable() {
    let tool = "effect = 'probeable'\ntimeout = '1s'\n\
                probe = { argv = ['sh', '-c', 'exit 1'], not_applied = '1' }";
    let shop = Shop::new("sleep 600", tool);
    let [ours, others] = [(); 2].map(|()| {
        let registry = build_in(&shop.config, shop.folder.path());
        registry.expect("config")
    });
    let mut late = held();
    late.deadline = Duration::from_millis(50);
    unknown(invoke(&ours, &late).await);
    let probe = async |registry, call: &Call| connector(registry, "hold").probe(call).await;
    assert_eq!(probe(&ours, &held()).await, ProbeOutcome::NotApplied);
    let mut next = held();
    next.attempt += 1;
    for (registry, call) in [(&ours, &next), (&others, &held())] {
        match probe(registry, call).await {
            ProbeOutcome::Unknown(error) => {
                assert!(error.message.contains("may still run"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_supervisor_that_does_not_start_leaves_nothing_behind() {
    let shop = Shop::new("echo x > ran", "");
    let folder = shop.folder.path();
    // One that is no supervisor, and one that is none at all.
    for (supervisor, problem) in [
        ("true", "its supervisor ended before it started anything"),
        ("no/such-program", "its supervisor does not start: "),
    ] {
        let kind = "kind = 'command'\n";
        let config = shop
            .config
            .replace(kind, &format!("{kind}supervisor = '{supervisor}'\n"));
        let registry = build_in(&config, folder).expect("config");
        let message = not_applied(invoke(&registry, &held()).await);
        assert!(message.contains(problem), "{message}");
        assert!(!folder.join("ran").exists(), "{supervisor}");
    }
}

#[tokio::test]
async fn a_read_that_fails_is_no_doubt() {
    let shop = Shop::new("kill -9 $$", "effect = 'read'");
    assert!(not_applied(shop.invoke(&held()).await).contains("signal"));
}

#[test]
fn a_configuration_that_cannot_work_is_refused_by_its_place() {
    let tool = |text: &str| {
        format!("[connectors.shop]\nkind = 'command'\n[connectors.shop.tools.hold]\n{text}\n")
    };
    let connector = |text: &str| {
        format!(
            "{}[connectors.shop.tools]\n",
            tool("").replace("[connectors.shop.tools.hold]", text)
        )
    };
    for (config, wanted) in [
        (tool(""), ".tools.\"hold\".argv: is missing"),
        (tool("argv = []"), "argv: is empty"),
        (
            tool("argv = ['{args.x}']"),
            "argv: the program is a plain name",
        ),
        (tool("argv = ['p', '{args}']"), "argv: unknown placeholder"),
        (
            tool("argv = ['p', '{args.pin}']\nsecret_args = ['pin']"),
            "argv: `{args.pin}` is a secret",
        ),
        (
            tool("argv = ['p']\napplied = '300'"),
            "applied: `300` is not an exit code",
        ),
        (
            tool("argv = ['p']\neffect = 'probeable'"),
            "probe: is missing",
        ),
        (
            tool("argv = ['p']\nprobe = { argv = ['q'] }"),
            "probe: only a probeable tool",
        ),
        (
            tool("argv = ['p']\neffect = 'probeable'\nprobe = {}"),
            "probe.argv: is missing",
        ),
        (
            tool("argv = ['p']\nmethod = 'GET'"),
            "method: a connector of kind `command` has no",
        ),
        (connector("env = ['A B']"), "env: `A B` is not the name"),
        (
            connector("env = ['OPERATORS_SECRET_X']"),
            "env: `OPERATORS_SECRET_X` holds a secret",
        ),
        (
            connector("variables = { T = 'x secret:y' }"),
            "variables.\"T\": a value is either",
        ),
        (
            connector("base_url = 'https://x.example'"),
            "base_url: a connector of kind `command`",
        ),
    ] {
        let error = build(&config).expect_err(&config);
        assert!(error.contains(wanted), "{error}");
    }
}
