//! `receipts report`: the trail as one page of HTML that needs nothing else.

mod chart;
mod html;
mod page;
mod spread;
mod tally;
mod timeline;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args as ArgsOf;
use operators_kernel::PAGE_MAX;

use self::page::{About, Doubts};
use self::tally::Tally;
use super::cursor::Newer;
use super::trail::{Trail, last_pruning};
use crate::args::Whose;
use crate::deliver::Delivery;
use crate::exit::Exit;
use crate::filter::{FilterArgs, words};
use crate::open_ends::OpenEnds;
use crate::output::{note, shown};

#[derive(Debug, ArgsOf)]
pub(crate) struct ReportArgs {
    /// Write it to this file [default: stdout]
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    filter: FilterArgs,
}

pub(super) async fn run(args: ReportArgs, project: Option<&Path>) -> Result<Exit> {
    let trail = Trail::open(project, &args.whose).await?;
    let mut out = Delivery::of_a_document(args.output.as_deref(), "a page of HTML")?;
    let filter = args.filter.resolve(&*trail.clock);
    let mut tally = Tally::default();
    let mut seen = Newer::START;
    loop {
        let page = trail.page(&filter, seen.cursor(), PAGE_MAX).await?;
        let Some(last) = page.last() else { break };
        seen = Newer(last.sequence);
        for entry in &page {
            tally.add(&entry.receipt);
        }
    }
    let open = OpenEnds::of(&*trail.ledger, &trail.tenant).await?;
    let about = About {
        tenant: &trail.tenant,
        filter: words(&filter),
        made_at: trail.clock.now(),
        doubts: Doubts::of(&open.doubts),
        in_flight: open.in_flight.len(),
        pruned: last_pruning(&*trail.ledger, &trail.tenant)
            .await?
            .map_or(0, |last| last.to),
    };
    out.write_all(page::write(&tally, &about).as_bytes())?;
    out.finish()?;
    if let Some(file) = &args.output {
        note(&format!(
            "wrote {}; open it in a browser",
            shown(&file.display())
        ));
    }
    Ok(Exit::Ok)
}
