//! Finding and greeting a vendor: names, addresses, TLS. Nothing of a request is sent here.
//!
//! Owns whom a connection is made with. Its TLS has a provider of its own, so that it neither needs
//! nor sets what the rest of the process uses.

use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioIo;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tower_service::Service;
use url::Url;

use crate::http::address::{Blocked, BoxError, Guard};
use crate::http::departure::{Asking, Carried};
use crate::http::sender::{Unanswered, innermost, unconnected};

/// How long finding and greeting the vendor may take at most. It ends before the call's deadline,
/// so that a vendor that cannot be reached is a definite failure and not a doubt.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// A connection on which nothing was heard for so long is asked whether it still is one.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_TRIES: u32 = 3;

/// A greeted connection.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// What speaks over it.
pub(crate) type Wire = TokioIo<Box<dyn Duplex>>;

/// How connections are made.
#[derive(Debug)]
pub(crate) struct Dialer {
    guard: Arc<Guard>,
    /// The only authorities to trust; none means the system's.
    authorities: Option<Vec<CertificateDer<'static>>>,
    within: Duration,
    /// Built by the first call that needs it: the system's certificates take a while to read.
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl Dialer {
    /// `timeout_min` is the shortest deadline among the calls that it is used for.
    pub(crate) fn new(
        guard: Guard,
        authorities: Option<Vec<CertificateDer<'static>>>,
        timeout_min: Duration,
    ) -> Self {
        Self {
            guard: Arc::new(guard),
            authorities,
            within: (timeout_min / 2).min(CONNECT_MAX),
            tls: OnceLock::new(),
        }
    }

    /// Connects and greets, within its time.
    pub(crate) async fn dial(&self, url: &Url) -> Result<(Wire, Carried), Unanswered> {
        let tls = match url.scheme() {
            "https" => {
                let built = self.tls.get_or_init(|| self.tls()).clone();
                Some(built.map_err(Unanswered::NotSent)?)
            }
            _ => None,
        };
        match tokio::time::timeout(self.within, self.connect(url, tls)).await {
            Ok(connected) => connected,
            Err(_elapsed) => Err(unconnected(url, "none was made in time")),
        }
    }

    async fn connect(
        &self,
        url: &Url,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<(Wire, Carried), Unanswered> {
        let uri: Uri = url.as_str().parse().map_err(|error| no(url, &error))?;
        let mut connector = HttpConnector::new_with_resolver(Names(Arc::clone(&self.guard)));
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_keepalive(Some(KEEPALIVE));
        connector.set_keepalive_interval(Some(KEEPALIVE));
        connector.set_keepalive_retries(Some(KEEPALIVE_TRIES));
        let stream = connector.call(uri).await.map_err(|error| no(url, &error))?;
        let carried = Carried::default();
        let stream = Asking::new(stream.into_inner(), carried.clone());
        let stream: Box<dyn Duplex> = match tls {
            None => Box::new(stream),
            Some(tls) => {
                let name = server_name(url)?;
                let greeted = TlsConnector::from(tls).connect(name, stream).await;
                Box::new(greeted.map_err(|error| no(url, &error))?)
            }
        };
        Ok((TokioIo::new(stream), carried))
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        let refuse = |error: rustls::Error| format!("no client could be made: {error}");
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(refuse)?;
        let builder = if let Some(authorities) = &self.authorities {
            let mut roots = RootCertStore::empty();
            for authority in authorities {
                roots.add(authority.clone()).map_err(refuse)?;
            }
            builder.with_root_certificates(roots)
        } else {
            let verifier = Arc::new(Verifier::new(provider).map_err(refuse)?);
            builder
                .dangerous()
                .with_custom_certificate_verifier(verifier)
        };
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Reads the certificates of a PEM file.
pub(crate) fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let shown = path.display();
    let pem = std::fs::read(path).map_err(|error| format!("cannot read `{shown}`: {error}"))?;
    let certificates = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(format!("`{shown}` holds no certificate in PEM form")),
    }
}

fn server_name(url: &Url) -> Result<ServerName<'static>, Unanswered> {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(bare.to_owned()).map_err(|error| no(url, &error))
}

/// What there is to say about a connection that was not made.
fn no(url: &Url, error: &(dyn Error + 'static)) -> Unanswered {
    let cause = innermost(error);
    match cause.downcast_ref::<Blocked>() {
        Some(blocked) => Unanswered::NotSent(blocked.to_string()),
        None => unconnected(url, cause),
    }
}

/// The guard, as the connector asks for names.
#[derive(Clone)]
struct Names(Arc<Guard>);

impl Service<Name> for Names {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let guard = Arc::clone(&self.0);
        Box::pin(async move { Ok(guard.addresses(name.as_str()).await?.into_iter()) })
    }
}
