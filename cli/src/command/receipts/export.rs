//! `receipts export`: every receipt that fits, oldest first, for machines.

use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::Result;
use clap::Args as ArgsOf;
use operators_kernel::{PAGE_MAX, Receipt};

use super::cursor::{Newer, tell_program};
use super::lines;
use super::trail::Trail;
use crate::args::Whose;
use crate::exit::Exit;
use crate::filter::FilterArgs;

#[derive(Debug, ArgsOf)]
pub(crate) struct ExportArgs {
    /// At most this many [default: all]
    #[arg(long, value_name = "N")]
    limit: Option<NonZeroUsize>,
    /// Go on where an export ended: the cursor that it left on stderr (`newer:120`)
    #[arg(long, value_name = "CURSOR", value_parser = Newer::parse)]
    after: Option<Newer>,
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    filter: FilterArgs,
}

pub(super) async fn run(args: ExportArgs, project: Option<&Path>) -> Result<Exit> {
    let trail = Trail::open(project, &args.whose).await?;
    let filter = args.filter.resolve(&*trail.clock);
    let mut cursor = args.after.unwrap_or(Newer::START);
    let mut left = args.limit.map_or(usize::MAX, NonZeroUsize::get);
    while left > 0 {
        let page = trail
            .page(&filter, cursor.cursor(), left.min(PAGE_MAX))
            .await?;
        let Some(last) = page.last() else { break };
        cursor = Newer(last.sequence);
        left = left.saturating_sub(page.len());
        let receipts: Vec<Receipt> = page.into_iter().map(|entry| entry.receipt).collect();
        lines(&receipts)?;
    }
    // At the end of the trail too: the next export goes on from there.
    if args.limit.is_some() || args.after.is_some() {
        tell_program(cursor);
    }
    Ok(Exit::Ok)
}
