//! What a configuration may say, and what it is told when it says something else.

use std::fs;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use operators_kernel::{EffectClass, OnUnknown, Tool, ToolName, ToolRegistry};

use super::{build, build_in, call, invoke, name};
use crate::Registry;

const HTTP: &str = "[connectors.shop]\nkind = \"http\"\nbase_url = \"https://api.example.com\"\n";
const HOLD: &str =
    "[connectors.shop.tools.\"orders.hold\"]\npath = \"/orders/{args.order}/hold\"\n";
const FILE: &str = "[connectors.shop]\nkind = \"file\"\npath = \"effects.jsonl\"\n";
const NOTE: &str = "[connectors.shop.tools.note]\n";

fn tool(registry: &Registry, tool: &str) -> Tool {
    let tool = ToolName::parse(tool).expect("tool name");
    registry.tool(&name("shop"), &tool).expect("registered")
}

#[test]
fn the_design_example_loads() {
    let toml = r#"
        [connectors.shop]
        kind = "http"
        base_url = "http://127.0.0.1:8080"
        timeout = "3s"
        allow_private_addresses = true
        [connectors.shop.tools."orders.hold"]
        effect = "keyed"
        method = "POST"
        path = "/orders/{args.order}/hold"
        headers = { "X-Entity" = "{action.entity_key}" }
    "#;
    let registry = build(toml).expect("loads");
    let contract = tool(&registry, "orders.hold").contract;
    assert_eq!(
        contract.effect,
        EffectClass::Keyed {
            window_ms: 86_400_000
        }
    );
    assert_eq!(contract.timeout, Duration::from_secs(3));
    assert_eq!(contract.max_land, Duration::from_secs(30));
    assert_eq!(contract.on_unknown, OnUnknown::Hold);
    assert!(
        registry
            .tool(&name("shop"), &ToolName::parse("orders").expect("name"))
            .is_none()
    );
    assert!(
        registry
            .tool(
                &name("shops"),
                &ToolName::parse("orders.hold").expect("name")
            )
            .is_none()
    );
    let listed: Vec<String> = registry
        .tools()
        .map(|(connector, name, tool, kind)| {
            format!(
                "{kind} {connector}:{name} {}",
                tool.contract.effect.as_str()
            )
        })
        .collect();
    assert_eq!(listed, ["http shop:orders.hold keyed"]);
}

#[test]
fn every_field_reaches_the_contract() {
    let toml = format!(
        "{HTTP}timeout = \"9s\"\n{HOLD}effect = \"keyed\"\nwindow = \"7d\"\ntimeout = \"1s\"\n\
         max_land = \"2m\"\non_unknown = \"retry\"\nsecret_args = [\"card.number\"]\n\
         [connectors.shop.tools.look]\neffect = \"read\"\npath = \"/\"\n"
    );
    let registry = build(&toml).expect("loads");
    let contract = tool(&registry, "orders.hold").contract;
    assert_eq!(
        contract.effect,
        EffectClass::Keyed {
            window_ms: 604_800_000
        }
    );
    assert_eq!(contract.timeout, Duration::from_secs(1));
    assert_eq!(contract.max_land, Duration::from_mins(2));
    assert_eq!(contract.on_unknown, OnUnknown::Retry);
    assert_eq!(contract.secret_args, ["card.number"]);
    assert_eq!(
        tool(&registry, "look").contract.timeout,
        Duration::from_secs(9)
    );
    assert_eq!(tool(&registry, "look").contract.effect, EffectClass::Read);
}

#[test]
fn what_is_left_out_is_the_cautious_choice() {
    let http = build(&format!("{HTTP}{HOLD}")).expect("loads");
    let contract = tool(&http, "orders.hold").contract;
    assert_eq!(contract.effect, EffectClass::Opaque);
    assert_eq!(contract.timeout, Duration::from_secs(30));
    assert_eq!(contract.on_unknown, OnUnknown::Hold);
    let file = build(&format!("{FILE}{NOTE}")).expect("loads");
    let contract = tool(&file, "note").contract;
    assert_eq!(contract.effect, EffectClass::Probeable);
    assert_eq!(contract.max_land, Duration::ZERO);
}

/// Each case: the text, and what its message must be or (after `…`) contain.
#[track_caller]
fn refused(cases: &[(String, &str)]) {
    for (toml, wanted) in cases {
        let error = build(toml).expect_err(toml);
        match wanted.strip_prefix('…') {
            Some(part) => assert!(error.contains(part), "{error}"),
            None => assert_eq!(&error, wanted),
        }
    }
}

#[test]
fn an_unknown_word_is_refused_at_its_line() {
    refused(&[
        (format!("{HTTP}retries = 3\n"), "…unknown field `retries`"),
        (
            format!("{HTTP}{HOLD}idempotent = true\n"),
            "…unknown field `idempotent`",
        ),
        (format!("{HTTP}{HOLD}idempotent = true\n"), "…line 6"),
        (
            HTTP.replace("http\"\n", "ftp\"\n"),
            "…unknown connector kind `ftp`; there are `http`, `file`, `command`, `mcp` and `sql`",
        ),
        (HTTP.replace("http\"\n", "ftp\"\n"), "…line 2"),
        (
            HTTP.replace("kind = \"http\"\n", ""),
            "…missing field `kind`",
        ),
        (
            format!("{HTTP}{HOLD}effect = \"exactly-once\"\n"),
            "…unknown effect `exactly-once`; there are `read`, `idempotent`, `keyed`, `probeable`, `transactional` and `opaque`",
        ),
        (
            format!("{HTTP}{HOLD}effect = \"transactional\"\n"),
            "…only a statement in the store's own database is `transactional`",
        ),
        (
            format!("{HTTP}{HOLD}on_unknown = \"ignore\"\n"),
            "…unknown variant `ignore`",
        ),
        (
            format!("{HTTP}{HOLD}body = \"all\"\n"),
            "…a body is `\"args\"`, `\"rest\"`, `\"none\"` or a table of templates",
        ),
        (
            format!("{HTTP}{HOLD}timeout = \"3 parsecs\"\n"),
            "…bad duration `3 parsecs`",
        ),
        (format!("{HTTP}{HOLD}timeout = \"3 parsecs\"\n"), "…line 6"),
        (format!("{HTTP}timeout = 3\n"), "…invalid type: integer `3`"),
        (
            format!("{HTTP}[connectors.shop.tools.\"Orders\"]\npath = \"/\"\n"),
            "…the tool name has 'O'",
        ),
    ]);
}

/// Each case: lines of the tool, and the field and message they get.
#[track_caller]
fn tool_refused(cases: &[(&str, &str)]) {
    for (lines, wanted) in cases {
        let toml = format!("{HTTP}{HOLD}{lines}\n");
        let error = build(&toml).expect_err(lines);
        assert_eq!(
            error,
            format!("connectors.shop.tools.\"orders.hold\".{wanted}")
        );
    }
}

#[test]
fn words_that_do_not_go_together_are_refused_with_the_field() {
    tool_refused(&[
        (
            "window = \"1h\"",
            "window: only a keyed tool has a window; set `effect = \"keyed\"` or remove it",
        ),
        (
            "effect = \"keyed\"\nwindow = \"0s\"",
            "window: is zero; write how long the vendor remembers a key",
        ),
        (
            "effect = \"keyed\"\nwindow = \"35s\"\ntimeout = \"5s\"",
            "window: the vendor would have forgotten the key while a request may still land (35s: \
             `timeout` and `max_land`), so nothing in doubt could ever be sent again; write a \
             longer one if the vendor keeps it, shorten those two, or leave `effect` out",
        ),
        (
            "timeout = \"0s\"",
            "timeout: is zero, so no call could ever be made; write `3s`",
        ),
        (
            "effect = \"probeable\"",
            "effect: a probeable tool needs a `probe` that asks the vendor whether it happened; without one use `keyed` if the vendor honours idempotency keys, otherwise `opaque`",
        ),
        (
            "key_header = \"X-Key\"",
            "key_header: only a keyed tool sends a key; set `effect = \"keyed\"` or remove it",
        ),
        (
            "effect = \"keyed\"\nkey_header = \"a b\"",
            "key_header: `a b` is not a header name",
        ),
        (
            "effect = \"keyed\"\nheaders = { idempotency-key = \"x\" }",
            "headers: `idempotency-key` carries the downstream key of this tool; remove it",
        ),
        (
            "secret_args = [\"card..number\"]",
            "secret_args: `card..number` is not a dotted path such as `card.number`",
        ),
        (
            "secret_args = [\"order\"]",
            "path: `{args.order}` is a secret argument, and addresses end up in logs; send it in the body or in a header",
        ),
        (
            "method = \"post\"",
            "method: unknown method `post`; there are `GET`, `HEAD`, `POST`, `PUT`, `PATCH` and `DELETE`",
        ),
        (
            "method = \"GET\"\nbody = \"args\"",
            "body: `GET` has no body; name the arguments in `path` or `query`, or use `POST`",
        ),
    ]);
}

#[test]
fn a_header_is_checked_when_it_loads() {
    tool_refused(&[
        (
            "headers = { \"a b\" = \"x\" }",
            "headers.\"a b\": `a b` is not a header name",
        ),
        (
            "headers = { Host = \"evil.example\" }",
            "headers.\"Host\": `host` is written by the client itself; remove it",
        ),
        (
            "headers = { a = \"x\", A = \"y\" }",
            "headers.\"a\": stands here twice; header names ignore case",
        ),
        (
            "headers = { a = \"secret:\" }",
            "headers.\"a\": a secret's name is made of letters, digits, `.`, `_` and `-`",
        ),
        (
            "headers = { a = \"Bearer secret:x\" }",
            "headers.\"a\": a value is either a template or exactly `secret:NAME`; put the whole value, a word like `Bearer` included, into the secret",
        ),
        (
            "headers = { a = \"x\\r\\nb: y\" }",
            "headers.\"a\": has a control character",
        ),
        (
            "headers = { a = \"{arg.x}\" }",
            "headers.\"a\": unknown placeholder `{arg.x}`; there are `{args.NAME}`, `{action.tool}`, `{action.entity_key}`, `{action.idempotency_key}` and `{action.downstream_key}`",
        ),
    ]);
}

#[test]
fn a_path_template_is_checked_when_it_loads() {
    for (path, problem) in [
        ("orders", "must start with `/`"),
        ("/orders/{args.order", "a brace without its partner"),
        ("/orders/{order}", "unknown placeholder `{order}`"),
        (
            "/orders/{action.args}",
            "unknown placeholder `{action.args}`",
        ),
        ("/orders/../admin", "must not hold the segments `.` or `..`"),
        (
            "/orders/%2e%2E/admin",
            "must not hold the segments `.` or `..`",
        ),
        ("/orders#x", "has `#`; write it percent-encoded"),
        ("/or ders", "has ` `; write it percent-encoded"),
        ("/orders\\\\x", "has `\\\\`; write it percent-encoded"),
        ("/größe", "has `ö`; write it percent-encoded"),
        ("/50%", "has `%` without two hexadecimal digits after it"),
        ("/a?b={args.x}#c", "has `#`; write it percent-encoded"),
    ] {
        let toml = format!("{HTTP}[connectors.shop.tools.t]\npath = \"{path}\"\n");
        let error = build(&toml).expect_err(path);
        let wanted = format!("connectors.shop.tools.\"t\".path: {problem}");
        assert!(error.starts_with(&wanted), "{error}");
    }
    let error = build(&format!("{HTTP}[connectors.shop.tools.t]\n")).expect_err("no path");
    assert!(
        error.starts_with("connectors.shop.tools.\"t\".path: is missing;"),
        "{error}"
    );
}

#[test]
fn a_field_of_another_kind_is_refused() {
    refused(&[
        (
            format!("{HTTP}path = \"x\"\n"),
            "connectors.shop.path: a connector of kind `http` has no `path`; remove it",
        ),
        (
            format!("{FILE}base_url = \"http://x\"\n"),
            "connectors.shop.base_url: a connector of kind `file` has no `base_url`; remove it",
        ),
        (
            format!("{FILE}{NOTE}method = \"POST\"\n"),
            "connectors.shop.tools.\"note\".method: a connector of kind `file` has no `method`; remove it",
        ),
        (
            format!("{FILE}{NOTE}secret_args = [\"a\"]\n"),
            "connectors.shop.tools.\"note\".secret_args: a file tool writes its arguments as they are; leave secrets out of the plan",
        ),
        (
            format!("{FILE}{NOTE}effect = \"keyed\"\n"),
            "connectors.shop.tools.\"note\".effect: appending twice leaves two lines; a file tool is `probeable`, `opaque` or `read`",
        ),
        (
            FILE.replace("path = \"effects.jsonl\"\n", ""),
            "…connectors.shop.path: is missing",
        ),
        (
            "[connectors.shop]\nkind = \"http\"\n".to_owned(),
            "…connectors.shop.base_url: is missing",
        ),
        (
            "[connectors.\"a.b\"]\nkind = \"http\"\n".to_owned(),
            "…connectors.\"a.b\".base_url: is missing",
        ),
    ]);
}

#[test]
fn a_schema_is_compiled_when_it_loads() {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("good.json"), r#"{"required":["order"]}"#).expect("written");
    fs::write(folder.path().join("twice.json"), r#"{"a":1,"a":2}"#).expect("written");
    let with = |schema: &str| {
        build_in(
            &format!("{HTTP}{HOLD}args_schema = {schema}\n"),
            folder.path(),
        )
    };

    for good in ["\"good.json\"", "{ required = [\"order\"] }"] {
        let registry = with(good).expect("loads");
        let schema = tool(&registry, "orders.hold").schema.expect("a schema");
        let error = schema
            .check(json!({}).as_object().expect("object"))
            .expect_err("missing");
        assert_eq!(error.to_string(), "/args/order: is required");
    }
    let place = "connectors.shop.tools.\"orders.hold\".args_schema: ";
    for (bad, problem) in [
        (
            "{ type = \"strin\" }",
            "not a valid JSON Schema at `/type`: ",
        ),
        (
            "{ pattern = \"(\" }",
            "not a valid JSON Schema at `/pattern`: ",
        ),
        ("7", "must be a table, or the path of a `.json` file"),
        ("\"missing.json\"", "cannot read `"),
        ("\"twice.json\"", "cannot read `"),
        ("\".\"", "cannot read `"),
    ] {
        let error = with(bad).expect_err(bad);
        assert!(error.starts_with(&format!("{place}{problem}")), "{error}");
    }
}

#[test]
fn header_texts_do_not_show_in_a_configuration() {
    let toml = format!("{HTTP}{HOLD}headers = {{ Authorization = \"Bearer canary\" }}\n");
    let configs = super::configs(&toml).expect("parses");
    assert!(!format!("{configs:?}").contains("canary"));
    assert!(!format!("{:?}", build(&toml).expect("loads")).contains("canary"));
}

#[tokio::test]
async fn tools_made_in_rust_can_be_registered() {
    let folder = TempDir::new().expect("a folder");
    let source = build_in(&format!("{FILE}{NOTE}"), folder.path()).expect("loads");
    let note = ToolName::parse("note").expect("name");
    let registry = Registry::from_tools([(name("shop"), note, tool(&source, "note"))]);
    super::applied(invoke(&registry, &call("note", json!({}))).await);
    assert_eq!(
        registry.tools().map(|(.., kind)| kind).collect::<Vec<_>>(),
        ["custom"]
    );
}
