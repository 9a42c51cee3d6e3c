//! Requests: consistent reads, and what to make of a failure.
//!
//! A request that may succeed later (throttled, in conflict, unanswered) is sent again a few times.
//! An effect is never sent again from here: nothing here knows of effects.

use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{Get, KeysAndAttributes, TransactGetItem};
use operators_kernel::StoreError;

use super::acked::Acked;
use super::fields::text;
use super::item::{Address, Item, PK, SK};
use super::observer::Observer;
use super::trouble::{Failure, Pauses};

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
    pub(super) acked: Arc<Acked>,
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
                let asked = std::mem::replace(&mut keys, left.unwrap_or_default());
                if keys.len() < asked.len() {
                    // It is slow, and gets somewhere.
                    pauses = Pauses::new(&self.observer);
                }
                if !keys.is_empty() && !pauses.pause(&self.observer).await {
                    return Err(self.unavailable("it answers nothing of what is asked for"));
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
}
