//! `receipts list`: the newest first, a page at a time.

use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::Result;
use clap::Args as ArgsOf;
use operators_kernel::Receipt;

use super::cursor::{Older, tell_program};
use super::trail::Trail;
use super::{lines, show};
use crate::args::Whose;
use crate::exit::Exit;
use crate::filter::{FilterArgs, at_least_one, words};
use crate::output::{data, next, note, shown};
use crate::table::id_end;

#[derive(Debug, ArgsOf)]
pub(crate) struct ListArgs {
    /// At most this many
    #[arg(long, default_value = "20", value_name = "N", value_parser = at_least_one)]
    limit: NonZeroUsize,
    /// Go on after the last page: the cursor that it left on stderr (`older:120`)
    #[arg(long, value_name = "CURSOR", value_parser = Older::parse)]
    after: Option<Older>,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    filter: FilterArgs,
}

pub(super) async fn run(args: ListArgs, project: Option<&Path>) -> Result<Exit> {
    let trail = Trail::open(project, &args.whose).await?;
    let filter = args.filter.resolve(&*trail.clock);
    let mut cursor = args.after.unwrap_or(Older::END);
    let mut left = args.limit.get();
    let mut newest = None;
    while left > 0 {
        let page = trail.page(&filter, cursor.cursor(), left).await?;
        let Some(last) = page.last() else { break };
        cursor = Older(last.sequence);
        left = left.saturating_sub(page.len());
        let receipts: Vec<Receipt> = page.into_iter().map(|entry| entry.receipt).collect();
        if args.json {
            lines(&receipts)?;
        } else {
            data(&show::table(&receipts))?;
        }
        newest = newest.or_else(|| receipts.first().map(|first| first.receipt_id.clone()));
    }
    if left > 0 {
        trail.tell_pruned().await?;
    }
    let more = left == 0 && !trail.page(&filter, cursor.cursor(), 1).await?.is_empty();
    if args.json {
        if more {
            tell_program(cursor);
        }
        return Ok(Exit::Ok);
    }
    let Some(newest) = newest else {
        note(&format!(
            "no receipts of tenant `{}` fit",
            shown(&trail.tenant)
        ));
        return Ok(Exit::Ok);
    };
    let command = |rest: &str| trail.project.command(rest, &args.whose);
    note("");
    next(
        &command(&format!("receipts show {}", shown(id_end(&newest)))),
        "the newest, all of it",
    );
    if more {
        let (limit, filter) = (args.limit, words(&filter));
        let rest = format!("receipts list --limit {limit} --after {cursor}{filter}");
        next(&command(&rest), "the next page");
    }
    Ok(Exit::Ok)
}
