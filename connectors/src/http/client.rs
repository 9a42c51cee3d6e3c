//! The HTTP client of MCP servers: it follows nothing, retries nothing, uses no proxy.
//!
//! Owns the settings of the HTTP library. It must not know requests or answers.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Certificate, Client, redirect, retry};
use rustls::{ClientConfig, RootCertStore, crypto::ring};

use crate::http::address::{Guard, Lookup};

/// How long finding and greeting the vendor may take at most. It ends before the call's deadline,
/// so that a vendor that cannot be reached is a definite failure and not a doubt.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// How many idle connections to a vendor are kept.
const IDLE_MAX: usize = 16;

/// For how long: less than the five seconds after which the hastiest common servers close one, so
/// that a request seldom meets a connection that is being closed.
const IDLE_WAIT: Duration = Duration::from_secs(3);

/// What a client is built from.
pub(crate) struct ClientSettings {
    pub(crate) https: bool,
    /// The only authorities to trust; none means the system's.
    pub(crate) authorities: Option<Vec<Certificate>>,
    pub(crate) allow_private: bool,
    /// The shortest deadline among the tools that use this client.
    pub(crate) timeout_min: Duration,
    pub(crate) lookup: Arc<dyn Lookup>,
}

/// The clients of one connector, each built on the first call that needs it: most runs of a large
/// configuration call few vendors.
#[derive(Default)]
pub(crate) struct Clients {
    fresh: OnceLock<Result<Client, String>>,
    pooled: OnceLock<Result<Client, String>>,
}

impl Clients {
    /// The client that keeps connections for later requests, or the one that keeps none.
    pub(crate) fn get(
        &self,
        pooled: bool,
        settings: impl FnOnce() -> ClientSettings,
    ) -> Result<&Client, String> {
        let slot = if pooled { &self.pooled } else { &self.fresh };
        let built = slot.get_or_init(|| build(settings(), pooled));
        built.as_ref().map_err(Clone::clone)
    }
}

/// The guard, as this client asks for names.
struct Names(Arc<Guard>);

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = Arc::clone(&self.0);
        Box::pin(async move {
            let found: Vec<SocketAddr> = guard.addresses(name.as_str()).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

fn build(settings: ClientSettings, pooled: bool) -> Result<Client, String> {
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
        // INVARIANT (sent-once): what began to leave is never sent again. The library itself
        // repeats a request only while it still holds it whole, because the connection was gone
        // before a byte was written.
        .pool_max_idle_per_host(if pooled { IDLE_MAX } else { 0 })
        .pool_idle_timeout(IDLE_WAIT)
        .connect_timeout((settings.timeout_min / 2).min(CONNECT_MAX))
        .dns_resolver(Names(Arc::new(guard)));
    if settings.https {
        // The library asks the process for its provider and panics without one; whoever was
        // first to install one is as good.
        drop(ring::default_provider().install_default());
        if let Some(authorities) = settings.authorities {
            builder = builder.tls_certs_only(authorities);
        }
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
