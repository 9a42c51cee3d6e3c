//! The seam for credentials. Connectors ask it; plans, results and receipts never hold one.

use std::fmt;

use async_trait::async_trait;
use zeroize::Zeroizing;

use crate::key::TenantId;

/// A credential: it prints as nothing, is read only on purpose, and is wiped from memory when it
/// is dropped (what was made of it, a header on its way out, is its maker's business).
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes a text into hiding.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text itself, for the one call that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Why a credential could not be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// Nothing of that name.
    #[error("no secret `{name}`: {remedy}")]
    Missing {
        /// The name asked for.
        name: String,
        /// Where to put it.
        remedy: String,
    },
    /// There is something of that name, but it cannot be used.
    #[error("the secret `{name}` cannot be used: {problem}")]
    Unusable {
        /// The name asked for.
        name: String,
        /// Why, and what to do; never the secret itself.
        problem: String,
    },
}

impl SecretError {
    /// Whether asking again may help: neither changes until somebody does something about it.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Missing { .. } | Self::Unusable { .. } => false,
        }
    }
}

/// Gives a connector the credential that its configuration names.
#[async_trait]
pub trait SecretStore: fmt::Debug + Send + Sync + 'static {
    /// Looks up `name` for `tenant`.
    ///
    /// - *Atomic*: one read.
    /// - *After `Ok`*: the secret as it was at some moment during the call.
    /// - *After `Err`*: nothing changed; the call that needed it must not be sent.
    /// - *Dropped half-way*: nothing changed.
    async fn secret(&self, tenant: &TenantId, name: &str) -> Result<Secret, SecretError>;
}
