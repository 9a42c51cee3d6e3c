//! Items: their names, and what all of them are made of.
//!
//! No item holds a moment of any clock that a decision trusts. A span is kept with the id of what it
//! began with; whoever reads it counts from when it first saw that id (`observer`).

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use operators_kernel::log::is_stub;
use operators_kernel::{EntityKey, IdempotencyKey, Receipt, SessionId, TenantId, json};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::fields::{Fields, number, text};
use super::pieces::{PIECE_BYTES, cut};
use super::write::Write;

/// One item of the table.
pub(super) type Item = HashMap<String, AttributeValue>;

/// The table's key.
pub(super) const PK: &str = "pk";
pub(super) const SK: &str = "sk";
/// The attribute and the index that list a session's intents. The index lags: it is a hint.
pub(super) const INTENT_OF: &str = "intent_of";
pub(super) const BY_SESSION: &str = "by_session";
/// Grows with every write of a record; every write is conditioned on the one it was decided on.
pub(super) const VERSION: &str = "v";
/// Who wrote it: the id of the write, so that one's own is recognised after a lost answer.
pub(super) const BY: &str = "by";
/// The sort key of items that stand alone.
pub(super) const SOLE: &str = "-";

/// Where an item is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Address {
    pub(super) pk: String,
    pub(super) sk: String,
}

impl Address {
    /// Parts are length-prefixed, so that ("a", "b|c") and ("a|b", "c") never meet. Two parts of
    /// 512 bytes fit into a key of 2,048.
    pub(super) fn of(kind: &str, parts: &[&str]) -> Self {
        let parts = parts.iter().map(|part| format!("|{}:{part}", part.len()));
        Self {
            pk: std::iter::once(kind.to_owned()).chain(parts).collect(),
            sk: SOLE.to_owned(),
        }
    }

    pub(super) fn at(mut self, sk: impl Into<String>) -> Self {
        self.sk = sk.into();
        self
    }

    pub(super) fn key(tenant: &TenantId, key: &IdempotencyKey) -> Self {
        Self::of("key", &[tenant.as_str(), key.as_str()])
    }

    pub(super) fn entity(tenant: &TenantId, entity: &EntityKey) -> Self {
        Self::of("entity", &[tenant.as_str(), entity.as_str()])
    }

    pub(super) fn receipt(tenant: &TenantId, receipt_id: &str) -> Self {
        Self::of("receipt", &[tenant.as_str(), receipt_id])
    }

    pub(super) fn doubt(tenant: &TenantId, key: &IdempotencyKey) -> Self {
        Self::of("doubts", &[tenant.as_str()]).at(key.as_str())
    }

    pub(super) fn session(session: SessionId) -> Self {
        Self::of("session", &[&session.to_string()])
    }

    /// As an item with nothing else.
    pub(super) fn item(&self) -> Item {
        HashMap::from([
            (PK.to_owned(), text(&self.pk)),
            (SK.to_owned(), text(&self.sk)),
        ])
    }
}

/// How long something may last, counted from whenever an observer first saw its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) id: String,
    pub(super) micros: i64,
    /// The latest the store's date can have been then; see `observer`.
    pub(super) date_max: Option<i64>,
}

/// What the vendor's window is counted from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct First {
    pub(super) id: String,
    /// The earliest the store's date can have been then.
    pub(super) date_min: Option<i64>,
}

/// A receipt's item and the pieces of its text. It is put once and never again.
pub(super) fn write_receipt(receipt: &Receipt) -> Result<(Item, Vec<Write>), String> {
    let mut item = Address::receipt(&receipt.tenant_id, &receipt.receipt_id).item();
    let body = json::canonical(receipt).map_err(|error| error.to_string())?;
    item.insert("body".to_owned(), text(body));
    let pieces = cut(&mut item, "body", PIECE_BYTES).map(|(_, pieces)| pieces);
    Ok((item, pieces.unwrap_or_default()))
}

/// A receipt from its item.
pub(super) fn read_receipt(item: &Item) -> Result<Receipt, String> {
    if is_pruned(item) {
        return Err("the text of a receipt was pruned".to_owned());
    }
    Fields::of(item, "a receipt").json("body")
}

/// Whether only a stub is left of a receipt.
pub(super) fn is_pruned(item: &Item) -> bool {
    let body = Fields::of(item, "a receipt").text("body");
    body.is_ok_and(is_stub)
}

pub(super) fn write_span(span: &Span) -> Item {
    let mut entry = HashMap::from([
        ("id".to_owned(), text(&span.id)),
        ("us".to_owned(), number(span.micros)),
    ]);
    if let Some(date) = span.date_max {
        entry.insert("date_max".to_owned(), number(date));
    }
    entry
}

pub(super) fn read_span(fields: &Fields<'_>) -> Result<Span, String> {
    Ok(Span {
        id: fields.text("id")?.to_owned(),
        micros: fields.number("us")?,
        date_max: fields.number_if_there("date_max")?,
    })
}

pub(super) fn to_json(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| error.to_string())
}

/// Reads JSON out of an attribute.
pub(super) fn from_json<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("{what} cannot be read: {error}"))
}
