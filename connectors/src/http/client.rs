//! The client that makes a request once: it follows nothing, retries nothing, uses no proxy.
//!
//! Owns the settings of the HTTP library. It must not know requests or answers.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, redirect, retry};
use rustls::{ClientConfig, RootCertStore, crypto::ring};

use crate::http::address::{Guard, Lookup};

/// How long finding and greeting the vendor may take at most. It ends before the call's deadline,
/// so that a vendor that cannot be reached is a definite failure and not a doubt.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// What a client is built from.
pub(crate) struct ClientSettings {
    pub(crate) https: bool,
    pub(crate) allow_private: bool,
    /// The shortest deadline among the tools that use this client.
    pub(crate) timeout_min: Duration,
    pub(crate) lookup: Arc<dyn Lookup>,
}

/// Builds the client of one connector.
pub(crate) fn build(settings: ClientSettings) -> Result<Client, String> {
    let provider = Arc::new(ring::default_provider());
    let guard = Guard {
        lookup: settings.lookup,
        allow_private: settings.allow_private,
    };
    let mut builder = Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .http1_only()
        .retry(retry::never())
        // INVARIANT (sent-once): every request has a connection of its own. On a reused one the
        // library sends again when the vendor closed it meanwhile, and what was lost on the way
        // would be a doubt about nothing.
        .pool_max_idle_per_host(0)
        .connect_timeout((settings.timeout_min / 2).min(CONNECT_MAX))
        .dns_resolver(guard);
    if settings.https {
        // The library asks the process for its provider and panics without one; whoever was
        // first to install one is as good.
        drop(ring::default_provider().install_default());
    } else {
        // Without TLS there is no reason to read the system's certificates.
        let nothing_trusted = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        builder = builder.tls_backend_preconfigured(nothing_trusted);
    }
    // The library's own words are "builder error"; what it lacks stands in the source.
    builder.build().map_err(|error| match error.source() {
        Some(source) => format!("no client could be made: {source}"),
        None => format!("no client could be made: {error}"),
    })
}
