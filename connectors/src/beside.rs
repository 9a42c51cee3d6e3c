//! Connectors beside the store: which of them speak to the store's own database, and what follows.
//!
//! Owns the words `url = "store"` and `effect = "transactional"`, and which configurations they do
//! not go with. A connector of kind `sql` at the store's address, or its file, is always taken for one
//! beside it: a second connection there could change rows without the key being burned with them.
//! Another address that leads there is found when the database is asked, before a call.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::{ConnectorConfig, ConnectorKind, EffectWord, HeaderText, ToolConfig};
use crate::duration::{self, DurationText};
use crate::registry::{Place, RegistryError};

/// What a connector's `url` says that means the store.
pub(crate) const STORE: &str = "store";

/// How long a statement may hold the store's transaction: whoever waits for what it locks gives up
/// after 5 s.
const TIMEOUT_MAX: Duration = Duration::from_secs(5);

/// Where the project's store is, for connectors that speak to the same database.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum StoreAddress {
    /// A `SQLite` file.
    Sqlite(PathBuf),
    /// A Postgres database, by its URL.
    Postgres(String),
    /// Nothing that holds tables of others: `memory`, `dynamodb`, or no store at all.
    #[default]
    Elsewhere,
}

impl std::fmt::Debug for StoreAddress {
    /// Leaves the text out: it may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Sqlite(_) => "Sqlite(…)",
            Self::Postgres(_) => "Postgres(…)",
            Self::Elsewhere => "Elsewhere",
        })
    }
}

impl StoreAddress {
    /// Whether a connector's `url` leads to the store.
    fn is_at(&self, url: &str, base_dir: &Path) -> bool {
        match self {
            _ if url == STORE => true,
            Self::Sqlite(file) => url
                .strip_prefix("sqlite:")
                .is_some_and(|path| is_same_file(&base_dir.join(path), file)),
            Self::Postgres(address) => url == address,
            Self::Elsewhere => false,
        }
    }
}

/// Whether two paths lead to one file, whatever links and names are on the way.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> bool {
    let found = |path: &Path| {
        let about = path.metadata().ok();
        about.map(|about| (about.dev(), about.ino()))
    };
    match (found(one), found(other)) {
        (Some(one), Some(other)) => one == other,
        // Neither is there yet: they will be one file if they have one name in one folder.
        (None, None) => {
            let folder = |path: &Path| path.parent().and_then(found);
            let has_one_folder = folder(one).is_some_and(|one| Some(one) == folder(other));
            one == other || has_one_folder && one.file_name() == other.file_name()
        }
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// The configuration with what follows from where the store is: a connector beside it says so by
/// `url = "store"`, and each of its tools by its effect and its deadline.
pub(crate) fn completed(
    config: &ConnectorConfig,
    place: &Place,
    base_dir: &Path,
    store: &StoreAddress,
) -> Result<ConnectorConfig, RegistryError> {
    let url = config.url.as_ref().map_or("", HeaderText::reveal);
    if config.kind != ConnectorKind::Sql || !store.is_at(url, base_dir) {
        return match config.tools.iter().find(|(_, tool)| is_said(tool)) {
            None => Ok(config.clone()),
            Some((name, _)) => Err(place.tool(name).refuse(
                "effect",
                "only a statement in the store's own database is `transactional`: it takes \
                 `kind = \"sql\"` and `url = \"store\"`; use `opaque` or `keyed` elsewhere",
            )),
        };
    }
    if *store == StoreAddress::Elsewhere {
        return Err(place.refuse(
            "url",
            "the store is no database that holds tables of yours; set `store.url` to \
             `sqlite:PATH` or `postgres://…`, or write the database's own address here",
        ));
    }
    let mut config = config.clone();
    config.url = Some(HeaderText::new(STORE));
    let timeout = config.timeout;
    for (name, tool) in &mut config.tools {
        complete_tool(tool, timeout, &place.tool(name))?;
    }
    Ok(config)
}

fn is_said(tool: &ToolConfig) -> bool {
    tool.effect == Some(EffectWord::Transactional)
}

fn complete_tool(
    tool: &mut ToolConfig,
    timeout: Option<DurationText>,
    place: &Place,
) -> Result<(), RegistryError> {
    match tool.effect.unwrap_or(EffectWord::Transactional) {
        EffectWord::Read => return Ok(()),
        EffectWord::Transactional => tool.effect = Some(EffectWord::Transactional),
        EffectWord::Idempotent | EffectWord::Keyed | EffectWord::Probeable | EffectWord::Opaque => {
            return Err(place.refuse(
                "effect",
                "in the store's own database a statement is `transactional` or a `read`; leave it \
                 out",
            ));
        }
    }
    let useless = [
        ("on_unknown", tool.on_unknown.is_some()),
        ("max_land", tool.max_land.is_some()),
    ];
    if let Some((field, _)) = useless.into_iter().find(|(_, is_said)| *is_said) {
        return Err(place.refuse(
            field,
            "a transactional tool leaves no doubt and nothing that could land later; remove it",
        ));
    }
    let said = tool.timeout.or(timeout).map(DurationText::get);
    let allowed = said.unwrap_or(TIMEOUT_MAX);
    if allowed > TIMEOUT_MAX {
        return Err(place.refuse(
            "timeout",
            format!(
                "a statement in the store's own transaction holds up whoever waits for it; write \
                 `{}` or less",
                duration::format(TIMEOUT_MAX)
            ),
        ));
    }
    tool.timeout = Some(allowed.into());
    tool.max_land = Some(Duration::ZERO.into());
    Ok(())
}
