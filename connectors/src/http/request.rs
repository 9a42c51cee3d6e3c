//! From a call to a request. Every failure here happens before anything is sent.
//!
//! Owns headers, body and key pass-through. It must not know answers.

use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};

use operators_kernel::{Call, SecretStore};

use crate::hidden::Hidden;
use crate::http::headers::HeaderSource;
use crate::http::path::Base;
use crate::http::sender::Request;
use crate::http::tool::Outline;

/// How the vendor's logs see us.
const AGENT: &str = concat!("operators/", env!("CARGO_PKG_VERSION"));

/// A request that is ready to go, and what must not be quoted from its answer.
pub(crate) struct Prepared {
    pub(crate) request: Request,
    pub(crate) hidden: Hidden,
}

/// Builds the request of a call. The error is a sentence without any value.
pub(crate) async fn prepare(
    base: &Base,
    sent: &Outline,
    call: &Call,
    secrets: &dyn SecretStore,
) -> Result<Prepared, String> {
    let mut hidden = Hidden::of(call, &sent.secret_args);
    let (path, query) = sent.path.render(call)?;
    let query = sent.query.render(query, call)?;
    let url = base.join(&path, query.as_deref())?;
    if sent.secret_path {
        hidden.add_path(&url);
    }
    let headers = headers(sent, call, secrets, &mut hidden).await?;
    let mut request = Request::new(sent.method.clone(), url);
    request.headers = headers;
    request.body = sent.body.render(call)?.unwrap_or_default().into();
    Ok(Prepared { request, hidden })
}

async fn headers(
    sent: &Outline,
    call: &Call,
    secrets: &dyn SecretStore,
    hidden: &mut Hidden,
) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    if let Some(media) = sent.body.media() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    }
    for (key, source) in &sent.headers {
        let name = key.name()?;
        let value = match source {
            HeaderSource::Template(template) => header_value(&template.render_plain(call)?)
                .map_err(|problem| format!("the header `{name}` {problem}"))?,
            HeaderSource::Secret(secret_name) => {
                let secret = secrets
                    .secret(&call.tenant, secret_name)
                    .await
                    .map_err(|error| error.to_string())?;
                hidden.add(secret.reveal());
                let mut value = header_value(secret.reveal())
                    .map_err(|problem| format!("the secret `{secret_name}` {problem}"))?;
                value.set_sensitive(true);
                value
            }
        };
        headers.insert(name, value);
    }
    if let Some(name) = &sent.key_header {
        let value = header_value(&call.downstream_key)
            .map_err(|problem| format!("the downstream key {problem}"))?;
        headers.insert(name.clone(), value);
    }
    Ok(headers)
}

/// A control character would end the header and start another one. Other text goes out as UTF-8.
pub(crate) fn header_value(text: &str) -> Result<HeaderValue, &'static str> {
    if text.contains(char::is_control) {
        return Err("would hold a control character");
    }
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| "cannot be sent as a header")
}
