//! Writes that happen together or not at all, each on its condition.
//!
//! A write that may succeed later is sent again with the same token, so that one that landed is not
//! done twice, and says for ever whose it is.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, Delete, Put, ReturnValuesOnConditionCheckFailure,
    TransactWriteItem,
};
use operators_kernel::StoreError;
use operators_kernel::log::STUB_START;

use super::fields::{number, text};
use super::item::{Address, BY, Item, PK, SK, VERSION};
use super::request::Table;
use super::trouble::{Failure, Pauses, invalid, is_written_by, refusals};

/// What must be true of an item for it to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    /// Nobody wrote it yet.
    Absent,
    /// It is as it was read.
    Version(u64),
    /// It is a receipt that still has its text.
    Unpruned,
    /// Whatever it is.
    Anything,
}

/// One write of several that happen together or not at all.
#[derive(Debug, Clone)]
pub(super) enum Write {
    Put(Item, Expect),
    Delete(Address),
    /// Nothing is written; it must be so for the others to happen.
    Check(Check),
}

/// What must be true of an item that is not written.
#[derive(Debug, Clone)]
pub(super) struct Check {
    pub(super) address: Address,
    pub(super) condition: String,
    /// What stands for the names that are words of the service's own.
    pub(super) names: Option<HashMap<String, String>>,
    pub(super) values: Vec<(String, AttributeValue)>,
}

/// What became of several writes.
#[derive(Debug)]
pub(super) enum Written {
    /// All happened.
    Done,
    /// None happened. For each, what was in its way.
    Refused(Vec<InTheWay>),
}

/// What was in the way of one write.
#[derive(Debug, Clone)]
pub(super) enum InTheWay {
    /// Nothing that is known of.
    Nothing,
    /// The item as it is, or that there is none.
    Item(Option<Item>),
}

impl InTheWay {
    pub(super) fn is_something(&self) -> bool {
        matches!(self, Self::Item(_))
    }
}

impl Table {
    /// Writes all or nothing. `id` names this very write for ever: it is on what is put, so that a
    /// write that landed though its answer was lost is known for one's own.
    pub(super) async fn write(&self, id: &str, writes: &[Write]) -> Result<Written, StoreError> {
        let items = writes.iter().map(|write| self.transact(id, write));
        let items: Vec<TransactWriteItem> = items.collect::<Result<_, StoreError>>()?;
        let mut pauses = Pauses::new(&self.observer);
        // One try before may have been done, its answer lost: what is said of the next is nothing
        // about that one, so it is asked again, by whoever asked.
        let mut may_be_done = false;
        let never = |error: StoreError, may_be_done: bool| match error {
            StoreError::Unusable { problem, .. } if may_be_done => self.unavailable(problem),
            error => error,
        };
        loop {
            let sent = self
                .client
                .transact_write_items()
                .set_transact_items(Some(items.clone()))
                .client_request_token(id)
                .send()
                .await;
            let Err(error) = sent else {
                return Ok(Written::Done);
            };
            if let Some(refused) = refusals(&error) {
                if refused.iter().any(|found| is_written_by(id, found)) {
                    return Ok(Written::Done);
                }
                let mut whole = Vec::with_capacity(refused.len());
                for found in refused {
                    whole.push(match found {
                        InTheWay::Item(Some(item)) => InTheWay::Item(Some(self.whole(item).await?)),
                        nothing => nothing,
                    });
                }
                return Ok(Written::Refused(whole));
            }
            if let Some(problem) = invalid(&error) {
                return Err(never(self.unusable(problem), may_be_done));
            }
            match self.sort(&error) {
                Failure::Never(_) if self.is_done(id, writes).await => return Ok(Written::Done),
                Failure::Never(error) => return Err(never(error, may_be_done)),
                Failure::Later(problem) => {
                    may_be_done = true;
                    if !pauses.pause(&self.observer).await {
                        return Err(self.unavailable(problem));
                    }
                }
            }
        }
    }

    /// Whether a write is in the table though its answer refused it, as one from a proxy may.
    async fn is_done(&self, id: &str, writes: &[Write]) -> bool {
        let put = writes.iter().find_map(|write| match write {
            Write::Put(item, _) => Some(item),
            Write::Delete(_) | Write::Check(_) => None,
        });
        let Some(put) = put else {
            return false;
        };
        let name = [PK, SK].map(|part| Some((part.to_owned(), put.get(part)?.clone())));
        let name: Option<HashMap<_, _>> = name.into_iter().collect();
        let look = || {
            let request = self.client.get_item().table_name(&self.name);
            let request = request.set_key(name.clone());
            request.consistent_read(true).send()
        };
        let found = self.send(look).await;
        found.is_ok_and(|found| is_written_by(id, &InTheWay::Item(found.item)))
    }

    fn transact(&self, id: &str, write: &Write) -> Result<TransactWriteItem, StoreError> {
        let unusable =
            |error: aws_sdk_dynamodb::error::BuildError| self.unusable(error.to_string());
        let all_old = ReturnValuesOnConditionCheckFailure::AllOld;
        match write {
            Write::Check(check) => {
                let values = check.values.iter().cloned().collect();
                let check = ConditionCheck::builder()
                    .table_name(&self.name)
                    .set_key(Some(check.address.item()))
                    .set_expression_attribute_names(check.names.clone())
                    .condition_expression(&check.condition)
                    .set_expression_attribute_values(Some(values))
                    .return_values_on_condition_check_failure(all_old)
                    .build()
                    .map_err(unusable)?;
                Ok(TransactWriteItem::builder().condition_check(check).build())
            }
            Write::Delete(address) => {
                let delete = Delete::builder().table_name(&self.name);
                let delete = delete.set_key(Some(address.item())).build();
                let delete = delete.map_err(unusable)?;
                Ok(TransactWriteItem::builder().delete(delete).build())
            }
            Write::Put(item, expect) => {
                let mut put = Put::builder().table_name(&self.name);
                put = put.set_item(Some(item.clone())).item(BY, text(id));
                put = match expect {
                    Expect::Anything => put,
                    Expect::Absent | Expect::Version(0) => {
                        put.condition_expression(format!("attribute_not_exists({PK})"))
                    }
                    Expect::Unpruned => put
                        .condition_expression(format!(
                            "attribute_exists({PK}) AND NOT begins_with(body, :stub)"
                        ))
                        .expression_attribute_values(":stub", text(STUB_START)),
                    Expect::Version(version) => put
                        .condition_expression(format!("{VERSION} = :v"))
                        .expression_attribute_values(":v", number(*version)),
                };
                if *expect != Expect::Anything {
                    put = put.return_values_on_condition_check_failure(all_old);
                }
                let put = put.build().map_err(unusable)?;
                Ok(TransactWriteItem::builder().put(put).build())
            }
        }
    }
}
