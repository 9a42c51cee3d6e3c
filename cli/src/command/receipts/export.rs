//! `receipts export`: every receipt that fits, oldest first, for machines.

mod columns;
mod csv;
#[cfg(feature = "parquet")]
mod parquet;

use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args as ArgsOf, ValueEnum};
use operators_kernel::{PAGE_MAX, Receipt};

use self::csv::Guard;
use super::cursor::{Newer, tell_program};
use super::trail::Trail;
use crate::args::Whose;
use crate::deliver::Delivery;
use crate::exit::Exit;
use crate::filter::{FilterArgs, at_least_one};
use crate::output::json_text;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// JSON, one receipt a line
    Jsonl,
    /// A header and a row each; text that a spreadsheet would run begins with `'`
    Csv,
    /// Typed columns, for analysts
    Parquet,
}

#[derive(Debug, ArgsOf)]
pub(crate) struct ExportArgs {
    /// As JSON lines, as CSV, or as Parquet
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,
    /// CSV: every value as it is, also what a spreadsheet would run or a line break would hide
    #[arg(long)]
    raw: bool,
    /// Write to this file, whole or not at all [default: stdout]
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// At most this many [default: all]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
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
    if args.raw && args.format != Format::Csv {
        bail!("`--raw` is for `--format csv`; the other formats change nothing");
    }
    let trail = Trail::open(project, &args.whose).await?;
    let mut sink = Sink::open(args.format, args.raw, args.output.as_deref())?;
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
        sink.add(&receipts)?;
    }
    sink.finish()?;
    if args.after.is_none() {
        trail.tell_pruned().await?;
    }
    // At the end of the trail too: the next export goes on from there.
    if args.limit.is_some() || args.after.is_some() || args.output.is_some() {
        tell_program(cursor);
    }
    Ok(Exit::Ok)
}

/// Takes receipts and writes them in one format.
enum Sink {
    Lines(Delivery),
    Csv(Delivery, Guard),
    #[cfg(feature = "parquet")]
    Parquet(Box<parquet::Parquet>),
}

impl Sink {
    fn open(format: Format, raw: bool, output: Option<&Path>) -> Result<Self> {
        match format {
            Format::Jsonl => Ok(Self::Lines(Delivery::to(output)?)),
            Format::Csv => {
                let mut out = Delivery::to(output)?;
                csv::header(&mut out)?;
                let guard = if raw { Guard::Raw } else { Guard::On };
                Ok(Self::Csv(out, guard))
            }
            #[cfg(feature = "parquet")]
            Format::Parquet => {
                let out = Delivery::of_a_document(output, "Parquet")?;
                Ok(Self::Parquet(Box::new(parquet::Parquet::open(out)?)))
            }
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => bail!(
                "this build of operators writes no Parquet; build it with `--features parquet`, \
                 or take `--format csv`"
            ),
        }
    }

    fn add(&mut self, receipts: &[Receipt]) -> Result<()> {
        match self {
            Self::Lines(out) => {
                for receipt in receipts {
                    writeln!(out, "{}", json_text(receipt, false)?)?;
                }
            }
            Self::Csv(out, guard) => {
                for receipt in receipts {
                    csv::row(out, receipt, *guard)?;
                }
            }
            #[cfg(feature = "parquet")]
            Self::Parquet(parquet) => parquet.add(receipts)?,
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        match self {
            Self::Lines(out) | Self::Csv(out, _) => out.finish(),
            #[cfg(feature = "parquet")]
            Self::Parquet(parquet) => parquet.finish()?.finish(),
        }
    }
}
