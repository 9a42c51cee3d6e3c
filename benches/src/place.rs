//! Fresh places to remember things in: files and databases, made and removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use operators_kernel::DurableExec;
use operators_seams::{MemoryStore, PgStore, SqliteStore, SystemClock};
use tempfile::TempDir;

use crate::options::{Options, Store};
use crate::server::Server;

/// Where places are made.
#[derive(Debug)]
pub(crate) struct Places {
    // Dropped before the folder its data is in.
    server: Option<Server>,
    dynamodb: Option<String>,
    folder: TempDir,
    made: usize,
}

/// A store that nobody used before.
#[derive(Debug)]
pub(crate) struct Place {
    store: Store,
    /// Its file or URL.
    pub(crate) name: String,
}

impl Places {
    /// Makes the folder, and starts Postgres if that is to be measured.
    pub(crate) fn new(options: &Options) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("operators-benches-")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .tempdir_in(&options.dir)?;
        let server = match &options.postgres {
            _ if !options.has_store(Store::Postgres) => None,
            Some(url) => Some(Server::given(url)?),
            None => Some(Server::start(folder.path())?),
        };
        Ok(Self {
            server,
            dynamodb: options.dynamodb.clone(),
            folder,
            made: 0,
        })
    }

    /// The folder that goes with this.
    pub(crate) fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// The Postgres server.
    pub(crate) fn server(&mut self) -> Result<&mut Server> {
        self.server.as_mut().context("no Postgres was started")
    }

    /// An empty store.
    pub(crate) fn fresh(&mut self, store: Store) -> Result<Place> {
        self.made += 1;
        let name = match store {
            Store::Memory => String::new(),
            Store::Sqlite => {
                let folder = self.folder.path().join(self.made.to_string());
                std::fs::create_dir(&folder)?;
                folder.join("store.db").display().to_string()
            }
            Store::Postgres => self.server()?.fresh_database()?,
            Store::Dynamodb => {
                let given = self.dynamodb.as_deref().context("no DynamoDB was given")?;
                numbered(given, self.made)
            }
        };
        Ok(Place { store, name })
    }

    /// Removes a store and all it holds.
    pub(crate) fn remove(&mut self, place: Place) -> Result<()> {
        match place.store {
            Store::Memory | Store::Dynamodb => {}
            Store::Sqlite => {
                let folder = PathBuf::from(place.name);
                std::fs::remove_dir_all(folder.parent().context("a file in a folder")?)?;
            }
            Store::Postgres => self.server()?.drop_database(&place.name)?,
        }
        Ok(())
    }
}

/// The same address with another table: `dynamodb:TABLE?…` becomes `dynamodb:TABLE-1?…`.
fn numbered(url: &str, number: usize) -> String {
    let (table, options) = url.split_once('?').unwrap_or((url, ""));
    format!("{table}-{number}?{options}")
}

impl Place {
    /// Opens this project's store there.
    pub(crate) async fn open(&self) -> Result<Arc<dyn DurableExec>> {
        Ok(match self.store {
            Store::Memory => Arc::new(MemoryStore::new(Arc::new(SystemClock::new()))),
            Store::Sqlite => Arc::new(SqliteStore::open(Path::new(&self.name))?),
            Store::Postgres => Arc::new(PgStore::connect(&self.name).await?),
            #[cfg(feature = "dynamodb")]
            Store::Dynamodb => {
                operators_seams::DynamoStore::create_table(&self.name).await?;
                Arc::new(operators_seams::DynamoStore::connect(&self.name).await?)
            }
            #[cfg(not(feature = "dynamodb"))]
            Store::Dynamodb => anyhow::bail!("built without DynamoDB; add --features dynamodb"),
        })
    }
}
