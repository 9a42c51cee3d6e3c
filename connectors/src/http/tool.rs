//! One HTTP tool, compiled from its configuration: everything that can be wrong is found here.
//!
//! Owns which methods, paths and headers a configuration may ask for. It must not know a call.

use std::collections::BTreeMap;
use std::fmt;

use reqwest::Method;
use reqwest::header::HeaderName;

use crate::config::{BodySource, ConnectorConfig, EffectWord, HeaderText, ToolConfig};
use crate::http::path::PathTemplate;
use crate::registry::{Place, RegistryError, effect_word};
use crate::template::{Template, overlap, split};

/// The header that carries the downstream key, as the IETF draft and most vendors call it.
const KEY_HEADER_DEFAULT: &str = "Idempotency-Key";

/// What makes a header's value a credential.
const SECRET_PREFIX: &str = "secret:";

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

/// How to make a request of a call.
#[derive(Debug)]
pub(crate) struct HttpTool {
    pub(crate) method: Method,
    pub(crate) path: PathTemplate,
    pub(crate) headers: BTreeMap<HeaderKey, HeaderSource>,
    pub(crate) body: BodySource,
    /// Where the downstream key goes; only for a vendor that honours it.
    pub(crate) key_header: Option<HeaderName>,
    /// Arguments that never show, as paths of object keys.
    pub(crate) secret_args: Vec<Vec<String>>,
    /// What messages call the request: method and path template. Not the path itself, which may
    /// hold what the kernel keeps secret.
    pub(crate) label: String,
}

/// A header name that sorts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HeaderKey(String);

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

impl HttpTool {
    pub(crate) fn compile(
        config: &ConnectorConfig,
        tool: &ToolConfig,
        connector_place: &Place,
        place: &Place,
    ) -> Result<Self, RegistryError> {
        let effect = effect_word(config, tool);
        if effect == EffectWord::Probeable {
            return Err(place.refuse(
                "effect",
                "an http tool cannot be probed in this version; use `keyed` if the vendor honours \
                 idempotency keys, otherwise `opaque`",
            ));
        }
        let method = method(tool, effect).map_err(|problem| place.refuse("method", problem))?;
        let body = body(tool, &method).map_err(|problem| place.refuse("body", problem))?;
        let Some(path_text) = &tool.path else {
            return Err(place.refuse(
                "path",
                "is missing; write `path = \"/orders/{args.order}\"`",
            ));
        };
        let path =
            PathTemplate::parse(path_text).map_err(|problem| place.refuse("path", problem))?;
        if let Some(secret) = path.arguments().find(|argument| {
            tool.secret_args
                .iter()
                .any(|secret| overlap(secret, argument))
        }) {
            let problem = format!(
                "`{{args.{secret}}}` is a secret argument, and addresses end up in logs; \
                 send it in the body or in a header"
            );
            return Err(place.refuse("path", problem));
        }
        let mut headers = compile_headers(&config.headers, connector_place)?;
        headers.extend(compile_headers(&tool.headers, place)?);
        let key_header = key_header(tool, effect, &headers, place)?;
        Ok(Self {
            label: format!("`{method} {}`", path.label()),
            method,
            path,
            headers,
            body,
            key_header,
            secret_args: tool.secret_args.iter().map(|path| split(path)).collect(),
        })
    }
}

fn method(tool: &ToolConfig, effect: EffectWord) -> Result<Method, String> {
    let Some(text) = &tool.method else {
        return Ok(match effect {
            EffectWord::Read => Method::GET,
            _ => Method::POST,
        });
    };
    match text.as_str() {
        "GET" => Ok(Method::GET),
        "HEAD" => Ok(Method::HEAD),
        "POST" => Ok(Method::POST),
        "PUT" => Ok(Method::PUT),
        "PATCH" => Ok(Method::PATCH),
        "DELETE" => Ok(Method::DELETE),
        _ => Err(format!(
            "unknown method `{}`; there are `GET`, `HEAD`, `POST`, `PUT`, `PATCH` and `DELETE`",
            text.escape_debug()
        )),
    }
}

fn body(tool: &ToolConfig, method: &Method) -> Result<BodySource, String> {
    let bodiless = matches!(*method, Method::GET | Method::HEAD);
    match tool.body {
        Some(BodySource::Args) if bodiless => Err(format!(
            "`{method}` has no body; name the arguments in `path`, or use `POST`"
        )),
        Some(body) => Ok(body),
        None if bodiless || *method == Method::DELETE => Ok(BodySource::None),
        None => Ok(BodySource::Args),
    }
}

fn key_header(
    tool: &ToolConfig,
    effect: EffectWord,
    headers: &BTreeMap<HeaderKey, HeaderSource>,
    place: &Place,
) -> Result<Option<HeaderName>, RegistryError> {
    if effect != EffectWord::Keyed {
        return match tool.key_header {
            None => Ok(None),
            Some(_) => Err(place.refuse(
                "key_header",
                "only a keyed tool sends a key; set `effect = \"keyed\"` or remove it",
            )),
        };
    }
    let text = tool.key_header.as_deref().unwrap_or(KEY_HEADER_DEFAULT);
    let name = header_name(text).map_err(|problem| place.refuse("key_header", problem))?;
    // Two keys would leave it to the vendor which one counts.
    if headers.contains_key(&HeaderKey(name.as_str().to_owned())) {
        let problem = format!("`{name}` carries the downstream key of this tool; remove it");
        return Err(place.refuse("headers", problem));
    }
    Ok(Some(name))
}

fn compile_headers(
    headers: &BTreeMap<String, HeaderText>,
    place: &Place,
) -> Result<BTreeMap<HeaderKey, HeaderSource>, RegistryError> {
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

fn header_name(text: &str) -> Result<HeaderName, String> {
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
    if let Some(name) = text.strip_prefix(SECRET_PREFIX) {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || !name.chars().all(allowed) {
            return Err("a secret's name is made of letters, digits, `.`, `_` and `-`".to_owned());
        }
        return Ok(HeaderSource::Secret(name.to_owned()));
    }
    if text.contains(SECRET_PREFIX) {
        return Err(
            "a value is either a template or exactly `secret:NAME`; put the whole value, a word \
             like `Bearer` included, into the secret"
                .to_owned(),
        );
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
