//! A story as a tree a person can read. Owns the branches; everything on them is escaped.

use std::fmt::Display;

use operators_kernel::{Disposition, KnownBy, Receipt, ReceiptKind};

use super::show::{kind, outcome_words, tool};
use super::story::{Several, Story};
use crate::output::{json_text, shown, wrapped};
use crate::table::terminal_width;
use crate::words::moment;

/// A line and what hangs on it.
#[derive(Debug)]
struct Branch {
    text: String,
    twigs: Vec<Branch>,
}

impl Branch {
    fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            twigs: Vec::new(),
        }
    }

    /// `name  value`; what is empty is left out, `--json` has every field.
    fn field(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            let text = format!("{name:<16} {}", shown(&value));
            self.twigs.push(Self::new(text));
        }
    }

    fn grow(&mut self, twig: Self) {
        if !twig.twigs.is_empty() {
            self.twigs.push(twig);
        }
    }

    /// Its lines under `indent`, broken between words where the terminal ends.
    fn write(&self, indent: &str, width: Option<u16>, lines: &mut Vec<String>) {
        for (number, twig) in self.twigs.iter().enumerate() {
            let is_last = number + 1 == self.twigs.len();
            let (mark, under) = if is_last {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            let under = format!("{indent}{under}");
            let room = width.map_or(usize::MAX, |width| {
                usize::from(width).saturating_sub(under.chars().count() + 2)
            });
            let hangs = if twig.twigs.is_empty() { "  " } else { "│ " };
            let mut first = true;
            for line in wrapped(&twig.text, room.max(20)) {
                if std::mem::take(&mut first) {
                    lines.push(format!("{indent}{mark}{line}"));
                } else {
                    lines.push(format!("{under}{hangs}{line}"));
                }
            }
            twig.write(&under, width, lines);
        }
    }
}

/// The whole tree.
pub(super) fn draw(story: &Story) -> String {
    let receipt = &story.receipt;
    let mut root = Branch::new(format!(
        "{}  {}  {}",
        tool(receipt),
        shown(&receipt.idempotency_key),
        outcome_words(receipt)
    ));
    root.grow(event(receipt));
    root.grow(plan(receipt));
    root.grow(action(receipt));
    root.grow(trust(receipt));
    root.grow(several("attempts", &story.attempts, receipt));
    root.grow(several(
        "stopped before the connector",
        &story.refusals,
        receipt,
    ));
    root.grow(ending(receipt));
    root.grow(several("afterwards", &story.afterwards, receipt));
    root.grow(several(
        "duplicates that collapsed into it",
        &story.duplicates,
        receipt,
    ));
    if let Some(phase) = story.phase {
        let text = format!("the key is now {}", phase.as_str());
        root.twigs.push(Branch::new(text));
    }
    let mut lines = vec![root.text.clone()];
    root.write("", terminal_width(), &mut lines);
    lines.join("\n")
}

fn event(receipt: &Receipt) -> Branch {
    let mut event = Branch::new("event");
    event.field("event id", receipt.event_id.as_ref());
    event.field("correlation", Some(&receipt.correlation_id));
    event.field("tenant", Some(&receipt.tenant_id));
    event.field("reseller", receipt.reseller_id.as_ref());
    event
}

fn plan(receipt: &Receipt) -> Branch {
    let mut plan = Branch::new("plan");
    plan.field("plan id", Some(&receipt.plan_id));
    plan.field("run", Some(&receipt.run_id));
    plan.field("operator", receipt.operator.as_ref());
    plan.field("proposed at", Some(receipt.proposed_at));
    plan
}

fn action(receipt: &Receipt) -> Branch {
    let mut action = Branch::new("action");
    action.field("tool", Some(tool(receipt)));
    action.field("args", json_text(&receipt.action.args, false).ok());
    action.field("value", receipt.value.as_ref());
    action.field("entity key", Some(&receipt.entity_key));
    action.field("idempotency key", Some(&receipt.idempotency_key));
    action.field("generation", Some(receipt.generation));
    action.field("revision", receipt.revision);
    action.field("source id", receipt.source_id.as_ref());
    action.field("index hash", receipt.index_hash.as_ref());
    action
}

fn trust(receipt: &Receipt) -> Branch {
    let mut trust = Branch::new("trust");
    trust.field("decision", receipt.decision.map(Disposition::as_str));
    trust.field("rule", receipt.rule.as_ref());
    let policy = receipt.policy.as_ref();
    trust.field(
        "policy",
        policy.map(|policy| format!("{} version {}", policy.name, policy.version)),
    );
    trust.field("policy digest", policy.map(|policy| &policy.digest));
    trust.field("approver", receipt.approver.as_ref());
    trust.field("known by", receipt.known_by.map(KnownBy::as_str));
    trust.field("note", receipt.note.as_ref());
    trust
}

/// How the receipt that was asked for ended.
fn ending(receipt: &Receipt) -> Branch {
    let mut ending = Branch::new(format!("outcome: {}", outcome_words(receipt)));
    ending.field("receipt", Some(&receipt.receipt_id));
    ending.field("kind", Some(kind(receipt.kind)));
    ending.field("cites", receipt.original_receipt_id.as_ref());
    ending.field("ok", Some(if receipt.ok { "yes" } else { "no" }));
    ending.field("error", receipt.error.as_ref());
    ending.field("hint", receipt.hint.as_ref());
    ending.field("result digest", receipt.result_digest.as_ref());
    ending.field("effect id", receipt.effect_id.as_ref());
    ending.field("attempt", Some(receipt.attempt));
    ending.field("session", receipt.session.map(|session| session.0));
    ending.field("fence", receipt.fence.map(|fence| fence.0));
    ending.field("settled at", Some(receipt.settled_at));
    ending.field("version", Some(receipt.version));
    ending
}

fn several(title: &str, several: &Several, asked: &Receipt) -> Branch {
    let mut branch = Branch::new(format!("{title}: {}", several.count));
    for receipt in &several.receipts {
        branch.twigs.push(one(receipt, asked));
    }
    match several.rest() {
        0 => {}
        rest => branch.twigs.push(Branch::new(format!("… and {rest} more"))),
    }
    branch
}

fn one(receipt: &Receipt, asked: &Receipt) -> Branch {
    let this = if receipt.receipt_id == asked.receipt_id {
        "  (this one)"
    } else {
        ""
    };
    let mut branch = Branch::new(format!(
        "{}  {}  {}{this}",
        moment(receipt.settled_at),
        outcome_words(receipt),
        shown(&receipt.receipt_id),
    ));
    if receipt.kind == ReceiptKind::Proposal && receipt.attempt > 0 && receipt.rule.is_some() {
        branch.field("attempt", Some(receipt.attempt));
    }
    let is_decided = receipt.kind != ReceiptKind::Proposal;
    branch.field("by", receipt.approver.as_ref().filter(|_| is_decided));
    branch.field("because", receipt.note.as_ref().filter(|_| is_decided));
    branch.field(
        "cites",
        receipt.original_receipt_id.as_ref().filter(|_| is_decided),
    );
    branch.field("effect id", receipt.effect_id.as_ref());
    branch.field("error", receipt.error.as_ref());
    branch
}
