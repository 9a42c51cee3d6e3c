//! Statements on a connection to a `SQLite` file.

use operators_kernel::{Rows, Statement, json};
use rusqlite::types::{ToSqlOutput, Value as Held, ValueRef};
use rusqlite::{Connection, ErrorCode};
use serde_json::{Map, Value, json};

use crate::{Failure, ROWS_MAX, too_many};

/// Runs one statement in whatever transaction the connection is in.
pub fn execute(connection: &Connection, statement: &Statement) -> Result<Rows, Failure> {
    let mut prepared = connection
        .prepare(&statement.text)
        .map_err(|error| failed(&error))?;
    let values = rusqlite::params_from_iter(statement.values.iter().map(Bound));
    if !statement.returns {
        let affected = prepared.execute(values).map_err(|error| failed(&error))?;
        return Ok(Rows {
            affected: u64::try_from(affected).unwrap_or(u64::MAX),
            rows: Vec::new(),
        });
    }
    let names: Vec<String> = prepared
        .column_names()
        .into_iter()
        .map(str::to_owned)
        .collect();
    let mut rows = prepared.query(values).map_err(|error| failed(&error))?;
    let mut kept = Vec::new();
    while let Some(row) = rows.next().map_err(|error| failed(&error))? {
        if kept.len() == ROWS_MAX {
            return Err(too_many());
        }
        kept.push(shown(row, &names).map_err(|error| failed(&error))?);
    }
    Ok(Rows {
        affected: u64::try_from(kept.len()).unwrap_or(u64::MAX),
        rows: kept,
    })
}

/// What an error means, by its code: a trigger may say any words.
fn failed(error: &rusqlite::Error) -> Failure {
    let said = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            Failure::Broken(said)
        }
        _ => Failure::Refused(said),
    }
}

/// A JSON value as `SQLite` keeps it; arrays and objects as their text.
struct Bound<'a>(&'a Value);

impl rusqlite::ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let held = match self.0 {
            Value::Null => Held::Null,
            Value::Bool(flag) => Held::Integer(i64::from(*flag)),
            Value::Number(number) => match number.as_i64() {
                Some(whole) => Held::Integer(whole),
                None => Held::Real(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => return Ok(ToSqlOutput::Borrowed(ValueRef::from(text.as_str()))),
            Value::Array(_) | Value::Object(_) => Held::Text(self.0.to_string()),
        };
        Ok(ToSqlOutput::Owned(held))
    }
}

fn shown(row: &rusqlite::Row<'_>, names: &[String]) -> rusqlite::Result<Value> {
    let mut fields = Map::new();
    for (at, name) in names.iter().enumerate() {
        let value = match row.get_ref(at)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => json!(number),
            ValueRef::Real(number) => json!(number),
            ValueRef::Text(text) => json!(String::from_utf8_lossy(text)),
            ValueRef::Blob(bytes) => json!(json::hex(bytes)),
        };
        fields.insert(name.clone(), value);
    }
    Ok(Value::Object(fields))
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn a_failing_disk_or_file_is_no_answer_to_a_statement() {
        for code in [
            ffi::SQLITE_IOERR_READ,
            ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_CORRUPT,
        ] {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            assert!(matches!(failed(&error), Failure::Broken(_)), "{code}");
        }
        for code in [
            ffi::SQLITE_CONSTRAINT_TRIGGER,
            ffi::SQLITE_FULL,
            ffi::SQLITE_BUSY,
        ] {
            let words = Some("disk I/O error".to_owned());
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), words);
            assert!(matches!(failed(&error), Failure::Refused(_)), "{code}");
        }
    }
}
