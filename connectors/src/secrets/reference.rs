//! `secret:NAME` in a configuration.
//!
//! Messages here never quote a value: it may be a credential in the wrong place.

use std::fmt;

use operators_kernel::{SecretStore, TenantId};

use crate::config::HeaderText;
use crate::hidden::Hidden;

/// What makes a value a credential.
const SECRET_PREFIX: &str = "secret:";

/// The name in `secret:NAME`; `None` for a text that is none.
pub(crate) fn secret_name(text: &str) -> Result<Option<String>, String> {
    let Some(name) = text.strip_prefix(SECRET_PREFIX) else {
        if text.contains(SECRET_PREFIX) {
            return Err(
                "a value is either a template or exactly `secret:NAME`; put the whole value, a \
                 word like `Bearer` included, into the secret"
                    .to_owned(),
            );
        }
        return Ok(None);
    };
    if !is_name(name) {
        return Err("a secret's name is made of letters, digits, `.`, `_` and `-`".to_owned());
    }
    Ok(Some(name.to_owned()))
}

/// Whether a text can name a secret.
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && name.chars().all(allowed)
}

/// A text that is looked up when it is needed, or stands in the configuration.
#[derive(Clone)]
pub(crate) enum SecretText {
    Plain(String),
    Secret(String),
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(_) => f.write_str("Plain(…)"),
            Self::Secret(name) => f.debug_tuple("Secret").field(name).finish(),
        }
    }
}

impl SecretText {
    /// What may stand in the configuration as it is.
    pub(crate) fn compile(text: &HeaderText) -> Result<Self, String> {
        let text = text.reveal();
        match secret_name(text)? {
            Some(name) => Ok(Self::Secret(name)),
            None if text.contains(char::is_control) => Err("has a control character".to_owned()),
            None => Ok(Self::Plain(text.to_owned())),
        }
    }

    /// What must not: a credential is named, never written.
    pub(crate) fn compile_credential(text: &HeaderText) -> Result<Self, String> {
        match Self::compile(text)? {
            Self::Secret(name) => Ok(Self::Secret(name)),
            Self::Plain(_) => Err(
                "a credential does not stand in the configuration; write `secret:NAME`".to_owned(),
            ),
        }
    }

    /// The text as of now. A secret is hidden from whatever is shown later.
    pub(crate) async fn get(
        &self,
        tenant: &TenantId,
        secrets: &dyn SecretStore,
        hidden: &mut Hidden,
    ) -> Result<String, String> {
        match self {
            Self::Plain(text) => Ok(text.clone()),
            Self::Secret(name) => {
                let secret = secrets.secret(tenant, name).await;
                let secret = secret.map_err(|error| error.to_string())?;
                hidden.add(secret.reveal());
                if secret.reveal().contains(char::is_control) {
                    return Err(format!(
                        "the secret `{name}` would hold a control character"
                    ));
                }
                Ok(secret.reveal().to_owned())
            }
        }
    }
}
