//! Headers as a configuration writes them: templates, or the names of secrets.
//!
//! Owns which headers may be set at all and what their values are made of.

use std::collections::BTreeMap;
use std::fmt;

use hyper::header::HeaderName;

use crate::config::HeaderText;
use crate::registry::{Place, RegistryError};
use crate::secrets::secret_name;
use crate::template::Template;

/// Headers that frame or route a request; the client writes them.
const HEADERS_OF_THE_CLIENT: [&str; 11] = [
    "accept-encoding", // an encoded answer would be unreadable
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "proxy-authorization",
];

/// Compiled headers, by name.
pub(crate) type Headers = BTreeMap<HeaderKey, HeaderSource>;

/// A header name that sorts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HeaderKey(pub(crate) String);

impl HeaderKey {
    /// The name for the wire.
    pub(crate) fn name(&self) -> Result<HeaderName, String> {
        HeaderName::from_bytes(self.0.as_bytes()).map_err(|error| error.to_string())
    }
}

/// Where a header's value comes from.
#[derive(Clone)]
pub(crate) enum HeaderSource {
    Template(Template),
    Secret(String),
}

impl fmt::Debug for HeaderSource {
    /// Leaves the text out: people do put credentials here.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Template(_) => f.write_str("Template(…)"),
            Self::Secret(name) => f.debug_tuple("Secret").field(name).finish(),
        }
    }
}

/// Compiles the `headers` table of that place.
pub(crate) fn compile(
    headers: &BTreeMap<String, HeaderText>,
    place: &Place,
) -> Result<Headers, RegistryError> {
    let mut compiled = BTreeMap::new();
    for (text, value) in headers {
        let field = format!("headers.\"{}\"", text.escape_debug());
        let name = header_name(text).map_err(|problem| place.refuse(&field, problem))?;
        let source =
            header_source(value.reveal()).map_err(|problem| place.refuse(&field, problem))?;
        let key = HeaderKey(name.as_str().to_owned());
        if compiled.insert(key, source).is_some() {
            return Err(place.refuse(&field, "stands here twice; header names ignore case"));
        }
    }
    Ok(compiled)
}

/// The arguments that headers take, as dotted paths.
pub(crate) fn arguments(headers: &Headers) -> impl Iterator<Item = String> {
    let templates = headers.values().filter_map(|source| match source {
        HeaderSource::Template(template) => Some(template),
        HeaderSource::Secret(_) => None,
    });
    templates.flat_map(Template::arguments)
}

/// Reads a name that a configuration may set.
pub(crate) fn header_name(text: &str) -> Result<HeaderName, String> {
    let name = HeaderName::from_bytes(text.as_bytes())
        .map_err(|_| format!("`{}` is not a header name", text.escape_debug()))?;
    if HEADERS_OF_THE_CLIENT.contains(&name.as_str()) {
        return Err(format!(
            "`{name}` is written by the client itself; remove it"
        ));
    }
    Ok(name)
}

/// Messages here never quote the value: it may be a credential in the wrong place.
fn header_source(text: &str) -> Result<HeaderSource, String> {
    if let Some(name) = secret_name(text)? {
        return Ok(HeaderSource::Secret(name));
    }
    let template = Template::parse(text)?;
    if template
        .literals()
        .any(|literal| literal.contains(char::is_control))
    {
        return Err("has a control character".to_owned());
    }
    Ok(HeaderSource::Template(template))
}
