//! `operators connectors import openapi`: tool definitions for a person to read and keep.

use std::io::Write as _;

use anyhow::{Context as _, Result, bail};
use operators_connectors::{ImportSettings, import_openapi};
use operators_kernel::ConnectorName;

use crate::args::ImportCommand;
use crate::exit::Exit;
use crate::output::{data, note, point, shown, unless_gone};
use crate::project::read_text;

/// Large vendors describe themselves in a dozen megabytes.
const DOCUMENT_BYTES_MAX: usize = 32 << 20;

/// How many remarks get a line; the rest is counted.
const REMARKS_MAX: usize = 20;

pub(crate) fn run(command: &ImportCommand) -> Result<Exit> {
    let ImportCommand::Openapi(args) = command;
    let text = read_text(&args.file, DOCUMENT_BYTES_MAX)?;
    let connector = match &args.connector {
        Some(name) => name.clone(),
        None => named_after(&args.file)?,
    };
    let settings = ImportSettings {
        connector,
        base_url: args.base_url.clone(),
        path_prefix: args.path.clone(),
    };
    let imported = import_openapi(&text, &settings)
        .map_err(anyhow::Error::msg)
        .with_context(|| format!("`{}`", shown(&args.file.display())))?;
    match &args.out {
        None => unless_gone(data(imported.toml.trim_end()))?,
        Some(out) => {
            // Never over something a person wrote.
            let opened = std::fs::File::create_new(out);
            let mut file = opened.with_context(|| format!("`{}`", shown(&out.display())))?;
            file.write_all(imported.toml.as_bytes())
                .with_context(|| format!("`{}`", shown(&out.display())))?;
            note(&format!("written to `{}`", shown(&out.display())));
        }
    }
    note(&format!(
        "{} as connector `{}`; read them before you add them to `operators.toml`",
        match imported.tools {
            1 => "1 tool".to_owned(),
            tools => format!("{tools} tools"),
        },
        settings.connector
    ));
    for remark in imported.remarks.iter().take(REMARKS_MAX) {
        point("-", &shown(remark));
    }
    match imported.remarks.len().saturating_sub(REMARKS_MAX) {
        0 => {}
        more => note(&format!("and {more} more remarks")),
    }
    Ok(Exit::Ok)
}

fn named_after(file: &std::path::Path) -> Result<ConnectorName> {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    match ConnectorName::parse(stem.to_lowercase()) {
        Ok(name) => Ok(name),
        Err(error) => bail!("{error}; name the connector with `--connector NAME`"),
    }
}
