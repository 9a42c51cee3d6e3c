//! What a program sees of this process: named variables, a folder, and nothing else.
//!
//! Owns the allow-list. Credentials come from the secret store at call time, never from here.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use operators_kernel::{SecretStore, TenantId};

use crate::config::{ConnectorConfig, HeaderText};
use crate::hidden::Hidden;
use crate::registry::{Place, RegistryError};
use crate::secrets::EnvSecrets;

/// What is passed on when nothing is said: enough to find a program.
const ENV_DEFAULT: &[&str] = &["PATH"];

/// What makes a value a credential.
const SECRET_PREFIX: &str = "secret:";

/// The variables and the folder of a connector's programs.
#[derive(Debug)]
pub(crate) struct Environment {
    dir: PathBuf,
    inherited: Vec<String>,
    set: BTreeMap<String, Source>,
}

/// Where a variable's value comes from.
#[derive(Clone)]
enum Source {
    Text(String),
    Secret(String),
}

impl fmt::Debug for Source {
    /// Leaves the text out: people do put credentials here.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(…)"),
            Self::Secret(name) => f.debug_tuple("Secret").field(name).finish(),
        }
    }
}

impl Environment {
    pub(crate) fn compile(
        config: &ConnectorConfig,
        place: &Place,
        base_dir: &Path,
    ) -> Result<Self, RegistryError> {
        let inherited = match &config.env {
            Some(names) => names.clone(),
            None => ENV_DEFAULT.iter().map(|name| (*name).to_owned()).collect(),
        };
        for name in &inherited {
            check_name(name).map_err(|problem| place.refuse("env", problem))?;
        }
        let mut set = BTreeMap::new();
        for (name, text) in &config.variables {
            let field = format!("variables.\"{}\"", name.escape_debug());
            check_name(name).map_err(|problem| place.refuse(&field, problem))?;
            let source = source(text).map_err(|problem| place.refuse(&field, problem))?;
            set.insert(name.clone(), source);
        }
        let dir = config.dir.as_deref().unwrap_or(".");
        Ok(Self {
            dir: base_dir.join(dir),
            inherited,
            set,
        })
    }

    /// Every variable with its value as of now; secrets are hidden from what is shown later.
    pub(crate) async fn variables(
        &self,
        tenant: &TenantId,
        secrets: &dyn SecretStore,
        hidden: &mut Hidden,
    ) -> Result<Vec<(String, std::ffi::OsString)>, String> {
        let mut variables = Vec::new();
        for name in &self.inherited {
            if let Some(value) = std::env::var_os(name) {
                variables.push((name.clone(), value));
            }
        }
        for (name, source) in &self.set {
            let value = match source {
                Source::Text(text) => text.clone(),
                Source::Secret(secret_name) => {
                    let secret = secrets
                        .secret(tenant, secret_name)
                        .await
                        .map_err(|error| error.to_string())?;
                    hidden.add(secret.reveal());
                    secret.reveal().to_owned()
                }
            };
            if value.contains('\0') {
                return Err(format!("the variable `{name}` would hold a NUL"));
            }
            variables.push((name.clone(), value.into()));
        }
        Ok(variables)
    }

    /// Looks for a program where the system would, without starting it.
    pub(crate) fn find(
        &self,
        program: &str,
        variables: &[(String, std::ffi::OsString)],
    ) -> Result<(), String> {
        if !self.dir.is_dir() {
            return Err(format!("has no folder `{}` to run in", self.dir.display()));
        }
        let is_program = |path: &Path| {
            let about = path.metadata();
            about.is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
        };
        if program.contains('/') {
            if is_program(Path::new(program)) {
                return Ok(());
            }
            return Err("is not a program that can be started".to_owned());
        }
        let path = variables.iter().find(|(name, _)| name == "PATH");
        let path = path.map_or_else(Default::default, |(_, path)| path.clone());
        if std::env::split_paths(&path).any(|folder| is_program(&folder.join(program))) {
            return Ok(());
        }
        Err("is in no folder of its `PATH`".to_owned())
    }

    /// A process of that program with these variables and no others.
    pub(crate) fn command(
        &self,
        argv: &[String],
        variables: Vec<(String, std::ffi::OsString)>,
    ) -> Command {
        let (program, arguments) = argv
            .split_first()
            .map_or(("", argv), |(program, rest)| (program.as_str(), rest));
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(&self.dir)
            .env_clear()
            .envs(variables);
        command
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let mut characters = name.chars();
    let starts = characters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
    if !starts || !characters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(format!(
            "`{}` is not the name of a variable",
            name.escape_debug()
        ));
    }
    if name.starts_with(&EnvSecrets::variable("")) {
        return Err(format!(
            "`{name}` holds a secret; name it in `variables`, as in \
             `variables = {{ TOKEN = \"secret:NAME\" }}`"
        ));
    }
    Ok(())
}

/// Messages here never quote the value: it may be a credential in the wrong place.
fn source(text: &HeaderText) -> Result<Source, String> {
    let text = text.reveal();
    if text.contains('\0') {
        return Err("holds a NUL".to_owned());
    }
    match text.strip_prefix(SECRET_PREFIX) {
        None if text.contains(SECRET_PREFIX) => {
            Err("a value is either a plain text or exactly `secret:NAME`".to_owned())
        }
        None => Ok(Source::Text(text.to_owned())),
        Some(name) => {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            if name.is_empty() || !name.chars().all(allowed) {
                return Err(
                    "a secret's name is made of letters, digits, `.`, `_` and `-`".to_owned(),
                );
            }
            Ok(Source::Secret(name.to_owned()))
        }
    }
}
