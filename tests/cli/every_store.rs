//! One test on every store: a project of its own on each, made ready.

use operators_tests::dynamodb::{endpoint, fresh_url};
use operators_tests::postgres::{self, Database};

use crate::support::Project;

/// Runs `test` on `SQLite`, Postgres and `DynamoDB`; a server that cannot be had is skipped aloud.
pub fn on_every_store(test: impl Fn(&Project, &str)) {
    test(&Project::with_file(), "sqlite");
    if let Some(server) = postgres::url() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let database = runtime.block_on(Database::fresh(server));
        test(&project_on(&database.url()), "postgres");
    }
    if let Some(endpoint) = endpoint() {
        let project = project_on(&fresh_url(endpoint));
        project.run(&["doctor", "--create"]).ended(0);
        test(&project, "dynamodb");
    }
}

/// The project with a file as its shop, on that store.
fn project_on(url: &str) -> Project {
    let project = Project::with_file();
    let config = project.read("operators.toml");
    project.write(
        "operators.toml",
        format!("{config}\n[store]\nurl = '{url}'\n"),
    );
    project
}
