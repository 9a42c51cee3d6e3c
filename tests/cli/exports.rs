//! `receipts export` for spreadsheets and analysts: CSV, Parquet, and files that are whole.

use std::process::Command;

use operators::Receipt;
use operators_tests::duckdb;
use serde_json::{Value, json};

use crate::support::{Project, hold};
use crate::vendor::{Answer, Vendor};

/// What a spreadsheet would run, and what would look like lines of its own.
const FORMULA: &str = "=HYPERLINK(\"http://evil\",\"x\")";
const FORGED: &str = "no\r\nrc_forged,proposal,\u{1b}[2J,\"ok\"\nend";

/// A failure with forged lines in it, and one whose key is a formula.
fn project() -> (Project, Vendor) {
    let vendor = Vendor::start(|request| match &request.body {
        body if body.contains("bad") => Answer::Text(422, FORGED.to_owned()),
        _ => Answer::Json(200, json!({"id": FORMULA}).to_string()),
    });
    let project = Project::with(&vendor.config());
    let mut formula = hold("SO-1");
    formula["idempotency_key"] = json!(FORMULA);
    formula["value"] = json!(-12.5);
    formula["args"]["say"] = json!("a,\"b\"\nc");
    project.plan(&json!([formula, hold("bad")])).ended(4);
    (project, vendor)
}

/// Rows as RFC 4180 has them, by a reader of our own.
fn rows(text: &str) -> Vec<Vec<String>> {
    let mut rows = vec![vec![String::new()]];
    let mut quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        let row = rows.last_mut().expect("a row");
        let cell = row.last_mut().expect("a cell");
        match c {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                cell.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(String::new()),
            '\r' if !quoted => {
                assert_eq!(characters.next(), Some('\n'), "CRLF");
                rows.push(vec![String::new()]);
            }
            c => cell.push(c),
        }
    }
    assert_eq!(rows.pop(), Some(vec![String::new()]), "it ends with a line");
    rows
}

fn cell<'a>(rows: &'a [Vec<String>], row: usize, name: &str) -> &'a str {
    let place = rows[0].iter().position(|column| column == name);
    &rows[row][place.unwrap_or_else(|| panic!("no column `{name}`"))]
}

#[test]
fn csv_has_a_header_and_a_row_a_receipt_and_nothing_acts_or_hides() {
    let (project, _vendor) = project();
    let said = project
        .run(&["receipts", "export", "--format", "csv"])
        .ended(0);
    // Whoever reads it line by line sees as many lines as there are receipts.
    assert_eq!(said.stdout.lines().count(), 3, "{said:#?}");
    let rows = rows(&said.stdout);
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    let receipts: Vec<Receipt> = project.receipts();
    assert_eq!(cell(&rows, 1, "receipt_id"), receipts[0].receipt_id);
    assert_eq!(cell(&rows, 1, "idempotency_key"), format!("'{FORMULA}"));
    assert_eq!(cell(&rows, 1, "value"), "-12.5", "a number is no formula");
    assert_eq!(cell(&rows, 1, "ok"), "true");
    assert_eq!(cell(&rows, 2, "effect_id"), "", "null is empty");
    assert_eq!(
        cell(&rows, 2, "settled_at"),
        receipts[1].settled_at.to_string()
    );
    let args: Value = serde_json::from_str(cell(&rows, 1, "args")).expect("JSON");
    assert_eq!(args["say"], "a,\"b\"\nc");
    for row in &rows[1..] {
        for text in row {
            let acts = text.starts_with(['=', '+', '@', '\t', '\r']);
            assert!(!acts && !text.contains(char::is_control), "{text:?}");
        }
    }
}

#[test]
fn raw_csv_keeps_every_value_as_it_is() {
    let (project, _vendor) = project();
    let said = project
        .run(&["receipts", "export", "--format", "csv", "--raw"])
        .ended(0);
    let rows = rows(&said.stdout);
    let receipts = project.receipts();
    assert_eq!(rows.len(), 3);
    assert_eq!(cell(&rows, 1, "idempotency_key"), FORMULA);
    assert_eq!(Some(cell(&rows, 2, "error")), receipts[1].error.as_deref());
    project
        .run(&["receipts", "export", "--raw"])
        .ended(1)
        .tells("`--raw` is for `--format csv`");
}

/// Prints the columns with their types, then every row, as JSON.
const READ: &str = "
import duckdb, json, sys
found = duckdb.connect()
found.execute(\"SET TimeZone = 'UTC'\")
file = sys.argv[1]
types = found.execute('DESCRIBE SELECT * FROM read_parquet(?)', [file]).fetchall()
columns = '* REPLACE (settled_at::VARCHAR AS settled_at, proposed_at::VARCHAR AS proposed_at)'
rows = found.execute(f'SELECT {columns} FROM read_parquet(?) ORDER BY receipt_id', [file])
names = [column[0] for column in rows.description]
rows = [dict(zip(names, map(lambda v: v if v is None or isinstance(v, (int, float, bool)) else str(v), row))) for row in rows.fetchall()]
print(json.dumps({'types': {name: kind for name, kind, *_ in types}, 'rows': rows}))
";

#[test]
fn parquet_is_read_back_by_another_reader_with_its_types() {
    let (project, _vendor) = project();
    let args = [
        "receipts",
        "export",
        "--format",
        "parquet",
        "--output",
        "out.parquet",
    ];
    let said = project.run(&args).ended(0);
    assert_eq!(said.stdout, "");
    assert!(said.stderr.contains("{\"next\":\"newer:2\"}"), "{said:#?}");
    let Some(python) = duckdb::python() else {
        return;
    };
    let read = Command::new(python)
        .args(["-c", READ, "out.parquet"])
        .current_dir(project.dir())
        .output()
        .expect("python starts");
    assert!(read.status.success(), "{read:?}");
    let told: Value = serde_json::from_slice(&read.stdout).expect("JSON");
    for (column, kind) in [
        ("settled_at", "TIMESTAMP WITH TIME ZONE"),
        ("generation", "BIGINT"),
        ("ok", "BOOLEAN"),
        ("value", "DOUBLE"),
        ("error", "VARCHAR"),
        ("args", "JSON"),
    ] {
        assert_eq!(told["types"][column], kind, "{column}: {told:#}");
    }
    let receipts = project.receipts();
    let rows = told["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), receipts.len());
    for (row, receipt) in rows.iter().zip(&receipts) {
        assert_eq!(row["receipt_id"], receipt.receipt_id.as_str());
        assert_eq!(row["ok"], receipt.ok);
        assert_eq!(row["idempotency_key"], receipt.idempotency_key.as_str());
        assert_eq!(row["error"].as_str(), receipt.error.as_deref());
        assert_eq!(row["attempt"], receipt.attempt);
        assert_eq!(
            row["value"].as_f64(),
            receipt.value.as_ref().and_then(serde_json::Number::as_f64)
        );
        let args: Value = serde_json::from_str(row["args"].as_str().expect("text")).expect("JSON");
        assert_eq!(args, json!(receipt.action.args));
        // `2026-01-31 12:00:00.123456+00:00`
        let at = receipt.settled_at.to_string().replacen('T', " ", 1);
        let at = at
            .trim_end_matches('Z')
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned();
        assert!(
            row["settled_at"].as_str().expect("a time").starts_with(&at),
            "{row} {at}"
        );
    }
}

#[test]
fn a_file_that_cannot_be_finished_is_as_it_was() {
    let (project, _vendor) = project();
    project.write("out.csv", "before");
    // A store that cannot be read any more, after the file was opened.
    project.write(
        ".operators/store.db",
        "not a database at all, and long enough to look at",
    );
    project
        .run(&[
            "receipts", "export", "--format", "csv", "--output", "out.csv",
        ])
        .ended(1);
    assert_eq!(project.read("out.csv"), "before");
    for format in ["jsonl", "csv", "parquet"] {
        let args = [
            "receipts",
            "export",
            "--format",
            format,
            "--output",
            "nowhere/out",
        ];
        Project::with_file()
            .run(&args)
            .ended(1)
            .tells("`nowhere/out` cannot be written");
    }
}
