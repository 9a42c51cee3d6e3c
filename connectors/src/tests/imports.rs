//! Tool definitions from `OpenAPI` documents: what is written loads, and is safe.

use serde_json::{Value, json};

use operators_kernel::{EffectClass, ToolName, ToolRegistry as _};

use super::{build, name};
use crate::{ImportSettings, Imported, Registry, import_openapi};

const PARCELS: &str = include_str!("documents/parcels.yaml");
const DESK: &str = include_str!("documents/desk.json");

fn settings(base_url: Option<&str>) -> ImportSettings {
    ImportSettings {
        connector: name("shop"),
        base_url: base_url.map(str::to_owned),
        path_prefix: None,
    }
}

fn parcels() -> (Imported, Registry) {
    let imported = import_openapi(PARCELS, &settings(None)).expect("imports");
    let registry = build(&imported.toml).expect("what was written loads");
    (imported, registry)
}

fn desk() -> (Imported, Registry) {
    let settings = settings(Some("https://desk.example/api"));
    let imported = import_openapi(DESK, &settings).expect("imports");
    let registry = build(&imported.toml).expect("what was written loads");
    (imported, registry)
}

fn effects(registry: &Registry) -> Vec<(String, &'static str)> {
    registry
        .tools()
        .map(|(_, name, tool, _)| (name.to_string(), tool.contract.effect.as_str()))
        .collect()
}

#[track_caller]
fn check(registry: &Registry, tool: &str, args: Value) -> Result<(), String> {
    let tool = ToolName::parse(tool).expect("a name");
    let tool = registry.tool(&name("shop"), &tool).expect("imported");
    let Value::Object(args) = args else {
        panic!("args are an object")
    };
    let schema = tool.schema.expect("a schema");
    schema.check(&args).map_err(|error| error.path)
}

#[test]
fn get_is_a_read_and_everything_else_is_opaque() {
    let (imported, registry) = parcels();
    assert_eq!(
        effects(&registry),
        [
            ("delete.parcels.parcel_id", "opaque"),
            ("parcels.create", "opaque"),
            ("parcels.get", "read"),
            ("parcels.list", "read"),
        ]
        .map(|(name, effect)| (name.to_owned(), effect))
    );
    assert_eq!(imported.tools, 4);
    for tool in registry.tools().map(|(_, _, tool, _)| tool) {
        assert!(!matches!(tool.contract.effect, EffectClass::Keyed { .. }));
    }
    let toml = &imported.toml;
    for wanted in [
        "base_url = \"https://eu.parcels.example/v2\"",
        "path = \"/parcels/{args.parcelId}\"",
        "path = \"/parcels\"",
        "\"filter[day]\" = \"{args.filter_day}\"",
        "page = \"{args.page}\"",
        "body = \"rest\"",
        "X-Depot = \"{args.X-Depot}\"",
        "# GET /parcels",
        "`token`: bearer credentials",
    ] {
        assert!(toml.contains(wanted), "no `{wanted}` in {toml}");
    }
    assert!(!toml.contains("$ref"), "{toml}");
    let form = DESK.replace(
        "application/json; charset=utf-8",
        "application/x-www-form-urlencoded",
    );
    let settings = settings(Some("https://desk.example"));
    let imported = import_openapi(&form, &settings).expect("imports");
    assert!(
        imported.toml.contains("encoding = \"form\""),
        "{}",
        imported.toml
    );
}

#[test]
fn what_cannot_be_said_is_left_out_with_a_remark() {
    let remarks = parcels().0.remarks.join("\n");
    for wanted in [
        "`PUT /parcels/{parcelId}/label` is left out: its body is neither JSON nor a form",
        "`OPTIONS /parcels/{parcelId}` is left out",
        "`GET /elsewhere` is left out: `other.yaml#/Parameter` is in another document",
        "the optional query parameter `where` is left out",
        "`POST /parcels`: takes an `Idempotency-Key`",
    ] {
        assert!(remarks.contains(wanted), "no `{wanted}` in {remarks}");
    }
    let remarks = desk().0.remarks.join("\n");
    assert!(remarks.contains("`PATCH /tickets` is left out: its body is not an object"));
}

#[test]
fn arguments_are_held_to_the_document_s_schemas() {
    let (_, registry) = parcels();
    let good = json!({"X-Depot": "north", "grams": 5, "to": {"street": "a", "town": "b"},
        "inside": [{"grams": 1, "to": {"street": "c", "town": "d"}}], "speed": null});
    assert_eq!(check(&registry, "parcels.create", good), Ok(()));
    for (args, place) in [
        (
            json!({"grams": 5, "to": {"street": "a", "town": "b"}}),
            "/args/X-Depot",
        ),
        (
            json!({"X-Depot": "n", "grams": 0, "to": {"street": "a", "town": "b"}}),
            "/args/grams",
        ),
        (
            json!({"X-Depot": "n", "grams": 1, "to": {"street": "a"}}),
            "/args/to/town",
        ),
        (
            json!({"X-Depot": "n", "grams": 1, "to": {"street": "a", "town": "b"}, "typo": 1}),
            "/args/typo",
        ),
    ] {
        assert_eq!(
            check(&registry, "parcels.create", args),
            Err(place.to_owned())
        );
    }
    let bad = check(&registry, "parcels.get", json!({"parcelId": "x"}));
    assert_eq!(bad, Err("/args/parcelId".to_owned()));

    let (_, registry) = desk();
    let reply = |args| check(&registry, "reply_to_ticket", args);
    assert_eq!(
        reply(json!({"ticket_id": 1, "text": "hi", "mood": null})),
        Ok(())
    );
    assert_eq!(
        reply(json!({"ticket_id": 0, "text": "hi"})),
        Err("/args/ticket_id".to_owned())
    );
    assert_eq!(reply(json!({"ticket_id": 1})), Err("/args/text".to_owned()));
    // Two operations of one name are two tools; a choice of bodies is kept as one.
    assert_eq!(effects(&registry)[0], ("list_tickets".to_owned(), "read"));
    assert_eq!(
        effects(&registry)[1],
        ("list_tickets-2".to_owned(), "opaque")
    );
    assert_eq!(
        check(&registry, "list_tickets-2", json!({"phone": "1"})),
        Ok(())
    );
    assert!(check(&registry, "list_tickets-2", json!({"fax": "1"})).is_err());
}

#[test]
fn an_optional_query_parameter_is_optional() {
    let (_, registry) = parcels();
    let list = |args| check(&registry, "parcels.list", args);
    let all = json!({"filter_day": "2026-05-01", "page": 2, "tag": ["a", "b"]});
    assert_eq!(list(all), Ok(()));
    assert_eq!(list(json!({"filter_day": "2026-05-01"})), Ok(()));
    assert_eq!(list(json!({"page": 2})), Err("/args/filter_day".to_owned()));
    let worded = json!({"filter_day": "2026-05-01", "page": "two"});
    assert_eq!(list(worded), Err("/args/page".to_owned()));
}

/// One name in two places cannot be told apart in the arguments, so nothing is taken out of the
/// body, and that is said.
#[test]
fn a_name_that_the_body_has_too_stays_in_it() {
    let twice = DESK.replace("\"text\"", "\"ticket_id\"");
    assert_ne!(twice, DESK);
    let settings = settings(Some("https://desk.example"));
    let imported = import_openapi(&twice, &settings).expect("imports");
    let remarks = imported.remarks.join("\n");
    assert!(
        remarks.contains("`ticket_id` is asked for in the body and elsewhere"),
        "{remarks}"
    );
    assert!(
        !imported.toml.contains("body = \"rest\""),
        "{}",
        imported.toml
    );
    assert!(desk().0.toml.contains("body = \"rest\""));
}

#[test]
fn a_prefix_takes_a_part_of_a_large_document() {
    let only = ImportSettings {
        path_prefix: Some("/parcels/".to_owned()),
        ..settings(None)
    };
    assert_eq!(import_openapi(PARCELS, &only).expect("imports").tools, 2);
}

#[test]
fn what_is_no_such_document_is_refused_with_a_remedy() {
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n\
        c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n\
        e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n\
        g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n";
    let circle = r##"{"openapi": "3.0.0", "servers": [{"url": "https://x.example"}], "paths":
        {"/a": {"get": {"parameters": [{"$ref": "#/components/parameters/A"}]}}},
        "components": {"parameters": {"A": {"$ref": "#/components/parameters/A"}}}}"##;
    for (text, wanted) in [
        ("{", "not JSON"),
        ("a: [", "not YAML"),
        ("a: 1", "not an OpenAPI document"),
        ("swagger: '2.0'", "Swagger 2"),
        ("openapi: 4.0.0", "version 3.0 and 3.1"),
        (
            "openapi: 3.0.0\npaths: {}",
            "give its address with `--base-url`",
        ),
        (
            "openapi: 3.0.0\nservers: [{url: 'https://x.example'}]\npaths: {}",
            "nothing to import",
        ),
        (
            "openapi: 3.0.0\nservers: [{url: 'http://127.0.0.1'}]\npaths: {}",
            "the server cannot be used",
        ),
        (bomb, "not YAML"),
        (circle, "leads in circles"),
    ] {
        let error = import_openapi(text, &settings(None)).expect_err(wanted);
        assert!(error.contains(wanted), "{error}");
    }
}
