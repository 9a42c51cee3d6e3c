//! The receipt of a new signing key: it names the old one and the new one, so both are in the trail.

use serde_json::{Map, Value};

use super::checkpoint::PublicKey;
use crate::clock::Timestamp;
use crate::directive::{Directive, Order};
use crate::key::{EntityKey, TenantId, ToolName};
use crate::life::NoteError;
use crate::receipt::{Person, Receipt, ReceiptAction, ReceiptKind};
use crate::shared::Shared;
use crate::text::Text;

/// One key takes the place of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChange {
    /// The key until now.
    pub old: PublicKey,
    /// The key from now on.
    pub new: PublicKey,
    /// Who changes it.
    pub by: Person,
    /// Why, in words.
    pub note: Option<String>,
    /// The id of the receipt it leaves.
    pub receipt_id: Text,
    /// The caller's clock, for the receipt.
    pub at: Timestamp,
}

impl KeyChange {
    /// Its receipt: like an order, it names itself where an action would stand.
    pub fn receipt(&self, tenant: &TenantId) -> Result<Receipt, NoteError> {
        let invalid = |error: crate::key::IdentifierError| NoteError::new("a key", &error);
        let order = Directive {
            order: Order::Pause(None),
            by: self.by.clone(),
            note: self.note.clone(),
            receipt_id: self.receipt_id.clone(),
            at: self.at,
        };
        let mut receipt = order.receipt(tenant)?;
        receipt.kind = ReceiptKind::SigningKey;
        receipt.entity_key = EntityKey::parse("signing-key").map_err(invalid)?;
        let args = [("new", self.new), ("old", self.old)];
        let args = args.map(|(name, key)| (name.to_owned(), Value::from(key.to_string())));
        receipt.action = Shared::from(ReceiptAction {
            args: Map::from_iter(args).into(),
            connector: receipt.action.connector.clone(),
            tool: ToolName::parse("signing-key").map_err(invalid)?,
        });
        Ok(receipt)
    }
}
