//! Requests of `http` that are held back on their way: after connecting, before the first byte,
//! and between two writes.

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use operators_kernel::{ConnectorError, SendPermit};

use super::vendor::{Reply, Vendor, ok};
use super::{applied, build, call, invoke, not_applied, unknown};

const REFUSED: &str = "nothing was sent: the test says so";

/// Permits what is asked so often, and nothing later.
pub(super) fn asked_at_most(times: usize) -> SendPermit {
    let asked = AtomicUsize::new(0);
    SendPermit::asking(move || {
        if asked.fetch_add(1, Ordering::SeqCst) < times {
            Ok(())
        } else {
            Err(ConnectorError::new(REFUSED))
        }
    })
}

/// By rule 4.12: what is asked first is not enough. A process may be stopped while it connects, so
/// it is asked again with the connection made, whatever the request looks like.
#[tokio::test]
async fn what_may_not_leave_after_connecting_does_not() {
    for tool in [
        "",
        "method = \"DELETE\"\n",
        "method = \"GET\"\n",
        "effect = \"keyed\"\n",
        "effect = \"idempotent\"\nmethod = \"PUT\"\n",
    ] {
        let vendor = Vendor::always(Reply::KeepAlive(ok("{}")));
        let registry = build(&vendor.config(tool)).expect(tool);
        let mut late = call("do", json!({"order": 1}));
        late.permit = asked_at_most(1);
        let told = not_applied(invoke(&registry, &late).await);
        assert_eq!(told.matches(REFUSED).count(), 1, "{tool}: {told}");
        // Whole, a request would have come before this one.
        applied(invoke(&registry, &call("do", json!({"order": 2}))).await);
        assert_eq!(vendor.requests().len(), 1, "{tool}");
        assert_eq!(vendor.connections(), 2, "{tool}: both connected");
    }
}

/// By rule 4.12, on a connection that carried another request before.
#[tokio::test]
async fn what_may_not_leave_over_a_kept_connection_does_not() {
    let vendor = Vendor::always(Reply::KeepAlive(ok("{}")));
    let registry = build(&vendor.config("effect = \"keyed\"\n")).expect("config");
    applied(invoke(&registry, &call("do", json!({"order": 1}))).await);
    let mut late = call("do", json!({"order": 2}));
    late.permit = asked_at_most(1);
    not_applied(invoke(&registry, &late).await);
    assert_eq!(vendor.connections(), 1, "it had the connection");
    applied(invoke(&registry, &call("do", json!({"order": 3}))).await);
    assert_eq!(vendor.requests().len(), 2);
}

/// By rules 4.1 and 4.12: of a long request the rest is kept back too, so it is never completed
/// later; but a part left, so what became of it is not known.
#[tokio::test]
async fn what_may_not_go_on_after_a_part_left_is_a_doubt() {
    // Connections are made, and nobody reads: the system takes in a few megabytes.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    let toml = format!(
        "[connectors.shop]\nkind = \"http\"\nbase_url = \"http://{address}\"\ntimeout = \"60s\"\n\
         allow_private_addresses = true\n[connectors.shop.tools.do]\npath = \"/do\""
    );
    let registry = build(&toml).expect("config");
    let mut long = call("do", json!({"text": "x".repeat(64 * 1024 * 1024)}));
    long.deadline = std::time::Duration::from_mins(1);
    // Before and after it is connected, and for the first write.
    long.permit = asked_at_most(3);
    let told = unknown(invoke(&registry, &long).await);
    assert!(told.contains("its rest was kept: "), "{told}");
}
