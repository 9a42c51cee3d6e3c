//! `receipts show`: everything the trail knows of one action, gathered from its key's receipts.
//!
//! An action is one generation of one key. However often it was proposed, a story keeps a few
//! receipts of each sort and counts the rest.

use std::collections::HashSet;
use std::path::Path;

use anyhow::Result;
use clap::Args as ArgsOf;
use operators_kernel::life::Phase;
use operators_kernel::{
    PAGE_MAX, Reason, Receipt, ReceiptFilter, ReceiptKind, ReceiptOutcome, Text,
};
use serde::Serialize;

use super::cursor::Newer;
use super::trail::Trail;
use super::tree;
use crate::args::Whose;
use crate::exit::Exit;
use crate::output::{self, data, next, note, quoted};

/// The most receipts of one sort that a story keeps.
const KEPT_MAX: usize = 20;

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

/// One action, from its proposal to what was learned later.
#[derive(Debug, Serialize)]
pub(super) struct Story {
    /// The receipt that was asked for.
    pub(super) receipt: Receipt,
    /// What reached the connector.
    pub(super) attempts: Several,
    /// What was stopped before it.
    pub(super) refusals: Several,
    /// What collapsed into an application.
    pub(super) duplicates: Several,
    /// What people decided and what became known later.
    pub(super) afterwards: Several,
    /// Where the key is now; null if nobody ever claimed it in this generation.
    pub(super) phase: Option<Phase>,
}

/// Receipts of one sort, oldest first.
#[derive(Debug, Default, Serialize)]
pub(super) struct Several {
    /// How many there are.
    pub(super) count: usize,
    /// The first of them.
    pub(super) receipts: Vec<Receipt>,
}

impl Several {
    fn push(&mut self, receipt: Receipt) {
        self.count += 1;
        if self.receipts.len() < KEPT_MAX {
            self.receipts.push(receipt);
        }
    }

    /// How many are not among those kept.
    pub(super) fn rest(&self) -> usize {
        self.count.saturating_sub(self.receipts.len())
    }
}

pub(super) async fn run(args: ShowArgs, project: Option<&Path>) -> Result<Exit> {
    let trail = Trail::open(project, &args.whose).await?;
    let receipt = trail.find(&args.id).await?;
    let story = Story::gather(&trail, receipt).await?;
    if args.json {
        output::json(&story, true)?;
        return Ok(Exit::Ok);
    }
    data(&tree::draw(&story))?;
    let all = [
        &story.attempts,
        &story.refusals,
        &story.duplicates,
        &story.afterwards,
    ];
    if all.into_iter().any(|several| several.rest() > 0) {
        let key = quoted(story.receipt.idempotency_key.as_str());
        let command = format!("receipts export --key {key}");
        note("");
        next(
            &trail.project.command(&command, &args.whose),
            "all of its receipts",
        );
    }
    Ok(Exit::Ok)
}

impl Story {
    async fn gather(trail: &Trail, receipt: Receipt) -> Result<Self> {
        let generation = generation(trail, &receipt).await?;
        let filter = ReceiptFilter {
            idempotency_key: Some(receipt.idempotency_key.clone()),
            ..ReceiptFilter::default()
        };
        let key = trail.ledger.key(&trail.tenant, &receipt.idempotency_key);
        let key = key.await?.filter(|key| key.generation == generation);
        let mut story = Self {
            receipt,
            attempts: Several::default(),
            refusals: Several::default(),
            duplicates: Several::default(),
            afterwards: Several::default(),
            phase: key.map(|key| key.phase),
        };
        let mut cited = HashSet::new();
        let mut seen = Newer::START;
        loop {
            let page = trail.page(&filter, seen.cursor(), PAGE_MAX).await?;
            let Some(last) = page.last() else {
                return Ok(story);
            };
            seen = Newer(last.sequence);
            for entry in page {
                story.take(entry.receipt, generation, &mut cited);
            }
        }
    }

    /// Puts a receipt of the key where it belongs. `cited` holds the proposals of this generation
    /// that a person may speak of: what a person says bears no generation of its own, or the next.
    fn take(&mut self, receipt: Receipt, generation: u32, cited: &mut HashSet<Text>) {
        let is_ours = match receipt.kind {
            ReceiptKind::Proposal | ReceiptKind::Correction => receipt.generation == generation,
            ReceiptKind::Approve
            | ReceiptKind::Veto
            | ReceiptKind::Acknowledge
            | ReceiptKind::Forget => receipt
                .original_receipt_id
                .as_ref()
                .is_some_and(|original| cited.contains(original)),
            ReceiptKind::Pause
            | ReceiptKind::Resume
            | ReceiptKind::SigningKey
            | ReceiptKind::Prune => true,
        };
        if !is_ours {
            return;
        }
        if receipt.kind != ReceiptKind::Proposal {
            self.afterwards.push(receipt);
            return;
        }
        match receipt.outcome {
            Some(ReceiptOutcome::Deduplicated) => self.duplicates.push(receipt),
            Some(ReceiptOutcome::Refused) | None => {
                if receipt.reason == Some(Reason::AwaitingApproval) {
                    cited.insert(receipt.receipt_id.clone());
                }
                self.refusals.push(receipt);
            }
            Some(ReceiptOutcome::Applied | ReceiptOutcome::Failed | ReceiptOutcome::InDoubt) => {
                cited.insert(receipt.receipt_id.clone());
                self.attempts.push(receipt);
            }
        }
    }
}

/// The generation a receipt speaks of.
async fn generation(trail: &Trail, receipt: &Receipt) -> Result<u32> {
    let cited = match receipt.kind {
        ReceiptKind::Approve
        | ReceiptKind::Veto
        | ReceiptKind::Acknowledge
        | ReceiptKind::Forget => receipt.original_receipt_id.clone(),
        ReceiptKind::Proposal
        | ReceiptKind::Correction
        | ReceiptKind::Pause
        | ReceiptKind::Resume
        | ReceiptKind::SigningKey
        | ReceiptKind::Prune => None,
    };
    let Some(cited) = cited else {
        return Ok(receipt.generation);
    };
    let filter = ReceiptFilter {
        receipt_id: Some(cited),
        ..ReceiptFilter::default()
    };
    let cited = trail.newest(&filter).await?;
    Ok(cited.map_or(receipt.generation, |entry| entry.receipt.generation))
}
