//! Opening: which servers are refused, and how the schema grows.

use std::sync::Arc;

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::lines::{IfBroken, Line, Lines, Tries};
use super::trouble::Trouble;

/// Every step the schema took, oldest first; never edited, only added to.
const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/postgres/0001_tables.sql"),
    include_str!("../../migrations/postgres/0002_claim_and_settle.sql"),
    include_str!("../../migrations/postgres/0003_pages.sql"),
    include_str!("../../migrations/postgres/0004_ledger.sql"),
    include_str!("../../migrations/postgres/0005_notes.sql"),
    include_str!("../../migrations/postgres/0006_settled_pages.sql"),
    include_str!("../../migrations/postgres/0007_log.sql"),
    include_str!("../../migrations/postgres/0008_retention.sql"),
    include_str!("../../migrations/postgres/0009_lean_claims.sql"),
    include_str!("../../migrations/postgres/0010_lean_batches.sql"),
    include_str!("../../migrations/postgres/0011_log_by_numbers.sql"),
    include_str!("../../migrations/postgres/0012_columns_by_place.sql"),
    include_str!("../../migrations/postgres/0013_no_key_is_written_over.sql"),
];

/// The oldest server the functions were tried on.
const VERSION_MIN: i64 = 140_000;

const SERVER: &str = "SELECT current_setting('server_version_num')::bigint, \
    current_setting('fsync'), current_setting('server_encoding'), pg_is_in_recovery(), \
    to_regprocedure('operators.schema_version()') IS NOT NULL";

/// Refuses what cannot be trusted, and brings the schema to this version.
pub(super) async fn open(lines: &Arc<Lines>) -> Result<(), Trouble> {
    let mut line = lines.take().await?;
    let rows = line.rows(SERVER.to_owned()).await?;
    let server = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    check_server(server, lines.address.allows_unsafe_fsync)?;
    let mut version = 0;
    if server.try_get::<bool, _>(4)? {
        version = schema_version(&mut line).await?;
    }
    line.give_back();
    if version < MIGRATIONS.len() {
        migrate(lines).await?;
    }
    let mut line = lines.take().await?;
    lines.identify(&mut line).await?;
    line.give_back();
    Ok(())
}

fn check_server(server: &PgRow, allows_unsafe_fsync: bool) -> Result<(), Trouble> {
    let refuse = |problem: &str| Err(Trouble::Unusable(problem.to_owned()));
    if server.try_get::<i64, _>(0)? < VERSION_MIN {
        return refuse("the server is older than PostgreSQL 14");
    }
    if server.try_get::<String, _>(1)? != "on" && !allows_unsafe_fsync {
        return refuse(
            "the server runs with `fsync = off`: what it acknowledges can be lost, and a burned \
             key would run again. Set `fsync = on` and restart it",
        );
    }
    if server.try_get::<String, _>(2)? != "UTF8" {
        return refuse("the database is not encoded as UTF8; make one with `ENCODING 'UTF8'`");
    }
    if server.try_get::<bool, _>(3)? {
        return refuse("it is a standby; give the address of the primary");
    }
    Ok(())
}

async fn schema_version(line: &mut Line) -> Result<usize, Trouble> {
    let rows = line
        .rows("SELECT operators.schema_version()".to_owned())
        .await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let version = row.try_get::<Option<i32>, _>(0)?.unwrap_or(0);
    let known = MIGRATIONS.len();
    match usize::try_from(version) {
        Ok(version) if version <= known => Ok(version),
        _ => Err(Trouble::Unusable(format!(
            "a newer version wrote it (schema {version}, this one knows {known}); upgrade operators"
        ))),
    }
}

/// One process migrates, the others wait for it and find it done.
async fn migrate(lines: &Arc<Lines>) -> Result<(), Trouble> {
    let mut tries = Tries::new(IfBroken::AskAgain);
    loop {
        let mut line = lines.take().await?;
        match migrate_on(&mut line).await {
            Ok(()) => {
                line.give_back();
                return Ok(());
            }
            Err(trouble) => tries.consider(trouble, &line).await?,
        }
    }
}

async fn migrate_on(line: &mut Line) -> Result<(), Trouble> {
    // Two that make the schema at once collide on a unique index; the loser tries again. From then
    // on the table's lock keeps them apart.
    line.rows(
        "BEGIN; SET LOCAL client_min_messages = warning; \
         CREATE SCHEMA IF NOT EXISTS operators; \
         CREATE TABLE IF NOT EXISTS operators.migration (version integer PRIMARY KEY, \
           at timestamptz NOT NULL DEFAULT clock_timestamp()); \
         LOCK TABLE operators.migration IN ACCESS EXCLUSIVE MODE"
            .to_owned(),
    )
    .await?;
    let rows = line
        .rows("SELECT coalesce(max(version), 0) FROM operators.migration".to_owned())
        .await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let done = usize::try_from(row.try_get::<i32, _>(0)?).unwrap_or(usize::MAX);
    for (number, script) in MIGRATIONS.iter().enumerate().skip(done) {
        let number = number + 1;
        let text = format!("{script}\nINSERT INTO operators.migration (version) VALUES ({number})");
        line.rows(text).await.map_err(|trouble| match trouble {
            Trouble::Unusable(problem) => {
                Trouble::Unusable(format!("migration {number}: {problem}"))
            }
            trouble => trouble,
        })?;
    }
    line.rows("SET LOCAL synchronous_commit = on; COMMIT".to_owned())
        .await?;
    Ok(())
}
