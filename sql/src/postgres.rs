//! Statements on a connection to a Postgres server, and what an error there means.

use operators_kernel::{Rows, Statement};
use serde_json::Value;
use sqlx::encode::{Encode, IsNull};
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{
    PgArgumentBuffer, PgArguments, PgConnectOptions, PgConnection, PgRow, PgTypeInfo,
};
use sqlx::query::Query;
use sqlx::{Postgres, Row as _, Type};
use std::net::IpAddr;

use crate::{Failure, ROWS_MAX, too_many};

/// Runs one statement in whatever transaction the connection is in.
pub async fn execute(
    connection: &mut PgConnection,
    statement: &Statement,
) -> Result<Rows, Failure> {
    if !statement.returns {
        let ran = bound(&statement.text, &statement.values)?
            .execute(&mut *connection)
            .await;
        return Ok(Rows {
            affected: ran.map_err(|error| failed(&error))?.rows_affected(),
            rows: Vec::new(),
        });
    }
    // The database writes its rows as JSON itself: it knows its own types.
    let counted = if statement.reads {
        format!(
            "SELECT count(*) AS n, coalesce(json_agg(t), '[]')::text AS rows FROM (SELECT * \
             FROM ({}) AS q LIMIT {}) AS t",
            statement.text,
            ROWS_MAX + 1
        )
    } else {
        format!(
            "WITH t AS ({}) SELECT count(*) AS n, coalesce(json_agg(t), '[]')::text AS rows \
             FROM t",
            statement.text
        )
    };
    let row = bound(&counted, &statement.values)?
        .fetch_one(&mut *connection)
        .await;
    rows(&row.map_err(|error| failed(&error))?)
}

fn rows(row: &PgRow) -> Result<Rows, Failure> {
    let count: i64 = row.try_get("n").map_err(|error| failed(&error))?;
    let text: String = row.try_get("rows").map_err(|error| failed(&error))?;
    let parsed = serde_json::from_str(&text);
    let rows: Vec<Value> = parsed.map_err(|error| Failure::Refused(error.to_string()))?;
    if rows.len() > ROWS_MAX {
        return Err(too_many());
    }
    Ok(Rows {
        affected: u64::try_from(count).unwrap_or(0),
        rows,
    })
}

/// Binds every value by its JSON type; arrays and objects as JSON. The statement has no name at the
/// server, which a pooler in between might not find again.
fn bound<'q>(text: &str, values: &'q [Value]) -> Result<Query<'q, Postgres, PgArguments>, Failure> {
    // Compiled from the configuration: no value of a call is ever in it.
    let mut query = sqlx::query(sqlx::AssertSqlSafe(text.to_owned())).persistent(false);
    for value in values {
        query = match value {
            Value::Null => query.bind(Nothing),
            Value::Bool(flag) => query.bind(*flag),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(whole), _) => query.bind(whole),
                (None, Some(real)) => query.bind(real),
                (None, None) => return Err(Failure::Refused("a number has no value".to_owned())),
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

/// What an error in the middle of a transaction means.
pub fn failed(error: &sqlx::Error) -> Failure {
    match error {
        sqlx::Error::Database(said) => {
            if is_over(&said.code().unwrap_or_default()) {
                Failure::Broken(told(error))
            } else {
                Failure::Refused(told(error))
            }
        }
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
            Failure::Broken(told(error))
        }
        _ => Failure::Refused(told(error)),
    }
}

/// Whether an error of this `SQLSTATE` ends the connection, or leaves open what was done on it: the
/// server goes away, ends a transaction that stood still for too long (25P03, 25P04), or does not
/// know itself (40003). A cancelled statement is not that.
pub fn is_over(code: &str) -> bool {
    code.starts_with("08") || code.starts_with("57P") || matches!(code, "25P03" | "25P04" | "40003")
}

/// The database's own sentence, without the address.
pub fn told(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(said) => said.message().to_owned(),
        sqlx::Error::Io(error) => format!("no connection: {error}"),
        other => other.to_string(),
    }
}

/// What never leaves the machine needs no TLS.
pub fn is_this_machine(options: &PgConnectOptions) -> bool {
    let host = options.get_host();
    options.get_socket().is_some()
        || host.starts_with('/')
        || host == "localhost"
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
