//! TLS: a vendor with a certificate of its own authority, which only `ca_file` makes trusted.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;
use tempfile::TempDir;

use super::departures::asked_at_most;
use super::{applied, build_in, call, invoke, not_applied};

/// An authority, and the certificate it gave to `localhost`.
struct Authority {
    pem: String,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

fn authority() -> Authority {
    let ca_key = KeyPair::generate().expect("a key");
    let mut ca = CertificateParams::new(Vec::new()).expect("parameters");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = ca.self_signed(&ca_key).expect("signed").pem();
    let key = KeyPair::generate().expect("a key");
    let names = vec!["localhost".to_owned()];
    let certificate = CertificateParams::new(names)
        .expect("parameters")
        .signed_by(&key, &Issuer::new(ca, ca_key))
        .expect("signed");
    Authority {
        pem,
        certificate: certificate.der().clone(),
        key: PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
    }
}

/// A vendor that answers over TLS, and how many requests it has read.
fn vendor(authority: Authority) -> (SocketAddr, Arc<AtomicUsize>) {
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![authority.certificate], authority.key)
        .expect("a pair");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    let served = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&served);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
            let mut stream = StreamOwned::new(connection, stream);
            // A client that trusts nobody leaves during the handshake.
            let Ok(1..) = stream.read(&mut [0; 4096]) else {
                continue;
            };
            counter.fetch_add(1, Ordering::SeqCst);
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
            drop(stream.write_all(answer));
            drop(stream.flush());
        }
    });
    (address, served)
}

fn config(address: SocketAddr, host: &str, more: &str) -> String {
    format!(
        "[connectors.shop]\nkind = \"http\"\nbase_url = \"https://{host}:{}\"\ntimeout = \"5s\"\n\
         allow_private_addresses = true\n{more}\n[connectors.shop.tools.do]\npath = \"/do\"\n",
        address.port()
    )
}

#[tokio::test]
async fn only_the_named_authority_is_trusted_and_only_for_its_name() {
    let folder = TempDir::new().expect("a folder");
    let own = authority();
    std::fs::write(folder.path().join("own.pem"), &own.pem).expect("written");
    std::fs::write(folder.path().join("other.pem"), authority().pem).expect("written");
    let (address, served) = vendor(own);
    let outcome = async |host: &str, more: &str| {
        let registry = build_in(&config(address, host, more), folder.path()).expect("config");
        invoke(&registry, &call("do", json!({}))).await
    };
    for (host, more) in [
        ("localhost", ""),
        ("localhost", "ca_file = \"other.pem\""),
        ("127.0.0.1", "ca_file = \"own.pem\""),
    ] {
        let message = not_applied(outcome(host, more).await);
        assert!(
            message.starts_with("`POST /do` was not sent: no connection to "),
            "{message}"
        );
    }
    assert_eq!(
        served.load(Ordering::SeqCst),
        0,
        "nothing was said to a stranger"
    );
    applied(outcome("localhost", "ca_file = \"own.pem\"").await);
    assert_eq!(served.load(Ordering::SeqCst), 1);
}

/// By rule 4.12: the greeting takes a while, and asks nothing of its own.
#[tokio::test]
async fn what_may_not_leave_after_the_greeting_does_not() {
    let folder = TempDir::new().expect("a folder");
    let own = authority();
    std::fs::write(folder.path().join("own.pem"), &own.pem).expect("written");
    let (address, served) = vendor(own);
    let toml = config(address, "localhost", "ca_file = \"own.pem\"");
    let registry = build_in(&toml, folder.path()).expect("config");
    let mut late = call("do", json!({}));
    late.permit = asked_at_most(1);
    let told = not_applied(invoke(&registry, &late).await);
    assert!(told.contains("the test says so"), "{told}");
    applied(invoke(&registry, &call("do", json!({}))).await);
    assert_eq!(served.load(Ordering::SeqCst), 1);
}

#[test]
fn a_file_without_certificates_is_refused_when_it_loads() {
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("empty.pem"), "nothing").expect("written");
    let load = |file: &str, base: &Path| {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let more = format!("ca_file = \"{file}\"");
        build_in(&config(address, "localhost", &more), base).expect_err(file)
    };
    let missing = load("missing.pem", folder.path());
    assert!(
        missing.starts_with("connectors.shop.ca_file: cannot read `"),
        "{missing}"
    );
    let empty = load("empty.pem", folder.path());
    assert!(
        empty.ends_with("holds no certificate in PEM form"),
        "{empty}"
    );
}
