//! OAuth 2 client credentials (RFC 6749, 4.4): a token from a token server, kept while it is good.
//!
//! Owns the tokens of a connector, one per tenant. A token is fetched before the request that
//! needs it is sent, by one caller at a time; the others wait for that one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};
use tokio::time::Instant;
use url::Url;

use operators_kernel::{Secret, SendPermit, TenantId};

use crate::config::{ClientAuth, Oauth2Config};
use crate::hidden::Hidden;
use crate::http::answer;
use crate::http::auth::Entry;
use crate::http::body::form;
use crate::http::outcome::{no_answer, quoted};
use crate::http::path::{Base, escape};
use crate::http::request::header_value;
use crate::http::sender::{Request, Terms};
use crate::registry::{Place, RegistryError};
use crate::secrets::SecretText;
use crate::size::ANSWER_DEFAULT;

/// What messages call the request for a token.
const LABEL: &str = "the token server";

/// For how long a token is taken to be good when the server does not say.
const LIFE_DEFAULT: Duration = Duration::from_mins(5);

/// For how long at most, so that a slip of the server's pen does not last.
const LIFE_MAX: Duration = Duration::from_hours(24);

/// How long before its end a token is not used any more, or a fifth of its life if that is less.
const MARGIN: Duration = Duration::from_mins(1);

/// Who asks whom for tokens.
pub(crate) struct OAuth2 {
    token_url: Url,
    client_id: SecretText,
    client_secret: SecretText,
    scope: Option<String>,
    audience: Option<String>,
    client_auth: ClientAuth,
    /// A std lock: it is held for a look-up, never across an await.
    tokens: Mutex<BTreeMap<TenantId, Slot>>,
}

/// The place of one tenant's token. A lock that may be held across the fetch: those who come
/// meanwhile wait for it and find the token there.
type Slot = Arc<tokio::sync::Mutex<Option<Token>>>;

struct Token {
    text: Secret,
    good_until: Instant,
}

impl fmt::Debug for OAuth2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth2")
            .field("token_url", &self.token_url.as_str())
            .field("client_secret", &self.client_secret)
            .finish_non_exhaustive()
    }
}

impl OAuth2 {
    pub(crate) fn compile(
        config: &Oauth2Config,
        allow_private: bool,
        place: &Place,
    ) -> Result<Self, RegistryError> {
        let refuse = |field: &str, problem: String| place.refuse(field, problem);
        Base::parse(&config.token_url, allow_private)
            .map_err(|problem| refuse("token_url", problem))?;
        let token_url = Url::parse(&config.token_url)
            .map_err(|error| refuse("token_url", error.to_string()))?;
        if token_url.scheme() != "https" && !allow_private {
            let problem = "sends a secret, so it must start with `https://`".to_owned();
            return Err(refuse("token_url", problem));
        }
        Ok(Self {
            token_url,
            client_id: SecretText::compile(&config.client_id)
                .map_err(|problem| refuse("client_id", problem))?,
            client_secret: SecretText::compile_credential(&config.client_secret)
                .map_err(|problem| refuse("client_secret", problem))?,
            scope: config.scope.clone(),
            audience: config.audience.clone(),
            client_auth: config.client_auth.unwrap_or_default(),
            tokens: Mutex::default(),
        })
    }

    /// A token that is good now.
    pub(crate) async fn token(
        &self,
        entry: &Entry<'_>,
        hidden: &mut Hidden,
    ) -> Result<String, String> {
        let slot = self.slot(entry.tenant);
        let looking = async {
            let mut kept = slot.lock().await;
            match kept.as_ref() {
                Some(token) if Instant::now() < token.good_until => {
                    hidden.add(token.text.reveal());
                    Ok(token.text.reveal().to_owned())
                }
                _ => {
                    let token = self.fetch(entry, hidden).await?;
                    hidden.add(token.text.reveal());
                    let text = token.text.reveal().to_owned();
                    *kept = Some(token);
                    Ok(text)
                }
            }
        };
        match tokio::time::timeout(entry.deadline, looking).await {
            Ok(found) => found,
            Err(_elapsed) => Err(format!("{LABEL} gave no token in time")),
        }
    }

    /// Forgets a token that the vendor did not take. One that is being fetched is newer.
    pub(crate) fn drop_token(&self, tenant: &TenantId) {
        if let Ok(mut kept) = self.slot(tenant).try_lock() {
            *kept = None;
        }
    }

    fn slot(&self, tenant: &TenantId) -> Slot {
        // A panic under this lock leaves a map that is still whole.
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(tokens.entry(tenant.clone()).or_default())
    }

    async fn fetch(&self, entry: &Entry<'_>, hidden: &mut Hidden) -> Result<Token, String> {
        let asked = Instant::now();
        let request = self.request(entry, hidden).await?;
        // A token has no effect; what needs it asks before it is sent.
        let terms = Terms {
            permit: SendPermit::always(),
            within: Some(entry.deadline),
            pooled: true,
        };
        let sent = entry.sender.send(request, terms).await;
        let mut answer = sent.map_err(|unanswered| no_answer(&unanswered, LABEL, hidden))?;
        let status = answer.status().as_u16();
        let body = answer::read(&mut answer, ANSWER_DEFAULT)
            .await
            .map_err(|problem| {
                format!("{LABEL} answered {status}, but the body cannot be read: {problem}")
            })?;
        if status != 200 {
            return Err(quoted(LABEL, status, &body, hidden));
        }
        let said: Value = serde_json::from_slice(&body)
            .map_err(|_| format!("{LABEL} answered 200 with something that is not JSON"))?;
        let Some(text) = said.get("access_token").and_then(Value::as_str) else {
            return Err(format!("{LABEL} answered 200 without an `access_token`"));
        };
        let kind = said.get("token_type").and_then(Value::as_str);
        if kind.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
            return Err(format!("{LABEL} gave a token that is not a bearer token"));
        }
        let life = life(said.get("expires_in"));
        Ok(Token {
            text: Secret::new(text),
            good_until: asked + life.saturating_sub(MARGIN.min(life / 5)),
        })
    }

    async fn request(&self, entry: &Entry<'_>, hidden: &mut Hidden) -> Result<Request, String> {
        let (tenant, secrets) = (entry.tenant, entry.secrets);
        let id = self.client_id.get(tenant, secrets, hidden).await?;
        let secret = self.client_secret.get(tenant, secrets, hidden).await?;
        let mut fields = json!({"grant_type": "client_credentials"});
        let mut set = |name: &str, value: &str| {
            if let Value::Object(fields) = &mut fields {
                fields.insert(name.to_owned(), Value::String(value.to_owned()));
            }
        };
        if let Some(scope) = &self.scope {
            set("scope", scope);
        }
        if let Some(audience) = &self.audience {
            set("audience", audience);
        }
        let mut request = Request::new(Method::POST, self.token_url.clone());
        let headers = &mut request.headers;
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded"),
        );
        match self.client_auth {
            ClientAuth::Header => {
                let pair = STANDARD.encode(format!("{}:{}", escape(&id), escape(&secret)));
                hidden.add(&pair);
                let mut value = header_value(&format!("Basic {pair}"))?;
                value.set_sensitive(true);
                headers.insert(AUTHORIZATION, value);
            }
            ClientAuth::Body => {
                hidden.add(&escape(&secret));
                set("client_id", &id);
                set("client_secret", &secret);
            }
        }
        request.body = form(&fields)?.into();
        Ok(request)
    }
}

/// `expires_in` is a number of seconds; some servers write it as a text.
fn life(said: Option<&Value>) -> Duration {
    let seconds = match said {
        Some(Value::Number(number)) => number.as_u64(),
        Some(Value::String(text)) => text.parse().ok(),
        _ => None,
    };
    seconds
        .map_or(LIFE_DEFAULT, Duration::from_secs)
        .min(LIFE_MAX)
}
