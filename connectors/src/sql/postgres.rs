//! Statements in a Postgres database: one connection and one transaction each.
//!
//! Owns the transaction, until when the server may commit it, and what a lost connection means. A connection is never shared or kept:
//! a caller may leave at any moment, and what it leaves must be rolled back by the server, not
//! found by the next one.

use std::time::Duration;

use operators_kernel::Rows;
use operators_sql::Failure;
use operators_sql::postgres::{execute, is_over, is_this_machine, told};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{Connection as _, Executor as _};

use crate::sql::{Fault, Job};

/// What of a store's URL is the store's own, and no server's client knows.
const OF_STORE: [&str; 2] = ["connections=", "allow_unsafe_fsync="];

/// How an address begins. The parser would take any other for this machine's own server.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// How to reach the database of this address.
pub(crate) fn options(url: &str) -> Result<PgConnectOptions, Fault> {
    let read = SCHEMES.iter().any(|scheme| url.starts_with(scheme));
    let read = read.then(|| url.parse().ok()).flatten();
    // The address is never repeated: it may hold a password.
    read.ok_or_else(|| {
        let problem = "the database's address is not `postgres://USER:PASSWORD@HOST/DATABASE`";
        Fault::Nothing(problem.to_owned())
    })
}

/// How to reach the store's database: as guarded as the store reaches it.
pub(crate) fn options_of_store(url: &str) -> Result<PgConnectOptions, Fault> {
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let is_ours = |part: &&str| !OF_STORE.iter().any(|own| part.starts_with(own));
    let parts: Vec<&str> = query.split('&').filter(is_ours).collect();
    let found = options(&format!("{place}?{}", parts.join("&")))?;
    let says = parts.iter().any(|part| part.starts_with("sslmode="));
    if says || std::env::var_os("PGSSLMODE").is_some() || is_this_machine(&found) {
        return Ok(found);
    }
    Ok(found.ssl_mode(PgSslMode::VerifyFull))
}

/// Runs one piece of work.
pub(crate) async fn run(options: PgConnectOptions, job: &Job) -> Result<Rows, Fault> {
    let mut connection = connect(&options).await?;
    simply(&mut connection, begin(job))
        .await
        .map_err(|error| nothing(&error))?;
    job.may_run()?;
    // Whatever fails from here to the commit is undone by the server as the connection ends.
    let ran = execute(&mut connection, &job.statement).await;
    let ran = ran.map_err(Failure::into_words);
    let done = ran.and_then(|rows| job.expected(rows));
    let done = done.map_err(Fault::Nothing)?;
    // The statement may have taken long, or the process stood still: it is undone then.
    let commit = commit(job)?;
    job.may_run()?;
    match simply(&mut connection, commit).await {
        Ok(()) => {
            // Said politely; the effect stands either way.
            drop(connection.close().await);
            Ok(done)
        }
        // The server's own word that it did not commit, unless it went away with it: it may say so
        // of a commit that is on disk.
        Err(error) => {
            let said = error.as_database_error();
            let code = said.map(|said| said.code().unwrap_or_default());
            let is_sure = code.is_some_and(|code| code == STOOD_STILL || !is_over(&code));
            Err(if is_sure {
                nothing(&error)
            } else {
                Fault::Unsure(told(&error))
            })
        }
    }
}

/// How the server says that it ended a transaction between two statements, before anything that came
/// later.
const STOOD_STILL: &str = "25P03";

/// The parts of the time after the deadline: one for a commit that is late, one for what the clocks of
/// two machines disagree about meanwhile, and two for the commit itself.
const LANDING_PARTS: u32 = 4;

/// The part of the call's time that stands in where hardly any time is left after its deadline.
const DEADLINE_PARTS: u32 = 20;

/// How long the server lets the transaction stand still between two statements.
///
/// INVARIANT (commit-in-time): what commits has committed before deadline and `max_land` have passed,
/// whatever became of this process. It looks at the deadline with the statement's answer in its
/// hands. The server has stood still since before that look, and ends the transaction if the commit
/// does not come within this time; a commit that does come, it stops at what [`commit`] says.
fn idle(job: &Job) -> Duration {
    let part = job.max_land / LANDING_PARTS;
    part.max(job.statement.deadline / DEADLINE_PARTS)
}

/// Settings hold for this transaction alone, also where a pooler gives its connection to others later.
fn begin(job: &Job) -> String {
    let within = millis(job.statement.deadline);
    if job.statement.reads {
        return format!("BEGIN READ ONLY; SET LOCAL statement_timeout = {within}");
    }
    // An acknowledged commit is on disk, whatever the database's default is.
    format!(
        "BEGIN READ WRITE; SET LOCAL statement_timeout = {within}; \
         SET LOCAL idle_in_transaction_session_timeout = {}; SET LOCAL synchronous_commit = on",
        millis(idle(job))
    )
}

/// The commit, and how long it may take: triggers run in it.
fn commit(job: &Job) -> Result<String, Fault> {
    if job.statement.reads {
        return Ok("COMMIT".to_owned());
    }
    // INVARIANT (commit-in-time): it arrives at most `idle` from now, and as much is kept.
    let left = job.left().saturating_add(job.max_land);
    let left = left.saturating_sub(2 * idle(job));
    if left.is_zero() {
        let problem = "too little time was left to commit it, and it was rolled back";
        return Err(Fault::Nothing(problem.to_owned()));
    }
    let within = millis(left);
    Ok(format!("SET LOCAL statement_timeout = {within}; COMMIT"))
}

/// A time as the server takes it, which knows no longer one; zero would mean that there is no bound.
fn millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX).max(1)
}

/// Statements without values, in one message.
async fn simply(connection: &mut PgConnection, statements: String) -> Result<(), sqlx::Error> {
    let ran = connection.execute(sqlx::AssertSqlSafe(statements)).await;
    ran.map(drop)
}

/// A connection; the error says where none was made.
pub(crate) async fn connect(options: &PgConnectOptions) -> Result<PgConnection, Fault> {
    let connected = PgConnection::connect_with(options).await;
    connected.map_err(|error| {
        let host = match options.get_socket() {
            Some(folder) => folder.display().to_string(),
            None => options.get_host().to_owned(),
        };
        let port = options.get_port();
        let why = match &error {
            sqlx::Error::Io(error) => error.to_string(),
            _ => told(&error),
        };
        Fault::Nothing(format!("no connection to {host}:{port}: {why}"))
    })
}

fn nothing(error: &sqlx::Error) -> Fault {
    Fault::Nothing(told(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parser takes a text without a host for the server of this machine: a secret that held a
    /// file's address, or nothing, went there.
    #[test]
    fn an_address_that_names_no_server_is_not_this_machines() {
        for address in ["", "ledger.db", "sqlite:ledger.db", "mysql://h/d", "host=h"] {
            let refused = options(address).map_err(|fault| format!("{fault:?}"));
            let fault = refused.map(|_| "taken").expect_err(address);
            assert!(fault.contains("is not `postgres://"), "{fault}");
        }
        assert!(options("postgres://u:p@h/d").is_ok());
        assert!(options("postgresql://h/d?sslmode=require").is_ok());
    }
}
