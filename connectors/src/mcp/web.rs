//! A server behind an address: how it is reached, by the configuration.
//!
//! Owns the address and the headers; `requests` makes the requests. The addresses it may dial are
//! guarded as those of the `http` connector are.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::NeverRetry;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use url::Url;

use operators_kernel::{SecretStore, TenantId};

use crate::config::ConnectorConfig;
use crate::hidden::Hidden;
use crate::http::address::{Guard, SystemLookup};
use crate::http::dial::Dialer;
use crate::http::headers::{self, HeaderSource};
use crate::http::path::Base;
use crate::http::sender::Sender;
use crate::mcp::fault::Fault;
use crate::mcp::requests::{ANSWER_BYTES_MAX, Bounded};
use crate::registry::{Place, RegistryError};

/// How long finding and greeting the server may take; half of it for the connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(20);

/// How to reach a server.
#[derive(Debug)]
pub(crate) struct Web {
    url: Url,
    place: String,
    sender: Sender,
    headers: Vec<(HeaderName, HeaderSource)>,
}

impl Web {
    pub(crate) fn compile(
        url: &str,
        config: &ConnectorConfig,
        place: &Place,
    ) -> Result<Self, RegistryError> {
        for (field, stands) in [
            ("dir", config.dir.is_some()),
            ("env", config.env.is_some()),
            ("variables", !config.variables.is_empty()),
        ] {
            if stands {
                return Err(place.refuse(field, "belongs to a server that is a program; remove it"));
            }
        }
        let allow_private = config.allow_private_addresses.unwrap_or(false);
        let base =
            Base::parse(url, allow_private).map_err(|problem| place.refuse("url", problem))?;
        let mut headers = Vec::new();
        for (key, source) in headers::compile(&config.headers, place)? {
            let name = key
                .name()
                .map_err(|problem| place.refuse("headers", problem))?;
            if let HeaderSource::Template(template) = &source
                && template.as_literal().is_none()
            {
                let problem =
                    "is sent with every message of a connection, so it has no placeholders";
                return Err(place.refuse(&format!("headers.\"{name}\""), problem));
            }
            headers.push((name, source));
        }
        let lookup = Arc::new(SystemLookup);
        let guard = Guard {
            lookup,
            allow_private,
        };
        Ok(Self {
            url: base.url().clone(),
            place: base.origin(),
            sender: Sender::new(Dialer::new(guard, None, CONNECT_WITHIN)),
            headers,
        })
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// What a client speaks through. Nothing is sent yet. The first fault is left in `first`.
    pub(crate) async fn transport(
        &self,
        tenant: &TenantId,
        secrets: &dyn SecretStore,
        hidden: &mut Hidden,
        first: &Arc<OnceLock<Fault>>,
    ) -> Result<StreamableHttpClientTransport<Bounded>, String> {
        let mut headers = HashMap::new();
        for (name, source) in &self.headers {
            let (text, is_secret) = match source {
                HeaderSource::Template(template) => {
                    (template.as_literal().unwrap_or_default().to_owned(), false)
                }
                HeaderSource::Secret(secret_name) => {
                    let secret = secrets.secret(tenant, secret_name).await;
                    let secret = secret.map_err(|error| error.to_string())?;
                    hidden.add(secret.reveal());
                    (secret.reveal().to_owned(), true)
                }
            };
            let value = HeaderValue::from_str(&text);
            let mut value = value.map_err(|_| format!("the header `{name}` cannot be sent"))?;
            value.set_sensitive(is_secret);
            headers.insert(name.clone(), value);
        }
        // A session that the server forgot is not made anew behind our back: that would send the
        // call again without its permit. Where a stream breaks off whose events have ids, the rest of
        // it is asked for with a GET, soon, or after the `retry` with which the server closed it;
        // that sends no call again, and goes on until the call's deadline. No policy of ours does
        // more.
        let mut config = StreamableHttpClientTransportConfig::with_uri(self.place.as_str())
            .custom_headers(headers)
            .max_sse_event_size(ANSWER_BYTES_MAX)
            .reinit_on_expired_session(false);
        config.retry_config = Arc::new(NeverRetry::default());
        let client = Bounded::new(&self.url, &self.place, &self.sender, first);
        Ok(StreamableHttpClientTransport::with_client(client, config))
    }
}
