//! Connections that were used before: kept where a lost request costs nothing, and a request that
//! began to leave is sent once whatever becomes of them.

use serde_json::json;

use operators_kernel::InvokeOutcome;

use super::vendor::{Reply, Vendor, ok};
use super::{applied, build, call, invoke, unknown};

const POOLED: [&str; 3] = ["keyed", "idempotent", "read"];

fn tool(effect: &str) -> String {
    format!("effect = \"{effect}\"\n")
}

#[tokio::test]
async fn what_can_be_repeated_rides_on_a_kept_connection() {
    for effect in POOLED {
        let vendor = Vendor::always(Reply::KeepAlive(ok("{}")));
        let registry = build(&vendor.config(&tool(effect))).expect("config");
        for _ in 0..3 {
            applied(invoke(&registry, &call("do", json!({}))).await);
        }
        assert_eq!(vendor.requests().len(), 3, "{effect}");
        assert_eq!(vendor.connections(), 1, "{effect}");
    }
}

#[tokio::test]
async fn a_request_that_reached_a_kept_connection_is_never_sent_again() {
    for effect in POOLED {
        let vendor = Vendor::start(|nth| match nth % 2 {
            0 => Reply::KeepAlive(ok("{}")),
            // Read on a connection that was used before, then closed without an answer: the
            // effect may have happened.
            _ => Reply::Close(Vec::new()),
        });
        let registry = build(&vendor.config(&tool(effect))).expect("config");
        for round in 1..=5 {
            applied(invoke(&registry, &call("do", json!({}))).await);
            unknown(invoke(&registry, &call("do", json!({}))).await);
            assert_eq!(vendor.requests().len(), round * 2, "{effect}");
        }
        assert_eq!(vendor.connections(), 5, "{effect}: each pair shared one");
    }
}

/// The vendor promises to keep the connection and closes it at once, so a request may find it
/// closed before its first byte. Then nothing left, and it may go out on another one; it is never
/// seen twice.
#[tokio::test]
async fn a_kept_connection_that_was_closed_while_idle_costs_no_second_request() {
    for effect in POOLED {
        let vendor = Vendor::always(Reply::Close(ok("{}")));
        let registry = build(&vendor.config(&tool(effect))).expect("config");
        let mut lost = 0;
        for _ in 0..50 {
            match invoke(&registry, &call("do", json!({}))).await {
                InvokeOutcome::Applied(_) => {}
                InvokeOutcome::Unknown(_) => lost += 1,
                InvokeOutcome::NotApplied(error) => panic!("{effect}: {error}"),
            }
        }
        let seen = vendor.requests().len();
        assert_eq!(
            seen,
            50 - lost,
            "{effect}: each request was seen once or never"
        );
    }
}
