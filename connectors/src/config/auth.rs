//! What a configuration may say about how an `http` connector is let in.
//!
//! Whatever opens a door is `secret:NAME`; a credential in the file itself is refused.

use serde::Deserialize;

use crate::config::HeaderText;

/// One way in: exactly one of `bearer`, `basic`, `header` with `value`, `oauth2` and `aws_sigv4`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthConfig {
    /// A token: `Authorization: Bearer TOKEN`.
    #[serde(default)]
    pub bearer: Option<HeaderText>,
    /// A user and a password.
    #[serde(default)]
    pub basic: Option<BasicConfig>,
    /// The name of a header that carries a key.
    #[serde(default)]
    pub header: Option<String>,
    /// The key that `header` carries.
    #[serde(default)]
    pub value: Option<HeaderText>,
    /// Tokens from a token server, by client credentials.
    #[serde(default)]
    pub oauth2: Option<Oauth2Config>,
    /// A signature over each request, as AWS wants it.
    #[serde(default)]
    pub aws_sigv4: Option<SigV4Config>,
}

/// `basic = { user = "me", password = "secret:NAME" }`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BasicConfig {
    /// The user: a text, or a secret.
    pub user: HeaderText,
    /// The password: a secret, or an empty text for those who use the user as a key.
    pub password: HeaderText,
}

/// `oauth2 = { token_url = "https://…", client_id = "me", client_secret = "secret:NAME" }`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Oauth2Config {
    /// Where tokens are given out.
    pub token_url: String,
    /// Who asks: a text, or a secret.
    pub client_id: HeaderText,
    /// What proves it: a secret.
    pub client_secret: HeaderText,
    /// What the token is for.
    #[serde(default)]
    pub scope: Option<String>,
    /// Whom the token is for, where the server wants to know.
    #[serde(default)]
    pub audience: Option<String>,
    /// Where id and secret are sent. Default `header`.
    #[serde(default)]
    pub client_auth: Option<ClientAuth>,
}

/// Where a token request carries who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuth {
    /// As a user and a password, which every server must take.
    #[default]
    Header,
    /// As fields of the form.
    Body,
}

/// `aws_sigv4 = { region = "eu-central-1", service = "execute-api", access_key = "…", … }`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SigV4Config {
    /// The region, as in `eu-central-1`.
    pub region: String,
    /// The service's name for signing, as in `execute-api`.
    pub service: String,
    /// The id of the key: a text, or a secret.
    pub access_key: HeaderText,
    /// The key: a secret.
    pub secret_key: HeaderText,
    /// The token of a temporary key: a secret.
    #[serde(default)]
    pub session_token: Option<HeaderText>,
}
