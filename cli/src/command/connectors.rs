//! `operators connectors`: what can be reached, whether it is well, and new tools from a document.
//!
//! Nothing here has an effect: a connector is asked how it is, or a read is made.

mod accept;
mod import;
mod list;
mod test;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use operators_kernel::{Connector, ConnectorError, Health, TenantId};

use crate::args::ConnectorsCommand;
use crate::exit::Exit;
use crate::project::Project;

/// How long a connector may take to say how it is: longer than a slow handshake, shorter than a
/// person's patience.
const CHECK_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) async fn run(command: ConnectorsCommand, project: Option<&Path>) -> Result<Exit> {
    match command {
        ConnectorsCommand::List(args) => list::run(&args, &Project::open(project)?).await,
        ConnectorsCommand::Test(args) => test::run(&args, &Project::open(project)?).await,
        ConnectorsCommand::Accept(args) => accept::run(&args, &Project::open(project)?).await,
        ConnectorsCommand::Import(args) => import::run(&args),
    }
}

/// Asks a connector how it is, bounded in time.
pub(crate) async fn health(connector: &dyn Connector, tenant: &TenantId) -> Health {
    let asked = tokio::time::timeout(CHECK_PATIENCE, connector.check(tenant));
    asked.await.unwrap_or_else(|_| {
        let seconds = CHECK_PATIENCE.as_secs();
        Health::Ill(ConnectorError::new(format!("no answer within {seconds} s")))
    })
}
