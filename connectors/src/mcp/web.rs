//! A server behind an address: streamable HTTP, one request per message, nothing sent twice.
//!
//! Owns the requests and the bound on answers. The addresses it may dial are guarded as those of
//! the `http` connector are. The library's own client reads answers of any size and follows
//! redirects, so it is not used.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder, Response};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::NeverRetry;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use operators_kernel::{SecretStore, TenantId};

use crate::config::ConnectorConfig;
use crate::hidden::Hidden;
use crate::http::address::SystemLookup;
use crate::http::client::{ClientSettings, Clients};
use crate::http::headers::{self, HeaderSource};
use crate::http::path::Base;
use crate::registry::{Place, RegistryError};

/// The largest answer taken from a server, all events of one request together.
const ANSWER_BYTES_MAX: usize = 2 * 1024 * 1024;

/// How long finding and greeting the server may take; half of it for the connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(20);

const SESSION_HEADER: &str = "mcp-session-id";
const LAST_EVENT_HEADER: &str = "last-event-id";

/// How to reach a server.
#[derive(Debug)]
pub(crate) struct Web {
    url: String,
    https: bool,
    allow_private: bool,
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
        Ok(Self {
            url: url.to_owned(),
            https: base.is_https(),
            allow_private,
            headers,
        })
    }

    /// What a client speaks through. Nothing is sent yet.
    pub(crate) async fn transport(
        &self,
        tenant: &TenantId,
        secrets: &dyn SecretStore,
        hidden: &mut Hidden,
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
        let clients = Clients::default();
        let client = clients.get(false, || ClientSettings {
            https: self.https,
            authorities: None,
            allow_private: self.allow_private,
            timeout_min: CONNECT_WITHIN,
            lookup: Arc::new(SystemLookup),
        })?;
        // A session that the server forgot is not made anew behind our back: that would send the
        // call again. Nor is a stream that broke off taken up again.
        let mut config = StreamableHttpClientTransportConfig::with_uri(self.url.as_str())
            .custom_headers(headers)
            .max_sse_event_size(ANSWER_BYTES_MAX)
            .reinit_on_expired_session(false);
        config.retry_config = Arc::new(NeverRetry::default());
        let client = Bounded(client.clone());
        Ok(StreamableHttpClientTransport::with_client(client, config))
    }
}

/// Why a message was not answered, and whether the server surely did not take it.
#[derive(Debug)]
pub(crate) struct WebError {
    told: String,
    refused: bool,
}

impl fmt::Display for WebError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told)
    }
}

impl Error for WebError {}

/// What a refusal says, if the error is one: nothing was done then.
pub(crate) fn refused(error: &(dyn Error + 'static)) -> Option<String> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(StreamableHttpError::Client(error)) =
            error.downcast_ref::<StreamableHttpError<WebError>>()
        {
            return error.refused.then(|| error.told.clone());
        }
        cause = error.source();
    }
    None
}

/// A client whose answers are bounded.
#[derive(Debug, Clone)]
pub(crate) struct Bounded(Client);

type Fault = StreamableHttpError<WebError>;

impl Bounded {
    async fn send(
        request: RequestBuilder,
        session: Option<Arc<str>>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Response, Fault> {
        let mut request = request.header(ACCEPT, "application/json, text/event-stream");
        if let Some(session) = session {
            request = request.header(SESSION_HEADER, session.as_ref());
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let sent = request.send().await;
        sent.map_err(|error| {
            // The innermost cause: the library's own words around it name the address.
            let mut cause: &dyn Error = &error;
            while let Some(source) = cause.source() {
                cause = source;
            }
            StreamableHttpError::Client(WebError {
                refused: error.is_connect(),
                told: format!("no answer: {cause}"),
            })
        })
    }

    fn judged(answer: Response) -> Result<Response, Fault> {
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        Err(StreamableHttpError::Client(WebError {
            // 408 is what a proxy says about a request it passed on.
            refused: status.is_client_error() && status.as_u16() != 408,
            told: format!("the server answered {}", status.as_u16()),
        }))
    }
}

fn events(answer: Response) -> BoxStream<'static, Result<Sse, SseError>> {
    let mut taken = 0;
    let bounded = answer.bytes_stream().map(move |chunk| {
        let chunk = chunk.map_err(std::io::Error::other)?;
        taken += chunk.len();
        if taken > ANSWER_BYTES_MAX {
            let problem = format!("an answer of more than {ANSWER_BYTES_MAX} bytes");
            return Err(std::io::Error::other(problem));
        }
        Ok(chunk)
    });
    SseStream::from_bytes_stream(bounded).boxed()
}

async fn whole(mut answer: Response) -> Result<Vec<u8>, Fault> {
    let mut body = Vec::new();
    let broken = |told: String| {
        StreamableHttpError::Client(WebError {
            told,
            refused: false,
        })
    };
    while let Some(chunk) = answer
        .chunk()
        .await
        .map_err(|error| broken(format!("the answer broke off: {error}")))?
    {
        if body.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(broken(format!(
                "an answer of more than {ANSWER_BYTES_MAX} bytes"
            )));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

impl StreamableHttpClient for Bounded {
    type Error = WebError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Fault> {
        let request = self.0.post(uri.as_ref()).json(&message);
        let answer = Self::judged(Self::send(request, session_id, custom_headers).await?)?;
        if matches!(answer.status().as_u16(), 202 | 204) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let header = |name: &str| {
            let value = answer.headers().get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        let session = header(SESSION_HEADER);
        let media = header(CONTENT_TYPE.as_str()).unwrap_or_default();
        if media.starts_with("text/event-stream") {
            return Ok(StreamableHttpPostResponse::Sse(events(answer), session));
        }
        if media.starts_with("application/json") {
            let message = serde_json::from_slice(&whole(answer).await?)?;
            return Ok(StreamableHttpPostResponse::Json(message, session));
        }
        Err(StreamableHttpError::UnexpectedContentType(Some(media)))
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Fault> {
        let request = self.0.delete(uri.as_ref());
        // Whether the server minds is its own business.
        Self::send(request, Some(session_id), custom_headers)
            .await
            .map(drop)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Fault> {
        let mut request = self.0.get(uri.as_ref());
        if let Some(last) = last_event_id {
            request = request.header(LAST_EVENT_HEADER, last);
        }
        let answer = Self::send(request, session_id, custom_headers).await?;
        if answer.status().as_u16() == 405 {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        Ok(events(Self::judged(answer)?))
    }
}
