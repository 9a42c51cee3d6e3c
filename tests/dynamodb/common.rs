//! What the modules share: a server, a fresh table, and callers that are processes of their own.

use std::sync::Arc;
use std::time::Duration;

use operators_kernel::{DurableExec, SessionId};
use operators_seams::DynamoStore;
use operators_tests::conformance::desk::{Desk, LONG};
use operators_tests::dynamodb::{endpoint, fresh_table};
use operators_tests::fixtures::tenant;
use operators_tests::proxy::Proxy;

/// A fresh table's address, and the same through a proxy; `None` where there is no server.
pub async fn table() -> Option<(String, String, Proxy)> {
    let endpoint = endpoint()?;
    let url = fresh_table(endpoint).await;
    let proxy = Proxy::before(&url);
    let proxied = proxy.url().to_owned();
    Some((url, proxied, proxy))
}

/// A process of its own: it has seen nothing yet.
pub async fn process(url: &str) -> Desk {
    process_lasting(url, LONG).await
}

pub async fn process_lasting(url: &str, lease: Duration) -> Desk {
    let store = DynamoStore::connect(url).await.expect("connects");
    let store: Arc<dyn DurableExec> = Arc::new(store);
    let session = store.open_session("test", lease).await;
    Desk {
        session: session.expect("a session"),
        store,
        tenant: tenant(),
    }
}

/// A process that never opened a session.
pub async fn onlooker(url: &str) -> Desk {
    let store = DynamoStore::connect(url).await.expect("connects");
    Desk {
        store: Arc::new(store),
        session: SessionId(0),
        tenant: tenant(),
    }
}
