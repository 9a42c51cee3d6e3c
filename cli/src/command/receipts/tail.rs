//! `receipts tail`: the last receipts, and new ones as they come.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::Args as ArgsOf;
use operators_kernel::{LedgerEntry, PAGE_MAX, Receipt, ReceiptFilter, StoreError};

use super::cursor::{Newer, Older, tell_program};
use super::trail::Trail;
use super::{lines, show};
use crate::args::Whose;
use crate::exit::Exit;
use crate::filter::{FilterArgs, words};
use crate::interrupts::Interrupts;
use crate::output::{self, data, next, shown};

/// How soon `--follow` looks again after it found something, and how seldom it looks when nothing
/// comes: a quiet trail costs a store one look in two seconds.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

#[derive(Debug, ArgsOf)]
pub(crate) struct TailArgs {
    /// How many to start with
    #[arg(short = 'n', long, default_value_t = 10, value_name = "N")]
    lines: usize,
    /// Start after this place instead: the cursor that `tail` or `export` left on stderr
    #[arg(long, value_name = "CURSOR", value_parser = Newer::parse, conflicts_with = "lines")]
    after: Option<Newer>,
    /// Go on showing new ones until Ctrl-C
    #[arg(short = 'f', long)]
    follow: bool,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    filter: FilterArgs,
}

pub(super) async fn run(args: TailArgs, project: Option<&Path>) -> Result<Exit> {
    let trail = if args.follow {
        Trail::open_to_follow(project, &args.whose).await?
    } else {
        Trail::open(project, &args.whose).await?
    };
    let filter = args.filter.resolve(&*trail.clock);
    // Only what goes on for ever is ended in good order; the rest ends as any command does.
    let mut stop = args.follow.then(Interrupts::listen).transpose()?;
    // Looked at first: what lands after this look is new, whether or not a page has it already.
    let head = trail.newest(&ReceiptFilter::default()).await?;
    let head = head.map_or(0, |entry| entry.sequence);
    let (start, most) = match args.after {
        Some(after) => (after, usize::MAX),
        None => (
            before_the_last(&trail, &filter, args.lines).await?,
            args.lines,
        ),
    };
    let most = if args.follow { usize::MAX } else { most };
    let mut seen = print_from(&trail, &filter, start, most, args.json).await?;
    if let Some(stop) = &mut stop {
        // What is behind the head and did not fit has been looked at.
        seen = Newer(seen.0.max(head));
        seen = follow(&trail, &filter, seen, args.json, stop).await?;
    }
    if args.after.is_some() || args.follow {
        if args.json {
            tell_program(seen);
        } else {
            let rest = format!("receipts tail --follow --after {seen}{}", words(&filter));
            let command = trail.project.command(&rest, &args.whose);
            next(&command, "goes on from here");
        }
    }
    Ok(Exit::Ok)
}

/// The place before the last `count` receipts that fit; found without keeping them.
async fn before_the_last(trail: &Trail, filter: &ReceiptFilter, count: usize) -> Result<Newer> {
    let mut first = Older::END;
    let mut left = count;
    while left > 0 {
        let page = trail.page(filter, first.cursor(), left).await?;
        let Some(last) = page.last() else {
            return Ok(Newer::START);
        };
        first = Older(last.sequence);
        left = left.saturating_sub(page.len());
    }
    Ok(Newer(first.0.saturating_sub(1)))
}

/// Prints what is there now, at most `most`; where that ended.
async fn print_from(
    trail: &Trail,
    filter: &ReceiptFilter,
    start: Newer,
    most: usize,
    json: bool,
) -> Result<Newer> {
    let mut seen = start;
    let mut left = most;
    while left > 0 {
        let page = trail.page(filter, seen.cursor(), left).await?;
        let Some(last) = page.last() else { break };
        seen = Newer(last.sequence);
        left = left.saturating_sub(page.len());
        print(page, json)?;
    }
    Ok(seen)
}

/// Shows what comes until somebody says stop or nobody reads any more; where that ended.
async fn follow(
    trail: &Trail,
    filter: &ReceiptFilter,
    start: Newer,
    json: bool,
    stop: &mut Interrupts,
) -> Result<Newer> {
    let mut seen = start;
    let mut pause = PAUSE_MIN;
    let mut warned = false;
    loop {
        tokio::select! {
            () = stop.next() => return Ok(seen),
            () = tokio::time::sleep(pause) => {}
        }
        if output::reader_is_gone() {
            return Ok(seen);
        }
        pause = pause.saturating_mul(2).min(PAUSE_MAX);
        // Everything new is looked at once, and what does not fit is left out here: a store would
        // look through it again at every turn.
        let all = ReceiptFilter::default();
        let page = trail.page(&all, seen.cursor(), PAGE_MAX);
        let page = tokio::select! {
            () = stop.next() => return Ok(seen),
            page = page => page,
        };
        let page = match page {
            Ok(page) => page,
            Err(error) if may_pass(&error) => {
                if !std::mem::replace(&mut warned, true) {
                    output::warn(&format!("{}; looking again", shown(&error)));
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        warned = false;
        let Some(last) = page.last() else { continue };
        seen = Newer(last.sequence);
        pause = PAUSE_MIN;
        let fitting = page.into_iter();
        print(
            fitting
                .filter(|entry| filter.admits(&entry.receipt))
                .collect(),
            json,
        )?;
    }
}

fn may_pass(error: &anyhow::Error) -> bool {
    let store = error.downcast_ref::<StoreError>();
    store.is_some_and(StoreError::is_retryable)
}

fn print(entries: Vec<LedgerEntry>, json: bool) -> Result<()> {
    let receipts: Vec<Receipt> = entries.into_iter().map(|entry| entry.receipt).collect();
    if json {
        return lines(&receipts);
    }
    for receipt in &receipts {
        data(&show::line(receipt))?;
    }
    Ok(())
}
