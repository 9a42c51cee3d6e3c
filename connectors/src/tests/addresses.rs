//! The guard on what is dialled: literal addresses, names, and names that change their mind.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use operators_kernel::{Connector, Health, ProbeOutcome};

use super::vendor::{Reply, Vendor, ok};
use super::{build, call, configs, invoke, name, not_applied};
use crate::http::HttpConnector;
use crate::http::address::{Found, Guard, Lookup};
use crate::registry::Place;

fn config(base_url: &str) -> String {
    format!(
        "[connectors.shop]\nkind = \"http\"\nbase_url = \"{base_url}\"\n\
         [connectors.shop.tools.do]\npath = \"/do\"\ntimeout = \"5s\""
    )
}

const INTERNAL: [&str; 46] = [
    "http://127.0.0.1",
    "http://127.1",
    "http://127.255.255.254:8080/x",
    "http://2130706433",
    "http://0x7f000001",
    "http://0x7f.1",
    "http://0177.0.0.1",
    "http://017700000001",
    "http://0x7F.0x0.0x0.0x1",
    "http://127.0x1",
    "http://127.0.0.1.",
    "http://１２７.0.0.1",
    "http://0.0.0.0",
    "http://0",
    "http://10.0.0.1",
    "http://172.16.0.1",
    "http://172.31.255.255",
    "http://192.168.1.1",
    "http://169.254.169.254/latest/meta-data",
    "http://0xa9fea9fe",
    "http://100.64.0.1",
    "http://100.100.100.200",
    "http://168.63.129.16",
    "http://192.0.0.192",
    "http://198.18.0.1",
    "http://224.0.0.1",
    "http://255.255.255.255",
    "http://240.0.0.1",
    "http://[::1]",
    "http://[::]",
    "http://[::ffff:127.0.0.1]",
    "http://[::ffff:a9fe:a9fe]",
    "http://[::127.0.0.1]",
    "http://[64:ff9b::7f00:1]",
    "http://[64:ff9b::a9fe:a9fe]",
    "http://[64:ff9b:1::1]",
    "http://[::ffff:0:127.0.0.1]",
    "http://[0:0:0:0:0:ffff:7f00:1]",
    "http://[64:ff9b::10.0.0.1]",
    "http://[2002:7f00:1::]",
    "http://[2002:a00:1::1]",
    "http://[2001:0:1::1]",
    "http://[fe80::1]",
    "http://[fc00::1]",
    "http://[fd00:ec2::254]",
    "https://[ff02::1]",
];

#[test]
fn an_internal_address_in_a_base_url_is_refused_in_every_spelling() {
    for base_url in INTERNAL {
        let error = build(&config(base_url)).expect_err(base_url);
        assert!(error.starts_with("connectors.shop.base_url: `"), "{error}");
        assert!(
            error.ends_with("set `allow_private_addresses = true` if that is meant"),
            "{error}"
        );
        let allowed = config(base_url).replace(
            "kind = \"http\"",
            "kind = \"http\"\nallow_private_addresses = true",
        );
        assert!(build(&allowed).is_ok(), "{base_url}");
    }
}

#[test]
fn a_public_address_is_taken() {
    for base_url in [
        "https://api.example.com",
        "http://1.1.1.1",
        "http://172.32.0.1",
        "http://100.128.0.1",
        "http://[2606:4700::1111]",
        "http://[::ffff:1.1.1.1]",
        "http://[64:ff9b::101:101]",
        "http://[2002:101:101::1]",
    ] {
        assert!(build(&config(base_url)).is_ok(), "{base_url}");
    }
}

#[test]
fn a_base_url_is_a_plain_http_address() {
    for (base_url, problem) in [
        (
            "ftp://example.com",
            "must start with `https://` or `http://`",
        ),
        (
            "file:///etc/passwd",
            "must start with `https://` or `http://`",
        ),
        ("example.com", "not a URL"),
        ("https://", "not a URL"),
        // A zone names an interface of this machine.
        ("http://[fe80::1%25eth0]", "not a URL"),
        ("http://[fe80::1%eth0]", "not a URL"),
        ("http://[::1%25lo]/x", "not a URL"),
        (
            "https://u:canary@example.com",
            "holds a user name or password",
        ),
        (
            "https://canary@example.com",
            "holds a user name or password",
        ),
        ("https://example.com?a=1", "must end with its path"),
        ("https://example.com#a", "must end with its path"),
    ] {
        let error = build(&config(base_url)).expect_err(base_url);
        assert!(error.contains(problem), "{error}");
        assert!(!error.contains("canary"), "{error}");
    }
}

#[tokio::test]
async fn a_name_of_an_internal_address_is_not_dialled() {
    let vendor = Vendor::always(Reply::Close(ok("{}")));
    let base_url = format!("http://localhost:{}", vendor.address.port());
    let registry = build(&config(&base_url)).expect("a name is judged when it is dialled");
    let message = not_applied(invoke(&registry, &call("do", json!({}))).await);
    assert!(
        message.starts_with("`POST /do` was not sent: `localhost` is at "),
        "{message}"
    );
    assert!(message.contains("a loopback address"), "{message}");
    assert_eq!(vendor.connections(), 0);
}

/// Answers each look-up with the next of its lists, the last one for ever.
#[derive(Debug)]
struct Fickle {
    answers: Vec<Vec<IpAddr>>,
    asked: AtomicUsize,
}

impl Lookup for Fickle {
    fn lookup(&self, _host: String) -> Found {
        let nth = self.asked.fetch_add(1, Ordering::SeqCst);
        let last = self.answers.len() - 1;
        let found: Vec<SocketAddr> = self.answers[nth.min(last)]
            .iter()
            .map(|address| SocketAddr::new(*address, 0))
            .collect();
        Box::pin(async move { Ok(found) })
    }
}

fn fickle(base_url: &str, answers: &[&[&str]]) -> HttpConnector {
    fickle_with(base_url, "", answers)
}

fn fickle_with(base_url: &str, lines: &str, answers: &[&[&str]]) -> HttpConnector {
    let configs = configs(&format!("{}\n{lines}", config(base_url))).expect("config");
    let (_, config) = configs.first_key_value().expect("one connector");
    let answers = answers
        .iter()
        .map(|list| {
            list.iter()
                .map(|text| text.parse().expect("address"))
                .collect()
        })
        .collect();
    HttpConnector::compile_with(
        config,
        &Place::connector(&name("shop")),
        std::path::Path::new("."),
        Arc::new(super::FixedSecrets),
        Arc::new(Fickle {
            answers,
            asked: AtomicUsize::new(0),
        }),
    )
    .expect("compiles")
}

#[tokio::test]
async fn a_name_that_turns_internal_is_refused_on_that_very_dial() {
    let vendor = Vendor::always(Reply::Close(ok("{}")));
    let base_url = format!("http://shop.example:{}", vendor.address.port());
    for hostile in ["127.0.0.1", "::ffff:127.0.0.1", "::1", "64:ff9b::7f00:1"] {
        let connector = fickle(&base_url, &[&[hostile], &[hostile]]);
        for _ in 0..2 {
            let message = not_applied(connector.invoke(&call("do", json!({}))).await);
            assert!(message.contains("`shop.example` is at "), "{message}");
        }
    }
    assert_eq!(vendor.connections(), 0);
}

/// Every spelling of a name is looked up and judged by what it is at; none is known by heart.
#[tokio::test]
async fn a_name_is_judged_by_its_address_however_it_is_written() {
    let vendor = Vendor::always(Reply::Close(ok("{}")));
    for host in [
        "localhost",
        "LOCALHOST",
        "localhost.",
        "LocalHost.",
        "a.localhost",
        "ip6-localhost",
        "metadata.google.internal",
        "127.0.0.1.nip.example",
    ] {
        let base_url = format!("http://{host}:{}", vendor.address.port());
        let connector = fickle(&base_url, &[&["127.0.0.1"]]);
        let message = not_applied(connector.invoke(&call("do", json!({}))).await);
        assert!(message.contains("is at 127.0.0.1, a loopback"), "{message}");
    }
    assert_eq!(vendor.connections(), 0);
}

/// Rebinding: the first look-up is public, as a check would see it, and the next is not. There is
/// no check apart from the dial, so the second answer is judged as the first was.
#[tokio::test]
async fn a_name_that_rebinds_is_judged_anew_at_every_dial() {
    let guard = Guard {
        lookup: Arc::new(Fickle {
            answers: vec![
                vec![IpAddr::from([1, 1, 1, 1])],
                vec![IpAddr::from([169, 254, 169, 254])],
                vec![IpAddr::from([1, 1, 1, 1])],
            ],
            asked: AtomicUsize::new(0),
        }),
        allow_private: false,
    };
    let mut told = Vec::new();
    for _ in 0..3 {
        let found = guard.addresses("shop.example").await;
        told.push(
            found
                .map(|found| found.len())
                .map_err(|error| error.to_string()),
        );
    }
    assert_eq!((&told[0], &told[2]), (&Ok(1), &Ok(1)));
    let refused = told[1].as_ref().expect_err("metadata");
    assert!(
        refused.contains("a link-local or metadata address"),
        "{refused}"
    );
}

/// A probe and a look are dialled like everything else.
#[tokio::test]
async fn a_probe_and_a_look_go_through_the_same_guard() {
    let vendor = Vendor::always(Reply::Close(ok("{\"id\": 1}")));
    let base_url = format!("http://shop.example:{}", vendor.address.port());
    let probed = "effect = \"probeable\"\nprobe = { path = \"/did\", \
        applied_if = { pointer = \"/id\", exists = true } }";
    let connector = fickle_with(&base_url, probed, &[&["127.0.0.1"]]);
    let call = call("do", json!({}));
    let ProbeOutcome::Unknown(error) = connector.probe(&call).await else {
        panic!("it told")
    };
    assert!(error.message.contains("a loopback address"), "{error}");
    let Health::Ill(error) = connector.check(&call.tenant).await else {
        panic!("it looked")
    };
    assert!(error.message.contains("a loopback address"), "{error}");
    assert_eq!(vendor.connections(), 0);
}

#[tokio::test]
async fn of_a_mixed_answer_only_the_public_part_is_dialled() {
    let guard = |allow_private| Guard {
        lookup: Arc::new(Fickle {
            answers: vec![vec![
                IpAddr::from([10, 0, 0, 1]),
                IpAddr::from([1, 1, 1, 1]),
                IpAddr::from([169, 254, 169, 254]),
            ]],
            asked: AtomicUsize::new(0),
        }),
        allow_private,
    };
    let name = "shop.example";
    let guarded = guard(false).addresses(name).await.expect("one is public");
    assert_eq!(guarded, [SocketAddr::from(([1, 1, 1, 1], 0))]);
    assert_eq!(guard(true).addresses(name).await.expect("all").len(), 3);
}

#[tokio::test]
async fn an_allowed_internal_name_is_dialled() {
    let vendor = Vendor::always(Reply::Close(ok("{}")));
    let base_url = format!("http://localhost:{}", vendor.address.port());
    let allowed = config(&base_url).replace(
        "kind = \"http\"",
        "kind = \"http\"\nallow_private_addresses = true",
    );
    let registry = build(&allowed).expect("config");
    super::applied(invoke(&registry, &call("do", json!({}))).await);
    assert_eq!(vendor.requests().len(), 1);
}
