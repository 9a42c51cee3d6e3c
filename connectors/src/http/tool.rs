//! One HTTP tool, compiled from its configuration: everything that can be wrong is found here.
//!
//! Owns which methods and paths a configuration may ask for, and what goes with an effect class.
//! It must not know a call.

use hyper::Method;
use hyper::header::HeaderName;

use crate::config::{ConnectorConfig, EffectWord, ToolConfig};
use crate::http::body::Body;
use crate::http::headers::{self, HeaderKey, Headers};
use crate::http::path::PathTemplate;
use crate::http::probe::Probe;
use crate::http::query::Query;
use crate::http::reading::Reading;
use crate::registry::{Place, RegistryError, effect_word};
use crate::template::overlap;

/// The header that carries the downstream key, as the IETF draft and most vendors call it.
const KEY_HEADER_DEFAULT: &str = "Idempotency-Key";

/// A tool: what is sent, how the answer is read, and how to ask afterwards.
#[derive(Debug)]
pub(crate) struct HttpTool {
    pub(crate) sent: Outline,
    pub(crate) reading: Reading,
    pub(crate) probe: Option<Probe>,
    /// Whether its requests may ride on a connection that was used before.
    pub(crate) pooled: bool,
}

/// How to make a request of a call.
#[derive(Debug)]
pub(crate) struct Outline {
    pub(crate) method: Method,
    pub(crate) path: PathTemplate,
    pub(crate) query: Query,
    pub(crate) headers: Headers,
    pub(crate) body: Body,
    /// Where the downstream key goes; only for a vendor that honours it.
    pub(crate) key_header: Option<HeaderName>,
    /// Arguments that never show, as paths of object keys.
    pub(crate) secret_args: Vec<String>,
    /// Whether path and query are a credential.
    pub(crate) secret_path: bool,
    /// What messages call the request: method and path template. Not the path itself, which may
    /// hold what the kernel keeps secret.
    pub(crate) label: String,
}

impl HttpTool {
    pub(crate) fn compile(
        config: &ConnectorConfig,
        tool: &ToolConfig,
        connector_place: &Place,
        place: &Place,
    ) -> Result<Self, RegistryError> {
        let effect = effect_word(config, tool);
        let shared = headers::compile(&config.headers, connector_place)?;
        let probe = probe(config, tool, effect, &shared, place)?;
        let method = method(tool, effect).map_err(|problem| place.refuse("method", problem))?;
        let path = path(tool.path.as_deref(), &tool.secret_args, place)?;
        let query = query(tool, place)?;
        let mut headers = shared;
        headers.extend(headers::compile(&tool.headers, place)?);
        let elsewhere = path.arguments().chain(query.arguments());
        let elsewhere = elsewhere.chain(headers::arguments(&headers));
        let body = Body::compile(tool, &method, elsewhere)
            .map_err(|(field, problem)| place.refuse(field, problem))?;
        let key_header = key_header(tool, effect, &headers, place)?;
        Ok(Self {
            sent: Outline {
                label: if tool.secret_path {
                    format!("`{method} /…`")
                } else {
                    format!("`{method} {}`", path.label())
                },
                method,
                path,
                query,
                headers,
                body,
                key_header,
                secret_args: tool.secret_args.clone(),
                secret_path: tool.secret_path,
            },
            reading: Reading::compile(config, tool, place)?,
            probe,
            // INVARIANT (sent-once): a request whose doubt would hold an entity never starts on a
            // connection that the vendor may be closing at that moment.
            pooled: !matches!(effect, EffectWord::Opaque | EffectWord::Probeable),
        })
    }
}

fn probe(
    config: &ConnectorConfig,
    tool: &ToolConfig,
    effect: EffectWord,
    shared: &Headers,
    place: &Place,
) -> Result<Option<Probe>, RegistryError> {
    match (&tool.probe, effect == EffectWord::Probeable) {
        (None, false) => Ok(None),
        (Some(probe), true) => {
            Probe::compile(probe, config, tool, shared, &place.inside("probe")).map(Some)
        }
        (None, true) => Err(place.refuse(
            "effect",
            "a probeable tool needs a `probe` that asks the vendor whether it happened; without \
             one use `keyed` if the vendor honours idempotency keys, otherwise `opaque`",
        )),
        (Some(_), false) => Err(place.refuse(
            "probe",
            "only a probeable tool is asked about; set `effect = \"probeable\"` or remove it",
        )),
    }
}

/// Parses the template of a path, which must not show a secret argument.
pub(crate) fn path(
    text: Option<&str>,
    secret_args: &[String],
    place: &Place,
) -> Result<PathTemplate, RegistryError> {
    let Some(text) = text else {
        return Err(place.refuse(
            "path",
            "is missing; write `path = \"/orders/{args.order}\"`",
        ));
    };
    let path = PathTemplate::parse(text).map_err(|problem| place.refuse("path", problem))?;
    refuse_shown(path.arguments(), secret_args).map_err(|problem| place.refuse("path", problem))?;
    Ok(path)
}

/// Compiles a `query` table, which must not show a secret argument either.
fn query(tool: &ToolConfig, place: &Place) -> Result<Query, RegistryError> {
    let query = Query::compile(&tool.query).map_err(|(name, problem)| {
        place.refuse(&format!("query.\"{}\"", name.escape_debug()), problem)
    })?;
    refuse_shown(query.arguments(), &tool.secret_args)
        .map_err(|problem| place.refuse("query", problem))?;
    Ok(query)
}

fn refuse_shown(
    mut arguments: impl Iterator<Item = String>,
    secret_args: &[String],
) -> Result<(), String> {
    let shows = |argument: &String| secret_args.iter().any(|secret| overlap(secret, argument));
    match arguments.find(shows) {
        None => Ok(()),
        Some(secret) => Err(format!(
            "`{{args.{secret}}}` is a secret argument, and addresses end up in logs; \
             send it in the body or in a header"
        )),
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

fn key_header(
    tool: &ToolConfig,
    effect: EffectWord,
    headers: &Headers,
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
    let name = headers::header_name(text).map_err(|problem| place.refuse("key_header", problem))?;
    // Two keys would leave it to the vendor which one counts.
    if headers.contains_key(&HeaderKey(name.as_str().to_owned())) {
        let problem = format!("`{name}` carries the downstream key of this tool; remove it");
        return Err(place.refuse("headers", problem));
    }
    Ok(Some(name))
}
