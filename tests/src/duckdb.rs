//! A reader of Parquet that shares no code with the writer: `DuckDB`, from `PyPI`, in a virtual
//! environment under `.tools/`. Where it cannot be had, tests that need it are skipped aloud; with
//! `CI` set they fail.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const VERSION: &str = "2.0.0";

/// The Python that knows `duckdb`; `None`, said aloud, if it cannot be had.
pub fn python() -> Option<PathBuf> {
    match installed() {
        Ok(python) => Some(python),
        Err(problem) => {
            assert!(std::env::var_os("CI").is_none(), "no DuckDB: {problem}");
            eprintln!("skipped: no DuckDB: {problem}");
            None
        }
    }
}

fn installed() -> Result<PathBuf, String> {
    let in_words = |error: std::io::Error| error.to_string();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools");
    std::fs::create_dir_all(&root).map_err(in_words)?;
    // One of many test processes installs, the others wait for it.
    let lock = File::create(root.join("duckdb.lock")).map_err(in_words)?;
    lock.lock().map_err(in_words)?;
    let folder = root.join("duckdb");
    let python = folder.join("bin/python");
    let knows = |python: &Path| {
        let check = format!("import duckdb; assert duckdb.__version__ == '{VERSION}'");
        run(Command::new(python).args(["-c", &check]))
    };
    if knows(&python).is_ok() {
        return Ok(python);
    }
    run(Command::new("python3")
        .args(["-m", "venv", "--clear"])
        .arg(&folder))?;
    let package = format!("duckdb=={VERSION}");
    run(Command::new(&python).args(["-m", "pip", "install", "-q", &package]))?;
    knows(&python).map(|()| python)
}

fn run(command: &mut Command) -> Result<(), String> {
    let done = command.stdin(Stdio::null()).output();
    let done = done.map_err(|error| error.to_string())?;
    if done.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&done.stderr).into_owned())
}
