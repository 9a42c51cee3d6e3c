//! How a request is let in: what is added to it right before it is sent.
//!
//! Owns which ways there are. Each failure here happens before the request leaves, so nothing
//! happened: a credential that cannot be had is a definite failure.

mod oauth2;
mod sigv4;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};

use operators_kernel::{SecretStore, TenantId};

use crate::config::{AuthConfig, HeaderText};
use crate::hidden::Hidden;
use crate::http::auth::oauth2::OAuth2;
use crate::http::headers::header_name;
use crate::http::request::header_value;
use crate::http::sender::{Request, Sender};
use crate::registry::{Place, RegistryError};
use crate::secrets::SecretText;

pub(crate) use sigv4::SigV4;

/// A compiled way in.
#[derive(Debug)]
pub(crate) enum Auth {
    Bearer(SecretText),
    Basic(SecretText, SecretText),
    Header(HeaderName, SecretText),
    OAuth2(OAuth2),
    SigV4(SigV4),
}

/// What letting one request in takes.
pub(crate) struct Entry<'a> {
    pub(crate) tenant: &'a TenantId,
    pub(crate) secrets: &'a dyn SecretStore,
    /// What the connector sends with, for those who must ask somebody first.
    pub(crate) sender: &'a Sender,
    /// How long asking may take.
    pub(crate) deadline: Duration,
}

impl Auth {
    pub(crate) fn compile(
        config: &AuthConfig,
        allow_private: bool,
        place: &Place,
    ) -> Result<Self, RegistryError> {
        let credential = |field: &str, text: &HeaderText| {
            let compiled = SecretText::compile_credential(text);
            compiled.map_err(|problem| place.refuse(field, problem))
        };
        let ways = (
            &config.bearer,
            &config.basic,
            (&config.header, &config.value),
            &config.oauth2,
            &config.aws_sigv4,
        );
        match ways {
            (Some(token), None, (None, None), None, None) => {
                Ok(Self::Bearer(credential("bearer", token)?))
            }
            (None, Some(basic), (None, None), None, None) => {
                let user = SecretText::compile(&basic.user)
                    .map_err(|problem| place.refuse("basic.user", problem))?;
                // Some vendors take a key as the user and no password at all.
                let password = if basic.password.reveal().is_empty() {
                    SecretText::Plain(String::new())
                } else {
                    credential("basic.password", &basic.password)?
                };
                Ok(Self::Basic(user, password))
            }
            (None, None, (Some(name), Some(value)), None, None) => {
                let name = header_name(name).map_err(|problem| place.refuse("header", problem))?;
                Ok(Self::Header(name, credential("value", value)?))
            }
            (None, None, (None, None), Some(oauth2), None) => {
                let place = place.inside("oauth2");
                OAuth2::compile(oauth2, allow_private, &place).map(Self::OAuth2)
            }
            (None, None, (None, None), None, Some(sigv4)) => {
                SigV4::compile(sigv4, &place.inside("aws_sigv4")).map(Self::SigV4)
            }
            _ => Err(place.whole(
                "needs exactly one of `bearer`, `basic`, `header` with `value`, `oauth2` and \
                 `aws_sigv4`",
            )),
        }
    }

    /// The header that it writes, so that nobody else does.
    pub(crate) fn header(&self) -> &HeaderName {
        match self {
            Self::Header(name, _) => name,
            Self::Bearer(_) | Self::Basic(..) | Self::OAuth2(_) | Self::SigV4(_) => &AUTHORIZATION,
        }
    }

    /// Adds what lets the request in. The error is a sentence without any value.
    pub(crate) async fn admit(
        &self,
        request: &mut Request,
        entry: &Entry<'_>,
        hidden: &mut Hidden,
    ) -> Result<(), String> {
        let (tenant, secrets) = (entry.tenant, entry.secrets);
        let value = match self {
            Self::Bearer(token) => {
                format!("Bearer {}", token.get(tenant, secrets, hidden).await?)
            }
            Self::Basic(user, password) => {
                let user = user.get(tenant, secrets, hidden).await?;
                if user.contains(':') {
                    return Err("the user of `auth.basic` has a colon in it".to_owned());
                }
                let password = password.get(tenant, secrets, hidden).await?;
                let pair = STANDARD.encode(format!("{user}:{password}"));
                hidden.add(&pair);
                format!("Basic {pair}")
            }
            Self::Header(_, value) => value.get(tenant, secrets, hidden).await?,
            Self::OAuth2(oauth2) => {
                format!("Bearer {}", oauth2.token(entry, hidden).await?)
            }
            Self::SigV4(sigv4) => return sigv4.admit(request, entry, hidden).await,
        };
        let mut value: HeaderValue =
            header_value(&value).map_err(|problem| format!("the credential {problem}"))?;
        value.set_sensitive(true);
        request.headers.insert(self.header().clone(), value);
        Ok(())
    }

    /// The vendor did not let a request in. What was made for it is not used again; the request
    /// is not either.
    pub(crate) fn rejected(&self, tenant: &TenantId) {
        if let Self::OAuth2(oauth2) = self {
            oauth2.drop_token(tenant);
        }
    }
}
