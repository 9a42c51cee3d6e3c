//! Receipts for people: a table, a line, or a block with everything in it.

use std::fmt::Display;

use comfy_table::Color;
use operators_kernel::{Disposition, Receipt, ReceiptKind, ReceiptOutcome};

use crate::command::run::decision;
use crate::output::{hanging, json_text, shown};
use crate::table::{Column, Table, Text, receipt_id, terminal_width};
use crate::words::moment;

/// Below this width the operator and the year are left out.
const OPERATOR_WIDTH_MIN: u16 = 110;

/// Receipts as a table.
pub(crate) fn table(receipts: &[Receipt]) -> String {
    let width = terminal_width();
    let narrow = width.is_some_and(|width| width < OPERATOR_WIDTH_MIN);
    let mut columns = vec![
        Column::fixed("time"),
        Column::fixed("decision"),
        Column::yielding("outcome", 12),
        Column::yielding("key", 14),
        Column::yielding("tool", 8),
    ];
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
            Text::plain(&tool(receipt)),
        ];
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

fn tool(receipt: &Receipt) -> String {
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
fn outcome_words(receipt: &Receipt) -> String {
    let outcome = receipt.outcome.map_or("-", ReceiptOutcome::as_str);
    match (receipt.kind, receipt.outcome, receipt.reason) {
        (ReceiptKind::Forget, ..) => "forgotten".to_owned(),
        (ReceiptKind::Pause, ..) => "paused".to_owned(),
        (ReceiptKind::Resume, ..) => "resumed".to_owned(),
        (ReceiptKind::Approve, ..) => "approved".to_owned(),
        (ReceiptKind::Veto, ..) => "vetoed".to_owned(),
        (ReceiptKind::Acknowledge, ..) => "acknowledged".to_owned(),
        (ReceiptKind::Correction, ..) => format!("corrected: {outcome}"),
        (ReceiptKind::Proposal, Some(ReceiptOutcome::Refused), Some(reason)) => {
            format!("refused: {}", reason.as_str())
        }
        (ReceiptKind::Proposal, ..) => outcome.to_owned(),
    }
}

/// Every field of a receipt, in groups.
pub(crate) fn block(receipt: &Receipt) -> String {
    let mut block = Block::default();
    block.field("receipt", Some(&receipt.receipt_id));
    block.field("kind", Some(kind(receipt.kind)));
    block.field("original receipt", receipt.original_receipt_id.as_ref());

    block.group("what was proposed");
    block.field("tool", Some(tool(receipt)));
    block.field("args", json_text(&receipt.action.args, false).ok());
    block.field("value", receipt.value.as_ref());
    block.field("entity key", Some(&receipt.entity_key));
    block.field("idempotency key", Some(&receipt.idempotency_key));
    block.field("revision", receipt.revision);
    block.field("source id", receipt.source_id.as_ref());
    block.field("index hash", receipt.index_hash.as_ref());

    block.group("what was decided");
    block.field("decision", receipt.decision.map(Disposition::as_str));
    block.field("rule", receipt.rule.as_ref());
    let policy = receipt.policy.as_ref();
    block.field(
        "policy",
        policy.map(|policy| format!("{} version {}", policy.name, policy.version)),
    );
    block.field("policy digest", policy.map(|policy| &policy.digest));
    block.field("approver", receipt.approver.as_ref());
    block.field("note", receipt.note.as_ref());

    block.group("what happened");
    block.field("ok", Some(if receipt.ok { "yes" } else { "no" }));
    block.field("outcome", receipt.outcome.map(ReceiptOutcome::as_str));
    block.field(
        "reason",
        receipt.reason.map(operators_kernel::Reason::as_str),
    );
    block.field("error", receipt.error.as_ref());
    block.field("result digest", receipt.result_digest.as_ref());
    block.field("effect id", receipt.effect_id.as_ref());
    block.field("generation", Some(receipt.generation));
    block.field("attempt", Some(receipt.attempt));
    block.field("proposed at", Some(receipt.proposed_at));
    block.field("settled at", Some(receipt.settled_at));

    block.group("who and where");
    block.field("tenant", Some(&receipt.tenant_id));
    block.field("reseller", receipt.reseller_id.as_ref());
    block.field("operator", receipt.operator.as_ref());
    block.field("run", Some(&receipt.run_id));
    block.field("plan", Some(&receipt.plan_id));
    block.field("event", receipt.event_id.as_ref());
    block.field("correlation", Some(&receipt.correlation_id));
    block.field("session", receipt.session.map(|session| session.0));
    block.field("fence", receipt.fence.map(|fence| fence.0));
    block.0
}

fn kind(kind: ReceiptKind) -> &'static str {
    match kind {
        ReceiptKind::Proposal => "proposal",
        ReceiptKind::Correction => "correction: what became known later",
        ReceiptKind::Forget => "forget: a key was opened for its next generation",
        ReceiptKind::Pause => "pause: a person stopped an operator, or everything",
        ReceiptKind::Resume => "resume: a person ended a pause",
        ReceiptKind::Approve => "approve: a person let what waited run",
        ReceiptKind::Veto => "veto: a person said no to what waited",
        ReceiptKind::Acknowledge => "acknowledge: a person has seen an alert",
    }
}

/// Lines of `name  value`; what is empty is shown as `-`, so that nothing seems to be missing.
#[derive(Debug, Default)]
pub(crate) struct Block(pub(crate) String);

impl Block {
    pub(crate) fn group(&mut self, title: &str) {
        self.0.push_str("\n\n");
        self.0.push_str(title);
    }

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
