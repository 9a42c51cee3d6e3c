//! `operators receipts`: the audit trail, as tables, as JSON lines, as it grows.

mod cursor;
mod export;
mod list;
mod show;
mod story;
mod tail;
mod trail;
mod tree;

use std::path::Path;

use anyhow::Result;
use operators_kernel::Receipt;

use crate::args::ReceiptsCommand;
use crate::exit::Exit;
use crate::output::JsonLines;

pub(crate) use export::ExportArgs;
pub(crate) use list::ListArgs;
pub(crate) use show::{Block, table};
pub(crate) use story::ShowArgs;
pub(crate) use tail::TailArgs;

pub(crate) async fn run(command: ReceiptsCommand, project: Option<&Path>) -> Result<Exit> {
    match command {
        ReceiptsCommand::List(args) => list::run(args, project).await,
        ReceiptsCommand::Show(args) => story::run(args, project).await,
        ReceiptsCommand::Tail(args) => tail::run(args, project).await,
        ReceiptsCommand::Export(args) => export::run(args, project).await,
    }
}

fn lines(receipts: &[Receipt]) -> Result<()> {
    let mut out = JsonLines::new();
    for receipt in receipts {
        out.line(receipt)?;
    }
    Ok(out.flush()?)
}
