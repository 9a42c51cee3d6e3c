//! `operators receipts`: the audit trail, as tables, as JSON lines, as it grows.

mod cursor;
mod export;
mod list;
mod prove;
mod prune;
mod report;
mod rotate_key;
mod segment;
mod show;
mod story;
mod tail;
mod trail;
mod tree;
mod verify;

use std::path::Path;

use anyhow::Result;
use operators_kernel::Receipt;

use crate::args::ReceiptsCommand;
use crate::exit::Exit;
use crate::output::JsonLines;

pub(crate) use export::ExportArgs;
pub(crate) use list::ListArgs;
pub(crate) use prove::{ProveArgs, VerifyProofArgs};
pub(crate) use prune::PruneArgs;
pub(crate) use report::ReportArgs;
pub(crate) use rotate_key::RotateKeyArgs;
pub(crate) use show::{Block, table};
pub(crate) use story::ShowArgs;
pub(crate) use tail::TailArgs;
pub(crate) use verify::{HeadArgs, VerifyArgs};

pub(crate) async fn run(command: ReceiptsCommand, project: Option<&Path>) -> Result<Exit> {
    match command {
        ReceiptsCommand::List(args) => list::run(args, project).await,
        ReceiptsCommand::Show(args) => story::run(args, project).await,
        ReceiptsCommand::Tail(args) => tail::run(args, project).await,
        ReceiptsCommand::Export(args) => export::run(args, project).await,
        ReceiptsCommand::Report(args) => report::run(args, project).await,
        ReceiptsCommand::Verify(args) => verify::verify(&args, project).await,
        ReceiptsCommand::Head(args) => verify::head(&args, project).await,
        ReceiptsCommand::Prove(args) => prove::prove(&args, project).await,
        ReceiptsCommand::VerifyProof(args) => prove::verify_proof(&args),
        ReceiptsCommand::Prune(args) => prune::run(args, project).await,
        ReceiptsCommand::RotateKey(args) => rotate_key::run(args, project).await,
    }
}

fn lines(receipts: &[Receipt]) -> Result<()> {
    let mut out = JsonLines::new();
    for receipt in receipts {
        out.line(receipt)?;
    }
    Ok(out.flush()?)
}
