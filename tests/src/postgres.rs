//! Postgres for tests: a throw-away server, found on this machine or installed, and started.
//!
//! `OPERATORS_TEST_POSTGRES_URL` names one that runs already (a role that may create databases).
//! Otherwise the newest of Debian's servers is started with a data folder of its own on a free port
//! of the loopback, one per test binary, as a user that is not root. It dies with the test process,
//! even when that is killed. Where none can be had, tests that need it are skipped aloud; with `CI`
//! set they fail.

mod database;
mod server;

use std::sync::OnceLock;

pub use database::{Database, PgBench, connect, database_of, run};
pub use server::{Server, as_server, install, programs};

/// What a server needs to be quick where durability is not what is tested.
const QUICK: &[&str] = &["fsync=off", "full_page_writes=off"];

/// Where a server is; `None`, said aloud, if there is none to be had.
pub fn url() -> Option<&'static str> {
    static SERVER: OnceLock<Result<(String, Option<Server>), String>> = OnceLock::new();
    let found = SERVER.get_or_init(|| {
        if let Ok(url) = std::env::var("OPERATORS_TEST_POSTGRES_URL") {
            return Ok((url, None));
        }
        let server = Server::start(QUICK)?;
        Ok((server.url("postgres"), Some(server)))
    });
    match found {
        Ok((url, _)) => Some(url),
        Err(problem) => {
            missing(problem);
            None
        }
    }
}

/// A server of one test's own, with these settings; `None`, said aloud, if there is none to be had.
pub fn own_server(settings: &[&str]) -> Option<Server> {
    match Server::start(settings) {
        Ok(server) => Some(server),
        Err(problem) => {
            missing(&problem);
            None
        }
    }
}

fn missing(problem: &str) {
    let in_ci = std::env::var_os("CI").is_some();
    assert!(!in_ci, "no Postgres server: {problem}");
    eprintln!("skipped: no Postgres server: {problem}");
}
