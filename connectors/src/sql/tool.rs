//! Where a database is and what a tool does there, compiled from the configuration: everything that
//! can be wrong is found here.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::beside::{STORE, StoreAddress};
use crate::config::{ConnectorConfig, EffectWord, HeaderText, ToolConfig};
use crate::registry::{Place, RegistryError, effect_word, max_land};
use crate::sql::statement::{Dialect, Statement};

/// What makes an address a credential.
const SECRET_PREFIX: &str = "secret:";

/// Where the store keeps its own tables on Postgres. Row security hides them from a statement, but
/// not from one that a superuser runs.
pub(crate) const STORES_SCHEMA: &str = "operators";

/// Where the database is.
#[derive(Clone)]
pub(crate) enum Address {
    Sqlite(PathBuf),
    Postgres(String),
    /// The store's own Postgres database, by the store's URL.
    Store(String),
    /// A Postgres address that the secret store knows.
    Secret(String),
}

impl fmt::Debug for Address {
    /// Leaves the text out: it may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqlite(_) => "Sqlite(…)",
            Self::Postgres(_) => "Postgres(…)",
            Self::Store(_) => "Store(…)",
            Self::Secret(_) => "Secret(…)",
        })
    }
}

/// One tool, compiled.
#[derive(Debug)]
pub(crate) struct SqlTool {
    pub(crate) statement: Statement,
    pub(crate) probe: Option<Statement>,
    pub(crate) reads: bool,
    /// The store runs it.
    pub(crate) is_transactional: bool,
    pub(crate) expect_rows: Option<u64>,
    /// How long after the call's deadline its transaction may still commit.
    pub(crate) max_land: Duration,
    pub(crate) effect_id: Option<String>,
    pub(crate) secret_args: Vec<String>,
}

impl Address {
    /// Reads a connector's `url`.
    pub(crate) fn parse(
        url: Option<&HeaderText>,
        base_dir: &Path,
        store: &StoreAddress,
    ) -> Result<Self, String> {
        let example = "write `store`, `sqlite:PATH`, `postgres://USER@HOST/DATABASE` or \
                       `secret:NAME`";
        let Some(url) = url.map(HeaderText::reveal) else {
            return Err(format!("is missing; {example}"));
        };
        match store {
            StoreAddress::Sqlite(path) if url == STORE => return Ok(Self::Sqlite(path.clone())),
            StoreAddress::Postgres(url_of_store) if url == STORE => {
                return Ok(Self::Store(url_of_store.clone()));
            }
            StoreAddress::Sqlite(_) | StoreAddress::Postgres(_) | StoreAddress::Elsewhere => {}
        }
        // The text itself is never repeated: it may hold a password.
        if let Some(path) = url.strip_prefix("sqlite:") {
            if path.is_empty() || path.starts_with("//") || path.contains('?') {
                return Err(
                    "the path follows the colon at once, without options: `sqlite:PATH`".into(),
                );
            }
            return Ok(Self::Sqlite(base_dir.join(path)));
        }
        if let Some(name) = url.strip_prefix(SECRET_PREFIX) {
            return Ok(Self::Secret(name.to_owned()));
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Self::Postgres(url.to_owned()));
        }
        Err(format!("is no database that we know; {example}"))
    }
}

impl SqlTool {
    pub(crate) fn compile(
        config: &ConnectorConfig,
        tool: &ToolConfig,
        dialect: Dialect,
        place: &Place,
    ) -> Result<Self, RegistryError> {
        let Some(text) = &tool.statement else {
            let problem = "is missing; write one statement, with `{args.NAME}` where a value goes";
            return Err(place.refuse("statement", problem));
        };
        let statement = Statement::compile(text, dialect);
        let statement = statement.map_err(|problem| place.refuse("statement", problem))?;
        let effect = effect_word(config, tool);
        let probe = match (&tool.probe, effect) {
            (Some(probe), EffectWord::Probeable) => {
                let inside = place.inside("probe");
                let text = probe.statement.as_ref().ok_or_else(|| {
                    inside.refuse(
                        "statement",
                        "is missing; write a query that finds the effect",
                    )
                })?;
                let compiled = Statement::compile(text, dialect);
                Some(compiled.map_err(|problem| inside.refuse("statement", problem))?)
            }
            (None, EffectWord::Probeable) => {
                return Err(place.refuse(
                    "probe",
                    "is missing; write `probe = { statement = \"SELECT …\" }`, which finds a row if it \
                     happened, or use another effect",
                ));
            }
            (Some(_), _) => {
                return Err(place.refuse(
                    "probe",
                    "only a probeable tool is probed; set `effect = \"probeable\"` or remove it",
                ));
            }
            (None, _) => None,
        };
        if effect == EffectWord::Transactional && !statement.writes {
            return Err(place.refuse(
                "statement",
                "the store's transaction takes one `INSERT`, `UPDATE`, `DELETE` or `MERGE`; what \
                 only reads has `effect = \"read\"`",
            ));
        }
        let is_beside = config.url.as_ref().is_some_and(|url| url.reveal() == STORE);
        if is_beside && dialect == Dialect::Postgres && statement.names_schema(STORES_SCHEMA) {
            return Err(place.refuse(
                "statement",
                "the schema `operators` is the store's own; keep your tables in another",
            ));
        }
        if effect == EffectWord::Read && tool.expect_rows.is_some() {
            return Err(place.refuse("expect_rows", "a read changes no rows; remove it"));
        }
        if let Some(pointer) = &tool.effect_id
            && !pointer.starts_with('/')
        {
            return Err(place.refuse("effect_id", "is not a JSON pointer such as `/rows/0/id`"));
        }
        Ok(Self {
            statement,
            probe,
            reads: effect == EffectWord::Read,
            is_transactional: effect == EffectWord::Transactional,
            expect_rows: tool.expect_rows,
            max_land: max_land(config, tool),
            effect_id: tool.effect_id.clone(),
            secret_args: tool.secret_args.clone(),
        })
    }
}
