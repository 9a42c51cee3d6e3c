//! Statements in a Postgres database: one connection and one transaction each.
//!
//! Owns the transaction and what a lost connection means. A connection is never shared or kept:
//! a caller may leave at any moment, and what it leaves must be rolled back by the server, not
//! found by the next one.

use serde_json::Value;
use sqlx::encode::{Encode, IsNull};
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{
    PgArgumentBuffer, PgArguments, PgConnectOptions, PgConnection, PgRow, PgTypeInfo,
};
use sqlx::query::Query;
use sqlx::{Connection as _, Executor as _, Postgres, Row as _, Type};

use crate::sql::{Done, Fault, ROWS_MAX, Work};

/// Runs one piece of work.
pub(crate) async fn run(url: &str, work: &Work) -> Result<Done, Fault> {
    let options: PgConnectOptions = url
        .parse()
        .map_err(|_| Fault::Nothing("the database's address cannot be read".to_owned()))?;
    let connected = PgConnection::connect_with(&options).await;
    let mut connection = connected.map_err(|error| nothing(&error))?;
    begin(&mut connection, work).await?;
    // Whatever fails from here to the commit is undone by the server as the connection ends.
    let done = execute(&mut connection, work).await?;
    match connection.execute("COMMIT").await {
        Ok(_) => {
            // Said politely; the effect stands either way.
            drop(connection.close().await);
            Ok(done)
        }
        // The server's own word that it did not commit.
        Err(error @ sqlx::Error::Database(_)) => Err(nothing(&error)),
        Err(error) => Err(Fault::Unsure(told(&error))),
    }
}

async fn begin(connection: &mut PgConnection, work: &Work) -> Result<(), Fault> {
    let access = if work.reads {
        "READ ONLY"
    } else {
        "READ WRITE"
    };
    let millis = work.deadline.as_millis().max(1);
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

async fn execute(connection: &mut PgConnection, work: &Work) -> Result<Done, Fault> {
    let done = if work.returns {
        // The database writes its rows as JSON itself: it knows its own types.
        let counted = if work.reads {
            format!(
                "SELECT count(*) AS n, coalesce(json_agg(t), '[]')::text AS rows FROM (SELECT * \
                 FROM ({}) AS q LIMIT {}) AS t",
                work.text,
                ROWS_MAX + 1
            )
        } else {
            format!(
                "WITH t AS ({}) SELECT count(*) AS n, coalesce(json_agg(t), '[]')::text AS rows \
                 FROM t",
                work.text
            )
        };
        let row = bound(&counted, &work.values)?
            .fetch_one(&mut *connection)
            .await;
        rows(&row.map_err(|error| nothing(&error))?)?
    } else {
        let ran = bound(&work.text, &work.values)?
            .execute(&mut *connection)
            .await;
        Done {
            affected: ran.map_err(|error| nothing(&error))?.rows_affected(),
            rows: Vec::new(),
        }
    };
    match work.expect_rows {
        Some(expected) if expected != done.affected => Err(Fault::Nothing(format!(
            "{} rows, but `expect_rows` is {expected}; rolled back",
            done.affected
        ))),
        _ => Ok(done),
    }
}

fn rows(row: &PgRow) -> Result<Done, Fault> {
    let count: i64 = row.try_get("n").map_err(|error| nothing(&error))?;
    let text: String = row.try_get("rows").map_err(|error| nothing(&error))?;
    let parsed = serde_json::from_str(&text);
    let rows: Vec<Value> = parsed.map_err(|error| Fault::Nothing(error.to_string()))?;
    if rows.len() > ROWS_MAX {
        return Err(Fault::Nothing(format!("more than {ROWS_MAX} rows")));
    }
    Ok(Done {
        affected: u64::try_from(count).unwrap_or(0),
        rows,
    })
}

/// Binds every value by its JSON type; arrays and objects as JSON.
fn bound<'q>(text: &str, values: &'q [Value]) -> Result<Query<'q, Postgres, PgArguments>, Fault> {
    // Compiled from the configuration: no value of a call is ever in it.
    let mut query = sqlx::query(sqlx::AssertSqlSafe(text.to_owned()));
    for value in values {
        query = match value {
            Value::Null => query.bind(Nothing),
            Value::Bool(flag) => query.bind(*flag),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(whole), _) => query.bind(whole),
                (None, Some(real)) => query.bind(real),
                (None, None) => return Err(Fault::Nothing("a number has no value".to_owned())),
            },
            Value::String(text) => query.bind(text.as_str()),
            Value::Array(_) | Value::Object(_) => query.bind(value.to_string()),
        };
    }
    Ok(query)
}

/// `NULL` of whatever type the statement wants there.
struct Nothing;

impl Type<Postgres> for Nothing {
    fn type_info() -> PgTypeInfo {
        // Zero leaves the type to the server.
        PgTypeInfo::with_oid(Oid(0))
    }
}

impl Encode<'_, Postgres> for Nothing {
    fn encode_by_ref(&self, _buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        Ok(IsNull::Yes)
    }
}

fn nothing(error: &sqlx::Error) -> Fault {
    Fault::Nothing(told(error))
}

/// The database's own sentence, without the address.
fn told(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(said) => said.message().to_owned(),
        sqlx::Error::Io(error) => format!("no connection: {error}"),
        other => other.to_string(),
    }
}
