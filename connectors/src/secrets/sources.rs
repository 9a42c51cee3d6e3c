//! Credentials from where a project says: a variable, a file, or a program that prints one.
//!
//! Owns `[secrets]`. A name that is not listed comes from the environment as ever. What a source
//! says about a secret is never part of a message, whatever went wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use tokio::sync::OnceCell;

use operators_kernel::{Secret, SecretError, SecretStore, TenantId};

use crate::registry::RegistryError;
use crate::secrets::env::EnvSecrets;
use crate::secrets::reference::is_name;
use crate::secrets::{file, program};

/// One entry of `[secrets]`: exactly one of these.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretConfig {
    /// The environment variable that holds it.
    #[serde(default)]
    pub env: Option<String>,
    /// The file that holds it, relative to the project, which nobody else may read.
    #[serde(default)]
    pub file: Option<String>,
    /// The program that prints it, and its arguments; run once per process, without a shell.
    #[serde(default)]
    pub command: Option<Vec<String>>,
}

/// The secrets of a project. All tenants share them.
pub struct ProjectSecrets {
    sources: BTreeMap<String, Source>,
    base_dir: PathBuf,
    /// Of a program that prints one.
    deadline: Duration,
}

enum Source {
    Env(String),
    File(PathBuf),
    /// What it printed is kept for the process: it may ask a person.
    Program(Vec<String>, OnceCell<Secret>),
}

impl fmt::Debug for ProjectSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProjectSecrets")
            .field("names", &self.sources.keys())
            .finish_non_exhaustive()
    }
}

impl ProjectSecrets {
    /// Checks the entries; nothing is read and nothing is run.
    pub fn build(
        configs: &BTreeMap<String, SecretConfig>,
        base_dir: &Path,
    ) -> Result<Self, RegistryError> {
        let mut sources = BTreeMap::new();
        for (name, config) in configs {
            let refuse = |problem: &str| RegistryError {
                place: format!("secrets.\"{}\"", name.escape_debug()),
                problem: problem.to_owned(),
            };
            if !is_name(name) {
                return Err(refuse(
                    "a secret's name is made of letters, digits, `.`, `_` and `-`",
                ));
            }
            let source = match (&config.env, &config.file, &config.command) {
                (Some(variable), None, None) if is_variable(variable) => {
                    Source::Env(variable.clone())
                }
                (Some(_), None, None) => return Err(refuse("`env` is not a variable's name")),
                (None, Some(file), None) if !file.is_empty() => Source::File(base_dir.join(file)),
                (None, None, Some(argv)) if argv.first().is_some_and(|name| !name.is_empty()) => {
                    Source::Program(argv.clone(), OnceCell::new())
                }
                (None, Some(_), None) => return Err(refuse("`file` is empty")),
                (None, None, Some(_)) => return Err(refuse("`command` names no program")),
                _ => {
                    return Err(refuse(
                        "needs exactly one of `env`, `file` and `command`, as in \
                         `{ file = \"secrets/token\" }`",
                    ));
                }
            };
            sources.insert(name.clone(), source);
        }
        Ok(Self {
            sources,
            base_dir: base_dir.to_owned(),
            deadline: program::DEADLINE,
        })
    }

    /// How long a program that prints a secret may take, in place of 30 seconds.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Whether a variable of the environment holds a secret of this project, and so is nobody
    /// else's business.
    pub fn is_secret_variable(&self, variable: &str) -> bool {
        variable.starts_with(&EnvSecrets::variable(""))
            || self
                .sources
                .values()
                .any(|source| matches!(source, Source::Env(name) if name == variable))
    }
}

#[async_trait]
impl SecretStore for ProjectSecrets {
    async fn secret(&self, tenant: &TenantId, name: &str) -> Result<Secret, SecretError> {
        let unusable = |problem: String| SecretError::Unusable {
            name: name.to_owned(),
            problem,
        };
        match self.sources.get(name) {
            None => EnvSecrets.secret(tenant, name).await,
            Some(Source::Env(variable)) => super::env::read(name, variable),
            Some(Source::File(path)) => file::read(path.clone()).await.map_err(unusable),
            Some(Source::Program(argv, kept)) => {
                // Those who come meanwhile wait; a failure is not kept.
                let print = || program::print(argv, &self.base_dir, self.deadline);
                let printed = kept.get_or_try_init(print);
                printed.await.cloned().map_err(unusable)
            }
        }
    }
}

fn is_variable(name: &str) -> bool {
    let mut characters = name.chars();
    let starts = characters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
    starts && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}
