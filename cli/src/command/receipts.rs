//! `operators receipts`: the audit trail, as tables, as JSON lines, as it grows.

mod cursor;
mod export;
mod list;
mod show;
mod tail;
mod trail;

use std::path::Path;

use anyhow::Result;
use clap::Args as ArgsOf;
use operators_kernel::Receipt;

use crate::args::{ReceiptsCommand, Whose};
use crate::exit::Exit;
use crate::output::{self, JsonLines, data};

pub(crate) use export::ExportArgs;
pub(crate) use list::ListArgs;
pub(crate) use show::{Block, table};
pub(crate) use tail::TailArgs;

#[derive(Debug, ArgsOf)]
pub(crate) struct ShowArgs {
    /// Its id, or the last characters of it (at least 6)
    #[arg(value_name = "ID")]
    id: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    whose: Whose,
}

pub(crate) async fn run(command: ReceiptsCommand, project: Option<&Path>) -> Result<Exit> {
    match command {
        ReceiptsCommand::List(args) => list::run(args, project).await,
        ReceiptsCommand::Show(args) => {
            let trail = trail::Trail::open(project, &args.whose).await?;
            let receipt = trail.find(&args.id).await?;
            if args.json {
                output::json(&receipt, true)?;
            } else {
                data(&show::block(&receipt))?;
            }
            Ok(Exit::Ok)
        }
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
