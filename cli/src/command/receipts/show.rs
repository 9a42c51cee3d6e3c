//! Receipts for people: a table, a line, the words for how one ended.

use std::fmt::Display;

use comfy_table::Color;
use operators_kernel::{Disposition, Receipt, ReceiptKind, ReceiptOutcome};

use crate::command::run::decision;
use crate::output::{hanging, shown};
use crate::table::{Column, Table, Text, receipt_id, terminal_width};
use crate::words::moment;

/// Below this width the operator and the year are left out.
const OPERATOR_WIDTH_MIN: u16 = 110;

/// Below this width the tool is left out too, so that the key can still be told from others.
const TOOL_WIDTH_MIN: u16 = 74;

/// Receipts as a table.
pub(crate) fn table(receipts: &[Receipt]) -> String {
    let width = terminal_width();
    let narrow = width.is_some_and(|width| width < OPERATOR_WIDTH_MIN);
    let with_tool = width.is_none_or(|width| width >= TOOL_WIDTH_MIN);
    let mut columns = vec![
        Column::fixed("time"),
        Column::fixed("decision"),
        Column::yielding("outcome", 12),
        Column::yielding("key", 14),
    ];
    columns.extend(with_tool.then_some(Column::yielding("tool", 8)));
    columns.extend((!narrow).then_some(Column::yielding("operator", 9)));
    columns.push(Column::fixed("receipt"));
    let mut table = Table::new(&columns);
    for receipt in receipts {
        let time = moment(receipt.settled_at);
        let time = if narrow { without_year(&time) } else { &time };
        let mut cells = vec![
            Text::plain(time),
            receipt.decision.map_or_else(|| Text::plain("-"), decision),
            outcome(receipt),
            Text::plain(&receipt.idempotency_key),
        ];
        cells.extend(with_tool.then(|| Text::plain(&tool(receipt))));
        let operator = receipt.operator.as_ref().map_or("-", |name| name.as_str());
        cells.extend((!narrow).then(|| Text::plain(operator)));
        cells.push(Text::plain(&receipt_id(&receipt.receipt_id, width)));
        table.row(cells);
    }
    table.render(width)
}

fn without_year(time: &str) -> &str {
    time.split_once('-').map_or(time, |(_, rest)| rest)
}

/// One receipt on one line, cut where the terminal ends.
pub(crate) fn line(receipt: &Receipt) -> String {
    let width = terminal_width();
    let decision = receipt.decision.map_or("-", Disposition::as_str);
    let line = format!(
        "{}  {decision:<5}  {:<12}  {}  {}  {}",
        moment(receipt.settled_at),
        outcome_words(receipt),
        shown(&receipt.idempotency_key),
        tool(receipt),
        shown(&receipt_id(&receipt.receipt_id, width)),
    );
    match width.map(usize::from) {
        Some(width) if line.chars().count() > width => {
            let kept: String = line.chars().take(width.saturating_sub(1)).collect();
            format!("{kept}…")
        }
        _ => line,
    }
}

pub(super) fn tool(receipt: &Receipt) -> String {
    format!("{}:{}", receipt.action.connector, receipt.action.tool)
}

fn outcome(receipt: &Receipt) -> Text {
    let words = outcome_words(receipt);
    match receipt.outcome {
        Some(ReceiptOutcome::Failed | ReceiptOutcome::InDoubt | ReceiptOutcome::Refused) => {
            Text::coloured(&words, Color::Red)
        }
        Some(ReceiptOutcome::Applied | ReceiptOutcome::Deduplicated) | None => Text::plain(&words),
    }
}

/// `applied`, `refused: policy`, `corrected: applied`, `forgotten`.
pub(super) fn outcome_words(receipt: &Receipt) -> String {
    let outcome = receipt.outcome.map_or("-", ReceiptOutcome::as_str);
    match (receipt.kind, receipt.outcome, receipt.reason) {
        (ReceiptKind::Forget, ..) => "forgotten".to_owned(),
        (ReceiptKind::Pause, ..) => "paused".to_owned(),
        (ReceiptKind::Resume, ..) => "resumed".to_owned(),
        (ReceiptKind::Approve, ..) => "approved".to_owned(),
        (ReceiptKind::Veto, ..) => "vetoed".to_owned(),
        (ReceiptKind::Acknowledge, ..) => "acknowledged".to_owned(),
        (ReceiptKind::SigningKey, ..) => "signing key replaced".to_owned(),
        (ReceiptKind::Prune, ..) => "receipts pruned".to_owned(),
        (ReceiptKind::Correction, ..) => format!("corrected: {outcome}"),
        (ReceiptKind::Proposal, Some(ReceiptOutcome::Refused), Some(reason)) => {
            format!("refused: {}", reason.as_str())
        }
        (ReceiptKind::Proposal, ..) => outcome.to_owned(),
    }
}

/// What a receipt is about, in words.
pub(super) fn kind(kind: ReceiptKind) -> &'static str {
    match kind {
        ReceiptKind::Proposal => "proposal",
        ReceiptKind::Correction => "correction: what became known later",
        ReceiptKind::Forget => "forget: a key was opened for its next generation",
        ReceiptKind::Pause => "pause: a person stopped an operator, or everything",
        ReceiptKind::Resume => "resume: a person ended a pause",
        ReceiptKind::Approve => "approve: a person let what waited run",
        ReceiptKind::Veto => "veto: a person said no to what waited",
        ReceiptKind::Acknowledge => "acknowledge: a person has seen an alert",
        ReceiptKind::SigningKey => "signing_key: the key that signs checkpoints was replaced",
        ReceiptKind::Prune => "prune: the texts of old receipts went into a file",
    }
}

/// Lines of `name  value`; what is empty is shown as `-`, so that nothing seems to be missing.
#[derive(Debug, Default)]
pub(crate) struct Block(pub(crate) String);

impl Block {
    pub(crate) fn field(&mut self, name: &str, value: Option<impl Display>) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        let value = value.map_or_else(|| "-".to_owned(), |value| shown(&value));
        let mark = format!("  {name:<17}");
        self.0
            .push_str(&hanging(&mark, &mark, &value, terminal_width()));
    }
}
