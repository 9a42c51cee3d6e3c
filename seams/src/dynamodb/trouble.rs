//! What to make of a request that failed, and how long to wait before it is sent again.

use std::time::Duration;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::CancellationReason;
use operators_kernel::{StoreError, StoreTime};

use super::fields::Fields;
use super::item::BY;
use super::observer::Observer;
use super::request::Table;
use super::write::InTheWay;

/// The pauses before a request is sent again; the last one is repeated.
const PAUSES_MS: [u64; 6] = [5, 15, 40, 100, 250, 500];
/// How long a request is sent again; the caller has patience of its own.
pub(super) const PATIENCE: Duration = Duration::from_secs(4);
/// What the store has to say after a request.
pub(super) enum Failure {
    /// It may succeed later.
    Later(String),
    /// It will not.
    Never(StoreError),
}

impl Table {
    /// Decided once, where the vendor's error is first seen.
    pub(super) fn sort<E>(&self, error: &SdkError<E>) -> Failure
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let SdkError::ServiceError(service) = error else {
            return match error {
                SdkError::ConstructionFailure(_) => Failure::Never(self.unusable(root(error))),
                SdkError::TimeoutError(_) => Failure::Later("it does not answer".to_owned()),
                // Whatever was asked may have been done.
                SdkError::ResponseError(_) => {
                    Failure::Later(format!("its answer cannot be used: {}", root(error)))
                }
                _ => Failure::Later(format!("it cannot be reached: {}", root(error))),
            };
        };
        let code = service.err().code().unwrap_or_default();
        let said = service.err().message().unwrap_or_default();
        let status = service.raw().status().as_u16();
        match code {
            // The service names every refusal of its own, so this is none: an answer that was cut
            // off, or that something else gave. Whatever was asked may have been done.
            "" => Failure::Later(format!(
                "its answer cannot be read (HTTP {status}): it was cut off, or something else answers \
                 there"
            )),
            "ResourceNotFoundException" => Failure::Never(self.unusable(
                "the table is not there; make it with `operators doctor --create`, or as \
                 docs/guides/dynamodb.md shows",
            )),
            "ProvisionedThroughputExceededException"
            | "ThrottlingException"
            | "ThrottledException"
            | "RequestLimitExceeded"
            | "RequestThrottledException"
            | "LimitExceededException"
            | "TransactionConflictException"
            | "TransactionCanceledException"
            | "TransactionInProgressException"
            | "InternalServerError"
            | "InternalFailure"
            | "InternalServerException"
            | "ServiceUnavailable" => Failure::Later(format!("{code}: {said}")),
            _ if service.raw().status().is_server_error() => {
                Failure::Later(format!("HTTP {status}, {code}: {said}"))
            }
            _ => Failure::Never(self.unusable(format!("{code}: {said}"))),
        }
    }
}

/// Why a write was cancelled, for each of its parts.
fn reasons(error: &SdkError<TransactWriteItemsError>) -> &[CancellationReason] {
    match error.as_service_error() {
        Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
            cancelled.cancellation_reasons()
        }
        _ => &[],
    }
}

/// What can never be written, in the store's words.
pub(super) fn invalid(error: &SdkError<TransactWriteItemsError>) -> Option<String> {
    let mut reasons = reasons(error).iter();
    let reason = reasons.find(|reason| {
        let code = reason.code();
        code == Some("ValidationError") || code == Some("ItemCollectionSizeLimitExceeded")
    })?;
    Some(reason.message().unwrap_or("invalid").to_owned())
}

/// What lies at the bottom of an error.
fn root(error: &(dyn std::error::Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

/// What stood in a write's way, if that is why it did not happen.
pub(super) fn refusals(error: &SdkError<TransactWriteItemsError>) -> Option<Vec<InTheWay>> {
    let reasons = reasons(error);
    let is_condition =
        |reason: &CancellationReason| reason.code() == Some("ConditionalCheckFailed");
    if !reasons.iter().any(is_condition) {
        return None;
    }
    let refused = |reason: &CancellationReason| {
        if is_condition(reason) {
            InTheWay::Item(reason.item.clone())
        } else {
            InTheWay::Nothing
        }
    };
    Some(reasons.iter().map(refused).collect())
}

/// Whether what is in the way is this very write, whose answer was lost.
pub(super) fn is_written_by(id: &str, found: &InTheWay) -> bool {
    let InTheWay::Item(Some(item)) = found else {
        return false;
    };
    let by = Fields::of(item, "an item").text_if_there(BY);
    by.is_ok_and(|by| by == Some(id))
}

/// Growing pauses, each of random length so that two that met do not meet again.
pub(super) struct Pauses {
    taken: usize,
    until: StoreTime,
}

impl Pauses {
    pub(super) fn new(observer: &Observer) -> Self {
        Self {
            taken: 0,
            until: observer.now().plus(PATIENCE),
        }
    }

    /// Waits a while; `false` once patience is out.
    pub(super) async fn pause(&mut self, observer: &Observer) -> bool {
        if observer.now() >= self.until {
            return false;
        }
        let longest = PAUSES_MS.get(self.taken.min(PAUSES_MS.len() - 1));
        let longest = longest.copied().unwrap_or(1);
        self.taken += 1;
        let micros = longest * 500 + u64::from(chance()) * longest * 500 / 255;
        tokio::time::sleep(Duration::from_micros(micros)).await;
        true
    }
}

/// A random byte; without randomness a fixed one, for nothing but spreading depends on it.
pub(super) fn chance() -> u8 {
    let mut byte = [0];
    match getrandom::fill(&mut byte) {
        Ok(()) => u8::from_ne_bytes(byte),
        Err(_) => 128,
    }
}

/// An id nobody else has, of the length that a request token may have.
pub(super) fn fresh_id() -> Result<String, String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| format!("no randomness to be had: {error}"))?;
    Ok(operators_kernel::json::hex(&bytes))
}
