//! Opening: which servers are refused, and how the schema grows.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::lines::{IfBroken, Line, Lines, Tries};
use super::trouble::Trouble;

/// The schema that this program needs. Whoever changes a table or a function takes the next number,
/// or databases that have this one already keep what they have.
const SCHEMA: i32 = 18;

/// The oldest schema that can be brought to this one; those before it were never released.
const SCHEMA_MIN: i32 = 13;

/// Every step the tables took, oldest first, with the schema it belongs to; never edited, only added
/// to.
const TABLES: &[(i32, &str)] = &[
    (
        13,
        include_str!("../../migrations/postgres/0001_tables.sql"),
    ),
    (
        16,
        include_str!("../../migrations/postgres/0002_receipts_by_key.sql"),
    ),
];

/// Every function, as this schema has it: all are replaced on the way to it, so one is changed in the
/// only place where it stands.
///
/// `CREATE OR REPLACE` cannot change arguments or the columns of an answer. That takes another
/// function under another name; processes of the version before go on calling the old one, which a
/// later version drops in `dropped.sql`.
const FUNCTIONS: &[&str] = &[
    include_str!("../../migrations/postgres/functions/dropped.sql"),
    include_str!("../../migrations/postgres/functions/opening.sql"),
    include_str!("../../migrations/postgres/functions/entering.sql"),
    include_str!("../../migrations/postgres/functions/claims.sql"),
    include_str!("../../migrations/postgres/functions/settlements.sql"),
    include_str!("../../migrations/postgres/functions/records.sql"),
    include_str!("../../migrations/postgres/functions/pages.sql"),
    include_str!("../../migrations/postgres/functions/notes.sql"),
    include_str!("../../migrations/postgres/functions/turns.sql"),
    include_str!("../../migrations/postgres/functions/sessions.sql"),
    include_str!("../../migrations/postgres/functions/redaction.sql"),
    include_str!("../../migrations/postgres/functions/ledger.sql"),
    include_str!("../../migrations/postgres/functions/log.sql"),
    include_str!("../../migrations/postgres/functions/append_only.sql"),
    include_str!("../../migrations/postgres/functions/retention.sql"),
    include_str!("../../migrations/postgres/functions/rights.sql"),
];

/// How long one script may take: an index over all receipts is made in the time that reading them
/// takes.
const STEP_MAX: Duration = Duration::from_hours(1);

/// The oldest server the functions were tried on.
const SERVER_MIN: i64 = 140_000;

const SERVER: &str = "SELECT current_setting('server_version_num')::bigint, \
    current_setting('fsync'), current_setting('server_encoding'), pg_is_in_recovery(), \
    to_regprocedure('operators.schema_version()') IS NOT NULL, \
    current_setting('transaction_isolation'), quote_ident(session_user)";

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
    if version < SCHEMA {
        migrate(lines).await?;
    }
    let mut line = lines.take().await?;
    lines.identify(&mut line).await?;
    line.give_back();
    Ok(())
}

fn check_server(server: &PgRow, allows_unsafe_fsync: bool) -> Result<(), Trouble> {
    let refuse = |problem: &str| Err(Trouble::Unusable(problem.to_owned()));
    if server.try_get::<i64, _>(0)? < SERVER_MIN {
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
    let (isolation, role) = (
        server.try_get::<String, _>(5)?,
        server.try_get::<String, _>(6)?,
    );
    // The functions refuse it too: a default can change after this, and a pooler may hand over a
    // connection that never was asked.
    if isolation != "read committed" {
        return refuse(&format!(
            "its transactions begin as `{isolation}`, where a claim can miss a pause and the log a \
             receipt; say `ALTER ROLE {role} SET default_transaction_isolation = 'read \
             committed'`, or undo that setting where it was made: for the database, the server or \
             in the URL"
        ));
    }
    Ok(())
}

async fn schema_version(line: &mut Line) -> Result<i32, Trouble> {
    let rows = line
        .rows("SELECT operators.schema_version()".to_owned())
        .await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    upgradable(row.try_get::<Option<i32>, _>(0)?.unwrap_or(0))
}

/// Refuses a schema that cannot be brought to this one; 0 is none yet.
fn upgradable(version: i32) -> Result<i32, Trouble> {
    match version {
        0 | SCHEMA_MIN..=SCHEMA => Ok(version),
        ..SCHEMA_MIN => Err(Trouble::Unusable(format!(
            "its schema is of a version before the first release (schema {version}, the oldest \
             that can be upgraded is {SCHEMA_MIN}); open it once with a build that makes schema \
             {SCHEMA_MIN}, or use a new database, which knows of no burned key"
        ))),
        _ => Err(Trouble::Unusable(format!(
            "a newer version wrote it (schema {version}, this one knows {SCHEMA}); upgrade operators"
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
    // on the table's lock keeps them apart. Whoever waits for the lock of a table holds up everybody
    // behind it, a backup for its whole length, and the server would wait on behind our back: so
    // waiting is short, and work as long as we listen.
    line.rows(format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; \
         SET LOCAL lock_timeout = '5s'; SET LOCAL statement_timeout = {}; \
         SET LOCAL client_min_messages = warning; SET LOCAL check_function_bodies = off; \
         CREATE SCHEMA IF NOT EXISTS operators; \
         CREATE TABLE IF NOT EXISTS operators.migration (version integer PRIMARY KEY, \
           at timestamptz NOT NULL DEFAULT clock_timestamp()); \
         LOCK TABLE operators.migration IN ACCESS EXCLUSIVE MODE",
        STEP_MAX.as_millis()
    ))
    .await
    .map_err(in_upgrade)?;
    let rows = line
        .rows("SELECT coalesce(max(version), 0) FROM operators.migration".to_owned())
        .await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let recorded = upgradable(row.try_get(0)?)?;
    if recorded < SCHEMA {
        for script in steps_from(recorded) {
            let done = line.rows_within(STEP_MAX, script.to_owned()).await;
            done.map_err(in_upgrade)?;
        }
        line.rows(format!(
            "INSERT INTO operators.migration (version) VALUES ({SCHEMA})"
        ))
        .await?;
    }
    line.rows("SET LOCAL synchronous_commit = on; COMMIT".to_owned())
        .await?;
    Ok(())
}

/// What brings a schema of that version to this one. Functions first: a trigger cannot be made before
/// its function, while functions need no table until they run; they are not checked when they are
/// made.
fn steps_from(recorded: i32) -> impl Iterator<Item = &'static str> {
    let ahead = TABLES
        .iter()
        .filter(move |(version, _)| recorded < *version);
    let functions = FUNCTIONS.iter().copied();
    functions.chain(ahead.map(|(_, step)| *step))
}

fn in_upgrade(trouble: Trouble) -> Trouble {
    match trouble {
        Trouble::Unusable(problem) => {
            Trouble::Unusable(format!("on the way to schema {SCHEMA}: {problem}"))
        }
        Trouble::Unavailable(problem) => {
            Trouble::Unavailable(format!("on the way to schema {SCHEMA}: {problem}"))
        }
        trouble => trouble,
    }
}

#[cfg(test)]
mod tests {
    use operators_kernel::ContentDigest;

    use super::*;

    /// Of every script of the schema that has the number [`SCHEMA`].
    const SCRIPTS: &str = "sha256:e9ffb932bc66e8fd0541f6bd9f383fba62f8d91c0be73f188088ed67f9b1fe33";

    /// A database that has the number keeps the functions it has, whatever stands in the files.
    #[test]
    fn whoever_changes_the_schema_takes_the_next_number() {
        let scripts: String = steps_from(0).collect();
        let found = ContentDigest::of(scripts.as_bytes()).text();
        assert_eq!(
            found, SCRIPTS,
            "the scripts of schema {SCHEMA} changed: if any database has it, give `SCHEMA` the next \
             number; then note their digest here"
        );
    }
}
