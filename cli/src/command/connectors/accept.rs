//! `operators connectors accept`: what an MCP server is now, taken as reviewed.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use operators_connectors::{ConnectorKind, accept_mcp};

use crate::args::ConnectorsAcceptArgs;
use crate::compose;
use crate::exit::Exit;
use crate::output::{data, note, shown, unless_gone};
use crate::project::Project;

pub(crate) async fn run(args: &ConnectorsAcceptArgs, project: &Project) -> Result<Exit> {
    let Some(config) = project.config.connectors.get(&args.name) else {
        bail!("no connector `{}` in this project", args.name);
    };
    if config.kind != ConnectorKind::Mcp {
        bail!(
            "connector `{}` is of kind `{}`; only what an MCP server says of itself is accepted",
            args.name,
            config.kind.as_str()
        );
    }
    let tenant = project.tenant(&args.whose)?;
    let secrets = Arc::new(compose::secrets(project)?);
    let accepting = accept_mcp(&args.name, config, project.dir(), secrets, &tenant);
    let differences = Box::pin(accepting)
        .await
        .map_err(anyhow::Error::msg)
        .with_context(|| format!("connector `{}`", args.name))?;
    if differences.is_empty() {
        note("nothing changed since it was accepted");
    }
    for difference in &differences {
        let line = format!("{}: {}", shown(&difference.tool), difference.what);
        unless_gone(data(&line))?;
    }
    note(&format!(
        "accepted; its tools as they are now stand in `.operators/mcp/{}.json`",
        args.name
    ));
    Ok(Exit::Ok)
}
