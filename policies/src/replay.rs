//! A rule set over the past: what it would have said of a proposal that left a receipt.
//!
//! Owns what a receipt can and cannot answer. A receipt keeps no event, and secret arguments only
//! as hashes; where a rule would have looked at those there is no answer, and none is guessed.

use operators_kernel::{
    Disposition, PlannedAction, Reason, Receipt, ReceiptKind, Ruling, Shared, TrustDecision,
    TrustQuestion,
};
use serde_json::{Map, Value};

use crate::expression::{Fact, Path};
use crate::policy::Rule;
use crate::rule_set::RuleSet;

/// What stands in a receipt for a secret argument.
const HIDDEN: &str = "hmac-sha256:";

/// What the rules would have said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// What was decided then.
    pub was: TrustDecision,
    /// What would be decided now, or why that cannot be told.
    pub now: Result<Ruling, String>,
}

impl Replayed {
    /// Whether it would go otherwise now.
    pub fn flips(&self) -> bool {
        let now = self.now.as_ref().map(|ruling| ruling.decision);
        now.is_ok_and(|now| now != self.was)
    }
}

impl RuleSet {
    /// Weighs a past proposal again; `None` for a receipt of something that trust did not decide: a
    /// read, a duplicate, a conflict, a correction.
    pub fn replay(&self, receipt: &Receipt) -> Option<Replayed> {
        let was = decided(receipt)?;
        let action = PlannedAction {
            connector: receipt.action.connector.clone(),
            tool: receipt.action.tool.clone(),
            args: Shared::from(&receipt.action.args),
            entity_key: receipt.entity_key.clone(),
            idempotency_key: receipt.idempotency_key.clone(),
            value: receipt.value.clone(),
            revision: receipt.revision,
            source_id: receipt.source_id.clone(),
            index_hash: receipt.index_hash.clone(),
        };
        let question = TrustQuestion {
            tenant: &receipt.tenant_id,
            operator: receipt.operator.as_ref(),
            action: &action,
            event: None,
        };
        let explained = self.explain(&question);
        let mut asked = explained.findings.iter().chain(&explained.silent);
        let unknown = asked.find_map(|finding| {
            let why = unanswerable(finding.rule, &action.args)?;
            Some(format!("rule `{}` {why}", finding.rule.name))
        });
        let now = match unknown {
            Some(why) => Err(why),
            None => Ok(explained.ruling),
        };
        Some(Replayed { was, now })
    }
}

/// What trust said, where it was what decided.
fn decided(receipt: &Receipt) -> Option<TrustDecision> {
    if receipt.kind != ReceiptKind::Proposal {
        return None;
    }
    match (receipt.decision?, receipt.reason) {
        // A read is ALLOW too, and cites nothing.
        (Disposition::Allow, _) => receipt.policy.as_ref().map(|_| TrustDecision::Allow),
        (Disposition::Alert, _) => Some(TrustDecision::Alert),
        (Disposition::Block, Some(Reason::Policy)) => Some(TrustDecision::Block),
        (Disposition::Block | Disposition::Dedup, _) => None,
    }
}

/// Why the rule cannot be asked about what a receipt keeps.
fn unanswerable(rule: &Rule, args: &Map<String, Value>) -> Option<String> {
    for predicate in [&rule.only_if, &rule.require].into_iter().flatten() {
        let Some(expression) = predicate.as_expression() else {
            return Some("is code, which may look at what receipts do not keep".to_owned());
        };
        for path in expression.reads() {
            if path.fact.is_of_event() {
                return Some(format!("reads `{}`, which receipts do not keep", path.text));
            }
            if path.fact == Fact::Args && is_hidden(path, args) {
                return Some(format!("reads `{}`, kept only as a hash", path.text));
            }
        }
    }
    None
}

fn is_hidden(path: &Path, args: &Map<String, Value>) -> bool {
    let mut fields = path.fields.iter();
    let mut place = match fields.next() {
        None => return args.values().any(holds_hash),
        Some(name) => args.get(name),
    };
    for name in fields {
        // A secret map is one hash, with nothing inside.
        if place.is_some_and(is_hash) {
            return true;
        }
        place = place.and_then(|value| value.get(name));
    }
    place.is_some_and(holds_hash)
}

fn is_hash(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.starts_with(HIDDEN))
}

fn holds_hash(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(holds_hash),
        Value::Object(fields) => fields.values().any(holds_hash),
        other => is_hash(other),
    }
}
