//! A receipt as one row of typed columns: the same names and order in every tabular format.

use std::borrow::Cow;

use operators_kernel::{
    Disposition, EntityKey, IdempotencyKey, KnownBy, OperatorName, Reason, Receipt, ReceiptOutcome,
    TenantId,
};

use crate::output::json_text;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// JSON, as text.
    Json,
    Whole,
    Real,
    Truth,
    /// Microseconds since 1970 UTC.
    Time,
}

/// What stands in one place; nothing where a receipt's field is null.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell<'a> {
    Text(Cow<'a, str>),
    Json(String),
    Whole(i64),
    Real(f64),
    Truth(bool),
    Time(operators_kernel::Timestamp),
}

/// One column.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) of: for<'a> fn(&'a Receipt) -> Option<Cell<'a>>,
}

macro_rules! column {
    ($name:literal, $kind:ident, |$receipt:ident| $cell:expr) => {
        Column {
            name: $name,
            kind: Kind::$kind,
            of: |$receipt| $cell,
        }
    };
}

fn text(text: &str) -> Cell<'_> {
    Cell::Text(Cow::Borrowed(text))
}

fn maybe(text: Option<&str>) -> Option<Cell<'_>> {
    text.map(|one| Cell::Text(Cow::Borrowed(one)))
}

fn whole(number: u64) -> Cell<'static> {
    Cell::Whole(i64::try_from(number).unwrap_or(i64::MAX))
}

/// A word of the receipts' vocabulary, as its JSON spells it.
fn kind_word(receipt: &Receipt) -> Option<Cell<'_>> {
    match serde_json::to_value(receipt.kind) {
        Ok(serde_json::Value::String(word)) => Some(Cell::Text(Cow::Owned(word))),
        _ => None,
    }
}

/// Every column, in the order in which they are written.
pub(super) const COLUMNS: &[Column] = &[
    column!("receipt_id", Text, |receipt| Some(text(
        &receipt.receipt_id
    ))),
    column!("kind", Text, |receipt| kind_word(receipt)),
    column!("proposed_at", Time, |receipt| Some(Cell::Time(
        receipt.proposed_at
    ))),
    column!("settled_at", Time, |receipt| Some(Cell::Time(
        receipt.settled_at
    ))),
    column!("tenant_id", Text, |receipt| Some(text(TenantId::as_str(
        &receipt.tenant_id
    )))),
    column!("reseller_id", Text, |receipt| maybe(
        receipt.reseller_id.as_deref()
    )),
    column!("operator", Text, |receipt| {
        receipt
            .operator
            .as_ref()
            .map(OperatorName::as_str)
            .map(text)
    }),
    column!("run_id", Text, |receipt| Some(text(&receipt.run_id))),
    column!("plan_id", Text, |receipt| Some(text(&receipt.plan_id))),
    column!("event_id", Text, |receipt| maybe(
        receipt.event_id.as_deref()
    )),
    column!("correlation_id", Text, |receipt| Some(text(
        &receipt.correlation_id
    ))),
    column!("connector", Text, |receipt| Some(text(
        receipt.action.connector.as_str()
    ))),
    column!("tool", Text, |receipt| Some(text(
        receipt.action.tool.as_str()
    ))),
    column!("args", Json, |receipt| {
        json_text(&receipt.action.args, false).ok().map(Cell::Json)
    }),
    column!("value", Real, |receipt| {
        receipt
            .value
            .as_ref()
            .and_then(serde_json::Number::as_f64)
            .map(Cell::Real)
    }),
    column!("entity_key", Text, |receipt| Some(text(EntityKey::as_str(
        &receipt.entity_key
    )))),
    column!("idempotency_key", Text, |receipt| {
        Some(text(IdempotencyKey::as_str(&receipt.idempotency_key)))
    }),
    column!("generation", Whole, |receipt| Some(whole(
        receipt.generation.into()
    ))),
    column!("attempt", Whole, |receipt| Some(whole(
        receipt.attempt.into()
    ))),
    column!("revision", Whole, |receipt| receipt.revision.map(whole)),
    column!("source_id", Text, |receipt| maybe(
        receipt.source_id.as_deref()
    )),
    column!("index_hash", Text, |receipt| maybe(
        receipt.index_hash.as_deref()
    )),
    column!("decision", Text, |receipt| {
        receipt.decision.map(Disposition::as_str).map(text)
    }),
    column!("rule", Text, |receipt| maybe(receipt.rule.as_deref())),
    column!("policy_name", Text, |receipt| {
        maybe(receipt.policy.as_ref().map(|policy| policy.name.as_str()))
    }),
    column!("policy_version", Whole, |receipt| {
        receipt.policy.as_ref().map(|policy| whole(policy.version))
    }),
    column!("policy_digest", Text, |receipt| {
        maybe(receipt.policy.as_ref().map(|policy| policy.digest.as_str()))
    }),
    column!("ok", Truth, |receipt| Some(Cell::Truth(receipt.ok))),
    column!("outcome", Text, |receipt| {
        receipt.outcome.map(ReceiptOutcome::as_str).map(text)
    }),
    column!("reason", Text, |receipt| receipt
        .reason
        .map(Reason::as_str)
        .map(text)),
    column!("error", Text, |receipt| maybe(receipt.error.as_deref())),
    column!("hint", Text, |receipt| maybe(receipt.hint.as_deref())),
    column!("note", Text, |receipt| maybe(receipt.note.as_deref())),
    column!("result_digest", Text, |receipt| maybe(
        receipt.result_digest.as_deref()
    )),
    column!("effect_id", Text, |receipt| maybe(
        receipt.effect_id.as_deref()
    )),
    column!("original_receipt_id", Text, |receipt| {
        maybe(receipt.original_receipt_id.as_deref())
    }),
    column!("approver", Text, |receipt| maybe(
        receipt.approver.as_deref()
    )),
    column!("known_by", Text, |receipt| {
        receipt.known_by.map(KnownBy::as_str).map(text)
    }),
    column!("session", Whole, |receipt| receipt
        .session
        .map(|session| whole(session.0))),
    column!("fence", Whole, |receipt| receipt
        .fence
        .map(|fence| whole(fence.0))),
    column!("version", Whole, |receipt| Some(whole(
        receipt.version.into()
    ))),
];
