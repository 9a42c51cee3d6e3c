//! Statements in a Postgres database: one connection and one transaction each.
//!
//! Owns the transaction and what a lost connection means. A connection is never shared or kept:
//! a caller may leave at any moment, and what it leaves must be rolled back by the server, not
//! found by the next one.

use operators_kernel::{Rows, Statement};
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
    let connected = PgConnection::connect_with(&options).await;
    let mut connection = connected.map_err(|error| nothing(&error))?;
    begin(&mut connection, &job.statement).await?;
    job.may_run()?;
    // Whatever fails from here to the commit is undone by the server as the connection ends.
    let ran = execute(&mut connection, &job.statement).await;
    let ran = ran.map_err(Failure::into_words);
    let done = ran.and_then(|rows| job.expected(rows));
    let done = done.map_err(Fault::Nothing)?;
    match connection.execute("COMMIT").await {
        Ok(_) => {
            // Said politely; the effect stands either way.
            drop(connection.close().await);
            Ok(done)
        }
        // The server's own word that it did not commit, unless it went away with it: it may say so
        // of a commit that is on disk.
        Err(error) => {
            let said = error.as_database_error();
            let is_sure = said.is_some_and(|said| !is_over(&said.code().unwrap_or_default()));
            Err(if is_sure {
                nothing(&error)
            } else {
                Fault::Unsure(told(&error))
            })
        }
    }
}

async fn begin(connection: &mut PgConnection, statement: &Statement) -> Result<(), Fault> {
    let access = if statement.reads {
        "READ ONLY"
    } else {
        "READ WRITE"
    };
    let millis = statement.deadline.as_millis().max(1);
    let statements = [
        format!("BEGIN {access}"),
        format!("SET LOCAL statement_timeout = {millis}"),
        // An acknowledged commit is on disk, whatever the database's default is.
        "SET LOCAL synchronous_commit = on".to_owned(),
    ];
    for statement in statements {
        let ran = connection.execute(sqlx::AssertSqlSafe(statement)).await;
        ran.map_err(|error| nothing(&error))?;
    }
    Ok(())
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
