//! Whether a database is the store's own, whatever address leads there: the databases are asked.
//!
//! Owns that question. An address says little: one server has many names, sockets, poolers and
//! parameters. What has an effect there by such an address is refused, because rows could change
//! without the key being burned with them.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use operators_kernel::{ContentDigest, Statement};
use operators_sql::postgres::told;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, Row as _};

use crate::beside::{StoreAddress, is_same_file};
use crate::sql::statement::names_schema;
use crate::sql::tool::STORES_SCHEMA;
use crate::sql::{Fault, postgres};

/// What is said of an effect in the store's own database.
const OURS: &str = "its database is the store's own, reached by another address; write \
    `url = \"store\"`, so that the change and the burned key are one commit, or keep these tables \
    in another database";

/// What is said of a read there that names the store's tables.
const NAMED: &str = "its database is the store's own, and the schema `operators` there is the \
    store's; keep your tables in another";

/// Takes a lock that only this connection can hold, in the database that it is connected to, and says
/// its number. The server draws it.
const LOCK: &str = "SELECT lock, pg_advisory_xact_lock(lock) FROM \
    (SELECT floor(random() * 9e18)::bigint AS lock OFFSET 0) AS drawn";

/// Asks the databases of one connector, each address once.
#[derive(Debug)]
pub(crate) struct Whose {
    store: StoreAddress,
    /// Digests of the addresses that lead elsewhere: they may hold passwords.
    // A std lock: held for a look, never over an await.
    elsewhere: Mutex<HashSet<ContentDigest>>,
}

impl Whose {
    pub(crate) fn new(store: &StoreAddress) -> Self {
        Self {
            store: store.clone(),
            elsewhere: Mutex::default(),
        }
    }

    /// Refuses an effect in the store's own file. Reads are held to reading by the file's opening.
    pub(crate) fn permits_file(&self, path: &Path, statement: &Statement) -> Result<(), Fault> {
        match &self.store {
            StoreAddress::Sqlite(store) if !statement.reads && is_same_file(path, store) => {
                Err(Fault::Nothing(OURS.to_owned()))
            }
            StoreAddress::Sqlite(_) | StoreAddress::Postgres(_) | StoreAddress::Elsewhere => Ok(()),
        }
    }

    /// Refuses an effect in the store's own database on a server, and a read there of its tables.
    pub(crate) async fn permits_server(
        &self,
        url: &str,
        statement: &Statement,
    ) -> Result<(), Fault> {
        let StoreAddress::Postgres(store) = &self.store else {
            return Ok(());
        };
        let names_tables = names_schema(&statement.text, STORES_SCHEMA);
        if statement.reads && !names_tables {
            return Ok(());
        }
        let address = ContentDigest::of(url.as_bytes());
        if self.elsewhere().contains(&address) {
            return Ok(());
        }
        if is_store(url, store).await? {
            let problem = if statement.reads { NAMED } else { OURS };
            return Err(Fault::Nothing(problem.to_owned()));
        }
        self.elsewhere().insert(address);
        Ok(())
    }

    fn elsewhere(&self) -> MutexGuard<'_, HashSet<ContentDigest>> {
        // It guards no value that a panic could have left half-written.
        self.elsewhere
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether both addresses lead to one database: a lock that is held in the store's cannot be had
/// there. Locks are a database's own and need no right to any table.
async fn is_store(url: &str, store: &str) -> Result<bool, Fault> {
    let mut ours = begun(postgres::options_of_store(store)?).await?;
    let held = ours.fetch_one(LOCK).await.map_err(|error| untold(&error))?;
    let lock: i64 = held.try_get(0).map_err(|error| untold(&error))?;
    let mut theirs = begun(postgres::options(url)?).await?;
    let ask = format!("SELECT pg_try_advisory_xact_lock({lock})");
    let found = theirs.fetch_one(AssertSqlSafe(ask)).await;
    let found = found.map_err(|error| untold(&error))?;
    let is_free: bool = found.try_get(0).map_err(|error| untold(&error))?;
    // Said politely; the locks end with the connections in any case.
    drop(tokio::join!(theirs.close(), ours.close()));
    Ok(!is_free)
}

async fn begun(options: PgConnectOptions) -> Result<PgConnection, Fault> {
    let mut connection = postgres::connect(&options).await?;
    let begun = connection.execute("BEGIN").await;
    begun.map_err(|error| untold(&error))?;
    Ok(connection)
}

fn untold(error: &sqlx::Error) -> Fault {
    Fault::Nothing(format!(
        "it could not be found out whether its database is the store's own: {}",
        told(error)
    ))
}
