//! Requests: consistent reads, conditional writes, and what to make of a failure.
//!
//! A request that may succeed later (throttled, in conflict, unanswered) is sent again a few times,
//! a write with the same token, so that one that landed is not done twice. An effect is never sent
//! again from here: nothing here knows of effects.

use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{
    Delete, Get, KeysAndAttributes, Put, ReturnValuesOnConditionCheckFailure, TransactGetItem,
    TransactWriteItem,
};
use operators_kernel::StoreError;
use operators_kernel::log::STUB_START;

use super::fields::{number, text};
use super::item::{Address, BY, Item, PK, SK, VERSION};
use super::observer::Observer;
use super::trouble::{Failure, Pauses, invalid, is_written_by, refusals};

/// The most items one `BatchGetItem` takes.
const GET_MAX: usize = 100;

/// The table, reached.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) client: Client,
    pub(super) name: String,
    /// For messages.
    pub(super) place: String,
    pub(super) observer: Arc<Observer>,
}

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

/// How far a range goes.
#[derive(Debug, Clone)]
pub(super) enum Range {
    /// All of it, oldest first.
    All,
    /// From after here, oldest first.
    After(String),
    /// Between these two, both included, oldest first.
    Between(String, String),
    /// The last one.
    Last,
}

impl Table {
    pub(super) fn unusable(&self, problem: impl Into<String>) -> StoreError {
        StoreError::Unusable {
            store: self.place.clone(),
            problem: problem.into(),
        }
    }

    pub(super) fn unavailable(&self, problem: impl Into<String>) -> StoreError {
        StoreError::Unavailable {
            store: self.place.clone(),
            problem: problem.into(),
        }
    }

    /// Sends a request until it is answered or patience is out.
    pub(super) async fn send<T, E, F>(&self, request: impl Fn() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, SdkError<E>>>,
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let mut pauses = Pauses::new(&self.observer);
        loop {
            match request().await.map_err(|error| self.sort(&error)) {
                Ok(answer) => return Ok(answer),
                Err(Failure::Never(error)) => return Err(error),
                Err(Failure::Later(problem)) => {
                    if !pauses.pause(&self.observer).await {
                        return Err(self.unavailable(problem));
                    }
                }
            }
        }
    }

    /// One item, as it is.
    pub(super) async fn get(&self, address: &Address) -> Result<Option<Item>, StoreError> {
        let mut pauses = Pauses::new(&self.observer);
        loop {
            let answer = self
                .send(|| {
                    let request = self.client.get_item().table_name(&self.name);
                    let request = request.set_key(Some(address.item()));
                    request.consistent_read(true).send()
                })
                .await?;
            let Some(found) = answer.item else {
                return Ok(None);
            };
            if let Some(whole) = self.joined(found).await? {
                return Ok(Some(whole));
            }
            self.look_again(&mut pauses).await?;
        }
    }

    /// Waits for another look at an item that was written between it and its pieces.
    async fn look_again(&self, pauses: &mut Pauses) -> Result<(), StoreError> {
        if pauses.pause(&self.observer).await {
            return Ok(());
        }
        Err(self.unusable("pieces of a long text do not belong to it; items were changed by hand"))
    }

    /// Several items, all of one moment.
    pub(super) async fn snapshot(
        &self,
        addresses: &[Address],
    ) -> Result<Vec<Option<Item>>, StoreError> {
        let gets = addresses.iter().map(|address| {
            let get = Get::builder().table_name(&self.name);
            let get = get.set_key(Some(address.item())).build();
            let get = get.map_err(|error| self.unusable(error.to_string()))?;
            Ok(TransactGetItem::builder().get(get).build())
        });
        let gets: Vec<TransactGetItem> = gets.collect::<Result<_, StoreError>>()?;
        let mut pauses = Pauses::new(&self.observer);
        'look: loop {
            let answer = self
                .send(|| {
                    let request = self.client.transact_get_items();
                    request.set_transact_items(Some(gets.clone())).send()
                })
                .await?;
            let mut found = Vec::with_capacity(addresses.len());
            for response in answer.responses.unwrap_or_default() {
                let Some(item) = response.item else {
                    found.push(None);
                    continue;
                };
                let Some(whole) = self.joined(item).await? else {
                    self.look_again(&mut pauses).await?;
                    continue 'look;
                };
                found.push(Some(whole));
            }
            return Ok(found);
        }
    }

    /// Several items, each as it is; those that are not there are left out.
    pub(super) async fn get_all(&self, addresses: &[Address]) -> Result<Vec<Item>, StoreError> {
        let mut whole = Vec::with_capacity(addresses.len());
        for item in self.get_all_as_kept(addresses).await? {
            whole.push(self.whole(item).await?);
        }
        Ok(whole)
    }

    /// As [`get_all`](Self::get_all), long texts cut as they are kept.
    pub(super) async fn get_all_as_kept(
        &self,
        addresses: &[Address],
    ) -> Result<Vec<Item>, StoreError> {
        let mut found = Vec::with_capacity(addresses.len());
        for chunk in addresses.chunks(GET_MAX) {
            let mut keys: Vec<Item> = chunk.iter().map(Address::item).collect();
            let mut pauses = Pauses::new(&self.observer);
            while !keys.is_empty() {
                let wanted = KeysAndAttributes::builder()
                    .set_keys(Some(keys.clone()))
                    .consistent_read(true)
                    .build()
                    .map_err(|error| self.unusable(error.to_string()))?;
                let answer = self
                    .send(|| {
                        let request = self.client.batch_get_item();
                        request.request_items(&self.name, wanted.clone()).send()
                    })
                    .await?;
                let items = answer.responses.unwrap_or_default().remove(&self.name);
                found.extend(items.unwrap_or_default());
                let left = answer.unprocessed_keys.unwrap_or_default();
                let left = left.get(&self.name).map(|left| left.keys().to_vec());
                keys = left.unwrap_or_default();
                if !keys.is_empty() && !pauses.pause(&self.observer).await {
                    return Err(self.unavailable("it answers only in part"));
                }
            }
        }
        Ok(found)
    }

    /// One page of a range: its items, and whether there is more.
    pub(super) async fn range(
        &self,
        pk: &str,
        range: Range,
    ) -> Result<(Vec<Item>, bool), StoreError> {
        let answer = self
            .send(|| {
                let mut request = self
                    .client
                    .query()
                    .table_name(&self.name)
                    .consistent_read(true)
                    .expression_attribute_values(":pk", text(pk));
                let condition = match &range {
                    Range::All | Range::Last => format!("{PK} = :pk"),
                    Range::After(start) => {
                        request = request.expression_attribute_values(":a", text(start));
                        format!("{PK} = :pk AND {SK} > :a")
                    }
                    Range::Between(first, last) => {
                        request = request
                            .expression_attribute_values(":a", text(first))
                            .expression_attribute_values(":b", text(last));
                        format!("{PK} = :pk AND {SK} BETWEEN :a AND :b")
                    }
                };
                if matches!(range, Range::Last) {
                    request = request.scan_index_forward(false).limit(1);
                }
                request.key_condition_expression(condition).send()
            })
            .await?;
        let more = answer.last_evaluated_key.is_some();
        Ok((answer.items.unwrap_or_default(), more))
    }

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

    fn transact(&self, id: &str, write: &Write) -> Result<TransactWriteItem, StoreError> {
        let unusable =
            |error: aws_sdk_dynamodb::error::BuildError| self.unusable(error.to_string());
        match write {
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
                    let all_old = ReturnValuesOnConditionCheckFailure::AllOld;
                    put = put.return_values_on_condition_check_failure(all_old);
                }
                let put = put.build().map_err(unusable)?;
                Ok(TransactWriteItem::builder().put(put).build())
            }
        }
    }
}
