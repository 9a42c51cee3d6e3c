//! Which kinds of connector know which fields.
//!
//! Owns one table per level of the configuration; a field that stands where its kind does not know
//! it is refused by name, so that nobody relies on a word that does nothing.

use crate::config::ConnectorKind::{self, Command, File, Http, Mcp, Sql};
use crate::config::{ConnectorConfig, ProbeConfig, ToolConfig};
use crate::registry::{Place, RegistryError};

/// A field, the kinds that know it, and whether it stands there.
type Field = (&'static str, &'static [ConnectorKind], bool);

/// Refuses every field of a connector and of its tools that belongs to another kind.
pub(crate) fn refuse(config: &ConnectorConfig, place: &Place) -> Result<(), RegistryError> {
    check(&of_connector(config), config.kind, place)?;
    for (name, tool) in &config.tools {
        let place = place.tool(name);
        check(&of_tool(tool), config.kind, &place)?;
        if let Some(probe) = &tool.probe {
            check(&of_probe(probe), config.kind, &place.inside("probe"))?;
        }
    }
    Ok(())
}

fn of_connector(config: &ConnectorConfig) -> Vec<Field> {
    vec![
        ("base_url", &[Http], config.base_url.is_some()),
        (
            "allow_private_addresses",
            &[Http, Mcp],
            config.allow_private_addresses.is_some(),
        ),
        ("headers", &[Http, Mcp], !config.headers.is_empty()),
        ("auth", &[Http], config.auth.is_some()),
        ("ca_file", &[Http], config.ca_file.is_some()),
        ("check", &[Http], config.check.is_some()),
        ("path", &[File], config.path.is_some()),
        ("argv", &[Mcp], config.argv.is_some()),
        ("url", &[Mcp, Sql], config.url.is_some()),
        (
            "trust_read_hints",
            &[Mcp],
            config.trust_read_hints.is_some(),
        ),
        ("dir", &[Command, Mcp], config.dir.is_some()),
        ("env", &[Command, Mcp], config.env.is_some()),
        ("variables", &[Command, Mcp], !config.variables.is_empty()),
        ("supervisor", &[Command, Mcp], config.supervisor.is_some()),
        ("max_answer", &[Http, Command], config.max_answer.is_some()),
    ]
}

fn of_tool(tool: &ToolConfig) -> Vec<Field> {
    vec![
        ("method", &[Http], tool.method.is_some()),
        ("path", &[Http], tool.path.is_some()),
        ("query", &[Http], !tool.query.is_empty()),
        ("headers", &[Http], !tool.headers.is_empty()),
        ("body", &[Http], tool.body.is_some()),
        ("key_header", &[Http], tool.key_header.is_some()),
        ("encoding", &[Http], tool.encoding.is_some()),
        ("applied", &[Http, Command], tool.applied.is_some()),
        ("not_applied", &[Http, Command], tool.not_applied.is_some()),
        ("applied_if", &[Http], tool.applied_if.is_some()),
        ("not_applied_if", &[Http], tool.not_applied_if.is_some()),
        ("already_applied", &[Http], tool.already_applied.is_some()),
        ("result", &[Http], tool.result.is_some()),
        (
            "effect_id",
            &[Http, Command, Mcp, Sql],
            tool.effect_id.is_some(),
        ),
        ("probe", &[Http, Command, Sql], tool.probe.is_some()),
        ("argv", &[Command], tool.argv.is_some()),
        ("output", &[Command], tool.output.is_some()),
        ("remote", &[Mcp], tool.remote.is_some()),
        ("tool_error", &[Mcp], tool.tool_error.is_some()),
        ("statement", &[Sql], tool.statement.is_some()),
        ("expect_rows", &[Sql], tool.expect_rows.is_some()),
    ]
}

fn of_probe(probe: &ProbeConfig) -> Vec<Field> {
    vec![
        ("path", &[Http], probe.path.is_some()),
        ("headers", &[Http], !probe.headers.is_empty()),
        ("applied_if", &[Http], probe.applied_if.is_some()),
        ("not_applied_if", &[Http], probe.not_applied_if.is_some()),
        ("result", &[Http], probe.result.is_some()),
        ("effect_id", &[Http], probe.effect_id.is_some()),
        ("argv", &[Command], probe.argv.is_some()),
        ("statement", &[Sql], probe.statement.is_some()),
        ("applied", &[Command], probe.applied.is_some()),
        ("not_applied", &[Command], probe.not_applied.is_some()),
    ]
}

fn check(fields: &[Field], kind: ConnectorKind, place: &Place) -> Result<(), RegistryError> {
    let foreign = fields
        .iter()
        .find(|(_, kinds, present)| *present && !kinds.contains(&kind));
    match foreign {
        None => Ok(()),
        Some((field, _, _)) => {
            let problem = format!(
                "a connector of kind `{}` has no `{field}`; remove it",
                kind.as_str()
            );
            Err(place.refuse(field, problem))
        }
    }
}
