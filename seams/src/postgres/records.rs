//! Receipts that touch no key.

use std::sync::Arc;

use operators_kernel::Receipt;

use super::fast::{self, Function};
use super::lines::{IfBroken, Lines};
use super::rows::canonical;
use super::text::Value;
use super::trouble::Trouble;

const RECORD: Function = Function {
    one: None,
    many: "record",
    if_broken: IfBroken::AskAgain,
};

/// A receipt that touches no key, and its text.
#[derive(Debug)]
pub(super) struct RecordItem {
    receipt: Receipt,
    body: String,
}

impl RecordItem {
    pub(super) fn of(receipt: Receipt) -> Result<Self, Trouble> {
        let body = canonical(&receipt)?;
        Ok(Self { receipt, body })
    }

    pub(super) fn weight(&self) -> usize {
        self.body.len()
    }

    /// In the order of the function's arguments.
    fn values(&self) -> [Value<'_>; 5] {
        [
            Value::Text(self.receipt.tenant_id.as_str()),
            Value::Text(self.receipt.idempotency_key.as_str()),
            Value::Text(&self.receipt.receipt_id),
            Value::Number(self.receipt.settled_at.as_micros()),
            Value::Text(&self.body),
        ]
    }
}

/// Writes a batch of receipts.
pub(super) async fn record(lines: Arc<Lines>, items: Vec<RecordItem>) -> Vec<Result<(), Trouble>> {
    let order: Vec<usize> = (0..items.len()).collect();
    let written = fast::run(&lines, RECORD, &items, &order, RecordItem::values).await;
    if let (Ok(_), Some(item)) = (&written, items.last()) {
        lines.note_acked(&item.receipt.receipt_id);
    }
    let written = written.map(drop);
    items.iter().map(|_| written.clone()).collect()
}
