//! What a report counts, receipt by receipt: memory does not grow with the trail.

use std::collections::BTreeMap;
use std::time::Duration;

use operators_kernel::{Receipt, ReceiptKind, ReceiptOutcome, Timestamp};

use super::spread::Spread;
use super::timeline::{Counts, Timeline};

/// The most names of one sort that are told apart. A plan may name tools that do not exist; what is
/// over goes under one name.
const NAMES_MAX: usize = 2_000;

/// Where the rest is counted; no tool and no rule has this name.
pub(super) const OTHERS: &str = "(others)";

/// What was closed because no rule spoke.
pub(super) const NO_RULE: &str = "(no rule: closed by default)";

/// What became of a tool's proposals.
#[derive(Debug, Default)]
pub(super) struct Tool {
    pub(super) applied: u64,
    pub(super) failed: u64,
    pub(super) in_doubt: u64,
    pub(super) refused: u64,
    pub(super) duplicates: u64,
    /// From the proposal to its settled receipt, of what reached the connector.
    pub(super) spread: Spread,
}

/// A rule, by the name of its policy and its own.
pub(super) type Rule = (String, String);

/// Everything a report tells.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Receipts of every kind.
    pub(super) receipts: u64,
    pub(super) decisions: Counts,
    pub(super) applied: u64,
    pub(super) failed: u64,
    pub(super) in_doubt: u64,
    pub(super) corrections: u64,
    pub(super) approvals: u64,
    pub(super) vetoes: u64,
    pub(super) reasons: BTreeMap<&'static str, u64>,
    pub(super) rules: BTreeMap<Rule, Counts>,
    pub(super) tools: BTreeMap<String, Tool>,
    pub(super) timeline: Timeline,
    pub(super) span: Option<(Timestamp, Timestamp)>,
}

impl Tally {
    pub(super) fn add(&mut self, receipt: &Receipt) {
        self.receipts += 1;
        let at = receipt.settled_at;
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
        match receipt.kind {
            ReceiptKind::Proposal => self.add_proposal(receipt),
            ReceiptKind::Correction => self.corrections += 1,
            ReceiptKind::Approve => self.approvals += 1,
            ReceiptKind::Veto => self.vetoes += 1,
            ReceiptKind::Forget
            | ReceiptKind::Pause
            | ReceiptKind::Resume
            | ReceiptKind::SigningKey
            | ReceiptKind::Acknowledge
            | ReceiptKind::Prune => {}
        }
    }

    fn add_proposal(&mut self, receipt: &Receipt) {
        if let Some(decision) = receipt.decision {
            self.decisions.add(decision);
            self.timeline.add(receipt.settled_at, decision);
            if let Some(rule) = rule(receipt) {
                let others = || (OTHERS.to_owned(), OTHERS.to_owned());
                entry(&mut self.rules, rule, others).add(decision);
            }
        }
        if let Some(reason) = receipt.reason {
            *self.reasons.entry(reason.as_str()).or_default() += 1;
        }
        let name = format!("{}:{}", receipt.action.connector, receipt.action.tool);
        let tool = entry(&mut self.tools, name, || OTHERS.to_owned());
        match receipt.outcome {
            Some(ReceiptOutcome::Applied) => {
                self.applied += 1;
                tool.applied += 1;
                tool.spread.add(took(receipt));
            }
            Some(ReceiptOutcome::Failed) => {
                self.failed += 1;
                tool.failed += 1;
                tool.spread.add(took(receipt));
            }
            Some(ReceiptOutcome::InDoubt) => {
                self.in_doubt += 1;
                tool.in_doubt += 1;
                tool.spread.add(took(receipt));
            }
            Some(ReceiptOutcome::Deduplicated) => tool.duplicates += 1,
            Some(ReceiptOutcome::Refused) | None => tool.refused += 1,
        }
    }

    /// The rules that spoke most often, the busiest first.
    pub(super) fn top_rules(&self, count: usize) -> Vec<(&Rule, Counts)> {
        let mut rules: Vec<_> = self.rules.iter().map(|(rule, one)| (rule, *one)).collect();
        rules.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.total()));
        rules.truncate(count);
        rules
    }

    /// The tools that took longest, the slowest first.
    pub(super) fn slowest_tools(&self, count: usize) -> Vec<(&str, &Tool)> {
        let called = self
            .tools
            .iter()
            .filter(|(_, tool)| tool.spread.total() > 0);
        let mut tools: Vec<_> = called.map(|(name, tool)| (name.as_str(), tool)).collect();
        tools.sort_by_key(|(_, tool)| std::cmp::Reverse(tool.spread.percentile(95)));
        tools.truncate(count);
        tools
    }
}

/// The rule that decided; what ended before trust was asked has none.
fn rule(receipt: &Receipt) -> Option<Rule> {
    if let (Some(policy), Some(rule)) = (&receipt.policy, &receipt.rule) {
        return Some((policy.name.clone(), rule.to_string()));
    }
    let is_closed = receipt.reason == Some(operators_kernel::Reason::Policy);
    is_closed.then(|| (String::new(), NO_RULE.to_owned()))
}

fn took(receipt: &Receipt) -> Duration {
    let micros = receipt.settled_at.as_micros() - receipt.proposed_at.as_micros();
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

fn entry<K: Ord, V: Default>(map: &mut BTreeMap<K, V>, name: K, others: impl Fn() -> K) -> &mut V {
    let is_full = map.len() >= NAMES_MAX && !map.contains_key(&name);
    map.entry(if is_full { others() } else { name })
        .or_default()
}
