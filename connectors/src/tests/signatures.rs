//! AWS Signature Version 4 against the vectors that AWS publishes with its signing test suite.

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use hyper::Method;
use serde_json::json;

use super::vendor::{Reply, Vendor, ok};
use super::{applied, build, call, invoke, name};
use crate::config::{HeaderText, SigV4Config};
use crate::http::{Request, SigV4};
use crate::registry::Place;

/// 2015-08-30T12:36:00Z, the moment of every vector.
const MOMENT: Duration = Duration::from_mins(24_015_636);

/// The session token of the vectors that have one.
const SESSION: &str = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";

fn signer(service: &str) -> SigV4 {
    let config = SigV4Config {
        region: "us-east-1".to_owned(),
        service: service.to_owned(),
        access_key: HeaderText::new("AKIDEXAMPLE"),
        secret_key: HeaderText::new("secret:k"),
        session_token: None,
    };
    SigV4::compile(&config, &Place::connector(&name("shop"))).expect("compiles")
}

/// A vector: method, path and query, header lines, whether it has a session token, its signature.
type Vector = (
    Method,
    &'static str,
    &'static [(&'static str, &'static str)],
    bool,
    &'static str,
);

/// Those whose address can be sent as it stands; the suite writes others unescaped.
const VECTORS: [Vector; 7] = [
    (
        Method::GET,
        "/",
        &[],
        false,
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    ),
    (
        Method::POST,
        "/",
        &[],
        false,
        "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
    ),
    (
        Method::GET,
        "/?Param2=value2&Param1=value1",
        &[],
        false,
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    (
        Method::POST,
        "/?Param1=value1",
        &[],
        false,
        "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11",
    ),
    (
        Method::GET,
        "/?-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz=-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
        &[],
        false,
        "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197",
    ),
    (
        Method::GET,
        "/",
        &[("my-header1", " value1"), ("my-header2", " \"a   b   c\"")],
        false,
        "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
    ),
    (
        Method::POST,
        "/",
        &[],
        true,
        "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
    ),
];

#[test]
fn the_published_vectors_are_met() {
    for (method, path, headers, has_session, signature) in VECTORS {
        let url = format!("https://example.amazonaws.com{path}");
        let mut request = Request::new(method, url.parse().expect("a URL"));
        for (name, value) in headers {
            request
                .headers
                .insert(*name, value.parse().expect("a value"));
        }
        let secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
        let session = has_session.then(|| SESSION.to_owned());
        let credentials = Credentials::new("AKIDEXAMPLE", secret, session, None, "test");
        let now = SystemTime::UNIX_EPOCH + MOMENT;
        signer("service")
            .sign(&mut request, credentials, now)
            .expect("signed");
        let value = request.headers["authorization"].to_str().expect("ASCII");
        assert!(
            value.ends_with(&format!("Signature={signature}")),
            "{path}: {value}"
        );
    }
}

#[tokio::test]
async fn what_is_signed_is_what_is_sent() {
    let vendor = Vendor::always(Reply::Close(ok("{}")));
    let auth = "auth = { aws_sigv4 = { region = \"eu-central-1\", service = \"s3\", \
        access_key = \"AKIDEXAMPLE\", secret_key = \"secret:plain\", \
        session_token = \"secret:plain\" } }\n[connectors.shop.tools.do]";
    let config = vendor
        .config("")
        .replace("[connectors.shop.tools.do]", auth);
    let registry = build(&config).expect("config");
    applied(invoke(&registry, &call("do", json!({"a": 1}))).await);
    let request = vendor.requests().remove(0).to_ascii_lowercase();
    for wanted in [
        "authorization: aws4-hmac-sha256 credential=akidexample/",
        "/eu-central-1/s3/aws4_request, signedheaders=accept;content-type;host;x-amz-content-sha256;x-amz-date;x-amz-security-token, signature=",
        "x-amz-security-token: canary-4711-plain",
        "x-amz-date: ",
        // The digest of the very body: {"a":1}
        "x-amz-content-sha256: 015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862",
    ] {
        assert!(request.contains(wanted), "{wanted}: {request}");
    }
}
