//! Credentials from the environment.
//!
//! Owns the mapping from a secret's name to a variable.

use async_trait::async_trait;

use operators_kernel::{Secret, SecretError, SecretStore, TenantId};

/// What every variable that holds a secret starts with, so that a configuration cannot read
/// other variables.
const VARIABLE_PREFIX: &str = "OPERATORS_SECRET_";

/// Reads the secret `shop-token` from the variable `OPERATORS_SECRET_SHOP_TOKEN`: upper-cased,
/// `-` and `.` written as `_`. All tenants share it; an empty variable counts as missing.
#[derive(Debug, Clone, Copy, Default)]
pub struct EnvSecrets;

impl EnvSecrets {
    /// The variable that holds the secret `name`.
    pub fn variable(name: &str) -> String {
        let name = name.to_uppercase().replace(['-', '.'], "_");
        format!("{VARIABLE_PREFIX}{name}")
    }
}

#[async_trait]
impl SecretStore for EnvSecrets {
    async fn secret(&self, _tenant: &TenantId, name: &str) -> Result<Secret, SecretError> {
        read(name, &Self::variable(name))
    }
}

/// The secret in that variable.
pub(crate) fn read(name: &str, variable: &str) -> Result<Secret, SecretError> {
    match std::env::var(variable) {
        Ok(text) if !text.is_empty() => Ok(Secret::new(text)),
        // What is not Unicode cannot be a header either; the text stays out of the message.
        Ok(_) | Err(_) => Err(SecretError::Missing {
            name: name.to_owned(),
            remedy: format!("set the environment variable `{variable}`"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_a_variable_of_ours() {
        assert_eq!(
            EnvSecrets::variable("shop-token.v2"),
            "OPERATORS_SECRET_SHOP_TOKEN_V2"
        );
    }

    #[tokio::test]
    async fn a_missing_secret_names_the_variable_to_set() {
        let tenant = TenantId::parse("acme").expect("tenant");
        let error = EnvSecrets
            .secret(&tenant, "surely-not.set")
            .await
            .expect_err("missing");
        assert_eq!(
            error.to_string(),
            "no secret `surely-not.set`: set the environment variable \
             `OPERATORS_SECRET_SURELY_NOT_SET`"
        );
    }
}
