//! Which addresses may be dialled: those of the public internet, unless a connector says otherwise.
//!
//! Owns the guard against being talked into calling ourselves, a neighbour, or a cloud's metadata
//! service. Names are judged by what they resolve to, at the moment of dialling; a name that
//! answers differently the second time changes nothing.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use url::Host;

/// Why a name has no address.
pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// The addresses of a name, to come.
pub(crate) type Found = Pin<Box<dyn Future<Output = Result<Vec<SocketAddr>, BoxError>> + Send>>;

/// Azure's metadata and control address; it stands in the middle of public space.
const AZURE_WIRE_SERVER: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

/// An address that may not be dialled, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{host}` is at {address}, {what}; set `allow_private_addresses = true` if that is meant")]
pub(crate) struct Blocked {
    host: String,
    address: IpAddr,
    what: &'static str,
}

/// Judges a host that is an address itself: those are dialled without asking a resolver.
pub(crate) fn check_literal(host: Option<&Host<&str>>) -> Result<(), Blocked> {
    let address = match host {
        Some(Host::Ipv4(address)) => IpAddr::V4(*address),
        Some(Host::Ipv6(address)) => IpAddr::V6(*address),
        Some(Host::Domain(_)) | None => return Ok(()),
    };
    match internal(address) {
        None => Ok(()),
        Some(what) => Err(Blocked {
            host: address.to_string(),
            address,
            what,
        }),
    }
}

/// What kind of internal address this is; `None` for a public one.
fn internal(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => internal_v4(address),
        IpAddr::V6(address) => internal_v6(address),
    }
}

fn internal_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        _ if address == AZURE_WIRE_SERVER => Some("a metadata address"),
        (0, ..) => Some("an unspecified address"),
        (127, ..) => Some("a loopback address"),
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => Some("a private address"),
        (169, 254, _) => Some("a link-local or metadata address"),
        (100, 64..=127, _) => Some("a shared (carrier-grade NAT) address"),
        (192, 0, 0 | 2) | (192, 88, 99) | (198, 18..=19, _) | (198, 51, 100) | (203, 0, 113) => {
            Some("a reserved address")
        }
        (224..=239, ..) => Some("a multicast address"),
        (240.., ..) => Some("a reserved or broadcast address"),
        _ => None,
    }
}

fn internal_v6(address: Ipv6Addr) -> Option<&'static str> {
    if let Some(inner) = address.to_ipv4_mapped() {
        return internal_v4(inner);
    }
    let embedded =
        |high: u16, low: u16| internal_v4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("an unspecified address"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("a loopback address"),
        // NAT64 and 6to4 carry an IPv4 address that is dialled in the end.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => embedded(high, low),
        [0xfc00..=0xfdff, ..] => Some("a unique local address"),
        [0xfe80..=0xfebf, ..] => Some("a link-local address"),
        [0xff00..=0xffff, ..] => Some("a multicast address"),
        // IETF protocols (Teredo and others), documentation.
        [0x2001, 0x0000..=0x01ff | 0x0db8, ..] | [0x3fff, 0x0000..=0x0fff, ..] => {
            Some("a reserved address")
        }
        // Only 2000::/3 is handed out to the public internet.
        [0x2000..=0x3fff, ..] => None,
        _ => Some("a reserved address"),
    }
}

/// Turns a name into addresses. A seam of its own, so that a hostile answer can be tried.
pub(crate) trait Lookup: Send + Sync + 'static {
    /// The addresses of `host`.
    fn lookup(&self, host: String) -> Found;
}

/// Asks the system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(&self, host: String) -> Found {
        // Port 0 is replaced with the URL's when it is dialled.
        Box::pin(async move { Ok(tokio::net::lookup_host((host, 0)).await?.collect()) })
    }
}

/// The resolver of a guarded client: what it lets out is what is dialled.
pub(crate) struct Guard {
    pub(crate) lookup: Arc<dyn Lookup>,
    pub(crate) allow_private: bool,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("allow_private", &self.allow_private)
            .finish_non_exhaustive()
    }
}

impl Guard {
    /// The addresses of a name that may be dialled.
    pub(crate) async fn addresses(&self, host: &str) -> Result<Vec<SocketAddr>, BoxError> {
        let found = self.lookup.lookup(host.to_owned()).await?;
        if self.allow_private {
            return Ok(found);
        }
        let mut public = Vec::new();
        let mut blocked = None;
        for address in found {
            match internal(address.ip()) {
                None => public.push(address),
                Some(what) => {
                    blocked = Some(Blocked {
                        host: host.to_owned(),
                        address: address.ip(),
                        what,
                    });
                }
            }
        }
        match blocked {
            Some(blocked) if public.is_empty() => Err(blocked.into()),
            _ => Ok(public),
        }
    }
}
