//! A database of a test's own on a server, and a store in it.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use operators_kernel::DurableExec;
use operators_seams::PgStore;
use sqlx::Row as _;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection};
use tokio::sync::OnceCell;

use super::url;
use crate::stores::Bench;

const ALONE_AS_BATCH: &str = include_str!("alone_as_batch.sql");

/// A connection to look around with.
pub async fn connect(url: &str) -> PgConnection {
    let place = url.split('?').next().unwrap_or(url);
    let options = PgConnectOptions::from_str(place).expect("a URL");
    let connected = PgConnection::connect_with(&options).await;
    connected.expect("connects")
}

/// Runs SQL on a connection of its own.
pub async fn run(url: &str, sql: &str) -> Vec<PgRow> {
    let mut connection = connect(url).await;
    let rows = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .fetch_all(&mut connection)
        .await;
    rows.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// The address of another database of the same server.
pub fn database_of(url: &str, database: &str) -> String {
    let (place, query) = url.split_once('?').map_or((url, ""), |(p, q)| (p, q));
    let server = place.rsplit_once('/').map_or(place, |(server, _)| server);
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{server}/{database}{mark}{query}")
}

/// A fresh database on a server, taken away with this value.
#[derive(Debug)]
pub struct Database {
    server: String,
    name: String,
}

impl Database {
    /// Makes one on the server behind `url`.
    pub async fn fresh(url: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("operators_test_{}_{count}", std::process::id());
        let sql = format!(
            "CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
        );
        run(url, &sql).await;
        Self {
            server: url.to_owned(),
            name,
        }
    }

    /// Its address.
    pub fn url(&self) -> String {
        database_of(&self.server, &self.name)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        // A runtime of its own: the test's may be the one that is ending.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let place = server.split('?').next().unwrap_or(&server);
                let options = PgConnectOptions::from_str(place).expect("a URL");
                if let Ok(mut connection) = PgConnection::connect_with(&options).await {
                    let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                    drop(
                        sqlx::raw_sql(AssertSqlSafe(sql))
                            .execute(&mut connection)
                            .await,
                    );
                }
            });
        });
        drop(dropping.join());
    }
}

/// A database of its own; every handle has connections of its own, as another process would.
#[derive(Debug)]
pub struct PgBench {
    server: Option<&'static str>,
    database: OnceCell<Database>,
    in_batches: bool,
}

impl PgBench {
    /// A database to be made on first use.
    pub fn fresh() -> Self {
        Self {
            server: url(),
            database: OnceCell::new(),
            in_batches: false,
        }
    }

    /// One whose functions for a call alone hand it to those for batches.
    pub fn in_batches() -> Self {
        Self {
            in_batches: true,
            ..Self::fresh()
        }
    }

    async fn made(&self, server: &str) -> Database {
        let database = Database::fresh(server).await;
        if self.in_batches {
            let connected = PgStore::connect(&database.url()).await;
            connected.expect("makes the schema");
            run(&database.url(), ALONE_AS_BATCH).await;
        }
        database
    }

    /// Its address.
    pub async fn url(&self) -> String {
        let server = self.server.expect("a server");
        let database = self.database.get_or_init(|| self.made(server));
        database.await.url()
    }

    /// A handle of its own type.
    pub async fn store(&self) -> PgStore {
        let connected = PgStore::connect(&self.url().await).await;
        connected.expect("connects")
    }
}

#[async_trait]
impl Bench for PgBench {
    fn missing(&self) -> Option<&str> {
        self.server
            .is_none()
            .then_some("there is no Postgres server")
    }

    async fn open(&self) -> Arc<dyn DurableExec> {
        Arc::new(self.store().await)
    }

    fn unit(&self) -> Duration {
        Duration::from_millis(250)
    }

    async fn by_hand(&self, statement: &str) -> Option<Vec<String>> {
        let rows = run(&self.url().await, statement).await;
        Some(rows.iter().map(|row| row.get(0)).collect())
    }

    async fn wait(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}
