//! `operators connectors list`: every tool, and what is promised about it.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use comfy_table::Color;
use operators_kernel::{Connector, ConnectorName, Health, OnUnknown, Tool, ToolMode};
use serde::Serialize;

use crate::args::ConnectorsListArgs;
use crate::command::connectors::health;
use crate::compose;
use crate::exit::Exit;
use crate::output::{JsonLines, data, note, unless_gone};
use crate::project::Project;
use crate::table::{Column, Table, Text, terminal_width};

/// One tool, as `--json` writes it.
#[derive(Serialize)]
struct Row<'a> {
    connector: &'a str,
    kind: &'a str,
    mode: &'a str,
    tool: &'a str,
    effect: &'a str,
    on_unknown: OnUnknown,
    timeout_ms: u128,
    has_schema: bool,
    /// `well`, `ill` or `not asked`.
    health: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    health_told: Option<&'a str>,
}

pub(crate) async fn run(args: &ConnectorsListArgs, project: &Project) -> Result<Exit> {
    let registry = compose::registry(project)?;
    let tenant = project.tenant(&args.whose)?;
    let mut connectors: BTreeMap<&ConnectorName, Arc<dyn Connector>> = BTreeMap::new();
    for (connector, _, tool, _) in registry.tools() {
        connectors
            .entry(connector)
            .or_insert_with(|| Arc::clone(&tool.connector));
    }
    let mut found: BTreeMap<&ConnectorName, Health> = BTreeMap::new();
    for (name, connector) in connectors {
        let health = if args.health {
            health(&*connector, &tenant).await
        } else {
            Health::Unasked
        };
        found.insert(name, health);
    }
    let rows = registry.tools().map(|(connector, name, tool, kind)| {
        let health = found.get(connector).unwrap_or(&Health::Unasked);
        row(connector.as_str(), kind, name.as_str(), tool, health)
    });
    let rows: Vec<Row<'_>> = rows.collect();
    if args.json {
        let mut lines = JsonLines::new();
        let written = rows.iter().try_for_each(|row| lines.line(row));
        unless_gone(written.and_then(|()| lines.flush()))?;
    } else if rows.is_empty() {
        note("the project has no tools; add `[connectors.NAME]` to its configuration");
    } else {
        unless_gone(data(&table(&rows)))?;
    }
    let ill = found.values().any(|one| matches!(one, Health::Ill(_)));
    Ok(if ill { Exit::CouldNotRun } else { Exit::Ok })
}

fn row<'a>(
    connector: &'a str,
    kind: &'a str,
    name: &'a str,
    tool: &'a Tool,
    health: &'a Health,
) -> Row<'a> {
    let contract = &tool.contract;
    let (health, health_told) = match health {
        Health::Well(told) => ("well", Some(told.as_str())),
        Health::Ill(error) => ("ill", Some(error.message.as_str())),
        Health::Unasked => ("not asked", None),
    };
    Row {
        connector,
        kind,
        mode: match contract.mode {
            ToolMode::Live => "live",
            ToolMode::Stub => "stub",
        },
        tool: name,
        effect: contract.effect.as_str(),
        on_unknown: contract.on_unknown,
        timeout_ms: contract.timeout.as_millis(),
        has_schema: tool.schema.is_some(),
        health,
        health_told,
    }
}

fn table(rows: &[Row<'_>]) -> String {
    let mut table = Table::new(&[
        Column::yielding("tool", 10),
        Column::fixed("kind"),
        Column::fixed("effect"),
        Column::fixed("schema"),
        Column::fixed("health"),
        Column::yielding("told", 12),
    ]);
    for row in rows {
        let kind = match row.mode {
            "stub" => format!("{} (stub)", row.kind),
            _ => row.kind.to_owned(),
        };
        let effect = match row.on_unknown {
            OnUnknown::Hold => row.effect.to_owned(),
            OnUnknown::Retry => format!("{}, at-least-once", row.effect),
        };
        let health = match row.health {
            "ill" => Text::coloured(row.health, Color::Red),
            "well" => Text::coloured(row.health, Color::Green),
            _ => Text::plain(row.health),
        };
        table.row([
            Text::plain(&format!("{}:{}", row.connector, row.tool)),
            Text::plain(&kind),
            Text::plain(&effect),
            Text::plain(if row.has_schema { "yes" } else { "no" }),
            health,
            Text::plain(row.health_told.unwrap_or_default()),
        ]);
    }
    table.render(terminal_width())
}
