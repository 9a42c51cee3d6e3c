//! `operators.toml`: what it may say, with a default for everything.
//!
//! Owns the shape and the words. It must not know how parts are made from them.

mod checkpoint;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, anyhow};
use operators_connectors::duration::{self, DurationText};
use operators_connectors::{ConnectorConfig, SecretConfig};
use operators_kernel::{ConnectorName, OnAlert, OperatorName, TenantId};
use operators_policies::Reach;
use serde::Deserialize;

use crate::locate;
use crate::notify::NotifyConfig;
use crate::output::shown;

pub(crate) use checkpoint::CheckpointConfig;

/// The name of the file that makes a folder a project.
pub(crate) const CONFIG_FILE: &str = "operators.toml";

const TENANT_DEFAULT: &str = "default";
const SQLITE_DEFAULT: &str = ".operators/store.db";
const POLICIES_DEFAULT: &str = "policies/*.toml";
const LEASE_DEFAULT: Duration = Duration::from_secs(30);

/// Shorter, and a busy disk looks like a dead process; longer, and a crash holds entities for a
/// coffee break.
const LEASE_BOUNDS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(10));

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    tenant: Option<TenantId>,
    #[serde(default)]
    pub(crate) store: StoreConfig,
    #[serde(default)]
    pub(crate) trust: TrustConfig,
    #[serde(default)]
    pub(crate) receipts: ReceiptsConfig,
    #[serde(default)]
    pub(crate) secrets: BTreeMap<String, SecretConfig>,
    #[serde(default)]
    pub(crate) connectors: BTreeMap<ConnectorName, ConnectorConfig>,
    #[serde(default)]
    pub(crate) operators: BTreeMap<OperatorName, OperatorConfig>,
}

/// `[store]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreConfig {
    #[serde(default)]
    pub(crate) url: StoreUrl,
    #[serde(default)]
    pub(crate) lease: Lease,
}

/// Which store.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum StoreUrl {
    /// One file, relative to the project.
    Sqlite(PathBuf),
    /// A database `operators` shares with nobody, on a server.
    Postgres(Address),
    /// A table of a cloud.
    DynamoDb(Address),
    /// Nothing is kept beyond the process.
    Memory,
}

/// An address, as it is written; it may hold a password, so it is never printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Address(String);

impl Address {
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Address(…)")
    }
}

impl Default for StoreUrl {
    fn default() -> Self {
        Self::Sqlite(PathBuf::from(SQLITE_DEFAULT))
    }
}

impl TryFrom<String> for StoreUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let example = format!(
            "write `sqlite:{SQLITE_DEFAULT}`, `postgres://…`, `dynamodb:TABLE?region=…` or `memory:`"
        );
        // The text itself is never repeated: a database's address may hold its password.
        let (scheme, rest) = text
            .split_once(':')
            .ok_or_else(|| format!("the store's address names no kind; {example}"))?;
        match scheme {
            "sqlite" if rest.contains('?') => Err(
                "a sqlite store takes no options: it always keeps what it acknowledged; \
                 remove everything from `?` on"
                    .to_owned(),
            ),
            "sqlite" if rest.is_empty() => {
                Err(format!("the sqlite store names no file; {example}"))
            }
            "sqlite" if rest.starts_with("//") => {
                Err("the path follows the colon at once; write `sqlite:PATH`".to_owned())
            }
            "sqlite" if rest.starts_with(':') => {
                Err("a store that forgets is written `memory:`".to_owned())
            }
            "sqlite" => Ok(Self::Sqlite(PathBuf::from(rest))),
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "memory" => Err("`memory:` takes nothing after its colon".to_owned()),
            "postgres" | "postgresql" if rest.starts_with("//") => {
                Ok(Self::Postgres(Address(text)))
            }
            "postgres" | "postgresql" => {
                Err("write `postgres://USER@HOST:PORT/DATABASE`".to_owned())
            }
            "dynamodb" if rest.is_empty() || rest.starts_with('?') => Err(
                "the dynamodb store names no table; write `dynamodb:TABLE?region=REGION`"
                    .to_owned(),
            ),
            "dynamodb" => Ok(Self::DynamoDb(Address(text))),
            other => Err(format!("no store of kind `{}`; {example}", shown(other))),
        }
    }
}

/// How long this process may be silent before others count it as dead.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Lease(Duration);

impl Lease {
    pub(crate) fn get(self) -> Duration {
        self.0
    }
}

impl Default for Lease {
    fn default() -> Self {
        Self(LEASE_DEFAULT)
    }
}

impl TryFrom<String> for Lease {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let lease = duration::parse(&text).map_err(|error| error.to_string())?;
        let (shortest, longest) = LEASE_BOUNDS;
        if lease < shortest || lease > longest {
            return Err(format!(
                "a lease of `{}` is out of bounds; write something from `{}` to `{}`",
                shown(&text),
                duration::format(shortest),
                duration::format(longest)
            ));
        }
        Ok(Self(lease))
    }
}

/// `[receipts]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReceiptsConfig {
    #[serde(default)]
    pub(crate) checkpoint: CheckpointConfig,
}

/// `[trust]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrustConfig {
    #[serde(default = "policies_default")]
    pub(crate) policies: Vec<String>,
    #[serde(default)]
    pub(crate) alert: AlertMode,
    pub(crate) notify: Option<NotifyConfig>,
    /// The system users who may answer on the command line; without it, everybody who can type.
    pub(crate) approvers: Option<Vec<String>>,
}

impl Default for TrustConfig {
    fn default() -> Self {
        Self {
            policies: policies_default(),
            alert: AlertMode::default(),
            notify: None,
            approvers: None,
        }
    }
}

fn policies_default() -> Vec<String> {
    vec![POLICIES_DEFAULT.to_owned()]
}

/// What an ALERT leads to whose rule does not say.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct AlertMode(OnAlert);

impl AlertMode {
    pub(crate) fn on_alert(self) -> OnAlert {
        self.0
    }
}

impl TryFrom<String> for AlertMode {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        match word.as_str() {
            "notify" => Ok(Self(OnAlert::Notify)),
            "approve" => Ok(Self(OnAlert::Approve)),
            other => Err(format!(
                "no alert mode `{}`; write `notify` or `approve`",
                shown(other)
            )),
        }
    }
}

/// `[operators.NAME]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OperatorConfig {
    pub(crate) goal: Option<String>,
    pub(crate) requires: Option<Vec<Required>>,
    /// Policies of its own, which must agree with the project's.
    pub(crate) policies: Option<Vec<String>>,
    pub(crate) plan: Option<PathBuf>,
    pub(crate) command: Option<Vec<String>>,
    pub(crate) every: Option<DurationText>,
}

/// One entry of `requires`, with its text for messages.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Required {
    pub(crate) text: String,
    pub(crate) reach: Reach,
}

impl TryFrom<String> for Required {
    type Error = operators_policies::PatternError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let reach = Reach::parse(&text)?;
        Ok(Self { text, reach })
    }
}

impl Config {
    /// Reads the text of `file`; an error names the line, the column and what to do.
    pub(crate) fn parse(file: &Path, text: &str) -> Result<Self> {
        let config: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let problem = shown(error.message());
            // Our own words carry their remedy; those of the TOML reader do not.
            let remedy = if problem.contains(';') {
                ""
            } else {
                "; correct it there, nothing runs until the file loads"
            };
            refusal(file, text, Some(at), &format!("{problem}{remedy}"))
        })?;
        for (name, operator) in &config.operators {
            if let Some((field, problem)) = operator.problem() {
                let place = format!("operators.\"{name}\".{field}");
                let problem = format!("operator `{name}` {problem}");
                return Err(refusal(file, text, locate::in_toml(text, &place), &problem));
            }
        }
        Ok(config)
    }

    /// The tenant to act for when the command line names none.
    pub(crate) fn tenant(&self) -> Result<TenantId> {
        match &self.tenant {
            Some(tenant) => Ok(tenant.clone()),
            None => Ok(TenantId::parse(TENANT_DEFAULT)?),
        }
    }
}

impl OperatorConfig {
    /// What types alone do not check: the field and the problem.
    fn problem(&self) -> Option<(&'static str, &'static str)> {
        if self.plan.is_some() && self.command.is_some() {
            return Some((
                "command",
                "has both `plan` and `command`; keep the one that makes its plan",
            ));
        }
        let named = |plan: &PathBuf| !plan.as_os_str().is_empty() && plan != Path::new("-");
        if !self.plan.as_ref().is_none_or(named) {
            return Some(("plan", "has a `plan` that names no file; write its path"));
        }
        if self.command.as_ref().is_some_and(Vec::is_empty) {
            return Some((
                "command",
                "has an empty `command`; write the program and its arguments, \
                 as in `[\"python3\", \"planner.py\"]`",
            ));
        }
        if self.every.is_some_and(|every| every.get().is_zero()) {
            return Some(("every", "runs every `0s`; write something like `15m`"));
        }
        None
    }
}

/// An error at a place of the file; at its top when the place is not there.
pub(crate) fn refusal(file: &Path, text: &str, at: Option<usize>, problem: &str) -> anyhow::Error {
    let (line, column) = locate::line_column(text, at.unwrap_or(0));
    anyhow!("{}:{line}:{column}: {problem}", shown(&file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Config::parse(Path::new("operators.toml"), text)
            .expect_err(text)
            .to_string()
    }

    #[test]
    fn the_whole_vocabulary_is_taken() {
        let text = r#"
            tenant = "acme"
            [store]
            url = "sqlite:.operators/store.db"
            lease = "30s"
            [trust]
            policies = ["policies/*.toml"]
            alert = "notify"
            [connectors.shop]
            kind = "http"
            base_url = "http://127.0.0.1:8080"
            timeout = "3s"
            allow_private_addresses = true
            [connectors.shop.tools."orders.hold"]
            effect = "keyed"
            method = "POST"
            path = "/orders/{args.order}/hold"
            headers = { "X-Entity" = "{action.entity_key}" }
            [operators.ship-risk]
            goal = "hold orders that look risky"
            requires = ["shop:orders.hold"]
            plan = "plans/ship-risk.json"
            every = "15m"
            [operators.other]
            command = ["python3", "planner.py"]
        "#;
        let config = Config::parse(Path::new("operators.toml"), text).expect("valid");
        assert_eq!(config.tenant().expect("tenant").as_str(), "acme");
        assert_eq!(config.operators.len(), 2);
    }

    #[test]
    fn nothing_at_all_is_a_configuration() {
        let config = Config::parse(Path::new("operators.toml"), "").expect("valid");
        assert_eq!(config.tenant().expect("tenant").as_str(), "default");
        assert_eq!(config.store.url, StoreUrl::default());
        assert_eq!(config.store.lease.get(), LEASE_DEFAULT);
        assert_eq!(config.trust.policies, ["policies/*.toml"]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place_and_a_remedy() {
        let cases = [
            (
                "[store]\nurl = \"postgres:u:hunter2@h/d\"",
                ":2:7:",
                "postgres://USER@HOST",
            ),
            (
                "[store]\nurl = \"dynamodb:?region=x\"",
                ":2:7:",
                "names no table",
            ),
            (
                "[store]\nurl = \"sqlite:x.db?synchronous=off\"",
                ":2:7:",
                "no options",
            ),
            ("[store]\nurl = \"sqlite:\"", ":2:7:", "names no file"),
            ("[store]\nurl = \"x.db\"", ":2:7:", "names no kind"),
            ("[store]\nlease = \"100ms\"", ":2:9:", "out of bounds"),
            ("[store]\nlease = \"11m\"", ":2:9:", "out of bounds"),
            ("[store]\nleese = \"1s\"", ":2:1:", "unknown field"),
            ("[trust]\nalert = \"ask\"", ":2:9:", "`notify` or `approve`"),
            ("tenant = \"a\\u0000b\"", ":1:10:", "control character"),
            ("[operators.a]\nevery = \"often\"", ":2:9:", "`14d`"),
            (
                "[operators.a]\nrequires = [\"shop\"]",
                ":2:12:",
                "connector:tool",
            ),
            (
                "[operators.a]\nplan = \"p\"\ncommand = [\"c\"]",
                ":3:1:",
                "both",
            ),
            ("[operators.a]\ncommand = []", ":2:1:", "empty `command`"),
            ("tenant = \n", ":1:", "correct it there"),
        ];
        for (text, place, problem) in cases {
            let error = refused(text);
            assert!(
                error.starts_with(&format!("operators.toml{place}")),
                "{error}"
            );
            assert!(error.contains(problem), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
